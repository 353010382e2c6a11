//! The encoding of draft-ietf-moq-transport-18 and of -22, written from the drafts and independent of the codec in
//! `weir-moqt`.
//!
//! A codec refuses to write what the protocol forbids, and shares its mistakes with the relay that is built on it. So the
//! probe writes its messages byte by byte, the valid ones too. It reads the relay's answers with the codec.
//!
//! The two drafts differ in FETCH, `FETCH_OK`, GOAWAY and the location filter; each has a function that asks for the edition.

mod code_points;
#[cfg(test)]
mod tests;

pub(crate) use self::code_points::{
    close, done, message, option, parameter, property, refusal, stream,
};
use crate::edition::Edition;

/// The value of a parameter, an option or a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// One byte.
    Byte(u8),
    /// A variable-length integer.
    Int(u64),
    /// Two variable-length integers.
    Location(u64, u64),
    /// Bytes with their length before them.
    Bytes(Vec<u8>),
    /// Bytes as they are.
    Raw(Vec<u8>),
}

impl Value {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Byte(byte) => out.push(*byte),
            Self::Int(value) => out.extend(int(*value)),
            Self::Location(group, object) => {
                out.extend(int(*group));
                out.extend(int(*object));
            }
            Self::Bytes(bytes) => out.extend(prefixed(bytes)),
            Self::Raw(bytes) => out.extend(bytes),
        }
    }
}

/// A list of types with their values.
pub(crate) type Pairs<'a> = &'a [(u64, Value)];

/// Returns the shortest encoding of an integer [moqt-18 §1.4.1] [moqt-22 §8.1].
pub(crate) fn int(value: u64) -> Vec<u8> {
    let bits = 64 - value.leading_zeros();
    let bytes = bits.div_ceil(7).clamp(1, 9);
    if bytes == 9 {
        return [&[0xFF][..], &value.to_be_bytes()].concat();
    }
    let mut encoded = value.to_be_bytes()[8 - bytes as usize..].to_vec();
    encoded[0] |= !(0xFF_u8 >> (bytes - 1));
    encoded
}

/// Returns bytes with their length before them.
pub(crate) fn prefixed(bytes: &[u8]) -> Vec<u8> {
    [&int(bytes.len() as u64)[..], bytes].concat()
}

/// Returns a message with its type and length.
///
/// # Panics
/// If the payload does not fit the length of 16 bits.
pub(crate) fn framed(message: u64, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("cases know the limit of 16 bits");
    [&int(message)[..], &length.to_be_bytes(), payload].concat()
}

/// Returns key-value pairs with delta types, in the order given [moqt-18 §1.4.3] [moqt-22 §8.3].
pub(crate) fn pairs(pairs: Pairs<'_>) -> Vec<u8> {
    let (mut out, mut last) = (Vec::new(), 0);
    for (kind, value) in pairs {
        out.extend(int(kind.wrapping_sub(last)));
        value.write(&mut out);
        last = *kind;
    }
    out
}

/// Returns parameters with their number before them [moqt-18 §10.2] [moqt-22 §9.20].
pub(crate) fn parameters(parameters: Pairs<'_>) -> Vec<u8> {
    [int(parameters.len() as u64), pairs(parameters)].concat()
}

/// A namespace with a track name, and the edition in which requests for it are encoded. The fields may be what no namespace
/// may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Track {
    pub(crate) edition: Edition,
    pub(crate) namespace: Vec<Vec<u8>>,
    pub(crate) name: Vec<u8>,
}

impl Track {
    /// Returns the encoded namespace.
    pub(crate) fn namespace(&self) -> Vec<u8> {
        namespace(&self.namespace)
    }

    /// Returns the encoded namespace and name.
    pub(crate) fn full(&self) -> Vec<u8> {
        [self.namespace(), prefixed(&self.name)].concat()
    }

    /// Returns the track with another name.
    pub(crate) fn named(&self, name: &str) -> Self {
        Self {
            name: name.as_bytes().to_vec(),
            ..self.clone()
        }
    }

    /// Returns the track with one more field of its namespace.
    pub(crate) fn below(&self, field: &str) -> Self {
        let mut namespace = self.namespace.clone();
        namespace.push(field.as_bytes().to_vec());
        Self {
            namespace,
            ..self.clone()
        }
    }

    /// Returns the track with a suffix at the end of the last field of its namespace.
    pub(crate) fn beside(&self, suffix: &str) -> Self {
        let mut namespace = self.namespace.clone();
        if let Some(last) = namespace.last_mut() {
            last.extend_from_slice(suffix.as_bytes());
        }
        Self {
            namespace,
            ..self.clone()
        }
    }
}

