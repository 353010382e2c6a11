//! The verdict on a run: what limited it. Requests per second are the server's capacity only if the server was the limit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Report, Run};
use crate::form::number;

/// The verdict on a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// The limit of the requests per second.
    pub limit: Limit,
    /// The verdict in one or two sentences, with figures.
    pub sentence: String,
}

/// The limit of the requests per second.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// No request succeeded, so nothing is known.
    #[default]
    Nothing,
    /// The server was at least 95 % busy: the requests per second are its capacity.
    Server,
    /// A thread of the load client was at least 95 % busy: the server may be able to do more.
    Client,
    /// The rate of `--rate`, which the server kept up with: no request failed, at least 99 % of those that were due were sent,
    /// and successes reached at least 95 % of the rate. The rest was on its way when the run ended.
    Rate,
    /// Not known: the rate of `--rate` was not reached, although neither server nor client was busy.
    RateMissed,
    /// Neither server nor client was busy: the number of requests in flight, or the path, was the limit.
    Neither,
    /// Not known: the server's process was not watched, it ended during the run, or the server stopped answering.
    Unknown,
}

impl Limit {
    /// Returns the limit in a word or two.
    pub fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing succeeded",
            Self::Server => "the server",
            Self::Client => "the client",
            Self::Rate => "the rate asked for",
            Self::RateMissed => "rate not reached",
            Self::Neither => "neither side",
            Self::Unknown => "not known",
        }
    }
}

impl Verdict {
    /// Judges `report`.
    pub(super) fn of(report: &Report) -> Self {
        let limit = Limit::of(report);
        Self {
            limit,
            sentence: facts(report, limit) + &advice(report, limit),
        }
    }
}

impl Limit {
    fn of(report: &Report) -> Self {
        let requests = &report.requests;
        if requests.successes == 0 {
            return Self::Nothing;
        }
        let server = report.server.as_ref();
        // The load of a process that ended is too low for the time that it ran.
        if report.has_lost_server() {
            return Self::Unknown;
        }
        if server.is_some_and(|server| server.utilisation_percent() >= BUSY_PERCENT) {
            return Self::Server;
        }
        if report.client.utilisation_percent() >= BUSY_PERCENT {
            return Self::Client;
        }
        match (report.run.rate_per_second, server) {
            (Some(rate), _) if report.has_reached(rate) => Self::Rate,
            (Some(_), _) => Self::RateMissed,
            (None, Some(_)) => Self::Neither,
            (None, None) => Self::Unknown,
        }
    }
}

impl Run {
    /// Returns the most requests that can be in flight on so many threads.
    fn requests_in_flight(&self, threads: u64) -> u64 {
        let per_connection = match self.max_requests_per_conn {
            0 => self.max_concurrent_requests,
            most => most.min(self.max_concurrent_requests),
        };
        let connections = threads.saturating_mul(self.max_concurrent_conns);
        connections.saturating_mul(per_connection)
    }

    /// Says which flags raise the number of requests in flight.
    fn how_to_load_more(&self) -> &'static str {
        match self.max_requests_per_conn {
            1 => "Raise --max-concurrent-conns",
            _ => "Raise --max-concurrent-conns or --max-concurrent-requests",
        }
    }
}

impl Report {
    /// Returns true if the server kept up with the rate of an open loop, as [`Limit::Rate`] says.
    fn has_reached(&self, rate: f64) -> bool {
        let requests = &self.requests;
        // Each thread may have one request left that fell due at the very end.
        let due = requests.sent + requests.unsent;
        let is_sent = requests.unsent <= self.threads().max(due / UNSENT_DIVISOR);
        requests.failed == 0 && is_sent && requests.per_second >= rate * REACHED_SHARE
    }

    /// Returns the number of the client's threads, on all hosts.
    fn threads(&self) -> u64 {
        let agents = self.client.agents.len().max(1);
        self.run.threads.saturating_mul(agents as u64)
    }

    /// Returns the sentence of the verdict without its advice.
    pub fn facts(&self) -> String {
        facts(self, self.verdict.limit)
    }

    /// Returns true if the server's process was watched and used no CPU, although requests succeeded.
    fn has_idle_server(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.utilisation_percent() < IDLE_PERCENT)
            && self.requests.successes >= IDLE_SUCCESSES
    }

    /// Returns true if a process of the server ended during the run, or the server stopped answering.
    pub fn has_lost_server(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.died.is_some()) || self.has_fallen_silent()
    }

    /// Returns true if the server stopped answering before the end, although something was asked of it.
    pub fn has_fallen_silent(&self) -> bool {
        self.silence_ms().is_some()
    }

    /// Returns for how long the server had answered no more at the end, although something was asked of it; `None` if that is
    /// less than a second or than [`SILENT_LATENCIES`] times the longest wait for an answer before.
    fn silence_ms(&self) -> Option<f64> {
        let (requests, connections) = (&self.requests, &self.connections);
        let is_asked = requests.unfinished + requests.failed > 0
            || connections.unfinished + connections.refused > 0;
        let latency = self.latency.overall.map_or(0.0, |latency| latency.max_ms);
        let pause = self.run.rate_per_second.map_or(0.0, |rate| 1e3 / rate);
        let least = (SILENT_LATENCIES * latency.max(pause)).max(SILENT_MS_MIN);
        requests
            .silent_ms
            .filter(|silent| is_asked && *silent > least)
    }
}

