//! One response so far: its status, its length, and whether its content matches.

use bytes::Bytes;
use weir_h3::{
    Code, Violation,
    head::{HeadError, ResponseHead, content_length},
    message::{MessageReader, Piece},
    qpack::SectionError,
};

use super::figures::Failure;

/// Reads one response, and counts and drops its content.
#[derive(Debug)]
pub(super) struct Response {
    reader: MessageReader,
    head: Head,
    received_bytes: u64,
}

/// The fields of a head that the client uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Head {
    status: u16,
    content_length: Option<u64>,
}

/// The last head of a connection. Without a dynamic table, equal bytes are equal heads. A server sends the same head
/// for the same request, except for the date.
#[derive(Debug)]
pub(super) struct LastHead {
    section_bytes_max: usize,
    section: Bytes,
    head: Head,
}

/// An error in a response before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Only this response fails. The stream is stopped with this code.
    Stream(Failure, Code),
    /// The peer violated HTTP/3, so the connection is closed.
    Connection(Violation),
}

impl Response {
    /// Returns an empty response whose head may have at most this size.
    pub(super) fn new(section_bytes_max: usize) -> Self {
        Self {
            reader: MessageReader::new(section_bytes_max),
            head: Head::default(),
            received_bytes: 0,
        }
    }

    /// Takes the next bytes of the stream.
    pub(super) fn push(&mut self, data: Bytes, last: &mut LastHead) -> Result<(), Fault> {
        if self.reader.skip_content(data.len()) {
            self.received_bytes += data.len() as u64;
            return self.check_length();
        }
        self.reader.push(data);
        while let Some(piece) = self.reader.poll().map_err(Fault::Connection)? {
            match piece {
                Piece::Content(data) => self.received_bytes += data.len() as u64,
                Piece::Head(section) => {
                    self.head = last.read(&section)?;
                    // Interim responses precede the final one (RFC 9114 §4.1).
                    if self.head.status < 200 {
                        self.reader.expect_another_head();
                    }
                }
                Piece::HeadTooLarge => return Err(TOO_LARGE),
                Piece::Trailers(_) => {}
            }
        }
        self.check_length()
    }

    /// Checks that the content does not exceed the announced length.
    fn check_length(&self) -> Result<(), Fault> {
        let announced = self.head.content_length;
        if announced.is_some_and(|length| self.received_bytes > length) {
            return Err(Fault::Stream(Failure::BodyLong, Code::MESSAGE_ERROR));
        }
        Ok(())
    }

    /// Evaluates the response at the end of its stream. Returns the bytes of its content if it is a success.
    pub(super) fn finish(&self, expected_bytes: Option<u64>) -> Result<u64, Failure> {
        if self.reader.check_end().is_err() || !self.reader.has_head() {
            return Err(Failure::Incomplete);
        }
        match self.head.status {
            200 => {}
            201..=299 => return Err(Failure::Status2xx),
            300..=399 => return Err(Failure::Status3xx),
            400..=499 => return Err(Failure::Status4xx),
            500..=599 => return Err(Failure::Status5xx),
            _ => return Err(Failure::StatusOther),
        }
        let wanted = [self.head.content_length, expected_bytes];
        for wanted in wanted.into_iter().flatten() {
            if self.received_bytes < wanted {
                return Err(Failure::BodyShort);
            }
            if self.received_bytes > wanted {
                return Err(Failure::BodyLong);
            }
        }
        Ok(self.received_bytes)
    }

    /// Returns the status; 0 before the head.
    pub(super) fn status(&self) -> u16 {
        self.head.status
    }

    /// Returns the bytes of content so far.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }
}

impl LastHead {
    /// Returns an empty cache for heads of at most this size.
    pub(super) fn new(section_bytes_max: usize) -> Self {
        Self {
            section_bytes_max,
            section: Bytes::new(),
            head: Head::default(),
        }
    }

    fn read(&mut self, section: &Bytes) -> Result<Head, Fault> {
        if *section != self.section {
            let head = ResponseHead::decode(section.clone(), self.section_bytes_max)
                .map_err(Fault::of_head)?;
            self.head = Head {
                status: head.status,
                content_length: content_length(&head.fields).map_err(Fault::of_head)?,
            };
            // A copy, so that the packet's memory can be freed.
            self.section = Bytes::copy_from_slice(section);
        }
        Ok(self.head)
    }
}

impl Fault {
    fn of_head(error: HeadError) -> Self {
        match error {
            HeadError::Section(SectionError::Broken(violation)) => Self::Connection(violation),
            HeadError::Section(SectionError::TooLarge) => TOO_LARGE,
            HeadError::Malformed(_) => MALFORMED,
        }
    }
}

const TOO_LARGE: Fault = Fault::Stream(Failure::Malformed, Code::EXCESSIVE_LOAD);
const MALFORMED: Fault = Fault::Stream(Failure::Malformed, Code::MESSAGE_ERROR);

#[cfg(test)]
mod tests {
    use bytes::BufMut as _;
    use weir_h3::frame::{self, frame_type};

    use super::*;

    const MAX: usize = 1000;

    fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        frame::encode_head(kind, payload.len(), &mut out);
        out.put_slice(payload);
        out
    }

    fn head(fields: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        frame::encode_headers(fields, &mut out);
        out
    }

    fn ok(length: &str) -> Vec<u8> {
        head(&[(":status", "200"), ("content-length", length)])
    }

    fn data(length: usize) -> Vec<u8> {
        frame(frame_type::DATA, &vec![7; length])
    }

    /// Returns the result of a stream of these parts, in pieces of `piece` bytes.
    fn judged(parts: &[Vec<u8>], piece: usize, expected: Option<u64>) -> Result<u64, String> {
        let stream = parts.concat();
        let (mut response, mut last) = (Response::new(MAX), LastHead::new(MAX));
        for piece in stream.chunks(piece) {
            response
                .push(Bytes::copy_from_slice(piece), &mut last)
                .map_err(|fault| format!("{fault:?}"))?;
        }
        response
            .finish(expected)
            .map_err(|failure| failure.name().to_owned())
    }

    #[test]
    fn a_success_has_status_200_and_the_exact_length() {
        for piece in [1, 2, 3, 100, 10_000] {
            let judged = |parts: &[Vec<u8>], expected| judged(parts, piece, expected);
            assert_eq!(judged(&[ok("10"), data(10)], None), Ok(10));
            assert_eq!(judged(&[ok("10"), data(4), data(6)], Some(10)), Ok(10));
            assert_eq!(judged(&[ok("0")], None), Ok(0));
            assert_eq!(judged(&[head(&[(":status", "200")]), data(3)], None), Ok(3));
            let failed = |name: &str| Err(name.to_owned());
            assert_eq!(judged(&[ok("10"), data(9)], None), failed("body_short"));
            assert_eq!(
                judged(&[ok("10"), data(10)], Some(11)),
                failed("body_short")
            );
            assert_eq!(judged(&[ok("10"), data(10)], Some(9)), failed("body_long"));
            let twice = |other| {
                let fields = [
                    (":status", "200"),
                    ("content-length", "10"),
                    ("content-length", other),
                ];
                judged(&[head(&fields), data(10)], None)
            };
            assert_eq!(twice("10"), Ok(10));
            for other in ["11", "9", "x"] {
                let error = twice(other).unwrap_err();
                assert!(error.starts_with("Stream(Malformed"), "{error}");
            }
            assert_eq!(judged(&[], None), failed("incomplete"));
            assert_eq!(
                judged(&[ok("10"), data(10)[..6].to_vec()], None),
                failed("incomplete")
            );
            for (status, name) in [
                ("204", "status_2xx"),
                ("301", "status_3xx"),
                ("404", "status_4xx"),
                ("503", "status_5xx"),
                ("999", "status_other"),
            ] {
                assert_eq!(judged(&[head(&[(":status", status)])], None), failed(name));
            }
        }
    }

    #[test]
    fn more_than_was_announced_is_seen_at_once() {
        let error = judged(&[ok("10"), data(11)], 10_000, None).unwrap_err();
        assert!(error.starts_with("Stream(BodyLong"), "{error}");
    }

    #[test]
    fn what_may_stand_around_an_answer() {
        let interim = head(&[(":status", "103"), ("link", "x")]);
        let trailers = head(&[("checksum", "1")]);
        let unknown = frame(0x21, b"grease");
        for piece in [1, 1000] {
            let parts = [
                interim.clone(),
                unknown.clone(),
                ok("5"),
                unknown.clone(),
                data(5),
                trailers.clone(),
                unknown.clone(),
            ];
            assert_eq!(judged(&parts, piece, None), Ok(5));
        }
    }

    #[test]
    fn what_a_peer_may_not_do() {
        for parts in [
            vec![data(3)],
            vec![ok("0"), head(&[]), data(1)],
            vec![frame(frame_type::SETTINGS, &[])],
            vec![ok("0"), frame(frame_type::GOAWAY, &[0])],
            vec![frame(frame_type::PUSH_PROMISE, &[0])],
            vec![frame(0x02, &[])],
            // Refers to the dynamic table, which was refused.
            vec![frame(frame_type::HEADERS, &[2, 0, 0x80])],
        ] {
            let error = judged(&parts, 1000, None).unwrap_err();
            assert!(error.starts_with("Connection"), "{error}");
        }
        for parts in [
            vec![head(&[("a", "b")])],
            vec![ok("ten")],
            vec![ok("-1")],
            vec![head(&[(":status", "20")])],
        ] {
            let error = judged(&parts, 1000, None).unwrap_err();
            assert!(error.starts_with("Stream"), "{error}");
        }
    }

    #[test]
    fn heads_as_long_as_the_limit_and_one_past_it() {
        let of = |length: usize| {
            let mut stream = Vec::new();
            frame::encode_head(frame_type::HEADERS, length, &mut stream);
            stream.resize(stream.len() + length, 0);
            let mut response = Response::new(MAX);
            response.push(stream.into(), &mut LastHead::new(MAX))
        };
        assert!(
            matches!(of(MAX), Err(Fault::Connection(_))),
            "it is looked at"
        );
        assert_eq!(of(MAX + 1), Err(TOO_LARGE));
    }

    #[test]
    fn equal_heads_are_read_once_and_others_anew() {
        let mut last = LastHead::new(MAX);
        for length in ["5", "5", "6", "5"] {
            let mut response = Response::new(MAX);
            response.push(ok(length).into(), &mut last).unwrap();
            let body: usize = length.parse().unwrap();
            response.push(data(body).into(), &mut last).unwrap();
            assert_eq!(response.finish(None), Ok(body as u64));
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_a_server_sends_panics(
            stream in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
            starts_well in proptest::bool::ANY,
            piece in 1_usize..60,
        ) {
            let mut stream = stream;
            if starts_well {
                stream.splice(0..0, ok("100"));
            }
            let (mut response, mut last) = (Response::new(MAX), LastHead::new(MAX));
            let pushed = stream
                .chunks(piece)
                .try_for_each(|piece| response.push(Bytes::copy_from_slice(piece), &mut last));
            if pushed.is_ok() {
                // Whatever the result, there is no more content than arrived.
                let bytes = response.finish(None).unwrap_or(0);
                assert!(bytes <= stream.len() as u64);
            }
        }
    }
}
