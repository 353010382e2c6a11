//! The flags of `weir h3 bench`, and the plan of a measurement that follows from them.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, Command, FromArgMatches as _};
use weir_http3::client::limits::{CONNECTIONS_MAX, PATHS_MAX, REQUESTS_AT_ONCE_MAX, SECONDS_MAX};

use super::{
    plan::{Handshake, Plan, THREADS_MAX},
    url::{Url, check_isolated},
};
use crate::{
    harness::{
        machine::{Machine, check_cores},
        process,
        processes::Processes,
        udp::mtu_to,
    },
    numbers::{address, core, positive, whole},
    output::command_line,
    run::TrustArguments,
    time::{time, time_limit},
};

// The flags of `weir h3 bench`, which files of comparisons give too. No doc comment: clap would show it as the help of the
// command.
#[derive(Clone, Debug, Args)]
pub(crate) struct LoadOptions {
    /// Threads of the client, 1 to 256; each has its own connections and requests
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = whole(1..=THREADS_MAX))]
    pub(crate) threads: usize,
    /// Open connections of each thread, 1 to 50000
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = whole(1..=CONNECTIONS_MAX))]
    pub(crate) max_concurrent_conns: usize,
    /// Requests of a connection before a new connection replaces it; 0: no limit
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = whole(0..=u64::MAX))]
    pub(crate) max_requests_per_conn: u64,
    /// Requests in flight on each connection, 1 to 10000
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = whole(1..=REQUESTS_AT_ONCE_MAX))]
    pub(crate) max_concurrent_requests: usize,
    /// Requests of each thread, after which the run ends; 0: no limit
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = whole(0..=u64::MAX))]
    pub(crate) max_requests_per_thread: u64,
    /// UDP payload of full packets that the client sends, in bytes, 1200 to 65527
    #[arg(long, value_name = "BYTES", default_value_t = 1350, value_parser = whole(1200..=65_527_u16))]
    pub(crate) send_udp_payload_size: u16,
    /// Largest UDP payload that the server may send (`max_udp_payload_size`), in bytes, 1200 to 65527
    #[arg(long, value_name = "BYTES", default_value_t = 1350, value_parser = whole(1200..=65_527_u16))]
    pub(crate) recv_udp_payload_size: u16,
    /// Length of the measurement, up to 1h; a number without a unit is seconds
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub(crate) duration: Duration,
    /// Time that a handshake may take, 1ms to 1day
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time_limit)]
    pub(crate) handshake_timeout: Duration,
    /// Time without a packet from the server after which a connection is lost, 1ms to 1day
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time_limit)]
    pub(crate) idle_timeout: Duration,
    /// Length of the same load before the measurement, which does not count, up to 1h
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    pub(crate) warm_up: Duration,
    /// Open loop: send this many requests per second, all threads together, whether or not responses arrive; latency
    /// starts when a request is due [default: closed loop, as fast as the server answers]
    #[arg(long, value_name = "PER_SECOND", value_parser = positive)]
    pub(crate) rate: Option<f64>,
    /// Short connections: each has one request, and is closed as soon as the response is complete
    #[arg(long, value_enum, value_name = "HANDSHAKE", conflicts_with_all = ["max_requests_per_conn", "max_concurrent_requests"])]
    pub(crate) short: Option<Handshake>,
    /// Length that every response must have, in bytes [default: what its content-length says]
    #[arg(long, value_name = "BYTES", value_parser = whole(0..=u64::MAX))]
    pub(crate) expect_length: Option<u64>,
    /// Address of the server, such as 127.0.0.1:4433 [default: what DNS says of the URL's host]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) connect: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) trust: TrustArguments,
    /// Allow a server outside this machine and private networks
    #[arg(long)]
    pub(crate) allow_public: bool,
    /// Process ID of the server, if it runs on this machine: adds its CPU time to the report; repeat it for a server of
    /// several processes
    #[arg(long, value_name = "PID", value_parser = whole(1..=u32::MAX))]
    pub(crate) server_pid: Vec<u32>,
    /// File name of the server's program, instead of --server-pid; all processes of that name are watched
    #[arg(long, value_name = "NAME", conflicts_with = "server_pid")]
    pub(crate) server_process: Option<String>,
    /// Cores of the client's threads, with commas between [default: any]
    #[arg(long, alias = "core", value_name = "CORES", value_delimiter = ',', value_parser = core)]
    pub(crate) cores: Vec<usize>,
    /// UDP sockets of each thread, 1 to 1024
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = whole(1..=1024_u32))]
    pub(crate) sockets: u32,
    /// Send and receive packets one by one, without GSO and GRO
    #[arg(long)]
    pub(crate) no_gro: bool,
}

