//! Admission, the first step of an object: its track, whether it is new, and whether it may exist.

use weir_moqt::{
    data::{ObjectDatagram, ObjectHeader, ObjectStatus, SubgroupHeader},
    error::ResetCode,
    location::Location,
    message::FetchOk,
    property::Properties,
};
use weir_quic::Handle;
use weir_transport::StreamId;

use super::{
    Ended, Track, Tracks,
    duplicates::{Claim, Restarted},
    inbound::{Flow, InboundStream},
    subgroup::resumed,
};
use crate::{
    Counters, Limits,
    cache::{Contradiction, Ledger, Span},
    effect::Effect,
    ids::{PublisherId, SubgroupId, SubgroupKey, TrackId},
    sessions::peer::PeerKind,
    turn::Turn,
};

/// A datagram that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdmittedDatagram {
    pub(crate) track: TrackId,
    pub(crate) publisher: Handle,
    /// The kind of peer that sent it.
    pub(crate) from: PeerKind,
}

/// Why an object is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rejected {
    /// Another publisher sent it.
    Repeated,
    /// The object is known not to exist.
    RuledOut,
    /// The object breaks the rules of the object model [moqt-18 §2.4.2].
    Malformed,
}

impl From<Contradiction> for Rejected {
    fn from(_: Contradiction) -> Self {
        Self::Malformed
    }
}

