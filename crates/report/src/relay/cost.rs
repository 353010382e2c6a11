//! What the relay spent, and whether the generator kept up.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::proof::Calibration;
use crate::process::{Usage, microseconds_each, percent};
use crate::service_level::JudgedClause;
use crate::statistics::{Distribution, ratio};

/// What the relay spent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    /// Whom the figures were taken from.
    pub source: RelaySource,
    /// What the relay calls itself in its SETUP, if it does.
    pub implementation: Option<String>,
    /// Its cost; none if it was not observed.
    pub cost: Option<RelayCost>,
    /// Second by second, ascending.
    pub per_second: Vec<RelaySecond>,
    /// The relay's own counters, such as drops by their reason.
    pub counters: BTreeMap<String, u64>,
    /// Its own metrics, fetched second by second, by name; empty if it was not asked for any.
    pub metrics: Vec<RelayMetric>,
}

/// Whom the relay's figures were taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RelaySource {
    /// A relay that the run started itself.
    ChildProcess {
        /// Its process.
        pid: u32,
    },
    /// A process that the user named.
    PidGiven {
        /// Its process.
        pid: u32,
    },
    /// A process that the user named by its program.
    ProcessNamed {
        /// Its process.
        pid: u32,
    },
    /// A relay in the same process, under virtual time: it has no cost that could be stated.
    Simulated,
    /// The relay's process could not be seen.
    #[default]
    NotObserved,
}

/// A stretch of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Its beginning, since the start of the run.
    pub from_ms: f64,
    /// Its end, since the start of the run.
    pub to_ms: f64,
}

/// The relay's cost, sampled from outside on the clock of the load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RelayCost {
    /// The steady window that CPU, objects and context switches are taken from.
    pub window: Window,
    /// CPU time within the window, user and system.
    pub cpu_seconds: f64,
    /// Objects that reached subscribers within the window.
    pub objects_delivered: u64,
    /// CPU time per such object; none if there was none.
    pub cpu_us_per_delivered_object: Option<f64>,
    /// Mean load within the window; 100 is one core.
    pub cpu_percent: f64,
    /// Resident memory before the first connection.
    pub rss_start_bytes: u64,
    /// Resident memory with all sessions up and nothing sent yet.
    pub rss_connected_bytes: u64,
    /// Largest resident memory seen.
    pub rss_peak_bytes: u64,
    /// Growth from start to connected per session; none without sessions.
    pub bytes_per_session: Option<f64>,
    /// Times it gave up its core within the window.
    pub context_switches_voluntary: u64,
    /// Times its core was taken from it within the window.
    pub context_switches_involuntary: u64,
    /// Threads at the end of the window.
    pub threads: u64,
}

/// Samples of the relay's process, of which its cost is computed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RelaySamples {
    /// Before the first connection.
    pub idle: Usage,
    /// With all sessions up and nothing sent yet.
    pub connected: Usage,
    /// At the beginning of the steady window, with its time since the start of the run.
    pub begin: (Duration, Usage),
    /// At the end of the window, likewise.
    pub end: (Duration, Usage),
    /// Largest resident memory of the whole run.
    pub resident_peak_bytes: u64,
    /// Objects that reached subscribers within the window.
    pub objects_delivered: u64,
    /// Sessions that were up.
    pub sessions: u64,
}

impl RelayCost {
    /// Computes the cost over the steady window, and memory per session.
    pub fn of(samples: &RelaySamples) -> Self {
        let ((from, before), (to, after)) = (samples.begin, samples.end);
        let used = after.since(&before);
        let [idle, connected] = [samples.idle, samples.connected].map(|usage| usage.resident_bytes);
        Self {
            window: Window {
                from_ms: from.as_secs_f64() * 1e3,
                to_ms: to.as_secs_f64() * 1e3,
            },
            cpu_seconds: used.cpu.as_secs_f64(),
            objects_delivered: samples.objects_delivered,
            cpu_us_per_delivered_object: microseconds_each(used.cpu, samples.objects_delivered),
            cpu_percent: percent(used.cpu, to.saturating_sub(from)),
            rss_start_bytes: idle,
            rss_connected_bytes: connected,
            rss_peak_bytes: samples.resident_peak_bytes,
            bytes_per_session: ratio(connected.saturating_sub(idle), samples.sessions),
            context_switches_voluntary: used.switches_voluntary,
            context_switches_involuntary: used.switches_involuntary,
            threads: used.threads,
        }
    }
}

