//! Runs the golden vectors of `vectors/moqt/draft18`, whose format `vectors/README.md` describes.

#[path = "wire/json.rs"]
mod json;

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use weir_moqt::data::{FetchEncoder, ObjectDatagram};
use weir_moqt::draft::Draft;
use weir_moqt::error::DecodeError;
use weir_moqt::message::{MESSAGE_BYTES_MAX, Message};
use weir_moqt::name::{FullTrackName, Namespace, TrackName};
use weir_moqt::parameter::GroupOrder;
use weir_moqt::reader::{FetchItem, FetchReader, MessageReader, SubgroupItem, SubgroupReader};
use weir_moqt::varint;

const DRAFT: Draft = Draft::Draft18;
const HEADER_BYTES_MAX: usize = 1 << 20;

struct Vector(Value);

impl Vector {
    fn load(file: &str) -> Vec<Self> {
        let path = format!(
            "{}/../../vectors/moqt/draft18/{file}",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = std::fs::read_to_string(path).expect("the file is in the repository");
        let file: Value = serde_json::from_str(&text).expect("the file is JSON");
        let vectors = file["vectors"]
            .as_array()
            .expect("a list of vectors")
            .clone();
        assert!(!vectors.is_empty());
        vectors.into_iter().map(Self).collect()
    }

    fn name(&self) -> &str {
        self.0["name"].as_str().expect("a vector has a name")
    }

    fn bytes(&self) -> Bytes {
        json::unhex(self.0["hex"].as_str().expect("a vector has bytes")).into()
    }

    fn is_canonical(&self) -> bool {
        self.0["canonical"] != json!(false)
    }

    /// Compares a decoded value with the value under `key`, or with the expected error.
    fn check(&self, key: &str, decoded: Result<&Value, DecodeError>) {
        match decoded {
            Ok(value) => assert_eq!(value, &self.0[key], "{}", self.name()),
            Err(DecodeError::Short) => panic!("{}: still short at the end", self.name()),
            Err(DecodeError::Invalid { code, reason }) => {
                let expected = &self.0["error"];
                assert_eq!(
                    &json!(code.to_string()),
                    expected,
                    "{}: {reason}",
                    self.name()
                );
            }
        }
    }

    fn check_encoded(&self, encoded: &[u8]) {
        if self.is_canonical() {
            assert_eq!(
                json::hex(encoded),
                self.0["hex"].as_str().expect("a vector has bytes"),
                "{}",
                self.name()
            );
        }
    }
}

/// Returns all ways to split the bytes: whole, single bytes, and every cut in two.
fn splits(bytes: &Bytes) -> Vec<Vec<Bytes>> {
    let single = (0..bytes.len()).map(|at| bytes.slice(at..=at)).collect();
    let mut all = vec![vec![bytes.clone()], single];
    if bytes.len() < 300 {
        all.extend((1..bytes.len()).map(|at| vec![bytes.slice(..at), bytes.slice(at..)]));
    }
    all
}

#[test]
fn integers() {
    for vector in Vector::load("varint.json") {
        let bytes = vector.bytes();
        let Some((value, len)) = varint::decode(&bytes) else {
            assert_eq!(vector.0["error"], "short", "{}", vector.name());
            continue;
        };
        assert_eq!(
            json!(value.to_string()),
            vector.0["value"],
            "{}",
            vector.name()
        );
        assert_eq!(len, bytes.len(), "{}", vector.name());
        let mut out = BytesMut::new();
        varint::encode(value, &mut out);
        vector.check_encoded(&out);
    }
}

#[test]
fn names() {
    for vector in Vector::load("names.json") {
        let text = vector.0["text"].as_str().unwrap();
        let Ok(track) = text.parse::<FullTrackName>() else {
            assert_eq!(vector.0["error"], "invalid", "{}", vector.name());
            continue;
        };
        assert_eq!(
            json::namespace(&track.namespace),
            vector.0["namespace"],
            "{}",
            vector.name()
        );
        assert_eq!(
            json::hex(track.name.as_bytes()),
            vector.0["track_name"],
            "{}",
            vector.name()
        );
        assert_eq!(track.to_string(), text);

        let fields = vector.0["namespace"].as_array().unwrap();
        let fields = fields
            .iter()
            .map(|field| json::unhex(field.as_str().unwrap()));
        let name = TrackName::new(json::unhex(vector.0["track_name"].as_str().unwrap())).unwrap();
        assert_eq!(
            FullTrackName::new(Namespace::new(fields).unwrap(), name),
            Ok(track)
        );
    }
}

fn read_message(pieces: &[Bytes]) -> Result<Message, DecodeError> {
    let mut reader = MessageReader::new(DRAFT, MESSAGE_BYTES_MAX);
    let mut read = None;
    for piece in pieces {
        reader.push(piece.clone());
        while let Some(message) = reader.poll()? {
            assert!(read.is_none(), "one message in a vector");
            read = Some(message);
        }
    }
    reader.fin()?;
    Ok(read.expect("a stream that ended well had a message"))
}

#[test]
fn messages() {
    for vector in Vector::load("messages.json") {
        for pieces in splits(&vector.bytes()) {
            let message = read_message(&pieces);
            let json = message.as_ref().map(json::message);
            vector.check("message", json.as_ref().map_err(|error| **error));
        }
        if let Ok(message) = read_message(&[vector.bytes()]) {
            let mut out = BytesMut::new();
            message.encode(DRAFT, &mut out).unwrap();
            vector.check_encoded(&out);
            assert_eq!(
                read_message(&[out.freeze()]),
                Ok(message),
                "{}",
                vector.name()
            );
        }
    }
}

#[test]
fn datagrams() {
    for vector in Vector::load("datagram.json") {
        let decoded = ObjectDatagram::decode(DRAFT, vector.bytes());
        let json = match &decoded {
            Ok(Some(datagram)) => Ok(json::datagram(datagram)),
            Ok(None) => Ok(json!("padding")),
            Err(error) => Err(*error),
        };
        vector.check("datagram", json.as_ref().map_err(|error| *error));
        if let Ok(Some(datagram)) = decoded {
            let mut out = BytesMut::new();
            datagram.encode(DRAFT, &mut out);
            vector.check_encoded(&out);
            assert_eq!(
                ObjectDatagram::decode(DRAFT, out.freeze()),
                Ok(Some(datagram))
            );
        }
    }
}

/// Adds a piece of payload to the one before it.
fn push_payload(items: &mut Vec<Value>, piece: &[u8]) {
    let piece = json::hex(piece);
    if let Some(Value::String(payload)) = items.last_mut().and_then(|item| item.get_mut("payload"))
    {
        payload.push_str(&piece);
    } else {
        items.push(json!({"payload": piece}));
    }
}

/// Returns the items of a stream, and the stream encoded again.
fn read_subgroup(pieces: &[Bytes]) -> Result<(Value, BytesMut), DecodeError> {
    let mut reader = SubgroupReader::new(DRAFT, HEADER_BYTES_MAX);
    let mut items = Vec::new();
    let mut out = BytesMut::new();
    let (mut has_properties, mut previous) = (false, None);
    for piece in pieces {
        reader.push(piece.clone());
        while let Some(item) = reader.poll()? {
            match item {
                SubgroupItem::Header(header) => {
                    has_properties = header.has_properties;
                    header.encode(DRAFT, &mut out);
                    items.push(json::subgroup_header(&header));
                }
                SubgroupItem::Object(object) => {
                    object.encode_in_subgroup(previous, has_properties, DRAFT, &mut out);
                    previous = Some(object.id);
                    items.push(json::object(&object));
                }
                SubgroupItem::Payload(piece) => {
                    out.extend_from_slice(&piece);
                    push_payload(&mut items, &piece);
                }
            }
        }
    }
    reader.fin()?;
    Ok((items.into(), out))
}

#[test]
fn subgroups() {
    for vector in Vector::load("subgroup.json") {
        for pieces in splits(&vector.bytes()) {
            let read = read_subgroup(&pieces);
            let items = read.as_ref().map(|(items, _)| items);
            vector.check("items", items.map_err(|error| *error));
            if let Ok((_, encoded)) = read {
                vector.check_encoded(&encoded);
            }
        }
    }
}

/// Returns the items of a stream, and the stream encoded again.
fn read_fetch(order: GroupOrder, pieces: &[Bytes]) -> Result<(Value, BytesMut), DecodeError> {
    let mut reader = FetchReader::new(DRAFT, HEADER_BYTES_MAX);
    let mut encoder = FetchEncoder::new(DRAFT, order);
    let mut items = Vec::new();
    let mut out = BytesMut::new();
    for piece in pieces {
        reader.push(piece.clone());
        while let Some(item) = reader.poll()? {
            match item {
                FetchItem::Header(header) => {
                    reader.set_group_order(order);
                    header.encode(DRAFT, &mut out);
                    let request_id = header.request_id.to_string();
                    items.push(json!({"header": {"request_id": request_id}}));
                }
                FetchItem::Entry(entry) => {
                    encoder.encode(&entry, &mut out);
                    items.push(json::fetch_entry(&entry));
                }
                FetchItem::Payload(piece) => {
                    out.extend_from_slice(&piece);
                    push_payload(&mut items, &piece);
                }
            }
        }
    }
    reader.fin()?;
    Ok((items.into(), out))
}

#[test]
fn fetches() {
    for vector in Vector::load("fetch.json") {
        let order = match vector.0["order"].as_str() {
            Some("ascending") => GroupOrder::Ascending,
            Some("descending") => GroupOrder::Descending,
            other => panic!("{}: order {other:?}", vector.name()),
        };
        for pieces in splits(&vector.bytes()) {
            let read = read_fetch(order, &pieces);
            let items = read.as_ref().map(|(items, _)| items);
            vector.check("items", items.map_err(|error| *error));
            if let Ok((_, encoded)) = read {
                vector.check_encoded(&encoded);
            }
        }
    }
}
