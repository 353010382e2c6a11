//! Merges the frames of two layers: Algorithm 2 of the thesis.

use crate::FrameKind;
use crate::limits::REORDERED_FRAMES_MAX;

/// Puts frames in decoding order. Drops late B-frames, and holds early ones.
#[derive(Clone, Debug)]
pub struct Reorder<T> {
    target_us: i64,
    /// Frames by decode time.
    buffer: Vec<Reordered<T>>,
    /// Decode time and duration of the last released frame.
    last: Option<(i64, i64)>,
}

/// A frame, and the caller's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reordered<T> {
    /// How the frame is coded.
    pub kind: FrameKind,
    /// The decode time, in microseconds of media time.
    pub decode_us: i64,
    /// The duration, in microseconds.
    pub duration_us: i64,
    /// The caller's data.
    pub frame: T,
}

impl<T> Reorder<T> {
    /// Returns an empty buffer that releases frames while it holds more than `target_us` of media.
    pub fn new(target_us: i64) -> Self {
        Self {
            target_us,
            buffer: Vec::new(),
            last: None,
        }
    }

    /// Takes a frame. Returns it as an error if it is a late B-frame.
    pub fn push(&mut self, frame: Reordered<T>) -> Result<(), Reordered<T>> {
        let is_late = self.last.is_some_and(|(last, _)| frame.decode_us < last);
        if frame.kind == FrameKind::Bidirectional && is_late {
            return Err(frame);
        }
        let place = self
            .buffer
            .partition_point(|known| known.decode_us <= frame.decode_us);
        self.buffer.insert(place, frame);
        Ok(())
    }

    /// Returns the next frame in order, if enough media follows it.
    pub fn poll(&mut self) -> Option<Reordered<T>> {
        let is_full = self.buffer.len() > REORDERED_FRAMES_MAX;
        if !is_full && self.size_us() <= self.target_us {
            return None;
        }
        let next = self.buffer.first()?;
        let follows = self.last.is_none_or(|(last, duration)| {
            // Times were rounded to microseconds.
            (next.decode_us - last - duration).abs() <= 1
        });
        let is_base = |frame: &Reordered<T>| frame.kind != FrameKind::Bidirectional;
        // An early B-frame may precede frames of the base layer that have not arrived. A later base frame rules this
        // out.
        if !is_full && !is_base(next) && !follows && !self.buffer.iter().any(is_base) {
            return None;
        }
        let next = self.buffer.remove(0);
        self.last = Some((next.decode_us, next.duration_us));
        Some(next)
    }

    /// Ends the stream. Returns all waiting frames in order.
    pub fn finish(&mut self) -> Vec<Reordered<T>> {
        let rest = std::mem::take(&mut self.buffer);
        self.last = rest
            .last()
            .map(|one| (one.decode_us, one.duration_us))
            .or(self.last);
        rest
    }

    /// Returns how much media waits, in microseconds.
    pub fn size_us(&self) -> i64 {
        match (self.buffer.first(), self.buffer.last()) {
            (Some(oldest), Some(newest)) => newest.decode_us - oldest.decode_us,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_frames_wait_to_be_put_in_order_and_no_more() {
        for (kind, step_us) in [(FrameKind::Key, 0), (FrameKind::Bidirectional, 1000)] {
            let mut reorder = Reorder::new(100);
            reorder.last = Some((-1_000_000, 1000));
            for number in 0..=REORDERED_FRAMES_MAX {
                assert_eq!(reorder.poll(), None, "{number}");
                let frame = Reordered {
                    kind,
                    decode_us: i64::try_from(number).expect("few") * step_us,
                    duration_us: 1000,
                    frame: number,
                };
                reorder.push(frame).expect("it is in time");
            }
            assert_eq!(reorder.poll().map(|next| next.frame), Some(0));
            assert_eq!(reorder.buffer.len(), REORDERED_FRAMES_MAX);
        }
    }
}
