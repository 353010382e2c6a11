use weir_transport::{Read, WriteError};

use super::*;

/// What Chromium 156 writes: settings, then a request whose strings are Huffman-coded (from the
/// specifications, not recorded).
const CHROMIUM_CONTROL: [u8; 28] = [
    0x00, 0x04, 0x19, 0x01, 0x80, 0x01, 0x00, 0x00, 0x06, 0x80, 0x00, 0x40, 0x00, 0x07, 0x40, 0x64,
    0x33, 0x01, 0x80, 0xff, 0xd2, 0x77, 0x01, 0xab, 0x60, 0x37, 0x42, 0x01,
];
const CHROMIUM_REQUEST: [u8; 63] = [
    0x01, 0x3d, 0x00, 0x00, // HEADERS; no dynamic table
    0xd7, // :scheme https
    0xcf, // :method CONNECT
    0x50, 0x0b, b'l', b'o', b'c', b'a', b'l', b'h', b'o', b's', b't', b':',
    b'1', // :authority
    0xc1, // :path /
    0x27, 0x02, b':', b'p', b'r', b'o', b't', b'o', b'c', b'o', b'l', // :protocol
    0x0c, b'w', b'e', b'b', b't', b'r', b'a', b'n', b's', b'p', b'o', b'r', b't', // its value
    0x5f, 0x4b, 0x10, b'h', b't', b't', b'p', b':', b'/', b'/', b'l', b'o', b'c', b'a', b'l', b'h',
    b'o', b's', b't', // origin
];

#[test]
fn what_a_browser_sends_and_gets() {
    let mut pipe = Pipe::server(Offer::default());
    pipe.bring(CLIENT_CONTROL, &CHROMIUM_CONTROL);
    pipe.bring(REQUEST, &CHROMIUM_REQUEST);
    assert_eq!(pipe.events(), ["established"]);
    let request = pipe.layer.request().unwrap();
    assert_eq!(request.authority, "localhost:1");
    assert_eq!(request.path, "/");
    assert_eq!(request.origin.as_deref(), Some("http://localhost"));
    assert_eq!(pipe.layer.protocol(), None);
    assert_eq!(
        pipe.sent(REQUEST),
        [0x01, 0x03, 0x00, 0x00, 0xd9],
        "status 200"
    );
    assert_eq!(
        pipe.sent(SERVER_CONTROL),
        [
            0x00, 0x04, 0x26, 0x06, 0x80, 0x00, 0x40, 0x00, 0x33, 0x01, 0x80, 0xff, 0xd2, 0x77,
            0x01, 0xab, 0x60, 0x37, 0x42, 0x01, 0xc0, 0x00, 0x00, 0x00, 0xc6, 0x71, 0x70, 0x6a,
            0x01, 0x94, 0xe9, 0xcd, 0x29, 0x01, 0xac, 0x7c, 0xf0, 0x00, 0x01, 0x08, 0x01,
        ],
        "all generations, each with 1"
    );
}

#[test]
fn cut_into_single_bytes_it_is_the_same() {
    let mut pipe = Pipe::server(Offer::default());
    for byte in CHROMIUM_CONTROL {
        pipe.bring(CLIENT_CONTROL, &[byte]);
    }
    for byte in CHROMIUM_REQUEST {
        assert!(pipe.events().is_empty());
        pipe.bring(REQUEST, &[byte]);
    }
    assert_eq!(pipe.events(), ["established"]);
    for byte in [0x40, 0x54, 0x00] {
        assert!(!pipe.bring(CLIENT_UNI, &[byte]));
    }
    assert_eq!(pipe.events(), ["opened 6"]);
    for byte in close_capsule(3, "bye") {
        assert!(pipe.closed.is_none());
        pipe.bring(REQUEST, &[byte]);
    }
    assert_eq!(pipe.code(), Some(Code::NO_ERROR));
    assert_eq!(
        pipe.events(),
        ["lost: the peer closed the session with code 0x3: \"bye\""]
    );
}

