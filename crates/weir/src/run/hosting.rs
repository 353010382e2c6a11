//! The roles of the generator on threads of their own, and what other threads may see of them.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use weir_bench::{
    publisher::{PublisherProgress, PublisherRole},
    subscriber::{SubscriberProgress, SubscriberRole},
};
use weir_net::{
    Host, HostConfig, SocketConfig, Stop, Telemetry, clock, pin_to_core, raise_open_files_limit,
};
use weir_quic::{App, Endpoint, Event, Limits};

use super::RelayUrl;
use crate::endpoints;

/// What the conductor of a run lets the roles do. Clones are the same gate.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    inner: Arc<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    subscribers: AtomicBool,
    release: AtomicBool,
}

impl Gate {
    /// A gate that lets publishers send at once if `no_wait` is set.
    pub(crate) fn new(no_wait: bool) -> Self {
        let state = GateState {
            release: AtomicBool::new(no_wait),
            ..GateState::default()
        };
        Self {
            inner: Arc::new(state),
        }
    }

    /// Subscribers may connect.
    pub(crate) fn admit_subscribers(&self) {
        self.inner.subscribers.store(true, Ordering::Release);
    }

    /// The schedules may begin.
    pub(crate) fn release(&self) {
        self.inner.release.store(true, Ordering::Release);
    }
}

/// A role on a thread of its own.
pub(crate) struct Hosted<H: Hosting> {
    thread: JoinHandle<anyhow::Result<H>>,
    view: View<H::Seen>,
}

/// A role with what it needs to run under a conductor.
pub(crate) trait Hosting: App + Send + 'static {
    /// What others may see of it.
    type Seen: Clone + Default + Send + 'static;
}

/// What other threads may see of a role. Clones are the same view.
#[derive(Debug)]
pub(crate) struct View<S> {
    seen: Arc<Mutex<S>>,
    pub(crate) telemetry: Arc<Telemetry>,
}

impl<S> Clone for View<S> {
    fn clone(&self) -> Self {
        Self {
            seen: Arc::clone(&self.seen),
            telemetry: Arc::clone(&self.telemetry),
        }
    }
}

impl<S: Clone> View<S> {
    fn seen(&self) -> S {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, S> {
        // A thread that panicked is found out when it is joined.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is seen of publishers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PublishersSeen {
    progress: PublisherProgress,
    has_announced: bool,
    is_served: bool,
}

/// What is seen of subscribers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SubscribersSeen {
    progress: SubscriberProgress,
    is_subscribed: bool,
}

impl View<PublishersSeen> {
    pub(crate) fn progress(&self) -> PublisherProgress {
        self.seen().progress
    }

    pub(crate) fn has_announced(&self) -> bool {
        self.seen().has_announced
    }

    pub(crate) fn is_served(&self) -> bool {
        self.seen().is_served
    }
}

impl View<SubscribersSeen> {
    pub(crate) fn progress(&self) -> SubscriberProgress {
        self.seen().progress
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        self.seen().is_subscribed
    }
}

/// Publishers under a conductor.
pub(crate) struct PublisherHost {
    role: PublisherRole,
    gate: Gate,
    view: View<PublishersSeen>,
    next_look: Instant,
    refused_release: Option<String>,
}

impl PublisherHost {
    pub(crate) fn role(&self) -> &PublisherRole {
        &self.role
    }

    /// Why the schedules could not begin.
    pub(crate) fn refused_release(&self) -> Option<&str> {
        self.refused_release.as_deref()
    }

    fn look(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.next_look = now + LOOK_PERIOD;
        if self.gate.inner.release.load(Ordering::Acquire)
            && self.role.has_announced()
            && let Err(problem) = self.role.release(now, endpoint)
        {
            self.refused_release = Some(problem.to_string());
            self.role.close(now, endpoint);
        }
        *self.view.lock() = PublishersSeen {
            progress: self.role.progress(),
            has_announced: self.role.has_announced(),
            is_served: self.role.is_served(),
        };
    }
}

impl Hosting for PublisherHost {
    type Seen = PublishersSeen;
}

impl App for PublisherHost {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        self.role.handle_event(now, endpoint, event);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let role = self.role.poll_timeout();
        Some(role.map_or(self.next_look, |role| role.min(self.next_look)))
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.role.poll_timeout().is_some_and(|at| at <= now) {
            self.role.handle_timeout(now, endpoint);
        }
        if self.next_look <= now {
            self.look(now, endpoint);
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.role.handle_shutdown(now, endpoint);
    }

    fn is_finished(&self) -> bool {
        self.role.is_finished()
    }
}

/// Subscribers under a conductor.
pub(crate) struct SubscriberHost {
    role: SubscriberRole,
    gate: Gate,
    view: View<SubscribersSeen>,
    next_look: Instant,
    is_started: bool,
}

impl SubscriberHost {
    pub(crate) fn role(&self) -> &SubscriberRole {
        &self.role
    }
}

impl Hosting for SubscriberHost {
    type Seen = SubscribersSeen;
}

impl App for SubscriberHost {
    #[inline]
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        self.role.handle_event(now, endpoint, event);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let role = self.role.poll_timeout();
        Some(role.map_or(self.next_look, |role| role.min(self.next_look)))
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.role.poll_timeout().is_some_and(|at| at <= now) {
            self.role.handle_timeout(now, endpoint);
        }
        if self.next_look > now {
            return;
        }
        self.next_look = now + LOOK_PERIOD;
        if !self.is_started && self.gate.inner.subscribers.load(Ordering::Acquire) {
            self.is_started = true;
            self.role.start(now);
        }
        *self.view.lock() = SubscribersSeen {
            progress: self.role.progress(),
            is_subscribed: self.is_started && self.role.is_subscribed(),
        };
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.role.handle_shutdown(now, endpoint);
    }

