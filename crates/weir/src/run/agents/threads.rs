//! The threads of an agent, each with a role, and the progress that other threads can read.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};
use weir_bench::{
    early_stop::EarlyStop,
    meeting::MeetingRole,
    profile::Audience,
    publisher::{PublisherProgress, PublisherRole, ReleaseError},
    subscriber::{SubscriberProgress, SubscriberRole},
};
use weir_histogram::Histogram;
use weir_net::{HostConfig, SocketConfig, Stop, Telemetry, clock, raise_open_files_limit};
use weir_quic::{App, Endpoint, Event, Limits};
use weir_report::service_level::MeasuredSoFar;

use crate::{
    event_loop::{self, EventLoop, LoopThread},
    run::RelayUrl,
};

/// Permissions that the controller of a run gives to the roles. Clones share one gate.
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
    /// Returns a gate. With `no_wait`, publishers may send at once.
    pub(crate) fn new(no_wait: bool) -> Self {
        let state = GateState {
            release: AtomicBool::new(no_wait),
            ..GateState::default()
        };
        Self {
            inner: Arc::new(state),
        }
    }

    /// Permits subscribers to connect.
    pub(crate) fn admit_subscribers(&self) {
        self.inner.subscribers.store(true, Ordering::Release);
    }

    /// Permits the schedules to begin.
    pub(crate) fn release(&self) {
        self.inner.release.store(true, Ordering::Release);
    }
}

/// Parameters of all threads of an agent.
pub(crate) struct Setting<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) stop: &'a Stop,
    pub(crate) url: &'a RelayUrl,
    pub(crate) audience: &'a Audience,
    /// The start of the run.
    pub(crate) origin: Instant,
    /// Share of its time that each thread wastes on purpose, in per cent.
    pub(crate) waste_percent: u32,
    /// Notes what makes a clause certain to fail; `None` if the run does not end early.
    pub(crate) early_stop: Option<&'a EarlyStop>,
}

/// A role on its thread.
pub(crate) struct Hosted {
    thread: LoopThread<LoadHost>,
    view: View,
}

/// The role of a thread.
pub(crate) enum Load {
    /// Publishes.
    Publishers(Box<PublisherRole>),
    /// Subscribes.
    Subscribers(Box<SubscriberRole>),
    /// Publishes and subscribes, with each client.
    Meetings(Box<MeetingRole>),
}

impl Load {
    /// Returns its name in reports, and in the thread's name.
    fn name(&self) -> &'static str {
        match self {
            Self::Publishers(_) => "publishers",
            Self::Subscribers(_) => "subscribers",
            Self::Meetings(_) => "clients",
        }
    }

    /// Returns the clients that publish, if the thread has any.
    pub(crate) fn publishers(&self) -> Option<&PublisherRole> {
        match self {
            Self::Publishers(role) => Some(role),
            Self::Subscribers(_) => None,
            Self::Meetings(role) => Some(role.publishers()),
        }
    }

    /// Returns the clients that subscribe, if the thread has any.
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

/// The progress of a role, for other threads. Clones share one view.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) name: &'static str,
    /// The core that the thread is pinned to, if it is.
    pub(crate) core: Option<usize>,
    seen: Arc<Mutex<Seen>>,
    second: Arc<Mutex<SecondSeen>>,
    pub(crate) telemetry: Arc<Telemetry>,
}

impl View {
    pub(crate) fn seen(&self) -> Seen {
        *lock(&self.seen)
    }

    /// Returns the figures of the last whole second.
    pub(crate) fn second(&self) -> SecondSeen {
        lock(&self.second).clone()
    }
}

/// Locks a value. The join reports a thread that panicked.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The figures of subscribers at the end of a second of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecondSeen {
    /// The second, from zero; zero before the first one is over.
    pub(crate) second: u64,
    /// Latency of what arrived in it.
    pub(crate) latency: Histogram,
    /// What could make a clause certain to fail, in runs that end early then, once the schedules have begun.
    pub(crate) so_far: Option<MeasuredSoFar>,
}

/// The progress of a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seen {
    pub(crate) publishers: PublisherProgress,
    pub(crate) subscribers: SubscriberProgress,
    /// Whether the relay has answered every offer.
    pub(crate) has_announced: bool,
    /// Whether the relay accepts objects of every track.
    pub(crate) is_served: bool,
    /// Whether the relay has answered every subscription.
    pub(crate) is_subscribed: bool,
}

/// A role that follows the controller's gate.
pub(crate) struct LoadHost {
    load: Load,
    gate: Gate,
    view: View,
    next_look: Instant,
    /// The start of the run.
    origin: Instant,
    /// The second of the run that was looked at last.
    second: u64,
    /// Notes what makes a clause certain to fail, in runs that end early then.
    early_stop: Option<EarlyStop>,
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

    /// Returns why the schedules could not begin, if so.
    pub(crate) fn refused_release(&self) -> Option<&str> {
        self.refused_release.as_deref()
    }