/// One sample of the relay's process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RelaySecond {
    /// Second of the run, from 0; the first of several where a run is longer than 2048 seconds.
    pub second: u64,
    /// Load within it; 100 is one core.
    pub cpu_percent: f64,
    /// Resident memory at its end.
    pub rss_bytes: u64,
    /// Times it gave up its core within the second.
    pub context_switches_voluntary: u64,
    /// Times its core was taken from it within the second.
    pub context_switches_involuntary: u64,
}

/// One of the relay's own metrics over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RelayMetric {
    /// Its name, labels included.
    pub metric: String,
    /// Whether it only grows, so that what matters is by how much.
    pub is_counter: bool,
    /// What it was, ascending by time.
    pub per_second: Vec<MetricSecond>,
}

/// A metric at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricSecond {
    /// Since the start of the run, on the clock of the load.
    pub at_ms: f64,
    /// Its value.
    pub value: f64,
}

/// Whether the load generator could be trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Generator {
    /// Whether it kept up; if not, the run says nothing about the relay.
    pub healthy: bool,
    /// What it did not keep up with; empty if it did.
    pub reasons: Vec<String>,
    /// CPU cores that it was bound to; empty if it was not.
    pub cores: Vec<u32>,
    /// Its threads.
    pub threads: Vec<GeneratorThread>,
    /// Packets that its sockets dropped for want of room in their receive buffers.
    pub socket_receive_buffer_drops: u64,
    /// How long after their planned time objects were handed to the transport, over all tracks.
    pub publisher_lateness: Option<Distribution>,
    /// Time that the hypervisor took during the run, of the core that lost most; 100 is all of its time. None where the
    /// kernel does not say it.
    pub stolen_percent: Option<f64>,
    /// The generator itself, second by second, ascending.
    pub per_second: Vec<GeneratorSecond>,
    /// The same load against a null relay; none if that was not asked for.
    pub calibration: Option<Calibration>,
}

/// One sample of the load generator's process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeneratorSecond {
    /// Second of the run, from 0; the first of several where a run is longer than 2048 seconds.
    pub second: u64,
    /// Load of all its threads within it; 100 is one core.
    pub cpu_percent: f64,
    /// Resident memory at its end.
    pub rss_bytes: u64,
    /// Objects received by its end, over all subscribers.
    pub objects: u64,
}

/// One thread of the load generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeneratorThread {
    /// Its name.
    pub name: String,
    /// Mean load; 100 is one core.
    pub cpu_percent: f64,
    /// Ninety-nine in a hundred timers fired at most this late.
    pub event_loop_lag_p99_ms: f64,
    /// The latest that a timer fired.
    pub event_loop_lag_max_ms: f64,
}

/// Why a run was ended early, in a sentence.
pub(super) fn ended_early(clauses: &[JudgedClause]) -> String {
    let clauses: Vec<String> = clauses
        .iter()
        .map(|clause| {
            let measured = clause.measured.map_or_else(String::new, |measured| {
                let unit = match clause.unit.as_str() {
                    "" => String::new(),
                    unit => format!(" {unit}"),
                };
                format!(" (by then {measured:.0}{unit})")
            });
            format!("{}{measured}", clause.text)
        })
        .collect();
    format!(
        "ended early, since it could not hold any more: {}",
        clauses.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_that_of_the_steady_window_and_memory_that_of_the_sessions() {
        let usage = |cpu_ms, resident_bytes, switches_voluntary| Usage {
            cpu: Duration::from_millis(cpu_ms),
            resident_bytes,
            switches_voluntary,
            threads: 2,
            ..Usage::default()
        };
        let samples = RelaySamples {
            idle: usage(10, 1_000, 1),
            connected: usage(20, 5_000, 2),
            begin: (Duration::from_secs(2), usage(100, 5_000, 10)),
            end: (Duration::from_secs(6), usage(1_100, 6_000, 50)),
            resident_peak_bytes: 7_000,
            objects_delivered: 500,
            sessions: 8,
        };
        let cost = RelayCost::of(&samples);
        assert_eq!((cost.window.from_ms, cost.window.to_ms), (2e3, 6e3));
        assert_eq!((cost.cpu_seconds, cost.cpu_percent), (1.0, 25.0));
        assert_eq!(cost.cpu_us_per_delivered_object, Some(2_000.0));
        assert_eq!(cost.bytes_per_session, Some(500.0));
        assert_eq!((cost.rss_start_bytes, cost.rss_peak_bytes), (1_000, 7_000));
        assert_eq!((cost.context_switches_voluntary, cost.threads), (40, 2));
        let nothing = RelayCost::of(&RelaySamples::default());
        assert_eq!(nothing.cpu_us_per_delivered_object, None);
        assert_eq!(nothing.bytes_per_session, None);
        assert_eq!(nothing.cpu_percent.to_bits(), 0);
    }
}