#[test]
fn a_request_before_the_settings_waits_for_them() {
    let mut pipe = Pipe::server(Offer::default());
    let mut request = headers(&CONNECT);
    request.extend(close_capsule(9, ""));
    pipe.bring(REQUEST, &request);
    assert!(pipe.events().is_empty());
    assert!(pipe.sent(REQUEST).is_empty());
    pipe.bring(CLIENT_CONTROL, &draft02());
    assert_eq!(
        pipe.events(),
        [
            "established",
            "lost: the peer closed the session with code 0x9"
        ]
    );
}

#[test]
fn subprotocols_are_chosen_in_our_order() {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    for (ours, offered, status, chosen) in [
        (&["b", "a"][..], Some("\"a\", \"b\""), "200", Some("\"b\"")),
        (&["b"], Some("\"a\",\"b\";q=1"), "200", Some("\"b\"")),
        (&[], Some("\"a\""), "200", None),
        (&[], None, "200", None),
        (&["b"], Some("\"a\""), "406", None),
        (&["b"], None, "400", None),
        // A value that is not a string makes the whole field absent.
        (&["b"], Some("\"b\", token"), "400", None),
        (&["b"], Some("\"b\", (\"c\")"), "400", None),
        (&["b"], Some("\"b"), "400", None),
    ] {
        let mut pipe = Pipe::server(Offer {
            protocols: names(ours),
            ..Offer::default()
        });
        pipe.bring(CLIENT_CONTROL, &draft02());
        let mut request = CONNECT[..5].to_vec();
        request.extend(offered.map(|offered| ("wt-available-protocols", offered)));
        pipe.bring(REQUEST, &headers(&request));
        let mut expected = vec![pair(":status", status)];
        expected.extend(chosen.map(|chosen| pair("wt-protocol", chosen)));
        assert_eq!(fields(pipe.sent(REQUEST)), expected, "{ours:?} {offered:?}");
        assert_eq!(pipe.layer.is_established(), status == "200");
        let quoted = pipe.layer.protocol().map(|name| format!("\"{name}\""));
        assert_eq!(quoted.as_deref(), chosen);
    }
}

#[test]
fn requests_that_open_no_session_are_answered() {
    let change = |name: &str, value: &'static str| {
        let mut request = CONNECT.to_vec();
        for field in &mut request {
            if field.0 == name {
                field.1 = value;
            }
        }
        headers(&request)
    };
    let large = "x".repeat(HEAD_BYTES_MAX);
    let get = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/"),
    ];
    let mut bad_name = CONNECT.to_vec();
    bad_name.push(("Upper", "case"));
    let mut too_large = CONNECT.to_vec();
    too_large.push(("x", &large));
    for (request, status) in [
        (headers(&get), 405),
        (
            headers(&[(":method", "CONNECT"), (":authority", "a:1")]),
            405,
        ),
        (change(":protocol", "websocket"), 501),
        (change(":scheme", "http"), 400),
        (change(":path", "live"), 400),
        (change(":path", "/other"), 404),
        (change(":authority", ""), 400),
        (headers(&bad_name), 400),
        (headers(&too_large), 431),
    ] {
        let mut pipe = Pipe::server(Offer {
            paths: vec!["/live".to_owned()],
            ..Offer::default()
        });
        pipe.bring(CLIENT_CONTROL, &draft02());
        pipe.bring(REQUEST, &request);
        let answer = fields(pipe.sent(REQUEST));
        assert_eq!(answer[0], pair(":status", &status.to_string()));
        assert!(pipe.streams[&REQUEST].is_finished);
        assert_eq!(pipe.layer.take_counters().requests_refused, 1);
        assert_eq!(
            pipe.streams[&REQUEST].stopped, None,
            "not before the answer is there"
        );
        pipe.with(|layer, end| layer.handle_finished(end, REQUEST));
        assert_eq!(pipe.streams[&REQUEST].stopped, Some(Code::NO_ERROR.0));
        // Another request may still open a session.
        pipe.bring(CLIENT_BIDI, &headers(&CONNECT));
        assert_eq!(pipe.events(), ["established"], "{status}");
    }
}

