//! Subscribers: clients that receive the tracks of a profile and measure them.
//!
//! A [`SubscriberRole`] hosts any number of subscribers, each on a connection of its own. They connect at a given rate,
//! subscribe to their tracks, and pass what arrives to their [`TrackReceiver`](crate::metrics::TrackReceiver)s, which
//! lie side by side in one vector. Objects are not stored: the head of each is decoded, and the rest is compared with
//! the expected content.

mod churn;
mod client;
mod discovery;
mod fetch;
mod incoming;
mod measurements;
mod result;
mod slow_reader;
mod subscribers;
mod subscription;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_moqt::draft::Draft;
use weir_moqt::name::FullTrackName;
use weir_moqt::parameter::{Filter, GroupOrder, Parameters};
use weir_moqt::session::{Event as SessionEvent, RequestId};
use weir_moqt::token::Token;
use weir_quic::{App, Endpoint, Event};

use self::client::SubscriberClient;
pub use self::result::SubscriptionResult;
use self::slow_reader::Unread;
pub(crate) use self::subscribers::{Subscribers, drain_of};
use crate::limits::CONNECTS_PER_TURN_MAX;
use crate::measured::SubscribersMeasured;
use crate::metrics::{End, Heat, OverTime, SentTotals, TrackPlan};
use crate::part::Part;
use crate::profile::Audience;
use crate::rendezvous;
use crate::scenario::NamedTrack;
use weir_client::clients::Clients;
use weir_client::peer::DataEvent;
use weir_client::target::Target;
use weir_client::turn::Turn;
use weir_histogram::Histogram;
use weir_histogram::Series;
use weir_report::relay::Acknowledged;

/// The configuration of subscribers.
#[derive(Clone, Debug)]
pub struct SubscriberConfig {
    /// The relay.
    pub target: Target,
    /// The tracks of the profile.
    pub plans: Arc<[TrackPlan]>,
    /// The tracks that each subscriber subscribes to, one entry per connection.
    pub subscribers: Vec<Arc<[NamedTrack]>>,
    /// The place of these subscribers among all of the run.
    pub part: Part,
    /// How tracks are requested.
    pub flow: SubscribeFlow,
    /// The parameters of every subscription.
    pub request: SubscribeRequest,
    /// Connections started per second, or zero for all at once.
    pub ramp_per_second: u32,
    /// The subscribers that read slowly, and those that churn. Clients of meetings do neither.
    pub audience: Audience,
    /// How long a subscriber waits for the first message, counted from when the last one started to connect.
    pub start_timeout: Duration,
    /// Whether all content is compared with what was sent.
    pub verify_content: bool,
    /// The number of this process among those that subscribe. With it, the role announces to publishers of other processes
    /// that all of its subscribers are subscribed.
    pub announce_as: Option<u64>,
}

/// How subscribers request their tracks, since relays differ (decision 33).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubscribeFlow {
    /// SUBSCRIBE for each track by its name. [moqt-18 §10.7]
    #[default]
    Subscribe,
    /// `SUBSCRIBE_NAMESPACE`, then SUBSCRIBE for the tracks that the relay announces. [moqt-18 §10.18]
    SubscribeNamespace,
    /// `SUBSCRIBE_TRACKS`, to which the relay responds with PUBLISH for each track. [moqt-18 §10.19]
    SubscribeTracks,
}

/// The parameters of a subscription. A field that is `None` leaves the choice to the relay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscribeRequest {
    /// The subscriber's priority: lower is sent first.
    pub priority: Option<u8>,
    /// The group order.
    pub group_order: Option<GroupOrder>,
    /// The filter, which says where to begin.
    pub filter: Option<Filter>,
    /// How long the relay may wait for a publisher.
    pub rendezvous_timeout: Option<Duration>,
    /// Whether the profile's time to live is sent as the delivery timeout (decision 29).
    pub delivery_timeout: bool,
}

/// The progress of subscribers. Every field only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriberProgress {
    /// Subscribers in all.
    pub subscribers: u64,
    /// Subscribers that have started to connect.
    pub started: u64,
    /// Subscribers whose QUIC handshake succeeded.
    pub connected: u64,
    /// Subscribers whose session was established.
    pub ready: u64,
    /// Subscribers whose connection or session failed.
    pub failed: u64,
    /// Sessions established after the first of each subscriber.
    pub rejoined: u64,
    /// Subscriptions in all.
    pub subscriptions: u64,
    /// Subscriptions that the relay accepted.
    pub accepted: u64,
    /// Subscriptions that have ended, whether complete or not.
    pub ended: u64,
    /// Distinct DATA objects received, over all subscriptions.
    pub objects: u64,
    /// Bytes of the DATA objects received.
    pub bytes: u64,
}

