//! The encoding of draft-ietf-moq-transport-18, written from the draft and independent of the codec in `weir-moqt`.
//!
//! A codec refuses to write what the protocol forbids, and shares its mistakes with the relay that is built on it. So the
//! probe writes its messages byte by byte, the valid ones too. It reads the relay's answers with the codec.

/// The protocol's name in ALPN and in WebTransport: the only draft that the cases are written for.
pub const ALPN: &str = "moqt-18";

/// Message types [moqt-18 §10].
pub(crate) mod message {
    pub(crate) const SETUP: u64 = 0x2F00;
    pub(crate) const GOAWAY: u64 = 0x10;
    pub(crate) const SUBSCRIBE: u64 = 0x3;
    pub(crate) const SUBSCRIBE_OK: u64 = 0x4;
    pub(crate) const PUBLISH: u64 = 0x1D;
    pub(crate) const PUBLISH_DONE: u64 = 0xB;
    pub(crate) const FETCH: u64 = 0x16;
    pub(crate) const FETCH_OK: u64 = 0x18;
    pub(crate) const TRACK_STATUS: u64 = 0xD;
    pub(crate) const PUBLISH_NAMESPACE: u64 = 0x6;
    pub(crate) const SUBSCRIBE_NAMESPACE: u64 = 0x50;
    pub(crate) const SUBSCRIBE_TRACKS: u64 = 0x51;
    pub(crate) const NAMESPACE: u64 = 0x8;
    pub(crate) const NAMESPACE_DONE: u64 = 0xE;
    pub(crate) const PUBLISH_BLOCKED: u64 = 0xF;
    pub(crate) const REQUEST_UPDATE: u64 = 0x2;
    pub(crate) const REQUEST_OK: u64 = 0x7;
    pub(crate) const REQUEST_ERROR: u64 = 0x5;
}

/// Message parameters [moqt-18 §10.2].
pub(crate) mod parameter {
    pub(crate) const OBJECT_DELIVERY_TIMEOUT: u64 = 0x02;
    pub(crate) const AUTHORIZATION_TOKEN: u64 = 0x03;
    pub(crate) const RENDEZVOUS_TIMEOUT: u64 = 0x04;
    pub(crate) const SUBGROUP_DELIVERY_TIMEOUT: u64 = 0x06;
    pub(crate) const EXPIRES: u64 = 0x08;
    pub(crate) const LARGEST_OBJECT: u64 = 0x09;
    pub(crate) const FILL_TIMEOUT: u64 = 0x0A;
    pub(crate) const FORWARD: u64 = 0x10;
    pub(crate) const SUBSCRIBER_PRIORITY: u64 = 0x20;
    pub(crate) const SUBSCRIPTION_FILTER: u64 = 0x21;
    pub(crate) const GROUP_ORDER: u64 = 0x22;
    pub(crate) const NEW_GROUP_REQUEST: u64 = 0x32;
    pub(crate) const TRACK_NAMESPACE_PREFIX: u64 = 0x34;
}

/// Setup options [moqt-18 §10.3.1].
pub(crate) mod option {
    pub(crate) const PATH: u64 = 0x01;
    pub(crate) const AUTHORIZATION_TOKEN: u64 = 0x03;
    pub(crate) const AUTHORITY: u64 = 0x05;
}

/// Properties [moqt-18 §12].
pub(crate) mod property {
    pub(crate) const IMMUTABLE: u64 = 0x0B;
    pub(crate) const DEFAULT_PUBLISHER_GROUP_ORDER: u64 = 0x22;
    pub(crate) const DYNAMIC_GROUPS: u64 = 0x30;
    pub(crate) const PRIOR_GROUP_ID_GAP: u64 = 0x3C;
    pub(crate) const PRIOR_OBJECT_ID_GAP: u64 = 0x3E;
    /// A type in the range of mandatory properties that no specification defines.
    pub(crate) const MANDATORY_UNKNOWN: u64 = 0x7ABC;
    /// A type with bytes in the range for applications, which relays forward.
    pub(crate) const OF_APPLICATION: u64 = 0x3801;
}

/// Stream and datagram types [moqt-18 §3.4, §11.5].
pub(crate) mod stream {
    pub(crate) const FETCH: u64 = 0x05;
    pub(crate) const PADDING: u64 = 0x132B_3E28;
    pub(crate) const PADDING_DATAGRAM: u64 = 0x132B_3E29;
}

/// Codes that close a session [moqt-18 §3.5].
pub(crate) mod close {
    pub(crate) const PROTOCOL_VIOLATION: u64 = 0x3;
    pub(crate) const INVALID_REQUEST_ID: u64 = 0x4;
    pub(crate) const DUPLICATE_TRACK_ALIAS: u64 = 0x5;
    pub(crate) const KEY_VALUE_FORMATTING_ERROR: u64 = 0x6;
    pub(crate) const INVALID_PATH: u64 = 0x8;
    pub(crate) const MALFORMED_PATH: u64 = 0x9;
    pub(crate) const AUTH_TOKEN_CACHE_OVERFLOW: u64 = 0x13;
    pub(crate) const DUPLICATE_AUTH_TOKEN_ALIAS: u64 = 0x14;
    pub(crate) const UNKNOWN_AUTH_TOKEN_ALIAS: u64 = 0x17;
    pub(crate) const INVALID_AUTHORITY: u64 = 0x19;
    pub(crate) const MALFORMED_AUTHORITY: u64 = 0x1A;
}

