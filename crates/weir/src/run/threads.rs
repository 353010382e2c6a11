//! The roles of the generator on threads of their own, and what other threads may see of them.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use weir_bench::{
    early_stop::EarlyStop,
    meeting::MeetingRole,
    publisher::{PublisherProgress, PublisherRole, ReleaseError},
    subscriber::{SubscriberProgress, SubscriberRole},
};
use weir_net::{HostConfig, SocketConfig, Stop, Telemetry, clock, raise_open_files_limit};
use weir_quic::{App, Endpoint, Event, Limits};
use weir_report::{latency, service_level::JudgedClause};

use super::RelayUrl;
use crate::event_loop::{self, EventLoop, LoopThread};

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

/// What all threads of a generator share.
pub(crate) struct Setting<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) stop: &'a Stop,
    pub(crate) url: &'a RelayUrl,
    /// The beginning of the run.
    pub(crate) origin: Instant,
    /// Share of its time that each thread wastes on purpose, in per cent.
    pub(crate) waste_percent: u32,
    /// Looks whether the run is worth going on, if anything does.
    pub(crate) early_stop: Option<&'a EarlyStop>,
}

/// A role on a thread of its own.
pub(crate) struct Hosted {
    thread: LoopThread<LoadHost>,
    view: View,
}

/// What a thread of the generator does.
pub(crate) enum Load {
    /// It publishes.
    Publishers(Box<PublisherRole>),
    /// It subscribes.
    Subscribers(Box<SubscriberRole>),
    /// Each of its clients does both.
    Meetings(Box<MeetingRole>),
}

impl Load {
    /// What it is called in reports and in lists of threads.
    fn name(&self) -> &'static str {
        match self {
            Self::Publishers(_) => "publishers",
            Self::Subscribers(_) => "subscribers",
            Self::Meetings(_) => "clients",
        }
    }

    /// The clients that publish, if this thread has any.
    pub(crate) fn publishers(&self) -> Option<&PublisherRole> {
        match self {
            Self::Publishers(role) => Some(role),
            Self::Subscribers(_) => None,
            Self::Meetings(role) => Some(role.publishers()),
        }
    }

    /// The clients that subscribe, if this thread has any.
    pub(crate) fn subscribers(&self) -> Option<&SubscriberRole> {
        match self {
            Self::Publishers(_) => None,
            Self::Subscribers(role) => Some(role),
            Self::Meetings(role) => Some(role.subscribers()),
        }
    }

    fn app(&self) -> &dyn App {
        match self {
            Self::Publishers(role) => &**role,
            Self::Subscribers(role) => &**role,
            Self::Meetings(role) => &**role,
        }
    }

    fn app_mut(&mut self) -> &mut dyn App {
        match self {
            Self::Publishers(role) => &mut **role,
            Self::Subscribers(role) => &mut **role,
            Self::Meetings(role) => &mut **role,
        }
    }

    fn start(&mut self, now: Instant) {
        match self {
            Self::Publishers(_) => {}
            Self::Subscribers(role) => role.start(now),
            Self::Meetings(role) => role.start(now),
        }
    }

    fn release(&mut self, now: Instant, endpoint: &mut Endpoint) -> Result<(), ReleaseError> {
        match self {
            Self::Publishers(role) => role.release(now, endpoint),
            Self::Subscribers(role) => {
                role.release(now, endpoint);
                Ok(())
            }
            Self::Meetings(role) => role.release(now, endpoint),
        }
    }
}

/// What other threads may see of a role. Clones are the same view.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) name: &'static str,
    /// The core that its thread is bound to, if it is.
    pub(crate) core: Option<usize>,
    seen: Arc<Mutex<Seen>>,
    pub(crate) telemetry: Arc<Telemetry>,
}