#[test]
fn pages_from_other_origins_are_kept_out() {
    for (origin, status) in [
        (None, "200"),
        (Some("https://a.example"), "200"),
        (Some("HTTPS://A.example"), "200"),
        (Some("https://a.example:8443"), "403"),
        (Some("https://b.example"), "403"),
        (Some("null"), "403"),
    ] {
        let mut pipe = Pipe::server(Offer {
            origins: vec!["https://a.example".to_owned()],
            ..Offer::default()
        });
        pipe.bring(CLIENT_CONTROL, &draft02());
        let mut request = CONNECT.to_vec();
        request.extend(origin.map(|origin| ("origin", origin)));
        pipe.bring(REQUEST, &headers(&request));
        let answer = fields(pipe.sent(REQUEST));
        assert_eq!(answer[0], pair(":status", status), "{origin:?}");
        assert_eq!(pipe.layer.is_established(), status == "200");
    }
}

#[test]
fn one_session_and_no_second() {
    let mut pipe = Pipe::served();
    pipe.bring(CLIENT_BIDI, &headers(&CONNECT));
    assert_eq!(fields(pipe.sent(CLIENT_BIDI)), [pair(":status", "429")]);
    assert!(pipe.layer.is_established());
    let counters = pipe.layer.take_counters();
    assert_eq!((counters.sessions, counters.requests_refused), (1, 1));
    // The same while the first request waits for settings.
    let mut pipe = Pipe::server(Offer::default());
    pipe.bring(REQUEST, &headers(&CONNECT));
    pipe.bring(CLIENT_BIDI, &headers(&CONNECT));
    assert_eq!(fields(pipe.sent(CLIENT_BIDI)), [pair(":status", "429")]);
}

#[test]
fn as_many_open_requests_as_the_limit_and_one_more() {
    let mut pipe = Pipe::server(Offer::default());
    for number in 0..REQUESTS_MAX as u64 {
        pipe.bring(StreamId(4 * number), &[0x01, 0x20]);
    }
    assert_eq!(pipe.layer.take_counters().requests_refused, 0);
    let more = StreamId(4 * REQUESTS_MAX as u64);
    pipe.bring(more, &[0x01, 0x20]);
    assert_eq!(pipe.layer.take_counters().requests_refused, 1);
    assert_eq!(pipe.streams[&more].reset, Some(Code::REQUEST_REJECTED.0));
    assert_eq!(pipe.streams[&more].stopped, Some(Code::REQUEST_REJECTED.0));
    // A request that ends early makes room.
    pipe.arrive(REQUEST, Read::Fin);
    assert_eq!(
        pipe.streams[&REQUEST].reset,
        Some(Code::REQUEST_INCOMPLETE.0)
    );
    let next = StreamId(more.0 + 4);
    pipe.bring(next, &[0x01, 0x20]);
    assert_eq!(pipe.streams[&next].reset, None);
}

