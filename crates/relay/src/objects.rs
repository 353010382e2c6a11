//! Objects on their way from a publisher to all subscribers: the hot path.

use std::time::Instant;

use bytes::BytesMut;
use weir_moqt::{
    data::{ObjectDatagram, ObjectHeader, SubgroupHeader},
    draft::Draft,
    error::ResetCode,
    location::Location,
    session::{RequestId, StreamEnd},
    transport::StreamId,
};
use weir_quic::{Endpoint, Handle, SendDatagramError};

use crate::{
    Relay,
    peer::{Inbound, Part},
    subgroup::{Ended, SubgroupId},
    subscriber::{Progress, Turn},
    track::Track,
    tracks::TrackId,
};

impl Relay {
    /// Hands an object that came in a datagram to all who want it.
    pub(crate) fn forward_datagram(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        track: TrackId,
        mut datagram: ObjectDatagram,
    ) {
        let Self {
            tracks, counters, ..
        } = self;
        let Some(track) = tracks.get(track) else {
            return;
        };
        counters.datagrams_received += 1;
        let location = Location {
            group: datagram.group,
            object: datagram.object,
        };
        if track.is_repeated(location) {
            counters.duplicates += 1;
            return;
        }
        track.observe(location);
        datagram.track_alias = track.alias;
        let mut encoded = BytesMut::with_capacity(datagram.payload.len() + DATAGRAM_HEADER_BYTES);
        datagram.encode(Draft::Draft18, &mut encoded);
        let encoded = encoded.freeze();
        for subscriber in &track.subscribers {
            if !subscriber.wants(location) {
                continue;
            }
            let handle = subscriber.handle;
            let Some(mut connection) = endpoint.connection(now, handle) else {
                continue;
            };
            match connection.send_datagram(encoded.clone(), subscriber.datagram_deadline(now)) {
                Ok(()) => counters.datagrams_sent += 1,
                Err(SendDatagramError::TooLarge(_)) => counters.datagrams_dropped_size += 1,
                Err(SendDatagramError::Unsupported) => counters.datagrams_dropped_unsupported += 1,
            }
            endpoint.fill_from(now, handle);
        }
    }

    /// A publisher opens a subgroup stream.
    pub(crate) fn on_subgroup(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        stream: StreamId,
        request: RequestId,
        header: SubgroupHeader,
    ) {
        let Some(peer) = self.peers.get(handle) else {
            return;
        };
        let track_id = peer.source(request);
        let track = track_id.and_then(|id| Some((id, self.tracks.get(id)?)));
        let full = self.config.limits.subgroups_per_track_max;
        let refusal = match &track {
            None => {
                self.counters.objects_unwanted += 1;
                Some(ResetCode::CANCELLED)
            }
            Some((_, track)) if track.subgroups.len() >= full => {
                self.counters.subgroups_refused += 1;
                Some(ResetCode::EXCESSIVE_LOAD)
            }
            Some(_) => None,
        };
        if let (Some((track_id, track)), None) = (track, refusal) {
            self.counters.streams_received += 1;
            let subgroup = track.open_subgroup(header, peer.session.draft());
            if let Some(source) = track.source(handle, request) {
                source.streams += 1;
                source.streams_open += 1;
            }
            let is_repeated = track.has_twin(subgroup);
            let inbound = Inbound {
                track: track_id,
                request,
                subgroup,
                is_repeated,
            };
            peer.inbound.insert(stream, inbound);
            return;
        }
        let code = refusal.unwrap_or(ResetCode::CANCELLED);
        if let Some(track_id) = track_id
            && let Some(track) = self.tracks.get(track_id)
            && let Some(source) = track.source(handle, request)
        {
            source.streams += 1;
        }
        self.with_session(now, endpoint, handle, |session, connection| {
            session.stop_data(connection, stream, code);
        });
    }

