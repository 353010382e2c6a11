//! The configuration of a link. Its types hold valid values only.

use std::time::Duration;

use crate::rate::Rate;

/// The longest [`Delay`], base and jitter together, and the longest time that reordering holds a packet back.
pub const DELAY_MAX: Duration = Duration::from_hours(1);

/// The configuration of a link. By default there is no limit of rate, no delay and no loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The rate at which packets leave the queue.
    pub rate: Rate,
    /// The limits of the queue.
    pub queue: Queue,
    /// The propagation delay.
    pub delay: Delay,
    /// Whether packets arrive in the order in which they were sent, even if jitter or a shorter delay would let one
    /// overtake another. Packets chosen by [`Reordering`] are exempt.
    pub keep_order: bool,
    /// The packets that are lost after the queue. They consume their share of the rate.
    pub loss: Loss,
    /// The probability that a packet arrives twice.
    pub duplication: Probability,
    /// The packets that are held back until others have passed.
    pub reordering: Reordering,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rate: Rate::Unlimited,
            queue: Queue::default(),
            delay: Delay::ZERO,
            keep_order: true,
            loss: Loss::None,
            duplication: Probability::ZERO,
            reordering: Reordering::NONE,
        }
    }
}

/// The limits of a drop-tail queue. The packet being sent does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The most bytes that may wait.
    pub bytes_max: u64,
    /// The most packets that may wait.
    pub packets_max: usize,
}

impl Default for Queue {
    /// Returns a queue of a megabyte, in any number of packets.
    fn default() -> Self {
        Self {
            bytes_max: 1_000_000,
            packets_max: 1_000_000,
        }
    }
}

/// A probability from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Probability(f64);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0.0);
    /// Always.
    pub const ONE: Self = Self(1.0);

    /// Returns a probability, which must be between 0 and 1. Differences below 2^-32 have no effect.
    pub fn new(value: f64) -> Result<Self, ConfigError> {
        if (0.0..=1.0).contains(&value) {
            Ok(Self(value))
        } else {
            Err(ConfigError::Probability { value })
        }
    }

    /// Returns the number, from 0 to 1.
    pub fn value(self) -> f64 {
        self.0
    }
}

/// The delay of packets: a base, and jitter around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    base: Duration,
    jitter: Jitter,
}

/// The deviation of a packet's delay from the base, independent for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// No deviation.
    None,
    /// Uniformly distributed up to this much in both directions.
    Uniform(Duration),
    /// Almost normally distributed with this standard deviation. The delay is never below zero.
    Normal(Duration),
}

impl Delay {
    /// No delay.
    pub const ZERO: Self = Self {
        base: Duration::ZERO,
        jitter: Jitter::None,
    };

    /// Returns the same delay for each packet, at most [`DELAY_MAX`].
    pub fn fixed(base: Duration) -> Result<Self, ConfigError> {
        Self::new(base, Jitter::None)
    }

    /// Returns a delay with jitter around it. The jitter's parameter may not exceed the base, nor their sum
    /// [`DELAY_MAX`].
    pub fn new(base: Duration, jitter: Jitter) -> Result<Self, ConfigError> {
        let spread = jitter.spread();
        if spread > base {
            return Err(ConfigError::Jitter { base, spread });
        }
        if base.saturating_add(spread) > DELAY_MAX {
            return Err(ConfigError::Delay {
                delay: base.saturating_add(spread),
            });
        }
        Ok(Self { base, jitter })
    }

    /// Returns the delay without jitter.
    pub fn base(self) -> Duration {
        self.base
    }

    /// Returns the jitter.
    pub fn jitter(self) -> Jitter {
        self.jitter
    }
}

impl Jitter {
    fn spread(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Uniform(spread) | Self::Normal(spread) => spread,
        }
    }
}

/// The packets that are lost after the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// No packet.
    None,
    /// Each packet with this probability, independently.
    Independent(Probability),
    /// In bursts.
    Burst(GilbertElliott),
}

/// The Gilbert–Elliott model of burst loss: a good and a bad state, each with its own loss.
///
/// A packet is lost with the probability of the current state. After each packet, lost or not, the state may change.
/// The link starts in the good state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Probability of changing from the good state to the bad one, after a packet.
    pub good_to_bad: Probability,
    /// Probability of changing from the bad state to the good one, after a packet.
    pub bad_to_good: Probability,
    /// Probability of loss in the good state.
    pub loss_in_good: Probability,
    /// Probability of loss in the bad state.
    pub loss_in_bad: Probability,
}