impl SubscriberProgress {
    /// Adds the progress of other subscribers.
    pub fn add(&mut self, other: &Self) {
        for (own, other) in [
            (&mut self.subscribers, other.subscribers),
            (&mut self.started, other.started),
            (&mut self.connected, other.connected),
            (&mut self.ready, other.ready),
            (&mut self.failed, other.failed),
            (&mut self.rejoined, other.rejoined),
            (&mut self.subscriptions, other.subscriptions),
            (&mut self.accepted, other.accepted),
            (&mut self.ended, other.ended),
            (&mut self.objects, other.objects),
            (&mut self.bytes, other.bytes),
        ] {
            *own = own.saturating_add(other);
        }
    }
}

/// Subscribers on one endpoint, each with a connection of its own.
#[derive(Debug)]
pub struct SubscriberRole {
    pub(crate) subscribers: Subscribers,
    connections: Clients,
    unread: Unread,
    /// The announcement to the publishers of other processes, and the subscriber whose session made it.
    announcement: Option<(usize, RequestId)>,
    /// Why the relay refused it.
    announcement_refused: Option<String>,
}

impl SubscriberRole {
    /// Returns subscribers that wait for [`start`](Self::start).
    pub fn new(config: SubscriberConfig) -> Self {
        let subscribers = Subscribers::new(config);
        let config = &subscribers.measured.config;
        let numbers = (0..config.subscribers.len()).map(|local| config.part.number_in_run(local));
        Self {
            connections: Clients::numbered(config.target.clone(), numbers),
            subscribers,
            unread: Unread::default(),
            announcement: None,
            announcement_refused: None,
        }
    }

    /// Starts to connect, at the configured rate.
    pub fn start(&mut self, now: Instant) {
        self.subscribers.start(now);
    }

    /// Notes that the schedules begin. Sends FETCH for tracks whose pattern is `fetch`.
    pub fn release(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        let connections = &mut self.connections;
        self.subscribers.release(turn, connections);
    }

    /// Whether every subscription was accepted or has ended.
    pub fn is_subscribed(&self) -> bool {
        let clients = &self.subscribers.clients;
        clients.iter().all(SubscriberClient::is_subscribed)
    }

    /// Announces once to other processes that all subscribers are subscribed.
    fn announce(&mut self, turn: &mut Turn<'_>) {
        let config = &self.subscribers.measured.config;
        let Some(process) = config.announce_as.filter(|_| self.announcement.is_none()) else {
            return;
        };
        if !self.is_subscribed() {
            return;
        }
        let run_id = config.plans.first().map_or(0, TrackPlan::run_id);
        let ready = (process, config.subscribers.len() as u64);
        let mut clients = 0..config.subscribers.len();
        self.announcement = clients.find_map(|number| {
            let client = &mut self.connections[number];
            let request = rendezvous::announce(turn, client, run_id, ready)?;
            Some((number, request))
        });
    }

    /// Notes that the relay refused the announcement. Subscribers do not fail with it: only publishers with
    /// --await-subscribers wait for it.
    fn note_refusal(&mut self, number: usize, event: &SessionEvent) {
        let SessionEvent::Rejected { id, error } = event else {
            return;
        };
        if self.announcement != Some((number, *id)) {
            return;
        }
        let run_id = self.plans().first().map_or(0, TrackPlan::run_id);
        self.announcement_refused = Some(rendezvous::refused(run_id, error));
    }

    /// Returns the progress of the subscribers in constant time.
    pub fn progress(&self) -> SubscriberProgress {
        self.subscribers.measured.progress
    }

    /// Returns latency over time of one plan, over all its subscriptions.
    pub fn latency(&self, plan: usize) -> &Series {
        &self.subscribers.measured.latency[plan]
    }

    /// Returns latency between two times of the run, over all plans and subscriptions.
    pub fn latency_between(&self, from: Duration, to: Duration) -> Histogram {
        let mut total = Histogram::new();
        for series in &self.subscribers.measured.latency {
            total.merge(&series.total_between(from, to));
        }
        total
    }

