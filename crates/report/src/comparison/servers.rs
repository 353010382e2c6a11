//! Comparisons of HTTP/3 servers: for each scenario, the figures of every run and their medians.

mod page;
#[cfg(test)]
mod tests;
mod text;

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

pub use self::page::page;
pub use self::text::{markdown, table};
use super::{Median, Row, by_cost, most_frequent, ranked, with_version};
use crate::http3::{Limit, Report, Server};
use crate::search::STOLEN_PERCENT_MAX;
use crate::statistics::float;

/// Version of the comparison's form. It grows whenever a field is changed or removed.
pub const COMPARISON: u32 = 2;

/// A comparison of HTTP/3 servers in one or more scenarios.
pub type Comparison = super::Comparison<Servers>;

/// The servers of a comparison, and their figures in each scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Servers {
    /// The machine and its network: names of parts, and what they are.
    pub testbed: Vec<(String, String)>,
    /// The servers, in the order of the file.
    pub servers: Vec<Contender>,
    /// The scenarios, in the order of the file.
    pub scenarios: Vec<Scenario>,
}

/// A server of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contender {
    /// Name in the file.
    pub name: String,
    /// Version; empty if not known.
    pub version: String,
    /// A remark for readers.
    pub note: Option<String>,
}

/// A kind of load, and the figures of all servers under it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name in the file.
    pub name: String,
    /// The load in words.
    pub load: String,
    /// The servers, lowest CPU time per request first.
    pub standings: Vec<Standing>,
}

/// The runs of one server in one scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name of the server in the file.
    pub server: String,
    /// The runs.
    pub runs: Vec<RunFigures>,
    /// Why runs are missing, or what went wrong in them.
    pub problems: Vec<String>,
}

/// The figures of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFigures {
    /// Successful requests per second.
    pub requests_per_second: f64,
    /// CPU time of the server per successful request, in µs.
    pub cpu_us_per_request: Option<f64>,
    /// CPU load of the server, in per cent of all cores that it can use, without stolen time.
    pub server_percent: Option<f64>,
    /// CPU load of the client's busiest thread; 100 is one core without stolen time.
    pub client_percent: f64,
    /// CPU time of the client per successful request, in µs.
    pub client_us_per_request: Option<f64>,
    /// The limit of the requests per second.
    pub limit: Limit,
    /// Connections of all threads of the client together.
    pub connections: u64,
    /// 99th percentile of latency.
    pub latency_p99_ms: Option<f64>,
    /// Median duration of handshakes.
    pub handshake_p50_ms: Option<f64>,
    /// Successful requests.
    pub successes: u64,
    /// Failed requests, and failed connections.
    pub failed: u64,
    /// Packets that this machine received and dropped because a UDP receive buffer was full.
    pub receive_errors: u64,
    /// CPU time that the hypervisor gave to others, in per cent of the time of the server's or the client's cores, whichever
    /// lost more.
    pub stolen_percent: Option<f64>,
}

/// The figures of one server in one scenario: medians over its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    /// The runs.
    pub entry: Entry,
    /// Successful requests per second.
    pub requests_per_second: Option<Median>,
    /// Successful requests per second of the server's CPU time.
    pub requests_per_cpu_second: Option<Median>,
    /// CPU time of the server per successful request, in µs.
    pub cpu_us_per_request: Option<Median>,
    /// CPU load of the server, in per cent of all cores that it can use.
    pub server_percent: Option<Median>,
    /// CPU load of the client's busiest thread; 100 is one core.
    pub client_percent: Option<Median>,
    /// Connections of all threads of the client together.
    pub connections: Option<Median>,
    /// 99th percentile of latency.
    pub latency_p99_ms: Option<Median>,
    /// Runs in which the server was the limit.
    pub server_limited: u64,
    /// Failed requests and connections, over all runs.
    pub failed: u64,
    /// Packets that this machine received and dropped because a UDP receive buffer was full, over all runs.
    pub receive_errors: u64,
}

impl RunFigures {
    /// Takes the figures from a report.
    pub fn of(report: &Report) -> Self {
        let server = report.server.as_ref();
        let client = &report.client;
        Self {
            requests_per_second: report.requests.per_second,
            cpu_us_per_request: server.and_then(|server| server.cpu_us_per_request),
            server_percent: server.map(Server::utilisation_percent),
            client_percent: client.utilisation_percent(),
            client_us_per_request: client.cpu_us_per_request,
            limit: report.verdict.limit,
            connections: report.run.threads * report.run.max_concurrent_conns,
            latency_p99_ms: report.latency.overall.map(|latency| latency.p99_ms),
            handshake_p50_ms: report.connections.handshake.map(|one| one.p50_ms),
            successes: report.requests.successes,
            failed: report.requests.failed + report.connections.refused,
            receive_errors: client
                .receive_buffer_errors
                .unwrap_or(0)
                .max(client.socket_drops),
            stolen_percent: server
                .and_then(|server| server.stolen_percent)
                .into_iter()
                .chain(client.stolen_percent)
                .reduce(f64::max),
        }
    }
}

