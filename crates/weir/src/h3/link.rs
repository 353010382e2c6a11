//! An emulated link between client and server: `weir link` as a child process.

use std::{
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr},
    process::{ChildStdout, Command, Stdio},
};

use anyhow::Context as _;
use serde_json::Value;

use super::scenario::LinkConditions;
use crate::harness::child::ChildGroup;

/// A running link. The drop ends it.
#[derive(Debug)]
pub(super) struct Link {
    _process: ChildGroup,
    _out: BufReader<ChildStdout>,
    /// The address for clients.
    pub(super) address: SocketAddr,
}

impl Link {
    /// Starts a link to the server on `port` of loopback, on `core`.
    pub(super) fn start(
        conditions: LinkConditions,
        port: u16,
        core: Option<usize>,
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        command
            .args(["link", "--to"])
            .arg(SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string())
            .args(conditions.flags())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process =
            ChildGroup::start(command, core).context("weir link cannot be started")?;
        let out = process.take_stdout().context("weir link has no output")?;
        let mut out = BufReader::new(out);
        let mut line = String::new();
        out.read_line(&mut line).context("weir link says nothing")?;
        let ready: Value =
            serde_json::from_str(&line).context("weir link ended before it was ready")?;
        let address = ready["listening"].as_str().unwrap_or_default();
        Ok(Self {
            address: address.parse().context("weir link has no address")?,
            _process: process,
            _out: out,
        })
    }
}
