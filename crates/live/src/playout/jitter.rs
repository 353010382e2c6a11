//! How much is buffered before playing begins.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How much a viewer wants to be buffered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BufferChoice {
    /// What the way of delivery says.
    #[default]
    Strategy,
    /// What arrivals need, between 40 and 400 ms.
    Adaptive,
    /// This much media.
    Fixed(Duration),
}

impl BufferChoice {
    /// How the target of the jitter buffer is found for this choice; `strategy` is what the strategy wants.
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

    /// Reads `adaptive`, `strategy`, or milliseconds of at most five digits.
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

/// A text that does not say how much is to be buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected adaptive, strategy, or milliseconds from 0 to 99999")]
pub struct BufferChoiceError;

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

/// Where the target adapts itself.
const ADAPTIVE: Buffering = Buffering::Adaptive {
    min_us: 40_000,
    max_us: 400_000,
};
/// Digits of the milliseconds that may be wanted.
const MILLISECONDS_DIGITS_MAX: usize = 5;
/// What "lately" means.
const WINDOW_US: i64 = 2_000_000;
/// Arrivals remembered; the oldest is forgotten beyond.
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
