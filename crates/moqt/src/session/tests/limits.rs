//! Every limit, at the limit and one past it.

use bytes::BytesMut;
use weir_transport::{Direction, Read, Transport};

use super::pair::{
    Pair, config_with, datagram, done, draft, each_seed, namespace, ok, publish, set_draft,
    subgroup, subscribe, subscribe_ok, track, update,
};
use crate::data::ObjectHeader;
use crate::draft::Draft;
use crate::error::{RequestErrorCode, ResetCode, SessionError};
use crate::message::Message;
use crate::parameter::{Parameters, RangeCondition, RangeFilter, RangeFilterKind};
use crate::property::Properties;
use crate::session::{CloseReason, Event, Refused, RequestId, Side};

#[test]
fn requests_of_the_peer() {
    let (mut pair, _) =
        Pair::alone_ready(config_with(Side::Server, |limits| limits.requests_max = 2));
    let streams =
        [0, 2, 4].map(|id| pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(id, "t")]));
    assert_eq!(pair.events(Side::Server).len(), 2);
    let (messages, end) = pair.peer_reads(Side::Server, streams[2]);
    let [Message::RequestError(error)] = &messages[..] else {
        panic!("{messages:?}")
    };
    assert_eq!(
        (error.code, end),
        (RequestErrorCode::EXCESSIVE_LOAD, Read::Fin)
    );
    assert!(error.retry_after.is_some());
    assert_eq!(pair.session(Side::Server).counters().requests_over_limit, 1);

    pair.peer_resets(Side::Server, streams[0], ResetCode::CANCELLED);
    pair.events(Side::Server);
    pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(6, "t")]);
    assert_eq!(pair.events(Side::Server).len(), 1, "there is room again");
}

#[test]
fn own_requests() {
    let config = config_with(Side::Server, |limits| limits.requests_local_max = 2);
    let (mut pair, _) = Pair::alone_ready(config);
    let ask = |pair: &mut Pair| {
        pair.server(|session, view| session.subscribe(view, track("t"), Parameters::default()))
    };
    let first = ask(&mut pair).unwrap();
    ask(&mut pair).unwrap();
    assert_eq!(ask(&mut pair), Err(Refused::Limit));
    assert_eq!(
        pair.session(Side::Server)
            .counters()
            .requests_local_over_limit,
        1
    );
    pair.server(|session, view| session.cancel(view, first, ResetCode::CANCELLED));
    assert_eq!(ask(&mut pair), Ok(RequestId(5)), "a refusal uses up no ID");
}

#[test]
fn queued_requests() {
    let config = config_with(Side::Server, |limits| limits.requests_queued_max = 1);
    let (mut pair, _) = Pair::alone_ready(config);
    pair.link.limit_streams(Side::Server, Direction::Bi, 1);
    let ask = |pair: &mut Pair| {
        pair.server(|session, view| session.subscribe(view, track("t"), Parameters::default()))
    };
    ask(&mut pair).unwrap();
    ask(&mut pair).unwrap();
    assert_eq!(ask(&mut pair), Err(Refused::Limit));
    let counters = pair.session(Side::Server).counters();
    assert_eq!(counters.requests_queued_over_limit, 1);
    pair.link.limit_streams(Side::Server, Direction::Bi, 2);
    pair.run();
    assert!(ask(&mut pair).is_ok());
}

#[test]
fn draining_requests() {
    let config = config_with(Side::Server, |limits| limits.requests_draining_max = 1);
    let (mut pair, _) = Pair::alone_ready(config);
    let streams = [0, 2].map(|id| {
        let stream = pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(id, "t")]);
        let error = super::pair::request_error(RequestErrorCode::DOES_NOT_EXIST);
        pair.server(|session, view| session.request_error(view, RequestId(id), error));
        pair.run();
        stream
    });
    assert_eq!(pair.session(Side::Server).requests_len(), 1);
    assert_eq!(
        pair.session(Side::Server).counters().requests_not_drained,
        1
    );
    for (stream, is_stopped) in streams.into_iter().zip([true, false]) {
        let mut byte = bytes::Bytes::from_static(&[2]);
        let written = pair.peer(Side::Server, |peer| peer.write(stream, &mut byte));
        assert_eq!(written.is_err(), is_stopped);
        let error = pair.peer_reads_error(Side::Server, stream);
        assert_eq!(
            error,
            RequestErrorCode::DOES_NOT_EXIST,
            "the answer is not lost"
        );
    }
}

