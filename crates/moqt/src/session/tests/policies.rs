//! What the session decides on its own: tokens, reserved namespaces, mandatory properties.

use weir_transport::{Direction, Read};

use super::pair::{Pair, config, fetch_ok, mandatory, namespace, subscribe_ok, track};
use crate::error::{RequestErrorCode, ResetCode};
use crate::location::Location;
use crate::message::{FetchKind, FetchOk, Message, Publish, PublishNamespace, Subscribe};
use crate::parameter::Parameters;
use crate::property::Properties;
use crate::session::{Event, Refused, Request, Side};
use crate::token::Token;

#[test]
fn tokens_are_resolved_across_requests() {
    let mut server = config(Side::Server);
    server.setup.max_auth_token_cache_size = Some(64);
    let mut pair = Pair::ready_with(1, config(Side::Client), server);
    let value = bytes::Bytes::from_static(b"secret");
    let register = Token::Register {
        alias: 1,
        token_type: 5,
        value: value.clone(),
    };
    let used = Token::UseValue {
        token_type: 5,
        value,
    };
    for token in [register, Token::UseAlias { alias: 1 }, used.clone()] {
        let parameters = Parameters {
            authorization_tokens: vec![token],
            ..Parameters::default()
        };
        let id = pair
            .client(|session, view| session.subscribe(view, track("t"), parameters))
            .unwrap();
        let events = pair.run_events(Side::Server);
        let [
            Event::Request {
                request: Request::Subscribe(subscribe),
                ..
            },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!(
            subscribe.parameters.authorization_tokens,
            std::slice::from_ref(&used)
        );
        pair.client(|session, view| session.cancel(view, id, ResetCode::CANCELLED));
        assert_eq!(pair.run_events(Side::Server).len(), 1);
    }
}

#[test]
fn a_token_twice_in_a_request_is_rejected_and_registered() {
    let mut config = config(Side::Server);
    config.setup.max_auth_token_cache_size = Some(64);
    let (mut pair, _) = Pair::alone_ready(config);
    let value = bytes::Bytes::from_static(b"secret");
    let register = Token::Register {
        alias: 1,
        token_type: 5,
        value,
    };
    let subscribe = |request_id, tokens| {
        let parameters = Parameters {
            authorization_tokens: tokens,
            ..Parameters::default()
        };
        Message::Subscribe(Subscribe {
            request_id,
            track: track("t"),
            parameters,
        })
    };
    let twice = vec![register, Token::UseAlias { alias: 1 }];
    let stream = pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(0, twice)]);
    let error = pair.peer_reads_error(Side::Server, stream);
    assert_eq!(error, RequestErrorCode::MALFORMED_AUTH_TOKEN);
    let once = vec![Token::UseAlias { alias: 1 }];
    pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(2, once)]);
    assert_eq!(pair.events(Side::Server).len(), 1);
    assert_eq!(pair.session(Side::Server).counters().requests_rejected, 1);
}

#[test]
fn reserved_namespaces_do_not_exist() {
    let (mut pair, _) = Pair::alone_ready(config(Side::Server));
    let requests = [".session", ".session/x", "."].into_iter().zip([0, 2, 4]);
    for (name, request_id) in requests {
        let parameters = Parameters::default();
        let request = PublishNamespace {
            request_id,
            namespace: namespace(name),
            parameters,
        };
        let request = Message::PublishNamespace(request);
        let stream = pair.peer_opens(Side::Server, Direction::Bi, &[request]);
        let error = pair.peer_reads_error(Side::Server, stream);
        assert_eq!(error, RequestErrorCode::DOES_NOT_EXIST, "{name}");
    }
    assert_eq!(pair.events(Side::Server), []);
    let parameters = Parameters::default();
    let other = PublishNamespace {
        request_id: 6,
        namespace: namespace(".x"),
        parameters,
    };
    pair.peer_opens(
        Side::Server,
        Direction::Bi,
        &[Message::PublishNamespace(other)],
    );
    assert_eq!(
        pair.events(Side::Server).len(),
        1,
        "other reserved ones are the role's matter"
    );
}

#[test]
fn a_mandatory_property_nobody_understands_ends_the_request() {
    let (mut pair, _) = Pair::alone_ready(config(Side::Server));
    let publish = Message::Publish(Publish {
        request_id: 0,
        track: track("t"),
        track_alias: 7,
        parameters: Parameters::default(),
        properties: mandatory(),
    });
    let stream = pair.peer_opens(Side::Server, Direction::Bi, &[publish]);
    let error = pair.peer_reads_error(Side::Server, stream);
    assert_eq!(error, RequestErrorCode::UNSUPPORTED_EXTENSION);
    assert_eq!(pair.events(Side::Server), []);

    let kind = FetchKind::RelativeJoining {
        request_id: 0,
        groups: 1,
    };
    let subscribed = pair
        .server(|session, view| session.subscribe(view, track("t"), Parameters::default()))
        .unwrap();
    let fetched = pair
        .server(|session, view| session.fetch(view, kind, Parameters::default()))
        .unwrap();
    pair.run();
    let mut ok = subscribe_ok(8);
    ok.properties = mandatory();
    let fetch_ok = FetchOk {
        properties: mandatory(),
        ..fetch_ok(Location::new(2, 5))
    };
    let answers = [Message::SubscribeOk(ok), Message::FetchOk(fetch_ok)];
    for (answer, id) in answers.into_iter().zip([subscribed, fetched]) {
        let stream = weir_transport::StreamId(id.0 * 2 - 1);
        pair.peer_sends(Side::Server, stream, &[answer]);
        let events = pair.events(Side::Server);
        assert!(
            matches!(&events[..], [Event::Rejected { id: found, error }]
                if *found == id && error.code == RequestErrorCode::UNSUPPORTED_EXTENSION),
            "{events:?}"
        );
        let (_, end) = pair.peer_reads(Side::Server, stream);
        assert_eq!(end, Read::Reset(ResetCode::CANCELLED.0));
    }
    assert_eq!(pair.closed(Side::Server), None);
}

#[test]
fn an_answer_too_long_for_a_message_is_an_error() {
    let mut pair = Pair::ready(1);
    let id = pair.client_subscribes();
    pair.run_events(Side::Server);
    let half = vec![0; 40_000];
    let properties = Properties::builder()
        .bytes(0x39, half.clone())
        .bytes(0x3B, half)
        .build();
    pair.server(|session, view| {
        session.subscribe_ok(
            view,
            id,
            crate::message::SubscribeOk {
                track_alias: 1,
                parameters: Parameters::default(),
                properties: properties.clone(),
            },
        );
    });
    let events = pair.run_events(Side::Client);
    assert!(
        matches!(&events[..], [Event::Rejected { error, .. }]
            if error.code == RequestErrorCode::INTERNAL_ERROR),
        "{events:?}"
    );
    let none = Parameters::default();
    let refused =
        pair.client(|session, view| session.publish(view, track("t"), 1, none, properties));
    assert_eq!(refused, Err(Refused::TooLong));
}
