//! One subscriber's view of one track.

mod result;

use std::time::Instant;

use super::groups::Groups;
use super::sequence::{Arrival, Sequence};
use super::timing::{Arrivals, Punctuality, exceeds, latency_ns};
use super::{Timing, TrackPlan};
use crate::limits::{MALFORMED_MAX, TRACK_RECEIVER_BYTES_MAX};
use crate::message::{Completion, DATA_HEADER_BYTES, DataHeader, Message, Start};
use crate::payload::Tag;
use crate::profile::Pattern;
use crate::qperf::{QperfObject, Wire};
use weir_histogram::Histogram;

pub use self::result::{PublisherVariance, SentTotals, TrackResult};

/// Everything that one subscriber measures of one track, in 20 KiB whatever arrives. It does not allocate, so receivers
/// can lie side by side in one vector.
#[derive(Clone, Debug)]
pub struct TrackReceiver {
    phase: Phase,
    failure: Option<Failure>,
    started: bool,
    /// Whether any object carried a tag, which only weir's publishers write.
    tagged: bool,
    completion: Option<Completion>,
    /// When the last new message of this run arrived, of any kind. Repeated messages do not keep a track open.
    last_message: Option<Instant>,
    bytes: u64,
    counters: Counters,
    /// When object zero of a qperf track was sent, in microseconds since 1970.
    origin_us: Option<u64>,
    /// MOQT Group ID minus the benchmark's group number, fixed by the first object (decision 11).
    group_offset: Option<u64>,
    punctuality: Punctuality,
    arrivals: Arrivals,
    sequence: Sequence,
    groups: Groups,
    latency: Histogram,
}

/// The phase of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Objects may arrive.
    Open,
    /// The publisher has ended the track; late objects count until `until`.
    Draining { until: Instant, end: End },
    /// Nothing is counted.
    Ended(End),
}

/// How a track ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// With COMPLETION.
    Completion,
    /// With `PUBLISH_DONE` (decision 14).
    PublishDone,
    /// Without any message for the idle timeout (decision 14).
    Idle,
    /// The session was lost.
    Disconnected,
    /// The run was stopped.
    Interrupted,
}

/// Why a track failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// An object or COMPLETION arrived before START (decision 15).
    NoStart,
    /// START describes another track than the profile.
    OtherProfile,
    /// Too many malformed messages arrived ([`MALFORMED_MAX`]).
    Malformed,
    /// The relay refused the subscription.
    Refused,
}

/// The kind of a received object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// START, the first or a repeated one.
    Start,
    /// An object that had not been received before.
    Data {
        /// Its number in the track.
        number: u64,
        /// From its planned time to its arrival; `None` if it carries no tag.
        latency_ns: Option<u64>,
        /// Its arrival compared with the one before it and with the plan.
        timing: Timing,
    },
    /// An object of a joining FETCH that had not been received before. It has no latency: it was sent before the
    /// subscriber asked.
    Past {
        /// Its number in the track.
        number: u64,
    },
    /// A duplicate, or an object too old to tell from one.
    Repeated,
    /// An object of another run.
    Foreign,
    /// COMPLETION.
    Completion,
    /// A message that is malformed or does not belong to this track's benchmark.
    Malformed,
    /// Not examined, since the track has ended or failed.
    Ignored,
}

/// Counters beside the objects.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    duplicates: u64,
    reordered: u64,
    late: u64,
    /// The lowest number of a late object.
    first_late: Option<u64>,
    cut_by_reset: u64,
    /// Group and subgroup of the stream that was reset last, and how many of its objects count as cut off.
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
    /// The MOQT Group ID.
    pub group: u64,
    /// The MOQT Object ID.
    pub object: u64,
    /// The first [`crate::payload::HEAD_BYTES`] bytes, or all bytes of a shorter object.
    pub head: &'a [u8],
    /// The size in bytes.
    pub bytes: u64,
    /// Whether content and extension headers are as sent, as far as they were compared.
    pub intact: bool,
}

impl Counters {
    fn note_late(&mut self, number: u64) {
        self.late += 1;
        self.first_late = Some(self.first_late.map_or(number, |first| first.min(number)));
    }
}

impl TrackReceiver {
    /// Returns a receiver that has received nothing.
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

    /// Takes an object whose last byte arrives at `now`.
    pub fn handle_object(
        &mut self,
        now: Instant,
        plan: &TrackPlan,
        delivered: &Delivered<'_>,
    ) -> Received {
        self.handle(now, plan, delivered, false)
    }

    /// Takes an object of a joining FETCH, whose last byte arrives at `now`. It counts as received; latency, order,
    /// variance and bit rate are those of the other objects.
    pub fn handle_past_object(
        &mut self,
        now: Instant,
        plan: &TrackPlan,
        delivered: &Delivered<'_>,
    ) -> Received {
        self.handle(now, plan, delivered, true)
    }

    fn handle(
        &mut self,
        now: Instant,
        plan: &TrackPlan,
        delivered: &Delivered<'_>,
        is_past: bool,
    ) -> Received {
        if self.has_ended() || self.failure == Some(Failure::Malformed) {
            return Received::Ignored;
        }
        if plan.wire() == Wire::Qperf {
            return self.handle_qperf(now, plan, delivered, is_past);
        }
        match Message::decode(delivered.head, delivered.bytes) {
            Ok(Message::Start(start)) => self.handle_start(now, plan, &start),
            Ok(Message::Data(header)) => {
                let tag = delivered.head.get(DATA_HEADER_BYTES..);
                let tag = tag.and_then(Tag::decode);
                self.handle_data(now, plan, (delivered, is_past), &header, tag)
            }
            Ok(Message::Completion(completion)) => self.handle_completion(now, plan, completion),
            Err(_) => self.handle_malformed(),
        }
    }

