//! Scales of a plot: positions of values, and ticks.

/// A scale, which maps values to positions on an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// Linear: equal steps are equal differences.
    Linear {
        /// Value at the beginning of the axis.
        low: f64,
        /// Value at its end.
        high: f64,
    },
    /// Linear from 0, with whole numbers as ticks.
    Ranks {
        /// Value at the end of the axis.
        high: f64,
    },
    /// Logarithmic: equal steps are equal factors. Both ends are above 0.
    Log {
        /// Value at the beginning of the axis.
        low: f64,
        /// Value at its end.
        high: f64,
    },
}

impl Scale {
    /// Creates a linear scale from 0 to `high`.
    pub(crate) fn up_to(high: f64) -> Self {
        Self::Linear { low: 0.0, high }
    }

    /// Creates a linear scale from 0 to a round value of at least `high`.
    pub(crate) fn from_zero(high: f64) -> Self {
        let high = if high.is_finite() && high > 0.0 {
            high
        } else {
            1.0
        };
        let step = round_step(high / 4.0);
        Self::up_to((high / step - 1e-9).ceil() * step)
    }

    /// Creates a logarithmic scale that includes `low` and `high`. Its ends are 1, 2 or 5 times a power of ten.
    pub(crate) fn log_around(low: f64, high: f64) -> Self {
        let low = if low.is_finite() {
            low.max(0.001)
        } else {
            0.001
        };
        let high = if high.is_finite() {
            high.max(low * 1.5)
        } else {
            low * 10.0
        };
        Self::Log {
            low: round_down(low),
            high: round_up(high),
        }
    }

    /// Returns the position of `value`, from 0 at the beginning to 1 at the end. Values outside get the nearest end.
    pub(crate) fn place(self, value: f64) -> f64 {
        let place = match self {
            Self::Linear { low, high } => (value - low) / (high - low),
            Self::Ranks { high } => value / high,
            Self::Log { low, high } => (value.max(low) / low).ln() / (high / low).ln(),
        };
        if place.is_finite() {
            place.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Returns the value at position `place`.
    pub(crate) fn value(self, place: f64) -> f64 {
        match self {
            Self::Linear { low, high } => low + place * (high - low),
            Self::Ranks { high } => place * high,
            Self::Log { low, high } => low * (high / low).powf(place),
        }
    }

    /// Returns about `wanted` round values on the scale.
    pub(crate) fn ticks(self, wanted: u32) -> Vec<f64> {
        match self {
            Self::Linear { low, high } => linear_ticks(low, high, wanted, 0.0),
            Self::Ranks { high } => linear_ticks(0.0, high, wanted, 1.0),
            Self::Log { low, high } => log_ticks(low, high),
        }
    }
}

fn linear_ticks(low: f64, high: f64, wanted: u32, step_min: f64) -> Vec<f64> {
    let step = round_step((high - low) / f64::from(wanted.max(1))).max(step_min);
    let first = (low / step - 1e-9).ceil();
    (0..64)
        .map(|number| (first + f64::from(number)) * step)
        .take_while(|tick| *tick <= high + step * 1e-6)
        .collect()
}

/// Returns 1, 2 and 5 times powers of ten; only powers of ten on a scale of more than three decades.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let factors: &[f64] = if high / low > 1_500.0 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    (-6..12)
        .flat_map(|exponent| {
            factors
                .iter()
                .map(move |factor| factor * 10_f64.powi(exponent))
        })
        .filter(|tick| *tick >= low * 0.999 && *tick <= high * 1.001)
        .collect()
}

/// Returns the least 1, 2 or 5 times a power of ten that is at least `step`.
fn round_step(step: f64) -> f64 {
    round_up(step.max(1e-6))
}

fn round_up(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * decade >= value * (1.0 - 1e-9));
    decade * factor.unwrap_or(10.0)
}

fn round_down(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let factor = [5.0, 2.0]
        .into_iter()
        .find(|factor| factor * decade <= value * (1.0 + 1e-9));
    decade * factor.unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_on_round_values() {
        assert_eq!(Scale::from_zero(17.3), Scale::up_to(20.0));
        assert_eq!(Scale::from_zero(f64::NAN), Scale::from_zero(1.0));
        let Scale::Log { low, high } = Scale::log_around(0.34, 61.0) else {
            panic!("logarithmic")
        };
        assert!(
            (low - 0.2).abs() < 1e-9 && (high - 100.0).abs() < 1e-9,
            "{low} {high}"
        );
    }

    #[test]
    fn positions_are_between_0_and_1() {
        for scale in [Scale::from_zero(5.0), Scale::log_around(0.5, 50.0)] {
            for value in [
                f64::NEG_INFINITY,
                -1.0,
                0.0,
                1.0,
                1e9,
                f64::NAN,
                f64::INFINITY,
            ] {
                assert!(
                    (0.0..=1.0).contains(&scale.place(value)),
                    "{scale:?} {value}"
                );
            }
        }
    }

    #[test]
    fn ticks_lie_on_the_scale() {
        assert_eq!(Scale::from_zero(100.0).ticks(4), [0.0, 50.0, 100.0]);
        assert_eq!(
            Scale::Log {
                low: 0.5,
                high: 20.0
            }
            .ticks(4)
            .len(),
            6
        );
        assert!(
            Scale::Log {
                low: 0.001,
                high: 1e5
            }
            .ticks(4)
            .len()
                < 12
        );
    }
}