impl View {
    pub(crate) fn seen(&self) -> Seen {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        // A thread that panicked is found out when it is joined.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is seen of a role.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) publishers: PublisherProgress,
    pub(crate) subscribers: SubscriberProgress,
    /// Whether the relay has answered every offer.
    pub(crate) has_announced: bool,
    /// Whether the relay takes objects of every track.
    pub(crate) is_served: bool,
    /// Whether the relay has answered every subscription.
    pub(crate) is_subscribed: bool,
    /// Median and 99th percentile of latency in the last whole second, in milliseconds.
    pub(crate) latency_ms: Option<(f64, f64)>,
    /// Whether the service level cannot hold any more, where that is looked after.
    pub(crate) is_hopeless: bool,
}

/// A role under a conductor.
pub(crate) struct LoadHost {
    load: Load,
    gate: Gate,
    view: View,
    next_look: Instant,
    /// The beginning of the run.
    origin: Instant,
    /// The last whole second whose latency was looked at, and what it was.
    latency: (u64, Option<(f64, f64)>),
    /// Watches for clauses that cannot hold any more, where that ends the run.
    early_stop: Option<EarlyStop>,
    /// What it found.
    hopeless: Vec<JudgedClause>,
    /// Share of its time that the thread wastes on purpose, in per cent.
    waste_percent: u32,
    next_waste: Instant,
    is_started: bool,
    is_released: bool,
    refused_release: Option<String>,
}

impl LoadHost {
    pub(crate) fn load(&self) -> &Load {
        &self.load
    }

    /// Why the schedules could not begin.
    pub(crate) fn refused_release(&self) -> Option<&str> {
        self.refused_release.as_deref()
    }

    /// The clauses of the service level that could not hold any more, where that was looked after.
    pub(crate) fn hopeless(&self) -> &[JudgedClause] {
        &self.hopeless
    }

    /// Follows the conductor, and shows what there is to see.
    fn look(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.next_look = now + LOOK_PERIOD;
        if self.waste_percent > 0 && self.next_waste <= now {
            self.next_waste = now + WASTE_PERIOD;
            let until = now + WASTE_PERIOD * self.waste_percent / 100;
            while clock::now() < until {
                std::hint::spin_loop();
            }
        }
        let state = &self.gate.inner;
        if !self.is_started && state.subscribers.load(Ordering::Acquire) {
            self.is_started = true;
            self.load.start(now);
        }
        let publishers = self.load.publishers();
        let has_announced = publishers.is_none_or(PublisherRole::has_announced);
        if !self.is_released && has_announced && state.release.load(Ordering::Acquire) {
            self.is_released = true;
            if let Err(problem) = self.load.release(now, endpoint) {
                self.refused_release = Some(problem.to_string());
                self.load.app_mut().handle_shutdown(now, endpoint);
            }
            if let (Some(early_stop), Some(role)) = (&mut self.early_stop, self.load.subscribers())
            {
                early_stop.on_released(now, role);
            }
        }
        self.look_back(now);
        let (publishers, subscribers) = (self.load.publishers(), self.load.subscribers());
        *self.view.lock() = Seen {
            publishers: publishers.map(PublisherRole::progress).unwrap_or_default(),
            subscribers: subscribers
                .map(SubscriberRole::progress)
                .unwrap_or_default(),
            has_announced,
            is_served: publishers.is_none_or(PublisherRole::is_served),
            is_subscribed: subscribers.is_none_or(|role| self.is_started && role.is_subscribed()),
            latency_ms: self.latency.1,
            is_hopeless: !self.hopeless.is_empty(),
        };
    }

