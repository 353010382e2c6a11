//! One client's connection, with the test as the other end.

use weir_h3::frame::frame_type;
use weir_transport::{Read, StreamId};

use super::*;
use crate::limits::READ_BYTES_AT_ONCE;
use crate::test_transport::{TestTransport, control, framed, headers};

const REQUEST: StreamId = StreamId(0);
const NEXT: StreamId = StreamId(4);
const CLIENT_CONTROL: StreamId = StreamId(2);

const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "localhost"),
    (":path", "/file"),
];

struct Pair {
    peer: Peer,
    service: Service,
    wire: TestTransport,
    /// STREAM frames that count as sent.
    frames_sent: u64,
}

impl Pair {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let mut site = Site::new(SiteLimits {
            made_bytes_max: 1 << 20,
            ..SiteLimits::default()
        });
        site.add("/file", b"hello").unwrap();
        let service = Service::new(limits, Arc::new(site));
        let mut peer = Peer::new(&service);
        let mut wire = TestTransport::server();
        peer.start(&mut wire);
        Self {
            peer,
            service,
            wire,
            frames_sent: 0,
        }
    }

    fn arrive(&mut self, stream: StreamId, read: Read) -> Result<(), Violation> {
        let Self {
            peer,
            service,
            wire,
            ..
        } = self;
        if wire.arrive(stream, read) {
            let direction = if stream.0 & 2 == 0 {
                Direction::Bi
            } else {
                Direction::Uni
            };
            peer.handle_opened(wire, service, stream, direction)?;
        }
        peer.handle_readable(wire, service, stream)?;
        while self.read_on()? {}
        Ok(())
    }

    /// Delivers a stream of which data was left for later. Returns whether there was one.
    fn read_on(&mut self) -> Result<bool, Violation> {
        let Some(stream) = self.wire.later.pop_front() else {
            return Ok(false);
        };
        self.peer
            .handle_readable(&mut self.wire, &mut self.service, stream)?;
        Ok(true)
    }

    fn bring(&mut self, stream: StreamId, data: &[u8]) -> Result<(), Violation> {
        self.arrive(stream, Read::Data(Bytes::copy_from_slice(data)))
    }

    /// Sends a whole request.
    fn ask(&mut self, stream: StreamId, data: &[u8]) {
        self.bring(stream, data).unwrap();
        self.arrive(stream, Read::Fin).unwrap();
    }

    fn writable(&mut self, stream: StreamId, credit: usize) {
        self.wire.credit = credit;
        self.frames_sent += 1;
        self.peer
            .handle_writable(&mut self.wire, &mut self.service, stream);
    }

    fn stopped(&mut self, stream: StreamId) -> Result<(), Violation> {
        self.peer
            .handle_stopped(&mut self.wire, &mut self.service, stream)
    }

    fn give_up_stalled(&mut self) {
        self.peer
            .give_up_stalled(&mut self.wire, &mut self.service, self.frames_sent);
    }

    /// Checks that a stream was answered with a status and nothing else.
    fn assert_refused(&self, stream: StreamId, status: u16) {
        assert_eq!(self.wire.sent(stream), Answer::refusal(status).first);
        assert!(self.wire.streams[&stream].is_finished);
    }

    fn codes(&self, stream: StreamId) -> (Option<Code>, Option<Code>) {
        let stream = &self.wire.streams[&stream];
        (stream.reset, stream.stopped)
    }
}

fn path(path: &str) -> Vec<u8> {
    let mut fields = GET;
    fields[3].1 = path;
    headers(&fields)
}

fn file() -> Bytes {
    let site = Pair::new().service.site;
    site.answer(b"/file", false).unwrap().first
}

#[test]
fn a_request_however_it_is_cut() {
    let request = headers(&GET);
    let mut pair = Pair::new();
    for (stream, length) in (1..=request.len()).enumerate() {
        let stream = StreamId(stream as u64 * 4);
        for piece in request.chunks(length) {
            pair.bring(stream, piece).unwrap();
        }
        assert!(pair.wire.sent(stream).is_empty(), "not before the end");
        pair.arrive(stream, Read::Fin).unwrap();
        assert_eq!(pair.wire.sent(stream), file());
        assert!(pair.wire.streams[&stream].is_finished);
    }
    assert_eq!(pair.service.counters.answers_ok, request.len() as u64);
    assert!(pair.peer.keeps_nothing());
}

