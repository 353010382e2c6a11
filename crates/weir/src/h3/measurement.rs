//! A measurement of an HTTP/3 server: load client, observation of the server's processes, report.

use std::{
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

use anyhow::Context as _;
use weir_http3::{
    Limits,
    client::{Client, Figures},
};
use weir_net::{Stop, clock};
use weir_quic::{ClientConfig, tls::ClientTls};
use weir_report::{
    http3::{self as figures, Report},
    process::percent,
};

use super::{
    measured::{Loads, Measured, Seen, ThreadMeasured},
    observation::Observation,
    plan::Plan,
    threads::Hosted,
};
use crate::{
    harness::{
        machine::{Machine, MachineTime},
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
    let mut run =
        |plan: &Plan, say: &mut dyn FnMut(&Seen)| run_here(plan, clock::now() + LEAD, stop, say);
    measure_by(plan, machine, stop, &mut say, &mut run)
}

/// Makes the load of a plan, and returns what was measured. Its second argument receives the progress, once a second.
pub(super) type Run<'a> =
    &'a mut dyn FnMut(&Plan, &mut dyn FnMut(&Seen)) -> anyhow::Result<Measured>;

/// Measures a server with a load that `run` makes, after a warm-up.
pub(super) fn measure_by(
    plan: &Plan,
    machine: &Machine,
    stop: &Stop,
    say: &mut dyn FnMut(&str),
    run: Run<'_>,
) -> anyhow::Result<Report> {
    if !plan.warm_up.is_zero() {
        run(&plan.warming_up(), &mut |seen| {
            say(&format!("warming up: {}", seen.line()));
        })?;
    }
    let start_time = UNIX_EPOCH + clock::since_epoch();
    let measured = run(plan, &mut |seen| say(&seen.line()))?;
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

/// Makes the load of a plan on threads of this process, without its warm-up, from `begin` on.
pub(super) fn run_here(
    plan: &Plan,
    begin: Instant,
    stop: &Stop,
    say: &mut dyn FnMut(&Seen),
) -> anyhow::Result<Measured> {
    Measurement::start(plan, begin, stop)?.finish(plan, stop, say)
}

/// A running measurement.
struct Measurement<'a> {
    begin: Instant,
    threads: Vec<Hosted>,
    tls: ClientTls,
    server: Option<Observation<'a>>,
    errors_before: Option<u64>,
    machine_before: Option<MachineTime>,
}

impl<'a> Measurement<'a> {
    fn start(plan: &'a Plan, begin: Instant, stop: &Stop) -> anyhow::Result<Self> {
        let tls = ClientTls::with_sessions(
            plan.trust.clone(),
            &[weir_h3::ALPN],
            plan.handshake.sessions(),
        )?;
        let config = ClientConfig {
            tls: tls.clone(),
            web_transport: None,
        };
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
            server: plan.server.as_ref().map(Observation::begin),
            errors_before: receive_buffer_errors(),
            machine_before: MachineTime::now(),
        })
    }

    fn finish(
        mut self,
        plan: &Plan,
        stop: &Stop,
        say: &mut dyn FnMut(&Seen),
    ) -> anyhow::Result<Measured> {
        let end = self.begin + plan.duration;
        let mut loads = Vec::new();
        let mut last = (clock::now(), Duration::ZERO);
        let mut next = self.begin + SECOND;
        loop {
            let now = clock::now();
            if now >= next && next < end {
                next += SECOND;
                let load = self.loads(now, &mut last);
                say(&self.seen(now, load));
                loads.push(load);
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
        let before = last.0;
        let tail = self.loads(clock::now(), &mut last);
        let server = self.server.map(Observation::end);
        let errors = receive_buffer_errors();
        let machine = self.machine_before.zip(MachineTime::now());
        let (figures, retries, threads) = join(self.threads)?;
        if loads.len() < figures.seconds.len() && last.0 > before {
            loads.push(tail);
        }
        let cores = plan.cores.iter().take(plan.threads);
        let cores: Vec<u32> = cores.filter_map(|core| u32::try_from(*core).ok()).collect();
        let suites = self.tls.cipher_suites();
        Ok(Measured {
            figures,
            cipher_suites: suites.iter().map(|(name, _)| (*name).to_owned()).collect(),
            certificate_key: self.tls.certificate_key().map(str::to_owned),
            proofs: self.tls.proofs(),
            retries,
            threads,
            stolen_percent: machine
                .and_then(|(before, after)| before.stolen_percent_of(&cores, &after)),
            cores,
            receive_buffer_errors: errors
                .zip(self.errors_before)
                .map(|(after, before)| after.saturating_sub(before)),
            server,
            loads,
        })
    }

    /// Returns the loads since the `last` look at the client's CPU time, and sets that to `now`.
    fn loads(&mut self, now: Instant, last: &mut (Instant, Duration)) -> Loads {
        let threads = self.threads.iter();
        let cpu: Duration = threads.map(|thread| thread.telemetry.snapshot().cpu).sum();
        let before = std::mem::replace(last, (now, cpu));
        Loads {
            server: self.server.as_mut().and_then(Observation::look),
            client: percent(cpu.saturating_sub(before.1), now - before.0),
        }
    }

    fn seen(&self, now: Instant, loads: Loads) -> Seen {
        let mut sum = Seen {
            elapsed: now.saturating_duration_since(self.begin),
            loads,
            ..Seen::default()
        };
        for thread in &self.threads {
            sum.add(&Seen::from(&thread.progress()));
        }
        sum
    }
}

/// Waits for the threads. Returns their figures together, the number of Retry packets, and each thread's telemetry.
fn join(threads: Vec<Hosted>) -> anyhow::Result<(Figures, u64, Vec<ThreadMeasured>)> {
    let mut figures: Option<Figures> = None;
    let mut retries = 0;
    let mut measured = Vec::new();
    for thread in threads {
        let (client, telemetry, more_retries) = thread.join()?;
        retries += more_retries;
        measured.push(telemetry.snapshot().into());
        match &mut figures {
            Some(sum) => sum.merge(client.figures()),
            None => figures = Some(client.figures().clone()),
        }
    }
    let figures = figures.context("a load client has one thread at least")?;
    Ok((figures, retries, measured))
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

/// Time from the start of the threads to the first connection, so that all threads begin together.
const LEAD: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);
/// Time between two looks at the threads.
const STEP: Duration = Duration::from_millis(10);