#[test]
fn gaps_in_request_ids() {
    let config = config_with(Side::Server, |limits| limits.request_id_gaps_max = 1);
    let (mut pair, _) = Pair::alone_ready(config);
    for id in [2, 6] {
        pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(id, "t")]);
    }
    assert_eq!(
        pair.session(Side::Server).counters().request_id_gaps_closed,
        1
    );
    pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(4, "t")]);
    assert_eq!(pair.closed(Side::Server), None);
    pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(0, "t")]);
    pair.assert_violated(Side::Server, SessionError::INVALID_REQUEST_ID);
}

#[test]
fn updates_of_the_peer() {
    let config = config_with(Side::Server, |limits| limits.updates_max = 2);
    let (mut pair, _) = Pair::alone_ready(config);
    let messages = [subscribe(0, "t"), update(2), update(4)];
    let stream = pair.peer_opens(Side::Server, Direction::Bi, &messages);
    assert_eq!(pair.events(Side::Server).len(), 3);
    let id = RequestId(0);
    pair.server(|session, view| {
        session.subscribe_ok(view, id, subscribe_ok(1));
        session.update_ok(view, id, ok());
    });
    pair.peer_sends(Side::Server, stream, &[update(6)]);
    assert_eq!(pair.events(Side::Server).len(), 1, "one was answered");
    pair.peer_sends(Side::Server, stream, &[update(8)]);
    let reason = CloseReason::Reset(ResetCode::EXCESSIVE_LOAD);
    assert_eq!(pair.events(Side::Server), [Event::Closed { id, reason }]);
    assert_eq!(pair.session(Side::Server).counters().updates_over_limit, 1);
    let (_, end) = pair.peer_reads(Side::Server, stream);
    assert_eq!(end, Read::Reset(ResetCode::EXCESSIVE_LOAD.0));
}

#[test]
fn own_updates() {
    each_seed(|seed| {
        let client = config_with(Side::Client, |limits| limits.updates_max = 2);
        let mut pair = Pair::ready_with(seed, client, super::pair::config(Side::Server));
        let id = pair.client_subscribes();
        let update = |pair: &mut Pair| {
            pair.client(|session, view| session.update(view, id, Parameters::default()))
        };
        assert_eq!([update(&mut pair), update(&mut pair)], [Ok(()), Ok(())]);
        assert_eq!(update(&mut pair), Err(Refused::Limit));
        let counters = pair.session(Side::Client).counters();
        assert_eq!(counters.updates_local_over_limit, 1);
        pair.run();
        pair.server(|session, view| {
            session.subscribe_ok(view, id, subscribe_ok(1));
            session.update_ok(view, id, ok());
        });
        pair.run();
        assert_eq!(update(&mut pair), Ok(()));
    });
}

#[test]
fn announced_namespaces() {
    let client = config_with(Side::Client, |limits| limits.namespaces_max = 2);
    let mut pair = Pair::ready_with(1, client, super::pair::config(Side::Server));
    let id = pair
        .client(|session, view| {
            session.subscribe_namespace(view, namespace("a"), Parameters::default())
        })
        .unwrap();
    pair.run();
    pair.server(|session, view| {
        session.request_ok(view, id, ok());
        for name in ["x", "y", "x"] {
            session.namespace(view, id, namespace(name));
        }
    });
    assert_eq!(
        pair.run_events(Side::Client).len(),
        4,
        "two names, one of them twice"
    );
    pair.server(|session, view| session.namespace(view, id, namespace("z")));
    let reason = CloseReason::Reset(ResetCode::EXCESSIVE_LOAD);
    assert_eq!(
        pair.run_events(Side::Client),
        [Event::Closed { id, reason }]
    );
    assert_eq!(
        pair.session(Side::Client).counters().namespaces_over_limit,
        1
    );
    assert!(matches!(
        pair.events(Side::Server)[1..],
        [Event::Closed { .. }]
    ));
}