/// Returns an encoded namespace.
pub(crate) fn namespace(fields: &[Vec<u8>]) -> Vec<u8> {
    let mut out = int(fields.len() as u64);
    for field in fields {
        out.extend(prefixed(field));
    }
    out
}

/// The seven requests, each with what tells it from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Subscribe,
    Publish,
    Fetch,
    TrackStatus,
    PublishNamespace,
    SubscribeNamespace,
    SubscribeTracks,
}

impl Request {
    pub(crate) const ALL: [Self; 7] = [
        Self::Subscribe,
        Self::Publish,
        Self::Fetch,
        Self::TrackStatus,
        Self::PublishNamespace,
        Self::SubscribeNamespace,
        Self::SubscribeTracks,
    ];

    /// Returns its name in the draft.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Subscribe => "SUBSCRIBE",
            Self::Publish => "PUBLISH",
            Self::Fetch => "FETCH",
            Self::TrackStatus => "TRACK_STATUS",
            Self::PublishNamespace => "PUBLISH_NAMESPACE",
            Self::SubscribeNamespace => "SUBSCRIBE_NAMESPACE",
            Self::SubscribeTracks => "SUBSCRIBE_TRACKS",
        }
    }

    /// Returns its name in the names of cases.
    pub(crate) fn word(self) -> String {
        self.name().to_lowercase().replace('_', "-")
    }

    /// Returns its message type.
    pub(crate) const fn message(self) -> u64 {
        match self {
            Self::Subscribe => message::SUBSCRIBE,
            Self::Publish => message::PUBLISH,
            Self::Fetch => message::FETCH,
            Self::TrackStatus => message::TRACK_STATUS,
            Self::PublishNamespace => message::PUBLISH_NAMESPACE,
            Self::SubscribeNamespace => message::SUBSCRIBE_NAMESPACE,
            Self::SubscribeTracks => message::SUBSCRIBE_TRACKS,
        }
    }

    /// Whether it names a whole track, not only a namespace.
    pub(crate) const fn names_track(self) -> bool {
        matches!(
            self,
            Self::Subscribe | Self::Publish | Self::Fetch | Self::TrackStatus
        )
    }

    /// Returns its payload. PUBLISH has Track Alias 1, and FETCH asks for the first group in draft-18, for all objects in
    /// draft-22.
    pub(crate) fn payload(self, id: u64, track: &Track, parameters: Pairs<'_>) -> Vec<u8> {
        let fields = match (self, track.edition) {
            (Self::Fetch, Edition::Eighteen) => [int(1), track.full(), vec![0, 0, 0, 0]].concat(),
            (Self::Subscribe | Self::TrackStatus | Self::Fetch, _) => track.full(),
            (Self::Publish, _) => [track.full(), int(ALIAS)].concat(),
            (Self::PublishNamespace | Self::SubscribeNamespace | Self::SubscribeTracks, _) => {
                track.namespace()
            }
        };
        [int(id), fields, self::parameters(parameters)].concat()
    }

    /// Returns the message.
    pub(crate) fn encode(self, id: u64, track: &Track, parameters: Pairs<'_>) -> Vec<u8> {
        framed(self.message(), &self.payload(id, track, parameters))
    }
}

/// The Track Alias of publications, unless a case chooses another.
pub(crate) const ALIAS: u64 = 1;

/// Returns a PUBLISH.
pub(crate) fn publish(
    id: u64,
    track: &Track,
    alias: u64,
    parameters: Pairs<'_>,
    properties: Pairs<'_>,
) -> Vec<u8> {
    let fields = [
        int(id),
        track.full(),
        int(alias),
        self::parameters(parameters),
        pairs(properties),
    ];
    framed(message::PUBLISH, &fields.concat())
}

/// Returns a FETCH of a range, whose end is the last object plus one, or 0 for the whole group. Draft-22 has the last object
/// itself, in a parameter [moqt-18 §10.12.1] [moqt-22 §9.20.9].
pub(crate) fn fetch(
    id: u64,
    track: &Track,
    start: (u64, u64),
    end: (u64, u64),
    parameters: Pairs<'_>,
) -> Vec<u8> {
    if track.edition == Edition::TwentyTwo {
        let range = Range::Absolute(start, inclusive(end)).filter(track.edition);
        let mut all = [&[range], parameters].concat();
        all.sort_by_key(|(kind, _)| *kind);
        return Request::Fetch.encode(id, track, &all);
    }
    let range = [int(start.0), int(start.1), int(end.0), int(end.1)].concat();
    let fields = [
        int(id),
        int(1),
        track.full(),
        range,
        self::parameters(parameters),
    ];
    framed(message::FETCH, &fields.concat())
}

