//! The threads that serve: one event loop each, with a socket, connections and a relay of its own.

use std::{
    sync::{Arc, atomic::AtomicU64},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use weir_net::{
    CHANNEL_ITEMS_MAX, Host, HostConfig, Stop, Telemetry, ThreadChannels, UdpSocket, clock,
    pin_to_core, thread_channels,
};
use weir_quic::{Endpoint, Shard, ThreadMessage, tls::ServerTls};
use weir_relay::{Config, Relay};

use crate::{
    endpoints,
    relay::{
        authority::Gate,
        config::{Configured, RelayConfig},
        observed::{Done, Observed, Slot, View},
        qlog::Logs,
    },
};

/// What all threads are made with.
pub(crate) struct Plan<'a> {
    pub(crate) configured: &'a Configured,
    pub(crate) tls: ServerTls,
    pub(crate) gate: Arc<Gate>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) memory: Arc<AtomicU64>,
    pub(crate) stop: Stop,
}

/// All threads, ready to serve.
pub(crate) struct Crew {
    members: Vec<Member>,
    stop: Stop,
}

/// What one thread has.
struct Member {
    number: usize,
    core: Option<usize>,
    socket: UdpSocket,
    endpoint: Endpoint,
    channels: Option<ThreadChannels<ThreadMessage>>,
    relay: Observed,
    telemetry: Arc<Telemetry>,
    host: HostConfig,
    stop: Stop,
}

impl Plan<'_> {
    /// A thread for each of `sockets`, with where it leaves its numbers.
    pub(crate) fn crew(
        self,
        sockets: Vec<UdpSocket>,
        slots: Vec<(Arc<Slot>, Arc<Telemetry>)>,
    ) -> anyhow::Result<Crew> {
        let config = &self.configured.config;
        let seed = endpoints::seed()?;
        let mut channels = thread_channels(config.threads, CHANNEL_ITEMS_MAX)
            .context("cannot make channels between threads")?
            .into_iter();
        let mut members = Vec::new();
        for (((number, socket), (slot, telemetry)), index) in
            sockets.into_iter().enumerate().zip(slots).zip(0..)
        {
            let shard = Shard::new(index, config.threads).context("too many threads")?;
            let endpoint = endpoints::shard(
                quic_limits(config),
                self.tls.clone(),
                socket.has_segmentation(),
                self.logs.open(self.configured, number)?,
                seed,
                shard,
            )?;
            let view = View {
                slot,
                telemetry: Arc::clone(&telemetry),
                tracks_max: config.admin.tracks_max,
                memory: Arc::clone(&self.memory),
            };
            let relay = Relay::with_authority(relay_config(config), Arc::clone(&self.gate) as _);
            members.push(Member {
                number,
                core: config.cores.get(number).copied(),
                socket,
                endpoint,
                // Who is alone has nobody to write to.
                channels: channels.next().filter(|_| config.threads > 1),
                relay: Observed::new(relay, view, clock::now()),
                telemetry,
                host: HostConfig {
                    receive_pause: config.rest,
                    // The relay closes what is left by then itself; the host ends only a relay that does not.
                    shutdown_limit: config.drain.time + LEAVE_MARGIN,
                    ..HostConfig::default()
                },
                stop: self.stop.clone(),
            });
        }
        Ok(Crew {
            members,
            stop: self.stop,
        })
    }
}

/// What an operator bounds for the whole process, each thread keeps its part of.
fn quic_limits(config: &RelayConfig) -> weir_quic::Limits {
    let threads = usize::from(config.threads);
    let limits = config.limits.quic.clone();
    weir_quic::Limits {
        connections_max: limits.connections_max.div_ceil(threads),
        handshakes_max: limits.handshakes_max.div_ceil(threads),
        handshakes_before_retry_max: limits.handshakes_before_retry_max.div_ceil(threads),
        ..limits
    }
}

fn relay_config(config: &RelayConfig) -> Config {
    let threads = usize::from(config.threads);
    let limits = config.limits.relay.clone();
    Config {
        implementation: Some(concat!("weir/", env!("CARGO_PKG_VERSION")).to_owned()),
        limits: weir_relay::Limits {
            sessions_max: limits.sessions_max.div_ceil(threads),
            cache_bytes_max: limits.cache_bytes_max.div_ceil(u64::from(config.threads)),
            ..limits
        },
        session_limits: config.limits.session.clone(),
        pauses_publishers: config.pauses_publishers,
        load: config.limits.load.clone(),
        drain_max: config.drain.time,
        successor: config.drain.successor.clone(),
        ..Config::default()
    }
}

impl Crew {
    /// Serves until the request to stop, the first member on this thread; returns what all did together.
    pub(crate) fn serve(self) -> anyhow::Result<Done> {
        let Self { members, stop } = self;
        let mut members = members.into_iter();
        let first = members.next().context("a relay has a thread")?;
        let others: anyhow::Result<Vec<_>> = members.map(Member::start).collect();
        let mut results = Vec::new();
        let others = match others {
            Ok(others) => {
                results.push(first.run());
                others
            }
            Err(error) => {
                results.push(Err(error));
                Vec::new()
            }
        };
        // One that fails takes the others along.
        stop.request();
        for thread in others {
            let result = thread.join();
            results.push(result.map_err(|_| anyhow!("a thread of the relay panicked"))?);
        }
        results
            .into_iter()
            .try_fold(Done::default(), |sum, done| Ok(sum.plus(done?)))
    }
}

impl Member {
    fn start(self) -> anyhow::Result<JoinHandle<anyhow::Result<Done>>> {
        let name = format!("relay-{}", self.number);
        std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || {
                let _leave = StopOnLeave(self.stop.clone());
                self.run()
            })
            .with_context(|| format!("cannot start the thread {name}"))
    }

    /// Serves on the calling thread.
    fn run(mut self) -> anyhow::Result<Done> {
        if let Some(core) = self.core {
            pin_to_core(core).with_context(|| format!("cannot run on core {core}"))?;
        }
        let mut host = Host::new(
            self.host,
            vec![self.socket],
            self.endpoint,
            self.telemetry,
            self.stop,
        )
        .context("cannot set up the event loop")?;
        if let Some(channels) = self.channels {
            host = host.with_thread_channels(channels);
        }
        host.run(&mut self.relay).context("the event loop failed")?;
        Ok(self.relay.done(&host.endpoint().counters()))
    }
}

/// Asks all threads to stop when one of them ends, however it does.
struct StopOnLeave(Stop);

impl Drop for StopOnLeave {
    fn drop(&mut self) {
        self.0.request();
    }
}

/// What the relay gets for its last packets after the time to drain is over.
const LEAVE_MARGIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_what_is_bounded_for_the_process() {
        let mut config = RelayConfig::default();
        config.limits.quic.connections_max = 10;
        config.limits.quic.handshakes_max = 9;
        config.limits.quic.handshakes_before_retry_max = 8;
        config.limits.relay.sessions_max = 7;
        config.limits.relay.cache_bytes_max = 6;
        for (threads, connections, handshakes, before_retry, sessions, cache) in
            [(1, 10, 9, 8, 7, 6), (2, 5, 5, 4, 4, 3), (3, 4, 3, 3, 3, 2)]
        {
            config.threads = threads;
            let (quic, relay) = (quic_limits(&config), relay_config(&config).limits);
            assert_eq!(quic.connections_max, connections);
            assert_eq!(quic.handshakes_max, handshakes);
            assert_eq!(quic.handshakes_before_retry_max, before_retry);
            assert_eq!(
                (relay.sessions_max, relay.cache_bytes_max),
                (sessions, cache)
            );
        }
    }
}