#[test]
fn streams_of_the_peer() {
    // The control stream is one of them.
    let (mut pair, _) =
        Pair::alone_ready(config_with(Side::Server, |limits| limits.streams_max = 3));
    let first = pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(0, "t")]);
    pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(2, "t")]);
    let third = pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(4, "t")]);
    assert_eq!(pair.events(Side::Server).len(), 2);
    let (messages, end) = pair.peer_reads(Side::Server, third);
    assert_eq!(
        (messages, end),
        (vec![], Read::Reset(ResetCode::EXCESSIVE_LOAD.0))
    );
    assert_eq!(pair.session(Side::Server).counters().streams_over_limit, 1);
    pair.peer_resets(Side::Server, first, ResetCode::CANCELLED);
    pair.events(Side::Server);
    pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(6, "t")]);
    assert_eq!(pair.events(Side::Server).len(), 1);
    let own =
        pair.server(|session, view| session.subscribe(view, track("t"), Parameters::default()));
    assert!(own.is_ok(), "own streams do not count");
}

/// A subscription to a prefix whose client reads only the OK, at a server with this `outgoing_bytes_max`.
fn unread(outgoing_bytes_max: usize) -> (Pair, RequestId) {
    let server = config_with(Side::Server, |limits| {
        limits.outgoing_bytes_max = outgoing_bytes_max;
    });
    let mut pair = Pair::ready_with(1, super::pair::config(Side::Client), server);
    let id = pair
        .client(|session, view| {
            session.subscribe_namespace(view, namespace("a"), Parameters::default())
        })
        .unwrap();
    pair.run();
    pair.server(|session, view| session.request_ok(view, id, ok()));
    pair.run_events(Side::Client);
    pair.events(Side::Server);
    (pair, id)
}

fn encoded_len(message: &Message) -> usize {
    let mut encoded = BytesMut::new();
    message.encode(draft(), &mut encoded).unwrap();
    encoded.len()
}

#[test]
fn bytes_the_peer_does_not_read() {
    let (mut pair, id) = unread(2 * encoded_len(&Message::RequestOk(ok())));
    for _ in 0..3 {
        pair.client(|session, view| session.update(view, id, Parameters::default()))
            .unwrap();
    }
    pair.run();
    pair.link.window_bytes = 0;
    for _ in 0..2 {
        pair.server(|session, view| session.update_ok(view, id, ok()));
    }
    assert_eq!(pair.closed(Side::Server), None, "at the limit");
    pair.server(|session, view| session.update_ok(view, id, ok()));
    assert_eq!(pair.session(Side::Server).counters().outgoing_over_limit, 1);
    pair.assert_violated(Side::Server, SessionError::INTERNAL_ERROR);
}

#[test]
fn announcements_the_peer_does_not_read() {
    let suffix = namespace("0123456789");
    let (mut pair, id) = unread(2 * encoded_len(&Message::Namespace(suffix.clone())));
    pair.link.window_bytes = 0;
    for _ in 0..2 {
        pair.server(|session, view| session.namespace(view, id, suffix.clone()));
    }
    assert_eq!(pair.events(Side::Server), [], "at the limit");
    pair.server(|session, view| session.namespace(view, id, suffix.clone()));
    let counters = *pair.session(Side::Server).counters();
    assert_eq!(counters.announcements_over_limit, 1);
    assert_eq!(counters.outgoing_over_limit, 0);
    let reason = CloseReason::Reset(ResetCode::EXCESSIVE_LOAD);
    assert_eq!(pair.events(Side::Server), [Event::Closed { id, reason }]);
    assert_eq!(pair.closed(Side::Server), None, "it costs the request");
}