impl Tracks {
    /// Admits an object that came in a datagram; returns `None` if it is dropped.
    pub(crate) fn admit_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        sender: PublisherId,
        datagram: &ObjectDatagram,
    ) -> Option<AdmittedDatagram> {
        let peer = turn.sessions.get(sender.0);
        let Some((id, from)) = peer.and_then(|it| Some((it.source(sender.1)?, it.kind()))) else {
            turn.counters.objects_unwanted += 1;
            return None;
        };
        let track = self.table.get(id)?;
        if from == PeerKind::Sibling {
            turn.counters.objects_crossed += 1;
        } else {
            turn.counters.datagrams_received += 1;
            turn.note_object_over(from, sender.0);
        }
        match track.admit_datagram(turn, &mut self.ledger, sender, datagram) {
            Ok(()) => Some(AdmittedDatagram {
                track: id,
                publisher: sender.0,
                from,
            }),
            Err(rejected) => {
                count(turn.counters, rejected);
                let contradicts = match rejected {
                    Rejected::Repeated => track.cache.check_datagram(datagram).is_err(),
                    Rejected::RuledOut => false,
                    Rejected::Malformed => true,
                };
                if contradicts {
                    turn.push(Effect::Malformed(id, sender.0));
                }
                None
            }
        }
    }

    /// Handles a new subgroup stream. Nothing is forwarded before its first object, which may determine the subgroup
    /// ID.
    pub(crate) fn on_subgroup(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, request): PublisherId,
        stream: StreamId,
        header: SubgroupHeader,
    ) {
        let id = turn.published_track((handle, request));
        match self.open_inbound(turn, id, (handle, request), header) {
            Ok(inbound) => {
                self.inbound.entry(handle).insert(stream, inbound);
            }
            Err(code) => {
                turn.with_session(handle, |session, connection| {
                    session.stop_data(connection, stream, code);
                });
                if let Some(id) = id {
                    self.release_leaving(turn, id);
                }
            }
        }
    }

    /// Counts a subgroup stream. Returns its state if its objects are accepted.
    fn open_inbound(
        &mut self,
        turn: &mut Turn<'_>,
        id: Option<TrackId>,
        publisher: PublisherId,
        header: SubgroupHeader,
    ) -> Result<InboundStream, ResetCode> {
        let Some((id, track)) = id.and_then(|id| Some((id, self.table.get(id)?))) else {
            turn.counters.objects_unwanted += 1;
            return Err(ResetCode::CANCELLED);
        };
        let is_full = track.streams_open() >= turn.config.limits.subgroups_per_track_max;
        if let Some(publisher) = track.publisher(publisher) {
            publisher.streams += 1;
            publisher.streams_open += usize::from(!is_full);
        }
        if is_full {
            turn.counters.subgroups_refused += 1;
            return Err(ResetCode::EXCESSIVE_LOAD);
        }
        let kind = turn.kind(publisher.0);
        turn.counters.streams_received += u64::from(kind != PeerKind::Sibling);
        Ok(InboundStream {
            track: id,
            request: publisher.1,
            kind,
            header,
            flow: Flow::Fresh,
            is_ruled_out: false,
        })
    }

    /// Handles an object that begins on a subgroup stream.
    pub(crate) fn on_object(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        object: ObjectHeader,
    ) {
        let inbound = self.inbound.get_mut(handle);
        let Some(inbound) = inbound.and_then(|streams| streams.get_mut(&stream)) else {
            return;
        };
        let (id, sender) = (inbound.track, (handle, inbound.request));
        let Some(track) = self.table.get(id) else {
            return;
        };
        if inbound.kind == PeerKind::Sibling {
            turn.counters.objects_crossed += 1;
        } else {
            turn.counters.stream_objects_received += 1;
            turn.note_object_over(inbound.kind, handle);
        }
        let restarted = match track.admit_object(turn, &mut self.ledger, inbound, sender, &object) {
            Ok(restarted) => restarted,
            Err(rejected) => return reject(turn, id, handle, rejected),
        };
        let mut number = inbound.number(object.id);
        if let Flow::Passed(log) = inbound.flow {
            number = track.end_displaced(turn, log, sender);
            if number.is_none() {
                track.continue_log(log, object);
                return self.mark_grown(id, log);
            }
            self.mark_grown(id, log);
        }
        if let Some(number) = number {
            self.open_log(turn, (handle, stream), number, object, restarted);
        }
    }

    /// Begins the subgroup `number` with this object, if its sender may pass it on.
    fn open_log(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, stream): (Handle, StreamId),
        number: u64,
        object: ObjectHeader,
        restarted: Option<Restarted>,
    ) {
        let inbound = self.inbound.get_mut(handle);
        let Some(inbound) = inbound.and_then(|streams| streams.get_mut(&stream)) else {
            return;
        };
        let (id, sender) = (inbound.track, (handle, inbound.request));
        let Some(track) = self.table.get(id) else {
            return;
        };
        let key = (inbound.header.group, number);
        let former = track
            .duplicates
            .owner(key)
            .filter(|&former| former != sender);
        let claimed = track.claim(turn, inbound, (key, sender), &object, restarted);
        if let Err(rejected) = claimed {
            return reject(turn, id, handle, rejected);
        }
        let header = match inbound.flow {
            Flow::Fresh => inbound.header,
            Flow::Repeated(_) | Flow::Passed(_) => resumed(inbound.header, number),
        };
        let next = restarted.is_none().then_some(object.id);
        let log = track.begin_log(header, number, (sender, inbound.kind), object);
        inbound.flow = Flow::Passed(log);
        self.mark_grown(id, log);
        if let Some(former) = former {
            self.displace(turn, id, key, former, next);
        }
    }

    /// Ends the part of a subgroup that came from `former`, a silent publisher, because another publisher continues the
    /// subgroup. `next` is the object at which the other continues; `None` if it has restarted the track. What `former`
    /// still sends is a repetition. An incomplete object of `former` before `next` is completed first, since the other
    /// publisher may have repeated it already.
    fn displace(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        key: SubgroupKey,
        former: PublisherId,
        next: Option<u64>,
    ) {
        let Some(track) = self.table.get(id) else {
            return;
        };
        let mut subgroups = track.subgroups.iter_mut();
        let Some(subgroup) = subgroups.find(|subgroup| {
            subgroup.sender == Some(former) && subgroup.key() == key && subgroup.ended().is_none()
        }) else {
            return;
        };
        let (log, last) = (subgroup.id, subgroup.last_begun());
        // `None` is smaller than any ID.
        if subgroup.is_within_object() && last < next {
            return;
        }
        let before = subgroup.partial_bytes();
        subgroup.end(turn.now, Ended::Displaced);
        let parts = &mut self.ledger.parts;
        parts.hold(subgroup.session(), before, subgroup.partial_bytes());
        self.mark_grown(id, log);
        let Some(streams) = self.inbound.get_mut(former.0) else {
            return;
        };
        let is_its =
            |inbound: &&mut InboundStream| inbound.track == id && inbound.flow == Flow::Passed(log);
        if let Some(inbound) = streams.values_mut().find(is_its) {
            inbound.repeat(key.1, last.unwrap_or_default());
            // Drops the rest of the incomplete object.
            inbound.is_ruled_out = true;
        }
    }

    /// Handles the next bytes of the object on a stream; returns whether the stream belongs to a subgroup.
    pub(crate) fn on_payload(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        stream: StreamId,
        data: &[u8],
    ) -> bool {
        let inbound = self.inbound.get_mut(handle);
        let Some(inbound) = inbound.and_then(|streams| streams.get_mut(&stream)) else {
            return false;
        };
        let (id, sender) = (inbound.track, (handle, inbound.request));
        let Some(track) = self.table.get(id) else {
            return true;
        };
        if let Some(publisher) = track.publisher(sender) {
            publisher.stream_bytes += data.len() as u64;
        }
        match &mut inbound.flow {
            _ if inbound.is_ruled_out => {}
            Flow::Passed(log) => {
                let log = *log;
                if track.extend(turn, log, sender, data) {
                    self.mark_grown(id, log);
                }
            }
            Flow::Repeated(repetition) => {
                let location = Location::new(inbound.header.group, repetition.object);
                let known = track.cache.find(location);
                let checked = known.map(|known| known.check_payload(repetition.bytes, data));
                repetition.bytes += data.len() as u64;
                if checked == Some(Err(Contradiction)) {
                    turn.push(Effect::Malformed(id, handle));
                }
            }
            Flow::Fresh => {}
        }
        true
    }
}

