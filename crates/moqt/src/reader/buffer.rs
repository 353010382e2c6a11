//! The received bytes of a stream that were not yet read as headers and payload.

use std::mem;

use bytes::{Buf, Bytes, BytesMut};

use crate::cursor::Cursor;
use crate::error::{DecodeError, Violation};

/// The received bytes of a stream that were not yet read.
///
/// While a header is incomplete, its first bytes are in `partial` and `chunk` is empty. Otherwise `chunk` holds the
/// bytes that arrived last, shared with the caller.
#[derive(Debug)]
pub(super) struct ReadBuffer {
    chunk: Bytes,
    partial: BytesMut,
    /// Number of bytes that `partial` needs before the next attempt to read it.
    wanted: usize,
    header_bytes_max: usize,
    /// Number of bytes pushed so far.
    received: u64,
}

impl ReadBuffer {
    pub(super) fn new(header_bytes_max: usize) -> Self {
        Self {
            chunk: Bytes::new(),
            partial: BytesMut::new(),
            wanted: 0,
            header_bytes_max,
            received: 0,
        }
    }

    /// # Panics
    /// If the bytes pushed before were not read.
    pub(super) fn push(&mut self, data: Bytes) {
        assert!(
            self.chunk.is_empty(),
            "poll a reader to the end before the next push"
        );
        self.received += data.len() as u64;
        self.chunk = data;
    }

    /// Returns the number of bytes pushed so far.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Returns the bytes held of an incomplete header.
    pub(super) fn held(&self) -> usize {
        self.partial.len()
    }

    /// Returns the number of bytes pushed and not polled yet.
    pub(super) fn unread(&self) -> usize {
        self.chunk.len()
    }

    /// Copies what was not polled yet, so that it does not hold the packets it came in.
    pub(super) fn detach(&mut self) {
        self.chunk = Bytes::copy_from_slice(&self.chunk);
    }

    /// Returns whether no header is incomplete, so that the stream may end.
    pub(super) fn is_empty(&self) -> bool {
        self.chunk.is_empty() && self.partial.is_empty()
    }

    /// Reads a header with `read`; keeps an incomplete one and returns `None`.
    #[inline]
    pub(super) fn header<T>(
        &mut self,
        mut read: impl FnMut(&mut Cursor<'_>) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if !self.partial.is_empty() {
            return self.split_header(read);
        }
        if self.chunk.is_empty() {
            return Ok(None);
        }
        let mut cursor = Cursor::new(&self.chunk);
        let result = read(&mut cursor);
        let (at, wanted) = (cursor.at(), cursor.wanted());
        match result {
            Ok(header) => {
                self.check_limit(at)?;
                self.chunk.advance(at);
                Ok(Some(header))
            }
            Err(DecodeError::Short) => {
                self.check_limit(wanted)?;
                self.wanted = wanted;
                self.partial.extend_from_slice(&mem::take(&mut self.chunk));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns at most `left` bytes of payload, if any have arrived.
    #[inline]
    pub(super) fn payload(&mut self, left: u64) -> Option<Bytes> {
        debug_assert!(
            self.partial.is_empty(),
            "no header is read while payload is due"
        );
        if self.chunk.is_empty() || left == 0 {
            return None;
        }
        let len = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(self.chunk.len());
        Some(self.chunk.split_to(len))
    }

    /// Continues an incomplete header, taking no more bytes than it needs.
    fn split_header<T>(
        &mut self,
        mut read: impl FnMut(&mut Cursor<'_>) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        loop {
            let missing = self.wanted - self.partial.len();
            let piece = self.chunk.split_to(missing.min(self.chunk.len()));
            self.partial.extend_from_slice(&piece);
            if self.partial.len() < self.wanted {
                return Ok(None);
            }
            let joined = mem::take(&mut self.partial).freeze();
            let mut cursor = Cursor::new(&joined);
            let result = read(&mut cursor);
            let (at, wanted) = (cursor.at(), cursor.wanted());
            match result {
                Ok(header) => {
                    assert_eq!(at, joined.len(), "a header takes all the bytes it wanted");
                    return Ok(Some(header));
                }
                Err(DecodeError::Short) => {
                    assert!(wanted > joined.len(), "a short header wants more bytes");
                    self.check_limit(wanted)?;
                    self.wanted = wanted;
                    self.partial = joined
                        .try_into_mut()
                        .unwrap_or_else(|joined| BytesMut::from(&joined[..]));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn check_limit(&self, bytes: usize) -> Result<(), DecodeError> {
        if bytes > self.header_bytes_max {
            return Err(Violation::HEADER_TOO_LONG.into());
        }
        Ok(())
    }
}
