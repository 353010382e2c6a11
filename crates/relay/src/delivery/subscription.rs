//! One subscription, and how far it has come in each subgroup.

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use weir_moqt::{
    error::{PublishDoneCode, ResetCode},
    location::Location,
    message::PublishDone,
    parameter::{Filter, GroupOrder, Parameters},
    priority::{SUBSCRIBER_PRIORITY_DEFAULT, rank},
    session::RequestId,
};
use weir_quic::{Connection, Handle};
use weir_transport::{Direction, StreamId, Transport as _};

use crate::{
    delivery::deadlines::Due,
    delivery::stream::{FanOut, OutState, OutStream, Outcome, Wait},
    delivery::timeouts::{Timeouts, smaller},
    track::subgroup::{Ended, Mark, Subgroup, SubgroupId},
};

/// A subscription that gets objects.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) handle: Handle,
    pub(crate) request: RequestId,
    /// The session is one with a neighbour.
    pub(crate) is_neighbour: bool,
    /// The neighbour did not ask for it: it was offered.
    pub(crate) is_offer: bool,
    /// Objects are sent only while it wants them [moqt-18 §5.1].
    pub(crate) forward: bool,
    start: Location,
    /// Last group wanted.
    end_group: u64,
    priority: u8,
    order: GroupOrder,
    timeouts: Timeouts,
    /// The smaller of the two [moqt-18 §8].
    datagram_timeout: Option<Duration>,
    streams: Vec<OutStream>,
    streams_opened: u64,
    /// The newest group that was given up because it was too far behind; older ones are not taken up any more.
    shed: Option<u64>,
    /// The largest location that it was told of when it was established or woken up: where fetches that join it
    /// end [moqt-18 §5.1].
    pub(crate) joining: Option<Location>,
    /// To be told once its streams are complete; no new ones are opened.
    pub(crate) ending: Option<Box<PublishDone>>,
}

/// How a subscriber stands with a subgroup after a look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It wants nothing of it.
    Apart,
    /// It has everything there is so far, or was given up.
    Level,
    /// It waits for its connection to take more, from this offset on.
    Behind(u64),
}

/// What the track says for all its subscribers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrackDefaults {
    pub(crate) priority: u8,
    pub(crate) order: GroupOrder,
    pub(crate) object_timeout: Option<Duration>,
    pub(crate) subgroup_timeout: Option<Duration>,
}

impl Subscriber {
    /// A subscription with the parameters of its SUBSCRIBE, to a track whose largest object is `largest`.
    pub(crate) fn new(
        handle: Handle,
        request: RequestId,
        parameters: &Parameters,
        largest: Option<Location>,
        track: TrackDefaults,
    ) -> Self {
        let mut subscriber = Self {
            handle,
            request,
            is_neighbour: false,
            is_offer: false,
            forward: true,
            start: Location::ZERO,
            end_group: u64::MAX,
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
            ending: None,
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
            self.forward = forward;
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
            (self.start, self.end_group) = range(filter, largest);
        }
    }

