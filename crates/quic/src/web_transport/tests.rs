//! Tests of one end of a session, with a transport whose other end is the test.

mod bursts;
mod client;
mod pipe;
mod server;

use std::time::{Duration, Instant};

use super::*;
use pipe::Pipe;
use weir_h3::{Code, frame, frame::frame_type, qpack, settings::setting, varint};

/// The first streams that a client opens, of each kind.
const REQUEST: StreamId = StreamId(0);
const CLIENT_CONTROL: StreamId = StreamId(2);
const CLIENT_UNI: StreamId = StreamId(6);
const CLIENT_BIDI: StreamId = StreamId(4);
const SERVER_CONTROL: StreamId = StreamId(3);

/// A control stream with these settings.
fn control(settings: &[(u64, u64)]) -> Vec<u8> {
    let mut out = vec![0];
    Settings::new(settings).encode(&mut out);
    out
}

fn draft02() -> Vec<u8> {
    control(&[(setting::H3_DATAGRAM, 1), (setting::ENABLE_WEBTRANSPORT, 1)])
}

/// A HEADERS frame.
fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode_headers(fields, &mut out);
    out
}

const CONNECT: [(&str, &str); 6] = [
    (":method", "CONNECT"),
    (":protocol", "webtransport"),
    (":scheme", "https"),
    (":authority", "relay.example:4443"),
    (":path", "/live?x=1"),
    ("wt-available-protocols", "\"moqt-18\""),
];

/// A DATA frame with a capsule that ends the session.
fn close_capsule(code: u8, reason: &str) -> Vec<u8> {
    let mut capsule = vec![0x68, 0x43];
    varint::encode(4 + reason.len() as u64, &mut capsule);
    capsule.extend([0, 0, 0, code]);
    capsule.extend(reason.as_bytes());
    let mut out = Vec::new();
    frame::encode_head(frame_type::DATA, capsule.len(), &mut out);
    out.extend(capsule);
    out
}

/// Fields of the HEADERS frame that `data` begins with.
fn fields(data: &[u8]) -> Vec<(String, String)> {
    assert_eq!(data[0], 1, "HEADERS");
    let (length, head) = varint::decode(&data[1..]).unwrap();
    let begin = 1 + head;
    let section = data[begin..begin + usize::try_from(length).unwrap()].to_vec();
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    qpack::Fields::new(section.into(), 10_000)
        .map(|field| field.unwrap())
        .map(|field| (text(&field.name), text(&field.value)))
        .collect()
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}
