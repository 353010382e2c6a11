//! The report of one run of the HTTP/3 load client, and its output formats.
//!
//! The main type is [`Report`]; [`json`], [`terminal`] and [`html`] are its formats. The program fills it from the client's
//! counts and from samples of both processes. Times are in milliseconds. Seconds of a series count from the start of the
//! run.

#[cfg(test)]
mod example;
pub mod html;
pub mod json;
pub mod terminal;
#[cfg(test)]
mod tests;
mod verdict;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::verdict::{BUSY_PERCENT, Limit, Verdict};
use crate::form::number;
use crate::latency::Latency;
use crate::process::{Usage, microseconds_each, percent};
use crate::statistics::{Distribution, float};

/// Version of the report's form, written as `schema`. It grows whenever a field is added, changed or removed.
pub const SCHEMA: u32 = 6;

/// The report of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Report of weir h3 bench", extend("$id" = format!("urn:weir:h3-report:{SCHEMA}")))]
pub struct Report {
    /// Version of the report's form.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: u32,
    /// The verdict: what limited the run. It follows from all other fields.
    pub verdict: Verdict,
    /// Load, server address and machine of the run.
    pub run: Run,
    /// Number of requests by how they ended, and rates.
    pub requests: Requests,
    /// Number of connections by how they ended, and what their handshakes agreed on.
    pub connections: Connections,
    /// Latency of successful requests, from the planned time to the end of the answer. `objects` counts requests.
    pub latency: Latency,
    /// Requests and loads in each second, ascending.
    pub per_second: Vec<Second>,
    /// Cost of the server's processes; null if they were not watched.
    pub server: Option<Server>,
    /// Cost of the load client.
    pub client: Client,
}

/// The run: program, load, server address and machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Version of weir that made the run.
    pub weir_version: String,
    /// The command line, its arguments joined by spaces.
    pub command_line: String,
    /// The first requested URL.
    pub url: String,
    /// Address of the server.
    pub address: String,
    /// Start of the run, in UTC.
    pub start_time: String,
    /// Kernel of this machine.
    pub kernel: String,
    /// CPU model of this machine.
    pub cpu_model: String,
    /// Threads of the client, or of each agent.
    pub threads: u64,
    /// Connections in flight, of each thread.
    pub max_concurrent_conns: u64,
    /// Requests on a connection before a new one replaces it; 0: no limit.
    pub max_requests_per_conn: u64,
    /// Requests in flight, on each connection.
    pub max_concurrent_requests: u64,
    /// Requests of each thread; 0: no limit.
    pub max_requests_per_thread: u64,
    /// Planned requests per second (`--rate`, open loop); null without `--rate` (closed loop).
    pub rate_per_second: Option<f64>,
    /// Kind of handshakes: `full`, `resumed` or `0rtt`.
    pub handshake: String,
    /// UDP payload of each full packet that the client sends.
    pub send_udp_payload_size: u64,
    /// Largest UDP payload that the server may send in a packet.
    pub recv_udp_payload_size: u64,
    /// Length in bytes that every answer had to have (`--expect-length`); null: only that of its `content-length`.
    pub expected_length: Option<u64>,
    /// Requested duration of sending.
    pub duration_ms: f64,
    /// Actual duration of sending.
    pub elapsed_ms: f64,
    /// Time limit of a handshake.
    pub handshake_timeout_ms: f64,
    /// Time limit of a silent connection.
    pub idle_timeout_ms: f64,
    /// True if the kernel joined received packets (generic receive offload).
    pub gro: bool,
    /// UDP sockets of each thread.
    pub sockets: u64,
    /// MTU of the network interface towards the server; null if not known.
    pub mtu_bytes: Option<u64>,
    /// Remarks for readers.
    pub notes: Vec<String>,
}

