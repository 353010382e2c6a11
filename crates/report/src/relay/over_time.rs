//! The draft's Table 2 second by second, over the subscriptions of a definition.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Measurements of the steady subscriptions in one second: draft-evens-moq-bench-00 Table 2 (§5.5.1). After 512 seconds, an
/// entry covers two seconds, then four, and so on. A variance is an absolute value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgressSecond {
    /// Second of the run, from 0.
    pub second: u64,
    /// Different objects that arrived.
    pub objects: u64,
    /// Subscriptions that received any of them.
    pub subscriptions: u64,
    /// Mean time between two arrivals at a subscription; none if no second object arrived at any.
    pub receive_delta_mean_ms: Option<f64>,
    /// Longest time between two arrivals at a subscription, counted in the second of the later one.
    pub receive_delta_max_ms: Option<f64>,
    /// Mean receive variance.
    pub receive_variance_mean_ms: f64,
    /// Largest receive variance.
    pub receive_variance_max_ms: f64,
    /// Mean publisher variance, by the publisher's own times.
    pub publisher_variance_mean_ms: f64,
    /// Largest publisher variance.
    pub publisher_variance_max_ms: f64,
    /// Payload received by a subscription, averaged over those that received any.
    pub bits_per_second: f64,
}

/// Seconds of an example whose latencies are these.
#[cfg(test)]
pub(super) fn example(
    latency: &[crate::latency::LatencySecond],
    (bits_per_second, subscriptions): (f64, u64),
) -> Vec<ProgressSecond> {
    let second = |one: &crate::latency::LatencySecond| ProgressSecond {
        second: one.second,
        objects: one.objects,
        subscriptions,
        receive_delta_mean_ms: Some(20.0),
        receive_delta_max_ms: Some(20.0 + one.max_ms),
        receive_variance_mean_ms: one.p50_ms / 4.0,
        receive_variance_max_ms: one.max_ms,
        publisher_variance_mean_ms: 0.31,
        publisher_variance_max_ms: 0.94,
        bits_per_second,
    };
    latency.iter().map(second).collect()
}