/// A request followed by many small frames that mean nothing, in pieces as packets bring them. `end` follows.
fn arrive_at_once(pair: &mut Pair, stream: StreamId, end: Read) -> usize {
    let frames = [framed(frame_type::DATA, b""), framed(0x21, b"")].concat();
    let request = [headers(&GET), frames.repeat(5000)].concat();
    for piece in request.chunks(1200) {
        pair.wire
            .arrive(stream, Read::Data(Bytes::copy_from_slice(piece)));
    }
    pair.wire.arrive(stream, end);
    request.len()
}

#[test]
fn many_small_frames_are_read_in_parts() {
    for (end, is_answered) in [
        (Read::Fin, true),
        (Read::Blocked, false),
        (Read::Reset(0x10c), false),
    ] {
        let mut pair = Pair::new();
        let length = arrive_at_once(&mut pair, REQUEST, end.clone());
        let Pair {
            peer,
            service,
            wire,
            ..
        } = &mut pair;
        peer.handle_opened(wire, service, REQUEST, Direction::Bi)
            .unwrap();
        let mut turns = 1;
        loop {
            assert!(pair.wire.later.len() <= 1);
            // Another request is answered in between.
            if turns == 2 {
                let later = std::mem::take(&mut pair.wire.later);
                pair.ask(NEXT, &headers(&GET));
                assert_eq!(pair.wire.sent(NEXT), file());
                pair.wire.later = later;
            }
            if !pair.read_on().unwrap() {
                break;
            }
            turns += 1;
        }
        // The last piece of a turn may go past its limit.
        let at_once = READ_BYTES_AT_ONCE..READ_BYTES_AT_ONCE + 1200;
        assert!(at_once.contains(&(length / (turns - 1))), "{turns}");
        let is_reset = matches!(end, Read::Reset(_));
        assert_eq!(pair.wire.streams[&REQUEST].is_finished, is_answered);
        assert_eq!(pair.service.counters.requests_reset, u64::from(is_reset));
        if end == Read::Blocked {
            assert!(!pair.peer.keeps_nothing());
            pair.arrive(REQUEST, Read::Fin).unwrap();
        }
        let answer = if is_reset { Bytes::new() } else { file() };
        assert_eq!(pair.wire.sent(REQUEST), answer);
        assert!(pair.peer.keeps_nothing());
    }
}

#[test]
fn a_stream_left_for_later_that_the_client_stops_is_not_read() {
    let mut pair = Pair::new();
    arrive_at_once(&mut pair, REQUEST, Read::Fin);
    let Pair {
        peer,
        service,
        wire,
        ..
    } = &mut pair;
    peer.handle_opened(wire, service, REQUEST, Direction::Bi)
        .unwrap();
    pair.stopped(REQUEST).unwrap();
    assert!(pair.read_on().unwrap() && !pair.read_on().unwrap());
    assert!(pair.wire.sent(REQUEST).is_empty() && pair.peer.keeps_nothing());
}

#[test]
fn a_head_and_what_is_not_there() {
    let mut pair = Pair::new();
    let mut fields = GET;
    fields[0].1 = "HEAD";
    pair.ask(REQUEST, &headers(&fields));
    let sent = pair.wire.sent(REQUEST);
    assert!(file().starts_with(sent) && file().len() > sent.len());
    pair.ask(NEXT, &path("/none"));
    pair.assert_refused(NEXT, 404);
    pair.ask(StreamId(8), &path("/../file"));
    pair.assert_refused(StreamId(8), 400);
    fields[0].1 = "DELETE";
    pair.ask(StreamId(12), &headers(&fields));
    pair.assert_refused(StreamId(12), 405);
    assert_eq!(pair.service.counters.answers_ok, 1);
    assert_eq!(pair.service.counters.answers_refused, 3);
}