/// Number of requests by how they ended, and rates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    /// Requests sent.
    pub sent: u64,
    /// Successful requests: status 200 and the exact length.
    pub successes: u64,
    /// Failed requests.
    pub failed: u64,
    /// Requests without a complete answer at the end of the run. They count neither as successes nor as failures.
    pub unfinished: u64,
    /// Requests of an open loop that were due and were not sent.
    pub unsent: u64,
    /// Successful requests per second.
    pub per_second: f64,
    /// Content received.
    pub content_bytes: u64,
    /// Content received per second.
    pub bits_per_second: f64,
    /// Failed requests by kind, without kinds that did not occur.
    pub failures: Vec<Kind>,
    /// Successful requests for each URL, in the order of the command line.
    pub urls: Vec<UrlRequests>,
    /// Time from the end of the last successful answer to the end of the run; null without a success.
    pub silent_ms: Option<f64>,
}

/// Requests for one URL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UrlRequests {
    /// The URL.
    pub url: String,
    /// Successful requests.
    pub successes: u64,
}

/// Number of connections by how they ended, and what their handshakes agreed on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Connections {
    /// Connections begun.
    pub begun: u64,
    /// Complete handshakes.
    pub handshakes: u64,
    /// Handshakes that were neither complete nor failed at the end of the run.
    pub unfinished: u64,
    /// TLS version; null without a complete handshake.
    pub tls_version: Option<String>,
    /// Cipher suites of the complete handshakes.
    pub cipher_suites: Vec<String>,
    /// Type of the key in the server's certificate; null if no handshake showed one.
    pub certificate_key: Option<String>,
    /// Retry packets: the server asked for a proof of the client's address.
    pub retries: u64,
    /// Handshakes that resumed a session, without the server's certificate.
    pub resumed: u64,
    /// Connections with early data: their requests left with the first packet (0-RTT).
    pub early_used: u64,
    /// Connections with early data that the server rejected.
    pub early_rejected: u64,
    /// GOAWAY frames: the server accepted no more requests on a connection.
    pub goaways: u64,
    /// Failed connections.
    pub refused: u64,
    /// Failed connections by kind, without kinds that did not occur.
    pub refusals: Vec<Kind>,
    /// Time from the first packet to the end of the handshake; null without a complete handshake.
    pub handshake: Option<Distribution>,
}

/// A kind of failure, and how often it occurred.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// Name of the kind.
    pub kind: String,
    /// Number of failures.
    pub count: u64,
    /// Reason of the first failure, in words; null if none was given.
    pub words: Option<String>,
}

/// Requests and loads in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Second {
    /// Second of the run, from 0.
    pub second: u64,
    /// Successful requests.
    pub successes: u64,
    /// Failed requests and failed connections.
    pub failed: u64,
    /// Content received.
    pub content_bytes: u64,
    /// CPU load of the server, 100 is one core; null if it was not watched.
    pub server_cpu_percent: Option<f64>,
    /// CPU load of the client, 100 is one core; null if it was not measured.
    pub client_cpu_percent: Option<f64>,
}

/// The cost of the server's processes during the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Process IDs.
    pub pids: Vec<u32>,
    /// CPU time of all processes, user and system.
    pub cpu_seconds: f64,
    /// CPU time per successful request. It falls as the rate rises: compare servers at equal rates. Null without a
    /// successful request, or if a process ended during the run.
    pub cpu_us_per_request: Option<f64>,
    /// Successful requests per second of CPU time; null if `cpu_us_per_request` is null.
    pub requests_per_cpu_second: Option<f64>,
    /// CPU load of all processes; 100 is one core.
    pub cpu_percent: f64,
    /// CPU load of the busiest thread; 100 is one core.
    pub busiest_thread_percent: f64,
    /// Cores that the processes may run on.
    pub cores: Vec<u32>,
    /// Largest resident memory.
    pub rss_peak_bytes: u64,
    /// Context switches because a thread had to wait.
    pub context_switches_voluntary: u64,
    /// Context switches because another thread took the core.
    pub context_switches_involuntary: u64,
    /// CPU time of these cores that the hypervisor gave to others, in per cent of their time; null if the kernel does not
    /// report it.
    pub stolen_percent: Option<f64>,
    /// How a process ended during the run; null if none did.
    pub died: Option<String>,
}

