//! The payloads of qperf (later renamed moq-bench), the older tool with published results.
//!
//! qperf sends no START. The first byte of an object says whether data or the final figures follow. Eight bytes later
//! comes the time of sending in microseconds since 1970, in the byte order of the machine, here little-endian. Only the
//! first object of the whole run is large. MOQT groups count from 1, and the final object follows the last one in its
//! group. qperf's source is the reference (Quicr/moq-bench cbbcca5, `src/publisher_track_handler.cpp`).

use std::time::Duration;

use bytes::{BufMut as _, BytesMut};

use crate::clock::nanoseconds;
use crate::message::Completion;
use crate::schedule::Schedule;

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

/// Appends an object of `bytes` bytes, at least [`HEADER_BYTES`], sent at `sent_us`.
pub fn write_data(sent_us: u64, bytes: u32, object: &mut BytesMut) {
    write_header(RUNNING, sent_us, object);
    object.extend((HEADER_BYTES..bytes as usize).map(content_at));
}

/// Appends the final object.
pub fn write_complete(sent_us: u64, totals: &Totals, object: &mut BytesMut) {
    write_header(COMPLETE, sent_us, object);
    object.put_u64_le(totals.first_us);
    object.put_u64_le(sent_us);
    // Objects and bytes include the final object.
    object.put_u64_le(totals.objects.saturating_add(1));
    object.put_u64_le(totals.dropped);
    object.put_u64_le(totals.bytes.saturating_add(COMPLETE_BYTES as u64));
    let rates = totals.rates;
    object.put_u64_le(rates.most);
    // qperf's minimum begins at zero, and stays there.
    object.put_u64_le(0);
    object.put_u64_le(rates.sum.checked_div(rates.samples.into()).unwrap_or(0));
    object.put_u32_le(rates.samples);
    object.put_bytes(0, 4);
    object.put_u64_le(rates.sum);
}

/// What the final object says of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// When the first object was sent, in microseconds since 1970.
    pub first_us: u64,
    /// Objects sent, without the final one.
    pub objects: u64,
    /// Objects that could not be sent.
    pub dropped: u64,
    /// Bytes of the objects sent.
    pub bytes: u64,
    /// The bit rates that qperf would have sampled.
    pub rates: BitRates,
}

/// Bit rates of a publisher in whole bits per second, sampled every [`SAMPLE_TIME`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BitRates {
    /// The largest sample.
    pub most: u64,
    /// The sum of all samples.
    pub sum: u64,
    /// How many.
    pub samples: u32,
}

impl BitRates {
    /// Returns the samples of a publisher that keeps to `schedule`. At the first moment, qperf only notes the bytes.
    pub fn of(schedule: &Schedule) -> Self {
        let bytes_at = |moment| schedule.bytes_of(schedule.objects_before(SAMPLE_TIME * moment));
        let sample_ns = nanoseconds(SAMPLE_TIME);
        let data_ns = schedule.planned_ns(schedule.objects() - 1) + nanoseconds(PAUSE);
        let moments = u32::try_from(data_ns / sample_ns).unwrap_or(u32::MAX);
        let samples = (1..moments).map(|moment| {
            let bytes = bytes_at(moment + 1).saturating_sub(bytes_at(moment));
            bytes.saturating_mul(8) / SAMPLE_TIME.as_secs()
        });
        samples.fold(Self::default(), |rates, sample| Self {
            most: rates.most.max(sample),
            sum: rates.sum.saturating_add(sample),
            samples: rates.samples + 1,
        })
    }
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

/// How long qperf waits before the start delay, and before the final object.
pub const PAUSE: Duration = Duration::from_millis(33);

/// Time between two samples of the bit rate (`metrics_sample_ms` in its source).
const SAMPLE_TIME: Duration = Duration::from_secs(5);
const RUNNING: u8 = 2;
const COMPLETE: u8 = 3;

#[cfg(test)]
mod tests;
