//! A subscription, and how far it has read each subgroup.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    time::{Duration, Instant},
};

use weir_moqt::{
    error::ResetCode,
    location::Location,
    message::PublishDone,
    parameter::{GroupOrder, Parameters},
    priority::{SUBSCRIBER_PRIORITY_DEFAULT, rank},
    session::RequestId,
};
use weir_quic::{Connection, Handle};
use weir_transport::{Direction, StreamId, Transport as _};

use super::{
    deadlines::Deadline,
    state::{Event, State},
    stream::{FanOut, OutState, OutStream, Outcome, Wait},
    timeouts::{Timeouts, smaller},
};
use crate::{
    ids::SubgroupId,
    sessions::peer::PeerKind,
    track::{Ended, Mark, Subgroup, TrackDefaults},
};

/// An established subscription.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) handle: Handle,
    pub(super) request: RequestId,
    /// The kind of peer that subscribes.
    pub(super) kind: PeerKind,
    /// Whether the relay offered the track with PUBLISH, without a SUBSCRIBE of the link.
    pub(super) is_offer: bool,
    state: State,
    start: Location,
    /// The last location wanted. A subgroup that begins before it is sent to its end.
    end: Location,
    priority: u8,
    order: GroupOrder,
    timeouts: Timeouts,
    /// The smaller of the object and the subgroup timeout [moqt-18 §8].
    datagram_timeout: Option<Duration>,
    streams: Vec<OutStream>,
    streams_opened: u64,
    /// The newest group dropped because of lag; older groups are not started.
    shed: Option<u64>,
    /// The largest location sent when the subscription was established or resumed: a joining FETCH ends there
    /// [moqt-18 §5.1].
    pub(super) joining: Option<Location>,
}

/// How far a subscriber has read a subgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The subscriber does not want the subgroup.
    Apart,
    /// The subscriber has read everything so far, or its stream was reset.
    Level,
    /// The connection is full; the next byte to read is at this offset.
    Behind(u64),
}

impl Subscription {
    /// Creates a subscription with the parameters of its SUBSCRIBE, to a track whose largest object is `largest`.
    pub(super) fn new(
        handle: Handle,
        request: RequestId,
        parameters: &Parameters,
        largest: Option<Location>,
        track: TrackDefaults,
    ) -> Self {
        let mut subscriber = Self {
            handle,
            request,
            kind: PeerKind::Client,
            is_offer: false,
            state: State::Forwarding,
            start: Location::ZERO,
            end: Location::MAX,
            priority: SUBSCRIBER_PRIORITY_DEFAULT,
            order: track.order,
            timeouts: Timeouts {
                object: track.object_timeout,
                subgroup: track.subgroup_timeout,
            },
            datagram_timeout: None,
            streams: Vec::new(),
            streams_opened: 0,
            shed: None,
            joining: largest,
        };
        subscriber.take_over(parameters, largest, track);
        subscriber
    }

    fn take_over(
        &mut self,
        parameters: &Parameters,
        largest: Option<Location>,
        track: TrackDefaults,
    ) {
        if let Some(forward) = parameters.forward {
            self.change(Event::Forward(forward));
        }
        if let Some(priority) = parameters.subscriber_priority {
            self.priority = priority;
        }
        if let Some(order) = parameters.group_order {
            self.order = order;
        }
        if let timeout @ Some(_) = parameters.object_delivery_timeout {
            self.timeouts.object = smaller(timeout, track.object_timeout);
        }
        if let timeout @ Some(_) = parameters.subgroup_delivery_timeout {
            self.timeouts.subgroup = smaller(timeout, track.subgroup_timeout);
        }
        self.datagram_timeout = smaller(self.timeouts.object, self.timeouts.subgroup);
        if let Some(filter) = parameters.filter {
            (self.start, self.end) = filter.range(largest);
        }
    }

