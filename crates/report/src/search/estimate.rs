//! Where the limit lies by all probes together, with what is known of it.
//!
//! A relay near its limit holds by chance. The model: at load *x* it holds with the probability
//! 1 / (1 + (x / T)^(1/s)), T the limit and s the width of the grey zone, both unknown. Every pair of a grid is
//! weighed by how well it explains the probes; the interval leaves 2.5 % of the weight out at each end. Before the
//! probes, limits are alike on a logarithmic scale, and so are the widths.

use super::{Interval, Probe, ProbeOutcome};

/// The interval of 95 %; none unless some probe held and some broke.
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

/// How probable the probes are, given limit and width.
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

/// How far beyond the probes the limit may lie: a factor of two.
const MARGIN: f64 = std::f64::consts::LN_2;
/// Steps of the limit's grid: below a per cent each for a search over two powers of ten.
const STEPS: u32 = 2000;
/// Widths of the grey zone, as shares of the limit.
const WIDTHS: [f64; 6] = [0.003, 0.01, 0.02, 0.05, 0.1, 0.2];
/// Chance that a probe comes out wrong for a reason that has nothing to do with the load.
const LAPSE: f64 = 0.01;
