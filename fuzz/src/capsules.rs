//! Fuzzing of capsules, on the stream of an established WebTransport session.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use bytes::Bytes;
use weir_h3::{
    Code,
    frame::{self, frame_type},
    settings::{Settings, setting},
    varint,
};
use weir_quic::{
    Lost,
    web_transport::{Event, Offer, Request, WebTransport},
};
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

/// Reads `input` as the capsules of a peer. The first byte selects the end, and how the bytes are split into packets; the
/// second one how they are split into DATA frames. Checks against another reader that the session ends with the first
/// `WT_CLOSE_SESSION`, with its code and reason, and with nothing else.
///
/// # Panics
/// If a check fails.
pub fn run(input: &[u8]) {
    let [first, second, content @ ..] = input else {
        return;
    };
    let mut stage = Stage::established(*first & 1 == 1);
    let mut stream = Vec::new();
    for part in content.chunks(usize::from(*second) + 1) {
        frame::encode_head(frame_type::DATA, part.len(), &mut stream);
        stream.extend_from_slice(part);
    }
    for packet in stream.chunks(usize::from(*first >> 1) + 1) {
        stage.arrive(SESSION, Read::Data(Bytes::copy_from_slice(packet)));
    }
    let lost = stage.lost();
    match expected(content) {
        End::Open => {
            assert!(
                lost.is_none(),
                "the session ends without a reason: {lost:?}"
            );
            assert_eq!(stage.wire.closed, None);
            assert!(stage.layer.is_established());
        }
        End::Closed(code, reason) => {
            let Some(Lost::Application {
                code: found,
                reason: text,
            }) = lost
            else {
                panic!("the session is not closed by its peer: {lost:?}");
            };
            assert_eq!(found, u64::from(code));
            // Long reasons are cut, and others lose what is not text.
            let is_plain = reason.iter().all(u8::is_ascii_alphanumeric);
            assert!(!is_plain || reason.starts_with(text.as_bytes()), "{text:?}");
            assert_eq!(stage.wire.closed, Some(Code::NO_ERROR.0));
        }
        End::Violation => {
            assert!(matches!(lost, Some(Lost::WebTransport(_))), "{lost:?}");
            assert_eq!(stage.wire.closed, Some(Code::MESSAGE_ERROR.0));
        }
    }
}

/// How the session ends.
enum End {
    Open,
    Closed(u32, Vec<u8>),
    Violation,
}

/// Reads capsules that are there as a whole (RFC 9297 §3.2).
fn expected(mut content: &[u8]) -> End {
    while let Some((kind, kind_bytes)) = varint::decode(content)
        && let Some((length, length_bytes)) = varint::decode(&content[kind_bytes..])
    {
        let is_close = kind == CLOSE_SESSION;
        if is_close && !(4..=4 + 1024).contains(&length) {
            return End::Violation;
        }
        let rest = &content[kind_bytes + length_bytes..];
        let Some((value, after)) = usize::try_from(length)
            .ok()
            .and_then(|length| rest.split_at_checked(length))
        else {
            return End::Open;
        };
        if let Some((code, reason)) = value.split_first_chunk().filter(|_| is_close) {
            return End::Closed(u32::from_be_bytes(*code), reason.to_vec());
        }
        content = after;
    }
    End::Open
}

/// The layer and its transport.
struct Stage {
    layer: WebTransport,
    wire: Wire,
}

#[derive(Default)]
struct Wire {
    arrived: BTreeMap<StreamId, Read>,
    next: [u64; 2],
    closed: Option<u64>,
}

impl Stage {
    /// Returns an end whose session is established.
    #[expect(clippy::disallowed_methods, reason = "any instant serves as an origin")]
    fn established(is_server: bool) -> Self {
        let (layer, next) = if is_server {
            (WebTransport::server(Arc::new(Offer::default())), [1, 3])
        } else {
            let request = Request {
                authority: "a".to_owned(),
                path: "/".to_owned(),
                protocols: vec!["moqt-18".to_owned()],
                origin: None,
            };
            (WebTransport::client(request), [0, 2])
        };
        let wire = Wire {
            next,
            ..Wire::default()
        };
        let mut stage = Self { layer, wire };
        stage.layer.start(&mut stage.wire);
        stage
            .layer
            .handle_connected(Instant::now(), &mut stage.wire);
        let mut control = vec![0];
        let settings = [(setting::H3_DATAGRAM, 1), (setting::ENABLE_WEBTRANSPORT, 1)];
        Settings::new(&settings).encode(&mut control);
        let head: &[(&str, &str)] = if is_server {
            &CONNECT
        } else {
            &[(":status", "200")]
        };
        let mut headers = Vec::new();
        frame::encode_headers(head, &mut headers);
        let control_stream = StreamId(if is_server { 2 } else { 3 });
        stage.layer.handle_opened(control_stream, Direction::Uni);
        stage.arrive(control_stream, Read::Data(control.into()));
        if is_server {
            stage.layer.handle_opened(SESSION, Direction::Bi);
        }
        stage.arrive(SESSION, Read::Data(headers.into()));
        assert!(matches!(stage.layer.poll_event(), Some(Event::Established)));
        stage
    }

    fn arrive(&mut self, stream: StreamId, read: Read) {
        self.wire.arrived.insert(stream, read);
        let is_of_role = self.layer.handle_readable(&mut self.wire, stream);
        assert!(
            !is_of_role || self.wire.closed.is_some(),
            "the layer reads its own streams"
        );
        while self.layer.read_on(&mut self.wire) {}
    }

    /// Returns why the session was lost, if it was: the only event, and the last one.
    fn lost(&mut self) -> Option<Lost> {
        let Event::Lost(lost) = self.layer.poll_event()? else {
            panic!("a capsule causes nothing but the end");
        };
        assert!(
            self.layer.poll_event().is_none(),
            "nothing comes after the end"
        );
        Some(lost)
    }
}

impl Transport for Wire {
    fn open(&mut self, direction: Direction) -> Option<StreamId> {
        let next = &mut self.next[usize::from(direction == Direction::Uni)];
        *next += 4;
        Some(StreamId(*next - 4))
    }

    fn read(&mut self, stream: StreamId) -> Read {
        self.arrived.remove(&stream).unwrap_or(Read::Blocked)
    }

    fn read_later(&mut self, _stream: StreamId) {}

    fn write(&mut self, _stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        data.clear();
        Ok(())
    }

    fn finish(&mut self, _stream: StreamId) {}

    fn reset(&mut self, _stream: StreamId, _code: u64) {}

    fn stop(&mut self, _stream: StreamId, _code: u64) {}

    fn set_priority(&mut self, _stream: StreamId, _priority: i32) {}

    fn close(&mut self, code: u64, _reason: &[u8]) {
        assert!(self.closed.replace(code).is_none(), "closed twice");
    }
}

/// The stream of the CONNECT request.
const SESSION: StreamId = StreamId(0);
/// `WT_CLOSE_SESSION` (draft-ietf-webtrans-http3-15 §9.6).
const CLOSE_SESSION: u64 = 0x2843;
const CONNECT: [(&str, &str); 6] = [
    (":method", "CONNECT"),
    (":protocol", "webtransport"),
    (":scheme", "https"),
    (":authority", "a"),
    (":path", "/"),
    ("wt-available-protocols", "\"moqt-18\""),
];