    /// An object of a subgroup stream begins.
    pub(crate) fn on_object(
        &mut self,
        _now: Instant,
        _endpoint: &mut Endpoint,
        handle: Handle,
        stream: StreamId,
        object: ObjectHeader,
    ) {
        let Some(peer) = self.peers.get(handle) else {
            return;
        };
        let Some(inbound) = peer.inbound.get_mut(&stream) else {
            return;
        };
        let Some(track) = self.tracks.get(inbound.track) else {
            return;
        };
        let Some(subgroup) = track.subgroup(inbound.subgroup) else {
            return;
        };
        self.counters.stream_objects_received += 1;
        if inbound.is_repeated {
            self.counters.duplicates += 1;
            return;
        }
        let knew_key = subgroup.key().is_some();
        let location = Location {
            group: subgroup.header.group,
            object: object.id,
        };
        subgroup.begin(object);
        if !knew_key && track.has_twin(inbound.subgroup) {
            inbound.is_repeated = true;
            self.counters.duplicates += 1;
            return;
        }
        track.observe(location);
        self.grow(handle, stream);
    }

    /// The next bytes of the last object.
    pub(crate) fn on_payload(&mut self, handle: Handle, stream: StreamId, data: &[u8]) {
        let Some(peer) = self.peers.get(handle) else {
            return;
        };
        let Some(&inbound) = peer.inbound.get(&stream) else {
            return;
        };
        if inbound.is_repeated {
            return;
        }
        let Some(track) = self.tracks.get(inbound.track) else {
            return;
        };
        if let Some(subgroup) = track.subgroup(inbound.subgroup) {
            subgroup.extend(data);
            self.grow(handle, stream);
        }
    }

    /// A publisher's subgroup stream is over.
    pub(crate) fn on_stream_end(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        stream: StreamId,
        end: StreamEnd,
    ) {
        let Some(peer) = self.peers.get(handle) else {
            return;
        };
        let Some(inbound) = peer.inbound.remove(&stream) else {
            return;
        };
        let Some(track) = self.tracks.get(inbound.track) else {
            return;
        };
        if let Some(source) = track.source(handle, inbound.request) {
            source.streams_open = source.streams_open.saturating_sub(1);
        }
        let ended = match end {
            StreamEnd::Fin => Ended::Finished,
            StreamEnd::Reset(code) => Ended::Reset(code.0),
        };
        if inbound.is_repeated {
            track.remove_subgroup(inbound.subgroup);
        } else {
            self.end_subgroup(inbound.track, inbound.subgroup, ended);
            self.publish_grown(now, endpoint);
        }
        self.end_if_complete(now, endpoint, inbound.track);
    }

    /// The stream that brought a subgroup is gone with its session.
    pub(crate) fn cut_subgroup(&mut self, inbound: &Inbound) {
        if inbound.is_repeated {
            if let Some(track) = self.tracks.get(inbound.track) {
                track.remove_subgroup(inbound.subgroup);
            }
        } else {
            let ended = Ended::Reset(ResetCode::CANCELLED.0);
            self.end_subgroup(inbound.track, inbound.subgroup, ended);
        }
    }

    pub(crate) fn end_subgroup(&mut self, track: TrackId, subgroup: SubgroupId, ended: Ended) {
        if let Some(found) = self
            .tracks
            .get(track)
            .and_then(|track| track.subgroup(subgroup))
        {
            found.end(ended);
            self.mark_grown(track, subgroup);
        }
    }

    fn grow(&mut self, handle: Handle, stream: StreamId) {
        if let Some(&inbound) = self
            .peers
            .get(handle)
            .and_then(|peer| peer.inbound.get(&stream))
        {
            self.mark_grown(inbound.track, inbound.subgroup);
        }
    }

    fn mark_grown(&mut self, track: TrackId, subgroup: SubgroupId) {
        if !self.grown.contains(&(track, subgroup)) {
            self.grown.push((track, subgroup));
        }
    }

