//! Agents: processes on other hosts that made parts of the load.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::form::number;

/// An agent of a run over several hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Name of the agent, as its `--name` gives it.
    pub name: String,
    /// Kernel of its host.
    pub kernel: String,
    /// Model name of its CPU.
    pub cpu_model: String,
    /// CPU cores of its load.
    pub cores: Vec<u32>,
    /// True if it had publishers.
    pub publishes: bool,
    /// True if it had subscribers.
    pub subscribes: bool,
    /// Mean CPU load of all its threads together in the steady window; 100 is one core.
    pub cpu_percent: f64,
    /// Lateness of timers, 99th percentile, of its thread that was worst.
    pub event_loop_lag_p99_ms: f64,
    /// Lateness of timers, maximum, of its thread that was worst.
    pub event_loop_lag_max_ms: f64,
    /// Received packets that its kernel dropped because a receive buffer was full.
    pub socket_receive_buffer_drops: u64,
    /// Its clock minus the controller's before the run, by which its times are corrected; null if it is unknown.
    pub clock_offset_ms: Option<f64>,
    /// Largest distance of the true offset from `clock_offset_ms`, before, during and after the run; null if it is unknown.
    pub clock_error_ms: Option<f64>,
    /// Shortest round trip of a message between controller and agent; null if it is unknown.
    pub round_trip_ms: Option<f64>,
    /// Its load in each second, ascending.
    pub per_second: Vec<AgentSecond>,
}

/// The load of an agent in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSecond {
    /// Second of the run, from 0. In runs of more than 2048 s an entry covers several seconds; this is the first.
    pub second: u64,
    /// Mean CPU load of all its threads together; 100 is one core.
    pub cpu_percent: f64,
    /// Lateness of timers, 99th percentile over all its threads.
    pub event_loop_lag_p99_ms: f64,
}

impl Agent {
    /// Returns what the agent did, in a word or two.
    pub(super) fn part(&self) -> &'static str {
        match (self.publishes, self.subscribes) {
            (true, true) => "publishers, subscribers",
            (true, false) => "publishers",
            (false, true) => "subscribers",
            (false, false) => "nobody",
        }
    }

    /// Returns the offset of its clock with the bound of its error.
    pub(super) fn clock(&self) -> String {
        match (self.clock_offset_ms, self.clock_error_ms) {
            (Some(offset), Some(error)) => {
                let sign = if offset < 0.0 { "−" } else { "+" };
                format!(
                    "{sign}{} ± {} ms",
                    number::brief(offset.abs()),
                    number::brief(error)
                )
            }
            (_, _) => "unknown".to_owned(),
        }
    }

    /// Returns the agent in one line.
    pub(super) fn in_words(&self) -> String {
        format!(
            "{}: {}; CPU {} % of a core, event-loop lag p99 {}, {} dropped, clock {}",
            self.name,
            self.part(),
            number::decimal(self.cpu_percent),
            number::milliseconds(self.event_loop_lag_p99_ms),
            number::counted(self.socket_receive_buffer_drops, "packet"),
            self.clock(),
        )
    }
}

/// Adds the load of a second. If there are too many, each two are joined.
pub fn add_second(seconds: &mut Vec<AgentSecond>, next: AgentSecond) {
    if seconds.len() >= SECONDS_MAX {
        let joined = seconds.chunks(2).map(|pair| {
            let last = pair[pair.len() - 1];
            AgentSecond {
                second: pair[0].second,
                cpu_percent: pair[0].cpu_percent.midpoint(last.cpu_percent),
                event_loop_lag_p99_ms: pair[0]
                    .event_loop_lag_p99_ms
                    .max(last.event_loop_lag_p99_ms),
            }
        });
        *seconds = joined.collect();
    }
    seconds.push(next);
}

/// Entries of one agent: of a second each, until there are as many.
const SECONDS_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_told_in_a_line() {
        let agent = Agent {
            name: "host-a".to_owned(),
            subscribes: true,
            cpu_percent: 41.0,
            event_loop_lag_p99_ms: 0.5,
            clock_offset_ms: Some(-300_000.25),
            clock_error_ms: Some(0.08),
            ..Agent::default()
        };
        let line = agent.in_words();
        assert!(line.starts_with("host-a: subscribers; CPU 41"), "{line}");
        assert!(
            line.contains("clock −300") && line.contains("± 0.080 ms"),
            "{line}"
        );
        let unknown = Agent::default().in_words();
        assert!(unknown.ends_with("clock unknown"), "{unknown}");
    }

    #[test]
    fn a_long_run_keeps_its_worst_lag_in_bounded_memory() {
        let mut seconds = Vec::new();
        for second in 0..10_000 {
            let lag = if second == 77 { 90.0 } else { 1.0 };
            let next = AgentSecond {
                second,
                cpu_percent: 50.0,
                event_loop_lag_p99_ms: lag,
            };
            add_second(&mut seconds, next);
        }
        assert!(seconds.len() <= SECONDS_MAX);
        assert!(seconds.iter().any(|one| one.event_loop_lag_p99_ms > 89.0));
        assert!(seconds.is_sorted_by_key(|one| one.second));
    }
}
