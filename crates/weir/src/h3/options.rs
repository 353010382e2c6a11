//! The options of a measurement, and the plan that they are resolved into.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, Command, FromArgMatches as _};
use weir_http3::client::limits::SECONDS_MAX;
use weir_net::raise_open_files_limit;

use super::{
    plan::{Handshake, Plan},
    url::{Url, check_isolated},
};
use crate::{
    harness::{machine::Machine, process, processes::Processes, udp::mtu_to},
    run::TrustArguments,
    time::{time, time_limit},
};

// How a server is loaded: the flags of `weir h3 bench`, and what files of comparisons say instead of them. (A doc comment
// would take the place of the help of the command that has these flags.)
#[derive(Clone, Debug, Args)]
pub(crate) struct LoadOptions {
    /// Threads of the client
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) threads: usize,
    /// Connections at once, of each thread
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) max_concurrent_conns: usize,
    /// Requests of a connection before another takes its place; 0: no limit
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) max_requests_per_conn: u64,
    /// Requests at once, of each connection
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) max_concurrent_requests: usize,
    /// Requests of each thread; 0: no limit
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) max_requests_per_thread: u64,
    /// Bytes of UDP payload in each full packet that is sent, from 1200 to 65527
    #[arg(long, value_name = "BYTES", default_value_t = 1350, value_parser = clap::value_parser!(u16).range(1200..=65527))]
    pub(crate) send_udp_payload_size: u16,
    /// Bytes of UDP payload that the server may send in a packet (`max_udp_payload_size`), from 1200 to 65527
    #[arg(long, value_name = "BYTES", default_value_t = 1350, value_parser = clap::value_parser!(u16).range(1200..=65527))]
    pub(crate) recv_udp_payload_size: u16,
    /// How long to send requests; a plain number is seconds
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub(crate) duration: Duration,
    /// How long a handshake may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time_limit)]
    pub(crate) handshake_timeout: Duration,
    /// How long a connection may be silent
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time_limit)]
    pub(crate) idle_timeout: Duration,
    /// How long the same load runs before the measurement
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    pub(crate) warm_up: Duration,
    /// Open loop: requests per second of all threads together; latency counts from when each was due
    #[arg(long, value_name = "PER_SECOND")]
    pub(crate) rate: Option<f64>,
    /// Short connections: one request each, closed as soon as its answer is complete
    #[arg(long, value_enum, value_name = "HANDSHAKE", conflicts_with_all = ["max_requests_per_conn", "max_concurrent_requests"])]
    pub(crate) short: Option<Handshake>,
    /// Bytes that every answer has to have, besides what its own content-length says
    #[arg(long, value_name = "BYTES")]
    pub(crate) expect_length: Option<u64>,
    /// Address of the server, instead of what its name resolves to
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) connect: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) trust: TrustArguments,
    /// Allow a server that is neither on this machine nor in a private network
    #[arg(long)]
    pub(crate) allow_public: bool,
    /// Process ID of the server, if it runs on this machine: the report then has its CPU; can be repeated
    #[arg(long, value_name = "PID")]
    pub(crate) server_pid: Vec<u32>,
    /// Name of the server's program, instead of --server-pid
    #[arg(long, value_name = "NAME", conflicts_with = "server_pid")]
    pub(crate) server_process: Option<String>,
    /// Cores of the client's threads, with commas between [default: anywhere]
    #[arg(long, alias = "core", value_name = "CORES", value_delimiter = ',')]
    pub(crate) cores: Vec<usize>,
    /// UDP sockets of each thread
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) sockets: u32,
    /// Receive packets one by one even where the kernel can join them (and send them so)
    #[arg(long)]
    pub(crate) no_gro: bool,
}

impl LoadOptions {
    /// The options that the `arguments` of a comparison's file give.
    pub(crate) fn from_arguments(arguments: &[String]) -> anyhow::Result<Self> {
        let command = Self::augment_args(Command::new("weir h3 bench").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments);
        let matches = matches.map_err(|error| anyhow::anyhow!("{}", error.render()))?;
        Ok(Self::from_arg_matches(&matches)?)
    }

