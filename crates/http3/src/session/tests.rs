//! One end of a session, with the test as the other end.

use super::*;
use crate::test_transport::{TestTransport, control, framed};

const PEER_CONTROL: StreamId = StreamId(2);
const PEER_ENCODER: StreamId = StreamId(6);
const PEER_DECODER: StreamId = StreamId(10);
const OTHER: StreamId = StreamId(14);

struct End {
    session: Session,
    wire: TestTransport,
}

impl End {
    fn server() -> Self {
        Self::new(Side::Server, TestTransport::server())
    }

    fn client() -> Self {
        Self::new(Side::Client, TestTransport::client())
    }

    fn new(side: Side, mut wire: TestTransport) -> Self {
        let mut session = Session::new(side, Limits::default());
        session.start(&mut wire);
        Self { session, wire }
    }

    /// Delivers data of the peer's stream. `stream` is numbered for a server; for a client the corresponding stream is
    /// used.
    fn arrive(&mut self, stream: StreamId, read: Read) -> Result<(), Violation> {
        let stream = match self.session.side {
            Side::Server => stream,
            Side::Client => StreamId(stream.0 + 1),
        };
        if self.wire.arrive(stream, read) {
            self.session.handle_opened(stream, Direction::Uni)?;
        }
        self.wire.later.push_back(stream);
        while self.read_on()? {}
        Ok(())
    }

    /// Reads a stream that is readable. Returns whether there was one.
    fn read_on(&mut self) -> Result<bool, Violation> {
        let Some(stream) = self.wire.later.pop_front() else {
            return Ok(false);
        };
        self.session.handle_readable(&mut self.wire, stream)
    }

    fn bring(&mut self, stream: StreamId, data: &[u8]) -> Result<(), Violation> {
        self.arrive(stream, Read::Data(Bytes::copy_from_slice(data)))
    }
}

fn code(result: Result<(), Violation>) -> Code {
    result.unwrap_err().code
}

#[test]
fn many_small_frames_are_read_in_parts() {
    let mut end = End::server();
    let stream = [control(&[]), framed(0x21, b"").repeat(10_000)].concat();
    for piece in stream.chunks(1200) {
        let data = Read::Data(Bytes::copy_from_slice(piece));
        end.wire.arrive(PEER_CONTROL, data);
    }
    end.wire.arrive(PEER_CONTROL, Read::Fin);
    end.session
        .handle_opened(PEER_CONTROL, Direction::Uni)
        .unwrap();
    end.wire.later.push_back(PEER_CONTROL);
    let turns = std::iter::from_fn(|| Some(end.read_on())).take_while(|on| *on == Ok(true));
    // Four pieces in each. The end comes in the last, and is a violation.
    assert_eq!(turns.count(), 4);
}

#[test]
fn what_we_open() {
    let server = End::server();
    // Control: SETTINGS with 16384 bytes for a field section. Then the streams of field compression.
    let settings = [0x00, 0x04, 0x05, 0x06, 0x80, 0x00, 0x40, 0x00];
    assert_eq!(server.wire.sent(StreamId(3)), settings);
    assert_eq!(server.wire.sent(StreamId(7)), [0x02]);
    assert_eq!(server.wire.sent(StreamId(11)), [0x03]);
    assert_eq!(server.wire.streams.len(), 3);
    assert_eq!(End::client().wire.sent(StreamId(2)), settings);
}

#[test]
fn what_the_peer_does_not_take_yet_follows_later() {
    let mut wire = TestTransport::server();
    (wire.openable, wire.credit) = (1, 3);
    let mut session = Session::new(Side::Server, Limits::default());
    session.start(&mut wire);
    session.go_away(&mut wire, 8);
    assert_eq!(wire.sent(StreamId(3)).len(), 3);
    (wire.openable, wire.credit) = (5, 1);
    assert!(session.handle_writable(&mut wire, StreamId(3)));
    wire.credit = 100;
    assert!(session.handle_writable(&mut wire, StreamId(3)));
    let expected = [
        0x00, 0x04, 0x05, 0x06, 0x80, 0x00, 0x40, 0x00, 0x07, 0x01, 0x08,
    ];
    assert_eq!(wire.sent(StreamId(3)), expected);
    session.start(&mut wire);
    session.start(&mut wire);
    assert_eq!(wire.streams.len(), 3);
    assert!(!session.handle_writable(&mut wire, StreamId(0)));
}

#[test]
fn settings_and_the_streams_of_the_peer() {
    for mut end in [End::server(), End::client()] {
        assert_eq!(end.session.settings(), None);
        for byte in control(&[(0x06, 100), (0x21, 7)]) {
            end.bring(PEER_CONTROL, &[byte]).unwrap();
        }
        let settings = end.session.settings().unwrap();
        assert_eq!(settings.value(setting::MAX_FIELD_SECTION_SIZE), Some(100));
        end.bring(PEER_ENCODER, &[0x02, 0x20]).unwrap();
        end.bring(PEER_DECODER, &[0x03, 0x48]).unwrap();
        end.bring(PEER_DECODER, &[0x44]).unwrap();
        assert_eq!(
            code(end.bring(PEER_ENCODER, &[0x3f, 0x01])),
            Code::ENCODER_STREAM_ERROR
        );
        assert_eq!(
            code(end.bring(PEER_DECODER, &[0x84])),
            Code::DECODER_STREAM_ERROR
        );
    }
}

