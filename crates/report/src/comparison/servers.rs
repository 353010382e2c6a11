//! Several servers side by side, scenario by scenario: what each run gave, and medians.
//!
//! It starts no server and does not choose the order of runs; the program interleaves them.

mod page;
#[cfg(test)]
mod tests;
mod text;

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

pub use self::page::page;
pub use self::text::{markdown, table};
use super::{Middle, Row, by_cost, most_frequent, ranked, with_version};
use crate::http3::{Limit, Report, Server};

/// Version of the comparison's form; it grows whenever a field changes or goes.
pub const COMPARISON: u32 = 1;

/// Servers under one load after the other.
pub type Comparison = super::Comparison<Servers>;

/// The servers of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Servers {
    /// The servers, in the order of the file.
    pub servers: Vec<Contender>,
    /// The scenarios, in the order of the file.
    pub scenarios: Vec<Scenario>,
}

/// A server that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contender {
    /// Its name in the file.
    pub name: String,
    /// Its version, as far as it is known.
    pub version: String,
    /// What a reader should know of it.
    pub note: Option<String>,
}

/// One kind of load, and how the servers did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name in the file.
    pub name: String,
    /// The load in words.
    pub load: String,
    /// The servers: who answers most per CPU second first.
    pub standings: Vec<Standing>,
}

/// What was measured of one server in one scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name in the file.
    pub server: String,
    /// Its runs.
    pub runs: Vec<RunFigures>,
    /// What went wrong with runs that are missing.
    pub problems: Vec<String>,
}

/// The figures of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFigures {
    /// Successful requests per second.
    pub requests_per_second: f64,
    /// The server's CPU time per successful request, in µs.
    pub cpu_us_per_request: Option<f64>,
    /// The server's load in per cent of what it could use.
    pub server_percent: Option<f64>,
    /// The load of the client's busiest thread; 100 is one core.
    pub client_percent: f64,
    /// The client's CPU time per successful request, in µs.
    pub client_us_per_request: Option<f64>,
    /// Who was the limit.
    pub limit: Limit,
    /// Latency, 99th percentile.
    pub latency_p99_ms: Option<f64>,
    /// Handshake, median.
    pub handshake_p50_ms: Option<f64>,
    /// Successful requests.
    pub successes: u64,
    /// Failed requests, and connections that could not be made.
    pub failed: u64,
    /// Packets lost for want of room in receive buffers.
    pub receive_errors: u64,
}

/// One server's place in a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    /// What was measured.
    pub entry: Entry,
    /// Successful requests per second.
    pub requests_per_second: Option<Middle>,
    /// Successful requests per second of the server's CPU time.
    pub requests_per_cpu_second: Option<Middle>,
    /// The server's CPU time per successful request, in µs.
    pub cpu_us_per_request: Option<Middle>,
    /// The server's load in per cent of what it could use.
    pub server_percent: Option<Middle>,
    /// The load of the client's busiest thread.
    pub client_percent: Option<Middle>,
    /// Latency, 99th percentile.
    pub latency_p99_ms: Option<Middle>,
    /// Runs in which the server was the limit.
    pub server_limited: u64,
    /// Failures, over all runs.
    pub failed: u64,
    /// Packets lost for want of room in receive buffers, over all runs.
    pub receive_errors: u64,
}

impl RunFigures {
    /// The figures of a report.
    pub fn of(report: &Report) -> Self {
        let server = report.server.as_ref();
        let client = &report.client;
        Self {
            requests_per_second: report.requests.per_second,
            cpu_us_per_request: server.and_then(|server| server.cpu_us_per_request),
            server_percent: server.map(Server::utilisation_percent),
            client_percent: client.busiest_thread_percent(),
            client_us_per_request: client.cpu_us_per_request,
            limit: report.verdict.limit,
            latency_p99_ms: report.latency.overall.map(|latency| latency.p99_ms),
            handshake_p50_ms: report.connections.handshake.map(|one| one.p50_ms),
            successes: report.requests.successes,
            failed: report.requests.failed + report.connections.refused,
            receive_errors: client
                .receive_buffer_errors
                .unwrap_or(0)
                .max(client.socket_drops),
        }
    }
}