#[test]
fn what_the_stream_does_not_take_follows() {
    let mut pair = Pair::new();
    pair.wire.credit = 10;
    // One response in two pieces, one in one.
    pair.ask(REQUEST, &path("/100k"));
    pair.ask(NEXT, &headers(&GET));
    assert!(!pair.peer.is_idle());
    pair.writable(REQUEST, 60_000);
    assert!(!pair.wire.streams[&REQUEST].is_finished);
    pair.writable(REQUEST, 60_000);
    pair.writable(NEXT, 60_000);
    for stream in [REQUEST, NEXT] {
        assert!(pair.wire.streams[&stream].is_finished);
        assert!(!pair.peer.is_idle(), "until it is acknowledged");
        pair.peer.handle_finished();
    }
    let expected = pair.service.site.answer(b"/100k", false).unwrap();
    let expected = [&expected.first[..], &expected.rest].concat();
    assert_eq!(pair.wire.sent(REQUEST), expected);
    assert_eq!(pair.wire.sent(NEXT), file());
    assert!(pair.peer.is_idle());
}

#[test]
fn responses_that_a_client_accepts_nothing_of_are_given_up() {
    let mut pair = Pair::new();
    pair.wire.credit = 0;
    pair.ask(REQUEST, &path("/64k"));
    pair.bring(NEXT, &headers(&GET)).unwrap();
    pair.give_up_stalled();
    assert_eq!(pair.codes(REQUEST), (None, None), "a new one has its time");
    // The client accepts a little. Others may wait meanwhile.
    pair.ask(StreamId(8), &path("/1k"));
    pair.give_up_stalled();
    assert_eq!(pair.service.counters.answers_stalled, 1);
    assert_eq!(pair.codes(REQUEST), (Some(Code::REQUEST_CANCELLED), None));
    pair.writable(StreamId(8), 1);
    pair.ask(StreamId(12), &path("/1k"));
    pair.give_up_stalled();
    pair.writable(StreamId(12), 1);
    pair.give_up_stalled();
    pair.give_up_stalled();
    assert_eq!(pair.service.counters.answers_stalled, 3);
    // The request that is not complete has no response.
    assert_eq!(pair.codes(NEXT), (None, None));
    pair.wire.credit = 1000;
    pair.arrive(NEXT, Read::Fin).unwrap();
    assert_eq!(pair.wire.sent(NEXT), file());
    assert!(pair.peer.keeps_nothing());
}

#[test]
fn content_up_to_the_limit_and_one_byte_more() {
    let limits = Limits {
        request_content_bytes_max: 20,
        ..Limits::default()
    };
    for (length, is_taken) in [(0, true), (20, true), (21, false), (40, false), (41, false)] {
        let mut pair = Pair::with(limits);
        let content = framed(frame_type::DATA, &vec![7; length]);
        pair.bring(REQUEST, &headers(&GET)).unwrap();
        for piece in content.chunks(9) {
            pair.bring(REQUEST, piece).unwrap();
        }
        pair.arrive(REQUEST, Read::Fin).unwrap();
        if is_taken {
            assert_eq!(pair.wire.sent(REQUEST), file(), "{length}");
        } else {
            pair.assert_refused(REQUEST, 413);
        }
        // The client is asked to stop only after as much again has arrived.
        let stopped = (length > 40).then_some(Code::NO_ERROR);
        assert_eq!(pair.codes(REQUEST), (None, stopped), "{length}");
        assert!(pair.peer.keeps_nothing());
    }
    for (announced, status) in [("20", 200), ("21", 413)] {
        let mut pair = Pair::with(limits);
        let mut fields = GET.to_vec();
        fields.push(("content-length", announced));
        pair.bring(REQUEST, &headers(&fields)).unwrap();
        assert_eq!(pair.wire.sent(REQUEST).is_empty(), status == 200);
        pair.bring(REQUEST, &framed(frame_type::DATA, &[7; 20]))
            .unwrap();
        if status == 200 {
            pair.arrive(REQUEST, Read::Fin).unwrap();
            assert_eq!(pair.wire.sent(REQUEST), file());
        } else {
            pair.assert_refused(REQUEST, 413);
        }
    }
}

