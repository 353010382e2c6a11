//! Publishers and subscribers on one endpoint, with the part of a runner that orders a run.
//!
//! First publishers offer their tracks. When the relay has answered, subscribers connect. When the relay serves all of
//! them, the schedules begin (decision 8). When all tracks have ended, publishers close. A run that cannot begin ends
//! with its reason.

use std::time::{Duration, Instant};

use weir_quic::{App, Endpoint, Event};

use crate::metrics::{End, SentTotals};
use crate::publisher::{PublisherConfig, PublisherRole};
use crate::subscriber::{SubscriberConfig, SubscriberRole, SubscriptionResult};

/// A run's publishers and subscribers.
#[derive(Debug)]
pub(super) struct Load {
    publishers: PublisherRole,
    subscribers: SubscriberRole,
    start: StartRule,
    phase: Phase,
    deadline: Instant,
    failure: Option<String>,
}

/// When the schedules begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartRule {
    /// When every subscriber is subscribed and the relay accepts every track. After `limit`, with the subscribers that
    /// there are.
    WhenServed {
        /// The most time for the set-up, from the first packet on.
        limit: Duration,
    },
    /// As soon as the relay has accepted the tracks (`--no-wait`).
    AtOnce,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Publishers offer their tracks.
    Announcing,
    /// Subscribers connect and subscribe.
    Subscribing,
    /// The schedules run.
    Sending,
    /// Everything is closed.
    Finished,
}

impl Load {
    /// A run that begins at `now`.
    pub(super) fn new(
        publishers: PublisherConfig,
        subscribers: SubscriberConfig,
        start: StartRule,
        now: Instant,
    ) -> Self {
        let limit = match start {
            StartRule::WhenServed { limit } => limit,
            StartRule::AtOnce => ANNOUNCE_LIMIT,
        };
        Self {
            publishers: PublisherRole::new(publishers, now),
            subscribers: SubscriberRole::new(subscribers),
            start,
            phase: Phase::Announcing,
            deadline: now + limit,
            failure: None,
        }
    }

    /// The publishers.
    pub(super) fn publishers(&self) -> &PublisherRole {
        &self.publishers
    }

    /// The subscribers.
    pub(super) fn subscribers(&self) -> &SubscriberRole {
        &self.subscribers
    }

    /// Returns why the run could not begin or had to end, if so.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns what was measured of every subscription, compared with what this run's publishers sent.
    pub(super) fn results(&self) -> Vec<SubscriptionResult> {
        let sent: std::collections::BTreeMap<_, SentTotals> = self
            .publishers
            .results()
            .into_iter()
            .map(|result| (result.name, result.totals))
            .collect();
        self.subscribers.results(|name| sent.get(name).copied())
    }

    /// Enters the next phase if its conditions are met.
    fn advance(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let overdue = now >= self.deadline;
        match self.phase {
            Phase::Announcing => {
                if let Some(reason) = self.publishers_failed() {
                    self.fail(now, endpoint, reason);
                } else if self.publishers.has_announced() {
                    self.subscribers.start(now);
                    self.phase = Phase::Subscribing;
                    if self.start == StartRule::AtOnce {
                        self.release(now, endpoint);
                    }
                } else if overdue {
                    let reason = "the relay did not answer the publisher's offer in time";
                    self.fail(now, endpoint, reason.to_owned());
                }
            }
            Phase::Subscribing => {
                let subscribed = self.subscribers.is_subscribed();
                if let Some(reason) = self.publishers_failed() {
                    self.fail(now, endpoint, reason);
                } else if subscribed && self.subscribers.progress().accepted == 0 {
                    self.end(now, endpoint);
                } else if overdue || (subscribed && self.publishers.is_served()) {
                    self.release(now, endpoint);
                }
            }
            Phase::Sending => {
                if self.subscribers.is_finished() || self.publishers.is_finished() {
                    self.finish_sending(now, endpoint);
                }
            }
            Phase::Finished => {}
        }
    }

    fn release(&mut self, now: Instant, endpoint: &mut Endpoint) {
        match self.publishers.release(now, endpoint) {
            Ok(()) => {
                self.subscribers.release(now, endpoint);
                self.phase = Phase::Sending;
            }
            Err(error) => self.fail(now, endpoint, error.to_string()),
        }
    }

    /// Ends the run when all subscribers are done. Publishers may be done earlier; if subscribers are done first,
    /// publishers stop.
    fn finish_sending(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if !self.publishers.is_finished() {
            self.publishers.close(now, endpoint);
        }
        if self.subscribers.is_finished() {
            self.phase = Phase::Finished;
        }
    }

    fn fail(&mut self, now: Instant, endpoint: &mut Endpoint, reason: String) {
        self.failure = Some(reason);
        self.end(now, endpoint);
    }

    fn end(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.subscribers.close(now, endpoint, End::Interrupted);
        self.publishers.close(now, endpoint);
        self.phase = Phase::Finished;
    }

    /// Returns why no publisher can be used, if so.
    fn publishers_failed(&self) -> Option<String> {
        let progress = self.publishers.progress();
        if progress.failed < progress.publishers {
            return None;
        }
        let (_, reason) = self.publishers.failures().next()?;
        Some(format!("the publisher failed: {reason}"))
    }
}

impl App for Load {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if self.subscribers.owns(&event) {
            self.subscribers.handle_event(now, endpoint, event);
        } else {
            self.publishers.handle_event(now, endpoint, event);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let publishers = self.publishers.poll_timeout();
        let subscribers = self.subscribers.poll_timeout();
        [publishers, subscribers].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.publishers.poll_timeout().is_some_and(|at| at <= now) {
            self.publishers.handle_timeout(now, endpoint);
        }
        if self.subscribers.poll_timeout().is_some_and(|at| at <= now) {
            self.subscribers.handle_timeout(now, endpoint);
        }
        self.advance(now, endpoint);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.phase != Phase::Finished {
            self.end(now, endpoint);
        }
    }

    fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }
}

/// The most time that the relay has to accept the tracks, if nobody waits for subscribers.
const ANNOUNCE_LIMIT: Duration = Duration::from_secs(30);