/// The cost of the load client during the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// Cores that the threads are bound to; empty if they are not bound.
    pub cores: Vec<u32>,
    /// The threads, of all agents.
    pub threads: Vec<ClientThread>,
    /// The agents on other hosts that made the load; empty if the process of the command line did.
    pub agents: Vec<Agent>,
    /// CPU time of all threads.
    pub cpu_seconds: f64,
    /// CPU time per successful request; null without one.
    pub cpu_us_per_request: Option<f64>,
    /// Received packets that the client's sockets dropped because their buffers were full.
    pub socket_drops: u64,
    /// Received packets that any UDP socket of this machine or network namespace dropped because its buffer was full; null
    /// if the kernel does not count them.
    pub receive_buffer_errors: Option<u64>,
    /// Packets received.
    pub packets_received: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// CPU time of these cores that the hypervisor gave to others, in per cent of their time; null if the threads are not
    /// bound, or the kernel does not report it.
    pub stolen_percent: Option<f64>,
}

/// An agent on another host that made a part of the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Name of the agent.
    pub name: String,
    /// Kernel of its machine.
    pub kernel: String,
    /// CPU model of its machine.
    pub cpu_model: String,
    /// Threads of its load.
    pub threads: u64,
    /// Its successful requests.
    pub requests: u64,
    /// CPU load of its busiest thread; 100 is one core.
    pub busiest_thread_percent: f64,
    /// Lateness of the event loop, 99th percentile of its worst thread.
    pub event_loop_lag_p99_ms: f64,
}

/// A thread of the load client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientThread {
    /// CPU load; 100 is one core.
    pub cpu_percent: f64,
    /// Lateness of the event loop, 99th percentile.
    pub event_loop_lag_p99_ms: f64,
}

impl Report {
    /// Makes a report from its measured parts, and computes the verdict.
    pub fn new(
        run: Run,
        requests: Requests,
        connections: Connections,
        latency: Latency,
        per_second: Vec<Second>,
        server: Option<Server>,
        client: Client,
    ) -> Self {
        let mut report = Self {
            schema: SCHEMA,
            verdict: Verdict::default(),
            run,
            requests,
            connections,
            latency,
            per_second,
            server,
            client,
        };
        report.verdict = Verdict::of(&report);
        report
    }

    /// Returns the report of a load that these agents made.
    #[must_use]
    pub fn with_agents(mut self, agents: Vec<Agent>) -> Self {
        self.client.agents = agents;
        self.verdict = Verdict::of(&self);
        self
    }
}

impl Requests {
    /// Returns the counts with their rates over a run that took `elapsed`.
    #[must_use]
    pub fn over(mut self, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        self.per_second = float(self.successes) / seconds;
        self.bits_per_second = float(self.content_bytes) * 8.0 / seconds;
        self
    }
}

/// Samples of the server's processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerUsage {
    /// Process IDs.
    pub pids: Vec<u32>,
    /// Cores that the processes may run on.
    pub cores: Vec<u32>,
    /// Usage of all processes while they were watched.
    pub used: Usage,
    /// CPU time of the busiest thread.
    pub busiest_thread: Duration,
    /// How long the processes were watched.
    pub watched: Duration,
    /// CPU time of the cores that the hypervisor gave to others, in per cent of their time; none if not known.
    pub stolen_percent: Option<f64>,
    /// How a process ended during the run; none if none did.
    pub died: Option<String>,
}

/// Samples of a thread of the load client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientThreadUsage {
    /// CPU time.
    pub cpu: Duration,
    /// Lateness of the event loop, 99th percentile.
    pub event_loop_lag_p99: Duration,
}

