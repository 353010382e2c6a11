//! Moving on: a client with several relays uses the next one when it has lost one.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use weir_quic::LinkOptions;

use crate::backoff::Backoff;
use crate::target::Target;

/// Finds the relay that a GOAWAY names.
#[derive(Clone)]
pub struct Resolver(Arc<Find>);

type Find = dyn Fn(&str) -> Option<Target> + Send + Sync;

impl Resolver {
    /// Returns a resolver that calls `find` with the URI. `find` returns `None` if clients must not connect to it.
    pub fn new(find: impl Fn(&str) -> Option<Target> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }

    fn find(&self, uri: &str) -> Option<Target> {
        (self.0)(uri)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Resolver")
    }
}

/// Where a client is among the relays of its target.
#[derive(Debug)]
pub(crate) struct Roaming {
    /// 0 is the target itself, 1 its first alternative.
    place: usize,
    /// The relay of a GOAWAY, until it is lost.
    successor: Option<Arc<Target>>,
    pauses: Backoff,
    /// Attempts since the last session that lasted.
    attempts: usize,
    /// Since when the client has had no session that lasted; `None` before its first session.
    unsettled_since: Option<Instant>,
    /// Why the client has moved, until the role was told.
    moved: Option<String>,
}

impl Roaming {
    /// Returns the state of a client with this number; `None` if its target has one relay and follows no GOAWAY.
    pub(crate) fn of(target: &Target, number: usize) -> Option<Box<Self>> {
        let roams = !target.alternatives.is_empty() || target.resolver.is_some();
        roams.then(|| {
            Box::new(Self {
                place: 0,
                successor: None,
                pauses: Backoff::new(PAUSE_FIRST, PAUSE_MAX, target.seed ^ number as u64),
                attempts: 0,
                unsettled_since: None,
                moved: None,
            })
        })
    }

    /// Returns the relay to connect to, if it is not the target itself.
    pub(crate) fn relay(&self, target: &Target) -> Option<Arc<Target>> {
        let alternative = || target.alternatives.get(self.place.checked_sub(1)?);
        self.successor.as_ref().or_else(alternative).cloned()
    }

    /// Returns when to connect to the next relay; `None` if the client has failed. `lasted` is how long the lost session
    /// lasted, if there was one.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        target: &Target,
        lasted: Option<Duration>,
        reason: &str,
    ) -> Option<Instant> {
        let relays = 1 + target.alternatives.len();
        let was_successor = self.successor.take().is_some();
        if relays == 1 && !was_successor {
            return None;
        }
        if lasted.is_some_and(|lasted| lasted >= SETTLED_AFTER) {
            self.unsettled_since = None;
            self.attempts = 0;
            self.pauses.reset();
        }
        if lasted.is_some() {
            self.unsettled_since.get_or_insert(now);
        }
        self.attempts += 1;
        let is_over = match self.unsettled_since {
            None => self.attempts >= relays,
            Some(since) => now.saturating_duration_since(since) >= SEARCH_MAX,
        };
        if is_over {
            return None;
        }
        // The relay that sent GOAWAY is the last to try again.
        self.place = (self.place + 1) % relays;
        self.moved.get_or_insert_with(|| reason.to_owned());
        Some(now + self.pauses.pause())
    }

    /// Chooses the relay that a GOAWAY names, or the next one if it names none. Returns false if there is no other relay.
    pub(crate) fn follow(&mut self, target: &Target, uri: &str) -> bool {
        let resolver = target.resolver.as_ref().filter(|_| !uri.is_empty());
        let named = resolver.and_then(|resolver| resolver.find(uri));
        if named.is_none() && target.alternatives.is_empty() {
            return false;
        }
        if named.is_none() {
            self.place = (self.place + 1) % (1 + target.alternatives.len());
        }
        self.successor = named.map(Arc::new);
        self.moved = Some("the relay is going away".to_owned());
        true
    }

    pub(crate) fn take_move(&mut self) -> Option<String> {
        self.moved.take()
    }
}

/// Options of the connections of a client with several relays: it notices after 1.2 to 1.6 s that a relay is gone, a publisher
/// after 1.2 s, since it sends all the time. On a slow path QUIC waits longer, for three probe timeouts.
pub(crate) const OPTIONS: LinkOptions = LinkOptions {
    idle_timeout: Duration::from_millis(1200),
    keep_alive: Duration::from_millis(400),
    to_first_shard: false,
};
/// The longest first pause before the next relay is tried. Clients that lost one relay do not come to the next one at once.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A session of this length counts as a success.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// How long a client that had a session looks for a relay.
const SEARCH_MAX: Duration = Duration::from_mins(1);