#[test]
fn each_violation_on_the_control_stream_has_its_code() {
    let two_settings = [&draft02()[..], &draft02()[1..]].concat();
    let after_settings = |frame: &[u8]| [&draft02()[..], frame].concat();
    for (stream, bytes, code) in [
        (
            CLIENT_CONTROL,
            &[0x00, 0x07, 0x01, 0x00][..],
            Code::MISSING_SETTINGS,
        ),
        (CLIENT_CONTROL, &two_settings, Code::FRAME_UNEXPECTED),
        (
            CLIENT_CONTROL,
            &[0x00, 0x04, 0x02, 0x33, 0x02],
            Code::SETTINGS_ERROR,
        ),
        (
            CLIENT_CONTROL,
            &[0x00, 0x04, 0x44, 0x01],
            Code::EXCESSIVE_LOAD,
        ),
        (
            CLIENT_CONTROL,
            &after_settings(&[0x00, 0x00]),
            Code::FRAME_UNEXPECTED,
        ),
        (
            CLIENT_CONTROL,
            &after_settings(&[0x01, 0x00]),
            Code::FRAME_UNEXPECTED,
        ),
        (
            CLIENT_CONTROL,
            &after_settings(&[0x06, 0x00]),
            Code::FRAME_UNEXPECTED,
        ),
        (
            CLIENT_CONTROL,
            &after_settings(&[0x07, 0x00]),
            Code::FRAME_ERROR,
        ),
        (
            CLIENT_CONTROL,
            &after_settings(&[0x07, 0x02, 0, 0]),
            Code::FRAME_ERROR,
        ),
        (
            CLIENT_CONTROL,
            &after_settings(&[0x0d, 0x09]),
            Code::FRAME_ERROR,
        ),
    ] {
        assert_violation(stream, bytes, code);
    }
}

#[test]
fn each_violation_on_other_streams_has_its_code() {
    for (stream, bytes, code) in [
        (CLIENT_UNI, &[0x01][..], Code::STREAM_CREATION_ERROR),
        (CLIENT_UNI, &[0x02, 0x3f, 0x01], Code::ENCODER_STREAM_ERROR),
        (CLIENT_UNI, &[0x40, 0x54, 0x01], Code::ID_ERROR),
        (CLIENT_BIDI, &[0x40, 0x41, 0x02], Code::ID_ERROR),
        (CLIENT_BIDI, &[0x00, 0x01, 0x00], Code::FRAME_UNEXPECTED),
        (CLIENT_BIDI, &[0x04, 0x00], Code::FRAME_UNEXPECTED),
        (CLIENT_BIDI, &[0x09, 0x00], Code::FRAME_UNEXPECTED),
        (
            CLIENT_BIDI,
            &[0x21, 0x00, 0x40, 0x41, 0x00],
            Code::FRAME_ERROR,
        ),
        (
            CLIENT_BIDI,
            &[0x01, 0x03, 0x00, 0x00, 0x80],
            Code::DECOMPRESSION_FAILED,
        ),
    ] {
        assert_violation(stream, bytes, code);
    }
}

#[track_caller]
fn assert_violation(stream: StreamId, bytes: &[u8], code: Code) {
    let mut pipe = Pipe::server(Offer::default());
    pipe.bring(stream, bytes);
    assert_eq!(pipe.code(), Some(code), "{stream:?} {bytes:x?}");
    assert_eq!(pipe.layer.take_counters().violations, 1);
    let events = pipe.events();
    assert!(
        events.len() == 1 && events[0].starts_with("lost: WebTransport: this side reports: "),
        "{events:?}"
    );
    // And nothing more after it.
    pipe.bring(REQUEST, &headers(&CONNECT));
    assert!(pipe.events().is_empty());
}

#[test]
fn streams_that_must_stay_open() {
    for end in [Read::Fin, Read::Reset(0)] {
        for (stream, first) in [(CLIENT_CONTROL, draft02()), (CLIENT_UNI, vec![3])] {
            let mut pipe = Pipe::served();
            if stream != CLIENT_CONTROL {
                pipe.bring(stream, &first);
            }
            pipe.arrive(stream, end.clone());
            assert_eq!(pipe.code(), Some(Code::CLOSED_CRITICAL_STREAM));
        }
    }
    let mut pipe = Pipe::served();
    pipe.bring(CLIENT_UNI, &[0x00]);
    assert_eq!(pipe.code(), Some(Code::STREAM_CREATION_ERROR), "a second");
    let mut pipe = Pipe::served();
    pipe.with(|layer, end| layer.handle_stopped(end, SERVER_CONTROL, 0));
    assert_eq!(pipe.code(), Some(Code::CLOSED_CRITICAL_STREAM));
}