    fn is_finished(&self) -> bool {
        self.role.is_finished()
    }
}

impl<H: Hosting> Hosted<H> {
    /// Whether the role has ended, well or not.
    pub(crate) fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    pub(crate) fn view(&self) -> View<H::Seen> {
        self.view.clone()
    }

    /// The role, once it has ended.
    pub(crate) fn join(self) -> anyhow::Result<H> {
        self.thread
            .join()
            .map_err(|_| anyhow!("a thread of the load generator panicked"))?
    }
}

/// Starts the publishers.
pub(crate) fn start_publishers(
    role: PublisherRole,
    gate: &Gate,
    core: Option<usize>,
    stop: &Stop,
    url: &RelayUrl,
) -> anyhow::Result<Hosted<PublisherHost>> {
    let view = new_view();
    let host = PublisherHost {
        role,
        gate: gate.clone(),
        view: view.clone(),
        next_look: clock::now(),
        refused_release: None,
    };
    start("weir-publishers", host, view, core, stop, url, 1)
}

/// Starts the subscribers, on `sockets` sockets.
pub(crate) fn start_subscribers(
    role: SubscriberRole,
    gate: &Gate,
    core: Option<usize>,
    stop: &Stop,
    url: &RelayUrl,
    sockets: u32,
) -> anyhow::Result<Hosted<SubscriberHost>> {
    let view = new_view();
    let host = SubscriberHost {
        role,
        gate: gate.clone(),
        view: view.clone(),
        next_look: clock::now(),
        is_started: false,
    };
    start("weir-subscribers", host, view, core, stop, url, sockets)
}

fn new_view<S: Default>() -> View<S> {
    View {
        seen: Arc::new(Mutex::new(S::default())),
        telemetry: Arc::new(Telemetry::default()),
    }
}

fn start<H: Hosting>(
    name: &str,
    mut app: H,
    view: View<H::Seen>,
    core: Option<usize>,
    stop: &Stop,
    url: &RelayUrl,
    sockets: u32,
) -> anyhow::Result<Hosted<H>> {
    if sockets > 1 {
        let limit = raise_open_files_limit().context("cannot raise the limit of open files")?;
        if u64::from(sockets) + FILES_BESIDE > limit {
            return Err(anyhow!(
                "{sockets} sockets are more than the {limit} files allowed"
            ));
        }
    }
    let local = local_address(url.address);
    let bound: anyhow::Result<Vec<_>> = (0..sockets)
        .map(|_| endpoints::bind(local, socket_config(sockets)))
        .collect();
    let bound = bound?;
    let offload = bound.iter().all(weir_net::UdpSocket::has_segmentation);
    let limits = Limits {
        keep_alive: Some(KEEP_ALIVE),
        ..Limits::default()
    };
    let limits = Limits {
        connections_max: CONNECTIONS_MAX,
        ..limits
    };
    let endpoint = endpoints::endpoint(limits, None, offload, None)?;
    let telemetry = Arc::clone(&view.telemetry);
    let stop = stop.clone();
    let work = move || -> anyhow::Result<H> {
        if let Some(core) = core {
            pin_to_core(core).with_context(|| format!("cannot run on core {core}"))?;
        }
        let mut host = Host::new(
            HostConfig {
                rest: REST,
                ..HostConfig::default()
            },
            bound,
            endpoint,
            telemetry,
            stop,
        )
        .context("cannot set up the event loop")?;
        host.run(&mut app).context("the event loop failed")?;
        Ok(app)
    };
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .with_context(|| format!("cannot start the thread {name}"))?;
    Ok(Hosted { thread, view })
}

fn socket_config(sockets: u32) -> SocketConfig {
    let buffer_bytes = if sockets > 1 {
        ONE_OF_MANY_BUFFER_BYTES
    } else {
        ONE_BUFFER_BYTES
    };
    SocketConfig {
        buffer_bytes,
        ..SocketConfig::default()
    }
}

/// An address of this machine from which `remote` can be reached, on a port that the system chooses.
fn local_address(remote: std::net::SocketAddr) -> std::net::SocketAddr {
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
    match remote {
        SocketAddr::V4(_) if remote.ip().is_loopback() => (Ipv4Addr::LOCALHOST, 0).into(),
        SocketAddr::V6(_) if remote.ip().is_loopback() => (Ipv6Addr::LOCALHOST, 0).into(),
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// How often a role looks at the gate and shows itself.
const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// Pings of clients, so that relays with short idle time-outs keep them while they wait for the start.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Receive buffer when all subscribers share one socket: a burst to ten thousand of them.
const ONE_BUFFER_BYTES: usize = 16 << 20;
/// Receive buffer when each subscriber has its own.
const ONE_OF_MANY_BUFFER_BYTES: usize = 256 << 10;
/// Files that the process needs beside its sockets.
const FILES_BESIDE: u64 = 64;
/// More than one process can have subscribers: the number of UDP ports of an address.
const CONNECTIONS_MAX: usize = 1 << 16;

/// The generator reads its sockets this often while packets come. On one machine the relay pays for waking it, some
/// microseconds each time; with less rest the relay would be billed for the generator's impatience. Latency is
/// overstated by this at most.
const REST: Duration = Duration::from_micros(500);