/// Codes of REQUEST_ERROR [moqt-18 §10.6.2].
pub(crate) mod refusal {
    pub(crate) const INTERNAL_ERROR: u64 = 0x0;
    pub(crate) const TIMEOUT: u64 = 0x2;
    pub(crate) const DOES_NOT_EXIST: u64 = 0x10;
    pub(crate) const INVALID_RANGE: u64 = 0x11;
    pub(crate) const DUPLICATE_SUBSCRIPTION: u64 = 0x19;
    pub(crate) const PREFIX_OVERLAP: u64 = 0x30;
    pub(crate) const INVALID_JOINING_REQUEST_ID: u64 = 0x32;
    pub(crate) const UNSUPPORTED_EXTENSION: u64 = 0x33;
    pub(crate) const REDIRECT: u64 = 0x34;
}

/// Codes of PUBLISH_DONE [moqt-18 §10.11].
pub(crate) mod done {
    pub(crate) const TRACK_ENDED: u64 = 0x2;
    pub(crate) const MALFORMED_TRACK: u64 = 0x12;
}

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

/// Returns the shortest encoding of an integer [moqt-18 §1.4.1].
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

/// Returns key-value pairs with delta types, in the order given [moqt-18 §1.4.3].
pub(crate) fn pairs(pairs: Pairs<'_>) -> Vec<u8> {
    let (mut out, mut last) = (Vec::new(), 0);
    for (kind, value) in pairs {
        out.extend(int(kind.wrapping_sub(last)));
        value.write(&mut out);
        last = *kind;
    }
    out
}

/// Returns parameters with their number before them [moqt-18 §10.2].
pub(crate) fn parameters(parameters: Pairs<'_>) -> Vec<u8> {
    [int(parameters.len() as u64), pairs(parameters)].concat()
}

/// A namespace with a track name. The fields may be what no namespace may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Track {
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

    /// Returns its payload. PUBLISH has Track Alias 1, and FETCH asks for the first group.
    pub(crate) fn payload(self, id: u64, track: &Track, parameters: Pairs<'_>) -> Vec<u8> {
        let fields = match self {
            Self::Subscribe | Self::TrackStatus => track.full(),
            Self::Publish => [track.full(), int(ALIAS)].concat(),
            Self::Fetch => [int(1), track.full(), vec![0, 0, 0, 0]].concat(),
            Self::PublishNamespace | Self::SubscribeNamespace | Self::SubscribeTracks => {
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

/// Returns a FETCH of a range, whose end is the last object plus one, or 0 for the whole group.
pub(crate) fn fetch(
    id: u64,
    track: &Track,
    start: (u64, u64),
    end: (u64, u64),
    parameters: Pairs<'_>,
) -> Vec<u8> {
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

/// Returns a FETCH that joins a subscription: relative (kind 2) or absolute (kind 3).
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

/// Returns a FETCH_OK that is not the end of the track.
pub(crate) fn fetch_ok(end: (u64, u64), properties: Pairs<'_>) -> Vec<u8> {
    let fields = [
        vec![0],
        int(end.0),
        int(end.1),
        parameters(&[]),
        pairs(properties),
    ];
    framed(message::FETCH_OK, &fields.concat())
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

/// Returns a GOAWAY without a timeout.
pub(crate) fn goaway(uri: &[u8], request: Option<u64>) -> Vec<u8> {
    let request = request.map(int).unwrap_or_default();
    framed(message::GOAWAY, &[prefixed(uri), int(0), request].concat())
}

/// Returns a subscription filter: its type, and the fields that follow.
pub(crate) fn filter(kind: u64, fields: &[u64]) -> (u64, Value) {
    let fields = fields.iter().flat_map(|field| int(*field));
    let bytes = int(kind).into_iter().chain(fields).collect();
    (parameter::SUBSCRIPTION_FILTER, Value::Bytes(bytes))
}

/// Bits of the type of a subgroup stream [moqt-18 §11.4.2].
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_draft() {
        for (bytes, value) in [
            (&[0x25][..], 37),
            (&[0xbb, 0xbd], 15_293),
            (&[0xed, 0x7f, 0x3e, 0x7d], 226_442_877),
            (&[0xfa, 0xa1, 0xa0, 0xe4, 0x03, 0xd8], 2_893_212_287_960),
            (
                &[0xfc, 0x89, 0x98, 0xab, 0xc6, 0x6b, 0xc0],
                151_288_809_941_952,
            ),
            (
                &[0xfe, 0xfa, 0x31, 0x8f, 0xa8, 0xe3, 0xca, 0x11],
                70_423_237_261_249_041,
            ),
            (&[0xff; 9], u64::MAX),
        ] {
            assert_eq!(int(value), bytes);
        }
        assert_eq!(int(0), [0]);
    }

    #[test]
    fn a_subscribe_byte_by_byte() {
        let track = Track {
            namespace: vec![b"a".to_vec()],
            name: b"x".to_vec(),
        };
        let forward = (parameter::FORWARD, Value::Byte(0));
        let priority = (parameter::SUBSCRIBER_PRIORITY, Value::Byte(7));
        assert_eq!(
            Request::Subscribe.encode(2, &track, &[forward, priority]),
            [0x03, 0, 11, 2, 1, 1, b'a', 1, b'x', 2, 0x10, 0, 0x10, 7]
        );
    }

    #[test]
    fn a_subgroup_byte_by_byte() {
        let header = Subgroup {
            id: 3,
            priority: Some(9),
            ..Subgroup::of(5)
        };
        assert_eq!(
            group(header, &[b"hi", b""]),
            [0x54, 1, 5, 3, 9, 0, 2, b'h', b'i', 0, 0, 0]
        );
    }
}
