//! The threads of the HTTP/3 server: each has an event loop, a socket and connections; all share the files.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use weir_http3::server::{Config, Counters, Server, Site};
use weir_net::{HostConfig, SocketConfig, Stop};
use weir_quic::{EndpointConfig, Limits, OriginCounts, Packets, tls::ServerTls};

use crate::event_loop::{self, EventLoop};

/// The parameters of a server.
pub(crate) struct Plan {
    pub(crate) listen: SocketAddr,
    pub(crate) threads: u16,
    /// One for each thread; empty for any.
    pub(crate) cores: Vec<usize>,
    pub(crate) tls: ServerTls,
    pub(crate) limits: Limits,
    /// Connections of one address; of loopback addresses, any number.
    pub(crate) connections_per_address_max: usize,
    pub(crate) packets: Packets,
    /// Use GSO and GRO where the kernel has them.
    pub(crate) offload: bool,
    pub(crate) rest: Duration,
    pub(crate) site: Arc<Site>,
    pub(crate) stop: Stop,
}

/// Threads with their sockets bound, ready to serve.
pub(crate) struct Serving {
    members: Vec<(EventLoop, Server)>,
    address: SocketAddr,
    stop: Stop,
}

impl Plan {
    /// Binds the sockets.
    pub(crate) fn bind(self) -> anyhow::Result<Serving> {
        let config = SocketConfig {
            offload: self.offload,
            ..SocketConfig::default()
        };
        let sockets = event_loop::bind_group(self.listen, config, self.threads)?;
        let address = sockets[0]
            .local_address()
            .context("the socket has no address")?;
        let event_loops = event_loop::sharing_an_address(sockets, &self.stop, |_| {
            Ok(EndpointConfig {
                packets: self.packets,
                server: Some(self.tls.clone()),
                ..event_loop::endpoint(self.limits_of_thread())?
            })
        })?;
        let counts = OriginCounts::default();
        let server_config = Config {
            connections_per_address_max: self.connections_per_address_max,
            ..Config::default()
        };
        let members = event_loops
            .into_iter()
            .enumerate()
            .map(|(number, mut one)| {
                one.core = self.cores.get(number).copied();
                one.config = HostConfig {
                    receive_pause: self.rest,
                    ..HostConfig::default()
                };
                let server = Server::new(server_config, Arc::clone(&self.site));
                (one, server.with_connection_counts(counts.clone()))
            });
        Ok(Serving {
            members: members.collect(),
            address,
            stop: self.stop,
        })
    }

    /// Returns each thread's share of the limits of the whole process.
    fn limits_of_thread(&self) -> Limits {
        let threads = usize::from(self.threads);
        Limits {
            connections_max: self.limits.connections_max.div_ceil(threads),
            handshakes_max: self.limits.handshakes_max.div_ceil(threads),
            ..self.limits.clone()
        }
    }
}

impl Serving {
    /// Returns the address of the server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the sockets.
    #[cfg(test)]
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &weir_net::UdpSocket> {
        self.members.iter().flat_map(|(one, _)| one.sockets())
    }

    /// Serves until the stop. Returns the counters of all threads together.
    pub(crate) fn serve(self) -> anyhow::Result<Counters> {
        let done = event_loop::serve("server", self.members, &self.stop)?;
        let sum = |sum: Counters, (server, _): (Server, _)| sum.plus(server.counters());
        Ok(done.into_iter().fold(Counters::default(), sum))
    }
}
