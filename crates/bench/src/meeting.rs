//! Meetings: clients that publish and subscribe on one connection each. [evens-00 §4.3]
//!
//! A [`MeetingRole`] joins a [`PublisherRole`] and the subscribers of the same clients: client *n* publishes what
//! publisher *n* does and receives what subscriber *n* does, over one connection. Each event of a session goes to the
//! publisher or to the subscriber that it concerns. A run proceeds as with separate roles: first all tracks are
//! offered, then subscribers start, then the schedules begin.

use std::time::{Duration, Instant};

use weir_moqt::session::Event as SessionEvent;
use weir_quic::{App, Endpoint, Event};

use crate::limits::CONNECTS_PER_TURN_MAX;
use crate::metrics::End;
use crate::publisher::{PublisherConfig, PublisherRole};
use crate::subscriber::{SubscriberConfig, SubscriberRole, drain_of};
use weir_client::peer::DataEvent;
use weir_client::turn::Turn;

/// Clients that publish and subscribe.
#[derive(Debug)]
pub struct MeetingRole {
    publishers: PublisherRole,
    subscribers: SubscriberRole,
    next_check: Instant,
}

impl MeetingRole {
    /// Returns clients that start to connect at `now`.
    ///
    /// # Panics
    /// The two configurations have different numbers of clients.
    pub fn new(
        mut publishers: PublisherConfig,
        subscribers: SubscriberConfig,
        now: Instant,
    ) -> Self {
        assert_eq!(
            publishers.publishers.len(),
            subscribers.subscribers.len(),
            "every client of a meeting publishes and subscribes"
        );
        publishers.target.limits.done_linger = drain_of(&publishers.plans);
        Self {
            publishers: PublisherRole::held_open(publishers, now),
            subscribers: SubscriberRole::new(subscribers),
            next_check: now,
        }
    }

    /// Returns the clients as publishers.
    pub fn publishers(&self) -> &PublisherRole {
        &self.publishers
    }

    /// Returns the clients as subscribers.
    pub fn subscribers(&self) -> &SubscriberRole {
        &self.subscribers
    }

    /// Lets the clients subscribe, at the rate of the configuration.
    pub fn start(&mut self, now: Instant) {
        self.subscribers.start(now);
    }

    /// Begins all schedules at `now`; see [`PublisherRole::release`].
    ///
    /// # Errors
    /// The errors of [`PublisherRole::release`].
    pub fn release(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
    ) -> Result<(), crate::publisher::ReleaseError> {
        self.publishers.release(now, endpoint)?;
        let connections = &mut self.publishers.connections;
        let turn = &mut Turn { now, endpoint };
        self.subscribers.subscribers.release(turn, connections);
        Ok(())
    }

    /// Ends all tracks that have not ended, and closes all connections.
    pub fn close(&mut self, now: Instant, endpoint: &mut Endpoint, end: End) {
        self.subscribers.subscribers.end(end);
        self.publishers.close(now, endpoint);
    }

    fn drain(&mut self, turn: &mut Turn<'_>, number: usize) {
        let subscribers = &mut self.subscribers.subscribers;
        while let Some(event) = self.publishers.connections[number].poll_event() {
            if subscribers.takes(number, &event) {
                let client = &mut self.publishers.connections[number];
                subscribers.on_session_event(turn, client, number, event);
                continue;
            }
            if let SessionEvent::Violated(violation) = &event {
                let reason = format!("the relay violated the protocol: {violation}");
                subscribers.fail(number, reason);
            }
            let is_ready = matches!(event, SessionEvent::Ready { .. });
            self.publishers.on_session_event(turn, number, event);
            if is_ready && subscribers.has_joined(number) {
                // The next relay's session.
                let client = &mut self.publishers.connections[number];
                subscribers.subscribe(turn, client, number);
            }
        }
        if self.publishers.note_move(number) {
            subscribers.leave(number);
        }
        self.publishers.note_failure(number);
        subscribers.note_connection(&self.publishers.connections[number], number);
    }

    /// Subscribes the clients whose start is due.
    fn join_some(&mut self, turn: &mut Turn<'_>) {
        let subscribers = &mut self.subscribers.subscribers;
        for _ in 0..CONNECTS_PER_TURN_MAX {
            let Some(number) = subscribers.next_to_join(turn.now) else {
                return;
            };
            let client = &mut self.publishers.connections[number];
            if client.is_ready() {
                subscribers.subscribe(turn, client, number);
            } else {
                let reason = client.failure();
                let reason = reason.unwrap_or("the session was not open in time");
                subscribers.fail(number, reason.to_owned());
            }
        }
    }
}

impl App for MeetingRole {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let turn = &mut Turn { now, endpoint };
        let Some(number) = self.publishers.connections.number_of(&event) else {
            return;
        };
        let client = &mut self.publishers.connections[number];
        match client.handle_event(turn, event) {
            Some(DataEvent::Datagram(request, datagram)) => {
                let subscribers = &mut self.subscribers.subscribers;
                return subscribers.on_datagram(now, number, request, &datagram);
            }
            Some(event) => {
                let publishers = &mut self.publishers;
                publishers.on_data_event(turn, number, &event);
            }
            None => {}
        }
        self.drain(turn, number);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let publishers = self.publishers.next_timeout();
        let subscribers = self.subscribers.subscribers.next_timeout();
        let times = [publishers, subscribers, Some(self.next_check)];
        let next = times.into_iter().flatten().min();
        next.filter(|_| !self.is_finished())
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        if self.is_finished() {
            return;
        }
        self.publishers.on_timeout(turn);
        self.join_some(turn);
        if self.next_check <= now {
            self.next_check = now + CHECK_PERIOD;
            for number in 0..self.publishers.len() {
                self.publishers.connections.handle_timeout(turn, number);
                self.drain(turn, number);
            }
        }
        let subscribers = &mut self.subscribers.subscribers;
        if subscribers.takes_check(now) {
            // A client that has received everything may still be sending; its connection stays.
            subscribers.check(now);
        }
        if subscribers.is_closed() && self.publishers.is_done() {
            self.publishers.close(now, endpoint);
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.close(now, endpoint, End::Interrupted);
    }

    fn is_finished(&self) -> bool {
        self.publishers.is_finished() && self.subscribers.is_finished()
    }
}

/// How often session timeouts are checked.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
