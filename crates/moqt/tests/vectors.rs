//! Runs the golden vectors of `vectors/moqt`, whose format `vectors/README.md` describes. A draft has the
//! vectors of the drafts before it, except those that its own files replace or leave out.

#[path = "wire/json.rs"]
mod json;

use std::path::Path;

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

/// The drafts, each with the folders of its vectors, in the order in which they replace each other.
const DRAFTS: [(Draft, &[&str]); 5] = [
    (Draft::Draft18, &["draft18"]),
    (Draft::Draft19, &["draft18", "draft19"]),
    (Draft::Draft20, &["draft18", "draft19", "draft20"]),
    (Draft::Draft21, &["draft18", "draft19", "draft20"]),
    (
        Draft::Draft22,
        &["draft18", "draft19", "draft20", "draft22"],
    ),
];
const HEADER_BYTES_MAX: usize = 1 << 20;

struct Vector {
    draft: Draft,
    json: Value,
}

impl Vector {
    /// Returns the vectors of a file, for each draft.
    fn load(file: &str) -> Vec<Self> {
        let drafts = DRAFTS.into_iter();
        let of_draft = drafts.flat_map(|(draft, folders)| Self::load_for(draft, folders, file));
        of_draft.collect()
    }

    fn load_for(draft: Draft, folders: &[&str], file: &str) -> Vec<Self> {
        let mut vectors: Vec<Value> = Vec::new();
        for folder in folders {
            let root = env!("CARGO_MANIFEST_DIR");
            let path = format!("{root}/../../vectors/moqt/{folder}/{file}");
            if !Path::new(&path).exists() {
                continue;
            }
            let text = std::fs::read_to_string(path).expect("the file can be read");
            let own: Value = serde_json::from_str(&text).expect("the file is JSON");
            let added = own["vectors"].as_array().expect("a list of vectors");
            let absent = own["absent"].as_array().into_iter().flatten();
            let names: Vec<&Value> = added
                .iter()
                .map(|vector| &vector["name"])
                .chain(absent)
                .collect();
            vectors.retain(|vector| !names.contains(&&vector["name"]));
            vectors.extend(added.iter().cloned());
        }
        assert!(!vectors.is_empty());
        let of_draft = vectors.into_iter().map(|json| Self { draft, json });
        of_draft.collect()
    }

    fn name(&self) -> String {
        let name = self.json["name"].as_str().expect("a vector has a name");
        format!("{}: {name}", self.draft.alpn())
    }

    fn bytes(&self) -> Bytes {
        json::unhex(self.json["hex"].as_str().expect("a vector has bytes")).into()
    }

    fn is_canonical(&self) -> bool {
        self.json["canonical"] != json!(false)
    }

