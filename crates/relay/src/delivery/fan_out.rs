//! Subgroups on their way to subscribers: the second half of the hot path.

use std::cmp::Reverse;

use weir_moqt::{error::ResetCode, session::RequestId};
use weir_quic::{Connection, Handle};
use weir_transport::StreamId;

use crate::{
    cache::{Contradiction, Keeper},
    delivery::blocked_streams::Reader,
    delivery::stream::FanOut,
    delivery::subscription::{Progress, Subscriber},
    dispatch::Owners,
    track::Track,
    track::subgroup::{Subgroup, SubgroupId},
    track::table::TrackId,
    turn::Turn,
};

impl Owners {
    /// Sends on what arrived on subgroup streams in this turn: one write per subscriber and subgroup, however
    /// many packets it came in.
    pub(crate) fn publish_grown(&mut self, turn: &mut Turn<'_>) {
        if self.grown.is_empty() {
            return;
        }
        let mut grown = std::mem::take(&mut self.grown);
        for (track, subgroup) in grown.drain(..) {
            self.publish_subgroup(turn, track, subgroup);
        }
        self.grown = grown;
    }

    fn publish_subgroup(&mut self, turn: &mut Turn<'_>, track_id: TrackId, id: SubgroupId) {
        let Self { tracks, ledger, .. } = self;
        let Turn {
            now,
            endpoint,
            config,
            counters,
            sessions,
            ..
        } = turn;
        let now = *now;
        let Some(track) = tracks.get(track_id) else {
            return;
        };
        let defaults = track.defaults();
        let neighbours = track.neighbours_len();
        let Track {
            subscribers,
            subgroups,
            cache,
            ..
        } = track;
        let Some(subgroup) = subgroups.iter_mut().find(|other| other.id == id) else {
            return;
        };
        let mut keeper = Keeper {
            ledger,
            counters,
            limits: &config.limits,
            track: track_id,
            now,
        };
        let (marks, sound) = cache.keep_subgroup(&mut keeper, subgroup);
        if let (Err(Contradiction), Some((publisher, _))) = (sound, subgroup.sender) {
            self.on_malformed(turn, track_id, publisher);
            if let Some(track) = self.tracks.get(track_id) {
                track.settle_subgroup(id);
            }
            return;
        }
        let mut fan_out = FanOut::new(now, &config.limits, counters, defaults);
        let mut taken = subgroup.len();
        let mut is_held = false;
        let mut deliveries = Vec::new();
        let first = if subgroup.from_neighbour {
            neighbours
        } else {
            0
        };
        for subscriber in &mut subscribers[first..] {
            let handle = subscriber.handle;
            let Some(mut connection) = endpoint.connection(now, handle) else {
                continue;
            };
            let progress = subscriber.advance(&mut connection, subgroup, &marks, &mut fan_out);
            if fan_out.lag_change != 0
                && let Some(peer) = sessions.get(handle)
            {
                let max = config.limits.lag_bytes_per_session_max;
                peer.settle_lag(subscriber, &mut connection, max, &mut fan_out);
            }
            if !fan_out.deliveries.is_empty() {
                deliveries.push((handle, std::mem::take(&mut fan_out.deliveries)));
            }
            match progress {
                Progress::Apart => continue,
                Progress::Behind(_) if subscriber.cursor(id).is_none() => {}
                Progress::Level => {}
                Progress::Behind(cursor) => {
                    is_held = true;
                    taken = taken.min(cursor);
                }
            }
            if !fan_out.waits.is_empty()
                && let Some(peer) = sessions.get(handle)
            {
                let waits = std::mem::take(&mut fan_out.waits);
                fan_out.counters.streams_waited +=
                    peer.note_waits(track_id, subscriber.request, waits);
            }
            endpoint.fill_from(now, handle);
        }
        subgroup.recycle(marks);
        subgroup.trim(taken);
        let (released, fallen) = (fan_out.released, fan_out.fallen);
        if subgroup.ended().is_some() && !is_held {
            track.remove_subgroup(id);
        }
        for id in released {
            track.settle_subgroup(id);
        }
        for (handle, request) in fallen {
            self.dismiss_if_drained(turn, track_id, handle, request);
        }
        for (handle, deliveries) in deliveries {
            self.note_deliveries(turn, handle, deliveries);
        }
        self.tend_cache(turn);
        self.refill(turn, track_id);
    }

