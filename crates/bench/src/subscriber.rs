//! Subscribers: clients that receive the tracks of a profile and measure them.
//!
//! A [`SubscriberRole`] hosts any number of subscribers, each on a connection of its own. They
//! connect at a given rate, subscribe to their tracks, and feed what arrives to their
//! [`TrackReceiver`]s, which lie side by side in one vector. Objects are not kept: of each, the head
//! is looked at and the rest is compared with what the publisher must have sent.

mod client;
mod incoming;
mod result;

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_moqt::limits::Limits;
use weir_moqt::name::FullTrackName;
use weir_moqt::parameter::{Filter, GroupOrder, Parameters};
use weir_quic::{App, Endpoint, Event};

use self::client::{SubscriberClient, Tracks};
pub use self::result::SubscriptionResult;
use crate::handles::{Handles, handle_of};
use crate::histogram::Histogram;
use crate::limits::CONNECTS_PER_TURN_MAX;
use crate::metrics::{End, SentTotals, TrackPlan, TrackReceiver};
use crate::series::Series;
use crate::target::Target;

/// What subscribers are made from.
#[derive(Clone, Debug)]
pub struct SubscriberConfig {
    /// The relay.
    pub target: Target,
    /// The tracks of the profile.
    pub plans: Arc<[TrackPlan]>,
    /// What each subscriber subscribes to: one entry per connection.
    pub subscribers: Vec<Arc<[Wanted]>>,
    /// What is asked for with every subscription.
    pub request: SubscribeRequest,
    /// Connections started per second; all at once if zero.
    pub ramp_per_second: u32,
    /// How long a subscriber waits for the first message after all have started to connect.
    pub start_timeout: Duration,
    /// Whether every byte of content is compared with what was sent.
    pub verify_content: bool,
    /// Bounds of the sessions.
    pub session_limits: Limits,
}

/// One track to subscribe to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which of the plans it follows.
    pub plan: usize,
    /// What it is called.
    pub name: FullTrackName,
}

/// What is asked for with a subscription; nothing is left to the relay's defaults unless `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscribeRequest {
    /// The subscriber's priority: lower is sent first.
    pub priority: Option<u8>,
    /// The order of groups.
    pub group_order: Option<GroupOrder>,
    /// Where to begin.
    pub filter: Option<Filter>,
    /// How long the relay may wait for a publisher.
    pub rendezvous_timeout: Option<Duration>,
    /// Whether the profile's time to live is asked for as the delivery time-out (decision 29).
    pub delivery_timeout: bool,
}

/// How far subscribers have come; every field only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriberProgress {
    /// Subscribers in all.
    pub subscribers: u64,
    /// Those that have started to connect.
    pub started: u64,
    /// Those whose QUIC handshake succeeded.
    pub connected: u64,
    /// Those whose session was opened.
    pub ready: u64,
    /// Those whose connection or session failed.
    pub failed: u64,
    /// Subscriptions in all.
    pub subscriptions: u64,
    /// Those that the relay accepted.
    pub accepted: u64,
    /// Those that have ended, for better or worse.
    pub ended: u64,
    /// Different DATA objects received, over all subscriptions.
    pub objects: u64,
    /// Bytes of those objects.
    pub bytes: u64,
}

/// Subscribers on one endpoint.
#[derive(Debug)]
pub struct SubscriberRole {
    config: SubscriberConfig,
    clients: Vec<SubscriberClient>,
    tracks: Tracks,
    handles: Handles,
    /// When the first connection was started; `None` before [`SubscriberRole::start`].
    started: Option<Instant>,
    next_check: Option<Instant>,
    closed: bool,
}

impl SubscriberRole {
    /// Subscribers that wait for [`start`](Self::start).
    pub fn new(mut config: SubscriberConfig) -> Self {
        // What the session drops after PUBLISH_DONE, no receiver could wait for.
        let drain = config
            .plans
            .iter()
            .map(TrackPlan::drain)
            .max()
            .unwrap_or_default();
        config.session_limits.done_linger = drain;
        let subscriptions = config.subscribers.iter().map(|wanted| wanted.len()).sum();
        let mut first = 0;
        let mut clients = Vec::with_capacity(config.subscribers.len());
        for wanted in &config.subscribers {
            clients.push(SubscriberClient::new(Arc::clone(wanted), first));
            first += wanted.len();
        }
        let series = config
            .plans
            .iter()
            .map(|plan| Series::new(plan.clock().origin(), SERIES_WINDOW));
        let tracks = Tracks {
            receivers: vec![TrackReceiver::new(); subscriptions],
            latency: series.collect(),
            progress: SubscriberProgress {
                subscribers: config.subscribers.len() as u64,
                subscriptions: subscriptions as u64,
                ..SubscriberProgress::default()
            },
        };
        Self {
            config,
            clients,
            tracks,
            handles: Handles::default(),
            started: None,
            next_check: None,
            closed: false,
        }
    }

    /// Starts to connect, at the rate of the configuration.
    pub fn start(&mut self, now: Instant) {
        self.started.get_or_insert(now);
        self.next_check.get_or_insert(now);
    }

