//! The payloads of qperf (later renamed moq-bench), the older tool with published results.
//!
//! qperf sends no START. The first byte of an object says whether data or the final figures follow. Eight bytes later
//! comes the time of sending in microseconds since 1970, in the byte order of the machine, here little-endian. Only the
//! first object of the whole run is large. MOQT groups count from 1, and the final object follows the last one in its
//! group.

use bytes::{BufMut as _, BytesMut};

use crate::message::Completion;

/// The form of a run's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// As in draft-evens-moq-bench-00.
    #[default]
    Draft,
    /// As in qperf.
    Qperf,
}

/// Bytes before the content of an object of data.
pub const HEADER_BYTES: usize = 16;

/// Bytes of the final object.
pub const COMPLETE_BYTES: usize = 96;

/// An object of qperf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QperfObject {
    /// Data that was sent at that time.
    Data {
        /// Microseconds since 1970.
        sent_us: u64,
    },
    /// The final figures.
    Complete(Completion),
}

impl QperfObject {
    /// Decodes an object from its first bytes; `None` if it is neither.
    pub fn decode(head: &[u8], bytes: u64) -> Option<Self> {
        let mode = *head.first()?;
        match mode {
            RUNNING => {
                let time = number_at(head, 8)?;
                Some(Self::Data { sent_us: time })
            }
            COMPLETE if bytes == COMPLETE_BYTES as u64 => {
                let (begin, end) = (number_at(head, 16)?, number_at(head, 24)?);
                let ms = end.saturating_sub(begin) / 1000;
                Some(Self::Complete(Completion {
                    // The count in the object includes the final object.
                    objects_sent: number_at(head, 32)?.checked_sub(1)?,
                    groups_sent: 0,
                    total_duration_ms: u32::try_from(ms).unwrap_or(u32::MAX),
                }))
            }
            _ => None,
        }
    }
}

/// Appends an object of `size` bytes, at least [`HEADER_BYTES`], sent at `sent_us`.
pub fn write_data(sent_us: u64, content: &[u8], object: &mut BytesMut) {
    write_header(RUNNING, sent_us, object);
    object.put_slice(content);
}

/// Appends the final object.
pub fn write_complete(sent_us: u64, completion: &Completion, bytes: u64, object: &mut BytesMut) {
    write_header(COMPLETE, sent_us, object);
    let duration_us = u64::from(completion.total_duration_ms) * 1000;
    object.put_u64_le(sent_us.saturating_sub(duration_us));
    object.put_u64_le(sent_us);
    object.put_u64_le(completion.objects_sent.saturating_add(1));
    // Objects dropped.
    object.put_u64_le(0);
    object.put_u64_le(bytes.saturating_add(COMPLETE_BYTES as u64));
    // Bit rates, and the samples behind them.
    object.put_bytes(0, 40);
}

fn write_header(mode: u8, sent_us: u64, object: &mut BytesMut) {
    object.put_u8(mode);
    object.put_bytes(0, 7);
    object.put_u64_le(sent_us);
}

fn number_at(head: &[u8], offset: usize) -> Option<u64> {
    let bytes = head.get(offset..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*bytes))
}

/// Returns the content byte at index `place` of an object.
pub fn content_at(place: usize) -> u8 {
    // A remainder of a division by 255 fits into a byte.
    u8::try_from(place % 255).unwrap_or(0)
}

const RUNNING: u8 = 2;
const COMPLETE: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_and_completion_come_back() {
        let mut object = BytesMut::new();
        write_data(0x0102, &[16, 17], &mut object);
        let mut expected = vec![2, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
        expected.extend([16, 17]);
        assert_eq!(object[..], expected);
        assert_eq!(
            QperfObject::decode(&object, 18),
            Some(QperfObject::Data { sent_us: 0x0102 })
        );
        let completion = Completion {
            objects_sent: 1500,
            groups_sent: 0,
            total_duration_ms: 30_000,
        };
        object.clear();
        write_complete(40_000_000, &completion, 180_000, &mut object);
        assert_eq!(object.len(), COMPLETE_BYTES);
        // Published objects and bytes, including the final object.
        assert_eq!(object[32..40], 1501u64.to_le_bytes());
        assert_eq!(object[48..56], 180_096u64.to_le_bytes());
        assert_eq!(
            QperfObject::decode(&object, 96),
            Some(QperfObject::Complete(completion))
        );
    }

    #[test]
    fn what_is_neither_is_refused() {
        for (head, bytes) in [
            (&[][..], 0),
            (&[1; 96], 96),
            (&[2; 15], 15),
            (&[3; 96], 95),
            (&[3; 39], 96),
            (&[3, 0, 0], 96),
        ] {
            assert_eq!(QperfObject::decode(head, bytes), None, "{head:?}");
        }
    }
}