    /// A stream that was full takes more. What ranks higher and waits too has the first claim to the room.
    pub(crate) fn resume_stream(&mut self, turn: &mut Turn<'_>, handle: Handle, stream: StreamId) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let Some((rank, entry)) = peer.full.remove(stream) else {
            return;
        };
        for other in peer.full.above(rank) {
            let peer = turn.sessions.get(handle);
            if let Some((_, entry)) = peer.and_then(|peer| peer.full.remove(other)) {
                self.resume(turn, handle, entry);
            }
        }
        self.resume(turn, handle, entry);
    }

    /// The peer allows more streams: they go to its subscriptions in turn, as long as their rank is the same.
    pub(crate) fn resume_pending(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        loop {
            let mut pending = self.pending(turn, handle);
            pending.sort_unstable();
            if pending.is_empty() {
                return;
            }
            for (_, reader) in pending {
                self.resume(turn, handle, reader);
                if self.is_pending(handle, reader) {
                    return;
                }
            }
        }
    }

    /// What each subscription of a session most wants to open a stream for.
    fn pending(&mut self, turn: &mut Turn<'_>, handle: Handle) -> Vec<(Reverse<i32>, Reader)> {
        let Some(peer) = turn.sessions.get(handle) else {
            return Vec::new();
        };
        let mut pending = Vec::new();
        for (request, track_id) in peer.subscriptions() {
            let track = self.tracks.get(track_id);
            let subscriber = track.and_then(|track| track.subscriber(handle, request));
            if let Some((rank, id)) = subscriber.and_then(|subscriber| subscriber.pending()) {
                let reader = Reader::Subgroup(track_id, request, id);
                pending.push((Reverse(rank), reader));
            }
        }
        let fetches = self.fetches.range((handle, RequestId(0))..);
        for (&(_, request), fetch) in fetches.take_while(|((other, _), _)| *other == handle) {
            if fetch.is_pending() {
                pending.push((Reverse(fetch.rank()), Reader::Fetch(request)));
            }
        }
        pending
    }

    fn is_pending(&mut self, handle: Handle, reader: Reader) -> bool {
        let (track, request, id) = match reader {
            Reader::Subgroup(track, request, id) => (track, request, id),
            Reader::Fetch(request) => {
                let fetch = self.fetches.get(&(handle, request));
                return fetch.is_some_and(|fetch| fetch.is_pending());
            }
        };
        let track = self.tracks.get(track);
        let subscriber = track.and_then(|track| track.subscriber(handle, request));
        let pending = subscriber.and_then(|subscriber| subscriber.pending());
        pending.is_some_and(|(_, pending)| pending == id)
    }

    fn resume(&mut self, turn: &mut Turn<'_>, handle: Handle, reader: Reader) {
        let (track_id, request, id) = match reader {
            Reader::Subgroup(track, request, id) => (track, request, id),
            Reader::Fetch(request) => {
                return self.resume_fetch(turn, (handle, request));
            }
        };
        let who = (track_id, handle, request);
        self.with_subscriber(turn, who, |subscriber, connection, subgroups, fan_out| {
            let subgroup = subgroups.iter().find(|other| other.id == id);
            if let Some(subgroup) = subgroup
                && subscriber.resume(connection, subgroup, fan_out) == Progress::Level
            {
                fan_out.released.push(id);
            }
        });
        self.dismiss_if_drained(turn, track_id, handle, request);
    }

    /// The peer no longer wants one of its streams.
    pub(crate) fn stop_stream(&mut self, turn: &mut Turn<'_>, handle: Handle, stream: StreamId) {
        if self.stop_fetch(turn, handle, stream) {
            turn.counters.streams_stopped += 1;
            return;
        }
        let code = ResetCode::CANCELLED;
        if let Some((track_id, request)) = self.abort_stream(turn, handle, stream, code) {
            turn.counters.streams_stopped += 1;
            self.dismiss_if_drained(turn, track_id, handle, request);
        }
    }

    /// Does something with a subscription and its connection, if both are still there, and clears up
    /// after it.
    pub(crate) fn with_subscriber<T>(
        &mut self,
        turn: &mut Turn<'_>,
        (track_id, handle, request): (TrackId, Handle, RequestId),
        act: impl FnOnce(&mut Subscriber, &mut Connection<'_>, &[Subgroup], &mut FanOut<'_>) -> T,
    ) -> Option<T> {
        let track = self.tracks.get(track_id)?;
        let place = track.place(handle, request).ok()?;
        let mut connection = turn.endpoint.connection(turn.now, handle)?;
        let defaults = track.defaults();
        let mut fan_out = FanOut::new(turn.now, &turn.config.limits, turn.counters, defaults);
        let Track {
            subscribers,
            subgroups,
            ..
        } = track;
        let result = act(
            &mut subscribers[place],
            &mut connection,
            subgroups,
            &mut fan_out,
        );
        if let Some(peer) = turn.sessions.get(handle) {
            let max = turn.config.limits.lag_bytes_per_session_max;
            peer.settle_lag(&mut subscribers[place], &mut connection, max, &mut fan_out);
            let waits = std::mem::take(&mut fan_out.waits);
            fan_out.counters.streams_waited += peer.note_waits(track_id, request, waits);
        }
        let (released, fallen) = (fan_out.released, fan_out.fallen);
        let deliveries = fan_out.deliveries;
        for id in released {
            track.settle_subgroup(id);
        }
        for (handle, request) in fallen {
            self.dismiss_if_drained(turn, track_id, handle, request);
        }
        if !deliveries.is_empty() {
            self.note_deliveries(turn, handle, deliveries);
        }
        Some(result)
    }
}
