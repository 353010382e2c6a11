//! The cost of the relay, and the state of the load generator.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Agent;
use super::proof::Calibration;
use crate::process::{Usage, microseconds_each, percent};
use crate::service_level::JudgedClause;
use crate::statistics::{Distribution, ratio};

/// The relay: its cost, its counters and its metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    /// How the relay's process was observed.
    pub source: RelaySource,
    /// Name and version of the relay from its SETUP (`MOQT_IMPLEMENTATION`); null if it sends none.
    pub implementation: Option<String>,
    /// CPU, memory and context switches of the relay's process; null if it was not observed.
    pub cost: Option<RelayCost>,
    /// Load and memory of the relay's process in each second, ascending; empty if it was not observed.
    pub per_second: Vec<RelaySecond>,
    /// Counters that the relay keeps itself, by name, at the end of the run.
    pub counters: BTreeMap<String, u64>,
    /// Metrics that the relay exports, fetched each second, by name; empty if none were fetched.
    pub metrics: Vec<RelayMetric>,
}

/// How the relay's process was observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RelaySource {
    /// The run started the relay as a child process.
    ChildProcess {
        /// Process ID.
        pid: u32,
    },
    /// The user gave the process ID (`--relay-pid`).
    PidGiven {
        /// Process ID.
        pid: u32,
    },
    /// The user gave the program's name (`--relay-process`).
    ProcessNamed {
        /// Process ID.
        pid: u32,
    },
    /// The relay ran in virtual time, inside the generator's process. Its cost is not stated.
    Simulated,
    /// The relay's process was not observed.
    #[default]
    NotObserved,
}

/// A part of the run, in milliseconds since its start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Start of the window.
    pub from_ms: f64,
    /// End of the window.
    pub to_ms: f64,
}

/// The cost of the relay, from samples of its process by the operating system's counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RelayCost {
    /// The steady window, in which CPU time, delivered objects and context switches are counted.
    pub window: Window,
    /// CPU time in the window, user and system.
    pub cpu_seconds: f64,
    /// Objects that subscribers received in the window.
    pub objects_delivered: u64,
    /// CPU time in the window, divided by the objects delivered in it; null if none was delivered.
    pub cpu_us_per_delivered_object: Option<f64>,
    /// Mean CPU load in the window; 100 is one core.
    pub cpu_percent: f64,
    /// Resident memory before the first connection.
    pub rss_start_bytes: u64,
    /// Resident memory with all sessions connected and no object sent.
    pub rss_connected_bytes: u64,
    /// Largest resident memory in the run.
    pub rss_peak_bytes: u64,
    /// Growth of resident memory from start to connected, divided by the sessions. Null without sessions, or if the
    /// growth is below 1 KiB per session: the relay then used memory of earlier sessions again.
    pub bytes_per_session: Option<f64>,
    /// Context switches in the window because a thread had to wait.
    pub context_switches_voluntary: u64,
    /// Context switches in the window because another thread took the core.
    pub context_switches_involuntary: u64,
    /// Threads of the process at the end of the window.
    pub threads: u64,
}

/// Samples of the relay's process, from which its cost is computed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RelaySamples {
    /// Usage before the first connection.
    pub idle: Usage,
    /// Usage with all sessions connected and no object sent.
    pub connected: Usage,
    /// Time since the start of the run, and usage, at the start of the steady window.
    pub begin: (Duration, Usage),
    /// Time since the start of the run, and usage, at the end of the steady window.
    pub end: (Duration, Usage),
    /// Largest resident memory of the whole run.
    pub resident_peak_bytes: u64,
    /// Objects that subscribers received in the window.
    pub objects_delivered: u64,
    /// Connected sessions.
    pub sessions: u64,
}

impl RelayCost {
    /// Computes the cost over the steady window, and the memory per session.
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
            // Samples between these two may all be smaller.
            rss_peak_bytes: samples.resident_peak_bytes.max(idle).max(connected),
            bytes_per_session: ratio(connected.saturating_sub(idle), samples.sessions)
                .filter(|each| *each >= SESSION_BYTES_MIN),
            context_switches_voluntary: used.switches_voluntary,
            context_switches_involuntary: used.switches_involuntary,
            threads: used.threads,
        }
    }
}

/// Load and memory of the relay's process in one second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RelaySecond {
    /// Second of the run, from 0. In runs of more than 2048 s an entry covers several seconds; this is the first.
    pub second: u64,
    /// Mean CPU load in this second; 100 is one core.
    pub cpu_percent: f64,
    /// Resident memory at the end of this second.
    pub rss_bytes: u64,
    /// Context switches in this second because a thread had to wait.
    pub context_switches_voluntary: u64,
    /// Context switches in this second because another thread took the core.
    pub context_switches_involuntary: u64,
}

/// A metric that the relay exports, over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RelayMetric {
    /// Name with labels.
    pub metric: String,
    /// True for a counter, which only grows; false for a gauge.
    pub is_counter: bool,
    /// Values, ascending by time.
    pub per_second: Vec<MetricSecond>,
}

/// The value of a metric at one time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricSecond {
    /// Time since the start of the run, by the generator's clock.
    pub at_ms: f64,
    /// The value.
    pub value: f64,
}

