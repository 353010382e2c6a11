//! Snapshots of a relay's metrics: each relay publishes its own once a second, and other threads read them.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use weir_moqt::{draft::Draft, session};
use weir_net::{Delays, Telemetry, TelemetrySnapshot};
use weir_quic::{App, Endpoint, Event};
use weir_relay::{Counters, FleetState, Gauges, LinkState, Load, Overload, Relay, TrackState};

/// Final counters of a relay, or sums over several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) counters: Counters,
    /// Counters of the MOQT sessions.
    pub(crate) sessions: session::Counters,
    /// Datagrams dropped from queues.
    pub(crate) datagrams: DatagramDrops,
}

/// Datagrams dropped from queues, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatagramDrops {
    /// To make room for newer ones.
    oldest: u64,
    /// At their deadline.
    expired: u64,
    /// Received, and not read before newer ones arrived.
    unread: u64,
}

impl DatagramDrops {
    /// Returns the drops of an endpoint.
    pub(crate) fn of(counters: &weir_quic::Counters) -> Self {
        Self {
            oldest: counters.datagrams_dropped_oldest,
            expired: counters.datagrams_dropped_expired,
            unread: counters.datagrams_dropped_unread,
        }
    }

    /// Returns names and values, in the form of the relay's counters.
    pub(crate) fn iter(self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("datagrams_dropped_oldest", self.oldest),
            ("datagrams_dropped_expired", self.expired),
            ("datagrams_dropped_unread", self.unread),
        ]
        .into_iter()
    }

    fn plus(self, other: Self) -> Self {
        Self {
            oldest: self.oldest + other.oldest,
            expired: self.expired + other.expired,
            unread: self.unread + other.unread,
        }
    }
}

impl Done {
    /// Returns the sum.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            counters: self.counters.plus(other.counters),
            sessions: self.sessions.plus(other.sessions),
            datagrams: self.datagrams.plus(other.datagrams),
        }
    }
}

/// The metrics of one relay and its endpoint, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) counters: Counters,
    /// Counters of the MOQT sessions.
    pub(crate) sessions: session::Counters,
    pub(crate) gauges: Gauges,
    /// Open sessions in each draft, in the order of [`Draft::ALL`].
    pub(crate) drafts: [u64; Draft::ALL.len()],
    pub(crate) quic: weir_quic::Counters,
    pub(crate) connections: usize,
    /// Wake-ups of the relay that are planned.
    pub(crate) timers: usize,
    /// Why new sessions and requests are refused, if they are because of load.
    pub(crate) overload: Option<Overload>,
    /// When the snapshot was taken; `None` before the first one.
    pub(crate) at: Option<Instant>,
}

/// A list of tracks as JSON, or how many there are if they are too many.
pub(crate) type Listing = Result<Vec<serde_json::Value>, usize>;

/// Where a relay leaves its latest numbers.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    latest: Mutex<Snapshot>,
    /// Whether a list of tracks is requested.
    is_asked: AtomicBool,
    listing: Mutex<Option<Listing>>,
    listed: Condvar,
    /// The state of the links to upstream relays.
    links: Mutex<Vec<LinkState>>,
    /// What is known of the fleet, if the relay is in one.
    fleet: Mutex<Option<FleetState>>,
}