impl LoadOptions {
    /// Returns the flags that `arguments` in a comparison's file gives.
    pub(crate) fn from_arguments(arguments: &[String]) -> anyhow::Result<Self> {
        let command = Self::augment_args(Command::new("weir h3 bench").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments);
        let matches = matches.map_err(|error| anyhow::anyhow!("{}", error.render()))?;
        Ok(Self::from_arg_matches(&matches)?)
    }

    /// Returns the plan of a measurement of `urls`, which are requested in turns.
    ///
    /// # Errors
    /// Anything that is wrong with flags or URL: nothing is started before all of it is checked.
    pub(crate) fn plan(&self, urls: &[Url], machine: &Machine) -> anyhow::Result<Plan> {
        let url = one_server(urls)?;
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
            command_line: command_line(),
            qlog: None,
            notes: Vec::new(),
            urls: urls.to_vec(),
            address,
        };
        plan.check()?;
        Ok(plan)
    }

    fn check(&self, machine: &Machine) -> anyhow::Result<()> {
        check_cores("--cores", &self.cores, &machine.cores)?;
        if self.duration.is_zero() || self.duration > Duration::from_secs(SECONDS_MAX as u64) {
            bail!(
                "--duration: expected more than 0 s and up to {SECONDS_MAX} s, not {} s",
                self.duration.as_secs_f64()
            );
        }
        if self.warm_up > Duration::from_secs(SECONDS_MAX as u64) {
            bail!(
                "--warm-up: expected at most {SECONDS_MAX} s, not {} s",
                self.warm_up.as_secs_f64()
            );
        }
        if self.short.is_some() && self.max_requests_per_conn > 0 {
            bail!(
                "--max-requests-per-conn: leave it out with --short: short connections have one request each"
            );
        }
        Ok(())
    }

    /// Returns the processes of the server to watch.
    fn server(&self) -> anyhow::Result<Option<Processes>> {
        if let Some(name) = &self.server_process {
            let found = Processes::by_name(name);
            if found.pids.is_empty() {
                bail!(
                    "--server-process: no process on this machine has a program called {name:?}; is the server running?"
                );
            }
            return Ok(Some(found));
        }
        if let Some(pid) = self.server_pid.iter().find(|pid| process::has_ended(**pid)) {
            bail!(
                "--server-pid: there is no process {pid} on this machine; is the server running?"
            );
        }
        Ok((!self.server_pid.is_empty()).then(|| Processes {
            pids: self.server_pid.clone(),
        }))
    }
}

/// Checks that all URLs are on one server. Returns the first.
pub(super) fn one_server(urls: &[Url]) -> anyhow::Result<&Url> {
    if urls.len() > PATHS_MAX {
        bail!("URL: expected at most {PATHS_MAX} URLs, not {}", urls.len());
    }
    let first = urls.first().context("URL: expected at least one")?;
    match urls.iter().find(|url| url.authority() != first.authority()) {
        None => Ok(first),
        Some(other) => bail!(
            "URL: expected URLs with the same host and port, not {first} and {other}; measure two servers with `weir h3 \
             compare`, or in a run each"
        ),
    }
}

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
            let plan = options.plan(&[url], &Machine::this()).unwrap();
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
