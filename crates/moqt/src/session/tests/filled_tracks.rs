//! Fills that `SUBSCRIBE_TRACKS` asks for: each joins the PUBLISH of a track.

use bytes::BytesMut;
use weir_transport::Direction;

use super::drafts::{each_draft, fetch_in, has_fills};
use super::pair::{Pair, config, draft, namespace, track};
use crate::data::FetchHeader;
use crate::error::{RequestErrorCode, SessionError};
use crate::location::Location;
use crate::message::{FetchKind, RequestError};
use crate::parameter::{GroupOrder, Parameters};
use crate::property::Properties;
use crate::session::{Event, RequestId, Side};

/// The parameters of a `SUBSCRIBE_TRACKS` with a fill.
fn filled_tracks() -> Parameters {
    let fill = Parameters {
        group_order: Some(GroupOrder::Descending),
        ..Parameters::none()
    };
    Parameters {
        fill: Some(Box::new(fill)),
        ..Parameters::none()
    }
}

/// A client with a filled `SUBSCRIBE_TRACKS`, and the PUBLISH that its server sends for it.
fn offered() -> (Pair, RequestId) {
    let mut pair = Pair::ready(1);
    pair.client(|session, view| session.subscribe_tracks(view, namespace("a"), filled_tracks()))
        .expect("there is room");
    pair.run_events(Side::Server);
    let offer = Parameters {
        largest_object: Some(Location::new(3, 1)),
        ..filled_tracks()
    };
    let id = pair
        .server(|session, view| session.publish_now(view, track("t"), 7, offer, Properties::EMPTY))
        .expect("there is room");
    (pair, id)
}

#[test]
fn a_fill_of_subscribe_tracks_joins_the_publish_and_may_be_refused_before_its_answer() {
    each_draft(|| {
        if !has_fills() {
            return;
        }
        let (mut pair, id) = offered();
        let (fill, fetch) = fetch_in(&pair.run_events(Side::Server));
        let kind = FetchKind::AbsoluteJoining {
            request_id: id.0,
            start: Location::ZERO,
            end: Location::MAX,
        };
        assert_eq!((fill, fetch.kind), (id.fill(), kind));
        assert_eq!(fetch.parameters.group_order, Some(GroupOrder::Descending));
        pair.events(Side::Client);
        let error = RequestError::new(RequestErrorCode::TIMEOUT, "no");
        pair.server(|session, view| session.request_error(view, fill, error));
        let events = pair.run_events(Side::Client);
        let is_end = |event: &&Event| matches!(event, Event::StreamEnd { .. });
        let ends = events.iter().filter(is_end).count() as u64;
        let resets = pair.session(Side::Client).counters().streams_reset_early;
        assert!(ends + resets > 0, "{events:?}");
    });
}

#[test]
fn the_fill_of_an_offer_that_is_refused_is_over() {
    each_draft(|| {
        if !has_fills() {
            return;
        }
        let (mut pair, id) = offered();
        pair.run_events(Side::Client);
        let before = pair.session(Side::Client).requests_len();
        let error = RequestError::new(RequestErrorCode::UNINTERESTED, "no");
        pair.client(|session, view| session.request_error(view, id, error));
        pair.run();
        let left = pair.session(Side::Client).requests_len();
        assert_eq!(left, before - 2, "the offer and its fill");
    });
}

#[test]
fn a_fill_stream_of_a_publish_is_a_violation_unless_it_was_asked_for() {
    each_draft(|| {
        for asked in [false, has_fills()] {
            let (mut pair, _) = Pair::alone_ready(config(Side::Client));
            if asked {
                pair.client(|session, view| {
                    session.subscribe_tracks(view, namespace("a"), filled_tracks())
                })
                .expect("there is room");
            }
            let mut header = BytesMut::new();
            FetchHeader { request_id: 1 }.encode(draft(), &mut header);
            let stream = pair.peer_opens(Side::Client, Direction::Uni, &[]);
            pair.peer_writes(Side::Client, stream, &header);
            if asked {
                // It has overtaken the PUBLISH.
                let counters = pair.session(Side::Client).counters();
                assert_eq!(counters.streams_late, 1);
            } else {
                pair.assert_violated(Side::Client, SessionError::PROTOCOL_VIOLATION);
            }
        }
    });
}