#[test]
fn nothing_follows_the_end_of_a_session() {
    set_draft(Draft::Draft22);
    let server = config_with(Side::Server, |limits| limits.outgoing_bytes_max = 10);
    let mut pair = Pair::ready_with(1, super::pair::config(Side::Client), server);
    let id = pair.client_subscribes();
    pair.run_events(Side::Server);
    pair.server(|session, view| session.subscribe_ok(view, id, subscribe_ok(1)));
    pair.run();
    let condition = RangeCondition {
        set: 0,
        property: None,
        ranges: vec![(128, 300)],
    };
    let update = Parameters {
        range_filters: vec![RangeFilter::new(RangeFilterKind::Subgroup, &condition)],
        ..Parameters::none()
    };
    pair.client(|session, view| session.update(view, id, update))
        .unwrap();
    pair.link.window_bytes = 0;
    // The refusal of the update, which ends the request, does not fit, and ends the session.
    pair.run();
    pair.assert_violated(Side::Server, SessionError::INTERNAL_ERROR);
}

#[test]
fn a_narrow_window_only_delays() {
    each_seed(|seed| {
        let mut pair = Pair::new(
            seed,
            super::pair::config(Side::Client),
            super::pair::config(Side::Server),
        );
        pair.link.window_bytes = 3;
        pair.start();
        let id = pair.client_subscribes();
        assert_eq!(pair.run_events(Side::Server).len(), 2);
        pair.server(|session, view| {
            session.subscribe_ok(view, id, subscribe_ok(1));
            session.publish_done(view, id, done());
        });
        let events = pair.run_events(Side::Client);
        assert!(
            matches!(
                events[..],
                [
                    Event::Ready { .. },
                    Event::Accepted { .. },
                    Event::Done { .. },
                    Event::Closed { .. },
                ]
            ),
            "{events:?}"
        );
        pair.assert_no_requests();
    });
}

#[test]
fn retired_aliases() {
    let config = config_with(Side::Client, |limits| limits.aliases_retired_max = 1);
    let (mut pair, _) = Pair::alone_ready(config);
    for alias in [7, 8] {
        let id = RequestId(alias * 2 + 1);
        pair.peer_opens(Side::Client, Direction::Bi, &[publish(id.0, "t", alias)]);
        pair.client(|session, view| session.cancel(view, id, ResetCode::CANCELLED));
        let forgotten = pair.session(Side::Client).counters().aliases_forgotten;
        assert_eq!(forgotten, u64::from(alias == 8));
    }
    pair.datagram(Side::Client, &datagram(8, 0));
    assert_eq!(pair.session(Side::Client).counters().datagrams_late, 1);
    pair.datagram(Side::Client, &datagram(7, 0));
    assert_eq!(
        pair.session(Side::Client).counters().datagrams_late,
        1,
        "7 is forgotten"
    );
    assert!(
        pair.session(Side::Client).poll_timeout().is_some(),
        "so its objects wait"
    );
}

#[test]
fn lingering_tracks() {
    let config = config_with(Side::Client, |limits| limits.tracks_lingering_max = 1);
    let (mut pair, _) = Pair::alone_ready(config);
    for alias in [7, 8] {
        let messages = [
            publish(alias * 2 + 1, "t", alias),
            Message::PublishDone(done()),
        ];
        pair.peer_opens(Side::Client, Direction::Bi, &messages);
    }
    assert_eq!(
        pair.session(Side::Client)
            .counters()
            .tracks_lingering_over_limit,
        1
    );
    assert_eq!(pair.datagram(Side::Client, &datagram(7, 0)), None);
    assert_eq!(
        pair.datagram(Side::Client, &datagram(8, 0)),
        Some(RequestId(17))
    );
}

#[test]
fn datagrams_without_an_alias() {
    let config = config_with(Side::Client, |limits| limits.datagrams_unknown_max = 2);
    let (mut pair, _) = Pair::alone_ready(config);
    for object in 0..3 {
        pair.datagram(Side::Client, &datagram(7, object));
    }
    assert_eq!(
        pair.session(Side::Client)
            .counters()
            .datagrams_unknown_over_limit,
        1
    );
    pair.peer_opens(Side::Client, Direction::Bi, &[publish(1, "t", 7)]);
    let request = RequestId(1);
    assert_eq!(
        pair.events(Side::Client)[1..],
        [1, 2].map(|object| Event::Datagram {
            request,
            datagram: datagram(7, object)
        })
    );
}

