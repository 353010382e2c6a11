//! What a run of the HTTP/3 load client gave: plain data that stands alone, and its forms.
//!
//! It measures nothing: the program fills it from what the client counted and from what was seen of the two processes. The
//! main type is [`Report`], of one run. Its forms are [`json`], [`terminal`] and [`html`]. Times are milliseconds, and seconds of a series count from the start of the run.

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
use crate::latency::Latency;
use crate::process::{Usage, microseconds_each, percent};
use crate::statistics::{Distribution, float};

/// Version of the report's form, written as `schema`; it grows whenever a field comes, changes or goes, for all are always written.
pub const SCHEMA: u32 = 2;

/// All that one run has to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Report of weir h3 bench", extend("$id" = format!("urn:weir:h3-report:{SCHEMA}")))]
pub struct Report {
    /// Version of this form.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: u32,
    /// Who was the limit, drawn from everything below.
    pub verdict: Verdict,
    /// What was run, with what, on what.
    pub run: Run,
    /// What became of the requests.
    pub requests: Requests,
    /// What became of the connections.
    pub connections: Connections,
    /// From the planned time of a successful request to the end of its answer. The objects that it counts are requests.
    pub latency: Latency,
    /// The run second by second.
    pub per_second: Vec<Second>,
    /// What the server's processes spent; none if they were not watched.
    pub server: Option<Server>,
    /// What the load client spent.
    pub client: Client,
}

/// What was run, with what, on what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Version of the program that measured.
    pub weir_version: String,
    /// The program's arguments as given, joined by blanks.
    pub command_line: String,
    /// What was asked for.
    pub url: String,
    /// Where the server was.
    pub address: String,
    /// When the run began, in UTC.
    pub start_time: String,
    /// The kernel of this machine.
    pub kernel: String,
    /// The processor of this machine.
    pub cpu_model: String,
    /// Threads of the client.
    pub threads: u64,
    /// Connections at once, of each thread.
    pub max_concurrent_conns: u64,
    /// Requests of a connection before another takes its place; 0: no limit.
    pub max_requests_per_conn: u64,
    /// Requests at once, of each connection.
    pub max_concurrent_requests: u64,
    /// Requests of each thread; 0: no limit.
    pub max_requests_per_thread: u64,
    /// Requests that were planned per second in an open loop; none in a closed one.
    pub rate_per_second: Option<f64>,
    /// How connections were greeted: full, resumed or 0rtt.
    pub handshake: String,
    /// Bytes of UDP payload in each full packet of the client.
    pub send_udp_payload_size: u64,
    /// Bytes of UDP payload that the server may send in a packet.
    pub recv_udp_payload_size: u64,
    /// Bytes that every answer had to have; none if its own content-length was enough.
    pub expected_length: Option<u64>,
    /// How long requests were to be sent.
    pub duration_ms: f64,
    /// How long they were.
    pub elapsed_ms: f64,
    /// How long a handshake might take.
    pub handshake_timeout_ms: f64,
    /// How long a connection might be silent.
    pub idle_timeout_ms: f64,
    /// Whether the client let the kernel join packets that it receives.
    pub gro: bool,
    /// UDP sockets of each thread.
    pub sockets: u64,
    /// Largest packet of the interface that the server was reached over, in bytes; none if it is not known.
    pub mtu_bytes: Option<u64>,
    /// What else a reader should know.
    pub notes: Vec<String>,
}

/// What became of the requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    /// Requests sent.
    pub sent: u64,
    /// Answers with status 200 and the exact length.
    pub successes: u64,
    /// Requests that were no successes.
    pub failed: u64,
    /// Requests without an answer when the time was over.
    pub unfinished: u64,
    /// Requests of an open loop that were due and could not be sent.
    pub unsent: u64,
    /// Successes per second.
    pub per_second: f64,
    /// Bytes of content.
    pub content_bytes: u64,
    /// Content per second, in bits.
    pub bits_per_second: f64,
    /// Failures by kind, without kinds that did not occur.
    pub failures: Vec<Kind>,
}

/// What became of the connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Connections {
    /// Connections begun.
    pub begun: u64,
    /// Handshakes that were completed.
    pub handshakes: u64,
    /// Handshakes that were neither complete nor given up when the time was over.
    pub unfinished: u64,
    /// The version of TLS, if a handshake was completed.
    pub tls_version: Option<String>,
    /// The cipher suites that complete handshakes agreed on.
    pub cipher_suites: Vec<String>,
    /// The kind of key in the server's certificate, if it had to show one.
    pub certificate_key: Option<String>,
    /// Times that the server wanted a proof of the client's address first (Retry).
    pub retries: u64,
    /// Handshakes in which the server did not have to prove itself, because a session was resumed.
    pub resumed: u64,
    /// Connections whose requests left with the first packet.
    pub early_used: u64,
    /// Those of them whose early requests the server did not take.
    pub early_rejected: u64,
    /// Times that the server took no more requests on a connection.
    pub goaways: u64,
    /// Connections that could not be made.
    pub refused: u64,
    /// Those by kind, without kinds that did not occur.
    pub refusals: Vec<Kind>,
    /// From the first packet to the end of the handshake.
    pub handshake: Option<Distribution>,
}

