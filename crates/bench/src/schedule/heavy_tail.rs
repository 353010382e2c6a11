//! Intervals and sizes with heavy tails: most are small, and few are many times the mean.
//!
//! Both follow a bounded Pareto distribution of shape 4/3, whose inverse, u^(−3/4), needs only square roots. IEEE 754 makes
//! square roots exact, so publishers and subscribers on different machines draw the same numbers.

use std::sync::Arc;

use crate::payload::split_mix;
use crate::profile::ObjectSize;

/// Objects after which intervals and sizes repeat.
pub(super) const CYCLE_OBJECTS: u64 = 1024;

/// Returns the times of `objects` objects, which span as many intervals together: from zero, in nanoseconds.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times within a cycle, far below 2^53 ns or rounded to it, and never negative"
)]
pub(super) fn offsets(objects: u64, interval_ns: u64, seed: u64) -> Arc<[u64]> {
    let mut state = seed;
    let gaps: Vec<f64> = (0..objects)
        .map(|_| tail(&mut state, INTERVAL_CHANCE_MIN))
        .collect();
    let scale = (objects * interval_ns) as f64 / gaps.iter().sum::<f64>();
    let mut passed = 0.0;
    let offset = |gap: f64| {
        let at = passed;
        passed += gap * scale;
        at as u64
    };
    gaps.into_iter().map(offset).collect()
}

/// Returns [`CYCLE_OBJECTS`] sizes from `least` to `most`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within the range of two sizes"
)]
pub(super) fn sizes(least: ObjectSize, most: ObjectSize, seed: u64) -> Arc<[ObjectSize]> {
    let mut state = !seed;
    let (least_bytes, most_bytes) = (f64::from(least.bytes()), f64::from(most.bytes()));
    let size = |_| {
        let bytes = (least_bytes * tail(&mut state, 0.0)).min(most_bytes);
        ObjectSize::new(bytes as u32).unwrap_or(most)
    };
    (0..CYCLE_OBJECTS).map(size).collect()
}

/// Draws a number of at least 1 with a mean of 4, by a chance of at least `chance_min`.
#[expect(clippy::cast_precision_loss, reason = "53 random bits are exact")]
fn tail(state: &mut u64, chance_min: f64) -> f64 {
    let bits = (split_mix(state) >> 11) + 1;
    let chance = (bits as f64 / (1_u64 << 53) as f64).max(chance_min);
    let root = chance.sqrt();
    1.0 / (root * root.sqrt())
}

/// Bounds an interval to 108 times the shortest, about 30 times the mean.
const INTERVAL_CHANCE_MIN: f64 = 1.0 / 512.0;
