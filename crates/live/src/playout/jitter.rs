//! The jitter buffer's target: how much is buffered before playing begins.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The viewer's choice of how much is buffered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BufferChoice {
    /// As the delivery strategy says.
    #[default]
    Strategy,
    /// Adapted to arrivals, between 40 and 400 ms.
    Adaptive,
    /// A fixed length of media.
    Fixed(Duration),
}

impl BufferChoice {
    /// Returns how to find the target for this choice. `strategy` is the strategy's own rule.
    pub(super) fn buffering(self, strategy: Buffering) -> Buffering {
        match self {
            Self::Adaptive => ADAPTIVE,
            Self::Strategy => strategy,
            Self::Fixed(target) => {
                Buffering::Fixed(i64::try_from(target.as_micros()).unwrap_or(i64::MAX / 4))
            }
        }
    }
}

impl fmt::Display for BufferChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Adaptive => f.write_str("adaptive"),
            Self::Strategy => f.write_str("strategy"),
            Self::Fixed(target) => write!(f, "{}", target.as_millis()),
        }
    }
}

impl FromStr for BufferChoice {
    type Err = BufferChoiceError;

    /// Parses `adaptive`, `strategy`, or milliseconds of at most five digits.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "adaptive" => Ok(Self::Adaptive),
            "strategy" => Ok(Self::Strategy),
            _ if (1..=MILLISECONDS_DIGITS_MAX).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                let milliseconds = text.parse().map_err(|_| BufferChoiceError)?;
                Ok(Self::Fixed(Duration::from_millis(milliseconds)))
            }
            _ => Err(BufferChoiceError),
        }
    }
}

/// A text that is not a buffer choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected adaptive, strategy, or milliseconds from 0 to 99999")]
pub struct BufferChoiceError;

/// How the target of the jitter buffer is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffering {
    /// A constant amount of media, in microseconds.
    Fixed(i64),
    /// As much as recent arrivals varied, within bounds in microseconds.
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
    /// Local arrival times, and arrival minus decode time.
    transits: VecDeque<(i64, i64)>,
}

impl JitterTarget {
    /// Returns a target before the first frame.
    pub fn new(buffering: Buffering) -> Self {
        Self {
            buffering,
            transits: VecDeque::new(),
        }
    }

    /// Records the arrival of a frame with this decode time.
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

    /// Returns how much media to buffer, in microseconds.
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

/// The bounds of an adaptive target.
const ADAPTIVE: Buffering = Buffering::Adaptive {
    min_us: 40_000,
    max_us: 400_000,
};
/// The most digits of a fixed number of milliseconds.
const MILLISECONDS_DIGITS_MAX: usize = 5;
/// The length of the recent past that the target adapts to.
const WINDOW_US: i64 = 2_000_000;
/// Arrivals that are kept. Beyond this, the oldest is removed.
const TRANSITS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_of_the_buffer_is_named_as_in_the_address_of_the_page() {
        let milliseconds = |count| BufferChoice::Fixed(Duration::from_millis(count));
        for (text, choice) in [
            ("adaptive", BufferChoice::Adaptive),
            ("strategy", BufferChoice::Strategy),
            ("0", milliseconds(0)),
            ("250", milliseconds(250)),
            ("99999", milliseconds(99_999)),
        ] {
            assert_eq!(text.parse(), Ok(choice));
            assert_eq!(choice.to_string(), text);
        }
        for text in ["", "100000", "-1", "+1", "1.5", "250ms", "Adaptive", "fast"] {
            assert_eq!(
                text.parse::<BufferChoice>(),
                Err(BufferChoiceError),
                "{text}"
            );
        }
    }
}