    /// Follows the controller's gate, and updates the view.
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
        *lock(&self.view.seen) = Seen {
            publishers: publishers.map(PublisherRole::progress).unwrap_or_default(),
            subscribers: subscribers
                .map(SubscriberRole::progress)
                .unwrap_or_default(),
            has_announced,
            is_served: publishers.is_none_or(PublisherRole::is_served),
            is_subscribed: subscribers.is_none_or(|role| self.is_started && role.is_subscribed()),
        };
    }

    /// Updates the figures of a second when it is over.
    fn look_back(&mut self, now: Instant) {
        let second = now.saturating_duration_since(self.origin).as_secs();
        let Some(subscribers) = self.load.subscribers() else {
            return;
        };
        if second <= self.second {
            return;
        }
        self.second = second;
        let (from, to) = (Duration::from_secs(second - 1), Duration::from_secs(second));
        let early_stop = self.early_stop.as_ref();
        *lock(&self.view.second) = SecondSeen {
            second: second - 1,
            latency: subscribers.latency_between(from, to),
            so_far: early_stop.and_then(|one| one.look(now, subscribers)),
        };
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
    /// Starts a thread with the role `load` and `sockets` sockets.
    pub(crate) fn start(
        load: Load,
        setting: &Setting<'_>,
        core: Option<usize>,
        sockets: u32,
    ) -> anyhow::Result<Self> {
        let view = View {
            name: load.name(),
            core,
            seen: Arc::default(),
            second: Arc::default(),
            telemetry: Arc::new(Telemetry::default()),
        };
        let host = LoadHost {
            load,
            gate: setting.gate.clone(),
            view: view.clone(),
            next_look: clock::now(),
            origin: setting.origin,
            second: 0,
            early_stop: setting.early_stop.cloned(),
            waste_percent: setting.waste_percent,
            next_waste: setting.origin,
            is_started: false,
            is_released: false,
            refused_release: None,
        };
        let thread = start_thread(host, core, setting, sockets)?;
        Ok(Self { thread, view })
    }

    /// Whether the thread has ended, well or not.
    pub(crate) fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Waits for the thread, and returns its role.
    pub(crate) fn join(self) -> anyhow::Result<LoadHost> {
        let panicked = |_| anyhow!("a thread of the load generator panicked");
        let (host, _) = self.thread.join().map_err(panicked)??;
        Ok(host)
    }
}

fn start_thread(
    app: LoadHost,
    core: Option<usize>,
    setting: &Setting<'_>,
    sockets: u32,
) -> anyhow::Result<LoopThread<LoadHost>> {
    let local = event_loop::local_address(setting.url.address);
    let has_one_each = setting.audience.has_own_sockets && app.load.subscribers().is_some();
    let bound = (0..sockets).map(|_| event_loop::bind(local, socket_config(has_one_each)));
    let bound: anyhow::Result<Vec<_>> = bound.collect();
    let endpoint = event_loop::endpoint(Limits {
        keep_alive: Some(KEEP_ALIVE),
        connections_max: CONNECTIONS_MAX,
        ..Limits::default()
    })?;
    let mut event_loop = EventLoop::new(bound?, endpoint, setting.stop.clone())?;
    event_loop.core = core;
    event_loop.telemetry = Arc::clone(&app.view.telemetry);
    let (mut receive_pause, audience) = (REST, setting.audience);
    if let Some(role) = app.load.subscribers() {
        receive_pause = audience.receive_pause;
        if !audience.reply_spread.is_zero() {
            event_loop.send_delays = role.reply_delays();
        }
    }
    event_loop.config = HostConfig {
        receive_pause,
        ..HostConfig::default()
    };
    event_loop.start(&format!("weir-{}", app.view.name), app)
}

/// Checks that this process may open the files of so many sockets and threads.
pub(crate) fn check_files(sockets: usize, threads: usize) -> anyhow::Result<()> {
    if sockets.max(threads) == 1 {
        return Ok(());
    }
    let limit = raise_open_files_limit().context("cannot raise the limit of open files")?;
    let needed = sockets + threads * FILES_PER_THREAD + FILES_BESIDE;
    if needed as u64 > limit {
        return Err(anyhow!(
            "{sockets} sockets on {threads} threads need {needed} open files, and this process may open {limit} \
             (`ulimit -n`); use fewer subscribers, or `sockets = shared` and fewer `threads` in [audience]"
        ));
    }
    Ok(())
}

fn socket_config(is_of_one_subscriber: bool) -> SocketConfig {
    let buffer_bytes = if is_of_one_subscriber {
        ONE_OF_MANY_BUFFER_BYTES
    } else {
        ONE_BUFFER_BYTES
    };
    SocketConfig {
        buffer_bytes,
        ..SocketConfig::default()
    }
}

/// Time between two looks of a role at the gate.
const LOOK_PERIOD: Duration = Duration::from_millis(10);
/// Period of wasted time: long enough to appear as event loop lag on any machine.
const WASTE_PERIOD: Duration = Duration::from_millis(200);
/// Period of the clients' pings, so that relays with short idle timeouts keep waiting clients.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Receive buffer, in bytes, of a socket that all subscribers share: holds a burst to ten thousand.
const ONE_BUFFER_BYTES: usize = 16 << 20;
/// Receive buffer, in bytes, of one subscriber's socket.
const ONE_OF_MANY_BUFFER_BYTES: usize = 256 << 10;
/// Files that the process opens beside its sockets.
const FILES_BESIDE: usize = 64;
/// Files of an event loop beside its sockets: it waits for them, and for the end, by descriptors.
const FILES_PER_THREAD: usize = 4;
/// Number of UDP ports of an address: one process has fewer subscribers.
const CONNECTIONS_MAX: usize = 1 << 16;

/// Pause between two reads of the publishers' socket while packets arrive: acknowledgements come in bursts.
const REST: Duration = Duration::from_micros(500);
