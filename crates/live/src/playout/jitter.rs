//! How much is buffered before playing begins.

use std::collections::VecDeque;

/// How the target of the jitter buffer is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffering {
    /// Always this much media, in microseconds.
    Fixed(i64),
    /// As much as the arrival of frames varied lately, within bounds in microseconds.
    Adaptive {
        /// At least this much.
        min_us: i64,
        /// At most this much.
        max_us: i64,
    },
}

/// The target of the jitter buffer.
#[derive(Clone, Debug)]
pub struct JitterTarget {
    buffering: Buffering,
    /// Local time of arrival, and by how much it was later than the decode time.
    transits: VecDeque<(i64, i64)>,
}

impl JitterTarget {
    /// A target before the first frame.
    pub fn new(buffering: Buffering) -> Self {
        Self {
            buffering,
            transits: VecDeque::new(),
        }
    }

    /// A frame with this decode time has arrived.
    pub fn on_arrival(&mut self, now_us: i64, decode_us: i64) {
        if matches!(self.buffering, Buffering::Fixed(_)) {
            return;
        }
        self.transits.push_back((now_us, now_us - decode_us));
        while let Some((at, _)) = self.transits.front()
            && (now_us - at > WINDOW_US || self.transits.len() > TRANSITS_MAX)
        {
            self.transits.pop_front();
        }
    }

    /// How much media is to be buffered, in microseconds.
    pub fn target_us(&self) -> i64 {
        match self.buffering {
            Buffering::Fixed(target_us) => target_us,
            Buffering::Adaptive { min_us, max_us } => {
                let transits = self.transits.iter().map(|(_, transit)| *transit);
                let (quickest, slowest) = (transits.clone().min(), transits.max());
                let spread = slowest.unwrap_or(0) - quickest.unwrap_or(0);
                spread.max(min_us).min(max_us)
            }
        }
    }
}

/// What "lately" means.
const WINDOW_US: i64 = 2_000_000;
/// Arrivals remembered; the oldest is forgotten beyond.
const TRANSITS_MAX: usize = 1024;