    /// Counts a message that is not the benchmark's. [`MALFORMED_MAX`] of them fail the track.
    pub fn handle_malformed(&mut self) -> Received {
        self.counters.malformed += 1;
        if self.counters.malformed >= MALFORMED_MAX {
            self.fail(Failure::Malformed);
        }
        Received::Malformed
    }

    /// Notes that a stream of MOQT group `group` was reset before its object `next_object` was complete. This object
    /// and the rest of the subgroup count as cut off. If the last reset was in the same subgroup, only objects that it
    /// did not count are added.
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

    /// Notes that the publisher has ended the track. Objects on their way may still arrive.
    pub fn handle_publish_done(&mut self, now: Instant, plan: &TrackPlan) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining {
                until: now + plan.drain(),
                end: End::PublishDone,
            };
        }
    }

    /// Fails the track for good. The first failure is reported.
    pub fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Ends the track at once, unless it has ended.
    pub fn end(&mut self, end: End) {
        self.phase = match self.phase {
            Phase::Open => Phase::Ended(end),
            // The publisher has ended the track; only late objects are cut off.
            Phase::Draining { end, .. } => Phase::Ended(end),
            Phase::Ended(_) => return,
        };
    }

    /// Returns when [`Self::handle_timeout`] is due: at the end of the drain, or when a started track becomes idle.
    pub fn poll_timeout(&self, plan: &TrackPlan) -> Option<Instant> {
        match self.phase {
            Phase::Open => Some(self.last_message? + plan.idle_timeout()),
            Phase::Draining { until, .. } => Some(until),
            Phase::Ended(_) => None,
        }
    }

    /// Ends the track if its drain or idle timeout is over.
    pub fn handle_timeout(&mut self, now: Instant, plan: &TrackPlan) {
        if self
            .poll_timeout(plan)
            .is_some_and(|timeout| timeout <= now)
        {
            self.end(End::Idle);
        }
    }

    /// Whether the track has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// Whether the track ended early or failed.
    pub fn has_failed(&self) -> bool {
        let is_cut_off = match self.phase {
            Phase::Ended(end) => end != End::Completion,
            Phase::Open | Phase::Draining { .. } => false,
        };
        self.failure.is_some() || is_cut_off
    }

    /// Whether the track is open: neither draining nor ended.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether START was received.
    pub fn has_started(&self) -> bool {
        self.started
    }

    /// Returns the number of distinct objects received.
    pub fn objects(&self) -> u64 {
        self.sequence.unique()
    }

    /// Returns the latencies of all objects with a tag, from their planned time.
    pub fn latency(&self) -> &Histogram {
        &self.latency
    }

    /// Returns the absolute receive variances.
    pub fn receive_variance(&self) -> &Histogram {
        self.arrivals.variance.absolute()
    }

    /// Takes START. The first one describes the track; repetitions are ignored. [evens-00 §5.2]
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
        (delivered, is_past): (&Delivered<'_>, bool),
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
            Arrival::Reordered => self.counters.reordered += u64::from(!is_past),
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
        if is_past {
            self.end_if_whole();
            return Received::Past { number };
        }
        self.bytes += delivered.bytes;
        let planned_ns = schedule.planned_ns(number);
        let sent_ms = header.milliseconds_since_first_object;
        let publisher_variance_ns = self.punctuality.on_object(sent_ms, planned_ns);
        let (receive_variance_ns, delta_ns) = self.arrivals.on_object(now, planned_ns);
        let timing = Timing {
            delta_ns,
            receive_variance_ns,
            publisher_variance_ns,
        };
        // A fetched object was not sent at its planned time, so it has no latency.
        let is_fetched = plan.pattern() == Pattern::Fetch;
        let tag = tag.filter(|_| !is_fetched);
        let latency_ns = tag.map(|tag| self.measure_latency(now, plan, &tag));
        let variance_ns = u64::try_from(receive_variance_ns).unwrap_or(0);
        if !is_fetched && exceeds(latency_ns.unwrap_or(variance_ns), plan.ttl()) {
            self.counters.note_late(number);
        }
        self.end_if_whole();
        Received::Data {
            number,
            latency_ns,
            timing,
        }
    }

    /// Takes an object of qperf: MOQT gives its place, and the object the time of sending.
    fn handle_qperf(
        &mut self,
        now: Instant,
        plan: &TrackPlan,
        delivered: &Delivered<'_>,
        is_past: bool,
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
                self.handle_data(now, plan, (delivered, is_past), &header, Some(tag))
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

    /// Fails a track whose START did not come first. [evens-00 §5.2]
    fn require_start(&mut self, plan: &TrackPlan) {
        if !self.started && !plan.late_join() {
            self.fail(Failure::NoStart);
        }
    }

    /// Checks that the relay kept the object's group and number (decision 11).
    fn check_place(&mut self, delivered: &Delivered<'_>, header: &DataHeader) {
        let offset = delivered.group.wrapping_sub(header.group_number);
        let kept = *self.group_offset.get_or_insert(offset) == offset;
        if !kept || delivered.object != header.object_number {
            self.counters.misplaced += 1;
        }
    }

    /// Checks that the relay passed on the content unchanged. If no object of a track carries a tag although there is
    /// room, its publisher is another tool, whose content is unknown.
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

    /// Ends the drain early if every object has arrived.
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
