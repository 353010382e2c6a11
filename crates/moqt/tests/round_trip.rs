//! Round trips of random values through the encoders and decoders, with streams cut at arbitrary places.

#[path = "wire/strategies.rs"]
mod strategies;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use weir_moqt::data::{FetchEncoder, FetchHeader, ObjectDatagram, StreamKind};
use weir_moqt::draft::Draft;
use weir_moqt::message::{MESSAGE_BYTES_MAX, Message};
use weir_moqt::name::{FullTrackName, Namespace};
use weir_moqt::reader::{FetchItem, FetchReader, MessageReader, SubgroupItem, SubgroupReader};

const HEADER_BYTES_MAX: usize = 1 << 20;

fn draft() -> impl Strategy<Value = Draft> {
    proptest::sample::select(Draft::ALL.to_vec())
}

/// Cuts `bytes` at places chosen by `cuts`.
fn pieces(bytes: &Bytes, cuts: &[proptest::sample::Index]) -> Vec<Bytes> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut start = 0;
    let cut = |end| {
        let piece = bytes.slice(start..end);
        start = end;
        piece
    };
    ends.into_iter().map(cut).collect()
}

fn cuts() -> impl Strategy<Value = Vec<proptest::sample::Index>> {
    proptest::collection::vec(any::<proptest::sample::Index>(), 0..5)
}

fn encoded(draft: Draft, message: &Message) -> Bytes {
    let mut out = BytesMut::new();
    message
        .encode(draft, &mut out)
        .expect("the message is short enough");
    out.freeze()
}

/// Adds a piece of payload to the last of `payloads`.
fn extend(payloads: &mut [Vec<u8>], piece: &[u8]) {
    assert!(!piece.is_empty(), "no piece is empty");
    payloads
        .last_mut()
        .expect("payload follows an object")
        .extend_from_slice(piece);
}

proptest! {
    #[test]
    fn messages(
        (draft, messages) in draft().prop_flat_map(|draft| {
            (Just(draft), proptest::collection::vec(strategies::message(draft), 1..4))
        }),
        cuts in cuts(),
    ) {
        let stream: Bytes = messages.iter().flat_map(|message| encoded(draft, message)).collect::<Vec<u8>>().into();
        let mut reader = MessageReader::new(draft, MESSAGE_BYTES_MAX);
        let mut read = Vec::new();
        for piece in pieces(&stream, &cuts) {
            reader.push(piece);
            while let Some(message) = reader.poll().unwrap() {
                read.push(message);
            }
        }
        prop_assert_eq!(reader.fin(), Ok(()));
        prop_assert_eq!(read, messages);
    }

    #[test]
    fn datagrams(draft in draft(), datagram in strategies::datagram()) {
        let mut out = BytesMut::new();
        datagram.encode(draft, &mut out);
        prop_assert_eq!(ObjectDatagram::decode(draft, out.freeze()), Ok(Some(datagram)));
    }

    #[test]
    fn subgroups(
        draft in draft(),
        (header, objects) in strategies::subgroup(),
        cuts in cuts(),
    ) {
        let mut out = BytesMut::new();
        header.encode(draft, &mut out);
        prop_assert_eq!(StreamKind::recognise(draft, &out), Ok(StreamKind::Subgroup));
        let mut previous = None;
        for (object, payload) in &objects {
            object.encode_in_subgroup(previous, header.has_properties, draft, &mut out);
            out.extend_from_slice(payload);
            previous = Some(object.id);
        }

        let mut reader = SubgroupReader::new(draft, HEADER_BYTES_MAX);
        let (mut headers, mut read, mut payloads) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces(&out.freeze(), &cuts) {
            reader.push(piece);
            while let Some(item) = reader.poll().unwrap() {
                match item {
                    SubgroupItem::Header(header) => headers.push(header),
                    SubgroupItem::Object(object) => {
                        read.push(object);
                        payloads.push(Vec::new());
                    }
                    SubgroupItem::Payload(piece) => extend(&mut payloads, &piece),
                }
            }
        }
        prop_assert_eq!(reader.fin(), Ok(()));
        prop_assert_eq!(headers, vec![header]);
        let payloads = payloads.into_iter().map(Bytes::from);
        prop_assert_eq!(read.into_iter().zip(payloads).collect::<Vec<_>>(), objects);
    }

    #[test]
    fn fetches(
        (draft, (order, entries)) in draft()
            .prop_flat_map(|draft| (Just(draft), strategies::fetch(draft))),
        request_id in 0_u64..1 << 63,
        cuts in cuts(),
    ) {
        let mut out = BytesMut::new();
        FetchHeader { request_id }.encode(draft, &mut out);
        prop_assert_eq!(StreamKind::recognise(draft, &out), Ok(StreamKind::Fetch));
        let mut encoder = FetchEncoder::new(draft, order);
        for (entry, payload) in &entries {
            encoder.encode(entry, &mut out);
            out.extend_from_slice(payload);
        }

        let mut reader = FetchReader::new(draft, HEADER_BYTES_MAX);
        let (mut read, mut payloads) = (Vec::new(), Vec::new());
        for piece in pieces(&out.freeze(), &cuts) {
            reader.push(piece);
            while let Some(item) = reader.poll().unwrap() {
                match item {
                    FetchItem::Header(header) => {
                        prop_assert_eq!(header.request_id, request_id);
                        reader.set_group_order(order);
                    }
                    FetchItem::Entry(entry) => {
                        read.push(entry);
                        payloads.push(Vec::new());
                    }
                    FetchItem::Payload(piece) => extend(&mut payloads, &piece),
                }
            }
        }
        prop_assert_eq!(reader.fin(), Ok(()));
        let payloads = payloads.into_iter().map(Bytes::from);
        prop_assert_eq!(read.into_iter().zip(payloads).collect::<Vec<_>>(), entries);
    }

    #[test]
    fn names_as_text(track in strategies::track()) {
        prop_assert_eq!(track.to_string().parse::<FullTrackName>(), Ok(track.clone()));
        let namespace = track.namespace;
        prop_assert_eq!(namespace.to_string().parse::<Namespace>(), Ok(namespace.clone()));
        prop_assert_eq!(Namespace::new(namespace.fields()), Ok(namespace));
    }

    #[test]
    fn a_suffix_joins_its_prefix(prefix in strategies::namespace(), suffix in strategies::namespace()) {
        prop_assume!(prefix.fields_len() + suffix.fields_len() <= 32);
        prop_assume!(prefix.bytes_len() + suffix.bytes_len() <= 4096);
        let whole = prefix.join(&suffix).unwrap();
        prop_assert!(whole.starts_with(&prefix));
        prop_assert!(whole >= prefix);
        prop_assert_eq!(whole.suffix(&prefix), Some(suffix));
    }
}