    /// Takes over what a REQUEST_UPDATE says; what it does not mention stays. Streams of what is no longer
    /// wanted are reset [moqt-18 §11.4.3].
    pub(crate) fn update(
        &mut self,
        connection: &mut Connection<'_>,
        parameters: &Parameters,
        largest: Option<Location>,
        fan_out: &mut FanOut<'_>,
    ) {
        self.take_over(parameters, largest, fan_out.track);
        let (start, end_group) = (self.start, self.end_group);
        let is_within = |entry: &OutStream| {
            let starts_inside = entry.group == start.group && start.object > 0;
            entry.group >= start.group && entry.group <= end_group && !starts_inside
        };
        let (forward, keeps_range) = (self.forward, parameters.filter.is_none());
        if !keeps_range {
            self.shed = None;
        }
        // What is forgotten here, and was given up for other reasons, may be joined again [moqt-18 §11.4.3].
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

    /// Whether it was offered to a neighbour that does not want it now.
    pub(crate) fn is_resting_offer(&self) -> bool {
        self.is_offer && !self.forward
    }

    /// Whether it wants the object at `location`.
    #[inline]
    pub(crate) fn wants(&self, location: Location) -> bool {
        self.forward
            && self.ending.is_none()
            && location >= self.start
            && location.group <= self.end_group
    }

    /// When a datagram received now is no longer worth sending.
    #[inline]
    pub(crate) fn datagram_deadline(&self, now: Instant) -> Option<Instant> {
        self.datagram_timeout.map(|timeout| now + timeout)
    }

    /// Whether its streams are all complete or given up.
    pub(crate) fn is_drained(&self) -> bool {
        !self.streams.iter().any(OutStream::is_reading)
    }

    /// Offset up to which it has read a subgroup, if it still reads it.
    pub(crate) fn cursor(&self, subgroup: SubgroupId) -> Option<u64> {
        let mut streams = self.streams.iter();
        streams
            .find(|entry| entry.subgroup == subgroup && entry.is_reading())
            .map(|entry| entry.cursor)
    }

    /// Number of streams opened for it so far [moqt-18 §10.11].
    pub(crate) fn streams_opened(&self) -> u64 {
        self.streams_opened
    }

    /// Brings it up to date with `subgroup`, in which the objects of `marks` have just begun.
    #[inline]
    pub(crate) fn advance(
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

    /// The connection takes more, or another stream: goes on with a subgroup, if it still reads it.
    pub(crate) fn resume(
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

    /// The subgroup for which it most wants to open a stream, with its rank.
    pub(crate) fn pending(&self) -> Option<(i32, SubgroupId)> {
        self.streams
            .iter()
            .filter(|entry| entry.state == OutState::Pending)
            .map(|entry| (Reverse(self.rank(entry)), entry.subgroup))
            .min()
            .map(|(Reverse(rank), id)| (rank, id))
    }

    /// Gives up `stream` with `code`; returns whether it was one of this subscription's.
    pub(crate) fn abort(
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

    /// Resets everything still open, since the subscription is over.
    pub(crate) fn abandon(&mut self, connection: &mut Connection<'_>, fan_out: &mut FanOut<'_>) {
        for mut entry in self.streams.drain(..) {
            entry.give_up(connection, Some(ResetCode::CANCELLED), fan_out);
        }
    }

    /// The subgroups that are held because it has not read them.
    pub(crate) fn holds(&self) -> Vec<SubgroupId> {
        let behind = self.streams.iter().filter(|entry| entry.behind > 0);
        behind.map(|entry| entry.subgroup).collect()
    }

    /// Forgets a subgroup that is over for all.
    pub(crate) fn forget(&mut self, subgroup: SubgroupId) {
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

    /// Starts on a subgroup with the first of `marks` that it wants. With too many streams open, the oldest
    /// one that waits makes room; if none does, the new one is skipped.
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
                            .deliveries
                            .push((stream, Due::displaced(fan_out.now)));
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

    /// Writes what the connection takes, on a stream that is opened if need be.
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

    /// A stream of which nothing more comes has to arrive in time, if the subscription has a time-out.
    fn watch(
        &self,
        connection: &Connection<'_>,
        subgroup: &Subgroup,
        stream: StreamId,
        is_written: bool,
        fan_out: &mut FanOut<'_>,
    ) {
        if self.datagram_timeout.is_none() || self.is_neighbour {
            return;
        }
        let due = self
            .timeouts
            .due(fan_out.now, subgroup, is_written, connection);
        fan_out.deliveries.extend(due.map(|due| (stream, due)));
    }

    /// Notes how far behind it is, and gives up what is oldest if that is too far.
    fn fall_behind(
        &mut self,
        connection: &mut Connection<'_>,
        subgroup: &Subgroup,
        index: usize,
        fan_out: &mut FanOut<'_>,
    ) -> Progress {
        // The prologue of a late joiner counts too, but is too small to matter.
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

    /// Bytes that it has not taken yet, of all subgroups.
    pub(crate) fn behind(&self) -> u64 {
        self.streams.iter().map(|entry| entry.behind).sum()
    }

    /// Gives up the oldest groups that wait, whole ones, until no more than `max` bytes wait. The newest is kept; if that
    /// alone is too much, the subscription ends [moqt-18 §8].
    pub(crate) fn shed_beyond(
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

    /// The oldest group of which something waits.
    fn oldest_waiting(&self) -> Option<u64> {
        let waiting = self.streams.iter().filter(|entry| entry.behind > 0);
        waiting.map(|entry| entry.group).min()
    }

    /// Gives up the oldest group that waits, in all its subgroups; returns whether there was one.
    fn shed_oldest(&mut self, connection: &mut Connection<'_>, fan_out: &mut FanOut<'_>) -> bool {
        let Some(oldest) = self.oldest_waiting() else {
            return false;
        };
        fan_out.counters.groups_shed += 1;
        self.shed = self.shed.max(Some(oldest));
        self.give_up(connection, fan_out, |group| group == oldest);
        true
    }

    /// Gives up all of some groups.
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

    /// It is too slow for a single group: it gets nothing more and is told so.
    fn give_in(&mut self, connection: &mut Connection<'_>, fan_out: &mut FanOut<'_>) {
        fan_out.counters.subscriptions_too_far_behind += 1;
        self.give_up(connection, fan_out, |_| true);
        self.ending = Some(Box::new(PublishDone {
            code: PublishDoneCode::TOO_FAR_BEHIND,
            stream_count: None,
            reason: "a whole group waits".to_owned(),
        }));
        fan_out.fallen.push((self.handle, self.request));
    }
}
/// The range that a filter stands for, given the largest object so far [moqt-18 §5.1.2].
fn range(filter: Filter, largest: Option<Location>) -> (Location, u64) {
    let origin = Location {
        group: 0,
        object: 0,
    };
    match filter {
        Filter::LargestObject => {
            let start = largest.map_or(origin, |largest| Location {
                group: largest.group,
                object: largest.object.saturating_add(1),
            });
            (start, u64::MAX)
        }
        Filter::NextGroupStart => {
            let start = largest.map_or(origin, |largest| Location {
                group: largest.group.saturating_add(1),
                object: 0,
            });
            (start, u64::MAX)
        }
        Filter::AbsoluteStart(start) => (start, u64::MAX),
        Filter::AbsoluteRange { start, end_group } => (start, end_group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_become_ranges() {
        let largest = Some(Location {
            group: 7,
            object: 3,
        });
        let at = |group, object| Location { group, object };
        assert_eq!(range(Filter::LargestObject, largest), (at(7, 4), u64::MAX));
        assert_eq!(range(Filter::NextGroupStart, largest), (at(8, 0), u64::MAX));
        assert_eq!(range(Filter::LargestObject, None), (at(0, 0), u64::MAX));
        assert_eq!(range(Filter::NextGroupStart, None), (at(0, 0), u64::MAX));
        assert_eq!(
            range(Filter::AbsoluteStart(at(2, 2)), largest),
            (at(2, 2), u64::MAX)
        );
        let range_filter = Filter::AbsoluteRange {
            start: at(2, 2),
            end_group: 9,
        };
        assert_eq!(range(range_filter, largest), (at(2, 2), 9));
    }
}