    /// Sends on what arrived on subgroup streams in this turn: one write per subscriber and subgroup, however
    /// many packets it came in.
    pub(crate) fn publish_grown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while let Some((track, subgroup)) = self.grown.pop() {
            self.publish_subgroup(now, endpoint, track, subgroup);
        }
    }

    fn publish_subgroup(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        track_id: TrackId,
        id: SubgroupId,
    ) {
        let Self {
            tracks,
            peers,
            config,
            counters,
            ..
        } = self;
        let Some(track) = tracks.get(track_id) else {
            return;
        };
        let mut turn = Turn {
            limits: &config.limits,
            counters,
            track: track.defaults(),
        };
        let Track {
            subscribers,
            subgroups,
            ..
        } = track;
        let Some(subgroup) = subgroups.iter_mut().find(|other| other.id == id) else {
            return;
        };
        let marks = subgroup.publish(now);
        let mut taken = subgroup.len();
        let mut is_behind = false;
        for subscriber in subscribers {
            let handle = subscriber.handle;
            let Some(mut connection) = endpoint.connection(now, handle) else {
                continue;
            };
            match subscriber.advance(now, &mut connection, subgroup, &marks, &mut turn) {
                Progress::Level => {}
                Progress::Behind(cursor, stream) => {
                    is_behind = true;
                    taken = taken.min(cursor);
                    if let (Some(stream), Some(peer)) = (stream, peers.get(handle)) {
                        peer.blocked
                            .insert(stream, (track_id, subscriber.request, id));
                    }
                }
            }
            endpoint.fill_from(now, handle);
        }
        subgroup.trim(taken);
        if subgroup.ended().is_some() && !is_behind {
            track.remove_subgroup(id);
        }
    }

    /// A stream that was full takes more.
    pub(crate) fn resume_stream(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        stream: StreamId,
    ) {
        let Some(peer) = self.peers.get(handle) else {
            return;
        };
        if let Some((track, request, subgroup)) = peer.blocked.remove(&stream) {
            self.resume(now, endpoint, handle, (track, request, subgroup));
        }
    }

    /// The peer allows more streams.
    pub(crate) fn resume_pending(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle) {
        let Some(peer) = self.peers.get(handle) else {
            return;
        };
        let mut pending = Vec::new();
        for (&request, part) in &peer.requests {
            if let Part::Subscriber(track_id) = part
                && let Some(track) = self.tracks.get(*track_id)
                && let Some(subscriber) = track.subscriber(handle, request)
            {
                pending.extend(subscriber.pending().map(|id| (*track_id, request, id)));
            }
        }
        for entry in pending {
            self.resume(now, endpoint, handle, entry);
        }
    }

    fn resume(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        (track_id, request, id): (TrackId, RequestId, SubgroupId),
    ) {
        let Self {
            tracks,
            peers,
            config,
            counters,
            ..
        } = self;
        let Some(track) = tracks.get(track_id) else {
            return;
        };
        let mut turn = Turn {
            limits: &config.limits,
            counters,
            track: track.defaults(),
        };
        let Ok(place) = track.place(handle, request) else {
            return;
        };
        let Track {
            subscribers,
            subgroups,
            ..
        } = track;
        let Some(subgroup) = subgroups.iter().find(|other| other.id == id) else {
            return;
        };
        let Some(mut connection) = endpoint.connection(now, handle) else {
            return;
        };
        match subscribers[place].resume(now, &mut connection, subgroup, &mut turn) {
            Progress::Behind(_, Some(stream)) => {
                if let Some(peer) = peers.get(handle) {
                    peer.blocked.insert(stream, (track_id, request, id));
                }
            }
            Progress::Behind(_, None) => {}
            Progress::Level => {
                if subgroup.ended().is_some() && !subscribers.iter().any(|other| other.is_in(id)) {
                    track.remove_subgroup(id);
                }
                self.dismiss_if_drained(now, endpoint, track_id, handle, request);
            }
        }
    }

    /// The peer no longer wants one of its streams.
    pub(crate) fn stop_stream(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        stream: StreamId,
    ) {
        let Some(peer) = self.peers.get(handle) else {
            return;
        };
        peer.blocked.remove(&stream);
        let mut found = None;
        for (&request, part) in &peer.requests {
            if let Part::Subscriber(track_id) = part
                && let Some(track) = self.tracks.get(*track_id)
                && let Some(subscriber) = track.subscriber(handle, request)
                && let Some(mut connection) = endpoint.connection(now, handle)
                && subscriber.stopped(&mut connection, stream)
            {
                found = Some((*track_id, request));
                break;
            }
        }
        if let Some((track, request)) = found {
            self.counters.streams_stopped += 1;
            self.dismiss_if_drained(now, endpoint, track, handle, request);
        }
    }
}

/// Room for the header of an object in a datagram: type, alias, group, object, priority.
const DATAGRAM_HEADER_BYTES: usize = 32;