/// Returns the last object of a range whose end is given as the last object plus one, or 0 for the whole group.
fn inclusive((group, object): (u64, u64)) -> (u64, u64) {
    (group, object.wrapping_sub(1))
}

/// Returns a FETCH that joins a subscription, as draft-18 has it: relative (kind 2) or absolute (kind 3).
pub(crate) fn joining_fetch(id: u64, kind: u64, subscription: u64, start: u64) -> Vec<u8> {
    let fields = [
        int(id),
        int(kind),
        int(subscription),
        int(start),
        parameters(&[]),
    ];
    framed(message::FETCH, &fields.concat())
}

/// Returns a REQUEST_UPDATE.
pub(crate) fn update(id: u64, parameters: Pairs<'_>) -> Vec<u8> {
    framed(
        message::REQUEST_UPDATE,
        &[int(id), self::parameters(parameters)].concat(),
    )
}

/// Returns a SUBSCRIBE_OK.
pub(crate) fn subscribe_ok(alias: u64, parameters: Pairs<'_>, properties: Pairs<'_>) -> Vec<u8> {
    let fields = [int(alias), self::parameters(parameters), pairs(properties)];
    framed(message::SUBSCRIBE_OK, &fields.concat())
}

/// Returns a FETCH_OK that is not the end of the track. The end of the range is given as for [`fetch`].
pub(crate) fn fetch_ok(edition: Edition, end: (u64, u64), properties: Pairs<'_>) -> Vec<u8> {
    let end = match edition {
        Edition::Eighteen => end,
        Edition::TwentyTwo => inclusive(end),
    };
    let fields = [
        vec![0],
        int(end.0),
        int(end.1),
        parameters(&[]),
        pairs(properties),
    ];
    framed(message::FETCH_OK, &fields.concat())
}

/// Returns a `PUBLISH_STATE_NOTIFY`, which draft-22 has.
pub(crate) fn state_notify(parameters: Pairs<'_>) -> Vec<u8> {
    framed(message::PUBLISH_STATE_NOTIFY, &self::parameters(parameters))
}

/// Returns a REQUEST_OK.
pub(crate) fn request_ok(parameters: Pairs<'_>, properties: Pairs<'_>) -> Vec<u8> {
    framed(
        message::REQUEST_OK,
        &[self::parameters(parameters), pairs(properties)].concat(),
    )
}

/// Returns a REQUEST_ERROR without retry and redirect.
pub(crate) fn request_error(code: u64, reason: &[u8]) -> Vec<u8> {
    framed(
        message::REQUEST_ERROR,
        &[int(code), int(0), prefixed(reason)].concat(),
    )
}

/// Returns a PUBLISH_DONE.
pub(crate) fn publish_done(code: u64, streams: u64, reason: &[u8]) -> Vec<u8> {
    framed(
        message::PUBLISH_DONE,
        &[int(code), int(streams), prefixed(reason)].concat(),
    )
}

/// Returns a GOAWAY without a timeout. The Request ID is that of draft-18; draft-22 has none.
pub(crate) fn goaway(edition: Edition, uri: &[u8], request: Option<u64>) -> Vec<u8> {
    let request = request.filter(|_| edition == Edition::Eighteen);
    let request = request.map(int).unwrap_or_default();
    framed(message::GOAWAY, &[prefixed(uri), int(0), request].concat())
}

/// Locations of a track.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Range {
    /// From the group after the largest one.
    NextGroup,
    /// From the object after the largest one.
    NextObject,
    /// From the start of the group that is so many groups before the largest one; draft-22 has it.
    Recent(u64),
    /// From a location.
    From(u64, u64),
    /// From one location to another, inclusive; object 2^64 - 1 for the whole group. The group of the end is not smaller than
    /// that of the start. In draft-18, the end is that of its group.
    Absolute((u64, u64), (u64, u64)),
}

