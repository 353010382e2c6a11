//! Contents of data streams and datagrams: headers of subgroups, objects, datagrams and fetches [moqt-18 §11].
//!
//! Encoders write a header, and the caller appends the payload, so that one payload can follow many headers. The
//! readers of [`crate::reader`] decode streams; datagrams are decoded here. Neither allocates for an object.

mod datagram;
mod fetch;
mod fields;
mod subgroup;

use bytes::BytesMut;

pub use self::datagram::ObjectDatagram;
pub use self::fetch::{FetchDecoder, FetchEncoder, FetchEntry, FetchHeader, FetchObject};
pub use self::subgroup::{ObjectHeader, SubgroupHeader, SubgroupId};
use crate::draft::Draft;
use crate::error::DecodeError;
pub use crate::kinds::{ObjectStatus, RangeEnd, StreamKind};
use crate::varint;

impl StreamKind {
    /// Returns what a stream carries that begins with the bytes of `start`. Needs at most 9 bytes, and does not consume
    /// them: the type is part of the header that the stream's reader reads.
    pub fn recognise(draft: Draft, start: &[u8]) -> Result<Self, DecodeError> {
        let (stream_type, _) = varint::decode(start).ok_or(DecodeError::Short)?;
        draft
            .stream_kind(stream_type)
            .ok_or(DecodeError::protocol("unknown stream type"))
    }
}

/// Appends the beginning of a padding stream; any number of zero bytes may follow [moqt-18 §11.5.1].
pub fn encode_padding_stream(draft: Draft, out: &mut BytesMut) {
    varint::encode(draft.padding_stream_type(), out);
}

/// Appends the beginning of a padding datagram; any number of zero bytes may follow [moqt-18 §11.5.2].
pub fn encode_padding_datagram(draft: Draft, out: &mut BytesMut) {
    varint::encode(draft.padding_datagram_type(), out);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::property::Properties;

    const DRAFT: Draft = Draft::Draft18;

    #[test]
    fn a_stream_is_recognised_by_its_first_bytes() {
        for (start, kind) in [
            (&[0x05, 0][..], StreamKind::Fetch),
            (&[0x10], StreamKind::Subgroup),
            (&[0x7D], StreamKind::Subgroup),
            (&[0xAF, 0x00, 0], StreamKind::Control),
            (&[0xF0, 0x13, 0x2B, 0x3E, 0x28], StreamKind::Padding),
        ] {
            assert_eq!(
                StreamKind::recognise(DRAFT, start),
                Ok(kind),
                "{start:02x?}"
            );
        }
        assert_eq!(StreamKind::recognise(DRAFT, &[]), Err(DecodeError::Short));
        assert_eq!(
            StreamKind::recognise(DRAFT, &[0xAF]),
            Err(DecodeError::Short)
        );
        for unknown in [0x00, 0x16, 0x7F] {
            let error = StreamKind::recognise(DRAFT, &[unknown]);
            assert!(
                matches!(error, Err(DecodeError::Invalid { .. })),
                "{unknown:02x}"
            );
        }
    }

    #[test]
    fn padding_is_recognised_and_dropped() {
        let mut out = BytesMut::new();
        encode_padding_stream(DRAFT, &mut out);
        assert_eq!(StreamKind::recognise(DRAFT, &out), Ok(StreamKind::Padding));

        let mut out = BytesMut::new();
        encode_padding_datagram(DRAFT, &mut out);
        out.extend_from_slice(&[0; 100]);
        assert_eq!(ObjectDatagram::decode(DRAFT, out.freeze()), Ok(None));
    }

    #[test]
    fn a_datagram_keeps_its_payload_where_it_lies() {
        let datagram = ObjectDatagram {
            track_alias: 1,
            group: 2,
            object: 3,
            priority: None,
            end_of_group: false,
            properties: Properties::builder().int(0x08, 1).build(),
            status: ObjectStatus::Normal,
            payload: Bytes::from_static(b"payload"),
        };
        let mut out = BytesMut::new();
        datagram.encode(DRAFT, &mut out);
        let data = out.freeze();
        let payload = data[data.len() - 7..].as_ptr();
        let decoded = ObjectDatagram::decode(DRAFT, data)
            .expect("a datagram")
            .expect("an object");
        assert_eq!(decoded, datagram);
        assert_eq!(decoded.payload.as_ptr(), payload);
    }

    #[test]
    fn an_entry_that_is_cut_leaves_its_bytes() {
        let mut data = Bytes::from_static(&[0x1C, 7]);
        let mut decoder = FetchDecoder::new(DRAFT, crate::parameter::GroupOrder::Ascending);
        assert_eq!(decoder.decode(&mut data), Err(DecodeError::Short));
        assert_eq!(&data[..], [0x1C, 7]);
    }
}
