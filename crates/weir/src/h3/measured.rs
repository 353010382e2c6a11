//! What a measurement has measured, as plain data: agents on several hosts send it, and it adds up.

use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use weir_http3::client::{Failure, Figures, Progress, Refusal};
use weir_net::TelemetrySnapshot;
use weir_report::{
    http3::{self as figures, ClientThreadUsage, Report, ServerUsage},
    latency::{self, Latency, distribution},
};

use super::plan::Plan;
use crate::run::remote::AgentInfo;

/// The results of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measured {
    pub(super) figures: Figures,
    /// Cipher suites that the handshakes agreed on.
    pub(super) cipher_suites: Vec<String>,
    /// Type of the key in the server's certificate, if a handshake showed one.
    pub(super) certificate_key: Option<String>,
    /// Handshakes in which the server proved that it has that key.
    pub(super) proofs: u64,
    /// Retry packets received.
    pub(super) retries: u64,
    /// The client's threads.
    pub(super) threads: Vec<ThreadMeasured>,
    /// Cores that the client's threads are bound to; empty if they are not bound, or on several machines.
    pub(super) cores: Vec<u32>,
    /// Time of these cores that the hypervisor gave to others, in per cent; the most of several machines.
    pub(super) stolen_percent: Option<f64>,
    /// Packets that UDP sockets of the machine dropped because their buffers were full.
    pub(super) receive_buffer_errors: Option<u64>,
    /// Usage of the server's processes, if they were watched.
    pub(super) server: Option<ServerUsage>,
    /// Loads in each second.
    pub(super) loads: Vec<Loads>,
}

/// The telemetry of a thread of the client.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ThreadMeasured {
    pub(super) usage: ClientThreadUsage,
    /// Packets that the kernel dropped because the receive buffer was full.
    pub(super) receive_dropped: u64,
    pub(super) packets_received: u64,
    pub(super) packets_sent: u64,
}

/// The CPU load of both sides in one second, in per cent of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Loads {
    /// `None` if the server is not watched.
    pub(super) server: Option<f64>,
    pub(super) client: f64,
}

/// The progress of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Seen {
    /// Time since the beginning.
    pub(super) elapsed: Duration,
    pub(super) successes: u64,
    pub(super) failed: u64,
    pub(super) connections: u64,
    pub(super) in_flight: u64,
    /// Loads in the last second.
    pub(super) loads: Loads,
}

impl Loads {
    fn add(&mut self, other: &Self) {
        self.server = self.server.or(other.server);
        self.client += other.client;
    }
}

impl Seen {
    /// Adds the progress of an agent, or of a thread.
    pub(super) fn add(&mut self, other: &Self) {
        for (ours, theirs) in [
            (&mut self.successes, other.successes),
            (&mut self.failed, other.failed),
            (&mut self.connections, other.connections),
            (&mut self.in_flight, other.in_flight),
        ] {
            *ours = ours.saturating_add(theirs);
        }
        self.loads.add(&other.loads);
    }

    /// Returns the progress as a line for the terminal.
    pub(super) fn line(&self) -> String {
        let seconds = self.elapsed.as_secs_f64();
        let server = self.loads.server;
        let server = server.map_or_else(String::new, |load| format!(", server {load:.0} %"));
        format!(
            "{seconds:>4.0} s  {} requests ({:.0}/s), {} failed, {} connections, {} in flight{server}, client {:.0} % CPU",
            self.successes,
            number(self.successes) / seconds.max(0.001),
            self.failed,
            self.connections,
            self.in_flight,
            self.loads.client,
        )
    }
}

impl From<&Progress> for Seen {
    fn from(thread: &Progress) -> Self {
        Self {
            successes: thread.successes,
            failed: thread.failed,
            connections: thread.connections,
            in_flight: thread.in_flight,
            ..Self::default()
        }
    }
}

impl From<TelemetrySnapshot> for ThreadMeasured {
    fn from(thread: TelemetrySnapshot) -> Self {
        Self {
            usage: ClientThreadUsage {
                cpu: thread.cpu,
                event_loop_lag_p99: thread.lag.quantile(0.99),
            },
            receive_dropped: thread.receive_dropped,
            packets_received: thread.packets_received,
            packets_sent: thread.packets_sent,
        }
    }
}

impl Measured {
    /// Adds what another agent measured in the same run.
    ///
    /// # Errors
    /// The other agent has requested other URLs.
    pub(super) fn merge(&mut self, other: Self) -> anyhow::Result<()> {
        let paths = |one: &Self| one.figures.path_successes.len();
        ensure!(
            paths(self) == paths(&other),
            "it requested {} URLs, and others {}",
            paths(&other),
            paths(self)
        );
        self.figures.merge(&other.figures);
        for suite in other.cipher_suites {
            if !self.cipher_suites.contains(&suite) {
                self.cipher_suites.push(suite);
            }
        }
        self.certificate_key = self.certificate_key.take().or(other.certificate_key);
        self.proofs = self.proofs.saturating_add(other.proofs);
        self.retries = self.retries.saturating_add(other.retries);
        self.threads.extend(other.threads);
        // The cores of two machines have the same numbers.
        self.cores.clear();
        self.stolen_percent = [self.stolen_percent, other.stolen_percent]
            .into_iter()
            .flatten()
            .reduce(f64::max);
        self.receive_buffer_errors = [self.receive_buffer_errors, other.receive_buffer_errors]
            .into_iter()
            .flatten()
            .reduce(u64::saturating_add);
        self.server = self.server.take().or(other.server);
        let seconds = self.loads.len().max(other.loads.len());
        self.loads.resize_with(seconds, Loads::default);
        for (ours, theirs) in self.loads.iter_mut().zip(&other.loads) {
            ours.add(theirs);
        }
        Ok(())
    }

