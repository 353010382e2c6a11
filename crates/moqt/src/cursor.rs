//! Reading of fields from the front of a byte slice, which records how many bytes are missing.

use bytes::Bytes;

use crate::error::DecodeError;
use crate::varint;

/// A position in `data` that advances with each field read.
///
/// If a field is incomplete, the position stays before it and [`Cursor::wanted`] holds the least number of bytes that
/// `data` needs. A reader of a stream thus never takes more than the header that it waits for.
pub(crate) struct Cursor<'a> {
    data: &'a Bytes,
    at: usize,
    wanted: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(crate) const fn new(data: &'a Bytes) -> Self {
        Self {
            data,
            at: 0,
            wanted: 0,
        }
    }

    /// Returns the number of bytes read.
    #[inline]
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Returns the least length that `data` needs, after a read returned [`DecodeError::Short`].
    pub(crate) const fn wanted(&self) -> usize {
        self.wanted
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.data.len()
    }

    #[inline]
    pub(crate) fn uint8(&mut self) -> Result<u8, DecodeError> {
        let Some(byte) = self.data.get(self.at) else {
            return Err(self.short(1));
        };
        self.at += 1;
        Ok(*byte)
    }

    pub(crate) fn uint16(&mut self) -> Result<u16, DecodeError> {
        let Some(bytes) = self.data.get(self.at..).and_then(<[u8]>::first_chunk) else {
            return Err(self.short(2));
        };
        self.at += 2;
        Ok(u16::from_be_bytes(*bytes))
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        let rest = self.data.get(self.at..).unwrap_or_default();
        let Some((value, len)) = varint::decode(rest) else {
            let len = rest
                .first()
                .map_or(1, |first| varint::len_from_first(*first));
            return Err(self.short(len as u64));
        };
        self.at += len;
        Ok(value)
    }

    /// Reads the next `len` bytes, sharing the buffer.
    pub(crate) fn take(&mut self, len: u64) -> Result<Bytes, DecodeError> {
        let left = self.data.len() - self.at;
        let Some(len) = usize::try_from(len).ok().filter(|len| *len <= left) else {
            return Err(self.short(len));
        };
        let taken = self.data.slice(self.at..self.at + len);
        self.at += len;
        Ok(taken)
    }

    /// Reads all remaining bytes, sharing the buffer.
    pub(crate) fn rest(&mut self) -> Bytes {
        let rest = self.data.slice(self.at..);
        self.at = self.data.len();
        rest
    }

    fn short(&mut self, len: u64) -> DecodeError {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.wanted = self.at.saturating_add(len);
        DecodeError::Short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_field_says_how_many_bytes_it_wants() {
        let data = Bytes::from_static(&[7, 0xc0, 0x01]);
        let mut cursor = Cursor::new(&data);
        assert_eq!(cursor.varint(), Ok(7));
        assert_eq!(cursor.varint(), Err(DecodeError::Short));
        assert_eq!((cursor.at(), cursor.wanted()), (1, 4));
        assert_eq!(cursor.take(3), Err(DecodeError::Short));
        assert_eq!(cursor.wanted(), 4);
        assert_eq!(cursor.take(u64::MAX), Err(DecodeError::Short));
        assert_eq!(cursor.wanted(), usize::MAX);
        assert_eq!(cursor.uint16(), Ok(0xc001));
        assert!(cursor.is_empty());
        assert_eq!(cursor.uint16(), Err(DecodeError::Short));
        assert_eq!(cursor.wanted(), 5);
        assert_eq!(cursor.uint8(), Err(DecodeError::Short));
        assert_eq!(cursor.wanted(), 4);
    }
}