    /// Whether every subscription was accepted, or has ended.
    pub fn is_subscribed(&self) -> bool {
        self.clients.iter().all(SubscriberClient::is_subscribed)
    }

    /// How far the subscribers have come; costs nothing.
    pub fn progress(&self) -> SubscriberProgress {
        self.tracks.progress
    }

    /// Latency over time of one plan, over all its subscriptions.
    pub fn latency(&self, plan: usize) -> &Series {
        &self.tracks.latency[plan]
    }

    /// Absolute receive variance of one plan, over all its subscriptions.
    pub fn receive_variance(&self, plan: usize) -> Histogram {
        let mut total = Histogram::new();
        for client in &self.clients {
            for (receiver, _) in client.receivers(&self.tracks).filter(|(_, at)| *at == plan) {
                total.merge(receiver.receive_variance());
            }
        }
        total
    }

    /// What was measured of every subscription. `sent` tells the publisher's own count of a track
    /// where it is known.
    pub fn results(
        &self,
        sent: impl Fn(&FullTrackName) -> Option<SentTotals>,
    ) -> Vec<SubscriptionResult> {
        let clients = self.clients.iter().enumerate();
        clients
            .flat_map(|(number, client)| {
                client.results(number, &self.config.plans, &self.tracks, &sent)
            })
            .collect()
    }

    /// The draft that sessions agreed on, and what the relay calls itself, by the first session that
    /// was opened.
    pub fn relay(&self) -> Option<(weir_moqt::draft::Draft, Option<&str>)> {
        self.clients.iter().find_map(SubscriberClient::relay)
    }

    /// Ends all tracks that have not ended, and closes all connections.
    pub fn close(&mut self, now: Instant, endpoint: &mut Endpoint, end: End) {
        for client in &mut self.clients {
            client.end(&mut self.tracks, end);
            client.close(now, endpoint);
        }
        self.closed = true;
    }

    /// Whether the event belongs to one of these subscribers.
    #[inline]
    pub fn owns(&self, event: &Event) -> bool {
        self.handles.client_of(handle_of(event)).is_some()
    }

    /// When client number `client` starts to connect.
    fn connects_at(&self, started: Instant, client: u64) -> Instant {
        let rate = u64::from(self.config.ramp_per_second);
        let ns = client
            .saturating_mul(1_000_000_000)
            .checked_div(rate)
            .unwrap_or(0);
        started + Duration::from_nanos(ns)
    }

    /// When the next client starts to connect.
    fn next_connect(&self) -> Option<Instant> {
        let next = self.tracks.progress.started;
        let waiting = next < self.clients.len() as u64;
        self.started
            .filter(|_| waiting)
            .map(|started| self.connects_at(started, next))
    }

    fn connect_some(&mut self, now: Instant, endpoint: &mut Endpoint) {
        for _ in 0..CONNECTS_PER_TURN_MAX {
            if self.next_connect().is_none_or(|at| at > now) {
                return;
            }
            // Below the number of clients, by `next_connect`.
            let number = usize::try_from(self.tracks.progress.started).unwrap_or(usize::MAX);
            self.tracks.progress.started += 1;
            let client = &mut self.clients[number];
            client.connect(now, endpoint, &self.config.target, number, &mut self.tracks);
            if let Some(handle) = client.handle() {
                self.handles.insert(handle, number);
            }
        }
    }

    fn check(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let last = self.clients.len().saturating_sub(1) as u64;
        let give_up = self
            .started
            .is_some_and(|at| now >= self.connects_at(at, last) + self.config.start_timeout);
        for client in &mut self.clients {
            client.handle_timeout(now, endpoint, &self.config, &mut self.tracks, give_up);
        }
        self.closed = self.clients.iter().all(SubscriberClient::is_closed);
    }
}

impl App for SubscriberRole {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if let Some(number) = self.handles.client_of(handle_of(&event)) {
            let client = &mut self.clients[number];
            client.handle_event(now, endpoint, &self.config, &mut self.tracks, event);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        let connect = self.next_connect();
        match (connect, self.next_check) {
            (Some(connect), Some(check)) => Some(connect.min(check)),
            (connect, check) => connect.or(check),
        }
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.closed {
            return;
        }
        self.connect_some(now, endpoint);
        if self.next_check.is_some_and(|at| at <= now) {
            self.next_check = Some(now + CHECK_PERIOD);
            self.check(now, endpoint);
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.close(now, endpoint, End::Interrupted);
    }

    fn is_finished(&self) -> bool {
        self.closed
    }
}

impl SubscribeRequest {
    /// The parameters of a SUBSCRIBE for a track of that plan.
    fn parameters(&self, plan: &TrackPlan) -> Parameters {
        Parameters {
            subscriber_priority: self.priority,
            group_order: self.group_order,
            filter: self.filter,
            rendezvous_timeout: self.rendezvous_timeout,
            object_delivery_timeout: self.delivery_timeout.then(|| plan.ttl()),
            ..Parameters::default()
        }
    }
}

/// How often time-outs are looked after: fine enough for those of seconds.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
/// One histogram of latency per second of the run.
const SERIES_WINDOW: Duration = Duration::from_secs(1);
