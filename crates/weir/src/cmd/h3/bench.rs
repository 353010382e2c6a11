//! `weir h3 bench`: put load on an HTTP/3 server.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use weir_http3::client::limits::SECONDS_MAX;
use weir_net::{certificate, raise_open_files_limit};
use weir_quic::tls::Trust;
use weir_report::http3::{Report, html, json, terminal};

use crate::{
    cmd::{
        bench::{check_writable, hash_of, screen},
        print_out,
        progress::Progress,
        time::{time, time_limit},
    },
    h3::{
        measuring::{self, Handshake, Plan},
        processes::{Processes, has_ended, mtu_to},
        url::{Url, check_isolated},
    },
    run::Machine,
    signals,
};

/// Put load on an HTTP/3 server
///
/// A success is an answer with status 200 and the exact length; everything else is counted by its kind. With the
/// server's process the report says what a request cost it, and whether it was the limit. Exit code 0: requests
/// succeeded; 1: none did; 2: nothing was measured.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// What to ask for, `https://HOST[:PORT]/PATH`
    url: String,
    /// Threads of the client
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    threads: usize,
    /// Connections at once, of each thread
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    max_concurrent_conns: usize,
    /// Requests of a connection before another takes its place; 0: no limit
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    max_requests_per_conn: u64,
    /// Requests at once, of each connection
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    max_concurrent_requests: usize,
    /// Requests of each thread; 0: no limit
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    max_requests_per_thread: u64,
    /// Bytes of UDP payload in each full packet that is sent, from 1200 to 65527
    #[arg(long, value_name = "BYTES", default_value_t = 1350, value_parser = clap::value_parser!(u16).range(1200..=65527))]
    send_udp_payload_size: u16,
    /// Bytes of UDP payload that the server may send in a packet (`max_udp_payload_size`), from 1200 to 65527
    #[arg(long, value_name = "BYTES", default_value_t = 1350, value_parser = clap::value_parser!(u16).range(1200..=65527))]
    recv_udp_payload_size: u16,
    /// How long to send requests; a plain number is seconds
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    duration: Duration,
    /// How long a handshake may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time_limit)]
    handshake_timeout: Duration,
    /// How long a connection may be silent
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time_limit)]
    idle_timeout: Duration,
    /// The same load before, which does not count
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    warm_up: Duration,
    /// Open loop: so many requests per second of all threads, with latency from when each was due
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Short connections: one request each, closed as soon as its answer is complete
    #[arg(long, value_enum, value_name = "HANDSHAKE", conflicts_with_all = ["max_requests_per_conn", "max_concurrent_requests"])]
    short: Option<Short>,
    /// Bytes that every answer has to have, besides what its own content-length says
    #[arg(long, value_name = "BYTES")]
    expect_length: Option<u64>,
    /// Where the server is, instead of where its name leads
    #[arg(long, value_name = "ADDRESS")]
    connect: Option<SocketAddr>,
    /// Trust any certificate
    #[arg(long)]
    insecure: bool,
    /// Trust the certificates in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Trust the certificate with this SHA-256 hash, in hexadecimal digits, and no other
    #[arg(long, value_name = "HASH", conflicts_with_all = ["insecure", "ca"])]
    certificate_hash: Option<String>,
    /// Allow a server that is neither on this machine nor in a private network
    #[arg(long)]
    allow_public: bool,
    /// Process of the server, if it runs on this machine: its CPU is watched; can be repeated
    #[arg(long, value_name = "PID")]
    server_pid: Vec<u32>,
    /// The same by the name of its program
    #[arg(long, value_name = "NAME", conflicts_with = "server_pid")]
    server_process: Option<String>,
    /// Cores of the client's threads, with commas between [default: anywhere]
    #[arg(long, alias = "core", value_name = "CORES", value_delimiter = ',')]
    cores: Vec<usize>,
    /// UDP sockets of each thread
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    sockets: u32,
    /// Receive packets one by one even where the kernel can join them (and send them so)
    #[arg(long)]
    no_gro: bool,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Short {
    /// Every handshake is a full one
    Full,
    /// The session of an earlier connection is resumed
    Resumed,
    /// And the request leaves with the first packet (0-RTT)
    #[value(name = "0rtt")]
    Early,
}