impl Comparison {
    /// Draws the medians and puts the servers of each scenario in order.
    pub fn new(
        setting: Vec<String>,
        servers: Vec<Contender>,
        scenarios: Vec<(String, String, Vec<Entry>)>,
        broken_off: Option<String>,
    ) -> Self {
        let scenarios = scenarios
            .into_iter()
            .map(|(name, load, entries)| Scenario {
                name,
                load,
                standings: ranked(entries),
            })
            .collect();
        Self {
            comparison: COMPARISON,
            setting,
            contenders: Servers { servers, scenarios },
            broken_off,
        }
    }

    /// Whether there is any figure: a run in which something succeeded.
    pub fn is_measured(&self) -> bool {
        self.entries().any(|entry| entry.successful_runs() > 0)
    }

    /// Whether every server has a run in which something succeeded in each of `rounds`, in every scenario.
    pub fn has_all_runs(&self, rounds: u32) -> bool {
        let is_whole = |entry: &Entry| entry.successful_runs() == rounds as usize;
        self.broken_off.is_none() && self.entries().all(is_whole)
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        let standings = self
            .contenders
            .scenarios
            .iter()
            .flat_map(|one| &one.standings);
        standings.map(|standing| &standing.entry)
    }

    /// The comparison as JSON, with a line feed at its end.
    pub fn to_json(&self) -> String {
        crate::form::json::pretty(self)
    }

    /// A server's name with its version.
    pub(super) fn full_name(&self, name: &str) -> String {
        let server = self
            .contenders
            .servers
            .iter()
            .find(|server| server.name == name);
        with_version(name, server.map_or("", |server| server.version.as_str()))
    }
}

impl Entry {
    fn successful_runs(&self) -> usize {
        self.runs.iter().filter(|run| run.successes > 0).count()
    }
}

impl Row for Standing {
    type Entry = Entry;

    fn of(entry: Entry) -> Self {
        let middle = |pick: fn(&RunFigures) -> Option<f64>| {
            Middle::of(
                entry
                    .runs
                    .iter()
                    .filter(|run| run.successes > 0)
                    .filter_map(pick),
            )
        };
        let sum = |pick: fn(&RunFigures) -> u64| entry.runs.iter().map(pick).sum();
        Self {
            requests_per_second: middle(|run| Some(run.requests_per_second)),
            requests_per_cpu_second: middle(|run| Some(1e6 / run.cpu_us_per_request?)),
            cpu_us_per_request: middle(|run| run.cpu_us_per_request),
            server_percent: middle(|run| run.server_percent),
            client_percent: middle(|run| Some(run.client_percent)),
            latency_p99_ms: middle(|run| run.latency_p99_ms),
            server_limited: entry
                .runs
                .iter()
                .filter(|run| run.limit == Limit::Server)
                .count() as u64,
            failed: sum(|run| run.failed),
            receive_errors: sum(|run| run.receive_errors),
            entry,
        }
    }

    /// Who spends least per request first; who was not measured last.
    fn order(&self, other: &Self) -> Ordering {
        let rate = |one: &Self| one.requests_per_second.map_or(0.0, |rate| rate.median);
        by_cost(self.cpu_us_per_request, other.cpu_us_per_request)
            .then(rate(other).total_cmp(&rate(self)))
            .then_with(|| self.entry.server.cmp(&other.entry.server))
    }
}

impl Standing {
    /// Whether its requests per second are what it can do: it was the limit in every run.
    pub(super) fn is_own_rate(&self) -> bool {
        self.server_limited == self.entry.runs.len() as u64
    }

    /// Whose limit the runs found, in words.
    pub(super) fn limit_words(&self) -> String {
        let runs = self.entry.runs.len() as u64;
        if runs == 0 {
            return "not measured".to_owned();
        }
        if self.is_own_rate() {
            return "the server".to_owned();
        }
        let limits = self.entry.runs.iter().map(|run| run.limit);
        let most = most_frequent(limits.filter(|limit| *limit != Limit::Server));
        let most = most.map_or("", Limit::words);
        if self.server_limited == 0 {
            most.to_owned()
        } else {
            format!(
                "the server in {} of {runs}, else {most}",
                self.server_limited
            )
        }
    }
}
