//! The relay as the rest of the program sees it: once a second its numbers are put where other threads find them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use weir_quic::{App, Endpoint, Event};
use weir_relay::{Counters, Gauges, Relay};

/// The numbers of one relay and its endpoint at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) counters: Counters,
    pub(crate) gauges: Gauges,
    pub(crate) quic: weir_quic::Counters,
    pub(crate) connections: usize,
    /// When it was taken; `None` if none was yet.
    pub(crate) at: Option<Instant>,
}

/// Where a relay leaves its latest numbers.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    latest: Mutex<Snapshot>,
}

impl Slot {
    pub(crate) fn latest(&self) -> Snapshot {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, snapshot: &Snapshot) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = *snapshot;
    }
}

/// A relay that publishes its numbers.
pub(crate) struct Observed {
    relay: Relay,
    slot: Arc<Slot>,
    next: Instant,
}

impl Observed {
    pub(crate) fn new(relay: Relay, slot: Arc<Slot>, now: Instant) -> Self {
        Self {
            relay,
            slot,
            next: now,
        }
    }

    /// What the relay did, once it is over.
    pub(crate) fn counters(&self) -> Counters {
        self.relay.counters()
    }

    fn publish(&self, now: Instant, endpoint: &Endpoint) {
        self.slot.put(&Snapshot {
            counters: self.relay.counters(),
            gauges: self.relay.gauges(),
            quic: endpoint.counters(),
            connections: endpoint.connections(),
            at: Some(now),
        });
    }
}

impl App for Observed {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        self.relay.handle_event(now, endpoint, event);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(
            self.relay
                .poll_timeout()
                .map_or(self.next, |at| at.min(self.next)),
        )
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.next <= now {
            self.publish(now, endpoint);
            self.next = now + INTERVAL;
        }
        if self.relay.poll_timeout().is_some_and(|at| at <= now) {
            self.relay.handle_timeout(now, endpoint);
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.relay.handle_shutdown(now, endpoint);
    }

    fn is_finished(&self) -> bool {
        self.relay.is_finished()
    }
}

/// How old numbers can be. Looking at every track is not for every packet.
const INTERVAL: Duration = Duration::from_secs(1);