#[test]
fn a_head_up_to_the_limit_and_one_byte_more() {
    // The fields of the request, with 32 bytes more for each.
    let exact: usize = GET
        .iter()
        .map(|(name, value)| name.len() + value.len() + 32)
        .sum();
    for (limit, is_taken) in [(exact, true), (exact - 1, false)] {
        let mut pair = Pair::with(Limits {
            field_section_bytes_max: limit,
            ..Limits::default()
        });
        pair.ask(REQUEST, &headers(&GET));
        if is_taken {
            assert_eq!(pair.wire.sent(REQUEST), file());
        } else {
            pair.assert_refused(REQUEST, 431);
        }
    }
    // A head whose encoded form is too long is not stored.
    let mut pair = Pair::with(Limits {
        field_section_bytes_max: 100,
        ..Limits::default()
    });
    pair.bring(REQUEST, &[0x01, 0x40, 101]).unwrap();
    pair.bring(REQUEST, &[7; 101]).unwrap();
    pair.assert_refused(REQUEST, 431);
    pair.arrive(REQUEST, Read::Fin).unwrap();
    assert!(pair.peer.keeps_nothing());
}

#[test]
fn unfinished_heads_up_to_their_limit_together_and_one_byte_more() {
    let mut pair = Pair::with(Limits {
        unfinished_sections_bytes_max: 30,
        ..Limits::default()
    });
    let streams: [StreamId; 8] = std::array::from_fn(|number| StreamId(number as u64 * 4));
    // Ten bytes of forty.
    let begun = [&[0x01, 40][..], &[7; 10]].concat();
    for stream in &streams[..3] {
        pair.bring(*stream, &begun).unwrap();
        assert_eq!(pair.codes(*stream), (None, None));
    }
    pair.bring(streams[3], &[0x01, 40, 7]).unwrap();
    let excessive = Some(Code::EXCESSIVE_LOAD);
    assert_eq!(pair.codes(streams[3]), (excessive, excessive));
    // A complete request is served nevertheless.
    let request = headers(&GET);
    pair.ask(streams[4], &request);
    assert_eq!(pair.wire.sent(streams[4]), file());
    // A request that is reset or complete makes room for others.
    pair.arrive(streams[0], Read::Reset(0x10c)).unwrap();
    pair.bring(streams[5], &begun).unwrap();
    pair.stopped(streams[1]).unwrap();
    pair.bring(streams[6], &request[..10]).unwrap();
    pair.ask(streams[6], &request[10..]);
    assert_eq!(pair.wire.sent(streams[6]), file());
    pair.bring(streams[7], &begun).unwrap();
    assert_eq!(pair.codes(streams[7]), (None, None));
    assert_eq!(pair.service.counters.requests_excessive, 1);
    for stream in [streams[2], streams[5], streams[7]] {
        pair.stopped(stream).unwrap();
    }
    assert!(pair.peer.keeps_nothing());
}

#[test]
fn requests_that_are_none() {
    let with = |field: (&'static str, &'static str)| {
        let mut fields = GET.to_vec();
        fields.push(field);
        headers(&fields)
    };
    let announced = [with(("content-length", "4")), framed(0, &[1, 2, 3])].concat();
    let trailers = [headers(&GET), headers(&[(":path", "/")])].concat();
    for (request, code) in [
        (headers(&GET[1..]), Code::MESSAGE_ERROR),
        (with(("Upper", "x")), Code::MESSAGE_ERROR),
        (with(("connection", "close")), Code::MESSAGE_ERROR),
        (announced, Code::MESSAGE_ERROR),
        (trailers, Code::MESSAGE_ERROR),
        // Nothing, or only a frame of unknown type.
        (Vec::new(), Code::REQUEST_INCOMPLETE),
        (framed(0x21, &[1]), Code::REQUEST_INCOMPLETE),
    ] {
        let mut pair = Pair::new();
        if !request.is_empty() {
            pair.bring(REQUEST, &request).unwrap();
        }
        pair.arrive(REQUEST, Read::Fin).unwrap();
        assert_eq!(pair.codes(REQUEST), (Some(code), Some(code)));
        assert_eq!(pair.service.counters.requests_malformed, 1);
        assert!(pair.wire.sent(REQUEST).is_empty());
        // Only this stream fails.
        pair.ask(NEXT, &headers(&GET));
        assert_eq!(pair.wire.sent(NEXT), file());
    }
}