fn facts(report: &Report, limit: Limit) -> String {
    let requests = &report.requests;
    let rate = number::decimal(requests.per_second);
    let client = number::brief(report.client.utilisation_percent());
    let server = report.server.as_ref();
    let busy = server.map_or_else(String::new, |server| {
        number::brief(server.utilisation_percent())
    });
    let cost = server
        .and_then(|server| server.cpu_us_per_request)
        .map_or_else(String::new, |cost| {
            let rate = if limit == Limit::Rate {
                " at this rate"
            } else {
                ""
            };
            let cost = number::decimal(cost);
            format!(" The server spent {cost} µs of CPU on each request{rate}.")
        });
    let died = server
        .and_then(|server| server.died.as_ref())
        .map_or_else(String::new, |died| format!(" {died}."));
    let failed = number::counted(requests.failed, "request");
    let text = match limit {
        Limit::Nothing => format!("No request succeeded: {}.", why_nothing(report)),
        Limit::Server => format!(
            "The server was the limit ({busy} % busy): {rate} successful requests per second.{cost}"
        ),
        Limit::Client => client_was_limit(report),
        Limit::Rate => format!("The server kept up with {rate} requests per second.{cost}"),
        Limit::Unknown if report.has_lost_server() => {
            let silence = report.silence_ms().filter(|_| died.is_empty());
            let silence = silence.map_or_else(String::new, |silent| {
                let silent = number::milliseconds(silent);
                format!(" The server stopped answering {silent} before the end.")
            });
            format!(
                "{rate} successful requests per second over the whole run; the limit is not known.{silence}"
            )
        }
        Limit::RateMissed => format!(
            "The rate was not reached: of {} requests per second asked for (--rate), {rate} succeeded; {failed} failed, \
             {} were due and not sent, {} had no answer at the end.{cost}",
            number::plain(report.run.rate_per_second.unwrap_or(0.0)),
            number::count(requests.unsent),
            number::count(requests.unfinished),
        ),
        Limit::Neither => format!(
            "Not the server's maximum: neither the server ({busy} % busy) nor the client ({client} %) was the limit. \
             The server answered {rate} requests per second.{cost}"
        ),
        Limit::Unknown => format!(
            "{rate} successful requests per second. The client was not the limit ({client} % busy). Whether the server \
             was is not known: give {}.",
            how_to_watch(report)
        ),
    };
    text + &died
}

/// Returns what to do next, with a blank in front; nothing if the figures stand for themselves.
fn advice(report: &Report, limit: Limit) -> String {
    let in_flight = || {
        let requests = report.run.requests_in_flight(report.threads());
        number::counted(requests, "request")
    };
    let more = report.run.how_to_load_more();
    match limit {
        Limit::Neither | Limit::RateMissed if report.has_idle_server() => {
            format!(
                " The watched process used no CPU: does another one serve? Give {}.",
                how_to_watch(report)
            )
        }
        Limit::Neither => format!(
            " Either other programs used these cores (repeat on an idle machine), or {} in flight, or the path, were the limit. {more}.",
            in_flight()
        ),
        Limit::RateMissed => format!(
            " Either other programs used these cores (repeat on an idle machine), or {} in flight are too few for this rate over this path, or the run is too short. {more}, or --duration, or lower --rate.",
            in_flight()
        ),
        Limit::Nothing | Limit::Server | Limit::Client | Limit::Rate | Limit::Unknown => {
            String::new()
        }
    }
}

/// Returns why no request succeeded, in words: each count that is not zero.
fn why_nothing(report: &Report) -> String {
    let (requests, connections) = (&report.requests, &report.connections);
    let failed = |count| (count > 0).then(|| number::counted(count, "request"));
    let refused = |count| (count > 0).then(|| number::counted(count, "connection"));
    let reasons = [
        failed(requests.failed).map(|some| format!("{some} failed")),
        failed(requests.unfinished).map(|some| format!("{some} had no answer in time")),
        refused(connections.refused).map(|some| format!("{some} could not be made")),
        refused(connections.unfinished).map(|some| format!("{some} had no handshake in time")),
    ];
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    if reasons.is_empty() {
        return "none was sent".to_owned();
    }
    reasons.join(", ")
}

fn client_was_limit(report: &Report) -> String {
    let rate = number::decimal(report.requests.per_second);
    let busy = number::brief(report.client.utilisation_percent());
    let (agent, advice) = match report.client.busiest_agent() {
        None => (
            String::new(),
            "Use more client threads: --threads and --cores",
        ),
        Some(agent) => (
            format!("agent {}, ", agent.name),
            "Use more agents (--agents), or more threads of each (--threads)",
        ),
    };
    format!(
        "The load client was the limit ({agent}{busy} % busy): the server answered {rate} requests per second, and may be \
         able to answer more. {advice}."
    )
}

/// Says how to have the server's processes watched.
fn how_to_watch(report: &Report) -> &'static str {
    if report.client.agents.is_empty() {
        "--server-pid or --server-process"
    } else {
        "--watch to the agent on its host"
    }
}

/// Shortest time without an answer after which a server counts as lost.
const SILENT_MS_MIN: f64 = 1000.0;
/// The same, in multiples of the longest wait for an answer.
const SILENT_LATENCIES: f64 = 3.0;
/// Least load, in per cent, at which server or client counts as the limit.
pub const BUSY_PERCENT: f64 = 95.0;

/// Least CPU load, in per cent, of a process that serves [`IDLE_SUCCESSES`] requests.
const IDLE_PERCENT: f64 = 0.1;
const IDLE_SUCCESSES: u64 = 1000;
/// Least share of an asked rate that has to succeed, so that the server counts as having kept up. Requests in flight at the end
/// of a short run are not among the successes.
const REACHED_SHARE: f64 = 0.95;
/// The same for requests that were due: at most one in this many may be unsent.
const UNSENT_DIVISOR: u64 = 100;