#[test]
fn what_nobody_knows_is_ignored() {
    let mut pipe = Pipe::served();
    // A reserved frame and a GOAWAY on the control stream, unknown frames with the request.
    pipe.bring(CLIENT_CONTROL, &[0x21, 0x03, 1, 2, 3, 0x07, 0x01, 0x00]);
    pipe.bring(REQUEST, &[0x40, 0x40, 0x02, 9, 9]);
    // A stream of an unknown kind, and one that ends before it says what it is.
    pipe.bring(CLIENT_UNI, &[0x40, 0x7f, 1, 2, 3]);
    assert_eq!(
        pipe.streams[&CLIENT_UNI].stopped,
        Some(Code::STREAM_CREATION_ERROR.0)
    );
    pipe.arrive(StreamId(10), Read::Fin);
    pipe.bring(StreamId(14), &[0x02, 0x20]);
    pipe.bring(StreamId(18), &[0x03, 0x44]);
    assert_eq!(pipe.closed, None);
    assert!(pipe.layer.is_established());
    assert!(pipe.events().is_empty());
}

#[test]
fn streams_carry_the_session_in_front() {
    let mut pipe = Pipe::served();
    let uni = pipe
        .with(|layer, end| layer.open(end, Direction::Uni))
        .unwrap();
    let bidi = pipe
        .with(|layer, end| layer.open(end, Direction::Bi))
        .unwrap();
    assert!(pipe.sent(uni).is_empty(), "with the first bytes");
    pipe.with(|layer, end| layer.write(end, uni, &mut Bytes::from_static(b"abc")))
        .unwrap();
    assert_eq!(pipe.sent(uni), [0x40, 0x54, 0x00, b'a', b'b', b'c']);
    pipe.with(|layer, end| layer.finish(end, bidi));
    assert_eq!(pipe.sent(bidi), [0x40, 0x41, 0x00], "or at the end");
    assert!(pipe.streams[&bidi].is_finished);
    pipe.bring(CLIENT_UNI, &[0x40, 0x54, 0x00, 7, 8]);
    pipe.bring(CLIENT_BIDI, &[0x40, 0x41, 0x00]);
    assert_eq!(pipe.events(), ["opened 6", "opened 4"]);
    let read = |pipe: &mut Pipe, stream| pipe.with(|layer, end| layer.read(end, stream));
    assert_eq!(
        read(&mut pipe, CLIENT_UNI),
        Read::Data(Bytes::from_static(&[7, 8]))
    );
    assert_eq!(read(&mut pipe, CLIENT_UNI), Read::Blocked);
    assert!(pipe.bring(CLIENT_UNI, &[9]), "the role hears of the rest");
    assert_eq!(
        read(&mut pipe, CLIENT_UNI),
        Read::Data(Bytes::from_static(&[9]))
    );
    // Codes lie in a range of their own.
    pipe.with(|layer, end| layer.reset(end, uni, 0x1e));
    pipe.with(|layer, end| layer.stop(end, CLIENT_UNI, 0));
    assert_eq!(pipe.streams[&uni].reset, Some(0x52e4_a40f_a8fa));
    assert_eq!(pipe.streams[&CLIENT_UNI].stopped, Some(0x52e4_a40f_a8db));
    pipe.arrive(CLIENT_BIDI, Read::Reset(0x52e4_a40f_a8dc));
    assert_eq!(read(&mut pipe, CLIENT_BIDI), Read::Reset(1));
    let stopped = pipe.with(|layer, end| layer.handle_stopped(end, bidi, 0x52e4_a40f_a8dd));
    assert_eq!(stopped, Some(2));
}