impl GilbertElliott {
    /// Returns the simple form: every packet is lost in the bad state, and none in the good one.
    ///
    /// `ratio` is the long-term share of lost packets, below 1. `burst_packets` is the mean length of a burst, at least
    /// 1 and long enough for the ratio.
    pub fn from_bursts(ratio: f64, burst_packets: f64) -> Result<Self, ConfigError> {
        // The share of time in the bad state is p / (p + r), with p the probability to enter and r to leave it. The
        // mean length of a burst is 1 / r.
        let bad_to_good = 1.0 / burst_packets;
        let good_to_bad = bad_to_good * ratio / (1.0 - ratio);
        Ok(Self {
            good_to_bad: Probability::new(good_to_bad)?,
            bad_to_good: Probability::new(bad_to_good)?,
            loss_in_good: Probability::ZERO,
            loss_in_bad: Probability::ONE,
        })
    }
}

/// The packets that are held back until others have passed them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reordering {
    probability: Probability,
    hold: Duration,
}

impl Reordering {
    /// No packet.
    pub const NONE: Self = Self {
        probability: Probability::ZERO,
        hold: Duration::ZERO,
    };

    /// Returns reordering of packets with this probability. Each is held back for `hold` beyond its delay, at most
    /// [`DELAY_MAX`].
    pub fn new(probability: Probability, hold: Duration) -> Result<Self, ConfigError> {
        if hold > DELAY_MAX {
            return Err(ConfigError::Delay { delay: hold });
        }
        Ok(Self { probability, hold })
    }

    /// Returns the probability that a packet is held back.
    pub fn probability(self) -> Probability {
        self.probability
    }

    /// Returns how long such a packet is held back.
    pub fn hold(self) -> Duration {
        self.hold
    }
}

/// Why a value is invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A probability that is not a number from 0 to 1.
    #[error("{value} is not a probability from 0 to 1")]
    Probability {
        /// The number.
        value: f64,
    },
    /// A delay longer than [`DELAY_MAX`].
    #[error("a delay of {delay:?} is longer than {DELAY_MAX:?}")]
    Delay {
        /// The delay.
        delay: Duration,
    },
    /// A jitter larger than the delay around which it varies.
    #[error("a jitter of {spread:?} is larger than its delay of {base:?}")]
    Jitter {
        /// The delay without jitter.
        base: Duration,
        /// The parameter of the jitter.
        spread: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANOSECOND: Duration = Duration::from_nanos(1);

    #[test]
    fn probabilities_lie_from_zero_to_one() {
        assert_eq!(Probability::new(0.0), Ok(Probability::ZERO));
        assert_eq!(Probability::new(1.0), Ok(Probability::ONE));
        for value in [
            -f64::MIN_POSITIVE,
            1.0 + f64::EPSILON,
            f64::INFINITY,
            f64::NAN,
        ] {
            assert!(Probability::new(value).is_err(), "{value}");
        }
    }

    #[test]
    fn delays_end_at_their_limit() {
        assert!(Delay::fixed(DELAY_MAX).is_ok());
        assert!(Delay::fixed(DELAY_MAX + NANOSECOND).is_err());
        assert!(Delay::new(DELAY_MAX / 2, Jitter::Uniform(DELAY_MAX / 2)).is_ok());
        assert!(Delay::new(DELAY_MAX / 2 + NANOSECOND, Jitter::Normal(DELAY_MAX / 2)).is_err());
        assert!(Delay::new(Duration::MAX, Jitter::Uniform(Duration::MAX)).is_err());
        assert!(Reordering::new(Probability::ONE, DELAY_MAX).is_ok());
        assert!(Reordering::new(Probability::ONE, DELAY_MAX + NANOSECOND).is_err());
    }

    #[test]
    fn jitter_is_no_larger_than_its_delay() {
        let base = Duration::from_millis(10);
        assert!(Delay::new(base, Jitter::Uniform(base)).is_ok());
        assert!(Delay::new(base, Jitter::Uniform(base + NANOSECOND)).is_err());
        assert!(Delay::new(base, Jitter::Normal(base + NANOSECOND)).is_err());
    }

    #[test]
    fn bursts_that_cannot_be_are_refused() {
        assert!(GilbertElliott::from_bursts(0.05, 4.0).is_ok());
        assert!(GilbertElliott::from_bursts(0.0, 1.0).is_ok());
        for (ratio, burst) in [
            (0.05, 0.5),
            (0.9, 2.0),
            (1.0, 4.0),
            (-0.1, 4.0),
            (0.1, f64::NAN),
        ] {
            assert!(
                GilbertElliott::from_bursts(ratio, burst).is_err(),
                "{ratio} {burst}"
            );
        }
    }
}
