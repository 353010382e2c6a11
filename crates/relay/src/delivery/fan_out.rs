//! Delivery, the last step of an object: to which subscribers it is sent, and on which connections.

use std::{
    cmp::Reverse,
    time::{Duration, Instant},
};

use weir_moqt::{error::ResetCode, session::RequestId};
use weir_quic::{Connection, Endpoint, Handle, SendDatagramError};
use weir_transport::StreamId;

use super::{
    Delivery, Subscriptions,
    blocked_streams::Reader,
    deadlines::Deadline,
    outgoing::Outgoing,
    stream::FanOut,
    subscription::{Progress, Subscription},
};
use crate::{
    Counters,
    effect::Effect,
    ids::{BySession, SubgroupId, TrackId},
    sessions::peer::PeerKind,
    timers::Timer,
    track::{Mark, OutgoingDatagram, Subgroup, Track, Tracks},
    turn::Turn,
};

/// The result of delivering a subgroup to its subscribers.
#[derive(Default)]
struct Outcome {
    /// The offset up to which all subscribers have read the log; `None` if all have read all of it.
    held_from: Option<u64>,
    /// Streams with a new deadline, by session.
    deadlines: Vec<(Handle, Vec<(StreamId, Deadline)>)>,
}

impl Outcome {
    /// Notes how far a subscription has read; returns whether it wants the subgroup.
    fn note(&mut self, subscription: &Subscription, log: SubgroupId, progress: Progress) -> bool {
        if let Progress::Behind(cursor) = progress
            && subscription.cursor(log).is_some()
        {
            let held_from = self.held_from.map_or(cursor, |held| held.min(cursor));
            self.held_from = Some(held_from);
        }
        progress != Progress::Apart
    }
}

