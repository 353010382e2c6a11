//! Reading fields off the front of bytes, with a memory of how many are missing.

use bytes::Bytes;

use crate::error::DecodeError;
use crate::varint;

/// A position in `data` that moves with each field read.
///
/// A field that does not fit into what is left leaves the position before it and notes in [`Cursor::wanted`] how many
/// bytes `data` needs at least, so that a reader of a stream never takes more than the header it waits for.
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

    /// The bytes read so far.
    #[inline]
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// The length `data` must have at least, after a read returned [`DecodeError::Short`].
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

    /// The next `len` bytes, sharing the buffer.
    pub(crate) fn take(&mut self, len: u64) -> Result<Bytes, DecodeError> {
        let left = self.data.len() - self.at;
        let Some(len) = usize::try_from(len).ok().filter(|len| *len <= left) else {
            return Err(self.short(len));
        };
        let taken = self.data.slice(self.at..self.at + len);
        self.at += len;
        Ok(taken)
    }

    /// All bytes that are left, sharing the buffer.
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
