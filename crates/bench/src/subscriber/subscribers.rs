//! The subscribers of a role and what they share, without their connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_moqt::data::ObjectDatagram;
use weir_moqt::session::{Event as SessionEvent, RequestId};

use super::churn;
use super::client::SubscriberClient;
use super::measurements::Measurements;
use super::{SubscriberConfig, SubscriberProgress};
use crate::clock::ramp_time;
use crate::measured::Measured;
use crate::metrics::{End, TrackPlan, TrackReceiver};
use weir_client::client::Client;
use weir_client::clients::Clients;
use weir_client::turn::Turn;
use weir_report::relay::Conduct;

/// Subscribers whose connections are passed in by the caller.
#[derive(Debug)]
pub(crate) struct Subscribers {
    pub(super) clients: Vec<SubscriberClient>,
    pub(super) measured: Measurements,
    /// When the first subscriber began; `None` before [`SubscriberRole::start`].
    started: Option<Instant>,
    next_check: Option<Instant>,
    pub(super) next_leave: Option<Instant>,
    /// Time between two ends of sessions in this part; `None` without churn.
    pub(super) churn_period: Option<Duration>,
    /// The number of the client that leaves next.
    pub(super) leave_turn: usize,
    closed: bool,
}

impl Subscribers {
    /// Returns subscribers that wait for [`start`](Self::start).
    pub(crate) fn new(mut config: SubscriberConfig) -> Self {
        // The session must keep requests for as long after PUBLISH_DONE as receivers wait for late objects.
        config.target.limits.done_linger = drain_of(&config.plans);
        let subscriptions = config.subscribers.iter().map(|wanted| wanted.len()).sum();
        let mut first = 0;
        let mut clients = Vec::with_capacity(config.subscribers.len());
        let all = config.part.all();
        for (local, wanted) in config.subscribers.iter().enumerate() {
            let number = config.part.number_in_run(local);
            let conduct = config.audience.conduct_of(number, all);
            let place = (number, first);
            clients.push(SubscriberClient::new(Arc::clone(wanted), place, conduct));
            first += wanted.len();
        }
        let empty = Measured::empty(&config.plans, all).subscribers;
        let measured = Measurements {
            receivers: vec![TrackReceiver::new(); subscriptions],
            latency: empty.latency,
            over_time: empty.over_time,
            heat: empty.heat,
            acknowledged: None,
            progress: SubscriberProgress {
                subscribers: config.subscribers.len() as u64,
                subscriptions: subscriptions as u64,
                ..SubscriberProgress::default()
            },
            relay: None,
            config,
        };
        Self {
            churn_period: churn::period_of(&measured.config, &clients),
            clients,
            measured,
            started: None,
            next_check: None,
            next_leave: None,
            leave_turn: 0,
            closed: false,
        }
    }

    /// Starts the subscribers, at the configured rate.
    pub(crate) fn start(&mut self, now: Instant) {
        self.started.get_or_insert(now);
        self.next_check.get_or_insert(now);
    }

    /// Returns the subscribers that neither read slowly nor churn.
    pub(super) fn steady(&self) -> impl Iterator<Item = &SubscriberClient> {
        let clients = self.clients.iter();
        clients.filter(|client| client.conduct == Conduct::Steady)
    }

    /// Whether all subscribers are done.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Ends all tracks that have not ended.
    pub(crate) fn end(&mut self, end: End) {
        for client in &mut self.clients {
            client.end(&mut self.measured, end);
            client.on_closed();
        }
        self.closed = true;
    }

    /// Returns when client `client` of this part begins.
    fn joins_at(&self, started: Instant, client: u64) -> Instant {
        let config = &self.measured.config;
        let local = usize::try_from(client).unwrap_or(usize::MAX);
        let number = config.part.number_in_run(local) as u64;
        ramp_time(started, config.ramp_per_second, number)
    }

    /// Returns when the next client begins.
    fn next_join(&self) -> Option<Instant> {
        let next = self.measured.progress.started;
        let waiting = next < self.clients.len() as u64;
        self.started
            .filter(|_| waiting)
            .map(|started| self.joins_at(started, next))
    }