#[test]
fn what_ends_the_connection() {
    for (stream, data, code) in [
        (
            REQUEST,
            framed(frame_type::DATA, &[1]),
            Code::FRAME_UNEXPECTED,
        ),
        (
            REQUEST,
            framed(frame_type::SETTINGS, &[]),
            Code::FRAME_UNEXPECTED,
        ),
        (REQUEST, framed(0x41, &[]), Code::FRAME_ERROR),
        (
            REQUEST,
            framed(1, &[0, 0, 0x80]),
            Code::DECOMPRESSION_FAILED,
        ),
        (REQUEST, framed(1, &[]), Code::DECOMPRESSION_FAILED),
        (CLIENT_CONTROL, vec![0, 7, 1, 0], Code::MISSING_SETTINGS),
        (CLIENT_CONTROL, vec![1], Code::STREAM_CREATION_ERROR),
    ] {
        let violation = Pair::new().bring(stream, &data).unwrap_err();
        assert_eq!(violation.code, code, "{data:x?}");
    }
    let mut pair = Pair::new();
    let request = headers(&GET);
    pair.bring(REQUEST, &request[..request.len() - 1]).unwrap();
    let cut = pair.arrive(REQUEST, Read::Fin);
    assert_eq!(cut.unwrap_err().code, Code::FRAME_ERROR);
    assert!(pair.stopped(StreamId(3)).is_err(), "our control stream");
}

#[test]
fn unknown_frames_and_trailers_are_left_out() {
    let mut pair = Pair::new();
    let request = [
        framed(0x21, b"reserved"),
        headers(&GET),
        framed(0x40 + 0x1f, b""),
        framed(frame_type::DATA, b"content"),
        framed(0x1f * 7 + 0x21, &[0; 100]),
        headers(&[("checksum", "1")]),
    ];
    pair.bring(CLIENT_CONTROL, &control(&[(0x21, 1)])).unwrap();
    pair.ask(REQUEST, &request.concat());
    assert_eq!(pair.wire.sent(REQUEST), file());
}

#[test]
fn clients_that_change_their_mind() {
    // A reset before the request is complete.
    let mut pair = Pair::new();
    pair.bring(REQUEST, &headers(&GET)).unwrap();
    pair.arrive(REQUEST, Read::Reset(0x10c)).unwrap();
    assert_eq!(pair.codes(REQUEST), (Some(Code::REQUEST_CANCELLED), None));
    assert_eq!(pair.service.counters.requests_reset, 1);
    // STOP_SENDING before the request is complete.
    pair.bring(NEXT, &headers(&GET)).unwrap();
    pair.stopped(NEXT).unwrap();
    let cancelled = Some(Code::REQUEST_CANCELLED);
    assert_eq!(pair.codes(NEXT), (cancelled, cancelled));
    // While the response is being sent, and afterwards.
    pair.wire.credit = 10;
    pair.ask(StreamId(8), &headers(&GET));
    pair.stopped(StreamId(8)).unwrap();
    assert_eq!(pair.codes(StreamId(8)), (cancelled, None));
    pair.writable(StreamId(8), 1000);
    assert!(!pair.wire.streams[&StreamId(8)].is_finished);
    pair.ask(StreamId(12), &headers(&GET));
    pair.stopped(StreamId(12)).unwrap();
    assert!(pair.peer.is_idle());
    assert_eq!(pair.service.counters.answers_stopped, 3);
}

#[test]
fn after_goaway_no_request_begins() {
    let mut pair = Pair::new();
    pair.bring(REQUEST, &headers(&GET)).unwrap();
    pair.peer.go_away(&mut pair.wire);
    assert!(pair.wire.sent(StreamId(3)).ends_with(&[0x07, 0x01, 0x04]));
    pair.bring(NEXT, &headers(&GET)).unwrap();
    let rejected = Some(Code::REQUEST_REJECTED);
    assert_eq!(pair.codes(NEXT), (rejected, rejected));
    assert_eq!(pair.service.counters.requests_rejected, 1);
    pair.arrive(REQUEST, Read::Fin).unwrap();
    assert_eq!(pair.wire.sent(REQUEST), file());
}

#[test]
fn a_connection_without_room_for_our_streams_serves_all_the_same() {
    let mut pair = Pair::new();
    pair.wire = TestTransport::server();
    pair.wire.openable = 0;
    pair.peer = Peer::new(&pair.service);
    pair.ask(REQUEST, &headers(&GET));
    assert_eq!(pair.wire.sent(REQUEST), file());
    pair.wire.openable = 3;
    pair.peer.start(&mut pair.wire);
    assert!(!pair.wire.sent(StreamId(3)).is_empty());
}