/// How often something went wrong in one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// Its name.
    pub kind: String,
    /// How often.
    pub count: u64,
    /// What was said about the first of them.
    pub words: Option<String>,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Second {
    /// Its number, from 0.
    pub second: u64,
    /// Successful requests.
    pub successes: u64,
    /// Failed requests, and connections that could not be made.
    pub failed: u64,
    /// Bytes of content.
    pub content_bytes: u64,
    /// The server's load; 100 is one core.
    pub server_cpu_percent: Option<f64>,
    /// The client's load; 100 is one core.
    pub client_cpu_percent: Option<f64>,
}

/// What the server's processes spent during the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The processes that were watched.
    pub pids: Vec<u32>,
    /// CPU time, user and system.
    pub cpu_seconds: f64,
    /// CPU time per successful request; none if there was none.
    pub cpu_us_per_request: Option<f64>,
    /// Successful requests per second of CPU time.
    pub requests_per_cpu_second: Option<f64>,
    /// Load; 100 is one core.
    pub cpu_percent: f64,
    /// Load of its busiest thread; 100 is one core.
    pub busiest_thread_percent: f64,
    /// Cores that it may run on.
    pub cores: Vec<u32>,
    /// Most memory that was resident.
    pub rss_peak_bytes: u64,
    /// Context switches because a thread had to wait.
    pub context_switches_voluntary: u64,
    /// Context switches because another thread wanted the core.
    pub context_switches_involuntary: u64,
    /// How it ended, if it ended in mid-run.
    pub died: Option<String>,
}

/// What the load client spent during the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// Cores that its threads were put on; none if anywhere.
    pub cores: Vec<u32>,
    /// Its threads.
    pub threads: Vec<ClientThread>,
    /// CPU time of its threads.
    pub cpu_seconds: f64,
    /// CPU time per successful request; none if there was none.
    pub cpu_us_per_request: Option<f64>,
    /// Packets that its sockets dropped because their buffers were full.
    pub socket_drops: u64,
    /// UDP receive-buffer errors of the whole machine, or network namespace, meanwhile; none if the kernel does not tell.
    pub receive_buffer_errors: Option<u64>,
    /// Packets received.
    pub packets_received: u64,
    /// Packets sent.
    pub packets_sent: u64,
}

/// One thread of the load client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientThread {
    /// Load; 100 is one core.
    pub cpu_percent: f64,
    /// How late its event loop was, 99th percentile.
    pub event_loop_lag_p99_ms: f64,
}

impl Report {
    /// Makes a report of its measured parts; the verdict follows from them.
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
}

impl Requests {
    /// The counts with their rates over a run that took `elapsed`.
    #[must_use]
    pub fn over(mut self, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        self.per_second = float(self.successes) / seconds;
        self.bits_per_second = float(self.content_bytes) * 8.0 / seconds;
        self
    }
}

/// What was seen of the server's processes.
#[derive(Clone, Debug, Default)]
pub struct ServerUsage {
    /// The processes.
    pub pids: Vec<u32>,
    /// Cores that they may run on.
    pub cores: Vec<u32>,
    /// What all of them used while they were watched.
    pub used: Usage,
    /// CPU time of their busiest thread.
    pub busiest_thread: Duration,
    /// How long they were watched.
    pub watched: Duration,
    /// How they ended, if they ended in mid-run.
    pub died: Option<String>,
}

/// What was seen of one thread of the load client.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientThreadUsage {
    /// CPU time.
    pub cpu: Duration,
    /// How late its event loop was, 99th percentile.
    pub event_loop_lag_p99: Duration,
}

impl Client {
    /// Computes the cost of `threads` in a run that took `elapsed`. Cores, packets and drops are empty.
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

    /// Load of its busiest thread; 100 is one core.
    pub fn busiest_thread_percent(&self) -> f64 {
        let percent = self.threads.iter().map(|thread| thread.cpu_percent);
        percent.fold(0.0, f64::max)
    }
}

impl Server {
    /// Computes what the server spent, in all and on each successful request.
    pub fn of(usage: ServerUsage, successes: u64) -> Self {
        let cpu = usage.used.cpu;
        // Of a process that is gone no more is known than what it had used when it was seen last.
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
            died: usage.died,
        }
    }

    /// Its load in per cent of what it could use at most: of all its cores, or of one if a single thread does the work.
    pub fn utilisation_percent(&self) -> f64 {
        let cores = self.cores.len().max(1) as u64;
        let of_cores = self.cpu_percent / float(cores);
        of_cores.max(self.busiest_thread_percent)
    }
}
