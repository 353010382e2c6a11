//! The serving threads: each has an event loop, a socket, connections and a relay of its own.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use weir_net::{HostConfig, Stop, Telemetry, UdpSocket, clock};
use weir_quic::{EndpointConfig, OriginCounts, tls::ServerTls};
use weir_relay::{Config, Ownership, Relay, Upstream};

use crate::{
    event_loop::{self, EventLoop},
    relay::{
        authority::Gate,
        config::{Configured, RelayConfig},
        credentials::RelayCredentials,
        fleet::Joined,
        qlog::Logs,
        snapshot::{Done, Observed, Slot, View},
    },
};

/// The parts that all threads share.
pub(crate) struct Plan<'a> {
    pub(crate) configured: &'a Configured,
    pub(crate) tls: ServerTls,
    pub(crate) gate: Arc<Gate>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) memory: Arc<AtomicU64>,
    /// Relays to ask for what this one does not have.
    pub(crate) upstreams: Vec<Upstream>,
    /// What the relay shows to other relays; `None` if there are none.
    pub(crate) credentials: Option<Arc<RelayCredentials>>,
    /// The relay's place in a fleet.
    pub(crate) fleet: Option<Joined>,
    pub(crate) stop: Stop,
}

/// All threads, ready to serve.
pub(crate) struct ServingThreads {
    members: Vec<(EventLoop, Observed)>,
    stop: Stop,
}

impl Plan<'_> {
    /// Makes a thread for each of `sockets`. Each thread publishes its metrics in its slot.
    pub(crate) fn crew(
        mut self,
        sockets: Vec<UdpSocket>,
        slots: Vec<(Arc<Slot>, Arc<Telemetry>)>,
    ) -> anyhow::Result<ServingThreads> {
        let config = &self.configured.config;
        let event_loops = event_loop::sharing_an_address(sockets, &self.stop, |number| {
            Ok(EndpointConfig {
                server: Some(self.tls.clone()),
                qlog: self.logs.open(self.configured, number)?,
                ..event_loop::endpoint(quic_limits(config))?
            })
        })?;
        let (session_counts, ownership) = (OriginCounts::default(), Ownership::default());
        let mut members = Vec::new();
        let identity = u64::from_le_bytes(event_loop::seed()?);
        for ((number, mut one), (slot, telemetry)) in event_loops.into_iter().enumerate().zip(slots)
        {
            one.core = config.cores.get(number).copied();
            one.telemetry = Arc::clone(&telemetry);
            one.config = HostConfig {
                receive_pause: config.rest,
                // The relay closes remaining sessions itself; this limit is for a relay that hangs.
                shutdown_limit: config.drain.time + LEAVE_MARGIN,
                ..HostConfig::default()
            };
            let view = View {
                slot,
                telemetry,
                tracks_max: config.admin.tracks_max,
                memory: Arc::clone(&self.memory),
            };
            let gate = Arc::clone(&self.gate) as _;
            let mut relay = Relay::with_authority(relay_config(config, identity), gate)
                .with_session_counts(session_counts.clone())
                .with_ownership(ownership.clone());
            if number == 0 {
                if let Some(credentials) = &self.credentials {
                    relay = relay.with_link_credentials(Arc::clone(credentials) as _);
                }
                // The other threads ask this one, so the process has one copy of a track.
                for upstream in &self.upstreams {
                    relay.add_upstream(clock::now(), upstream.clone());
                }
                if let Some(fleet) = self.fleet.take() {
                    let Joined {
                        own,
                        registry,
                        waker,
                    } = fleet;
                    one.waker = Some(waker);
                    relay.join_fleet(clock::now(), own, registry);
                }
            }
            members.push((one, Observed::new(relay, view, clock::now())));
        }
        Ok(ServingThreads {
            members,
            stop: self.stop,
        })
    }
}

/// Returns the QUIC limits of one thread: its share of the limits that hold for all threads together.
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

/// Returns the relay configuration of one thread, with its share of the limits for all threads together.
fn relay_config(config: &RelayConfig, identity: u64) -> Config {
    let threads = usize::from(config.threads);
    let limits = config.limits.relay.clone();
    Config {
        implementation: Some(concat!("weir/", env!("CARGO_PKG_VERSION")).to_owned()),
        identity,
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
    }
}

impl ServingThreads {
    /// Serves until a stop is requested, with the first event loop on the calling thread. Returns the sum of all
    /// counters.
    pub(crate) fn serve(self) -> anyhow::Result<Done> {
        let all = event_loop::serve("relay", self.members, &self.stop)?;
        let done = all.iter().map(|(relay, quic)| relay.done(quic));
        Ok(done.fold(Done::default(), Done::plus))
    }
}

/// Time for the relay's last packets after `drain.time`.
const LEAVE_MARGIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_limits_of_the_process() {
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
            let (quic, relay) = (quic_limits(&config), relay_config(&config, 0).limits);
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