#[test]
fn unknown_streams_are_refused_and_nothing_else() {
    let mut end = End::server();
    // A reserved type of four bytes, incomplete; and a stream that ends before its type is complete.
    end.bring(OTHER, &[0x80, 0x00]).unwrap();
    end.bring(OTHER, &[0x00, 0x40, 1, 2, 3]).unwrap();
    let stopped = end.wire.streams[&OTHER].stopped;
    assert_eq!(stopped, Some(Code::STREAM_CREATION_ERROR));
    end.bring(OTHER, &[4]).unwrap();
    let other = StreamId(OTHER.0 + 4);
    end.bring(other, &[0x40]).unwrap();
    end.arrive(other, Read::Fin).unwrap();
    assert!(end.session.streams.is_empty());
}

#[test]
fn as_many_nameless_streams_as_the_limit_and_one_more() {
    let mut end = End::server();
    let limit = Limits::default().fresh_streams_max as u64;
    for number in 0..limit {
        let opened = end
            .session
            .handle_opened(StreamId(2 + 4 * number), Direction::Uni);
        assert_eq!(opened, Ok(()));
    }
    let opened = end
        .session
        .handle_opened(StreamId(2 + 4 * limit), Direction::Uni);
    assert_eq!(code(opened), Code::EXCESSIVE_LOAD);
}

#[test]
fn streams_that_may_not_be() {
    for (kind, of_client, of_server) in [
        (
            0x00,
            Code::STREAM_CREATION_ERROR,
            Code::STREAM_CREATION_ERROR,
        ),
        (0x01, Code::STREAM_CREATION_ERROR, Code::ID_ERROR),
        (
            0x02,
            Code::STREAM_CREATION_ERROR,
            Code::STREAM_CREATION_ERROR,
        ),
        (
            0x03,
            Code::STREAM_CREATION_ERROR,
            Code::STREAM_CREATION_ERROR,
        ),
    ] {
        for (mut end, expected) in [(End::server(), of_client), (End::client(), of_server)] {
            end.bring(PEER_CONTROL, &control(&[])).unwrap();
            end.bring(PEER_ENCODER, &[0x02]).unwrap();
            end.bring(PEER_DECODER, &[0x03]).unwrap();
            assert_eq!(code(end.bring(OTHER, &[kind])), expected, "{kind}");
        }
    }
    let opened = End::client()
        .session
        .handle_opened(StreamId(1), Direction::Bi);
    assert_eq!(code(opened), Code::STREAM_CREATION_ERROR);
}

#[test]
fn streams_that_must_stay_open() {
    for (stream, first) in [
        (PEER_CONTROL, control(&[])),
        (PEER_ENCODER, vec![2]),
        (PEER_DECODER, vec![3]),
    ] {
        for end_of_stream in [Read::Fin, Read::Reset(0x100)] {
            let mut end = End::server();
            end.bring(stream, &first).unwrap();
            let closed = end.arrive(stream, end_of_stream);
            assert_eq!(code(closed), Code::CLOSED_CRITICAL_STREAM);
        }
    }
    let mut end = End::server();
    for own in [3, 7, 11] {
        let stopped = end.session.handle_stopped(StreamId(own));
        assert_eq!(stopped.unwrap_err().code, Code::CLOSED_CRITICAL_STREAM);
    }
    assert_eq!(end.session.handle_stopped(StreamId(0)), Ok(false));
}

#[test]
fn goaway_only_comes_down() {
    let goaway = |number| framed(0x07, &[number]);
    let mut client = End::client();
    client.bring(PEER_CONTROL, &control(&[])).unwrap();
    for number in [40, 40, 8] {
        client.bring(PEER_CONTROL, &goaway(number)).unwrap();
        assert_eq!(client.session.goaway(), Some(u64::from(number)));
    }
    assert_eq!(
        code(client.bring(PEER_CONTROL, &goaway(12))),
        Code::ID_ERROR
    );
    let mut client = End::client();
    client.bring(PEER_CONTROL, &control(&[])).unwrap();
    assert_eq!(code(client.bring(PEER_CONTROL, &goaway(6))), Code::ID_ERROR);
    // A client's GOAWAY contains a push ID.
    let mut server = End::server();
    server.bring(PEER_CONTROL, &control(&[])).unwrap();
    server.bring(PEER_CONTROL, &goaway(6)).unwrap();
    // This side sends GOAWAY once.
    server.session.go_away(&mut server.wire, 8);
    server.session.go_away(&mut server.wire, 4);
    assert!(
        server
            .wire
            .sent(StreamId(3))
            .ends_with(&[0x00, 0x07, 0x01, 0x08])
    );
}

#[test]
fn pushes_there_are_not() {
    let mut server = End::server();
    server.bring(PEER_CONTROL, &control(&[])).unwrap();
    server.bring(PEER_CONTROL, &framed(0x0d, &[8])).unwrap();
    server.bring(PEER_CONTROL, &framed(0x0d, &[9])).unwrap();
    let lower = server.bring(PEER_CONTROL, &framed(0x0d, &[7]));
    assert_eq!(code(lower), Code::ID_ERROR);
    for mut end in [End::server(), End::client()] {
        end.bring(PEER_CONTROL, &control(&[])).unwrap();
        let cancelled = end.bring(PEER_CONTROL, &framed(0x03, &[0]));
        assert_eq!(code(cancelled), Code::ID_ERROR);
    }
}
