//! Splits a byte stream into its top-level boxes (ISO/IEC 14496-12 §4.2).

use bytes::{Bytes, BytesMut};

use super::IngestError;
use crate::limits::{BOX_BYTES_MAX, MDAT_BYTES_MAX};

/// One box with its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawBox {
    /// The offset of the box in the stream.
    pub(crate) offset: u64,
    pub(crate) kind: [u8; 4],
    /// The whole box.
    pub(crate) bytes: Bytes,
    /// How many of the bytes are the header.
    pub(crate) header_bytes: usize,
}

/// Splits a byte stream into boxes, from pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct BoxReader {
    waiting: BytesMut,
    /// The offset of the buffered bytes in the stream.
    offset: u64,
}

#[derive(Clone, Copy)]
struct Header {
    kind: [u8; 4],
    own_bytes: usize,
    size: u64,
}

impl BoxReader {
    /// Takes the next bytes. Poll until `None` before the next call.
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.waiting.extend_from_slice(data);
    }

    /// Returns the next complete box.
    pub(crate) fn poll(&mut self) -> Result<Option<RawBox>, IngestError> {
        let Some(header) = self.header()? else {
            return Ok(None);
        };
        let Ok(size) = usize::try_from(header.size) else {
            return Ok(None);
        };
        if self.waiting.len() < size {
            return Ok(None);
        }
        let offset = self.offset;
        self.offset += header.size;
        Ok(Some(RawBox {
            offset,
            kind: header.kind,
            bytes: self.waiting.split_to(size).freeze(),
            header_bytes: header.own_bytes,
        }))
    }

    /// Checks that the stream does not end inside a box.
    pub(crate) fn finish(&self) -> Result<(), IngestError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let waiting = self.waiting.len() as u64;
        let header = self.header()?;
        Err(IngestError::Truncated {
            offset: self.offset,
            kind: header.map(|header| name(header.kind)),
            missing: header
                .map_or(8, |header| header.size)
                .saturating_sub(waiting),
        })
    }

    /// Returns how many bytes were returned as boxes.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    fn header(&self) -> Result<Option<Header>, IngestError> {
        let Some((short, rest)) = self.waiting.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let Some((kind, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let short = u64::from(u32::from_be_bytes(*short));
        let (header_bytes, size) = if short == 1 {
            match rest.first_chunk::<8>() {
                Some(long) => (16, u64::from_be_bytes(*long)),
                None => return Ok(None),
            }
        } else {
            (8, short)
        };
        let offset = self.offset;
        if size < header_bytes as u64 {
            let kind = name(*kind);
            return Err(IngestError::BoxSize { offset, kind, size });
        }
        let size_max = if kind == b"mdat" {
            MDAT_BYTES_MAX
        } else {
            BOX_BYTES_MAX
        };
        if size > size_max {
            let kind = name(*kind);
            return Err(IngestError::BoxTooLarge {
                offset,
                kind,
                size,
                size_max,
            });
        }
        Ok(Some(Header {
            kind: *kind,
            own_bytes: header_bytes,
            size,
        }))
    }
}

/// Returns a box's type in printable form.
pub(crate) fn name(kind: [u8; 4]) -> String {
    format!("\"{}\"", kind.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: &[u8]) -> (Vec<RawBox>, Result<(), IngestError>) {
        let mut reader = BoxReader::default();
        let mut boxes = Vec::new();
        for byte in data {
            reader.push(&[*byte]);
            match reader.poll() {
                Ok(found) => boxes.extend(found),
                Err(error) => return (boxes, Err(error)),
            }
        }
        let end = reader.finish();
        (boxes, end)
    }

    #[test]
    fn boxes_come_out_whole_with_their_places() {
        let mut data = b"\0\0\0\x0cftypabcd\0\0\0\x08free".to_vec();
        data.extend_from_slice(b"\0\0\0\x01mdat\0\0\0\0\0\0\0\x12zz");
        let (boxes, end) = read(&data);
        end.unwrap();
        let found: Vec<_> = boxes
            .iter()
            .map(|one| (one.offset, &one.kind, one.bytes.len(), one.header_bytes))
            .collect();
        assert_eq!(
            found,
            [
                (0, b"ftyp", 12, 8),
                (12, b"free", 8, 8),
                (20, b"mdat", 18, 16)
            ]
        );
    }

    #[test]
    fn sizes_are_limited_by_kind() {
        let at = |kind: &[u8; 4], size: u64| {
            let mut data = b"\0\0\0\x01".to_vec();
            data.extend_from_slice(kind);
            data.extend_from_slice(&size.to_be_bytes());
            read(&data).1.unwrap_err()
        };
        for (kind, limit) in [(b"moov", BOX_BYTES_MAX), (b"mdat", MDAT_BYTES_MAX)] {
            assert!(
                matches!(at(kind, limit), IngestError::Truncated { missing, .. } if missing == limit - 16)
            );
            let error = at(kind, limit + 1);
            assert!(matches!(error, IngestError::BoxTooLarge { size, .. } if size == limit + 1));
        }
        assert!(
            at(b"mdat", u64::MAX)
                .to_string()
                .contains("18446744073709551615")
        );
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for data in [
            &b"\0\0\0\x07mdat"[..],
            b"\0\0\0\0mdat",
            b"\0\0\0\x01mdat\0\0\0\0\0\0\0\x0f",
        ] {
            assert!(matches!(
                read(data).1,
                Err(IngestError::BoxSize { offset: 0, .. })
            ));
        }
    }

    #[test]
    fn an_end_inside_a_box_names_it() {
        let (_, end) = read(b"\0\0\0\x08free\0\0\0\x10moofxx");
        assert_eq!(
            end.unwrap_err().to_string(),
            "byte 8: the stream ends 6 bytes before the end of a box \"moof\""
        );
        let (_, end) = read(b"\0\0\0");
        assert_eq!(
            end.unwrap_err().to_string(),
            "byte 0: the stream ends 5 bytes before the end of a box"
        );
    }
}