    /// Sums up the latency of a second when it is over, and looks whether the run is worth going on.
    fn look_back(&mut self, now: Instant) {
        let second = now.saturating_duration_since(self.origin).as_secs();
        let Some(subscribers) = self.load.subscribers() else {
            return;
        };
        if second <= self.latency.0 {
            return;
        }
        let (from, to) = (Duration::from_secs(second - 1), Duration::from_secs(second));
        let latency = latency::distribution(&subscribers.latency_between(from, to));
        self.latency = (second, latency.map(|one| (one.p50_ms, one.p99_ms)));
        if let Some(early_stop) = self
            .early_stop
            .as_ref()
            .filter(|_| self.hopeless.is_empty())
        {
            self.hopeless = early_stop.look(now, subscribers);
        }
    }
}

impl App for LoadHost {
    #[inline]
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match &mut self.load {
            Load::Publishers(role) => role.handle_event(now, endpoint, event),
            Load::Subscribers(role) => role.handle_event(now, endpoint, event),
            Load::Meetings(role) => role.handle_event(now, endpoint, event),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let role = self.load.app().poll_timeout();
        Some(role.map_or(self.next_look, |role| role.min(self.next_look)))
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.load.app().poll_timeout().is_some_and(|at| at <= now) {
            self.load.app_mut().handle_timeout(now, endpoint);
        }
        if self.next_look <= now {
            self.look(now, endpoint);
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.load.app_mut().handle_shutdown(now, endpoint);
    }

    fn is_finished(&self) -> bool {
        self.load.app().is_finished()
    }
}

impl Hosted {
    /// Starts a thread that does `load`, on `sockets` sockets.
    pub(crate) fn start(
        load: Load,
        setting: &Setting<'_>,
        core: Option<usize>,
        sockets: u32,
    ) -> anyhow::Result<Self> {
        let view = View {
            name: load.name(),
            core,
            seen: Arc::new(Mutex::new(Seen::default())),
            telemetry: Arc::new(Telemetry::default()),
        };
        let host = LoadHost {
            load,
            gate: setting.gate.clone(),
            view: view.clone(),
            next_look: clock::now(),
            origin: setting.origin,
            latency: (0, None),
            early_stop: setting.early_stop.cloned(),
            hopeless: Vec::new(),
            waste_percent: setting.waste_percent,
            next_waste: setting.origin,
            is_started: false,
            is_released: false,
            refused_release: None,
        };
        let thread = start_thread(host, core, setting.stop, setting.url, sockets)?;
        Ok(Self { thread, view })
    }

    /// Whether the role has ended, well or not.
    pub(crate) fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    pub(crate) fn view(&self) -> View {
        self.view.clone()
    }

    /// What is seen of the role.
    pub(crate) fn seen(&self) -> Seen {
        self.view.seen()
    }

    /// The role, once it has ended.
    pub(crate) fn join(self) -> anyhow::Result<LoadHost> {
        let panicked = |_| anyhow!("a thread of the load generator panicked");
        let (host, _) = self.thread.join().map_err(panicked)??;
        Ok(host)
    }
}

fn start_thread(
    app: LoadHost,
    core: Option<usize>,
    stop: &Stop,
    url: &RelayUrl,
    sockets: u32,
) -> anyhow::Result<LoopThread<LoadHost>> {
    if sockets > 1 {
        let limit = raise_open_files_limit().context("cannot raise the limit of open files")?;
        if u64::from(sockets) + FILES_BESIDE > limit {
            return Err(anyhow!(
                "{sockets} sockets are more than the {limit} files allowed"
            ));
        }
    }
    let local = event_loop::local_address(url.address);
    let bound = (0..sockets).map(|_| event_loop::bind(local, socket_config(sockets)));
    let bound: anyhow::Result<Vec<_>> = bound.collect();
    let endpoint = event_loop::endpoint(Limits {
        keep_alive: Some(KEEP_ALIVE),
        connections_max: CONNECTIONS_MAX,
        ..Limits::default()
    })?;
    let mut event_loop = EventLoop::new(bound?, endpoint, stop.clone())?;
    event_loop.core = core;
    event_loop.telemetry = Arc::clone(&app.view.telemetry);
    event_loop.config = HostConfig {
        receive_pause: REST,
        ..HostConfig::default()
    };
    event_loop.start(&format!("weir-{}", app.view.name), app)
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

/// How often a role looks at the gate and shows itself.
const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// Time is wasted in stretches of this: long enough to be seen as lag, whatever else the machine does.
const WASTE_PERIOD: Duration = Duration::from_millis(200);
/// Pings of clients, so that relays with short idle time-outs keep them while they wait for the start.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);
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
