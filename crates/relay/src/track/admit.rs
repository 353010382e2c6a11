//! Objects as they come from publishers: the first half of the hot path.

use std::time::Instant;

use bytes::BytesMut;
use weir_moqt::{
    data::{ObjectDatagram, ObjectHeader, ObjectStatus, SubgroupHeader},
    draft::Draft,
    error::ResetCode,
    location::Location,
    session::{RequestId, StreamEnd},
};
use weir_quic::{Handle, SendDatagramError};
use weir_transport::StreamId;

use crate::{
    cache::{Content, Contradiction, Keeper},
    dispatch::Owners,
    sessions::peer::{Flow, Inbound, Repetition},
    track::Track,
    track::duplicates::{Claim, Sender, SubgroupKey},
    track::subgroup::{Ended, SubgroupId, resumed},
    track::table::TrackId,
    turn::Turn,
};

impl Owners {
    /// Hands an object that came in a datagram to all who want it.
    pub(crate) fn on_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        sender: Sender,
        mut datagram: ObjectDatagram,
    ) {
        let peer = turn.sessions.get(sender.0);
        let found = peer.and_then(|peer| Some((peer.source(sender.1)?, peer.is_neighbour)));
        let Some((id, from_neighbour)) = found else {
            turn.counters.objects_unwanted += 1;
            return;
        };
        let Self { tracks, ledger, .. } = self;
        let Turn {
            config, counters, ..
        } = turn;
        let Some(track) = tracks.get(id) else {
            return;
        };
        if from_neighbour {
            counters.objects_crossed += 1;
        } else {
            counters.datagrams_received += 1;
        }
        let location = Location {
            group: datagram.group,
            object: datagram.object,
        };
        let anew = track.hear(sender, location, ledger);
        if track.duplicates.is_repeated(turn.now, location, anew) {
            counters.duplicates += 1;
            if track.cache.check_datagram(&datagram).is_err() {
                self.on_malformed(turn, id, sender.0);
            }
            return;
        }
        let (status, properties) = (datagram.status, &datagram.properties);
        if !track
            .ends
            .admits(location, status, properties, track.largest)
        {
            return self.on_malformed(turn, id, sender.0);
        }
        if status == ObjectStatus::Normal && track.cache.rules_out(location) {
            counters.objects_ruled_out += 1;
            return;
        }
        let told = track.hear_of_gaps(location, properties, &config.limits, counters);
        if told.is_err() {
            return self.on_malformed(turn, id, sender.0);
        }
        track.observe(location);
        datagram.track_alias = track.alias;
        let mut encoded = BytesMut::with_capacity(
            datagram.payload.len() + datagram.properties.as_bytes().len() + DATAGRAM_HEADER_BYTES,
        );
        datagram.encode(Draft::KEPT, &mut encoded);
        let encoded = encoded.freeze();
        let mut keeper = Keeper {
            ledger,
            counters,
            limits: &config.limits,
            track: id,
            now: turn.now,
        };
        let mut sound = track.cache.learn_datagram(&mut keeper, &datagram);
        if datagram.status == ObjectStatus::Normal {
            let content = Content::Datagram(encoded.clone());
            let kept = track.cache.insert(&mut keeper, location, turn.now, content);
            sound = sound.and(kept);
        }
        if sound.is_err() {
            return self.on_malformed(turn, id, sender.0);
        }
        let (neighbours, here) = track.subscribers.split_at(track.neighbours_len());
        if !from_neighbour {
            let wanting = neighbours.iter().filter(|other| other.wants(location));
            for subscriber in wanting {
                if let Some(mut connection) = turn.endpoint.connection(turn.now, subscriber.handle)
                {
                    // It has its own limit and counter.
                    let _sent = connection.send_datagram(encoded.clone(), None);
                }
            }
        }
        for subscriber in here {
            if !subscriber.wants(location) {
                continue;
            }
            let handle = subscriber.handle;
            let Some(mut connection) = turn.endpoint.connection(turn.now, handle) else {
                continue;
            };
            match connection.send_datagram(encoded.clone(), subscriber.datagram_deadline(turn.now))
            {
                Ok(()) => counters.datagrams_sent += 1,
                Err(SendDatagramError::TooLarge(_)) => counters.datagrams_dropped_size += 1,
                Err(SendDatagramError::Unsupported) => counters.datagrams_dropped_unsupported += 1,
            }
            turn.endpoint.fill_from(turn.now, handle);
        }
        self.tend_cache(turn);
        self.refill(turn, id);
    }

    /// A publisher opens a subgroup stream. Nothing is passed on before its first object, which may be
    /// what its ID is known by.
    pub(crate) fn on_subgroup(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        request: RequestId,
        header: SubgroupHeader,
    ) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let track_id = peer.source(request);
        let found = track_id.and_then(|id| Some((id, self.tracks.get(id)?)));
        let code = if let Some((track_id, track)) = found {
            let is_full = track.streams_open() >= turn.config.limits.subgroups_per_track_max;
            if let Some(source) = track.source(handle, request) {
                source.streams += 1;
                source.streams_open += usize::from(!is_full);
            }
            if !is_full {
                turn.counters.streams_received += u64::from(!peer.is_neighbour);
                let inbound = Inbound {
                    track: track_id,
                    request,
                    header,
                    flow: Flow::Fresh,
                    is_ruled_out: false,
                };
                peer.inbound.insert(stream, inbound);
                return;
            }
            turn.counters.subgroups_refused += 1;
            ResetCode::EXCESSIVE_LOAD
        } else {
            turn.counters.objects_unwanted += 1;
            ResetCode::CANCELLED
        };
        turn.with_session(handle, |session, connection| {
            session.stop_data(connection, stream, code);
        });
        if let Some(track_id) = track_id {
            self.settle_leaving(turn, track_id);
        }
    }

    /// An object of a subgroup stream begins.
    pub(crate) fn on_object(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        object: ObjectHeader,
    ) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let is_neighbour = peer.is_neighbour;
        let Some(inbound) = peer.inbound.get_mut(&stream) else {
            return;
        };
        let track_id = inbound.track;
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        if is_neighbour {
            turn.counters.objects_crossed += 1;
        } else {
            turn.counters.stream_objects_received += 1;
        }
        let location = Location {
            group: inbound.header.group,
            object: object.id,
        };
        let group = inbound.header.group;
        if !track.ends.admits_object(group, &object, track.largest) {
            return self.on_malformed(turn, track_id, handle);
        }
        let sender = (handle, inbound.request);
        let anew = track.hear(sender, location, &mut self.ledger);
        inbound.is_ruled_out =
            object.status == ObjectStatus::Normal && track.cache.rules_out(location);
        if inbound.is_ruled_out {
            turn.counters.objects_ruled_out += 1;
            if let Flow::Fresh = inbound.flow {
                // What its subgroup is known by, for the objects behind it.
                inbound.flow = Flow::Repeated(Repetition {
                    number: inbound.header.subgroup.resolve(object.id),
                    object: object.id,
                    bytes: 0,
                });
            }
            return;
        }
        let (limits, counters) = (&turn.config.limits, &mut turn.counters);
        let told = track.hear_of_gaps(location, &object.properties, limits, counters);
        if told.is_err() {
            return self.on_malformed(turn, track_id, handle);
        }
        let number = match inbound.flow {
            Flow::Passed(id) => {
                mark_grown(&mut self.grown, track_id, id);
                let Some(number) = track.end_displaced(turn.now, id, sender) else {
                    if let Some(subgroup) = track.subgroup(id) {
                        subgroup.begin(object);
                        track.observe(location);
                    }
                    return;
                };
                number
            }
            Flow::Fresh => inbound.header.subgroup.resolve(object.id),
            Flow::Repeated(repetition) => repetition.number,
        };
        let key = (location.group, number);
        let priority = inbound.header.priority;
        let priority = priority.unwrap_or(track.cache.default_priority);
        let duplicates = &mut track.duplicates;
        let former = duplicates.owner(key).filter(|&former| former != sender);
        match duplicates.claim(turn.now, key, sender, (object.id, priority), anew) {
            Claim::Granted => {}
            Claim::Repeated => {
                turn.counters.duplicates += 1;
                inbound.flow = Flow::Repeated(Repetition {
                    number,
                    object: object.id,
                    bytes: 0,
                });
                let header = inbound.header;
                if track.cache.check_object(&header, number, &object).is_err() {
                    self.on_malformed(turn, track_id, handle);
                }
                return;
            }
            Claim::Contradictory => return self.on_malformed(turn, track_id, handle),
        }
        let header = match inbound.flow {
            Flow::Fresh => inbound.header,
            Flow::Repeated(_) | Flow::Passed(_) => resumed(inbound.header, number),
        };
        let subgroup = track.open_subgroup(header, number, Draft::KEPT);
        subgroup.from_neighbour = is_neighbour;
        subgroup.sender = Some(sender);
        let next = anew.is_none().then_some(object.id);
        subgroup.begin(object);
        let id = subgroup.id;
        inbound.flow = Flow::Passed(id);
        track.observe(location);
        mark_grown(&mut self.grown, track_id, id);
        if let Some(former) = former {
            self.displace(turn, track_id, key, former, next);
        }
    }

    /// A publisher had fallen silent, and another one goes on with its subgroup, at the object `next` unless it counts
    /// anew: what the first still sends of it is a repetition. But an object that it is in the middle of may have been
    /// repeated while it was not silent yet; then it is left to complete that.
    fn displace(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        key: SubgroupKey,
        former: Sender,
        next: Option<u64>,
    ) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let mut subgroups = track.subgroups.iter_mut();
        let Some(subgroup) = subgroups.find(|subgroup| {
            subgroup.sender == Some(former) && subgroup.key() == key && subgroup.ended().is_none()
        }) else {
            return;
        };
        let (id, last) = (subgroup.id, subgroup.last_begun());
        // Nothing is less than `None`.
        if subgroup.is_within_object() && last < next {
            return;
        }
        let before = subgroup.partial_bytes();
        subgroup.end(turn.now, Ended::Displaced);
        let parts = &mut self.ledger.parts;
        parts.hold(subgroup.session(), before, subgroup.partial_bytes());
        mark_grown(&mut self.grown, track_id, id);
        let Some(peer) = turn.sessions.get(former.0) else {
            return;
        };
        let mut streams = peer.inbound.values_mut();
        let is_its =
            |inbound: &&mut Inbound| inbound.track == track_id && inbound.flow == Flow::Passed(id);
        if let Some(inbound) = streams.find(is_its) {
            inbound.flow = Flow::Repeated(Repetition {
                number: key.1,
                object: last.unwrap_or_default(),
                bytes: 0,
            });
            // The rest of the object that it is in the middle of.
            inbound.is_ruled_out = true;
        }
    }

    /// The next bytes of the last object; returns whether the stream is one of a subgroup.
    pub(crate) fn on_payload(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        data: &[u8],
    ) -> bool {
        let Some(inbound) = turn
            .sessions
            .get(handle)
            .and_then(|peer| peer.inbound.get_mut(&stream))
        else {
            return false;
        };
        let (track_id, request) = (inbound.track, inbound.request);
        let Some(track) = self.tracks.get(track_id) else {
            return true;
        };
        if let Some(source) = track.source(handle, request) {
            source.stream_bytes += data.len() as u64;
        }
        match &mut inbound.flow {
            _ if inbound.is_ruled_out => {}
            Flow::Passed(id) => {
                let id = *id;
                if let Some(subgroup) = track.subgroup(id) {
                    let key = subgroup.key();
                    subgroup.extend(data);
                    if track.duplicates.is_shared() {
                        track.duplicates.touch(turn.now, key, (handle, request));
                    }
                    mark_grown(&mut self.grown, track_id, id);
                }
            }
            Flow::Repeated(repetition) => {
                let location = Location::new(inbound.header.group, repetition.object);
                let known = track.cache.find(location);
                let checked = known.map(|known| known.check_payload(repetition.bytes, data));
                repetition.bytes += data.len() as u64;
                if checked == Some(Err(Contradiction)) {
                    self.on_malformed(turn, track_id, handle);
                }
            }
            Flow::Fresh => {}
        }
        true
    }

    /// A publisher's subgroup stream is over.
    pub(crate) fn on_stream_end(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        end: StreamEnd,
    ) {
        let Some(inbound) = turn
            .sessions
            .get(handle)
            .and_then(|peer| peer.inbound.remove(&stream))
        else {
            return;
        };
        let ended = match end {
            StreamEnd::Fin => Ended::Finished,
            StreamEnd::Reset(code) => Ended::Reset(code),
        };
        let sound = self.end_stream(turn, handle, &inbound, ended);
        self.publish_grown(turn);
        if sound.is_err() {
            self.on_malformed(turn, inbound.track, handle);
        }
        self.settle_leaving(turn, inbound.track);
    }

    /// A stream of a publisher brings nothing any more. Fails if it was finished and another one of its subgroup ended
    /// elsewhere.
    pub(crate) fn end_stream(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        inbound: &Inbound,
        ended: Ended,
    ) -> Result<(), Contradiction> {
        let Some(track) = self.tracks.get(inbound.track) else {
            return Ok(());
        };
        if let Some(source) = track.source(handle, inbound.request) {
            source.streams_open = source.streams_open.saturating_sub(1);
        }
        if let Flow::Repeated(Repetition { number, object, .. }) = inbound.flow
            && ended == Ended::Finished
        {
            return track
                .duplicates
                .finish((inbound.header.group, number), object);
        }
        if let Flow::Passed(id) = inbound.flow
            && let Some(subgroup) = track.subgroup(id)
        {
            let before = subgroup.partial_bytes();
            subgroup.end(turn.now, ended);
            let parts = &mut self.ledger.parts;
            parts.hold(subgroup.session(), before, subgroup.partial_bytes());
            let (key, next) = (subgroup.key(), subgroup.next_object());
            let sender = (handle, inbound.request);
            track.duplicates.release(turn.now, key, sender, next);
            let mut sound = Ok(());
            if let Some(last) = next.checked_sub(1)
                && ended == Ended::Finished
            {
                sound = track.duplicates.finish(key, last);
                if inbound.header.end_of_group {
                    track.ends.end_group(key.0, last);
                }
            }
            mark_grown(&mut self.grown, inbound.track, id);
            return sound;
        }
        Ok(())
    }

    /// Cuts all streams that a publisher has open for one of its tracks.
    pub(crate) fn cut_streams(&mut self, turn: &mut Turn<'_>, handle: Handle, request: RequestId) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let mut cut = Vec::new();
        peer.inbound.retain(|_, inbound| {
            let stays = inbound.request != request;
            if !stays {
                cut.push(*inbound);
            }
            stays
        });
        for inbound in cut {
            // What is cut says nothing of its end.
            let _sound = self.end_stream(turn, handle, &inbound, CUT);
        }
    }
}

impl Track {
    /// Ends a subgroup that `sender` passes on, if another one has gone on with it while `sender` was in the middle of an
    /// object; that one is complete now. Gives the subgroup's ID then.
    fn end_displaced(&mut self, now: Instant, id: SubgroupId, sender: Sender) -> Option<u64> {
        if !self.duplicates.is_shared() {
            return None;
        }
        let mut subgroups = self.subgroups.iter_mut();
        let subgroup = subgroups.find(|subgroup| subgroup.id == id)?;
        let key = subgroup.key();
        self.duplicates.touch(now, key, sender).then(|| {
            subgroup.end(now, Ended::Displaced);
            key.1
        })
    }
}

fn mark_grown(grown: &mut Vec<(TrackId, SubgroupId)>, track: TrackId, subgroup: SubgroupId) {
    if !grown.contains(&(track, subgroup)) {
        grown.push((track, subgroup));
    }
}

/// What subscribers see of a stream whose publisher is gone.
pub(crate) const CUT: Ended = Ended::Reset(ResetCode::CANCELLED);
/// Room for the header of an object in a datagram: type, alias, group, object, priority, length of properties.
const DATAGRAM_HEADER_BYTES: usize = 40;
