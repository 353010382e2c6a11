//! The relay as the rest of the program sees it: once a second its numbers are put where other threads find them.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use weir_moqt::session;
use weir_net::{Delays, Telemetry};
use weir_quic::{App, Endpoint, Event};
use weir_relay::{Counters, Gauges, Load, Relay, TrackState};

/// What relays did in all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) counters: Counters,
    /// What sessions did not pass on.
    pub(crate) sessions: session::Counters,
    /// What was dropped from queues of datagrams.
    pub(crate) datagrams: DatagramDrops,
}

/// Datagrams that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatagramDrops {
    /// To make room for newer ones.
    oldest: u64,
    /// At their deadline.
    expired: u64,
    /// Received, and not read before newer ones came.
    unread: u64,
}

impl DatagramDrops {
    /// Those of an endpoint.
    pub(crate) fn of(counters: &weir_quic::Counters) -> Self {
        Self {
            oldest: counters.datagrams_dropped_oldest,
            expired: counters.datagrams_dropped_expired,
            unread: counters.datagrams_dropped_unread,
        }
    }

    /// With the names that they have beside the relay's counters.
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
    /// Both together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            counters: self.counters.plus(other.counters),
            sessions: self.sessions.plus(other.sessions),
            datagrams: self.datagrams.plus(other.datagrams),
        }
    }
}

/// The numbers of one relay and its endpoint at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) counters: Counters,
    /// What sessions did not pass on.
    pub(crate) sessions: session::Counters,
    pub(crate) gauges: Gauges,
    pub(crate) quic: weir_quic::Counters,
    pub(crate) connections: usize,
    /// When it was taken; `None` if none was yet.
    pub(crate) at: Option<Instant>,
}

/// A list of tracks as JSON, or how many there are if they are too many.
pub(crate) type Listing = Result<Vec<serde_json::Value>, usize>;

/// Where a relay leaves its latest numbers.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    latest: Mutex<Snapshot>,
    /// Whether somebody waits for a list of tracks.
    is_asked: AtomicBool,
    listing: Mutex<Option<Listing>>,
    listed: Condvar,
}

impl Slot {
    pub(crate) fn latest(&self) -> Snapshot {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a list of tracks, and waits for it up to `limit`.
    pub(crate) fn tracks(&self, limit: Duration) -> Option<Listing> {
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        *listing = None;
        self.is_asked.store(true, Ordering::Release);
        let waited = self
            .listed
            .wait_timeout_while(listing, limit, |listing| listing.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn put(&self, snapshot: &Snapshot) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = *snapshot;
    }
}

/// What a relay is observed through.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Where it leaves its numbers.
    pub(crate) slot: Arc<Slot>,
    /// Its host's numbers.
    pub(crate) telemetry: Arc<Telemetry>,
    /// Tracks that a list may have.
    pub(crate) tracks_max: usize,
    /// Memory of the process in bytes, as somebody else keeps it up to date.
    pub(crate) memory: Arc<AtomicU64>,
}

/// A relay that publishes its numbers, and that is told how its host keeps up.
pub(crate) struct Observed {
    relay: Relay,
    view: View,
    /// When the host is looked at next, and when numbers are published next: with the first event after that.
    look_at: Instant,
    publish_at: Instant,
    /// The host's lag when it was last looked at.
    lag: Delays,
}

impl Observed {
    pub(crate) fn new(relay: Relay, view: View, now: Instant) -> Self {
        Self {
            relay,
            view,
            look_at: now,
            publish_at: now,
            lag: Delays::default(),
        }
    }

    /// What the relay did, once it is over, on an endpoint that counted this.
    pub(crate) fn done(&self, quic: &weir_quic::Counters) -> Done {
        Done {
            counters: self.relay.counters(),
            sessions: self.relay.session_counters(),
            datagrams: DatagramDrops::of(quic),
        }
    }

    /// Looks at the host and publishes numbers, each if it is time for it.
    fn attend(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.look_at <= now {
            self.look(now, endpoint);
            self.look_at = now + LOOK_INTERVAL;
        }
        if self.publish_at <= now {
            self.publish(now, endpoint);
            self.publish_at = now + PUBLISH_INTERVAL;
        }
    }

    /// When it is to be woken though nothing comes. One that has nothing to do puts no load on its host, unless it sheds:
    /// it has to notice that the load is gone.
    fn wake_at(&self) -> Instant {
        let publish_at = self.publish_at + PUBLISH_GRACE;
        if self.relay.is_shedding() {
            publish_at.min(self.look_at)
        } else {
            publish_at
        }
    }

    fn look(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let lag = self.view.telemetry.snapshot().lag;
        let load = Load {
            queue_delay: lag.since(&self.lag).quantile(TYPICAL),
            memory_bytes: self.view.memory.load(Ordering::Relaxed),
        };
        self.lag = lag;
        self.relay.observe_load(now, endpoint, load);
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

    fn publish(&self, now: Instant, endpoint: &Endpoint) {
        self.view.slot.put(&Snapshot {
            counters: self.relay.counters(),
            sessions: self.relay.session_counters(),
            gauges: self.relay.gauges(),
            quic: endpoint.counters(),
            connections: endpoint.connections(),
            at: Some(now),
        });
    }
}

impl App for Observed {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if self.look_at.min(self.publish_at) <= now {
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

/// How old numbers can be. Looking at every track is not for every packet.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// How much later numbers may be if nothing comes with which they could be published: a relay that is busy is not woken for
/// them.
const PUBLISH_GRACE: Duration = Duration::from_millis(250);
/// How often the host is looked at, while anything comes.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Nine of ten turns may be quicker than what counts as the delay: one slow turn is no overload.
const TYPICAL: f64 = 0.9;