impl Track {
    /// Applies a publisher's FETCH_OK for `asked`: the end of the range, and the properties of the track.
    pub(crate) fn on_fetch_ok(&mut self, ok: &FetchOk, asked: &Span) {
        if !self.is_established() {
            self.properties = ok.properties.clone();
            self.cache
                .set_default_priority(ok.properties.publisher_priority());
        }
        if ok.end_of_track {
            self.end_markers.end_track(ok.end);
        }
        if ok.end < asked.end || ok.end_of_track {
            self.cache.note_location(ok.end);
        }
    }

    /// Checks that an object in answer to a fetch may exist at its location, and notes the gaps that it declares.
    pub(crate) fn admit_fetched(
        &mut self,
        turn: &mut Turn<'_>,
        location: Location,
        properties: &Properties,
    ) -> Result<(), Contradiction> {
        if !self.end_markers.gaps.admits(location) {
            return Err(Contradiction);
        }
        self.note_gaps(location, properties, &turn.config.limits, turn.counters)
    }

    fn admit_datagram(
        &mut self,
        turn: &mut Turn<'_>,
        ledger: &mut Ledger,
        sender: PublisherId,
        datagram: &ObjectDatagram,
    ) -> Result<(), Rejected> {
        let location = Location::new(datagram.group, datagram.object);
        let (status, properties) = (datagram.status, &datagram.properties);
        let restarted = self.note_sender(sender, location, ledger);
        if self.duplicates.is_repeated(turn.now, location, restarted) {
            return Err(Rejected::Repeated);
        }
        let largest = self.largest;
        if !self
            .end_markers
            .admits(location, status, properties, largest)
        {
            return Err(Rejected::Malformed);
        }
        if status == ObjectStatus::Normal && self.cache.rules_out(location) {
            return Err(Rejected::RuledOut);
        }
        self.note_gaps(location, properties, &turn.config.limits, turn.counters)?;
        self.observe(location);
        Ok(())
    }

    /// Admits an object that begins on a stream; returns how it is treated if its sender has restarted the track.
    fn admit_object(
        &mut self,
        turn: &mut Turn<'_>,
        ledger: &mut Ledger,
        inbound: &mut InboundStream,
        sender: PublisherId,
        object: &ObjectHeader,
    ) -> Result<Option<Restarted>, Rejected> {
        let group = inbound.header.group;
        let location = Location::new(group, object.id);
        if !self.end_markers.admits_object(group, object, self.largest) {
            return Err(Rejected::Malformed);
        }
        let restarted = self.note_sender(sender, location, ledger);
        inbound.is_ruled_out =
            object.status == ObjectStatus::Normal && self.cache.rules_out(location);
        if inbound.is_ruled_out {
            if let Flow::Fresh = inbound.flow {
                // Sets the subgroup ID, for the objects that follow.
                inbound.repeat(inbound.header.subgroup.resolve(object.id), object.id);
            }
            return Err(Rejected::RuledOut);
        }
        let (limits, counters): (&Limits, &mut Counters) = (&turn.config.limits, turn.counters);
        self.note_gaps(location, &object.properties, limits, counters)?;
        Ok(restarted)
    }