    /// Returns the next client that is due to begin, and counts it as begun.
    pub(crate) fn next_to_join(&mut self, now: Instant) -> Option<usize> {
        let is_due = self.next_join().is_some_and(|at| at <= now);
        let number = usize::try_from(self.measured.progress.started).ok()?;
        is_due.then(|| {
            self.measured.progress.started += 1;
            number
        })
    }

    /// Returns when the next timeout is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        let times = [self.next_join(), self.next_check];
        times.into_iter().flatten().min()
    }

    /// Whether [`Self::check`] is due. Schedules the following one.
    pub(crate) fn takes_check(&mut self, now: Instant) -> bool {
        let is_due = !self.closed && self.next_check.is_some_and(|at| at <= now);
        if is_due {
            self.next_check = Some(now + CHECK_PERIOD);
            self.note_joined(now);
        }
        is_due
    }

    /// Handles timeouts. Returns the subscribers that are done.
    pub(crate) fn check(&mut self, now: Instant) -> Vec<usize> {
        let last = self.clients.len().saturating_sub(1) as u64;
        let give_up = self
            .started
            .is_some_and(|at| now >= self.joins_at(at, last) + self.measured.config.start_timeout);
        let mut done = Vec::new();
        for (number, client) in self.clients.iter_mut().enumerate() {
            if client.is_closed() {
                continue;
            }
            if give_up {
                client.give_up_search(&mut self.measured);
            }
            if client.on_check(now, &mut self.measured, give_up) {
                client.on_closed();
                done.push(number);
            }
        }
        self.closed = self.clients.iter().all(SubscriberClient::is_closed);
        done
    }

    /// Subscribes a client to its tracks, on an established connection.
    pub(crate) fn subscribe(&mut self, turn: &mut Turn<'_>, client: &mut Client, number: usize) {
        let subscriber = &mut self.clients[number];
        subscriber.note_connection(client, &mut self.measured);
        subscriber.subscribe(turn, client, &mut self.measured);
    }

    /// Whether a client has had a session.
    pub(crate) fn has_joined(&self, number: usize) -> bool {
        self.clients[number].sessions > 0
    }

    /// Notes that a client's session has ended, and that another one follows, which requests the tracks again.
    pub(crate) fn leave(&mut self, number: usize) {
        self.clients[number].leave();
    }

    /// Fetches the tracks that clients did not subscribe to.
    pub(crate) fn release(&mut self, turn: &mut Turn<'_>, connections: &mut Clients) {
        for (number, subscriber) in self.clients.iter_mut().enumerate() {
            let client = &mut connections[number];
            subscriber.fetch_all(turn, client, &mut self.measured);
        }
    }

    /// Whether the event of a client's session concerns its subscriber.
    pub(crate) fn takes(&self, number: usize, event: &SessionEvent) -> bool {
        self.clients[number].takes(event)
    }

    /// Handles an event of a client's session.
    pub(crate) fn on_session_event(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        number: usize,
        event: SessionEvent,
    ) {
        let (subscriber, measured) = (&mut self.clients[number], &mut self.measured);
        subscriber.on_session_event(turn, client, measured, event);
    }

    /// Handles an object in a datagram.
    #[inline]
    pub(crate) fn on_datagram(
        &mut self,
        now: Instant,
        number: usize,
        request: RequestId,
        datagram: &ObjectDatagram,
    ) {
        let client = &mut self.clients[number];
        client.on_datagram(now, &mut self.measured, request, datagram);
    }

    /// Records how far a client's connection has progressed.
    pub(crate) fn note_connection(&mut self, client: &Client, number: usize) {
        self.clients[number].note_connection(client, &mut self.measured);
    }

    /// Fails a client.
    pub(crate) fn fail(&mut self, number: usize, reason: String) {
        self.clients[number].fail(&mut self.measured, reason);
    }
}

/// Returns the longest time that one of the tracks waits for late objects.
pub(crate) fn drain_of(plans: &[TrackPlan]) -> Duration {
    let drains = plans.iter().map(TrackPlan::drain);
    drains.max().unwrap_or_default()
}

/// How often timeouts are checked: precise enough, since they last seconds.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