#[test]
fn bytes_of_datagrams_without_an_alias() {
    let mut encoded = BytesMut::new();
    datagram(7, 1).encode(draft(), &mut encoded);
    for (spare, dropped) in [(0, 0), (1, 1)] {
        let config = config_with(Side::Client, |limits| {
            limits.datagrams_unknown_bytes_max = 2 * encoded.len() - spare;
        });
        let (mut pair, _) = Pair::alone_ready(config);
        for object in 1..3 {
            pair.datagram(Side::Client, &datagram(7, object));
        }
        let counters = pair.session(Side::Client).counters();
        assert_eq!(counters.datagrams_unknown_over_bytes, dropped);
    }
}

#[test]
fn streams_without_an_alias() {
    let config = config_with(Side::Client, |limits| limits.streams_unknown_max = 1);
    let (mut pair, _) = Pair::alone_ready(config);
    let streams = [0, 1].map(|group| {
        let stream = pair.peer_opens(Side::Client, Direction::Uni, &[]);
        pair.peer_writes(Side::Client, stream, &subgroup(7, group));
        stream
    });
    assert_eq!(
        pair.session(Side::Client)
            .counters()
            .streams_unknown_over_limit,
        1
    );
    pair.run();
    for (stream, is_stopped) in streams.into_iter().zip([false, true]) {
        let mut byte = bytes::Bytes::from_static(&[0]);
        let written = pair.peer(Side::Client, |peer| peer.write(stream, &mut byte));
        assert_eq!(written.is_err(), is_stopped);
    }
}

#[test]
fn bytes_of_a_control_message() {
    let mut encoded = BytesMut::new();
    subscribe(0, "t").encode(draft(), &mut encoded).unwrap();
    // One byte of type and two of length stand before what is counted.
    let len = encoded.len() - 3;
    for (limit, expected) in [(len, None), (len - 1, Some(SessionError::INTERNAL_ERROR))] {
        let config = config_with(Side::Server, |limits| limits.message_bytes_max = limit);
        let (mut pair, _) = Pair::alone_ready(config);
        pair.peer_opens(Side::Server, Direction::Bi, &[subscribe(0, "t")]);
        let counters = pair.session(Side::Server).counters();
        assert_eq!(counters.messages_too_long, u64::from(expected.is_some()));
        assert_eq!(pair.closed(Side::Server), expected);
    }
}

#[test]
fn bytes_of_an_object_header() {
    let properties = Properties::builder().bytes(0x39, vec![0; 50]).build();
    let object = ObjectHeader {
        properties,
        ..super::pair::object(0, 5)
    };
    let mut encoded = BytesMut::new();
    object.encode_in_subgroup(None, true, draft(), &mut encoded);
    let header = crate::data::SubgroupHeader {
        has_properties: true,
        ..super::pair::header(7, 0)
    };
    let mut data = BytesMut::new();
    header.encode(draft(), &mut data);
    data.extend_from_slice(&encoded);
    let len = encoded.len();
    for (limit, expected) in [(len, None), (len - 1, Some(SessionError::INTERNAL_ERROR))] {
        let config = config_with(Side::Client, |limits| {
            limits.object_header_bytes_max = limit;
        });
        let (mut pair, _) = Pair::alone_ready(config);
        pair.peer_opens(Side::Client, Direction::Bi, &[publish(1, "t", 7)]);
        let stream = pair.peer_opens(Side::Client, Direction::Uni, &[]);
        pair.peer_writes(Side::Client, stream, &data);
        let counters = pair.session(Side::Client).counters();
        assert_eq!(
            counters.object_headers_too_long,
            u64::from(expected.is_some())
        );
        assert_eq!(pair.closed(Side::Client), expected);
    }
}

#[test]
fn fetches_that_expect_data() {
    let mut fetches = crate::session::fetches::Fetches::default();
    for id in 0..3 {
        fetches.insert(RequestId(id), crate::parameter::GroupOrder::Ascending, 2);
    }
    assert_eq!(fetches.len(), 2);
    assert!(
        !fetches.contains(RequestId(0)),
        "one past the limit forgets the oldest"
    );
}

#[test]
fn an_idle_session_is_small() {
    assert!(size_of::<crate::session::Session>() < 2048);
    assert!(size_of::<Event>() <= 512);
}