impl Slot {
    pub(crate) fn latest(&self) -> Snapshot {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a list of tracks. Waits for it until `limit`; then returns `None`.
    pub(crate) fn tracks(&self, limit: Duration) -> Option<Listing> {
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        *listing = None;
        self.is_asked.store(true, Ordering::Release);
        let waited = self
            .listed
            .wait_timeout_while(listing, limit, |listing| listing.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Returns the latest state of the links to upstream relays.
    pub(crate) fn links(&self) -> Vec<LinkState> {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.clone()
    }

    /// Returns what was last known of the fleet; `None` if the relay is in none.
    pub(crate) fn fleet(&self) -> Option<FleetState> {
        let fleet = self.fleet.lock().unwrap_or_else(PoisonError::into_inner);
        fleet.clone()
    }

    fn put(&self, snapshot: &Snapshot, links: Vec<LinkState>, fleet: Option<FleetState>) {
        *self.fleet.lock().unwrap_or_else(PoisonError::into_inner) = fleet;
        *self.links.lock().unwrap_or_else(PoisonError::into_inner) = links;
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = *snapshot;
    }
}

/// The state that a relay shares with the threads that observe it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Where the relay publishes its metrics.
    pub(crate) slot: Arc<Slot>,
    /// The telemetry of the relay's host.
    pub(crate) telemetry: Arc<Telemetry>,
    /// Longest list of tracks.
    pub(crate) tracks_max: usize,
    /// Memory of the process in bytes. Another thread updates it.
    pub(crate) memory: Arc<AtomicU64>,
}

/// A relay that publishes its metrics, and observes the load of its host.
pub(crate) struct Observed {
    relay: Relay,
    view: View,
    /// When the load is observed next, and when metrics are published next: with the first event after that time.
    look_at: Instant,
    publish_at: Instant,
    /// When the load was observed last, and the host's lag and time in turns then.
    looked_at: Instant,
    lag: Delays,
    busy: Duration,
}

impl Observed {
    pub(crate) fn new(relay: Relay, view: View, now: Instant) -> Self {
        Self {
            relay,
            view,
            look_at: now,
            publish_at: now,
            looked_at: now,
            lag: Delays::default(),
            busy: Duration::ZERO,
        }
    }

    /// Returns the final counters of the relay, and of its endpoint.
    pub(crate) fn done(&self, quic: &weir_quic::Counters) -> Done {
        Done {
            counters: self.relay.counters(),
            sessions: self.relay.session_counters(),
            datagrams: DatagramDrops::of(quic),
        }
    }

    /// Observes the load and publishes metrics, each if it is due.
    fn attend(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.look_at <= now || self.is_memory_urgent() {
            self.look(now, endpoint);
            self.look_at = now + LOOK_INTERVAL;
        }
        if self.publish_at <= now {
            self.publish(now, endpoint);
            self.publish_at = now + PUBLISH_INTERVAL;
        }
    }

    /// Whether the next look cannot wait for its time.
    #[inline]
    fn is_memory_urgent(&self) -> bool {
        self.relay.is_memory_urgent(weir_net::heap_bytes())
    }

    /// Returns when to wake without an event. An idle relay wakes only to publish. A relay that sheds load also wakes to
    /// observe that the load is gone.
    fn wake_at(&self) -> Instant {
        let publish_at = self.publish_at + PUBLISH_GRACE;
        if self.relay.is_shedding() {
            publish_at.min(self.look_at)
        } else {
            publish_at
        }
    }

    fn look(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let TelemetrySnapshot { lag, busy, .. } = self.view.telemetry.snapshot();
        let is_busy = is_busy(
            busy.saturating_sub(self.busy),
            now.saturating_duration_since(self.looked_at),
        );
        let load = Load {
            queue_delay: if is_busy {
                lag.since(&self.lag).quantile(TYPICAL)
            } else {
                Duration::ZERO
            },
            memory_bytes: self.view.memory.load(Ordering::Relaxed),
            heap_bytes: weir_net::heap_bytes(),
        };
        (self.looked_at, self.lag, self.busy) = (now, lag, busy);
        let before = self.relay.overload();
        self.relay.observe_load(now, endpoint, load);
        if self.relay.overload() != before {
            self.publish(now, endpoint);
        }
        if self.view.slot.is_asked.swap(false, Ordering::AcqRel) {
            self.list();
        }
    }

    fn list(&self) {
        let most = self.view.tracks_max;
        let mut tracks: Vec<_> = self.relay.tracks().take(most + 1).collect();
        let listing = if tracks.len() > most {
            Err(self.relay.tracks().count())
        } else {
            tracks.sort_by(|one, other| one.name.cmp(other.name));
            Ok(tracks.iter().map(described).collect())
        };
        let slot = &self.view.slot;
        *slot.listing.lock().unwrap_or_else(PoisonError::into_inner) = Some(listing);
        slot.listed.notify_all();
    }

    fn publish(&self, now: Instant, endpoint: &mut Endpoint) {
        let links = self.relay.links(now, endpoint);
        let snapshot = Snapshot {
            counters: self.relay.counters(),
            sessions: self.relay.session_counters(),
            gauges: self.relay.gauges(),
            drafts: self.relay.sessions_by_draft(),
            quic: endpoint.counters(),
            connections: endpoint.connections(),
            timers: self.relay.timers(),
            overload: self.relay.overload(),
            at: Some(now),
        };
        self.view.slot.put(&snapshot, links, self.relay.fleet(now));
    }
}

impl App for Observed {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if self.look_at.min(self.publish_at) <= now || self.is_memory_urgent() {
            self.attend(now, endpoint);
        }
        self.relay.handle_event(now, endpoint, event);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = self.wake_at();
        Some(self.relay.poll_timeout().map_or(own, |at| at.min(own)))
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.attend(now, endpoint);
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

fn described(track: &TrackState<'_>) -> serde_json::Value {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let fields = track.name.namespace.fields();
    json!({
        "namespace": fields.map(text).collect::<Vec<_>>(),
        "name": text(track.name.name.as_bytes()),
        "publishers": track.publishers,
        "subscribers": track.subscribers,
        "waiting": track.waiting,
        "largest_group": track.largest.map(|largest| largest.group),
        "largest_object": track.largest.map(|largest| largest.object),
        "log_bytes": track.log_bytes,
    })
}

/// Returns whether an event loop that was in turns for `busy` of the time `passed` can make input wait. One that mostly rests
/// is late only if other programs keep it from waking up, which would not change if it refused its clients.
fn is_busy(busy: Duration, passed: Duration) -> bool {
    busy >= passed / 2
}

/// Interval of published metrics. They visit every track, which is too much for each packet.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// Delay of the timer that publishes metrics without an event, so that a busy relay needs no timer.
const PUBLISH_GRACE: Duration = Duration::from_millis(250);
/// Interval at which the load is observed, while events arrive.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Quantile of the lag that counts as the delay. A single slow turn is not overload.
const TYPICAL: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_loop_that_mostly_rests_lets_no_input_wait() {
        let second = Duration::from_secs(1);
        assert!(!is_busy(Duration::ZERO, second));
        assert!(!is_busy(Duration::from_millis(499), second));
        assert!(is_busy(Duration::from_millis(500), second));
        // One turn may be longer than the time between two observations.
        assert!(is_busy(second * 2, second));
    }
}