    /// Applies a REQUEST_UPDATE; parameters that are absent stay. Streams that are not wanted are reset
    /// [moqt-18 §11.4.3].
    pub(super) fn update(
        &mut self,
        connection: &mut Connection<'_>,
        parameters: &Parameters,
        largest: Option<Location>,
        fan_out: &mut FanOut<'_>,
    ) {
        self.take_over(parameters, largest, fan_out.track);
        let (start, end) = (self.start, self.end);
        let is_within = |entry: &OutStream| {
            let starts_inside = entry.group == start.group && start.object > 0;
            entry.group >= start.group && entry.group <= end.group && !starts_inside
        };
        let forward = parameters.forward.unwrap_or_else(|| self.forwards());
        let keeps_range = parameters.filter.is_none();
        if !keeps_range {
            self.shed = None;
        }
        // A subgroup that was reset for other reasons, and is removed here, may be started again [moqt-18 §11.4.3].
        self.streams.retain_mut(|entry| {
            let stays = forward && (keeps_range || is_within(entry));
            if !stays && entry.is_reading() {
                entry.give_up(connection, Some(ResetCode::CANCELLED), fan_out);
            }
            stays
        });
        if parameters.subscriber_priority.is_some() {
            for entry in &self.streams {
                let rank = self.rank(entry);
                if let Some(stream) = entry.stream() {
                    connection.set_priority(stream, rank);
                }
                if let OutState::Full(stream) = entry.state {
                    fan_out.waits.push(Wait::For(stream, rank, entry.subgroup));
                }
            }
        }
    }

    /// Returns whether the subscription was offered to a link that does not want objects.
    pub(super) fn is_declined_offer(&self) -> bool {
        self.is_offer && !self.forwards()
    }

    /// Returns whether objects are forwarded, or were until the subscription began to end.
    pub(super) fn forwards(&self) -> bool {
        self.state != State::Paused
    }