impl Comparison {
    /// Computes the medians, and orders the servers of each scenario.
    pub fn new(
        setting: Vec<String>,
        testbed: Vec<(String, String)>,
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
            contenders: Servers {
                testbed,
                servers,
                scenarios,
            },
            broken_off,
        }
    }

    /// Returns true if a request succeeded in any run.
    pub fn is_measured(&self) -> bool {
        self.entries().any(|entry| entry.successful_runs() > 0)
    }

    /// Returns true if every server has `rounds` runs with a successful request in every scenario.
    pub fn has_all_runs(&self, rounds: u32) -> bool {
        let is_whole = |entry: &Entry| entry.successful_runs() == rounds as usize;
        self.broken_off.is_none() && self.entries().all(is_whole)
    }

    /// Returns how many runs the hypervisor disturbed, in words, if it did.
    pub(super) fn disturbed_words(&self) -> Option<String> {
        let runs = || self.entries().flat_map(|entry| &entry.runs);
        let is_disturbed = |run: &&RunFigures| {
            let stolen = run.stolen_percent;
            stolen.is_some_and(|stolen| stolen >= STOLEN_PERCENT_MAX)
        };
        let count = runs().filter(is_disturbed).count();
        (count > 0).then(|| {
            format!(
                "In {count} of {} runs, the hypervisor gave {STOLEN_PERCENT_MAX} % of a core or more to others. How busy a \
                 side was is a share of the time that was left.",
                runs().count()
            )
        })
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        let standings = self
            .contenders
            .scenarios
            .iter()
            .flat_map(|one| &one.standings);
        standings.map(|standing| &standing.entry)
    }

    /// Writes the comparison as JSON, with a line feed at its end.
    pub fn to_json(&self) -> String {
        crate::form::json::pretty(self)
    }

    /// Returns the name of a server with its version.
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
        let median = |pick: fn(&RunFigures) -> Option<f64>| {
            Median::of(
                entry
                    .runs
                    .iter()
                    .filter(|run| run.successes > 0)
                    .filter_map(pick),
            )
        };
        let sum = |pick: fn(&RunFigures) -> u64| entry.runs.iter().map(pick).sum();
        Self {
            requests_per_second: median(|run| Some(run.requests_per_second)),
            requests_per_cpu_second: median(|run| Some(1e6 / run.cpu_us_per_request?)),
            cpu_us_per_request: median(|run| run.cpu_us_per_request),
            server_percent: median(|run| run.server_percent),
            client_percent: median(|run| Some(run.client_percent)),
            connections: median(|run| Some(float(run.connections))),
            latency_p99_ms: median(|run| run.latency_p99_ms),
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

    /// Lowest CPU time per request first; servers without a figure last.
    fn order(&self, other: &Self) -> Ordering {
        let rate = |one: &Self| one.requests_per_second.map_or(0.0, |rate| rate.median);
        by_cost(self.cpu_us_per_request, other.cpu_us_per_request)
            .then(rate(other).total_cmp(&rate(self)))
            .then_with(|| self.entry.server.cmp(&other.entry.server))
    }
}

impl Standing {
    /// Returns true if the requests per second are the server's capacity: it was the limit in every run.
    pub(super) fn is_capacity(&self) -> bool {
        self.server_limited == self.entry.runs.len() as u64
    }

    /// Returns what limited the runs, in words.
    pub(super) fn limit_words(&self) -> String {
        let runs = &self.entry.runs;
        let limits = || runs.iter().map(|run| run.limit);
        let first = match self.server_limited {
            0 => most_frequent(limits()),
            _ => Some(Limit::Server),
        };
        let Some(first) = first else {
            return "not measured".to_owned();
        };
        let rest = most_frequent(limits().filter(|limit| *limit != first));
        let count = limits().filter(|limit| *limit == first).count();
        match rest {
            None => first.words().to_owned(),
            Some(rest) => {
                format!(
                    "{} in {count} of {}, else {}",
                    first.words(),
                    runs.len(),
                    rest.words()
                )
            }
        }
    }
}
