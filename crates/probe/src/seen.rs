//! What a client of a case has seen of the relay: messages, objects, ends of streams, and the end of the session.

use std::{collections::BTreeMap, fmt};

use bytes::{Bytes, BytesMut};
use weir_moqt::{
    data::{
        FetchEntry, FetchObject, ObjectDatagram, ObjectStatus, RangeEnd, StreamKind, SubgroupHeader,
    },
    draft::Draft,
    error::{DecodeError, SessionError},
    message::{MESSAGE_BYTES_MAX, Message, Setup},
    parameter::GroupOrder,
    reader::{FetchItem, FetchReader, MessageReader, SubgroupItem, SubgroupReader},
};
use weir_quic::Lost;
use weir_transport::{Direction, StreamId};

use crate::edition::Edition;

/// A stream of a case, by the name that its script gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Slot {
    /// The client's control stream.
    Control,
    /// A request stream that the client opens.
    Bi(u32),
    /// A unidirectional stream that the client opens.
    Uni(u32),
    /// A request stream that the relay opened.
    Taken(u32),
}

/// How a stream of the relay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    Fin,
    Reset(u64),
}

/// An object that arrived, however it did.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) way: Way,
    pub(crate) group: u64,
    pub(crate) id: u64,
    /// The subgroup ID; `None` for datagrams.
    pub(crate) subgroup: Option<u64>,
    /// The publisher priority; `None` for the track's default.
    pub(crate) priority: Option<u8>,
    pub(crate) status: ObjectStatus,
    /// The encoded properties.
    pub(crate) properties: Bytes,
    /// The payload that has arrived.
    pub(crate) payload: BytesMut,
    /// Length of the whole payload.
    pub(crate) payload_bytes: u64,
}

impl Object {
    /// Whether the whole payload has arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.payload.len() as u64 == self.payload_bytes
    }

    pub(crate) fn location(&self) -> (u64, u64) {
        (self.group, self.id)
    }
}

/// How an object arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// On a subgroup stream of a Track Alias.
    Subgroup { alias: u64, stream: StreamId },
    /// In a datagram of a Track Alias.
    Datagram { alias: u64 },
    /// On the stream of a FETCH with this Request ID.
    Fetch { request: u64 },
}

impl Way {
    /// Returns the Track Alias, unless the object was fetched.
    pub(crate) const fn alias(self) -> Option<u64> {
        match self {
            Self::Subgroup { alias, .. } | Self::Datagram { alias } => Some(alias),
            Self::Fetch { .. } => None,
        }
    }
}

/// What one client has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The edition in which the relay writes.
    pub(crate) edition: Edition,
    /// Whether the handshake was completed.
    pub(crate) is_connected: bool,
    /// The end of the session: the code, and the reason as text. Only closes by the relay have a code.
    pub(crate) ended: Option<Ended>,
    pub(crate) objects: Vec<Object>,
    streams: BTreeMap<StreamId, Incoming>,
    slots: BTreeMap<Slot, StreamId>,
    /// Request streams of the relay that no slot stands for.
    untaken: Vec<StreamId>,
    /// Streams with updates of the relay that are not answered, and with requests that were not looked at.
    updates: Vec<StreamId>,
    requests: Vec<StreamId>,
    /// What the relay sent and the codec could not read: the first time.
    pub(crate) unreadable: Option<String>,
    /// The order of groups that the client asks for in its fetches.
    pub(crate) fetch_order: GroupOrder,
    /// Why objects up to the end of a range are missing on fetch streams, with the Request ID of each.
    pub(crate) gaps: Vec<(u64, RangeEnd)>,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The code, if the relay closed the session with one.
    pub(crate) code: Option<u64>,
    text: String,
}

