//! One subscriber's view of one track.

mod result;

use std::time::Instant;

use super::TrackPlan;
use super::groups::Groups;
use super::sequence::{Arrival, Sequence};
use super::timing::{Arrivals, Punctuality, exceeds, latency_ns};
use crate::limits::{MALFORMED_MAX, TRACK_RECEIVER_BYTES_MAX};
use crate::message::{Completion, DATA_HEADER_BYTES, DataHeader, Message, Start};
use crate::payload::Tag;
use crate::profile::Pattern;
use crate::qperf::{QperfObject, Wire};
use weir_histogram::Histogram;

pub use self::result::{PublisherVariance, SentTotals, TrackResult};

/// Everything that one subscriber measures of one track, in 20 KiB, whatever arrives. It allocates
/// nothing, so receivers can lie side by side in one vector.
#[derive(Clone, Debug)]
pub struct TrackReceiver {
    phase: Phase,
    failure: Option<Failure>,
    started: bool,
    /// Whether any object carried a tag, so that the publisher is one of ours.
    tagged: bool,
    completion: Option<Completion>,
    /// When something new of this run came last, of any kind. What is repeated keeps no track open.
    last_message: Option<Instant>,
    bytes: u64,
    counters: Counters,
    /// When object zero of the older tool was sent, in microseconds since 1970.
    origin_us: Option<u64>,
    /// MOQT Group ID less benchmark group number, from the first object on (decision 11).
    group_offset: Option<u64>,
    punctuality: Punctuality,
    arrivals: Arrivals,
    sequence: Sequence,
    groups: Groups,
    latency: Histogram,
}

/// Where a track is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Objects may come.
    Open,
    /// The publisher is done; stragglers may come until then.
    Draining { until: Instant, end: End },
    /// Nothing is counted any more.
    Ended(End),
}

/// How a track came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By COMPLETION.
    Completion,
    /// By `PUBLISH_DONE` (decision 14).
    PublishDone,
    /// Nothing came any more (decision 14).
    Idle,
    /// The session was lost.
    Disconnected,
    /// The run was stopped.
    Interrupted,
}

/// Why a track is failed, whatever else was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// An object or COMPLETION came before START (decision 15).
    NoStart,
    /// START describes another track than the profile.
    OtherProfile,
    /// As many malformed messages as are put up with.
    Malformed,
    /// The relay refused the subscription.
    Refused,
}

/// What an object turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// START, the first or a repeated one.
    Start,
    /// An object that had not been received before.
    Data {
        /// Its number in the track.
        number: u64,
        /// From its planned time to now; `None` if it carries no tag.
        latency_ns: Option<u64>,
    },
    /// An object that was received before, or so long ago that nobody knows.
    Repeated,
    /// An object of another run.
    Foreign,
    /// COMPLETION.
    Completion,
    /// No message of this track's benchmark.
    Malformed,
    /// Not looked at, since the track has ended or failed.
    Ignored,
}

/// What is counted beside the objects.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    duplicates: u64,
    reordered: u64,
    late: u64,
    /// The lowest number of those.
    first_late: Option<u64>,
    cut_by_reset: u64,
    /// Group and subgroup of the stream that was reset last, and the objects that count as cut off with it.
    last_cut: Option<((u64, u64), u64)>,
    malformed: u64,
    corrupt: u64,
    foreign: u64,
    misplaced: u64,
    negative_latencies: u64,
}

/// An object as MOQT delivers it.
#[derive(Clone, Copy, Debug)]
pub struct Delivered<'a> {
    /// Its MOQT Group ID.
    pub group: u64,
    /// Its MOQT Object ID.
    pub object: u64,
    /// Its first [`crate::payload::HEAD_BYTES`] bytes, or all of them if it has fewer.
    pub head: &'a [u8],
    /// Its size.
    pub bytes: u64,
    /// Whether its content and extension headers are those that were sent, as far as they were compared.
    pub intact: bool,
}

impl Counters {
    fn note_late(&mut self, number: u64) {
        self.late += 1;
        self.first_late = Some(self.first_late.map_or(number, |first| first.min(number)));
    }
}

