//! Decoding of an input into numbers, names and messages.

use bytes::{Bytes, BytesMut};

use super::*;

/// The bytes of the input, followed by zeros.
pub(in super::super) struct Input<'a>(pub(in super::super) &'a [u8]);

impl Input<'_> {
    pub(in super::super) fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    pub(super) fn number(&mut self, below: u8) -> u64 {
        u64::from(self.byte() % below)
    }

    pub(in super::super) fn bytes(&mut self) -> Vec<u8> {
        let len = usize::from(self.byte() % 64).min(self.0.len());
        self.0.split_off(..len).unwrap_or_default().to_vec()
    }
}

/// The fields of requests; each kind uses those that it needs.
struct RequestParts {
    request_id: u64,
    track: FullTrackName,
    track_alias: u64,
    name: Namespace,
    parameters: Parameters,
    properties: Properties,
}

impl RequestParts {
    fn into_message(self, kind: RequestKind) -> Message {
        let Self {
            request_id,
            track,
            track_alias,
            name,
            parameters,
            properties,
        } = self;
        match kind {
            RequestKind::Subscribe => Message::Subscribe(Subscribe {
                request_id,
                track,
                parameters,
            }),
            RequestKind::Publish => Message::Publish(Publish {
                request_id,
                track,
                track_alias,
                parameters,
                properties,
            }),
            RequestKind::Fetch => Message::Fetch(Fetch {
                request_id,
                kind: fetch_kind(track),
                parameters,
            }),
            RequestKind::TrackStatus => Message::TrackStatus(TrackStatus {
                request_id,
                track,
                parameters,
            }),
            RequestKind::PublishNamespace => Message::PublishNamespace(PublishNamespace {
                request_id,
                namespace: name,
                parameters,
            }),
            RequestKind::SubscribeNamespace => Message::SubscribeNamespace(SubscribeNamespace {
                request_id,
                prefix: name,
                parameters,
            }),
            RequestKind::SubscribeTracks => Message::SubscribeTracks(SubscribeTracks {
                request_id,
                prefix: name,
                parameters,
            }),
        }
    }
}

/// Returns the first message of a request of this kind.
pub(super) fn opening(input: &mut Input<'_>, kind: RequestKind, request_id: u64) -> Message {
    let mut parameters = Parameters::default();
    parameters.authorization_tokens.extend(token(input));
    let (track, name) = (track(input), namespace(input));
    let properties = match kind {
        RequestKind::Publish => properties(input),
        RequestKind::Subscribe
        | RequestKind::Fetch
        | RequestKind::TrackStatus
        | RequestKind::PublishNamespace
        | RequestKind::SubscribeNamespace
        | RequestKind::SubscribeTracks => Properties::EMPTY,
    };
    let parts = RequestParts {
        request_id,
        track_alias: alias(&track),
        track,
        name,
        parameters,
        properties,
    };
    parts.into_message(kind)
}

/// Returns any message, with any Request ID and alias.
pub(super) fn message(input: &mut Input<'_>) -> Message {
    let request_id = input.number(24);
    let mut parameters = Parameters::default();
    parameters.authorization_tokens.extend(token(input));
    let (properties, track, name) = (properties(input), track(input), namespace(input));
    let parts = RequestParts {
        request_id,
        track,
        track_alias: input.number(4),
        name,
        parameters,
        properties,
    };
    match input.byte() % 17 {
        0 => parts.into_message(RequestKind::Subscribe),
        1 => Message::SubscribeOk(SubscribeOk {
            track_alias: parts.track_alias,
            parameters: Parameters::default(),
            properties: parts.properties,
        }),
        2 => parts.into_message(RequestKind::Publish),
        3 => Message::PublishDone(done()),
        4 => parts.into_message(RequestKind::Fetch),
        5 => Message::FetchOk(FetchOk {
            properties: parts.properties,
            ..fetch_ok()
        }),
        6 => parts.into_message(RequestKind::TrackStatus),
        7 => parts.into_message(RequestKind::PublishNamespace),
        8 => Message::Namespace(parts.name),
        9 => Message::NamespaceDone(parts.name),
        10 => parts.into_message(RequestKind::SubscribeNamespace),
        11 => parts.into_message(RequestKind::SubscribeTracks),
        12 => Message::PublishBlocked(FullTrackName {
            namespace: parts.name,
            name: parts.track.name,
        }),
        13 => Message::RequestUpdate(RequestUpdate {
            request_id,
            parameters: parts.parameters,
        }),
        14 => Message::RequestOk(RequestOk {
            properties: parts.properties,
            ..RequestOk::default()
        }),
        15 => Message::RequestError(error()),
        _ => Message::GoAway(GoAway {
            request_id: Some(request_id).filter(|id| *id < 16),
            ..GoAway::default()
        }),
    }
}