    /// Compares a decoded value with the value under `key`, or with the expected error.
    fn check(&self, key: &str, decoded: Result<&Value, DecodeError>) {
        match decoded {
            Ok(value) => assert_eq!(value, &self.json[key], "{}", self.name()),
            Err(DecodeError::Short) => panic!("{}: still short at the end", self.name()),
            Err(DecodeError::Invalid { code, reason, .. }) => {
                let expected = &self.json["error"];
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
                self.json["hex"].as_str().expect("a vector has bytes"),
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
            assert_eq!(vector.json["error"], "short", "{}", vector.name());
            continue;
        };
        assert_eq!(
            json!(value.to_string()),
            vector.json["value"],
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
        let text = vector.json["text"].as_str().unwrap();
        let Ok(track) = text.parse::<FullTrackName>() else {
            assert_eq!(vector.json["error"], "invalid", "{}", vector.name());
            continue;
        };
        assert_eq!(
            json::namespace(&track.namespace),
            vector.json["namespace"],
            "{}",
            vector.name()
        );
        assert_eq!(
            json::hex(track.name.as_bytes()),
            vector.json["track_name"],
            "{}",
            vector.name()
        );
        assert_eq!(track.to_string(), text);

        let fields = vector.json["namespace"].as_array().unwrap();
        let fields = fields
            .iter()
            .map(|field| json::unhex(field.as_str().unwrap()));
        let name =
            TrackName::new(json::unhex(vector.json["track_name"].as_str().unwrap())).unwrap();
        assert_eq!(
            FullTrackName::new(Namespace::new(fields).unwrap(), name),
            Ok(track)
        );
    }
}

fn read_message(draft: Draft, pieces: &[Bytes]) -> Result<Message, DecodeError> {
    let mut reader = MessageReader::new(draft, MESSAGE_BYTES_MAX);
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
            let message = read_message(vector.draft, &pieces);
            let json = message.as_ref().map(json::message);
            vector.check("message", json.as_ref().map_err(|error| **error));
        }
        if let Ok(message) = read_message(vector.draft, &[vector.bytes()]) {
            let mut out = BytesMut::new();
            message.encode(vector.draft, &mut out).unwrap();
            vector.check_encoded(&out);
            assert_eq!(
                read_message(vector.draft, &[out.freeze()]),
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
        let decoded = ObjectDatagram::decode(vector.draft, vector.bytes());
        let json = match &decoded {
            Ok(Some(datagram)) => Ok(json::datagram(datagram)),
            Ok(None) => Ok(json!("padding")),
            Err(error) => Err(*error),
        };
        vector.check("datagram", json.as_ref().map_err(|error| *error));
        if let Ok(Some(datagram)) = decoded {
            let mut out = BytesMut::new();
            datagram.encode(vector.draft, &mut out);
            vector.check_encoded(&out);
            assert_eq!(
                ObjectDatagram::decode(vector.draft, out.freeze()),
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
fn read_subgroup(draft: Draft, pieces: &[Bytes]) -> Result<(Value, BytesMut), DecodeError> {
    let mut reader = SubgroupReader::new(draft, HEADER_BYTES_MAX);
    let mut items = Vec::new();
    let mut out = BytesMut::new();
    let (mut has_properties, mut previous) = (false, None);
    for piece in pieces {
        reader.push(piece.clone());
        while let Some(item) = reader.poll()? {
            match item {
                SubgroupItem::Header(header) => {
                    has_properties = header.has_properties;
                    header.encode(draft, &mut out);
                    items.push(json::subgroup_header(&header));
                }
                SubgroupItem::Object(object) => {
                    object.encode_in_subgroup(previous, has_properties, draft, &mut out);
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
            let read = read_subgroup(vector.draft, &pieces);
            let items = read.as_ref().map(|(items, _)| items);
            vector.check("items", items.map_err(|error| *error));
            if let Ok((_, encoded)) = read {
                vector.check_encoded(&encoded);
            }
        }
    }
}

/// Returns the items of a stream, and the stream encoded again.
fn read_fetch(
    draft: Draft,
    order: GroupOrder,
    pieces: &[Bytes],
) -> Result<(Value, BytesMut), DecodeError> {
    let mut reader = FetchReader::new(draft, HEADER_BYTES_MAX);
    let mut encoder = FetchEncoder::new(draft, order);
    let mut items = Vec::new();
    let mut out = BytesMut::new();
    for piece in pieces {
        reader.push(piece.clone());
        while let Some(item) = reader.poll()? {
            match item {
                FetchItem::Header(header) => {
                    reader.set_group_order(order);
                    header.encode(draft, &mut out);
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
        let order = match vector.json["order"].as_str() {
            Some("ascending") => GroupOrder::Ascending,
            Some("descending") => GroupOrder::Descending,
            other => panic!("{}: order {other:?}", vector.name()),
        };
        for pieces in splits(&vector.bytes()) {
            let read = read_fetch(vector.draft, order, &pieces);
            let items = read.as_ref().map(|(items, _)| items);
            vector.check("items", items.map_err(|error| *error));
            if let Ok((_, encoded)) = read {
                vector.check_encoded(&encoded);
            }
        }
    }
}