impl TrackReceiver {
    /// A track of which nothing has been received.
    pub fn new() -> Self {
        Self {
            phase: Phase::Open,
            failure: None,
            started: false,
            tagged: false,
            completion: None,
            last_message: None,
            bytes: 0,
            counters: Counters::default(),
            origin_us: None,
            group_offset: None,
            punctuality: Punctuality::default(),
            arrivals: Arrivals::default(),
            sequence: Sequence::new(),
            groups: Groups::new(),
            latency: Histogram::new(),
        }
    }

    /// Takes an object whose last byte arrived now.
    pub fn handle_object(
        &mut self,
        now: Instant,
        plan: &TrackPlan,
        delivered: &Delivered<'_>,
    ) -> Received {
        if self.has_ended() || self.failure == Some(Failure::Malformed) {
            return Received::Ignored;
        }
        if plan.wire() == Wire::Qperf {
            return self.handle_qperf(now, plan, delivered);
        }
        match Message::decode(delivered.head, delivered.bytes) {
            Ok(Message::Start(start)) => self.handle_start(now, plan, &start),
            Ok(Message::Data(header)) => {
                let tag = delivered.head.get(DATA_HEADER_BYTES..);
                let tag = tag.and_then(Tag::decode);
                self.handle_data(now, plan, delivered, &header, tag)
            }
            Ok(Message::Completion(completion)) => self.handle_completion(now, plan, completion),
            Err(_) => self.handle_malformed(),
        }
    }

    /// A message that is none of the benchmark's. [`MALFORMED_MAX`] of them fail the track.
    pub fn handle_malformed(&mut self) -> Received {
        self.counters.malformed += 1;
        if self.counters.malformed >= MALFORMED_MAX {
            self.fail(Failure::Malformed);
        }
        Received::Malformed
    }

    /// A stream of MOQT group `group` was reset before its object `next_object` was received whole:
    /// that object and the rest of the subgroup were cut off. Where the last reset was of the same subgroup, only what
    /// that one left counts.
    pub fn handle_reset(&mut self, plan: &TrackPlan, group: u64, subgroup: u64, next_object: u64) {
        let schedule = plan.schedule();
        let offset = self
            .group_offset
            .unwrap_or_else(|| schedule.data_group_offset());
        if let Some(group_number) = group.checked_sub(offset) {
            let objects = schedule.objects_in_group(group_number);
            let mapping = plan.stream_mapping();
            let cut = mapping.objects_from(subgroup, next_object, objects);
            let place = (group, subgroup);
            let last = self.counters.last_cut.filter(|(last, _)| *last == place);
            let counted = last.map_or(0, |(_, counted)| counted);
            self.counters.cut_by_reset += cut.saturating_sub(counted);
            self.counters.last_cut = Some((place, cut.max(counted)));
        }
    }