impl Delivery {
    /// Sends an object as a datagram to every subscriber that wants it.
    pub(crate) fn deliver_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        datagram: &OutgoingDatagram,
    ) {
        let Some(subscriptions) = self.tracks.get(id) else {
            return;
        };
        let (now, location, from) = (turn.now, datagram.location, datagram.from);
        for piece in subscriptions.established.pieces() {
            for subscription in piece {
                if !subscription.wants(location) || !from.serves(subscription.kind) {
                    continue;
                }
                if subscription.kind != PeerKind::Sibling {
                    send_datagram(now, turn.endpoint, turn.counters, subscription, datagram);
                } else if let Some(mut connection) =
                    turn.endpoint.connection(now, subscription.handle)
                {
                    // The connection limits and counts datagrams itself.
                    let _sent = connection.send_datagram(datagram.encoded.clone(), None);
                }
            }
        }
    }

    /// Delivers what arrived of a subgroup in this turn, with the objects that begin at `marks`. Each subscriber gets
    /// one write, however many packets brought the data.
    pub(crate) fn deliver_subgroup(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        (id, log): (TrackId, SubgroupId),
        marks: Vec<Mark>,
    ) {
        let Some(track) = tracks.get(id) else {
            return;
        };
        let defaults = track.defaults();
        let Some(subgroup) = track.subgroup_mut(log) else {
            return;
        };
        let (length, has_ended) = (subgroup.len(), subgroup.ended().is_some());
        let subscriptions = self.tracks.entry(id);
        let mut fan_out = FanOut::new(turn.now, &turn.config.limits, turn.counters, defaults);
        let (endpoint, sessions) = (&mut *turn.endpoint, &mut self.sessions);
        let what = (id, &*subgroup);
        let outcome = subscriptions.advance(endpoint, sessions, what, &marks, &mut fan_out);
        let (released, ended) = (fan_out.released, fan_out.ended);
        subgroup.recycle(marks);
        subgroup.trim(outcome.held_from.unwrap_or(length));
        if has_ended && outcome.held_from.is_none() {
            subscriptions.remove_subgroup(track, log);
        }
        for log in released {
            subscriptions.trim_subgroup(track, log);
        }
        for (handle, request) in ended {
            turn.push(Effect::MaybeDrained(id, handle, request));
        }
        for (handle, deadlines) in outcome.deadlines {
            self.note_deadlines(turn, tracks, handle, deadlines);
        }
        self.make_room(turn, tracks, id);
    }

    /// Removes the oldest subgroup that has ended, if too many of a track are held for subscribers. Those who have not
    /// read it lose its group.
    fn make_room(&mut self, turn: &mut Turn<'_>, tracks: &mut Tracks, id: TrackId) {
        let Some(track) = tracks.get(id) else {
            return;
        };
        let subgroups = track.subgroups();
        if subgroups.len() <= turn.config.limits.subgroups_per_track_max + ENDED_HELD_MAX {
            return;
        }
        let mut ended = subgroups
            .iter()
            .filter(|it| it.ended().is_some() && !it.is_fresh());
        let Some((log, (group, _))) = ended.next().map(|oldest| (oldest.id, oldest.key())) else {
            return;
        };
        let established = self.tracks.entry(id).established.iter();
        let holders = established.filter(|it| it.cursor(log).is_some());
        let holders: Vec<_> = holders.map(|it| (it.handle, it.request)).collect();
        for (handle, request) in holders {
            let who = (id, handle, request);
            self.with_subscription(turn, tracks, who, |subscription, connection, _, fan_out| {
                subscription.shed_group(connection, group, fan_out);
            });
            turn.push(Effect::MaybeDrained(id, handle, request));
        }
        self.trim_subgroup(tracks, id, log);
    }

    /// Removes what no subscriber needs of a subgroup.
    pub(crate) fn trim_subgroup(&mut self, tracks: &mut Tracks, id: TrackId, log: SubgroupId) {
        if let Some(track) = tracks.get(id) {
            self.tracks.entry(id).trim_subgroup(track, log);
        }
    }

    /// Trims subgroups that a subscriber has released. Each visits all subscriptions of the track, so if these are many
    /// visits, it is done later.
    fn release(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        id: TrackId,
        released: Vec<SubgroupId>,
    ) {
        let (Some(subscriptions), Some(track)) = (self.tracks.get_mut(id), tracks.get(id)) else {
            return;
        };
        if released.len() * subscriptions.established.len() <= TRIMMED_AT_ONCE_MAX {
            for log in released {
                subscriptions.trim_subgroup(track, log);
            }
        } else {
            self.trim_later(turn, id, released);
        }
    }

    /// Trims subgroups that a subscriber has released, together with those of all who catch up or leave meanwhile.
    pub(super) fn trim_later(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        released: Vec<SubgroupId>,
    ) {
        if released.is_empty() {
            return;
        }
        if self.untrimmed.is_empty() {
            turn.timers.set(turn.now + TRIM_DELAY, Timer::Trim);
        }
        self.untrimmed
            .extend(released.into_iter().map(|log| (id, log)));
    }

    /// Trims subgroups that subscribers have released, some in each turn.
    pub(crate) fn on_trim_due(&mut self, turn: &mut Turn<'_>, tracks: &mut Tracks) {
        let mut left = TRIMMED_PER_TURN;
        while left > 0
            && let Some((id, log)) = self.untrimmed.pop_first()
        {
            let subscriptions = self.tracks.get(id);
            let visits = subscriptions.map_or(0, |it| it.established.len());
            left = left.saturating_sub(TRIMMED_FOR_REMOVAL + visits);
            self.trim_subgroup(tracks, id, log);
        }
        if !self.untrimmed.is_empty() {
            turn.timers.set(turn.now + TRIM_PAUSE, Timer::Trim);
        }
    }

    /// Removes a stream from the blocked streams. Returns its rank and what it carries.
    pub(crate) fn unblock(&mut self, handle: Handle, stream: StreamId) -> Option<(i32, Reader)> {
        self.sessions.get_mut(handle)?.unblock(stream)
    }

    /// Adds a stream to the blocked streams. Returns whether it is new.
    pub(crate) fn block(
        &mut self,
        handle: Handle,
        stream: StreamId,
        rank: i32,
        reader: Reader,
    ) -> bool {
        self.sessions
            .entry(handle)
            .blocked
            .insert(stream, rank, reader)
    }

    /// Returns the first few blocked streams of a session whose rank is above `rank`.
    pub(crate) fn blocked_above(&mut self, handle: Handle, rank: i32) -> Vec<StreamId> {
        let outgoing = self.sessions.get_mut(handle);
        outgoing.map_or_else(Vec::new, |outgoing| outgoing.blocked.above(rank))
    }

    /// Returns, for each subscription of a session, the subgroup for which it next needs a stream.
    pub(crate) fn pending_streams(
        &self,
        turn: &mut Turn<'_>,
        handle: Handle,
    ) -> Vec<(Reverse<i32>, Reader)> {
        let Some(peer) = turn.sessions.get(handle) else {
            return Vec::new();
        };
        let subscriptions = peer.subscriptions();
        subscriptions
            .filter_map(|(request, id)| self.pending_stream(handle, (id, request)))
            .collect()
    }

    /// Returns the subgroup for which a subscription next needs a stream, with its rank.
    pub(crate) fn pending_stream(
        &self,
        handle: Handle,
        (id, request): (TrackId, RequestId),
    ) -> Option<(Reverse<i32>, Reader)> {
        let subscriptions = self.tracks.get(id)?;
        let subscription = subscriptions.established.get(handle, request)?;
        let (rank, log) = subscription.pending()?;
        Some((Reverse(rank), Reader::Subgroup(id, request, log)))
    }

    /// Continues a subgroup, whose stream has room again or can be opened.
    pub(crate) fn resume(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        handle: Handle,
        (id, request, log): (TrackId, RequestId, SubgroupId),
    ) {
        self.with_subscription(
            turn,
            tracks,
            (id, handle, request),
            |subscription, connection, track, fan_out| {
                if let Some(subgroup) = track.subgroup(log)
                    && subscription.resume(connection, subgroup, fan_out) == Progress::Level
                {
                    fan_out.released.push(log);
                }
            },
        );
        turn.push(Effect::MaybeDrained(id, handle, request));
    }

    /// Notes a subgroup stream that the peer has stopped. All of a turn are given up together.
    pub(crate) fn note_stopped(&mut self, turn: &mut Turn<'_>, handle: Handle, stream: StreamId) {
        let outgoing = self.sessions.entry(handle);
        outgoing.stopped.insert(stream, ResetCode::CANCELLED);
        turn.timers.set(turn.now, Timer::Stopped(handle));
    }

    /// Gives up the subgroup streams that the peer has stopped.
    pub(crate) fn on_stopped_due(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        handle: Handle,
    ) {
        if let Some(outgoing) = self.sessions.get_mut(handle) {
            let stopped = std::mem::take(&mut outgoing.stopped);
            let aborted = self.abort_streams(turn, tracks, handle, &stopped);
            turn.counters.streams_stopped += aborted.len() as u64;
        }
    }

    /// Calls a function with a subscription and its connection, if both exist, and applies the effects.
    pub(super) fn with_subscription<T>(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        (id, handle, request): (TrackId, Handle, RequestId),
        act: impl FnOnce(&mut Subscription, &mut Connection<'_>, &Track, &mut FanOut<'_>) -> T,
    ) -> Option<T> {
        let track = tracks.get(id)?;
        let subscriptions = self.tracks.get_mut(id)?;
        let subscription = subscriptions.established.get_mut(handle, request)?;
        let mut connection = turn.endpoint.connection(turn.now, handle)?;
        let defaults = track.defaults();
        let mut fan_out = FanOut::new(turn.now, &turn.config.limits, turn.counters, defaults);
        let result = act(subscription, &mut connection, track, &mut fan_out);
        let outgoing = self.sessions.entry(handle);
        outgoing.note_lag(subscription, &mut connection, &mut fan_out);
        let waits = std::mem::take(&mut fan_out.waits);
        fan_out.counters.streams_waited += outgoing.note_waits(id, request, waits);
        let (released, ended) = (fan_out.released, fan_out.ended);
        let deadlines = fan_out.deadlines;
        self.release(turn, tracks, id, released);
        for (handle, request) in ended {
            turn.push(Effect::MaybeDrained(id, handle, request));
        }
        if !deadlines.is_empty() {
            self.note_deadlines(turn, tracks, handle, deadlines);
        }
        Some(result)
    }
}