#[test]
fn a_mark_that_does_not_fit_goes_first_later() {
    let mut pipe = Pipe::served();
    pipe.credit = 1;
    let uni = pipe
        .with(|layer, end| layer.open(end, Direction::Uni))
        .unwrap();
    let mut data = Bytes::from_static(b"abc");
    let blocked = pipe.with(|layer, end| layer.write(end, uni, &mut data));
    assert_eq!(blocked, Err(WriteError::Blocked));
    assert_eq!(data.len(), 3);
    pipe.with(|layer, end| layer.finish(end, uni));
    assert!(!pipe.streams[&uni].is_finished);
    pipe.credit = 100;
    assert!(pipe.with(|layer, end| layer.handle_writable(end, uni)));
    assert_eq!(pipe.sent(uni), [0x40, 0x54, 0x00]);
    assert!(pipe.streams[&uni].is_finished);
    // One that is reset meanwhile needs none.
    pipe.credit = 0;
    let other = pipe
        .with(|layer, end| layer.open(end, Direction::Uni))
        .unwrap();
    pipe.with(|layer, end| layer.reset(end, other, 0));
    pipe.credit = 100;
    pipe.with(|layer, end| layer.handle_writable(end, other));
    assert!(pipe.sent(other).is_empty());
}

#[test]
fn as_many_early_streams_and_datagrams_as_the_limit_and_one_more() {
    let mut pipe = Pipe::server(Offer::default());
    for number in 0..=EARLY_STREAMS_MAX as u64 {
        pipe.bring(StreamId(6 + 4 * number), &[0x40, 0x54, 0x00, 1]);
    }
    for number in 0..=EARLY_DATAGRAMS_MAX {
        let data = Bytes::from(vec![0, u8::try_from(number).unwrap()]);
        assert_eq!(
            pipe.with(|layer, end| layer.handle_datagram(end, data)),
            None
        );
    }
    let past = StreamId(6 + 4 * EARLY_STREAMS_MAX as u64);
    assert_eq!(pipe.streams[&past].stopped, Some(0x3994_bd84));
    let counters = pipe.layer.take_counters();
    assert_eq!(
        (counters.streams_refused, counters.datagrams_dropped),
        (1, 1)
    );
    pipe.bring(CLIENT_CONTROL, &draft02());
    assert!(pipe.events().is_empty());
    pipe.bring(REQUEST, &headers(&CONNECT));
    let events = pipe.events();
    assert_eq!(events.len(), 1 + EARLY_STREAMS_MAX + EARLY_DATAGRAMS_MAX);
    assert_eq!(events[1], "opened 6");
    let read = pipe.with(|layer, end| layer.read(end, CLIENT_UNI));
    assert_eq!(read, Read::Data(Bytes::from_static(&[1])));
}

#[test]
fn streams_and_datagrams_of_other_sessions_are_refused() {
    let mut pipe = Pipe::server(Offer::default());
    pipe.bring(CLIENT_UNI, &[0x40, 0x54, 0x08, 1]);
    pipe.bring(CLIENT_CONTROL, &draft02());
    pipe.bring(REQUEST, &headers(&CONNECT));
    assert_eq!(pipe.events(), ["established"]);
    assert_eq!(pipe.streams[&CLIENT_UNI].stopped, Some(0x3994_bd84));
    pipe.bring(CLIENT_BIDI, &[0x40, 0x41, 0x08]);
    assert_eq!(pipe.streams[&CLIENT_BIDI].reset, Some(0x3994_bd84));
    let datagram = |pipe: &mut Pipe, data: &'static [u8]| {
        pipe.with(|layer, end| layer.handle_datagram(end, Bytes::from_static(data)))
    };
    assert_eq!(datagram(&mut pipe, &[2, 9]), None);
    assert_eq!(datagram(&mut pipe, &[0, 9]), Some(Bytes::from_static(&[9])));
    assert_eq!(datagram(&mut pipe, &[0]), Some(Bytes::new()));
    let counters = pipe.layer.take_counters();
    assert_eq!(
        (counters.streams_refused, counters.datagrams_dropped),
        (2, 1)
    );
    assert_eq!(datagram(&mut pipe, &[]), None);
    assert_eq!(pipe.code(), Some(Code::DATAGRAM_ERROR));
}