pub(super) fn token(input: &mut Input<'_>) -> Option<Token> {
    let (alias, token_type) = (input.number(3), 0);
    let value = Bytes::from_static(b"token value");
    match input.byte() % 16 {
        0 => Some(Token::Delete { alias }),
        1 | 2 => Some(Token::Register {
            alias,
            token_type,
            value,
        }),
        3 => Some(Token::UseAlias { alias }),
        4 => Some(Token::UseValue { token_type, value }),
        _ => None,
    }
}

pub(super) fn properties(input: &mut Input<'_>) -> Properties {
    match input.byte() % 8 {
        0 => Properties::builder().int(0x4000, 1).build(),
        1 => Properties::builder().int(0x30, 1).build(),
        _ => Properties::EMPTY,
    }
}

pub(super) fn datagram(input: &mut Input<'_>) -> Bytes {
    let mut out = BytesMut::new();
    let datagram = ObjectDatagram {
        track_alias: alias(&track(input)),
        group: 0,
        object: input.number(4),
        priority: None,
        end_of_group: false,
        properties: Properties::EMPTY,
        status: ObjectStatus::Normal,
        payload: input.bytes().into(),
    };
    datagram.encode(Draft::KEPT, &mut out);
    out.freeze()
}

pub(super) fn namespace(input: &mut Input<'_>) -> Namespace {
    let fields: &[&str] = match input.byte() % 8 {
        0 => &["."],
        1 => &[".session", "x"],
        2 => &["a", "b"],
        3 => &[],
        _ => &["a"],
    };
    Namespace::new(fields).expect("it is short")
}

pub(super) fn track(input: &mut Input<'_>) -> FullTrackName {
    let name = [b't' + input.byte() % 3];
    let name = TrackName::new(name).expect("it is short");
    FullTrackName::new(namespace(input), name).expect("it is short")
}

/// Returns an alias, usually the track's own.
pub(super) fn alias(track: &FullTrackName) -> u64 {
    let fields = track.namespace.fields().map(<[u8]>::len).sum::<usize>() as u64;
    u64::from(track.name.as_bytes()[0]) * 16 + fields
}

pub(super) fn fetch_kind(track: FullTrackName) -> FetchKind {
    FetchKind::Standalone {
        track,
        start: Location::new(1, 0),
        end: Location::new(9, 9),
    }
}

pub(super) fn fetch_ok() -> FetchOk {
    let (parameters, properties) = (Parameters::default(), Properties::EMPTY);
    FetchOk {
        end_of_track: false,
        end: Location::new(9, 9),
        parameters,
        properties,
    }
}

pub(super) fn subscribe_ok(track_alias: u64) -> SubscribeOk {
    let (parameters, properties) = (Parameters::default(), Properties::EMPTY);
    SubscribeOk {
        track_alias,
        parameters,
        properties,
    }
}

pub(super) fn error() -> RequestError {
    let code = RequestErrorCode::DOES_NOT_EXIST;
    RequestError {
        code,
        retry_after: None,
        reason: String::new(),
        redirect: None,
    }
}

pub(super) fn done() -> PublishDone {
    let code = PublishDoneCode::TRACK_ENDED;
    PublishDone {
        code,
        stream_count: None,
        reason: String::new(),
    }
}