impl Subscriptions {
    /// Brings every subscription up to date with a subgroup.
    fn advance(
        &mut self,
        endpoint: &mut Endpoint,
        sessions: &mut BySession<Outgoing>,
        (id, subgroup): (TrackId, &Subgroup),
        marks: &[Mark],
        fan_out: &mut FanOut<'_>,
    ) -> Outcome {
        let now = fan_out.now;
        let mut outcome = Outcome::default();
        let subscriptions = self.established.pieces_mut().iter_mut();
        for subscription in subscriptions.flatten() {
            if !subgroup.from.serves(subscription.kind) {
                continue;
            }
            let handle = subscription.handle;
            let Some(mut connection) = endpoint.connection(now, handle) else {
                continue;
            };
            let progress = subscription.advance(&mut connection, subgroup, marks, fan_out);
            if fan_out.lag_change != 0 {
                let outgoing = sessions.entry(handle);
                outgoing.note_lag(subscription, &mut connection, fan_out);
            }
            if !fan_out.deadlines.is_empty() {
                let deadlines = std::mem::take(&mut fan_out.deadlines);
                outcome.deadlines.push((handle, deadlines));
            }
            if !outcome.note(subscription, subgroup.id, progress) {
                continue;
            }
            if !fan_out.waits.is_empty() {
                let waits = std::mem::take(&mut fan_out.waits);
                let outgoing = sessions.entry(handle);
                fan_out.counters.streams_waited +=
                    outgoing.note_waits(id, subscription.request, waits);
            }
            endpoint.fill_from(now, handle);
        }
        outcome
    }

