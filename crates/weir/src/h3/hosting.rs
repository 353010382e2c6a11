//! Load clients on threads of their own, and what other threads may see of them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use weir_http3::client::{Client, Progress, transport_limits};
use weir_net::{Host, HostConfig, SocketConfig, Stop, Telemetry, UdpSocket, clock, pin_to_core};
use weir_quic::{App, Endpoint, EndpointConfig, Event, Packets};

use crate::endpoints;

/// How the sockets and the endpoint of a thread are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// Sockets of the thread.
    pub(super) sockets: u32,
    /// Let the kernel join packets.
    pub(super) offload: bool,
    pub(super) packets: Packets,
    pub(super) idle_timeout: Duration,
    /// See [`HostConfig::rest`].
    pub(super) rest: Duration,
    pub(super) core: Option<usize>,
}

/// A client on a thread of its own.
pub(super) struct Hosted {
    thread: JoinHandle<anyhow::Result<Client>>,
    seen: Arc<Mutex<Progress>>,
    pub(super) telemetry: Arc<Telemetry>,
}

/// A client that shows itself now and then.
struct Shown {
    client: Client,
    seen: Arc<Mutex<Progress>>,
    next_look: Instant,
}

impl App for Shown {
    #[inline]
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        self.client.handle_event(now, endpoint, event);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let client = self.client.poll_timeout();
        Some(client.map_or(self.next_look, |client| client.min(self.next_look)))
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.client.handle_timeout(now, endpoint);
        if self.next_look <= now {
            self.next_look = now + LOOK_PERIOD;
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = self.client.progress();
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.client.handle_shutdown(now, endpoint);
    }

    fn is_finished(&self) -> bool {
        self.client.is_finished()
    }
}

impl Hosted {
    /// Starts a thread with `client`, whose server is at `remote`.
    pub(super) fn start(
        client: Client,
        remote: std::net::SocketAddr,
        surroundings: Surroundings,
        stop: &Stop,
    ) -> anyhow::Result<Self> {
        let Surroundings {
            sockets,
            offload,
            packets,
            idle_timeout,
            rest,
            core,
        } = surroundings;
        let local = endpoints::local_address(remote);
        let config = SocketConfig {
            buffer_bytes: BUFFER_BYTES,
            offload,
        };
        let bound: anyhow::Result<Vec<_>> = (0..sockets)
            .map(|_| endpoints::bind(local, config))
            .collect();
        let bound = bound?;
        let segmentation_offload = bound.iter().all(UdpSocket::has_segmentation);
        let endpoint = Endpoint::new(EndpointConfig {
            limits: transport_limits(idle_timeout),
            packets,
            server: None,
            seed: endpoints::seed()?,
            time_source: Arc::new(clock::SystemClock),
            qlog: None,
            segmentation_offload,
        })
        .context("the QUIC endpoint cannot be made")?;
        let seen = Arc::new(Mutex::new(Progress::default()));
        let telemetry = Arc::new(Telemetry::default());
        let mut shown = Shown {
            client,
            seen: Arc::clone(&seen),
            next_look: clock::now(),
        };
        let (stop, of_thread) = (stop.clone(), Arc::clone(&telemetry));
        let work = move || -> anyhow::Result<Client> {
            if let Some(core) = core {
                pin_to_core(core).with_context(|| format!("cannot run on core {core}"))?;
            }
            let config = HostConfig {
                rest,
                ..HostConfig::default()
            };
            let mut host = Host::new(config, bound, endpoint, of_thread, stop)
                .context("cannot set up the event loop")?;
            host.run(&mut shown).context("the event loop failed")?;
            Ok(shown.client)
        };
        let thread = std::thread::Builder::new()
            .name("weir-h3-load".to_owned())
            .spawn(work)
            .context("cannot start a thread of the load client")?;
        Ok(Self {
            thread,
            seen,
            telemetry,
        })
    }

    pub(super) fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    pub(super) fn progress(&self) -> Progress {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client, once it is over, with the numbers of its thread.
    pub(super) fn join(self) -> anyhow::Result<(Client, Arc<Telemetry>)> {
        let client = self
            .thread
            .join()
            .map_err(|_| anyhow!("a thread of the load client panicked"))??;
        Ok((client, self.telemetry))
    }
}

/// How often a client shows itself.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// Receive buffer of each socket: what a server sends in some milliseconds.
const BUFFER_BYTES: usize = 8 << 20;