    /// Returns whether PUBLISH_DONE follows as soon as the streams are complete.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.state, State::Ending(_))
    }

    /// Begins to end the subscription with `done`, unless it is ending already.
    pub(super) fn end_with(&mut self, done: &PublishDone) {
        self.change(Event::End(Box::new(done.clone())));
    }

    fn change(&mut self, event: Event) {
        let state = std::mem::replace(&mut self.state, State::Paused);
        self.state = state.after(event);
    }

    /// Returns the PUBLISH_DONE of a subscription that is ending, once its streams are complete or reset.
    pub(super) fn done(&self) -> Option<PublishDone> {
        match &self.state {
            State::Ending(done) if self.is_drained() => Some(PublishDone {
                stream_count: Some(self.streams_opened),
                ..(**done).clone()
            }),
            State::Ending(_) | State::Forwarding | State::Paused => None,
        }
    }

    /// Returns whether the subscription covers the object at `location`.
    #[inline]
    pub(super) fn wants(&self, location: Location) -> bool {
        self.state == State::Forwarding && location >= self.start && location <= self.end
    }

    /// Returns the deadline of a datagram received at `now`.
    #[inline]
    pub(super) fn datagram_deadline(&self, now: Instant) -> Option<Instant> {
        self.datagram_timeout.map(|timeout| now + timeout)
    }

    /// Returns whether all streams are complete or reset.
    pub(super) fn is_drained(&self) -> bool {
        !self.streams.iter().any(OutStream::is_reading)
    }

    /// Returns the number of streams, including those that wait for room or were reset.
    pub(super) fn streams_len(&self) -> usize {
        self.streams.len()
    }

    /// Returns the offset up to which the subscription has read a subgroup; `None` if it does not read the subgroup.
    pub(super) fn cursor(&self, subgroup: SubgroupId) -> Option<u64> {
        let mut streams = self.streams.iter();
        streams
            .find(|entry| entry.subgroup == subgroup && entry.is_reading())
            .map(|entry| entry.cursor)
    }

    /// Returns the number of streams opened, for PUBLISH_DONE [moqt-18 §10.11].
    pub(super) fn streams_opened(&self) -> u64 {
        self.streams_opened
    }

    /// Writes what is new in `subgroup`, in which the objects of `marks` have just begun.
    #[inline]
    pub(super) fn advance(
        &mut self,
        connection: &mut Connection<'_>,
        subgroup: &Subgroup,
        marks: &[Mark],
        fan_out: &mut FanOut<'_>,
    ) -> Progress {
        let place = self.place(subgroup.id);
        let Some(index) = place.or_else(|| self.join(connection, subgroup, marks, fan_out)) else {
            return Progress::Apart;
        };
        self.advance_stream(connection, subgroup, index, fan_out)
    }

    /// Continues a subgroup, if the subscription still reads it. The connection has room again, or can open another
    /// stream.
    pub(super) fn resume(
        &mut self,
        connection: &mut Connection<'_>,
        subgroup: &Subgroup,
        fan_out: &mut FanOut<'_>,
    ) -> Progress {
        let Some(index) = self.place(subgroup.id) else {
            return Progress::Apart;
        };
        let entry = &mut self.streams[index];
        if let OutState::Full(stream) = entry.state {
            entry.state = OutState::Open(stream);
        }
        self.advance_stream(connection, subgroup, index, fan_out)
    }

    /// Returns the subgroup for which the subscription next needs a stream, with its rank.
    pub(super) fn pending(&self) -> Option<(i32, SubgroupId)> {
        self.streams
            .iter()
            .filter(|entry| entry.state == OutState::Pending)
            .map(|entry| (Reverse(self.rank(entry)), entry.subgroup))
            .min()
            .map(|(Reverse(rank), id)| (rank, id))
    }

    /// Returns those of `streams` that the subscription is writing.
    pub(super) fn open_among(
        &self,
        streams: &BTreeMap<StreamId, ResetCode>,
    ) -> Vec<(StreamId, ResetCode)> {
        let open = self.streams.iter().filter_map(OutStream::stream);
        open.filter_map(|stream| Some((stream, *streams.get(&stream)?)))
            .collect()
    }

    /// Resets `stream` with `code`; returns false if the stream is not one of this subscription.
    pub(super) fn abort(
        &mut self,
        connection: &mut Connection<'_>,
        stream: StreamId,
        code: ResetCode,
        fan_out: &mut FanOut<'_>,
    ) -> bool {
        let mut streams = self.streams.iter_mut();
        let Some(entry) = streams.find(|entry| entry.stream() == Some(stream)) else {
            return false;
        };
        entry.give_up(connection, Some(code), fan_out);
        true
    }

    /// Resets all open streams of a subscription that is over.
    pub(super) fn abandon(&mut self, connection: &mut Connection<'_>, fan_out: &mut FanOut<'_>) {
        for mut entry in self.streams.drain(..) {
            entry.give_up(connection, Some(ResetCode::CANCELLED), fan_out);
        }
    }

    /// Returns the subgroups that stay in memory because the subscription has not read them.
    pub(super) fn holds(&self) -> Vec<SubgroupId> {
        let behind = self.streams.iter().filter(|entry| entry.behind > 0);
        behind.map(|entry| entry.subgroup).collect()
    }

    /// Removes a subgroup that is over for all subscribers.
    pub(super) fn forget(&mut self, subgroup: SubgroupId) {
        self.streams.retain(|stream| stream.subgroup != subgroup);
    }

    fn place(&self, subgroup: SubgroupId) -> Option<usize> {
        let mut streams = self.streams.iter();
        streams.position(|entry| entry.subgroup == subgroup)
    }

    fn rank(&self, entry: &OutStream) -> i32 {
        rank(
            self.priority,
            entry.priority,
            self.order,
            entry.group,
            entry.number,
        )
    }

    /// Starts a subgroup at the first of `marks` that is wanted. With too many streams open, the oldest blocked stream
    /// is reset; if none is blocked, the subgroup is skipped.
    fn join(
        &mut self,
        connection: &mut Connection<'_>,
        subgroup: &Subgroup,
        marks: &[Mark],
        fan_out: &mut FanOut<'_>,
    ) -> Option<usize> {
        let mark = marks.iter().find(|mark| self.wants(mark.location))?;
        if self.shed.is_some_and(|shed| mark.location.group <= shed) {
            fan_out.counters.subgroups_skipped += 1;
            return None;
        }
        let priority = subgroup.header.priority.unwrap_or(fan_out.track.priority);
        let mut entry = OutStream::new(subgroup, priority, subgroup.start_at(mark));
        let reading = self.streams.iter().filter(|entry| entry.is_reading());
        if reading.count() >= fan_out.limits.streams_per_subscription_max
            && !self.shed_oldest(connection, fan_out)
        {
            fan_out.counters.subgroups_skipped += 1;
            entry.state = OutState::Skipped;
        }
        self.streams.push(entry);
        Some(self.streams.len() - 1)
    }

    fn advance_stream(
        &mut self,
        connection: &mut Connection<'_>,
        subgroup: &Subgroup,
        index: usize,
        fan_out: &mut FanOut<'_>,
    ) -> Progress {
        if !self.streams[index].is_reading() {
            if subgroup.ended().is_some() {
                self.streams.swap_remove(index);
            }
            return Progress::Level;
        }
        if let Some(Ended::Reset(code)) = subgroup.ended() {
            let mut entry = self.streams.swap_remove(index);
            if entry.stream().is_some() {
                fan_out.counters.streams_reset_upstream += 1;
            }
            entry.give_up(connection, Some(code), fan_out);
            return Progress::Level;
        }
        match self.write(connection, subgroup, index, fan_out) {
            Outcome::Level => {
                fan_out.note_behind(&mut self.streams[index].behind, 0);
                if let Some(ended) = subgroup.ended()
                    && let Some(stream) = self.streams.swap_remove(index).stream()
                {
                    if ended == Ended::Displaced {
                        fan_out
                            .deadlines
                            .push((stream, Deadline::displaced(fan_out.now)));
                    } else {
                        connection.finish(stream);
                        self.watch(connection, subgroup, stream, true, fan_out);
                    }
                }
                return Progress::Level;
            }
            Outcome::Full => return self.fall_behind(connection, subgroup, index, fan_out),
            Outcome::TooLate => {
                fan_out.counters.streams_reset_timeout += 1;
                self.streams[index].give_up(connection, Some(ResetCode::DELIVERY_TIMEOUT), fan_out);
            }
            Outcome::Stopped => {
                fan_out.counters.streams_stopped += 1;
                self.streams[index].give_up(connection, Some(ResetCode::CANCELLED), fan_out);
            }
            Outcome::Gone => self.streams[index].give_up(connection, None, fan_out),
        }
        if subgroup.ended().is_some() {
            self.streams.swap_remove(index);
        }
        Progress::Level
    }

    /// Writes as much as the connection accepts, and opens the stream if necessary.
    fn write(
        &mut self,
        connection: &mut Connection<'_>,
        subgroup: &Subgroup,
        index: usize,
        fan_out: &mut FanOut<'_>,
    ) -> Outcome {
        let timeouts = self.timeouts;
        let entry = &mut self.streams[index];
        let stream = match entry.state {
            OutState::Open(stream) => stream,
            OutState::Full(_) | OutState::Skipped => {
                return if entry.is_late(fan_out.now, subgroup, timeouts) {
                    Outcome::TooLate
                } else {
                    Outcome::Full
                };
            }
            OutState::Pending if entry.is_late(fan_out.now, subgroup, timeouts) => {
                return Outcome::TooLate;
            }
            OutState::Pending => match connection.open(Direction::Uni) {
                Some(stream) => {
                    entry.state = OutState::Open(stream);
                    self.streams_opened += 1;
                    fan_out.counters.streams_sent += 1;
                    connection.set_priority(stream, self.rank(&self.streams[index]));
                    stream
                }
                None => return Outcome::Full,
            },
        };
        let entry = &mut self.streams[index];
        let outcome = entry.write(connection, stream, subgroup, timeouts, fan_out);
        if outcome == Outcome::Full {
            entry.state = OutState::Full(stream);
            let rank = self.rank(&self.streams[index]);
            fan_out.waits.push(Wait::For(stream, rank, subgroup.id));
        }
        outcome
    }

    /// Sets the deadline of a stream whose subgroup is complete, if the subscription has a timeout.
    fn watch(
        &self,
        connection: &Connection<'_>,
        subgroup: &Subgroup,
        stream: StreamId,
        is_written: bool,
        fan_out: &mut FanOut<'_>,
    ) {
        if self.datagram_timeout.is_none() || self.kind.is_link() {
            return;
        }
        let due = self
            .timeouts
            .due(fan_out.now, subgroup, is_written, connection);
        fan_out.deadlines.extend(due.map(|due| (stream, due)));
    }

    /// Notes how far the subscription is behind, and drops its oldest groups if that exceeds the limit.
    fn fall_behind(
        &mut self,
        connection: &mut Connection<'_>,
        subgroup: &Subgroup,
        index: usize,
        fan_out: &mut FanOut<'_>,
    ) -> Progress {
        // The prologue of a subscriber that joins within a subgroup counts too, but is small.
        let entry = &mut self.streams[index];
        let behind = (subgroup.len() - entry.cursor).max(1);
        fan_out.note_behind(&mut entry.behind, behind);
        self.shed_beyond(connection, fan_out.limits.lag_bytes_max, fan_out);
        let entry = &self.streams[index];
        if entry.is_reading() {
            let (cursor, stream) = (entry.cursor, entry.stream());
            if let Some(stream) = stream.filter(|_| subgroup.ended().is_some()) {
                self.watch(connection, subgroup, stream, false, fan_out);
            }
            return Progress::Behind(cursor);
        }
        if subgroup.ended().is_some() {
            self.streams.swap_remove(index);
        }
        Progress::Level
    }

    /// Returns the bytes that the subscription has not read, over all subgroups.
    pub(super) fn behind(&self) -> u64 {
        self.streams.iter().map(|entry| entry.behind).sum()
    }

    /// Drops the oldest unread groups, whole, until no more than `max` bytes are unread. The newest group is kept; if
    /// it alone exceeds the limit, the subscription ends [moqt-18 §8].
    pub(super) fn shed_beyond(
        &mut self,
        connection: &mut Connection<'_>,
        max: u64,
        fan_out: &mut FanOut<'_>,
    ) {
        while self.behind() > max {
            let newest = self.streams.iter().map(|entry| entry.group).max();
            if self.oldest_waiting() == newest {
                return self.give_in(connection, fan_out);
            }
            self.shed_oldest(connection, fan_out);
        }
    }

    /// Returns the oldest group with unread bytes.
    fn oldest_waiting(&self) -> Option<u64> {
        let waiting = self.streams.iter().filter(|entry| entry.behind > 0);
        waiting.map(|entry| entry.group).min()
    }

    /// Drops the oldest unread group, in all its subgroups; returns whether there was one.
    fn shed_oldest(&mut self, connection: &mut Connection<'_>, fan_out: &mut FanOut<'_>) -> bool {
        let oldest = self.oldest_waiting();
        if let Some(oldest) = oldest {
            self.shed_group(connection, oldest, fan_out);
        }
        oldest.is_some()
    }

    /// Drops a group, in all its subgroups.
    pub(super) fn shed_group(
        &mut self,
        connection: &mut Connection<'_>,
        group: u64,
        fan_out: &mut FanOut<'_>,
    ) {
        fan_out.counters.groups_shed += 1;
        self.shed = self.shed.max(Some(group));
        self.give_up(connection, fan_out, |other| other == group);
    }

    /// Drops some groups entirely.
    fn give_up(
        &mut self,
        connection: &mut Connection<'_>,
        fan_out: &mut FanOut<'_>,
        which: impl Fn(u64) -> bool,
    ) {
        let streams = self.streams.iter_mut();
        for entry in streams.filter(|entry| which(entry.group) && entry.is_reading()) {
            if entry.stream().is_some() {
                fan_out.counters.streams_reset_lag += 1;
            } else {
                fan_out.counters.subgroups_skipped += 1;
            }
            entry.give_up(connection, Some(ResetCode::TOO_FAR_BEHIND), fan_out);
        }
    }

    /// Ends the subscription with `TOO_FAR_BEHIND`, since it is too slow for a single group.
    fn give_in(&mut self, connection: &mut Connection<'_>, fan_out: &mut FanOut<'_>) {
        fan_out.counters.subscriptions_too_far_behind += 1;
        self.give_up(connection, fan_out, |_| true);
        self.change(Event::TooSlow);
        fan_out.ended.push((self.handle, self.request));
    }
}
