//! The exchange of SETUP, what comes before it, and GOAWAY.

use std::time::Duration;

use bytes::Bytes;
use weir_transport::{Direction, Read, StreamId};

use super::pair::{
    Pair, config, config_with, datagram, each_seed, goaway, ok, subgroup, subscribe, track,
};
use crate::error::{RequestErrorCode, SessionError};
use crate::message::{GoAway, Message, Setup};
use crate::parameter::Parameters;
use crate::session::{CONTROL_PRIORITY, Event, REQUEST_PRIORITY, Refused, Request, Side};
use crate::token::Token;

#[test]
fn both_sides_become_ready_and_see_what_the_other_said() {
    each_seed(|seed| {
        let mut pair = Pair::new(seed, config(Side::Client), config(Side::Server));
        assert!(!pair.session(Side::Client).is_ready());
        pair.start();
        pair.run();
        let [Event::Ready { peer }] = &pair.events(Side::Server)[..] else {
            panic!("the server is not ready");
        };
        assert_eq!(peer.path.as_deref(), Some("/test"));
        assert_eq!(peer.authority.as_deref(), Some("example.com:443"));
        assert_eq!(pair.events(Side::Client).len(), 1);
        for side in [Side::Client, Side::Server] {
            assert!(pair.session(side).is_ready());
            assert!(pair.session(side).peer_setup().is_some());
            assert_eq!(pair.session(side).poll_timeout(), None);
        }
    });
}

#[test]
fn control_and_request_streams_go_before_data() {
    let mut pair = Pair::ready(1);
    pair.client_subscribes();
    pair.run();
    let priorities: Vec<i32> = pair.link.priorities.values().copied().collect();
    assert_eq!(
        priorities,
        [REQUEST_PRIORITY, CONTROL_PRIORITY, CONTROL_PRIORITY]
    );
}

#[test]
fn a_client_may_ask_before_the_server_has_said_a_word() {
    each_seed(|seed| {
        let mut pair = Pair::new(seed, config(Side::Client), config(Side::Server));
        pair.start();
        let id = pair.client_subscribes();
        let events = pair.run_events(Side::Server);
        assert!(
            matches!(
                &events[..],
                [Event::Ready { .. }, Event::Request { id: found, request: Request::Subscribe(_) }]
                    if *found == id
            ),
            "{events:?}"
        );
    });
}

#[test]
fn what_comes_before_setup_waits_unread() {
    let mut pair = Pair::alone(config(Side::Server));
    let request = pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(0, "t")]);
    let data = pair.peer(Side::Server, |peer| {
        use weir_transport::Transport;
        peer.open(Direction::Uni).unwrap()
    });
    pair.peer_writes(Side::Server, data, &subgroup(7, 0));
    assert_eq!(pair.datagram(Side::Server, &datagram(7, 0)), None);
    assert_eq!(pair.events(Side::Server), []);
    pair.peer_opens(
        Side::Server,
        Direction::Uni,
        &[Message::Setup(Setup::default())],
    );
    let events = pair.events(Side::Server);
    assert!(
        matches!(&events[..], [Event::Ready { .. }, Event::Request { .. }]),
        "the data has no alias yet: {events:?}"
    );
    assert_eq!(
        pair.peer_reads(Side::Server, request),
        (vec![], Read::Blocked)
    );
}

#[test]
fn setup_may_come_in_single_bytes() {
    let mut pair = Pair::alone(config(Side::Server));
    let mut out = bytes::BytesMut::new();
    Message::Setup(Setup::default())
        .encode(super::pair::draft(), &mut out)
        .unwrap();
    let control = pair.peer_opens(Side::Server, Direction::Uni, &[]);
    for byte in out {
        pair.peer_writes(Side::Server, control, &[byte]);
    }
    assert!(pair.session(Side::Server).is_ready());
}

#[test]
fn setup_has_ten_seconds() {
    let mut pair = Pair::alone(config(Side::Server));
    let limit = Duration::from_secs(10);
    assert_eq!(
        pair.session(Side::Server).poll_timeout(),
        Some(pair.now + limit)
    );
    pair.wait_until_just_before(limit);
    assert_eq!(pair.closed(Side::Server), None);
    pair.wait(Duration::from_nanos(1));
    pair.assert_violated(Side::Server, SessionError::CONTROL_MESSAGE_TIMEOUT);
    assert_eq!(pair.session(Side::Server).poll_timeout(), None);
}

#[test]
fn the_control_stream_waits_for_the_stream_limit() {
    let mut pair = Pair::new(3, config(Side::Client), config(Side::Server));
    pair.link.limit_streams(Side::Client, Direction::Uni, 0);
    pair.start();
    let id = pair.client_subscribes();
    pair.run();
    assert!(!pair.session(Side::Server).is_ready());
    pair.link.limit_streams(Side::Client, Direction::Uni, 1);
    let events = pair.run_events(Side::Server);
    assert!(
        matches!(events[..], [Event::Ready { .. }, Event::Request { id: found, .. }] if found == id)
    );
}