pub(crate) fn run(arguments: &BenchArguments) -> anyhow::Result<ExitCode> {
    let machine = Machine::this();
    let plan = plan(arguments, &machine)?;
    for file in [&arguments.json, &arguments.html].into_iter().flatten() {
        check_writable(file)?;
    }
    let stop = signals::stop_on_signals()?;
    let mut progress = Progress::new();
    let report = measuring::measure(&plan, &machine, &stop, |line| progress.say(line));
    progress.end();
    let report = report?;
    write_out(arguments, &report)?;
    Ok(if report.requests.successes > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Everything that can be wrong is found here, before anything is started.
pub(super) fn plan(arguments: &BenchArguments, machine: &Machine) -> anyhow::Result<Plan> {
    let url: Url = arguments.url.parse().context("URL")?;
    let address = match arguments.connect {
        Some(address) => address,
        None => url.address().context("URL")?,
    };
    check_isolated(address, arguments.allow_public).context("URL")?;
    for core in &arguments.cores {
        if !machine.cores.contains(core) {
            bail!(
                "--cores: there is no core {core} here; there are {:?}",
                machine.cores
            );
        }
    }
    if !(1..=THREADS_MAX).contains(&arguments.threads) {
        bail!(
            "--threads: expected 1 to {THREADS_MAX}, not {}",
            arguments.threads
        );
    }
    if arguments.warm_up > Duration::from_secs(SECONDS_MAX as u64) {
        bail!("--warm-up: expected up to {SECONDS_MAX} s");
    }
    let limited = |count: u64| (count > 0).then_some(count);
    let (requests_per_connection, requests_at_once, handshake) = match arguments.short {
        None => (
            limited(arguments.max_requests_per_conn),
            arguments.max_concurrent_requests,
            Handshake::Full,
        ),
        Some(Short::Full) => (Some(1), 1, Handshake::Full),
        Some(Short::Resumed) => (Some(1), 1, Handshake::Resumed),
        Some(Short::Early) => (Some(1), 1, Handshake::Early),
    };
    let plan = Plan {
        trust: trust(arguments)?,
        handshake,
        threads: arguments.threads,
        connections: arguments.max_concurrent_conns,
        requests_per_connection,
        requests_at_once,
        requests_per_thread: limited(arguments.max_requests_per_thread),
        rate_per_second: arguments.rate,
        send_udp_payload_size: arguments.send_udp_payload_size,
        recv_udp_payload_size: arguments.recv_udp_payload_size,
        warm_up: arguments.warm_up,
        duration: arguments.duration,
        handshake_timeout: arguments.handshake_timeout,
        idle_timeout: arguments.idle_timeout,
        expected_bytes: arguments.expect_length,
        cores: arguments.cores.clone(),
        sockets: arguments.sockets,
        gro: !arguments.no_gro,
        server: server(arguments)?,
        mtu_bytes: mtu_to(address),
        command_line: std::env::args().collect::<Vec<_>>().join(" "),
        notes: Vec::new(),
        url,
        address,
    };
    plan.check()?;
    let files = raise_open_files_limit().context("cannot raise the limit of open files")?;
    if u64::from(plan.sockets) * plan.threads as u64 + FILES_BESIDE > files {
        bail!("--sockets: more than the {files} files that may be open");
    }
    Ok(plan)
}

fn trust(arguments: &BenchArguments) -> anyhow::Result<Trust> {
    Ok(match (&arguments.certificate_hash, &arguments.ca) {
        _ if arguments.insecure => Trust::Anyone,
        (Some(hash), _) => Trust::Hashes(vec![hash_of(hash).context("--certificate-hash")?]),
        (None, Some(file)) => Trust::Roots(certificate::load_chain(file).context("--ca")?),
        (None, None) => Trust::Roots(certificate::system_roots()?),
    })
}

fn server(arguments: &BenchArguments) -> anyhow::Result<Option<Processes>> {
    let found = match &arguments.server_process {
        Some(name) => Processes::by_name(name),
        None if arguments.server_pid.is_empty() => return Ok(None),
        None => Processes {
            pids: arguments.server_pid.clone(),
        },
    };
    if let Some(name) = arguments
        .server_process
        .as_ref()
        .filter(|_| found.pids.is_empty())
    {
        bail!("--server-process: no process here is called {name:?}");
    }
    for pid in &found.pids {
        if has_ended(*pid) {
            bail!("--server-pid: there is no process {pid} here");
        }
    }
    Ok(Some(found))
}

fn write_out(arguments: &BenchArguments, report: &Report) -> anyhow::Result<()> {
    let write = |file: &Path, text: String| {
        std::fs::write(file, text).with_context(|| format!("{}: cannot be written", file.display()))
    };
    if let Some(file) = &arguments.json {
        write(file, json::render(report))?;
    }
    if let Some(file) = &arguments.html {
        write(file, html::render(report))?;
    }
    let (width, colour) = screen();
    print_out(&terminal::render(report, width, colour))
}

/// More than a machine has cores for.
const THREADS_MAX: usize = 256;
/// Files that the process needs beside its sockets.
const FILES_BESIDE: u64 = 64;

#[cfg(test)]
mod tests {
    use clap::Parser;
    use weir_net::{SocketConfig, UdpSocket};

    use super::*;

    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        bench: BenchArguments,
    }

    #[test]
    fn what_is_said_of_gro_reaches_the_sockets() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let plain = UdpSocket::bind(any, SocketConfig::default()).unwrap();
        for (flag, offload) in [(None, true), (Some("--no-gro"), false)] {
            let line = ["https://127.0.0.1:4433/", "--insecure", "--sockets=3"];
            let Line { bench } = Line::try_parse_from(line.into_iter().chain(flag)).unwrap();
            let sockets = plan(&bench, &Machine::this()).unwrap().sockets().unwrap();
            assert_eq!(sockets.len(), 3);
            // Not every kernel has it.
            let expected = offload && plain.has_segmentation();
            let mut sockets = sockets.iter();
            assert!(
                sockets.all(|socket| socket.has_segmentation() == expected),
                "{flag:?}"
            );
        }
    }
}