impl Range {
    /// Returns the location filter [moqt-18 §5.1.2] [moqt-22 §9.20.9].
    pub(crate) fn filter(self, edition: Edition) -> (u64, Value) {
        let eighteen = edition == Edition::Eighteen;
        match self {
            Self::NextGroup if eighteen => filter(edition, 1, &[]),
            Self::NextGroup => filter(edition, 1, &[0]),
            Self::Recent(groups) => filter(edition, 1, &[groups + 1]),
            Self::NextObject => filter(edition, if eighteen { 2 } else { 5 }, &[]),
            Self::From(group, object) => {
                filter(edition, if eighteen { 3 } else { 2 }, &[group, object])
            }
            Self::Absolute((group, object), end) => {
                let fields = [group, object, end.0 - group, end.1];
                match (eighteen, end.1) {
                    (true, _) => filter(edition, 4, &fields[..3]),
                    (false, u64::MAX) => filter(edition, 3, &fields[..3]),
                    (false, _) => filter(edition, 4, &fields),
                }
            }
        }
    }
}

/// Returns a location filter: its type, and the fields that follow. In draft-18, a length is before them.
pub(crate) fn filter(edition: Edition, kind: u64, fields: &[u64]) -> (u64, Value) {
    let fields = fields.iter().flat_map(|field| int(*field));
    let bytes = int(kind).into_iter().chain(fields).collect();
    let value = match edition {
        Edition::Eighteen => Value::Bytes(bytes),
        Edition::TwentyTwo => Value::Raw(bytes),
    };
    (parameter::LOCATION_FILTER, value)
}

/// Returns a request for past objects of a subscription, with parameters of the stream that carries them [moqt-22 §9.20.15].
pub(crate) fn fill(parameters: Pairs<'_>) -> (u64, Value) {
    let value = Value::Bytes(self::parameters(parameters));
    (parameter::FILL_PARAMETERS, value)
}

/// Bits of the type of a subgroup stream [moqt-18 §11.4.2] [moqt-22 §11.3.1].
pub(crate) mod subgroup {
    pub(crate) const BASE: u64 = 0x10;
    pub(crate) const PROPERTIES: u64 = 0x01;
    pub(crate) const EXPLICIT_ID: u64 = 0x04;
    pub(crate) const END_OF_GROUP: u64 = 0x08;
    pub(crate) const DEFAULT_PRIORITY: u64 = 0x20;
    pub(crate) const FIRST_OBJECT: u64 = 0x40;
}

/// The beginning of a subgroup stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subgroup {
    pub(crate) alias: u64,
    pub(crate) group: u64,
    /// The subgroup ID; 0 is not written.
    pub(crate) id: u64,
    /// The publisher priority; `None` for the track's default.
    pub(crate) priority: Option<u8>,
    /// More bits of the type.
    pub(crate) bits: u64,
}

impl Subgroup {
    /// Returns subgroup 0 of a group of the track with [`ALIAS`].
    pub(crate) const fn of(group: u64) -> Self {
        Self {
            alias: ALIAS,
            group,
            id: 0,
            priority: None,
            bits: subgroup::FIRST_OBJECT,
        }
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut kind = subgroup::BASE | self.bits;
        let mut fields = [int(self.alias), int(self.group)].concat();
        if self.id != 0 {
            kind |= subgroup::EXPLICIT_ID;
            fields.extend(int(self.id));
        }
        match self.priority {
            Some(priority) => fields.push(priority),
            None => kind |= subgroup::DEFAULT_PRIORITY,
        }
        [int(kind), fields].concat()
    }
}

/// Returns an object of a subgroup stream without properties.
pub(crate) fn object(delta: u64, payload: &[u8]) -> Vec<u8> {
    let status: &[u8] = if payload.is_empty() { &[0] } else { &[] };
    [&int(delta)[..], &prefixed(payload), status].concat()
}

/// Returns an object of a subgroup stream with properties.
pub(crate) fn object_with(delta: u64, properties: Pairs<'_>, payload: &[u8]) -> Vec<u8> {
    let status: &[u8] = if payload.is_empty() { &[0] } else { &[] };
    let properties = prefixed(&pairs(properties));
    [&int(delta)[..], &properties, &prefixed(payload), status].concat()
}

/// Returns an object of a subgroup stream that is only a status.
pub(crate) fn status(delta: u64, status: u64) -> Vec<u8> {
    [int(delta), vec![0], int(status)].concat()
}

/// Returns a subgroup stream with objects 0, 1, … of these payloads.
pub(crate) fn group(header: Subgroup, payloads: &[&[u8]]) -> Vec<u8> {
    let mut out = header.encode();
    for payload in payloads {
        out.extend(object(0, payload));
    }
    out
}

/// Returns a datagram of the track with [`ALIAS`] and the default priority.
pub(crate) fn datagram(group: u64, object: u64, payload: &[u8]) -> Vec<u8> {
    [
        &int(0x08)[..],
        &int(ALIAS),
        &int(group),
        &int(object),
        payload,
    ]
    .concat()
}