impl Client {
    /// Computes the cost of `threads` in a run that took `elapsed`. All other fields are empty.
    pub fn of(threads: &[ClientThreadUsage], elapsed: Duration, successes: u64) -> Self {
        let cpu: Duration = threads.iter().map(|thread| thread.cpu).sum();
        let thread = |thread: &ClientThreadUsage| ClientThread {
            cpu_percent: percent(thread.cpu, elapsed),
            event_loop_lag_p99_ms: thread.event_loop_lag_p99.as_secs_f64() * 1e3,
        };
        Self {
            threads: threads.iter().map(thread).collect(),
            cpu_seconds: cpu.as_secs_f64(),
            cpu_us_per_request: microseconds_each(cpu, successes),
            ..Self::default()
        }
    }

    /// Returns the CPU load of the busiest thread; 100 is one core.
    pub fn busiest_thread_percent(&self) -> f64 {
        let percent = self.threads.iter().map(|thread| thread.cpu_percent);
        percent.fold(0.0, f64::max)
    }

    /// Returns the agent with the busiest thread; `None` without agents.
    pub fn busiest_agent(&self) -> Option<&Agent> {
        let order = |one: &&Agent, other: &&Agent| {
            let percents = [one, other].map(|agent| agent.busiest_thread_percent);
            percents[0].total_cmp(&percents[1])
        };
        self.agents.iter().max_by(order)
    }

    /// Returns the CPU load of the busiest thread, in per cent of the time that its core had.
    pub fn utilisation_percent(&self) -> f64 {
        of_what_was_left(self.busiest_thread_percent(), self.stolen_percent)
    }
}

impl Agent {
    /// Returns the agent in a line.
    pub(crate) fn in_words(&self) -> String {
        format!(
            "agent {}: {}, {} succeeded, busiest thread {} % of a core, event loop late by {} (p99); {}, Linux {}",
            self.name,
            number::counted(self.threads, "thread"),
            number::counted(self.requests, "request"),
            number::brief(self.busiest_thread_percent),
            number::milliseconds(self.event_loop_lag_p99_ms),
            self.cpu_model,
            self.kernel,
        )
    }
}

impl Server {
    /// Computes the cost of the server, in total and per successful request.
    pub fn of(usage: ServerUsage, successes: u64) -> Self {
        let cpu = usage.used.cpu;
        // The CPU time of a process that ended is known only up to its last sample.
        let is_known = successes > 0 && usage.died.is_none() && !cpu.is_zero();
        Self {
            pids: usage.pids,
            cpu_seconds: cpu.as_secs_f64(),
            cpu_us_per_request: microseconds_each(cpu, successes).filter(|_| is_known),
            requests_per_cpu_second: is_known.then(|| float(successes) / cpu.as_secs_f64()),
            cpu_percent: percent(cpu, usage.watched),
            busiest_thread_percent: percent(usage.busiest_thread, usage.watched),
            cores: usage.cores,
            rss_peak_bytes: usage.used.resident_peak_bytes,
            context_switches_voluntary: usage.used.switches_voluntary,
            context_switches_involuntary: usage.used.switches_involuntary,
            stolen_percent: usage.stolen_percent,
            died: usage.died,
        }
    }

    /// Returns the CPU load in per cent of what the server can use, its cores without stolen time: the larger of the share of
    /// all its cores, and the load of its busiest thread.
    pub fn utilisation_percent(&self) -> f64 {
        let cores = self.cores.len().max(1) as u64;
        let of_cores = self.cpu_percent / float(cores);
        of_what_was_left(
            of_cores.max(self.busiest_thread_percent),
            self.stolen_percent,
        )
    }
}

/// Returns a load in per cent of the time that the hypervisor left. Kernels that count stolen time as time of the running
/// thread too do not make this more than 100.
fn of_what_was_left(load_percent: f64, stolen_percent: Option<f64>) -> f64 {
    let left = (100.0 - stolen_percent.unwrap_or(0.0)).max(1.0);
    (load_percent * 100.0 / left).min(load_percent.max(100.0))
}
