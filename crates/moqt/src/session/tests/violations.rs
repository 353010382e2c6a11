//! What a peer must not do, and the code that closes the session for it.

mod objects;
mod requests;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_transport::{Direction, StreamId, Transport};

use super::pair::{
    Pair, config, done, draft, fetch_ok, goaway, header, mandatory, namespace, object, ok, publish,
    request_error, subgroup, subscribe, subscribe_ok, track, update,
};
use crate::data::FetchHeader;
use crate::error::{RequestErrorCode, ResetCode, SessionError};
use crate::limits::Limits;
use crate::location::Location;
use crate::message::{
    FetchKind, GoAway, Message, Redirect, RequestError, RequestOk, RequestUpdate, Setup, Subscribe,
};
use crate::name::{FullTrackName, TrackName};
use crate::parameter::Parameters;
use crate::property::Properties;
use crate::session::{Session, Side};
use crate::token::Token;
use crate::varint;

const SERVER: Side = Side::Server;
const CLIENT: Side = Side::Client;
/// The server's first request stream.
const OWN: StreamId = StreamId(1);

/// The expected end of a session after a violation.
struct Expected {
    /// The side that detects the violation.
    side: Side,
    /// The code that the session is closed with.
    code: SessionError,
}

/// A name, and what the peer does; the second argument is the peer's control stream.
type Breach = (&'static str, fn(&mut Pair, StreamId));

fn violation(side: Side, code: SessionError) -> Expected {
    Expected { side, code }
}

impl Expected {
    /// Runs each breach on a session that has its peer's SETUP.
    fn check(&self, breaches: &[Breach]) {
        for (name, breach) in breaches {
            println!("{name}");
            let mut config = config(self.side);
            config.setup.max_auth_token_cache_size = Some(40);
            let (mut pair, control) = Pair::alone_ready(config);
            breach(&mut pair, control);
            pair.run();
            pair.assert_violated(self.side, self.code);
            let requests = pair.session(self.side).requests_len();
            assert_eq!(requests, 0, "{name}: everything is freed");
        }
    }
}

fn uni(pair: &mut Pair, of: Side, data: &[u8]) -> StreamId {
    let stream = pair.peer_opens(of, Direction::Uni, &[]);
    pair.peer_writes(of, stream, data);
    stream
}

fn own_subscribe(pair: &mut Pair) {
    own(pair, |session, view| {
        session
            .subscribe(view, track("t"), Parameters::default())
            .unwrap();
    });
}

fn own(pair: &mut Pair, call: impl FnOnce(&mut Session, &mut dyn Transport)) {
    pair.server(|session, view| call(session, view));
    pair.run();
}

fn own_fetch(pair: &mut Pair) {
    let kind = FetchKind::Standalone {
        track: track("t"),
        start: Location::new(3, 4),
        end: Location::new(5, 0),
    };
    own(pair, |session, view| {
        session.fetch(view, kind, Parameters::default()).unwrap();
    });
}

fn register(alias: u64, len: usize) -> Token {
    Token::Register {
        alias,
        token_type: 0,
        value: Bytes::from(vec![7; len]),
    }
}

/// A closed control stream closes the session only after the grace period, so that the peer's last messages are read.
fn after_the_grace(pair: &mut Pair) {
    pair.run();
    pair.wait_until_just_before(Limits::default().control_closed_grace);
    assert_eq!(pair.closed(SERVER), None);
    pair.wait(Duration::from_millis(1));
    assert_eq!(pair.session(SERVER).counters().control_closed, 1);
}

#[test]
fn control_streams() {
    violation(SERVER, SessionError::PROTOCOL_VIOLATION).check(&[
        ("a second control stream", |pair, _| {
            pair.peer_opens(SERVER, Direction::Uni, &[Message::Setup(Setup::default())]);
        }),
        ("a second SETUP", |pair, control| {
            pair.peer_sends(SERVER, control, &[Message::Setup(Setup::default())]);
        }),
        ("a request on the control stream", |pair, control| {
            pair.peer_sends(SERVER, control, &[subscribe(0, "t")]);
        }),
        ("an unknown message", |pair, control| {
            pair.peer_writes(SERVER, control, &[0x3F, 0, 0]);
        }),
        ("the control stream is finished", |pair, control| {
            pair.peer_finishes(SERVER, control);
            after_the_grace(pair);
        }),
        ("the control stream is reset", |pair, control| {
            pair.peer_resets(SERVER, control, ResetCode::CANCELLED);
            after_the_grace(pair);
        }),
        ("the control stream is stopped", |pair, _| {
            pair.peer_stops(SERVER, StreamId(3), ResetCode::CANCELLED);
            after_the_grace(pair);
        }),
        ("GOAWAY with a URI from a client", |pair, control| {
            let new_session_uri = String::from("moqt://other.example/");
            let goaway = GoAway {
                new_session_uri,
                ..goaway(Some(1))
            };
            pair.peer_sends(SERVER, control, &[Message::GoAway(goaway)]);
        }),
    ]);
    violation(CLIENT, SessionError::PROTOCOL_VIOLATION).check(&[
        ("GOAWAY twice", |pair, control| {
            let goaway = Message::GoAway(goaway(Some(0)));
            pair.peer_sends(CLIENT, control, &[goaway.clone(), goaway]);
        }),
        ("GOAWAY without a Request ID", |pair, control| {
            pair.peer_sends(CLIENT, control, &[Message::GoAway(goaway(None))]);
        }),
    ]);
    violation(CLIENT, SessionError::INVALID_REQUEST_ID).check(&[(
        "GOAWAY with a Request ID of its sender",
        |pair, control| {
            pair.peer_sends(CLIENT, control, &[Message::GoAway(goaway(Some(1)))]);
        },
    )]);
}

#[test]
fn setup() {
    let setups: [(&str, Side, Setup, SessionError); 3] = [
        (
            "PATH from a server",
            CLIENT,
            Setup {
                path: Some(String::from("/")),
                ..Setup::default()
            },
            SessionError::INVALID_PATH,
        ),
        (
            "AUTHORITY from a server",
            CLIENT,
            Setup {
                authority: Some(String::from("a")),
                ..Setup::default()
            },
            SessionError::INVALID_AUTHORITY,
        ),
        (
            "a token twice",
            SERVER,
            Setup {
                authorization_tokens: vec![register(1, 3), register(2, 3)],
                ..Setup::default()
            },
            SessionError::MALFORMED_AUTH_TOKEN,
        ),
    ];
    for (name, side, setup, code) in setups {
        println!("{name}");
        let mut pair = Pair::alone(config(side));
        pair.peer_opens(side, Direction::Uni, &[Message::Setup(setup)]);
        pair.assert_violated(side, code);
    }
}

#[test]
fn setup_as_bytes() {
    let rows: [(&str, &[u8], SessionError); 4] = [
        (
            "a malformed PATH",
            &[0xAF, 0x00, 0, 4, 1, 2, b'x', b' '],
            SessionError::MALFORMED_PATH,
        ),
        (
            "a malformed AUTHORITY",
            &[0xAF, 0x00, 0, 3, 5, 1, b' '],
            SessionError::MALFORMED_AUTHORITY,
        ),
        (
            "a token that is none",
            &[0xAF, 0x00, 0, 3, 3, 1, 9],
            SessionError::KEY_VALUE_FORMATTING_ERROR,
        ),
        (
            "a token alias before there can be any",
            &[0xAF, 0x00, 0, 4, 3, 2, 2, 1],
            SessionError::PROTOCOL_VIOLATION,
        ),
    ];
    for (name, bytes, code) in rows {
        println!("{name}");
        let mut pair = Pair::alone(config(SERVER));
        uni(&mut pair, SERVER, bytes);
        pair.assert_violated(SERVER, code);
    }
}
