//! Estimates the limit of a relay from all probes together.
//!
//! Near its limit, a relay holds with some probability. The model: at load *x* it holds with the probability
//! 1 / (1 + (x / T)^(1/s)). The limit T and the width s of the grey zone are unknown. Each pair on a grid of T and s is
//! weighted by the likelihood of the probes. The 95 % interval leaves out 2.5 % of the weight at each end. The prior is
//! uniform over the logarithm of T and over the widths.

use super::{Interval, Probe, ProbeOutcome};

/// Returns the 95 % interval of the limit; none unless some probes held and some broke.
pub(super) fn interval(probes: &[Probe]) -> Option<Interval> {
    let seen: Vec<(f64, bool)> = probes
        .iter()
        .filter_map(|probe| match probe.outcome {
            ProbeOutcome::Held => Some((ln(probe.load), true)),
            ProbeOutcome::Broke { .. } => Some((ln(probe.load), false)),
            ProbeOutcome::Generator { .. } => None,
        })
        .collect();
    if seen.iter().all(|(_, held)| *held) || seen.iter().all(|(_, held)| !*held) {
        return None;
    }
    let ends = seen.iter().map(|(load, _)| *load);
    let low = ends.clone().fold(f64::INFINITY, f64::min) - MARGIN;
    let high = ends.fold(f64::NEG_INFINITY, f64::max) + MARGIN;
    let limit_at = |step: u32| low + (high - low) * f64::from(step) / f64::from(STEPS);
    let weights: Vec<f64> = (0..=STEPS)
        .map(|step| {
            let limit = limit_at(step);
            WIDTHS
                .iter()
                .map(|width| likelihood(&seen, limit, *width))
                .sum()
        })
        .collect();
    let total: f64 = weights.iter().sum();
    let quantile = |share: f64| {
        let mut below = 0.0;
        let at = (0u32..).zip(&weights).find(|(_, weight)| {
            below += **weight;
            below >= share * total
        });
        limit_at(at.map_or(STEPS, |(step, _)| step)).exp()
    };
    Some(Interval {
        low: whole(quantile(0.025).floor()),
        high: whole(quantile(0.975).ceil()),
    })
}

/// Returns the likelihood of the probes for this limit and width.
fn likelihood(seen: &[(f64, bool)], limit: f64, width: f64) -> f64 {
    seen.iter()
        .map(|(load, held)| {
            let holds = 1.0 / (1.0 + ((load - limit) / width).exp());
            let holds = LAPSE + (1.0 - 2.0 * LAPSE) * holds;
            if *held { holds } else { 1.0 - holds }
        })
        .product()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "loads are positive, and saturate"
)]
fn whole(load: f64) -> u64 {
    load as u64
}

#[expect(clippy::cast_precision_loss, reason = "loads stay far below 2^53")]
fn ln(load: u64) -> f64 {
    (load.max(1) as f64).ln()
}

/// Distance of the grid's ends from the smallest and largest probed loads, as a logarithm: a factor of two.
const MARGIN: f64 = std::f64::consts::LN_2;
/// Steps of the grid of limits: each below one per cent, for a search over two powers of ten.
const STEPS: u32 = 2000;
/// Widths of the grey zone, as shares of the limit.
const WIDTHS: [f64; 6] = [0.003, 0.01, 0.02, 0.05, 0.1, 0.2];
/// Probability that a probe fails or holds for a reason other than the load.
const LAPSE: f64 = 0.01;