    /// Returns latency of what arrived at or after `from`, in whole windows, over all plans and subscriptions.
    pub(crate) fn latency_from(&self, from: Instant) -> Histogram {
        let mut total = Histogram::new();
        let origin = self.plans().first().map(|plan| plan.clock().origin());
        let from = origin.map_or(Duration::ZERO, |origin| {
            from.saturating_duration_since(origin)
        });
        for series in &self.subscribers.measured.latency {
            total.merge(&series.total_between(from, Duration::MAX));
        }
        total
    }

    /// The tracks of the profile.
    pub(crate) fn plans(&self) -> &[TrackPlan] {
        &self.subscribers.measured.config.plans
    }

    /// Counts the subscriptions to tracks of one plan, without those of slow and churning subscribers.
    pub(crate) fn steady_subscriptions(&self, plan: usize) -> u64 {
        let wanted = self
            .subscribers
            .steady()
            .flat_map(|client| client.wanted.iter());
        wanted.filter(|wanted| wanted.plan == plan).count() as u64
    }

    /// Counts the subscriptions that failed or ended early, and all, without those of slow and churning subscribers.
    pub(crate) fn failed_subscriptions(&self) -> (u64, u64) {
        let subscribers = &self.subscribers;
        let (mut failed, mut all) = (0, 0);
        for (receiver, _) in subscribers
            .steady()
            .flat_map(|client| client.receivers(&subscribers.measured))
        {
            failed += u64::from(receiver.has_failed());
            all += 1;
        }
        (failed, all)
    }

    /// Returns deltas, variances and bit rates of one plan over time, over its steady subscriptions.
    pub fn over_time(&self, plan: usize) -> &OverTime {
        &self.subscribers.measured.over_time[plan]
    }

    /// Returns the arrivals of one plan, by subscriber and planned time.
    pub fn heat(&self, plan: usize) -> &Heat {
        &self.subscribers.measured.heat[plan]
    }

    /// Returns the absolute receive variance of one plan, over all its subscriptions.
    pub fn receive_variance(&self, plan: usize) -> Histogram {
        let mut total = Histogram::new();
        let subscribers = &self.subscribers;
        for client in subscribers.steady() {
            let receivers = client.receivers(&subscribers.measured);
            for (receiver, _) in receivers.filter(|(_, at)| *at == plan) {
                total.merge(receiver.receive_variance());
            }
        }
        total
    }

    /// Returns what was measured of every subscription. `sent` returns the publisher's own count of a track if it is
    /// known.
    pub fn results(
        &self,
        sent: impl Fn(&FullTrackName) -> Option<SentTotals>,
    ) -> Vec<SubscriptionResult> {
        let Subscribers {
            clients, measured, ..
        } = &self.subscribers;
        clients
            .iter()
            .flat_map(|client| client.results(measured, &sent))
            .collect()
    }

    /// Returns the draft and the relay's name of the first session that was established.
    pub fn relay(&self) -> Option<(Draft, Option<&str>)> {
        let (draft, name) = self.subscribers.measured.relay.as_ref()?;
        Some((*draft, name.as_deref()))
    }

    /// Ends all tracks that have not ended, and closes all connections.
    pub fn close(&mut self, now: Instant, endpoint: &mut Endpoint, end: End) {
        let turn = &mut Turn { now, endpoint };
        self.subscribers.end(end);
        for number in 0..self.subscribers.clients.len() {
            self.leave(turn, number, GOODBYE);
        }
    }

    /// Returns all that was measured. `sent` is the publishers' own count of each track that is known.
    pub fn measured(&self, sent: &BTreeMap<FullTrackName, SentTotals>) -> SubscribersMeasured {
        let measured = &self.subscribers.measured;
        let plans = 0..measured.config.plans.len();
        SubscribersMeasured {
            results: self.results(|name| sent.get(name).copied()),
            latency: measured.latency.clone(),
            over_time: measured.over_time.clone(),
            heat: measured.heat.clone(),
            receive_variance: plans.map(|plan| self.receive_variance(plan)).collect(),
            acknowledged: measured.acknowledged,
            progress: measured.progress,
            draft: measured.relay.as_ref().map(|(draft, _)| *draft),
            relay: measured.relay.as_ref().and_then(|(_, name)| name.clone()),
            announcement_refused: self.announcement_refused.clone(),
        }
    }

    /// Returns how subscribers acknowledged packets, over all connections that they closed; `None` if they closed none.
    pub fn acknowledged(&self) -> Option<Acknowledged> {
        self.subscribers.measured.acknowledged
    }

    /// Returns how much later the packets of each of these subscribers leave, in their order.
    pub fn reply_delays(&self) -> Vec<Duration> {
        let audience = &self.subscribers.measured.config.audience;
        let clients = self.subscribers.clients.iter();
        clients
            .map(|client| audience.reply_delay_of(client.number))
            .collect()
    }