#[test]
fn tokens_in_setup_are_resolved() {
    let mut client = config(Side::Client);
    let value = Bytes::from_static(b"secret");
    let token = Token::Register {
        alias: 1,
        token_type: 9,
        value: value.clone(),
    };
    client.setup.authorization_tokens = vec![token];
    let mut pair = Pair::new(1, client, config(Side::Server));
    pair.start();
    pair.run();
    let peer = pair.session(Side::Server).peer_setup().unwrap();
    assert_eq!(
        peer.authorization_tokens,
        [Token::UseValue {
            token_type: 9,
            value
        }]
    );
}

#[test]
fn after_a_received_goaway_requests_are_refused_here() {
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        let sent = GoAway {
            new_session_uri: String::from("moqt://other.example/"),
            timeout: Some(Duration::from_secs(3)),
            request_id: None,
        };
        let expected = GoAway {
            request_id: super::pair::draft().goaway_has_request_id().then_some(0),
            ..sent.clone()
        };
        pair.server(|session, view| session.goaway(view, sent));
        assert_eq!(pair.run_events(Side::Client), [Event::GoAway(expected)]);
        let refused =
            pair.client(|session, view| session.subscribe(view, track("t"), Parameters::default()));
        assert_eq!(refused, Err(Refused::GoingAway));
        pair.server(|session, view| session.subscribe(view, track("t"), Parameters::default()))
            .expect("the sender of GOAWAY may still ask");
    });
}

#[test]
fn after_a_sent_goaway_newer_requests_are_rejected() {
    let (mut pair, control) = Pair::alone_ready(config(Side::Server));
    pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(4, "old")]);
    pair.server(|session, view| session.goaway(view, goaway(None)));
    let (messages, _) = pair.peer_reads(Side::Server, StreamId(3));
    assert_eq!(messages[1], Message::GoAway(goaway(Some(6))));
    let newer = pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(6, "new")]);
    let error = pair.peer_reads_error(Side::Server, newer);
    assert_eq!(error, RequestErrorCode::GOING_AWAY);
    let events = pair.events(Side::Server);
    assert_eq!(events.len(), 1, "only the old one: {events:?}");
    pair.peer_sends(Side::Server, control, &[Message::GoAway(goaway(Some(1)))]);
    assert_eq!(pair.events(Side::Server), [Event::GoAway(goaway(Some(1)))]);
}

#[test]
fn a_goaway_before_the_peers_setup_is_not_sent() {
    let mut pair = Pair::alone(config(Side::Server));
    pair.server(|session, view| session.goaway(view, goaway(None)));
    let (messages, _) = pair.peer_reads(Side::Server, StreamId(3));
    assert!(matches!(messages[..], [Message::Setup(_)]), "{messages:?}");
    let setup = Message::Setup(Setup::default());
    pair.peer_opens(Side::Server, Direction::Uni, &[setup]);
    pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(0, "t")]);
    let events = pair.events(Side::Server);
    assert!(
        matches!(events[..], [Event::Ready { .. }, Event::Request { .. }]),
        "{events:?}"
    );
}

#[test]
fn one_request_may_be_asked_to_move() {
    each_seed(|seed| {
        let mut pair = Pair::ready(seed);
        let id = pair
            .client(|session, view| {
                session.subscribe_namespace(
                    view,
                    super::pair::namespace("a"),
                    Parameters::default(),
                )
            })
            .unwrap();
        pair.run_events(Side::Server);
        pair.server(|session, view| {
            session.request_ok(view, id, ok());
            session.request_goaway(view, id, goaway(None));
        });
        let events = pair.run_events(Side::Client);
        assert_eq!(
            events[1..],
            [Event::RequestGoAway {
                id,
                goaway: goaway(None)
            }]
        );
    });
}

#[test]
fn a_closed_session_is_silent() {
    let mut pair = Pair::ready(1);
    pair.client(|session, view| session.close(view, SessionError::NO_ERROR, "bye"));
    assert_eq!(pair.closed(Side::Client), Some(SessionError::NO_ERROR));
    assert_eq!(pair.datagram(Side::Client, &datagram(1, 0)), None);
    let refused =
        pair.client(|session, view| session.subscribe(view, track("t"), Parameters::default()));
    assert_eq!(refused, Err(Refused::Closed));
    pair.server(|session, view| session.subscribe(view, track("t"), Parameters::default()))
        .unwrap();
    assert_eq!(pair.run_events(Side::Client), []);
    assert_eq!(pair.session(Side::Client).poll_timeout(), None);
    pair.client(|session, view| session.close(view, SessionError::NO_ERROR, "again"));
}

#[test]
#[should_panic(expected = "only a client names a path")]
fn a_server_names_no_path() {
    let mut config = config(Side::Client);
    config.side = Side::Server;
    crate::session::Session::new(config);
}

#[test]
fn the_setup_timeout_is_a_limit() {
    let config = config_with(Side::Client, |limits| {
        limits.setup_timeout = Duration::from_secs(1);
    });
    let mut pair = Pair::alone(config);
    pair.wait(Duration::from_millis(999));
    assert_eq!(pair.session(Side::Client).counters().setup_overdue, 0);
    pair.wait(Duration::from_millis(1));
    pair.assert_violated(Side::Client, SessionError::CONTROL_MESSAGE_TIMEOUT);
    assert_eq!(pair.session(Side::Client).counters().setup_overdue, 1);
}
