//! The plan of a measurement: all parameters, checked.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use weir_http3::client::{Greeting, Load, Target};
use weir_net::raise_open_files_limit;
use weir_quic::{
    Packets,
    tls::{Sessions, Trust},
};

use super::{threads::Surroundings, url::Url};
use crate::harness::processes::Processes;

/// All parameters of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The URLs, requested in turns; all have the same host and port.
    pub(crate) urls: Vec<Url>,
    pub(crate) address: SocketAddr,
    pub(crate) trust: Trust,
    pub(crate) handshake: Handshake,
    pub(crate) threads: usize,
    /// Open connections of each thread.
    pub(crate) connections: usize,
    pub(crate) requests_per_connection: Option<u64>,
    pub(crate) requests_at_once: usize,
    pub(crate) requests_per_thread: Option<u64>,
    /// Requests per second of all threads together, in an open loop.
    pub(crate) rate_per_second: Option<f64>,
    pub(crate) send_udp_payload_size: u16,
    pub(crate) recv_udp_payload_size: u16,
    pub(crate) warm_up: Duration,
    pub(crate) duration: Duration,
    pub(crate) handshake_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) expected_bytes: Option<u64>,
    /// Cores of the threads, in turns; any if empty.
    pub(crate) cores: Vec<usize>,
    /// Sockets of each thread.
    pub(crate) sockets: u32,
    pub(crate) gro: bool,
    /// The server's processes; `None` if they are not watched.
    pub(crate) server: Option<Processes>,
    pub(crate) mtu_bytes: Option<u64>,
    pub(crate) command_line: String,
    /// Folder for the logs of connections.
    pub(crate) qlog: Option<PathBuf>,
    pub(crate) notes: Vec<String>,
}

/// The handshake of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Handshake {
    /// A full handshake for every connection
    Full,
    /// Resumes the session of an earlier connection
    Resumed,
    /// Resumes a session, and sends the request in the first packet (0-RTT)
    #[value(name = "0rtt")]
    Early,
}

impl Handshake {
    /// Returns its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Resumed => "resumed",
            Self::Early => "0rtt",
        }
    }

    pub(super) fn sessions(self) -> Sessions {
        match self {
            Self::Full => Sessions::Forgotten,
            Self::Resumed => Sessions::Resumed,
            Self::Early => Sessions::Early,
        }
    }
}

impl Plan {
    /// Returns the plan of the warm-up.
    pub(super) fn warming_up(&self) -> Self {
        Self {
            duration: self.warm_up,
            warm_up: Duration::ZERO,
            qlog: None,
            ..self.clone()
        }
    }

    /// Returns a plan of one connection with one request, which shows whether the server responds within `duration`. Half of it
    /// is for the handshake.
    pub(super) fn probing(&self, duration: Duration) -> Self {
        Self {
            threads: 1,
            connections: 1,
            requests_at_once: 1,
            requests_per_connection: None,
            requests_per_thread: Some(1),
            rate_per_second: None,
            handshake: Handshake::Full,
            duration,
            handshake_timeout: duration / 2,
            warm_up: Duration::ZERO,
            ..self.clone()
        }
    }

    pub(super) fn load(&self) -> Load {
        #[expect(clippy::cast_precision_loss, reason = "threads are few")]
        let threads = self.threads as f64;
        Load {
            target: Target {
                address: self.address,
                server_name: self.urls[0].host(),
                authority: self.urls[0].authority().to_owned(),
                paths: self.urls.iter().map(|url| url.path().to_owned()).collect(),
            },
            connections: self.connections,
            requests_per_connection: self.requests_per_connection,
            requests_at_once: self.requests_at_once,
            requests_max: self.requests_per_thread,
            rate_per_second: self.rate_per_second.map(|rate| rate / threads),
            duration: self.duration,
            handshake_timeout: self.handshake_timeout,
            expected_bytes: self.expected_bytes,
            greeting: match self.handshake {
                Handshake::Full | Handshake::Resumed => Greeting::Patient,
                Handshake::Early => Greeting::Early,
            },
            sockets: self.sockets,
        }
    }

    /// Returns the sockets and the endpoint's parameters of a thread.
    pub(super) fn surroundings(&self, thread: usize) -> Surroundings {
        Surroundings {
            sockets: self.sockets,
            offload: self.gro,
            packets: Packets {
                send_bytes_fixed: Some(self.send_udp_payload_size),
                receive_bytes_max: self.recv_udp_payload_size,
                ..Packets::default()
            },
            idle_timeout: self.idle_timeout,
            // A pause would add to the latency of an open loop.
            rests: self.rate_per_second.is_none(),
            core: self.cores.get(thread % self.cores.len().max(1)).copied(),
        }
    }

    /// Binds the sockets of a thread.
    #[cfg(test)]
    pub(crate) fn sockets(&self) -> anyhow::Result<Vec<weir_net::UdpSocket>> {
        self.surroundings(0).bind(self.address)
    }

    /// Checks the load, and that this process may open its sockets.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if !(1..=THREADS_MAX).contains(&self.threads) {
            bail!(
                "--threads: expected 1 to {THREADS_MAX}, not {}",
                self.threads
            );
        }
        self.load().check()?;
        let files = raise_open_files_limit().context("cannot raise the limit of open files")?;
        if u64::from(self.sockets) * self.threads as u64 + FILES_BESIDE > files {
            bail!(
                "--sockets, --threads: expected fewer than {files} sockets in all: this process may not open more files \
                 (`ulimit -n`)"
            );
        }
        Ok(())
    }
}

/// More threads than machines have cores.
pub(super) const THREADS_MAX: usize = 256;
/// Files that the process opens beside its sockets.
const FILES_BESIDE: u64 = 64;