    /// Closes a connection, and notes how its packets were acknowledged.
    fn leave(&mut self, turn: &mut Turn<'_>, number: usize, reason: &str) {
        let client = &mut self.connections[number];
        let open = client.handle().filter(|_| !client.is_closed());
        if let Some(connection) = open.and_then(|handle| turn.connection(handle)) {
            self.subscribers
                .measured
                .note_acknowledged(&connection.stats());
        }
        client.close(turn, reason);
    }

    /// Whether the event belongs to one of these subscribers' connections.
    #[inline]
    pub fn owns(&self, event: &Event) -> bool {
        self.connections.number_of(event).is_some()
    }

    fn drain(&mut self, turn: &mut Turn<'_>, number: usize) {
        while let Some(event) = self.connections[number].poll_event() {
            self.note_refusal(number, &event);
            let client = &mut self.connections[number];
            self.subscribers
                .on_session_event(turn, client, number, event);
        }
        if self.connections[number].take_move().is_some() {
            self.subscribers.leave(number);
        }
        let client = &self.connections[number];
        self.subscribers.note_connection(client, number);
    }

    fn connect_some(&mut self, turn: &mut Turn<'_>) {
        for _ in 0..CONNECTS_PER_TURN_MAX {
            let Some(number) = self.subscribers.next_to_join(turn.now) else {
                return;
            };
            self.connect(turn, number);
        }
    }

    fn connect(&mut self, turn: &mut Turn<'_>, number: usize) {
        self.connections.connect(turn, number);
        let client = &self.connections[number];
        self.subscribers.note_connection(client, number);
    }
}

impl App for SubscriberRole {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let turn = &mut Turn { now, endpoint };
        let Some(number) = self.connections.number_of(&event) else {
            return;
        };
        if self.subscribers.reads_slowly(number) {
            let pause = self.subscribers.measured.config.audience.slow_read_pause;
            if let Some(event) = self.unread.hold(now, pause, number, event) {
                self.take(turn, number, event);
            }
            return;
        }
        self.take(turn, number, event);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let next = self.subscribers.next_timeout()?;
        let times = [self.unread.poll_timeout(), self.subscribers.next_leave()];
        times.into_iter().flatten().chain([next]).min()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        if self.subscribers.is_closed() {
            return;
        }
        self.connect_some(turn);
        for (number, event) in self.unread.take_due(now) {
            self.take(turn, number, event);
        }
        while let Some(number) = self.subscribers.next_to_leave(now) {
            self.come_back(turn, number);
        }
        if self.subscribers.takes_check(now) {
            for number in 0..self.subscribers.clients.len() {
                self.connections.handle_timeout(turn, number);
                self.drain(turn, number);
            }
            for number in self.subscribers.check(now) {
                self.leave(turn, number, GOODBYE);
            }
            self.announce(turn);
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.close(now, endpoint, End::Interrupted);
    }

    fn is_finished(&self) -> bool {
        self.subscribers.is_closed()
    }
}

impl SubscriberRole {
    #[inline]
    fn take(&mut self, turn: &mut Turn<'_>, number: usize, event: Event) {
        let left = self.connections[number].handle_event(turn, event);
        // The hot path: a datagram that the session recognizes raises no event.
        if let Some(DataEvent::Datagram(request, datagram)) = left {
            return self
                .subscribers
                .on_datagram(turn.now, number, request, &datagram);
        }
        self.drain(turn, number);
    }

    /// Ends the session of a client and begins its next one.
    fn come_back(&mut self, turn: &mut Turn<'_>, number: usize) {
        self.leave(turn, number, BACK_SOON);
        self.connect(turn, number);
    }
}

impl SubscribeRequest {
    /// Returns the parameters of a SUBSCRIBE for a track of this plan, by a client with these tokens.
    fn parameters(&self, plan: &TrackPlan, tokens: Vec<Token>) -> Parameters {
        Parameters {
            subscriber_priority: self.priority,
            group_order: self.group_order,
            filter: self.filter,
            rendezvous_timeout: self.rendezvous_timeout,
            authorization_tokens: tokens,
            object_delivery_timeout: self.delivery_timeout.then(|| plan.ttl()),
            ..Parameters::default()
        }
    }
}

/// The close reason of a churning subscriber's session.
const BACK_SOON: &str = "a churning subscriber begins anew";
/// The close reason at the end of a run.
const GOODBYE: &str = "the benchmark is over";