/// The load generator: whether it kept up, and its own load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Generator {
    /// True if the generator kept up. If false, the run says nothing about the relay.
    pub healthy: bool,
    /// The parts of the load that the generator did not keep up with; empty if it kept up.
    pub reasons: Vec<String>,
    /// CPU cores that the generator's threads are bound to; empty if they are not bound.
    pub cores: Vec<u32>,
    /// Load and event-loop lag of each thread.
    pub threads: Vec<GeneratorThread>,
    /// Received packets that the kernel dropped because a receive buffer of the generator was full.
    pub socket_receive_buffer_drops: u64,
    /// Time from the planned send time of an object until the publisher gave it to the transport, over all tracks; null
    /// if nothing was published.
    pub publisher_lateness: Option<Distribution>,
    /// Time that the hypervisor took away during the run, in per cent, of the core that lost most; null if the kernel does
    /// not report it.
    pub stolen_percent: Option<f64>,
    /// Load and memory of the generator's process in each second, ascending.
    pub per_second: Vec<GeneratorSecond>,
    /// The agents that made the load, in a run over several hosts; empty if this process made it.
    pub agents: Vec<Agent>,
    /// The result of the same load against a null relay; null without `--calibrate`.
    pub calibration: Option<Calibration>,
}

/// Load and memory of the generator's process in one second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeneratorSecond {
    /// Second of the run, from 0. In runs of more than 2048 s an entry covers several seconds; this is the first.
    pub second: u64,
    /// Mean CPU load of all threads together in this second; 100 is one core.
    pub cpu_percent: f64,
    /// Resident memory at the end of this second.
    pub rss_bytes: u64,
    /// Objects received from the start of the run to the end of this second, over all subscribers.
    pub objects: u64,
}

/// A thread of the load generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeneratorThread {
    /// Name of the thread: `publishers`, `subscribers` or `clients`; ` of ` and an agent's name follow if the thread is in
    /// another process.
    pub name: String,
    /// Mean CPU load in the steady window; 100 is one core.
    pub cpu_percent: f64,
    /// Lateness of timers, 99th percentile.
    pub event_loop_lag_p99_ms: f64,
    /// Lateness of timers, maximum.
    pub event_loop_lag_max_ms: f64,
}

/// The text in place of the cost of a relay whose process was not observed.
pub(super) const NOT_OBSERVED: &str =
    "not observed: give --relay-pid or --relay-process if it runs on this machine";
/// The text in place of a memory per session that was not measured.
pub(super) const NO_SESSION_MEMORY: &str = "the relay reuses memory of earlier sessions";
/// Least growth of memory per session that counts as measured. Connections alone take more, unless the relay uses
/// memory of earlier sessions again.
const SESSION_BYTES_MIN: f64 = 1024.0;

/// Says why a run was ended early.
pub(super) fn ended_early(clauses: &[JudgedClause]) -> String {
    let clauses: Vec<String> = clauses
        .iter()
        .map(|clause| {
            let measured = clause.measured.map_or_else(String::new, |measured| {
                let unit = match clause.unit.as_str() {
                    "" => String::new(),
                    unit => format!(" {unit}"),
                };
                format!(" (so far {measured:.0}{unit})")
            });
            format!("{}{measured}", clause.text)
        })
        .collect();
    format!(
        "ended early, because it could not hold: {}",
        clauses.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_counts_in_the_steady_window_and_memory_before_it() {
        let usage = |cpu_ms, resident_bytes, switches_voluntary| Usage {
            cpu: Duration::from_millis(cpu_ms),
            resident_bytes,
            switches_voluntary,
            threads: 2,
            ..Usage::default()
        };
        let samples = RelaySamples {
            idle: usage(10, 100_000, 1),
            connected: usage(20, 500_000, 2),
            begin: (Duration::from_secs(2), usage(100, 500_000, 10)),
            end: (Duration::from_secs(6), usage(1_100, 600_000, 50)),
            resident_peak_bytes: 700_000,
            objects_delivered: 500,
            sessions: 8,
        };
        let cost = RelayCost::of(&samples);
        assert_eq!((cost.window.from_ms, cost.window.to_ms), (2e3, 6e3));
        assert_eq!((cost.cpu_seconds, cost.cpu_percent), (1.0, 25.0));
        assert_eq!(cost.cpu_us_per_delivered_object, Some(2_000.0));
        assert_eq!(cost.bytes_per_session, Some(50_000.0));
        let memory = (cost.rss_start_bytes, cost.rss_peak_bytes);
        assert_eq!(memory, (100_000, 700_000));
        assert_eq!((cost.context_switches_voluntary, cost.threads), (40, 2));
        let nothing = RelayCost::of(&RelaySamples::default());
        assert_eq!(nothing.cpu_us_per_delivered_object, None);
        assert_eq!(nothing.bytes_per_session, None);
        assert_eq!(nothing.cpu_percent.to_bits(), 0);
    }

    #[test]
    fn memory_per_session_of_a_relay_that_served_others_before_is_not_measured() {
        let per_session = |resident_bytes| {
            let usage = |resident_bytes| Usage {
                resident_bytes,
                ..Usage::default()
            };
            let samples = RelaySamples {
                idle: usage(9_000_000),
                connected: usage(resident_bytes),
                sessions: 10,
                ..RelaySamples::default()
            };
            RelayCost::of(&samples).bytes_per_session
        };
        assert_eq!(per_session(8_000_000), None);
        assert_eq!(per_session(9_000_000), None);
        assert_eq!(per_session(9_010_230), None);
        assert_eq!(per_session(9_010_240), Some(1_024.0));
    }
}