    /// Returns what the report says of the agent that measured this.
    pub(super) fn agent(&self, info: AgentInfo) -> figures::Agent {
        let client = self.client();
        let lags = client.threads.iter();
        figures::Agent {
            name: info.name,
            kernel: info.kernel,
            cpu_model: info.cpu_model,
            threads: client.threads.len() as u64,
            requests: self.figures.successes,
            busiest_thread_percent: client.busiest_thread_percent(),
            event_loop_lag_p99_ms: lags
                .map(|thread| thread.event_loop_lag_p99_ms)
                .fold(0.0, f64::max),
        }
    }

    /// Returns the report of a run with these parameters.
    pub(super) fn report(&self, plan: &Plan, run: figures::Run) -> Report {
        let figures = &self.figures;
        Report::new(
            run,
            self.requests(plan),
            self.connections(),
            latency(figures),
            self.per_second(),
            self.server
                .clone()
                .map(|usage| figures::Server::of(usage, figures.successes)),
            self.client(),
        )
    }

    fn requests(&self, plan: &Plan) -> figures::Requests {
        let figures = &self.figures;
        let silence = figures.silence();
        let urls = plan.urls.iter().zip(&figures.path_successes);
        let urls = urls.map(|(url, successes)| figures::UrlRequests {
            url: url.to_string(),
            successes: *successes,
        });
        let failures = Failure::ALL.iter().map(|kind| figures::Kind {
            kind: kind.name().to_owned(),
            count: figures.failures(*kind),
            words: figures.failure_words(*kind).map(str::to_owned),
        });
        figures::Requests {
            sent: figures.requests_sent,
            successes: figures.successes,
            failed: figures.failed(),
            unfinished: figures.unfinished,
            unsent: figures.unsent,
            content_bytes: figures.content_bytes,
            urls: urls.collect(),
            silent_ms: silence.map(|time| time.as_secs_f64() * 1e3),
            failures: failures.filter(|kind| kind.count > 0).collect(),
            ..figures::Requests::default()
        }
        .over(figures.elapsed())
    }

    fn connections(&self) -> figures::Connections {
        let figures = &self.figures;
        let refusals = Refusal::ALL.iter().map(|kind| figures::Kind {
            kind: kind.name().to_owned(),
            count: figures.refusals(*kind),
            words: figures.refusal_words(*kind).map(str::to_owned),
        });
        figures::Connections {
            begun: figures.connections_begun,
            handshakes: figures.handshakes,
            unfinished: figures.handshakes_unfinished,
            // QUIC version 1 uses TLS 1.3 (RFC 9001 §4.2).
            tls_version: (figures.handshakes > 0).then(|| "1.3".to_owned()),
            cipher_suites: self.cipher_suites.clone(),
            certificate_key: self.certificate_key.clone(),
            retries: self.retries,
            resumed: figures.handshakes.saturating_sub(self.proofs),
            early_used: figures.early_used,
            early_rejected: figures.early_rejected,
            goaways: figures.goaways,
            refused: figures.refused(),
            refusals: refusals.filter(|kind| kind.count > 0).collect(),
            handshake: distribution(&figures.handshake_time),
        }
    }

    fn per_second(&self) -> Vec<figures::Second> {
        let seconds = (0_u64..).zip(&self.figures.seconds);
        seconds
            .enumerate()
            .map(|(place, (second, one))| figures::Second {
                second,
                successes: one.latency.count(),
                failed: one.failed,
                content_bytes: one.content_bytes,
                server_cpu_percent: self.loads.get(place).and_then(|load| load.server),
                client_cpu_percent: self.loads.get(place).map(|load| load.client),
            })
            .collect()
    }

    fn client(&self) -> figures::Client {
        let sum = |pick: fn(&ThreadMeasured) -> u64| {
            let counts = self.threads.iter().map(pick);
            counts.fold(0, u64::saturating_add)
        };
        let threads: Vec<_> = self.threads.iter().map(|thread| thread.usage).collect();
        let figures = &self.figures;
        figures::Client {
            stolen_percent: self.stolen_percent,
            cores: self.cores.clone(),
            socket_drops: sum(|thread| thread.receive_dropped),
            receive_buffer_errors: self.receive_buffer_errors,
            packets_received: sum(|thread| thread.packets_received),
            packets_sent: sum(|thread| thread.packets_sent),
            ..figures::Client::of(&threads, figures.elapsed(), figures.successes)
        }
    }
}

fn latency(figures: &Figures) -> Latency {
    let seconds = (0_u64..).zip(&figures.seconds);
    let seconds = seconds.map(|(second, one)| (second, &one.latency));
    latency::of_seconds(&figures.latency, seconds)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn number(count: u64) -> f64 {
    count as f64
}
