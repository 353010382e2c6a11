//! weir's own relay as a child process.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    process::{ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};
use weir_quic::Congestion;

use super::child::ChildGroup;

/// The kind of weir's own relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnRelay {
    /// `weir relay`.
    Weir {
        /// Threads that serve, at least one.
        threads: usize,
        /// A core for each thread; any if empty.
        cores: Vec<usize>,
    },
    /// The null relay, for calibration.
    Null {
        /// The core of the null relay; `None` for any.
        core: Option<usize>,
    },
}

impl OwnRelay {
    /// Returns the subcommand and the arguments that start the relay.
    fn arguments(&self) -> (&'static str, Vec<String>) {
        let list = |cores: &[usize]| {
            let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
            cores.join(",")
        };
        let (command, threads, cores) = match self {
            Self::Weir { threads, cores } => ("relay", *threads, cores.clone()),
            Self::Null { core } => ("null-relay", 1, core.iter().copied().collect()),
        };
        let mut arguments = vec!["--listen=127.0.0.1:0".to_owned()];
        if let Self::Weir { .. } = self {
            for limit in ["relay.sessions_max", "quic.connections_max"] {
                arguments.push(format!("--set=limits.{limit}={CLIENTS_MAX}"));
            }
        }
        if threads > 1 {
            arguments.push(format!("--threads={threads}"));
        }
        if !cores.is_empty() {
            arguments.push(format!("--cores={}", list(&cores)));
        }
        (command, arguments)
    }
}

/// A running relay. The drop kills it, and so does the end of the thread that started it.
#[derive(Debug)]
pub(crate) struct ChildRelay {
    process: ChildGroup,
    out: BufReader<ChildStdout>,
    /// The relay's address.
    pub(crate) address: SocketAddr,
    /// The line of JSON that the relay printed when it was ready.
    pub(crate) ready: Value,
}

impl ChildRelay {
    /// Starts a relay on a free port of loopback.
    pub(crate) fn start(relay: &OwnRelay) -> anyhow::Result<Self> {
        let (command, arguments) = relay.arguments();
        Self::launch(command, &arguments)
    }

    /// Starts `weir relay` at `address` with a congestion controller.
    pub(crate) fn of_streams(address: &str, congestion: Congestion) -> anyhow::Result<Self> {
        let congestion = match congestion {
            Congestion::Cubic => "limits.quic.congestion=cubic".to_owned(),
            Congestion::Delay { queue_target } => {
                let target = queue_target.as_millis();
                format!("limits.quic.congestion=delay {target}ms")
            }
        };
        Self::with(&["--listen", address, "--set", &congestion])
    }

    /// Starts `weir relay` with these arguments.
    fn with(arguments: &[&str]) -> anyhow::Result<Self> {
        Self::launch("relay", arguments)
    }

    fn launch(subcommand: &str, arguments: &[impl AsRef<OsStr>]) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        command.arg(subcommand).args(arguments);
        weir_net::end_with_parent(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = ChildGroup::start(command, None).context("cannot start the relay")?;
        let out = process.take_stdout();
        let out = out.context("the relay has no standard output")?;
        let mut out = BufReader::new(out);
        let mut line = String::new();
        out.read_line(&mut line)
            .context("cannot read from the relay")?;
        let ready: Value = serde_json::from_str(&line).unwrap_or_default();
        let address = ready["listening"].as_str().map(str::parse);
        let Some(Ok(address)) = address else {
            process.kill();
            bail!("weir's own relay did not start; its error stands above");
        };
        Ok(Self {
            process,
            out,
            address,
            ready,
        })
    }

    /// Returns an address of this machine at which clients reach the relay.
    pub(crate) fn reachable(&self) -> SocketAddr {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns how the relay ended by itself, if it did.
    pub(crate) fn has_died(&mut self) -> Option<String> {
        let status = self.process.exit_status()?;
        Some(format!("the relay ended during the run ({status})"))
    }

    /// Stops the relay, and returns its counters.
    pub(crate) fn stop(mut self) -> Map<String, Value> {
        self.process.terminate();
        let mut line = String::new();
        if self.out.read_line(&mut line).is_err() {
            return Map::new();
        }
        let last: Value = serde_json::from_str(&line).unwrap_or_default();
        self.process.wait();
        last["counters"].as_object().cloned().unwrap_or_default()
    }
}

impl Drop for ChildRelay {
    fn drop(&mut self) {
        self.process.kill();
    }
}

/// Clients of the largest load: 50,000 subscribers, 5,000 publishers, and as many again that reconnect.
const CLIENTS_MAX: u32 = 110_000;