    /// The publisher says that nothing more will come; what is on its way may still arrive.
    pub fn handle_publish_done(&mut self, now: Instant, plan: &TrackPlan) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining {
                until: now + plan.drain(),
                end: End::PublishDone,
            };
        }
    }

    /// Fails the track for good; the first failure is the one that is reported.
    pub fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Ends the track at once, unless it has ended.
    pub fn end(&mut self, end: End) {
        self.phase = match self.phase {
            Phase::Open => Phase::Ended(end),
            // The verdict was out; only stragglers are cut off.
            Phase::Draining { end, .. } => Phase::Ended(end),
            Phase::Ended(_) => return,
        };
    }

    /// When [`Self::handle_timeout`] has something to do: the end of the drain, or the time after
    /// which a started track is idle.
    pub fn poll_timeout(&self, plan: &TrackPlan) -> Option<Instant> {
        match self.phase {
            Phase::Open => Some(self.last_message? + plan.idle_timeout()),
            Phase::Draining { until, .. } => Some(until),
            Phase::Ended(_) => None,
        }
    }

    /// Ends the track if its time has come.
    pub fn handle_timeout(&mut self, now: Instant, plan: &TrackPlan) {
        if self
            .poll_timeout(plan)
            .is_some_and(|timeout| timeout <= now)
        {
            self.end(End::Idle);
        }
    }

    /// Whether nothing more is counted.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// Whether the track is over before its time, or worthless.
    pub fn has_failed(&self) -> bool {
        let is_cut_off = match self.phase {
            Phase::Ended(end) => end != End::Completion,
            Phase::Open | Phase::Draining { .. } => false,
        };
        self.failure.is_some() || is_cut_off
    }

    /// Whether the track goes on, as far as is known.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether START was seen.
    pub fn has_started(&self) -> bool {
        self.started
    }

    /// Different objects received.
    pub fn objects(&self) -> u64 {
        self.sequence.unique()
    }

    /// Latencies from the planned time, of all objects with a tag.
    pub fn latency(&self) -> &Histogram {
        &self.latency
    }

    /// Absolute receive variances.
    pub fn receive_variance(&self) -> &Histogram {
        self.arrivals.variance.absolute()
    }

    /// The first START says what is to come; those that repeat it are ignored. [evens-00 §5.2]
    fn handle_start(&mut self, now: Instant, plan: &TrackPlan, start: &Start) -> Received {
        let is_first = !std::mem::replace(&mut self.started, true);
        if is_first {
            self.last_message = Some(now);
            if *start != plan.schedule().start_message() {
                self.fail(Failure::OtherProfile);
            }
        }
        Received::Start
    }

    fn handle_data(
        &mut self,
        now: Instant,
        plan: &TrackPlan,
        delivered: &Delivered<'_>,
        header: &DataHeader,
        tag: Option<Tag>,
    ) -> Received {
        let schedule = plan.schedule();
        if tag.is_some_and(|tag| tag.run_id != plan.run_id()) {
            self.counters.foreign += 1;
            return Received::Foreign;
        }
        let number = schedule.number_of(header.group_number, header.object_number);
        let fits = |number: &u64| {
            tag.is_none_or(|tag| tag.sequence == *number)
                && u64::from(schedule.size_of(*number).bytes()) == delivered.bytes
        };
        let Some(number) = number.filter(fits) else {
            return self.handle_malformed();
        };
        self.require_start(plan);
        self.check_place(delivered, header);
        self.check_content(delivered, header, tag.is_some());
        match self.sequence.insert(number) {
            Arrival::Next => {}
            Arrival::Reordered => self.counters.reordered += 1,
            Arrival::Duplicate => {
                self.counters.duplicates += 1;
                return Received::Repeated;
            }
            Arrival::Stale => {
                self.counters.note_late(number);
                return Received::Repeated;
            }
        }
        self.last_message = Some(now);
        self.groups.insert(
            header.group_number,
            schedule.objects_in_group(header.group_number),
        );
        self.bytes += delivered.bytes;
        let planned_ns = schedule.planned_ns(number);
        self.punctuality
            .on_object(header.milliseconds_since_first_object, planned_ns);
        let variance_ns = self.arrivals.on_object(now, planned_ns);
        // What is fetched was not sent for whoever fetches it: there is no latency to speak of.
        let tag = tag.filter(|_| plan.pattern() != Pattern::Fetch);
        let latency_ns = tag.map(|tag| self.measure_latency(now, plan, &tag));
        if plan.pattern() == Pattern::Fetch {
            self.end_if_whole();
            return Received::Data { number, latency_ns };
        }
        let delay_ns = latency_ns.unwrap_or_else(|| u64::try_from(variance_ns).unwrap_or(0));
        if exceeds(delay_ns, plan.ttl()) {
            self.counters.note_late(number);
        }
        self.end_if_whole();
        Received::Data { number, latency_ns }
    }

    /// An object of the older tool: its place is what MOQT says, its time that of sending.
    fn handle_qperf(
        &mut self,
        now: Instant,
        plan: &TrackPlan,
        delivered: &Delivered<'_>,
    ) -> Received {
        let schedule = plan.schedule();
        match QperfObject::decode(delivered.head, delivered.bytes) {
            Some(QperfObject::Data { sent_us }) => {
                let group_number = delivered.group.checked_sub(schedule.data_group_offset());
                let place = group_number.zip(Some(delivered.object));
                let number = place.and_then(|(group, object)| schedule.number_of(group, object));
                let Some((number, (group_number, object_number))) = number.zip(place) else {
                    return self.handle_malformed();
                };
                self.started = true;
                let planned_us = schedule.planned_ns(number) / 1000;
                let origin_us = *self
                    .origin_us
                    .get_or_insert_with(|| sent_us.saturating_sub(planned_us));
                let ms = sent_us.saturating_sub(origin_us) / 1000;
                let header = DataHeader {
                    group_number,
                    object_number,
                    milliseconds_since_first_object: u32::try_from(ms).unwrap_or(u32::MAX),
                    data_length: schedule.size_of(number).data_length(),
                };
                let sent_ns = sent_us.saturating_mul(1000);
                let tag = Tag {
                    run_id: plan.run_id(),
                    sequence: number,
                    planned_ns: sent_ns,
                    sent_ns,
                };
                self.handle_data(now, plan, delivered, &header, Some(tag))
            }
            Some(QperfObject::Complete(completion)) => {
                self.started = true;
                let groups_sent = completion
                    .objects_sent
                    .div_ceil(schedule.objects_per_group());
                let completion = Completion {
                    groups_sent,
                    ..completion
                };
                self.handle_completion(now, plan, completion)
            }
            None => self.handle_malformed(),
        }
    }

    fn handle_completion(
        &mut self,
        now: Instant,
        plan: &TrackPlan,
        completion: Completion,
    ) -> Received {
        let schedule = plan.schedule();
        let possible = completion.objects_sent <= schedule.objects()
            && completion.groups_sent <= schedule.groups()
            && self.completion.is_none_or(|first| first == completion);
        if !possible {
            return self.handle_malformed();
        }
        self.require_start(plan);
        self.last_message = Some(now);
        if self.completion.is_none() {
            self.completion = Some(completion);
            let until = match self.phase {
                Phase::Draining { until, .. } => until,
                Phase::Open | Phase::Ended(_) => now + plan.drain(),
            };
            self.phase = Phase::Draining {
                until,
                end: End::Completion,
            };
            self.end_if_whole();
        }
        Received::Completion
    }

    /// The draft fails a track whose START did not come first. [evens-00 §5.2]
    fn require_start(&mut self, plan: &TrackPlan) {
        if !self.started && !plan.late_join() {
            self.fail(Failure::NoStart);
        }
    }

    /// Checks that the relay kept the object where the publisher put it (decision 11).
    fn check_place(&mut self, delivered: &Delivered<'_>, header: &DataHeader) {
        let offset = delivered.group.wrapping_sub(header.group_number);
        let kept = *self.group_offset.get_or_insert(offset) == offset;
        if !kept || delivered.object != header.object_number {
            self.counters.misplaced += 1;
        }
    }

    /// Checks that the relay passed on what it was given. An object with room for a tag and without one is of a publisher
    /// of another make, whose content nobody knows here, unless others of its track have one.
    fn check_content(&mut self, delivered: &Delivered<'_>, header: &DataHeader, has_tag: bool) {
        self.tagged |= has_tag;
        let is_corrupt = if has_tag || !Tag::fits(header.data_length) {
            !delivered.intact
        } else {
            self.tagged
        };
        self.counters.corrupt += u64::from(is_corrupt);
    }

    fn measure_latency(&mut self, now: Instant, plan: &TrackPlan, tag: &Tag) -> u64 {
        let (latency_ns, negative) = latency_ns(tag.planned_ns, plan.clock().ns(now));
        self.counters.negative_latencies += u64::from(negative);
        self.latency.record_ns(latency_ns);
        latency_ns
    }

    /// Nobody need wait for stragglers if everything is there.
    fn end_if_whole(&mut self) {
        let sent = self.completion.map(|completion| completion.objects_sent);
        if sent.is_some_and(|sent| self.sequence.unique() >= sent) {
            self.end(End::Completion);
        }
    }
}

impl Default for TrackReceiver {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(size_of::<TrackReceiver>() <= TRACK_RECEIVER_BYTES_MAX);
