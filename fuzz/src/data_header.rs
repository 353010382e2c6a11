//! Fuzzing of data streams and datagrams, which arrive in arbitrary pieces.

use bytes::{Bytes, BytesMut};
use weir_moqt::data::{
    FetchEncoder, FetchEntry, FetchHeader, ObjectDatagram, ObjectHeader, StreamKind, SubgroupHeader,
};
use weir_moqt::draft::Draft;
use weir_moqt::error::DecodeError;
use weir_moqt::location::Location;
use weir_moqt::parameter::GroupOrder;
use weir_moqt::property::Properties;
use weir_moqt::reader::{FetchItem, FetchReader, SubgroupItem, SubgroupReader};

const HEADER_BYTES_MAX: usize = 4096;

/// Reads `input` as a datagram, and as the kind of stream that its type determines. Checks that the items of a stream
/// do not depend on how it is split, and that decoded items survive another round of encoding. The first byte
/// determines the split and the group order of a fetch.
///
/// # Panics
/// If a check fails.
pub fn run(input: &[u8]) {
    let Some((control, data)) = input.split_first() else {
        return;
    };
    let data = Bytes::copy_from_slice(data);
    let size = usize::from(control >> 1) + 1;
    let order = if control & 1 == 0 {
        GroupOrder::Ascending
    } else {
        GroupOrder::Descending
    };
    for draft in Draft::ALL {
        datagram(draft, &data);
        match StreamKind::recognise(draft, &data) {
            Ok(StreamKind::Subgroup) => subgroup(draft, &data, size),
            Ok(StreamKind::Fetch) => fetch(draft, &data, size, order),
            Ok(StreamKind::Control | StreamKind::Padding) | Err(_) => {}
        }
    }
}

fn datagram(draft: Draft, data: &Bytes) {
    match ObjectDatagram::decode(draft, data.clone()) {
        Ok(Some(datagram)) => {
            let location = Location::new(datagram.group, datagram.object);
            check_object(&datagram.properties, location);
            let mut out = BytesMut::new();
            datagram.encode(draft, &mut out);
            assert_eq!(
                ObjectDatagram::decode(draft, out.freeze()),
                Ok(Some(datagram))
            );
        }
        Ok(None) => {}
        Err(error) => assert_ne!(error, DecodeError::Short, "a datagram does not go on"),
    }
}

fn check_object(properties: &Properties, location: Location) {
    if let Err(malformed) = properties.check_object(location) {
        assert!(!malformed.0.is_empty());
    }
}

/// The items of a stream, with the payload of each object in one piece.
#[derive(Debug, PartialEq)]
struct Stream<H, O> {
    header: Option<H>,
    objects: Vec<(O, Vec<u8>)>,
    end: Result<(), DecodeError>,
}

impl<H, O> Stream<H, O> {
    fn payload(&mut self, piece: &[u8]) {
        assert!(!piece.is_empty(), "no piece is empty");
        self.objects
            .last_mut()
            .expect("payload follows an object")
            .1
            .extend_from_slice(piece);
    }
}

/// Pieces of `size` bytes.
fn pieces(data: &Bytes, size: usize) -> impl Iterator<Item = Bytes> {
    let mut rest = data.clone();
    std::iter::from_fn(move || (!rest.is_empty()).then(|| rest.split_to(size.min(rest.len()))))
}

fn subgroup(draft: Draft, data: &Bytes, size: usize) {
    let whole = read_subgroup(draft, data, usize::MAX);
    assert_eq!(
        whole,
        read_subgroup(draft, data, size),
        "the pieces of a stream do not matter"
    );
    let Some(header) = whole.header else { return };

    let mut out = BytesMut::new();
    header.encode(draft, &mut out);
    let mut previous = None;
    for (object, payload) in &whole.objects {
        check_object(&object.properties, Location::new(header.group, object.id));
        object.encode_in_subgroup(previous, header.has_properties, draft, &mut out);
        out.extend_from_slice(payload);
        previous = Some(object.id);
    }
    let again = read_subgroup(draft, &out.freeze(), usize::MAX);
    assert_eq!((again.header, again.objects), (whole.header, whole.objects));
}

fn read_subgroup(draft: Draft, data: &Bytes, size: usize) -> Stream<SubgroupHeader, ObjectHeader> {
    let mut reader = SubgroupReader::new(draft, HEADER_BYTES_MAX);
    let mut stream = Stream {
        header: None,
        objects: Vec::new(),
        end: Ok(()),
    };
    for piece in pieces(data, size) {
        reader.push(piece);
        loop {
            match reader.poll() {
                Ok(Some(SubgroupItem::Header(header))) => {
                    assert!(
                        stream.header.replace(header).is_none(),
                        "one header comes first"
                    );
                }
                Ok(Some(SubgroupItem::Object(object))) => stream.objects.push((object, Vec::new())),
                Ok(Some(SubgroupItem::Payload(piece))) => stream.payload(&piece),
                Ok(None) => break,
                Err(error) => {
                    stream.end = Err(error);
                    return stream;
                }
            }
        }
    }
    stream.end = reader.fin();
    stream
}

fn fetch(draft: Draft, data: &Bytes, size: usize, order: GroupOrder) {
    let whole = read_fetch(draft, data, usize::MAX, order);
    assert_eq!(
        whole,
        read_fetch(draft, data, size, order),
        "the pieces of a stream do not matter"
    );
    let Some(header) = whole.header else { return };

    let mut out = BytesMut::new();
    header.encode(draft, &mut out);
    let mut encoder = FetchEncoder::new(draft, order);
    for (entry, payload) in &whole.objects {
        encoder.encode(entry, &mut out);
        out.extend_from_slice(payload);
    }
    let again = read_fetch(draft, &out.freeze(), usize::MAX, order);
    // The highest bit marks fills inside a session, and no peer can use up that many Request IDs.
    let id = |header: Option<FetchHeader>| header.map(|header| header.request_id << 1);
    assert_eq!(id(again.header), id(whole.header));
    assert_eq!(again.objects, whole.objects);
}

fn read_fetch(
    draft: Draft,
    data: &Bytes,
    size: usize,
    order: GroupOrder,
) -> Stream<FetchHeader, FetchEntry> {
    let mut reader = FetchReader::new(draft, HEADER_BYTES_MAX);
    let mut stream = Stream {
        header: None,
        objects: Vec::new(),
        end: Ok(()),
    };
    for piece in pieces(data, size) {
        reader.push(piece);
        loop {
            match reader.poll() {
                Ok(Some(FetchItem::Header(header))) => {
                    assert!(
                        stream.header.replace(header).is_none(),
                        "one header comes first"
                    );
                    reader.set_group_order(order);
                }
                Ok(Some(FetchItem::Entry(entry))) => stream.objects.push((entry, Vec::new())),
                Ok(Some(FetchItem::Payload(piece))) => stream.payload(&piece),
                Ok(None) => break,
                Err(error) => {
                    stream.end = Err(error);
                    return stream;
                }
            }
        }
    }
    stream.end = reader.fin();
    stream
}
