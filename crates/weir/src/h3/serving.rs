//! The threads that serve: one event loop each, with a socket and connections of its own, over the same files.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use weir_http3::server::{Config, Counters, Server, Site};
use weir_net::{
    CHANNEL_ITEMS_MAX, Host, HostConfig, SocketConfig, Stop, Telemetry, ThreadChannels, UdpSocket,
    clock::SystemClock, pin_to_core, thread_channels,
};
use weir_quic::{Endpoint, EndpointConfig, Limits, Packets, Shard, ThreadMessage, tls::ServerTls};

use crate::endpoints;

/// What a server is made with.
pub(crate) struct Plan {
    pub(crate) listen: SocketAddr,
    pub(crate) threads: u16,
    /// One for each thread; empty: wherever the system likes.
    pub(crate) cores: Vec<usize>,
    pub(crate) tls: ServerTls,
    pub(crate) limits: Limits,
    pub(crate) packets: Packets,
    /// Use GSO and GRO where the kernel has them.
    pub(crate) offload: bool,
    pub(crate) rest: Duration,
    pub(crate) site: Arc<Site>,
    pub(crate) stop: Stop,
}

/// Threads with their sockets bound, ready to serve.
pub(crate) struct Serving {
    members: Vec<Member>,
    address: SocketAddr,
    stop: Stop,
}

/// What one thread has.
struct Member {
    core: Option<usize>,
    socket: UdpSocket,
    endpoint: Endpoint,
    channels: Option<ThreadChannels<ThreadMessage>>,
    server: Server,
    host: HostConfig,
    stop: Stop,
}

impl Plan {
    /// Binds the sockets.
    pub(crate) fn bind(self) -> anyhow::Result<Serving> {
        let config = SocketConfig {
            offload: self.offload,
            ..SocketConfig::default()
        };
        let sockets = if self.threads == 1 {
            vec![endpoints::bind(self.listen, config)?]
        } else {
            let group = UdpSocket::bind_group(self.listen, config, self.threads)
                .with_context(|| format!("cannot bind to {}", self.listen))?;
            if let Err(error) = group.steering {
                tracing::warn!(%error, "the kernel does not find the thread of a packet; threads pass them on, which costs");
            }
            group.sockets
        };
        let address = sockets[0]
            .local_address()
            .context("the socket has no address")?;
        let seed = endpoints::seed()?;
        let mut channels = thread_channels(self.threads, CHANNEL_ITEMS_MAX)
            .context("cannot make channels between threads")?
            .into_iter();
        let mut members = Vec::new();
        for (index, socket) in (0..).zip(sockets) {
            let endpoint = EndpointConfig {
                limits: self.limits_of_thread(),
                packets: self.packets,
                server: Some(self.tls.clone()),
                seed,
                time_source: Arc::new(SystemClock),
                qlog: None,
                segmentation_offload: socket.has_segmentation(),
            };
            let shard = Shard::new(index, self.threads).context("too many threads")?;
            members.push(Member {
                core: self.cores.get(usize::from(index)).copied(),
                socket,
                endpoint: Endpoint::with_shard(endpoint, shard)
                    .context("the QUIC endpoint cannot be made")?,
                // Who is alone has nobody to write to.
                channels: channels.next().filter(|_| self.threads > 1),
                server: Server::new(Config::default(), Arc::clone(&self.site)),
                host: HostConfig {
                    receive_pause: self.rest,
                    ..HostConfig::default()
                },
                stop: self.stop.clone(),
            });
        }
        Ok(Serving {
            members,
            address,
            stop: self.stop,
        })
    }

    /// What is bounded for the whole process, each thread keeps its part of.
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
    /// Where clients find it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its sockets.
    #[cfg(test)]
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        self.members.iter().map(|member| &member.socket)
    }

    /// Serves until the request to stop; returns what all threads did together.
    pub(crate) fn serve(self) -> anyhow::Result<Counters> {
        let Self { members, stop, .. } = self;
        std::thread::scope(|scope| {
            let threads: Vec<_> = members
                .into_iter()
                .map(|member| {
                    scope.spawn(|| {
                        // One that ends, however it does, takes the others along.
                        let _leave = StopOnLeave(stop.clone());
                        member.run()
                    })
                })
                .collect();
            threads
                .into_iter()
                .try_fold(Counters::default(), |sum, thread| {
                    let counters = thread
                        .join()
                        .map_err(|_| anyhow!("a thread of the server panicked"))?;
                    Ok(sum.plus(counters?))
                })
        })
    }
}

impl Member {
    fn run(mut self) -> anyhow::Result<Counters> {
        if let Some(core) = self.core {
            pin_to_core(core).with_context(|| format!("cannot run on core {core}"))?;
        }
        let telemetry = Arc::<Telemetry>::default();
        let mut host = Host::new(
            self.host,
            vec![self.socket],
            self.endpoint,
            telemetry,
            self.stop,
        )
        .context("cannot set up the event loop")?;
        if let Some(channels) = self.channels {
            host = host.with_thread_channels(channels);
        }
        host.run(&mut self.server)
            .context("the event loop failed")?;
        Ok(self.server.counters())
    }
}

/// Asks all threads to stop when one of them ends.
struct StopOnLeave(Stop);

impl Drop for StopOnLeave {
    fn drop(&mut self) {
        self.0.request();
    }
}