    /// Checks whether the sender of a stream may pass on a subgroup from this object on.
    fn claim(
        &mut self,
        turn: &mut Turn<'_>,
        inbound: &mut InboundStream,
        (key, sender): (SubgroupKey, PublisherId),
        object: &ObjectHeader,
        restarted: Option<Restarted>,
    ) -> Result<(), Rejected> {
        let default = self.cache.default_priority();
        let begins = (object.id, inbound.header.priority.unwrap_or(default));
        match self
            .duplicates
            .claim(turn.now, key, sender, begins, restarted)
        {
            Claim::Granted => Ok(()),
            Claim::Repeated => {
                inbound.repeat(key.1, object.id);
                let checked = self.cache.check_object(&inbound.header, key.1, object);
                turn.counters.duplicates += u64::from(checked.is_err());
                checked?;
                Err(Rejected::Repeated)
            }
            Claim::Contradictory => Err(Rejected::Malformed),
        }
    }

    /// Begins the log of a subgroup with an object.
    fn begin_log(
        &mut self,
        header: SubgroupHeader,
        number: u64,
        (sender, from): (PublisherId, PeerKind),
        object: ObjectHeader,
    ) -> SubgroupId {
        self.observe(Location::new(header.group, object.id));
        let subgroup = self.open_subgroup(header, number);
        subgroup.from = from;
        subgroup.sender = Some(sender);
        subgroup.begin(object);
        subgroup.id
    }

    /// Ends a subgroup from `sender` if another publisher has continued it, now that the object of `sender` is
    /// complete. Returns the subgroup ID if so.
    fn end_displaced(
        &mut self,
        turn: &mut Turn<'_>,
        log: SubgroupId,
        sender: PublisherId,
    ) -> Option<u64> {
        if !self.duplicates.is_shared() {
            return None;
        }
        let index = self.place(log)?;
        let subgroup = &mut self.subgroups[index];
        let key = subgroup.key();
        self.duplicates.touch(turn.now, key, sender).then(|| {
            subgroup.end(turn.now, Ended::Displaced);
            key.1
        })
    }

    /// Appends the header of the next object to a subgroup.
    fn continue_log(&mut self, log: SubgroupId, object: ObjectHeader) {
        let Some(subgroup) = self.subgroup_mut(log) else {
            return;
        };
        let location = Location::new(subgroup.header.group, object.id);
        subgroup.begin(object);
        self.observe(location);
    }

    /// Appends bytes to the last object of a subgroup; returns false if the subgroup is gone.
    fn extend(
        &mut self,
        turn: &mut Turn<'_>,
        log: SubgroupId,
        sender: PublisherId,
        data: &[u8],
    ) -> bool {
        let Some(subgroup) = self.subgroup_mut(log) else {
            return false;
        };
        let key = subgroup.key();
        subgroup.extend(data);
        if self.duplicates.is_shared() {
            self.duplicates.touch(turn.now, key, sender);
        }
        true
    }

    pub(super) fn end_log(
        &mut self,
        turn: &mut Turn<'_>,
        ledger: &mut Ledger,
        (log, sender): (SubgroupId, PublisherId),
        inbound: &InboundStream,
        ended: Ended,
    ) -> Result<(), Contradiction> {
        let Some(subgroup) = self.subgroup_mut(log) else {
            return Ok(());
        };
        let before = subgroup.partial_bytes();
        subgroup.end(turn.now, ended);
        let (session, after) = (subgroup.session(), subgroup.partial_bytes());
        let (key, next) = (subgroup.key(), subgroup.next_object());
        ledger.parts.hold(session, before, after);
        self.duplicates.release(turn.now, key, sender, next);
        let Some(last) = next.checked_sub(1).filter(|_| ended == Ended::Finished) else {
            return Ok(());
        };
        let sound = self.duplicates.finish(key, last);
        if inbound.header.end_of_group {
            self.end_markers.end_group(key.0, last);
        }
        sound
    }
}

fn reject(turn: &mut Turn<'_>, id: TrackId, publisher: Handle, rejected: Rejected) {
    count(turn.counters, rejected);
    if rejected == Rejected::Malformed {
        turn.push(Effect::Malformed(id, publisher));
    }
}

fn count(counters: &mut Counters, rejected: Rejected) {
    match rejected {
        Rejected::Repeated => counters.duplicates += 1,
        Rejected::RuledOut => counters.objects_ruled_out += 1,
        Rejected::Malformed => {}
    }
}
