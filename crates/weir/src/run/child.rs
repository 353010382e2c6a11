//! Our own relay as a child process on its own core.

use std::{
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    process::{Child, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};

/// A running relay. Killed when dropped.
#[derive(Debug)]
pub(crate) struct ChildRelay {
    child: Child,
    out: BufReader<ChildStdout>,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// What it said when it was ready.
    pub(crate) ready: Value,
}

impl ChildRelay {
    /// Starts `weir relay` on a port of loopback that the system chooses.
    pub(crate) fn start(core: Option<usize>) -> anyhow::Result<Self> {
        let core = core.map(|core| core.to_string());
        let mut arguments = vec!["--listen", "127.0.0.1:0"];
        arguments.extend(core.iter().flat_map(|core| ["--core", core]));
        Self::with(&arguments)
    }

    /// Starts `weir relay` with these arguments.
    pub(crate) fn with(arguments: &[&str]) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        command.arg("relay").args(arguments);
        // A signal from the terminal goes to the whole group; the relay is to outlive the end of the load.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the relay")?;
        let out = child
            .stdout
            .take()
            .context("the relay has no standard output")?;
        let mut out = BufReader::new(out);
        let mut line = String::new();
        out.read_line(&mut line)
            .context("cannot read from the relay")?;
        let ready: Value = serde_json::from_str(&line).unwrap_or_default();
        let address = ready["listening"].as_str().map(str::parse);
        let Some(Ok(address)) = address else {
            drop(child.kill());
            drop(child.wait());
            bail!("the relay did not start");
        };
        Ok(Self {
            child,
            out,
            address,
            ready,
        })
    }

    /// An address of this machine under which it is reached.
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
        self.child.id()
    }

    /// Whether it ended by itself, and how.
    pub(crate) fn has_died(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok()??;
        Some(format!("the relay died in mid-run ({status})"))
    }

    /// Stops it and takes its counters.
    pub(crate) fn stop(mut self) -> Map<String, Value> {
        let pid = i32::try_from(self.child.id()).unwrap_or(0);
        weir_net::terminate(pid);
        let mut line = String::new();
        if self.out.read_line(&mut line).is_err() {
            return Map::new();
        }
        let last: Value = serde_json::from_str(&line).unwrap_or_default();
        drop(self.child.wait());
        last["counters"].as_object().cloned().unwrap_or_default()
    }
}

impl Drop for ChildRelay {
    fn drop(&mut self) {
        // Fails only if it is gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