    /// Removes what no subscriber needs of a subgroup: what all have read, or all of it once it has ended.
    pub(super) fn trim_subgroup(&mut self, track: &mut Track, log: SubgroupId) {
        if track.subgroup(log).is_none() {
            return;
        }
        let cursors = self
            .established
            .iter()
            .filter_map(|other| other.cursor(log));
        let taken = cursors.min();
        if track.trim_subgroup(log, taken) {
            self.remove_subgroup(track, log);
        }
    }

    fn remove_subgroup(&mut self, track: &mut Track, log: SubgroupId) {
        track.remove_subgroup(log);
        for subscription in self.established.iter_mut() {
            subscription.forget(log);
        }
    }
}

/// Ended subgroups of a track that are held because some subscriber has not read them, besides those that publishers may
/// have open. For one more, the oldest is removed.
const ENDED_HELD_MAX: usize = 1024;
/// Visits to subscriptions up to which released subgroups are removed at once.
const TRIMMED_AT_ONCE_MAX: usize = 64;
/// How long released memory may stay if it takes more visits.
const TRIM_DELAY: Duration = Duration::from_millis(20);
/// Visits to subscriptions for which subgroups are removed in one turn. A subscription may have a hundred streams.
const TRIMMED_PER_TURN: usize = 8192;
/// Visits that the removal of a subgroup from its track counts as.
const TRIMMED_FOR_REMOVAL: usize = 8;
/// The time between two turns that remove subgroups.
const TRIM_PAUSE: Duration = Duration::from_millis(1);

fn send_datagram(
    now: Instant,
    endpoint: &mut Endpoint,
    counters: &mut Counters,
    client: &Subscription,
    datagram: &OutgoingDatagram,
) {
    let Some(mut connection) = endpoint.connection(now, client.handle) else {
        return;
    };
    match connection.send_datagram(datagram.encoded.clone(), client.datagram_deadline(now)) {
        Ok(()) => counters.datagrams_sent += 1,
        Err(SendDatagramError::TooLarge(_)) => counters.datagrams_dropped_size += 1,
        Err(SendDatagramError::Unsupported) => counters.datagrams_dropped_unsupported += 1,
    }
    endpoint.fill_from(now, client.handle);
}
