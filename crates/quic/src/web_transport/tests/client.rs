use weir_transport::Read;

use super::*;

fn request() -> Request {
    Request {
        authority: "relay.example:4443".to_owned(),
        path: "/live?x=1".to_owned(),
        protocols: vec!["moqt-18".to_owned(), "moqt-22".to_owned()],
        origin: None,
    }
}

/// A client whose request was sent.
fn asking() -> Pipe {
    let mut pipe = Pipe::client(request());
    pipe.bring(SERVER_CONTROL, &draft02());
    pipe
}

#[test]
fn asks_once_the_settings_are_there() {
    let mut pipe = Pipe::client(request());
    assert_eq!(pipe.sent(CLIENT_CONTROL)[..2], [0x00, 0x04]);
    assert!(!pipe.streams.contains_key(&REQUEST));
    pipe.bring(SERVER_CONTROL, &draft02());
    assert_eq!(
        fields(pipe.sent(REQUEST)),
        [
            pair(":method", "CONNECT"),
            pair(":scheme", "https"),
            pair(":authority", "relay.example:4443"),
            pair(":path", "/live?x=1"),
            pair(":protocol", "webtransport"),
            pair("sec-webtransport-http3-draft02", "1"),
            pair("wt-available-protocols", "\"moqt-18\", \"moqt-22\""),
        ]
    );
    assert!(pipe.events().is_empty());
    // An interim answer, then the final one.
    pipe.bring(REQUEST, &headers(&[(":status", "103")]));
    pipe.bring(
        REQUEST,
        &headers(&[(":status", "200"), ("wt-protocol", "\"moqt-22\"")]),
    );
    assert_eq!(pipe.events(), ["established"]);
    assert_eq!(pipe.layer.protocol(), Some("moqt-22"));
    assert_eq!(pipe.layer.poll_timeout(), None);
}

#[test]
fn every_generation_of_settings_is_understood() {
    for (settings, token) in [
        (
            &[(setting::ENABLE_WEBTRANSPORT, 1)][..],
            Some("webtransport"),
        ),
        (
            &[(setting::WEBTRANSPORT_MAX_SESSIONS, 16)],
            Some("webtransport"),
        ),
        (&[(setting::WT_MAX_SESSIONS, 1)], Some("webtransport")),
        (&[(setting::WT_ENABLED, 1)], Some("webtransport-h3")),
        (
            &[(setting::WT_ENABLED, 1), (setting::ENABLE_WEBTRANSPORT, 1)],
            Some("webtransport"),
        ),
        (&[(setting::WT_MAX_SESSIONS, 0)], None),
        (&[], None),
    ] {
        let mut pipe = Pipe::client(request());
        pipe.bring(SERVER_CONTROL, &control(settings));
        match token {
            Some(token) => {
                assert!(fields(pipe.sent(REQUEST)).contains(&pair(":protocol", token)));
            }
            None => assert_eq!(
                pipe.events(),
                ["lost: WebTransport: the server does not offer it"]
            ),
        }
    }
}

#[test]
fn a_subprotocol_that_was_not_offered_counts_as_none() {
    for value in ["\"moqt-99\"", "moqt-18", "1", "\"moqt-18"] {
        let mut pipe = asking();
        pipe.bring(
            REQUEST,
            &headers(&[(":status", "200"), ("wt-protocol", value)]),
        );
        assert_eq!(pipe.events(), ["established"]);
        assert_eq!(pipe.layer.protocol(), None, "{value}");
    }
}

#[test]
fn every_other_answer_names_its_reason() {
    let large = "x".repeat(HEAD_BYTES_MAX);
    for (answer, text) in [
        (
            headers(&[(":status", "404")]),
            "the server refused the session with status 404",
        ),
        (
            headers(&[(":status", "301"), ("location", "/other")]),
            "the server refused the session with status 301",
        ),
        (
            headers(&[("server", "x")]),
            "the server's answer: malformed: no :status",
        ),
        (
            headers(&[(":status", "200"), ("x", &large)]),
            "the server's answer: the field section is larger than the limit",
        ),
    ] {
        let mut pipe = asking();
        // A server may stop the request before its answer comes.
        pipe.with(|layer, end| layer.handle_stopped(end, REQUEST, Code::NO_ERROR.0));
        pipe.bring(REQUEST, &answer);
        assert_eq!(pipe.events(), [format!("lost: WebTransport: {text}")]);
        assert_eq!(pipe.code(), Some(Code::NO_ERROR));
    }
    for (end, text) in [
        (
            Read::Fin,
            "the server closed the request without a response",
        ),
        (
            Read::Reset(Code::REQUEST_REJECTED.0),
            "the server reset the request: H3_REQUEST_REJECTED",
        ),
    ] {
        let mut pipe = asking();
        pipe.arrive(REQUEST, end);
        assert_eq!(pipe.events(), [format!("lost: WebTransport: {text}")]);
    }
}

#[test]
fn a_server_may_not_open_requests_or_push() {
    let mut pipe = asking();
    pipe.bring(StreamId(1), &[0x01, 0x00]);
    assert_eq!(pipe.code(), Some(Code::STREAM_CREATION_ERROR));
    let mut pipe = asking();
    pipe.bring(StreamId(7), &[0x01, 0x00]);
    assert_eq!(pipe.code(), Some(Code::ID_ERROR));
    let mut pipe = asking();
    pipe.bring(SERVER_CONTROL, &[0x0d, 0x01, 0x00]);
    assert_eq!(pipe.code(), Some(Code::FRAME_UNEXPECTED));
}

#[test]
fn streams_of_the_server_may_overtake_its_answer() {
    let mut pipe = asking();
    pipe.bring(StreamId(7), &[0x40, 0x54, 0x00, 1]);
    pipe.bring(StreamId(1), &[0x40, 0x41, 0x00, 2]);
    assert!(pipe.events().is_empty());
    pipe.bring(REQUEST, &headers(&[(":status", "200")]));
    assert_eq!(pipe.events(), ["established", "opened 7", "opened 1"]);
}

#[test]
fn waits_until_streams_can_be_opened() {
    let mut pipe = Pipe::client(request());
    pipe.openable = 0;
    pipe.bring(SERVER_CONTROL, &draft02());
    assert!(!pipe.streams.contains_key(&REQUEST));
    pipe.openable = 1;
    assert!(!pipe.with(|layer, end| layer.handle_streams_available(end)));
    assert!(!pipe.sent(REQUEST).is_empty());
    // The same with a request that is not accepted at once.
    let mut pipe = Pipe::client(request());
    pipe.credit = 5;
    pipe.bring(SERVER_CONTROL, &draft02());
    assert_eq!(pipe.sent(REQUEST).len(), 5);
    pipe.credit = 1000;
    assert!(!pipe.with(|layer, end| layer.handle_writable(end, REQUEST)));
    assert_eq!(fields(pipe.sent(REQUEST)).len(), 7);
}

#[test]
fn a_server_that_grants_no_session_is_not_waited_for() {
    let mut pipe = asking();
    let due = pipe.now + SETUP_TIME_MAX;
    pipe.with(|layer, end| layer.handle_timeout(due, end));
    assert_eq!(
        pipe.events(),
        ["lost: WebTransport: the server granted no session within 10 s"]
    );
}
