//! A measurement of an HTTP/3 server: load client, observation of the server's processes, report.

use std::{
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use anyhow::Context as _;
use weir_http3::{
    Limits,
    client::{Client, Failure, Figures, Refusal},
};
use weir_net::{Stop, TelemetrySnapshot, clock};
use weir_quic::{ClientConfig, tls::ClientTls};
use weir_report::{
    http3::{self as figures, ClientThreadUsage, Report},
    latency::{self, Latency, distribution},
    process::percent,
};

use super::{plan::Plan, threads::Hosted};
use crate::{
    harness::{
        machine::{Machine, MachineTime},
        processes::{Processes, Sample},
        udp::receive_buffer_errors,
    },
    relay::{config::QlogConfig, qlog::Logs},
};

/// Measures a server. `say` receives a line of progress, once a second. A stop ends the measurement early, with a report.
pub(crate) fn measure(
    plan: &Plan,
    machine: &Machine,
    stop: &Stop,
    mut say: impl FnMut(&str),
) -> anyhow::Result<Report> {
    if !plan.warm_up.is_zero() {
        let warming_up = plan.warming_up();
        let mut say = |line: &str| say(&format!("warming up: {line}"));
        drop(Measurement::start(&warming_up, stop)?.finish(&warming_up, stop, &mut say)?);
    }
    let start_time = UNIX_EPOCH + clock::since_epoch();
    let measured = Measurement::start(plan, stop)?.finish(plan, stop, &mut say)?;
    let mut run = describe(plan, machine);
    run.start_time = humantime::format_rfc3339_seconds(start_time).to_string();
    run.elapsed_ms = measured.figures.elapsed().as_secs_f64() * 1e3;
    if let Some(folder) = &plan.qlog {
        run.notes.push(format!(
            "The client wrote qlog files into {}, which costs it CPU time.",
            folder.display()
        ));
    }
    if stop.is_requested() {
        run.notes.push("The run was interrupted.".to_owned());
    }
    Ok(measured.report(plan, run))
}

/// A running measurement.
struct Measurement {
    begin: Instant,
    threads: Vec<Hosted>,
    tls: ClientTls,
    first: Sample,
    errors_before: Option<u64>,
    machine_before: Option<MachineTime>,
}

/// The results of a measurement.
struct Measured {
    figures: Figures,
    /// The TLS parameters that the handshakes agreed on.
    tls: ClientTls,
    /// Number of Retry packets received.
    retries: u64,
    server: (Sample, Sample),
    /// Time between the two samples.
    watched: Duration,
    cores: Vec<u32>,
    died: Option<String>,
    threads: Vec<TelemetrySnapshot>,
    receive_buffer_errors: Option<u64>,
    /// Times of the machine's cores, before and after.
    machine: Option<(MachineTime, MachineTime)>,
    loads: Vec<Loads>,
}

/// The CPU load of both sides in one second, in per cent of a core.
#[derive(Clone, Copy, Debug, Default)]
struct Loads {
    server: Option<f64>,
    client: f64,
}

impl Measurement {
    fn start(plan: &Plan, stop: &Stop) -> anyhow::Result<Self> {
        let tls = ClientTls::with_sessions(
            plan.trust.clone(),
            &[weir_h3::ALPN],
            plan.handshake.sessions(),
        )?;
        let config = ClientConfig {
            tls: tls.clone(),
            web_transport: None,
        };
        let begin = clock::now() + LEAD;
        let load = plan.load();
        let mut threads = Vec::new();
        let logs = Arc::new(Logs::default());
        for number in 0..plan.threads {
            let client = Client::new(load.clone(), config.clone(), Limits::default(), begin)?;
            let surroundings = plan.surroundings(number);
            let qlog = match &plan.qlog {
                Some(folder) => Some(logs.in_folder(folder, QlogConfig::default(), number)?),
                None => None,
            };
            let hosted = Hosted::start(client, plan.address, surroundings, qlog, stop);
            threads.push(hosted.context("cannot start the load client")?);
        }
        let wait = begin.saturating_duration_since(clock::now());
        stop.wait(wait);
        Ok(Self {
            begin,
            threads,
            tls,
            first: sample(plan, &Sample::default()),
            errors_before: receive_buffer_errors(),
            machine_before: MachineTime::now(),
        })
    }

    fn finish(
        self,
        plan: &Plan,
        stop: &Stop,
        say: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Measured> {
        let from = clock::now();
        let end = self.begin + plan.duration;
        let mut loads = Vec::new();
        let mut last = (from, self.first.clone(), Duration::ZERO);
        let mut next = self.begin + SECOND;
        loop {
            let now = clock::now();
            if now >= next && next < end {
                next += SECOND;
                let seen = (now, sample(plan, &last.1), self.cpu());
                let load = load_between(&last, &seen);
                say(&self.line(now, load));
                loads.push(load);
                last = seen;
            }
            if now >= end || self.threads.iter().all(Hosted::is_done) {
                break;
            }
            let until = next.min(end).saturating_duration_since(now);
            // After a stop, `wait` returns at once.
            if stop.wait(until.min(STEP)) && self.threads.iter().all(Hosted::is_done) {
                break;
            }
        }
        let final_sample = sample(plan, &last.1);
        let watched = clock::now() - from;
        let server = plan.server.as_ref();
        let died = server.and_then(|server| server.died(&final_sample));
        let errors = receive_buffer_errors();
        let machine_after = MachineTime::now();
        let tail = (clock::now(), final_sample.clone(), self.cpu());
        let (figures, retries, threads) = join(self.threads)?;
        if loads.len() < figures.seconds.len() && tail.0 > last.0 {
            loads.push(load_between(&last, &tail));
        }
        Ok(Measured {
            figures,
            tls: self.tls,
            retries,
            server: (self.first, final_sample),
            watched,
            cores: plan
                .server
                .as_ref()
                .map(Processes::cores)
                .unwrap_or_default(),
            died,
            threads,
            receive_buffer_errors: errors
                .zip(self.errors_before)
                .map(|(after, before)| after.saturating_sub(before)),
            machine: self.machine_before.zip(machine_after),
            loads,
        })
    }

    /// Returns the CPU time of all threads.
    fn cpu(&self) -> Duration {
        let threads = self.threads.iter();
        threads.map(|thread| thread.telemetry.snapshot().cpu).sum()
    }

    fn line(&self, now: Instant, load: Loads) -> String {
        let mut sum = weir_http3::client::Progress::default();
        for thread in &self.threads {
            let seen = thread.progress();
            sum.successes += seen.successes;
            sum.failed += seen.failed;
            sum.connections += seen.connections;
            sum.in_flight += seen.in_flight;
        }
        let seconds = now.saturating_duration_since(self.begin).as_secs_f64();
        let server = load
            .server
            .map_or_else(String::new, |load| format!(", server {load:.0} %"));
        format!(
            "{seconds:>4.0} s  {} requests ({:.0}/s), {} failed, {} connections, {} in flight{server}, client {:.0} % CPU",
            sum.successes,
            number(sum.successes) / seconds.max(0.001),
            sum.failed,
            sum.connections,
            sum.in_flight,
            load.client,
        )
    }
}

/// Waits for the threads. Returns their figures together, the number of Retry packets, and each thread's telemetry.
fn join(threads: Vec<Hosted>) -> anyhow::Result<(Figures, u64, Vec<TelemetrySnapshot>)> {
    let mut figures: Option<Figures> = None;
    let mut retries = 0;
    let mut snapshots = Vec::new();
    for thread in threads {
        let (client, telemetry, more_retries) = thread.join()?;
        retries += more_retries;
        snapshots.push(telemetry.snapshot());
        match &mut figures {
            Some(sum) => sum.merge(client.figures()),
            None => figures = Some(client.figures().clone()),
        }
    }
    let figures = figures.context("a load client has one thread at least")?;
    Ok((figures, retries, snapshots))
}

fn sample(plan: &Plan, before: &Sample) -> Sample {
    let server = plan.server.as_ref();
    server.map_or_else(Sample::default, |server| server.sample(before))
}

fn load_between(
    before: &(Instant, Sample, Duration),
    after: &(Instant, Sample, Duration),
) -> Loads {
    let elapsed = after.0 - before.0;
    let used = after.1.used_since(&before.1).cpu;
    Loads {
        server: (!after.1.is_empty()).then(|| percent(used, elapsed)),
        client: percent(after.2.saturating_sub(before.2), elapsed),
    }
}

impl Measured {
    fn report(&self, plan: &Plan, run: figures::Run) -> Report {
        let figures = &self.figures;
        Report::new(
            run,
            self.requests(plan),
            self.connections(),
            latency(figures),
            self.per_second(),
            plan.server.as_ref().map(|server| self.server(server)),
            self.client(plan),
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
        let suites = self.tls.cipher_suites();
        figures::Connections {
            begun: figures.connections_begun,
            handshakes: figures.handshakes,
            unfinished: figures.handshakes_unfinished,
            // QUIC version 1 uses TLS 1.3 (RFC 9001 §4.2).
            tls_version: (figures.handshakes > 0).then(|| "1.3".to_owned()),
            cipher_suites: suites.iter().map(|(name, _)| (*name).to_owned()).collect(),
            certificate_key: self.tls.certificate_key().map(str::to_owned),
            retries: self.retries,
            resumed: figures.handshakes.saturating_sub(self.tls.proofs()),
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

    fn server(&self, processes: &Processes) -> figures::Server {
        let (before, after) = &self.server;
        let usage = figures::ServerUsage {
            pids: processes.pids.clone(),
            cores: self.cores.clone(),
            used: after.used_since(before),
            busiest_thread: after.busiest_since(before),
            watched: self.watched,
            stolen_percent: self.stolen_percent(&self.cores),
            died: self.died.clone(),
        };
        figures::Server::of(usage, self.figures.successes)
    }

    /// Returns the time of `cores` that the hypervisor gave to others, in per cent.
    fn stolen_percent(&self, cores: &[u32]) -> Option<f64> {
        let (before, after) = self.machine.as_ref()?;
        before.stolen_percent_of(cores, after)
    }

    fn client(&self, plan: &Plan) -> figures::Client {
        let sum = |pick: fn(&TelemetrySnapshot) -> u64| self.threads.iter().map(pick).sum();
        let cores = plan.cores.iter().take(plan.threads);
        let cores: Vec<u32> = cores.filter_map(|core| u32::try_from(*core).ok()).collect();
        let usage = |thread: &TelemetrySnapshot| ClientThreadUsage {
            cpu: thread.cpu,
            event_loop_lag_p99: thread.lag.quantile(0.99),
        };
        let threads: Vec<_> = self.threads.iter().map(usage).collect();
        let figures = &self.figures;
        figures::Client {
            stolen_percent: self.stolen_percent(&cores),
            cores,
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

/// Returns the parameters of a run for its report.
fn describe(plan: &Plan, machine: &Machine) -> figures::Run {
    figures::Run {
        weir_version: env!("CARGO_PKG_VERSION").to_owned(),
        command_line: plan.command_line.clone(),
        url: plan.urls[0].to_string(),
        address: plan.address.to_string(),
        start_time: String::new(),
        kernel: machine.kernel.clone(),
        cpu_model: machine.cpu_model.clone(),
        threads: plan.threads as u64,
        max_concurrent_conns: plan.connections as u64,
        max_requests_per_conn: plan.requests_per_connection.unwrap_or(0),
        max_concurrent_requests: plan.requests_at_once as u64,
        max_requests_per_thread: plan.requests_per_thread.unwrap_or(0),
        rate_per_second: plan.rate_per_second,
        handshake: plan.handshake.name().to_owned(),
        send_udp_payload_size: plan.send_udp_payload_size.into(),
        recv_udp_payload_size: plan.recv_udp_payload_size.into(),
        expected_length: plan.expected_bytes,
        duration_ms: plan.duration.as_secs_f64() * 1e3,
        elapsed_ms: 0.0,
        handshake_timeout_ms: plan.handshake_timeout.as_secs_f64() * 1e3,
        idle_timeout_ms: plan.idle_timeout.as_secs_f64() * 1e3,
        gro: plan.gro,
        sockets: plan.sockets.into(),
        mtu_bytes: plan.mtu_bytes,
        notes: plan.notes.clone(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn number(count: u64) -> f64 {
    count as f64
}

/// Time from the start of the threads to the first connection, so that all threads begin together.
const LEAD: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);
/// Time between two looks at the threads.
const STEP: Duration = Duration::from_millis(10);
