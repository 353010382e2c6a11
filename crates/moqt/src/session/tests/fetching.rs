//! Own fetches: their data before and after the answer, and their end.

use bytes::{Bytes, BytesMut};
use weir_transport::Read;

use super::data::{OWN, SIDE, is_stopped, joined, peer_stream};
use super::pair::{Pair, config, draft, fetch_ok, request_error, track};
use crate::data::{FetchEncoder, FetchEntry, FetchHeader, FetchObject};
use crate::error::{RequestErrorCode, ResetCode};
use crate::location::Location;
use crate::message::{FetchKind, Message};
use crate::parameter::{GroupOrder, Parameters};
use crate::property::Properties;
use crate::session::{Accepted, Event, RequestId, StreamEnd};

fn fetch(pair: &mut Pair) -> RequestId {
    let kind = FetchKind::Standalone {
        track: track("t"),
        start: Location::new(1, 0),
        end: Location::new(2, u64::MAX),
    };
    let parameters = Parameters {
        group_order: Some(GroupOrder::Descending),
        ..Parameters::default()
    };
    let id = pair
        .client(|session, view| session.fetch(view, kind, parameters))
        .unwrap();
    pair.run();
    id
}

fn fetch_bytes(id: RequestId, groups: &[u64]) -> (Vec<u8>, Vec<FetchEntry>) {
    let mut out = BytesMut::new();
    FetchHeader { request_id: id.0 }.encode(draft(), &mut out);
    let mut encoder = FetchEncoder::new(draft(), GroupOrder::Descending);
    let entries: Vec<FetchEntry> = groups
        .iter()
        .map(|&group| {
            let (subgroup, priority, properties) = (Some(0), 128, Properties::EMPTY);
            let payload_len = 2;
            let object = 0;
            FetchEntry::Object(FetchObject {
                group,
                subgroup,
                object,
                priority,
                properties,
                payload_len,
            })
        })
        .collect();
    for entry in &entries {
        encoder.encode(entry, &mut out);
        out.extend_from_slice(b"hi");
    }
    (out.to_vec(), entries)
}

#[test]
fn a_fetch_delivers_in_its_order_before_or_after_the_answer() {
    for answer_first in [true, false] {
        let (mut pair, _) = Pair::alone_ready(config(SIDE));
        let id = fetch(&mut pair);
        let answer = |pair: &mut Pair| {
            pair.peer_sends(
                SIDE,
                OWN,
                &[Message::FetchOk(fetch_ok(Location::new(2, 0)))],
            );
            let ok = Accepted::Fetch(fetch_ok(Location::new(2, 0)));
            assert_eq!(pair.events(SIDE), [Event::Accepted { id, ok }]);
        };
        if answer_first {
            answer(&mut pair);
        }
        let (data, entries) = fetch_bytes(id, &[2, 1]);
        let stream = peer_stream(&mut pair, &data);
        pair.peer_finishes(SIDE, stream);
        let payload = Event::Payload {
            stream,
            data: Bytes::from_static(b"hi"),
        };
        let expected = [
            Event::Fetched {
                stream,
                request: id,
            },
            Event::FetchObject {
                stream,
                entry: entries[0].clone(),
            },
            payload.clone(),
            Event::FetchObject {
                stream,
                entry: entries[1].clone(),
            },
            payload,
            Event::StreamEnd {
                stream,
                end: StreamEnd::Fin,
            },
        ];
        assert_eq!(joined(pair.events(SIDE)), expected);
        if !answer_first {
            answer(&mut pair);
        }
        assert_eq!(
            pair.peer_reads(SIDE, OWN).1,
            Read::Fin,
            "nothing more to say about it"
        );
        pair.peer_finishes(SIDE, OWN);
        assert_eq!(pair.session(SIDE).requests_len(), 0);
    }
}

#[test]
fn a_fetch_whose_objects_have_come_does_not_wait_for_its_peer() {
    for ends in [true, false] {
        let (mut pair, _) = Pair::alone_ready(config(SIDE));
        let id = fetch(&mut pair);
        let ok = Message::FetchOk(fetch_ok(Location::new(2, 0)));
        pair.peer_sends(SIDE, OWN, &[ok]);
        let stream = peer_stream(&mut pair, &fetch_bytes(id, &[2]).0);
        if ends {
            pair.peer_finishes(SIDE, stream);
        }
        pair.events(SIDE);
        assert_eq!(pair.session(SIDE).requests.own_live(), 1);
        pair.client(|session, view| session.forget(view, id));
        assert_eq!(pair.session(SIDE).requests.own_live(), 0);
        let is_kept = pair.session(SIDE).requests_len() == 1;
        assert_eq!(is_kept, ends, "what is complete is not cancelled");
        if ends {
            pair.peer_finishes(SIDE, OWN);
        }
        assert_eq!(pair.events(SIDE), []);
        assert_eq!(pair.session(SIDE).requests_len(), 0);
    }
}

#[test]
fn a_fetch_goes_on_after_the_end_of_its_request_stream() {
    let (mut pair, _) = Pair::alone_ready(config(SIDE));
    let id = fetch(&mut pair);
    pair.peer_sends(
        SIDE,
        OWN,
        &[Message::FetchOk(fetch_ok(Location::new(2, 0)))],
    );
    pair.peer_finishes(SIDE, OWN);
    pair.events(SIDE);
    let (data, _) = fetch_bytes(id, &[2]);
    let stream = peer_stream(&mut pair, &data);
    assert_eq!(
        pair.events(SIDE)[0],
        Event::Fetched {
            stream,
            request: id
        }
    );
}

#[test]
fn a_fetch_that_is_over_wants_no_data() {
    for cancels in [true, false] {
        let (mut pair, _) = Pair::alone_ready(config(SIDE));
        let id = fetch(&mut pair);
        let (data, _) = fetch_bytes(id, &[2]);
        let early = peer_stream(&mut pair, &data);
        if cancels {
            pair.client(|session, view| session.cancel(view, id, ResetCode::CANCELLED));
        } else {
            let error = request_error(RequestErrorCode::INVALID_RANGE);
            pair.peer_sends(SIDE, OWN, &[Message::RequestError(error)]);
        }
        let late = peer_stream(&mut pair, &data);
        assert!(is_stopped(&mut pair, early) && is_stopped(&mut pair, late));
        assert_eq!(pair.session(SIDE).counters().streams_late, 1);
        assert_eq!(pair.closed(SIDE), None);
    }
}