impl Ended {
    pub(crate) fn of(lost: &Lost) -> Self {
        match lost {
            Lost::Application { code, reason } => Self {
                code: Some(*code),
                text: match &reason[..] {
                    "" => format!("closed with {}", code_name(*code)),
                    reason => format!("closed with {} ({reason:?})", code_name(*code)),
                },
            },
            other @ (Lost::TimedOut
            | Lost::Reset
            | Lost::NoApplicationProtocol
            | Lost::Tls(_)
            | Lost::Transport(_)
            | Lost::WebTransport(_)
            | Lost::Version
            | Lost::ConnectionIdsExhausted) => Self {
                code: None,
                text: format!("lost: {other}"),
            },
        }
    }
}

impl Ended {
    /// Returns the end of a session that could not be started here.
    pub(crate) fn local(reason: &str) -> Self {
        Self {
            code: None,
            text: format!("not started: {reason}"),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// Returns a code that closes a session with its name, such as `PROTOCOL_VIOLATION (0x3)`.
pub(crate) fn code_name(code: u64) -> String {
    match SessionError(code).name() {
        Some(name) => format!("{name} ({code:#x})"),
        None => format!("{code:#x}"),
    }
}

/// One stream as far as the relay sends on it.
#[derive(Debug)]
pub(crate) struct Incoming {
    content: Content,
    pub(crate) messages: Vec<Message>,
    /// Number of messages that the script has looked at.
    taken: usize,
    pub(crate) end: Option<StreamEnd>,
    /// The code of `STOP_SENDING` for the client's side.
    pub(crate) stopped: Option<u64>,
    /// The header, if it is a subgroup stream.
    pub(crate) header: Option<SubgroupHeader>,
    /// The Request ID, if it is a fetch stream.
    pub(crate) fetch: Option<u64>,
}

/// The content of a stream.
#[derive(Debug)]
enum Content {
    /// Less than its type has arrived.
    Unknown(BytesMut),
    Messages(MessageReader),
    /// With the number of its last object among all objects.
    Subgroup(SubgroupReader, Option<usize>),
    Fetch(FetchReader, Option<usize>),
    /// Padding, or something that could not be read.
    Ignored,
}

impl Seen {
    /// Returns what a client in an edition has seen at first: nothing.
    pub(crate) fn new(edition: Edition) -> Self {
        Self {
            edition,
            ..Self::default()
        }
    }

    /// Adds a stream, opened by the relay or for a slot of the client.
    pub(crate) fn add(&mut self, stream: StreamId, direction: Direction, slot: Option<Slot>) {
        let content = match direction {
            Direction::Bi => {
                Content::Messages(MessageReader::new(self.edition.codec(), MESSAGE_BYTES_MAX))
            }
            Direction::Uni => Content::Unknown(BytesMut::new()),
        };
        let incoming = Incoming {
            content,
            messages: Vec::new(),
            taken: 0,
            end: None,
            stopped: None,
            header: None,
            fetch: None,
        };
        self.streams.insert(stream, incoming);
        match slot {
            Some(slot) => drop(self.slots.insert(slot, stream)),
            None if direction == Direction::Bi => self.untaken.push(stream),
            None => {}
        }
        if self.streams.len() > STREAMS_MAX {
            self.forget_oldest();
        }
    }

    /// Returns the stream of a slot.
    pub(crate) fn stream(&self, slot: Slot) -> Option<StreamId> {
        self.slots.get(&slot).copied()
    }

    /// Returns what arrived on the stream of a slot.
    pub(crate) fn on(&self, slot: Slot) -> Option<&Incoming> {
        self.streams.get(&self.stream(slot)?)
    }

    /// Returns all streams.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (StreamId, &Incoming)> {
        self.streams.iter().map(|(stream, one)| (*stream, one))
    }

    /// Takes the next message on the stream of a slot.
    pub(crate) fn next_message(&mut self, slot: Slot) -> Option<&Message> {
        let stream = self.stream(slot)?;
        let incoming = self.streams.get_mut(&stream)?;
        let message = incoming.messages.get(incoming.taken)?;
        incoming.taken += 1;
        Some(message)
    }

    /// Gives a slot the first request stream of the relay whose first message is one that `is_meant` accepts.
    pub(crate) fn take(&mut self, slot: Slot, is_meant: impl Fn(&Message) -> bool) -> bool {
        let place = self.untaken.iter().position(|stream| {
            let first = self.streams.get(stream).and_then(|it| it.messages.first());
            first.is_some_and(&is_meant)
        });
        let Some(place) = place else { return false };
        let stream = self.untaken.remove(place);
        self.slots.insert(slot, stream);
        if let Some(incoming) = self.streams.get_mut(&stream) {
            incoming.taken = 1;
        }
        true
    }

    /// Returns the oldest update of the relay that is not answered, with the slot of its request; otherwise gives `slot` the
    /// oldest request stream of the relay that no slot stands for, and returns its first message.
    pub(crate) fn take_asked(&mut self, slot: Slot) -> Option<(Slot, Message)> {
        self.requests.clear();
        if !self.updates.is_empty() {
            let stream = self.updates.remove(0);
            let (slot, _) = self.slots.iter().find(|(_, one)| **one == stream)?;
            let messages = &self.streams.get(&stream)?.messages;
            let mut updates = messages.iter();
            let update = updates.rfind(|one| matches!(one, Message::RequestUpdate(_)))?;
            return Some((*slot, update.clone()));
        }
        self.take(slot, |_| true).then_some(())?;
        Some((slot, self.on(slot)?.messages.first()?.clone()))
    }

    /// Removes a request stream of the relay from those that no slot stands for, since it was answered.
    pub(crate) fn answered(&mut self, stream: StreamId) {
        self.untaken.retain(|one| *one != stream);
    }

    /// Returns the streams on which the relay has sent a REQUEST_UPDATE since the last call: once for each.
    pub(crate) fn take_updates(&mut self) -> Vec<StreamId> {
        std::mem::take(&mut self.updates)
    }

    /// Returns the requests of the relay, which no slot stands for, that came since the last call.
    pub(crate) fn take_requests(&mut self) -> Vec<(StreamId, Message)> {
        let came = std::mem::take(&mut self.requests);
        let first = |stream| Some((stream, self.streams.get(&stream)?.messages.first()?.clone()));
        came.into_iter().filter_map(first).collect()
    }

    /// Returns the relay's SETUP, once it has arrived.
    pub(crate) fn setup(&self) -> Option<&Setup> {
        self.streams.values().find_map(|one| {
            if let Some(Message::Setup(setup)) = one.messages.first() {
                return Some(setup);
            }
            None
        })
    }

    /// Returns what the relay calls itself in SETUP.
    pub(crate) fn implementation(&self) -> Option<&str> {
        self.setup()?.implementation.as_deref()
    }

    /// Takes all objects, unless one of them is incomplete.
    pub(crate) fn take_objects(&mut self) -> Vec<Object> {
        if self.objects.iter().all(Object::is_complete) {
            std::mem::take(&mut self.objects)
        } else {
            Vec::new()
        }
    }

    /// Notes `STOP_SENDING`.
    pub(crate) fn stopped(&mut self, stream: StreamId, code: u64) {
        if let Some(incoming) = self.streams.get_mut(&stream) {
            incoming.stopped = Some(code);
        }
    }

    /// Notes the end of a stream.
    pub(crate) fn end(&mut self, stream: StreamId, end: StreamEnd) {
        if let Some(incoming) = self.streams.get_mut(&stream) {
            incoming.end.get_or_insert(end);
        }
    }

    /// Notes a datagram.
    pub(crate) fn datagram(&mut self, data: Bytes) {
        match ObjectDatagram::decode(self.edition.codec(), data) {
            Ok(Some(datagram)) => self.keep(Object {
                way: Way::Datagram {
                    alias: datagram.track_alias,
                },
                group: datagram.group,
                id: datagram.object,
                subgroup: None,
                priority: datagram.priority,
                status: datagram.status,
                properties: datagram.properties.as_bytes().clone(),
                payload_bytes: datagram.payload.len() as u64,
                payload: datagram.payload[..].into(),
            }),
            Ok(None) => {}
            Err(error) => self.cannot_read("a datagram", error),
        }
    }

    /// Notes bytes that arrived on a stream.
    pub(crate) fn data(&mut self, stream: StreamId, data: Bytes) {
        let draft = self.edition.codec();
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return;
        };
        let mut content = std::mem::replace(&mut incoming.content, Content::Ignored);
        let (mut data, mut problem) = (data, None);
        if let Content::Unknown(start) = &mut content {
            start.extend_from_slice(&data);
            match StreamKind::recognise(draft, start) {
                Ok(kind) => {
                    data = start.split().freeze();
                    content = Content::of(draft, kind);
                }
                Err(DecodeError::Short) => data = Bytes::new(),
                Err(error @ DecodeError::Invalid { .. }) => {
                    content = Content::Ignored;
                    problem = Some(error);
                }
            }
        }
        if !data.is_empty()
            && let Err(error) = self.read(stream, &mut content, data)
        {
            content = Content::Ignored;
            problem = Some(error);
        }
        if let Some(incoming) = self.streams.get_mut(&stream) {
            incoming.content = content;
        }
        if let Some(error) = problem {
            self.cannot_read("a stream", error);
        }
    }

    fn read(
        &mut self,
        stream: StreamId,
        content: &mut Content,
        data: Bytes,
    ) -> Result<(), DecodeError> {
        match content {
            Content::Unknown(_) | Content::Ignored => Ok(()),
            Content::Messages(reader) => {
                reader.push(data);
                while let Some(message) = reader.poll()? {
                    // It may come at any time, and says nothing that a case waits for.
                    if matches!(message, Message::PublishStateNotify(_)) {
                        continue;
                    }
                    if let Some(incoming) = self.streams.get_mut(&stream)
                        && incoming.messages.len() < MESSAGES_MAX
                    {
                        if matches!(message, Message::RequestUpdate(_)) {
                            // The oldest ones of a client that does not answer are given up.
                            if self.updates.len() >= STREAMS_MAX {
                                self.updates.remove(0);
                            }
                            self.updates.push(stream);
                        } else if incoming.messages.is_empty() && self.untaken.contains(&stream) {
                            self.requests.push(stream);
                        }
                        incoming.messages.push(message);
                    }
                }
                Ok(())
            }
            Content::Subgroup(reader, last) => self.read_subgroup(stream, reader, last, data),
            Content::Fetch(reader, last) => self.read_fetch(stream, reader, last, data),
        }
    }

    fn read_subgroup(
        &mut self,
        stream: StreamId,
        reader: &mut SubgroupReader,
        last: &mut Option<usize>,
        data: Bytes,
    ) -> Result<(), DecodeError> {
        reader.push(data);
        while let Some(item) = reader.poll()? {
            match item {
                SubgroupItem::Header(header) => {
                    if let Some(incoming) = self.streams.get_mut(&stream) {
                        incoming.header = Some(header);
                    }
                }
                SubgroupItem::Object(object) => {
                    let header = self.streams.get(&stream).and_then(|it| it.header);
                    let Some(header) = header else { continue };
                    let before = last.and_then(|last| self.objects.get(last));
                    let subgroup = before.and_then(|before| before.subgroup);
                    self.keep(Object {
                        way: Way::Subgroup {
                            alias: header.track_alias,
                            stream,
                        },
                        group: header.group,
                        id: object.id,
                        subgroup: subgroup.or_else(|| Some(header.subgroup.resolve(object.id))),
                        priority: header.priority,
                        status: object.status,
                        properties: object.properties.as_bytes().clone(),
                        payload: BytesMut::new(),
                        payload_bytes: object.payload_len,
                    });
                    *last = self.objects.len().checked_sub(1);
                }
                SubgroupItem::Payload(piece) => self.payload(*last, &piece),
            }
        }
        Ok(())
    }

    fn read_fetch(
        &mut self,
        stream: StreamId,
        reader: &mut FetchReader,
        last: &mut Option<usize>,
        data: Bytes,
    ) -> Result<(), DecodeError> {
        reader.push(data);
        while let Some(item) = reader.poll()? {
            match item {
                FetchItem::Header(header) => {
                    reader.set_group_order(self.fetch_order);
                    if let Some(incoming) = self.streams.get_mut(&stream) {
                        incoming.fetch = Some(header.request_id);
                    }
                }
                FetchItem::Entry(FetchEntry::Object(object)) => {
                    let request = self.streams.get(&stream).and_then(|it| it.fetch);
                    self.keep(fetched(request.unwrap_or_default(), &object));
                    *last = self.objects.len().checked_sub(1);
                }
                FetchItem::Entry(FetchEntry::EndOfRange { reason, .. }) => {
                    let request = self.streams.get(&stream).and_then(|it| it.fetch);
                    if self.gaps.len() < OBJECTS_MAX {
                        self.gaps.push((request.unwrap_or_default(), reason));
                    }
                }
                FetchItem::Payload(piece) => self.payload(*last, &piece),
            }
        }
        Ok(())
    }

    fn keep(&mut self, object: Object) {
        // The memory of a client that is flooded is bounded.
        if self.objects.len() < OBJECTS_MAX {
            self.objects.push(object);
        } else if let Some(last) = self.objects.last_mut() {
            *last = object;
        }
    }

    fn payload(&mut self, place: Option<usize>, piece: &[u8]) {
        let object = place.and_then(|place| self.objects.get_mut(place));
        if let Some(object) = object {
            object.payload.extend_from_slice(piece);
        }
    }

    fn cannot_read(&mut self, what: &str, error: DecodeError) {
        let text = || format!("the relay sent {what} that does not parse: {error}");
        self.unreadable.get_or_insert_with(text);
    }

    /// Forgets a stream on which nothing more is sent, and which the relay cannot answer.
    pub(crate) fn forget(&mut self, slot: Slot) {
        if let Some(stream) = self.slots.remove(&slot) {
            self.streams.remove(&stream);
        }
    }

    /// Forgets the older half of all streams, and their slots.
    fn forget_oldest(&mut self) {
        let control = self.stream(Slot::Control);
        let mut left = STREAMS_MAX / 2;
        self.streams.retain(|stream, _| {
            let is_kept = left == 0 || Some(*stream) == control;
            left = left.saturating_sub(1);
            is_kept
        });
        let streams = &self.streams;
        self.slots.retain(|_, stream| streams.contains_key(stream));
        self.untaken.retain(|stream| streams.contains_key(stream));
    }
}

impl Content {
    fn of(draft: Draft, kind: StreamKind) -> Self {
        match kind {
            StreamKind::Control => Self::Messages(MessageReader::new(draft, MESSAGE_BYTES_MAX)),
            StreamKind::Subgroup => {
                Self::Subgroup(SubgroupReader::new(draft, HEADER_BYTES_MAX), None)
            }
            StreamKind::Fetch => Self::Fetch(FetchReader::new(draft, HEADER_BYTES_MAX), None),
            StreamKind::Padding => Self::Ignored,
        }
    }
}

fn fetched(request: u64, object: &FetchObject) -> Object {
    Object {
        way: Way::Fetch { request },
        group: object.group,
        id: object.object,
        subgroup: object.subgroup,
        priority: Some(object.priority),
        status: ObjectStatus::Normal,
        properties: object.properties.as_bytes().clone(),
        payload: BytesMut::new(),
        payload_bytes: object.payload_len,
    }
}

/// Most bytes before the payload of an object.
const HEADER_BYTES_MAX: usize = 1 << 17;
/// Most objects that a client keeps; further ones replace the last.
const OBJECTS_MAX: usize = 4096;
/// Most messages of a stream that a client keeps; further ones are dropped.
const MESSAGES_MAX: usize = 4096;
/// Streams that a client keeps; of more, the older half is forgotten.
const STREAMS_MAX: usize = 4096;