#[test]
fn the_role_ends_the_session() {
    let mut pipe = Pipe::served();
    let now = pipe.now;
    pipe.with(|layer, end| layer.close(now, end, 0x15, b"no draft"));
    assert_eq!(pipe.sent(REQUEST), close_capsule(0x15, "no draft"));
    assert!(pipe.streams[&REQUEST].is_finished);
    assert_eq!(pipe.closed, None, "not before the peer has it");
    assert!(!pipe.bring(CLIENT_UNI, &[0x40, 0x54, 0x00]));
    pipe.with(|layer, end| layer.handle_finished(end, REQUEST));
    assert_eq!(pipe.code(), Some(Code::NO_ERROR));
    assert!(pipe.events().is_empty(), "the role knows");
    // A peer that does not acknowledge it is not waited for.
    let mut pipe = Pipe::served();
    pipe.with(|layer, end| layer.close(now, end, 1, b""));
    let due = pipe.layer.poll_timeout().unwrap();
    assert_eq!(due, now + CLOSE_TIME_MAX);
    let early = due.checked_sub(Duration::from_millis(1)).unwrap();
    pipe.with(|layer, end| layer.handle_timeout(early, end));
    assert_eq!(pipe.closed, None);
    pipe.with(|layer, end| layer.handle_timeout(due, end));
    assert_eq!(pipe.code(), Some(Code::NO_ERROR));
    // A peer that accepts no more bytes gets a connection close instead.
    let mut pipe = Pipe::served();
    pipe.credit = 3;
    pipe.with(|layer, end| layer.close(now, end, 1, b"reason"));
    assert_eq!(pipe.code(), Some(Code(0x52e4_a40f_a8dc)));
}

#[test]
fn the_peer_ends_the_session() {
    for (end, text) in [
        (Read::Fin, "lost: the peer closed the session with code 0x0"),
        (
            Read::Reset(Code::REQUEST_CANCELLED.0),
            "lost: WebTransport: the peer reset the session: H3_REQUEST_CANCELLED",
        ),
    ] {
        let mut pipe = Pipe::served();
        pipe.arrive(REQUEST, end);
        assert_eq!(pipe.events(), [text]);
        assert_eq!(pipe.code(), Some(Code::NO_ERROR));
    }
    let mut pipe = Pipe::served();
    pipe.bring(REQUEST, &[0x00, 0x05]);
    pipe.arrive(REQUEST, Read::Fin);
    assert_eq!(pipe.code(), Some(Code::FRAME_ERROR));
    let mut pipe = Pipe::served();
    pipe.bring(REQUEST, &[0x00, 0x06, 0x68, 0x43, 0x03, 0, 0, 0]);
    assert_eq!(pipe.code(), Some(Code::MESSAGE_ERROR), "a short code");
}

#[test]
fn a_client_that_opens_no_session_is_not_waited_for() {
    let mut pipe = Pipe::server(Offer::default());
    let due = pipe.layer.poll_timeout().unwrap();
    assert_eq!(due, pipe.now + SETUP_TIME_MAX);
    let early = due.checked_sub(Duration::from_millis(1)).unwrap();
    pipe.with(|layer, end| layer.handle_timeout(early, end));
    assert_eq!(pipe.closed, None);
    pipe.with(|layer, end| layer.handle_timeout(due, end));
    assert_eq!(pipe.code(), Some(Code::REQUEST_CANCELLED));
    assert_eq!(pipe.layer.take_counters().overdue, 1);
    assert_eq!(
        pipe.events(),
        ["lost: WebTransport: the client opened no session within 10 s"]
    );
    assert_eq!(Pipe::served().layer.poll_timeout(), None);
}