    /// The plan of a measurement. Everything that can be wrong is found here, before anything is started.
    pub(crate) fn plan(&self, url: Url, machine: &Machine) -> anyhow::Result<Plan> {
        let address = match self.connect {
            Some(address) => address,
            None => url.address().context("URL")?,
        };
        check_isolated(address, self.allow_public).context("URL")?;
        self.check(machine)?;
        let limited = |count: u64| (count > 0).then_some(count);
        let (requests_per_connection, requests_at_once) = match self.short {
            None => (
                limited(self.max_requests_per_conn),
                self.max_concurrent_requests,
            ),
            Some(_) => (Some(1), 1),
        };
        let plan = Plan {
            trust: self.trust.choice()?.load()?,
            handshake: self.short.unwrap_or(Handshake::Full),
            threads: self.threads,
            connections: self.max_concurrent_conns,
            requests_per_connection,
            requests_at_once,
            requests_per_thread: limited(self.max_requests_per_thread),
            rate_per_second: self.rate,
            send_udp_payload_size: self.send_udp_payload_size,
            recv_udp_payload_size: self.recv_udp_payload_size,
            warm_up: self.warm_up,
            duration: self.duration,
            handshake_timeout: self.handshake_timeout,
            idle_timeout: self.idle_timeout,
            expected_bytes: self.expect_length,
            cores: self.cores.clone(),
            sockets: self.sockets,
            gro: !self.no_gro,
            server: self.server()?,
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

    fn check(&self, machine: &Machine) -> anyhow::Result<()> {
        for core in &self.cores {
            if !machine.cores.contains(core) {
                bail!(
                    "--cores: there is no core {core} here; there are {:?}",
                    machine.cores
                );
            }
        }
        if !(1..=THREADS_MAX).contains(&self.threads) {
            bail!(
                "--threads: expected 1 to {THREADS_MAX}, not {}",
                self.threads
            );
        }
        if self.warm_up > Duration::from_secs(SECONDS_MAX as u64) {
            bail!("--warm-up: expected up to {SECONDS_MAX} s");
        }
        if self.short.is_some() && self.max_requests_per_conn > 0 {
            bail!("--max-requests-per-conn: short connections have one request each");
        }
        Ok(())
    }

    /// The processes of the server that are watched.
    fn server(&self) -> anyhow::Result<Option<Processes>> {
        if let Some(name) = &self.server_process {
            let found = Processes::by_name(name);
            if found.pids.is_empty() {
                bail!("--server-process: no process here is called {name:?}");
            }
            return Ok(Some(found));
        }
        if let Some(pid) = self.server_pid.iter().find(|pid| process::has_ended(**pid)) {
            bail!("--server-pid: there is no process {pid} here");
        }
        Ok((!self.server_pid.is_empty()).then(|| Processes {
            pids: self.server_pid.clone(),
        }))
    }
}

/// More than a machine has cores for.
const THREADS_MAX: usize = 256;
/// Files that the process needs beside its sockets.
const FILES_BESIDE: u64 = 64;

#[cfg(test)]
mod tests {
    use weir_net::{SocketConfig, UdpSocket};

    use super::*;

    #[test]
    fn what_is_said_of_gro_reaches_the_sockets() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let plain = UdpSocket::bind(any, SocketConfig::default()).unwrap();
        for (flag, offload) in [(None, true), (Some("--no-gro"), false)] {
            let arguments = ["--insecure", "--sockets=3"].into_iter().chain(flag);
            let arguments: Vec<String> = arguments.map(str::to_owned).collect();
            let options = LoadOptions::from_arguments(&arguments).unwrap();
            let url = "https://127.0.0.1:4433/".parse().unwrap();
            let plan = options.plan(url, &Machine::this()).unwrap();
            let sockets = plan.sockets().unwrap();
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
