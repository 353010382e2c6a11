//! Sessions: the connected clients and links, what each may do, and how much of it.

mod access;
mod admission;
pub(crate) mod authorization;
pub(crate) mod deadlines;
pub(crate) mod drain;
pub(crate) mod expiries;
pub(crate) mod greedy;
pub(crate) mod judging;
pub(crate) mod log;
pub(crate) mod peer;
pub(crate) mod rate;
pub(crate) mod refusal;
mod shares;
mod verifying;

use weir_moqt::{draft::Draft, session};
use weir_quic::{Handle, OriginCounts};

use crate::{
    load::{Load, LoadLimits, Shedder},
    ownership::Ownership,
    sessions::{
        drain::Stage,
        judging::Judging,
        log::Log,
        peer::{Peer, PeerKind},
        shares::Shares,
        verifying::Checks,
    },
    timers::Timer,
    turn::Turn,
};

/// All sessions, by connection.
pub(crate) struct Sessions {
    places: Vec<Option<Box<Peer>>>,
    count: usize,
    /// Sessions by address, of all threads.
    pub(crate) origins: OriginCounts,
    /// Sessions that closed, or that may have events, as a result of another session's step.
    unprocessed: Vec<Handle>,
    /// Sum of the counters of sessions that have ended.
    ended: session::Counters,
    pub(crate) shedder: Shedder,
    pub(crate) stage: Stage,
    pub(crate) log: Log,
    /// Namespaces reserved to one publisher, of all threads.
    pub(crate) ownership: Ownership,
    /// What the clients of each address have added.
    shares: Shares,
    /// The tokens that were verified.
    checks: Checks,
    /// What has to be judged again.
    pub(crate) judging: Judging,
}

impl Sessions {
    /// No sessions yet.
    pub(crate) fn new(load: LoadLimits) -> Self {
        Self {
            places: Vec::new(),
            count: 0,
            origins: OriginCounts::default(),
            unprocessed: Vec::new(),
            ended: session::Counters::default(),
            shedder: Shedder::new(load),
            stage: Stage::default(),
            log: Log::default(),
            ownership: Ownership::default(),
            shares: Shares::default(),
            checks: Checks::default(),
            judging: Judging::default(),
        }
    }

    pub(crate) fn insert(&mut self, peer: Peer) {
        let index = peer.handle.index();
        if self.places.len() <= index {
            self.places.resize_with(index + 1, || None);
        }
        self.count += usize::from(!peer.is_link());
        self.places[index] = Some(Box::new(peer));
    }

    #[inline]
    pub(crate) fn get(&mut self, handle: Handle) -> Option<&mut Peer> {
        let peer = self.places.get_mut(handle.index())?.as_deref_mut()?;
        (peer.handle == handle).then_some(peer)
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Box<Peer>> {
        let peer = self.get(handle)?;
        let is_link = peer.is_link();
        self.count -= usize::from(!is_link);
        self.places[handle.index()].take()
    }

    /// Returns all sessions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.places.iter().flatten().map(Box::as_ref)
    }

    /// Returns the sessions of relays of the fleet that this one serves.
    pub(crate) fn relays(&self) -> impl Iterator<Item = Handle> {
        let relays = self.iter().filter(|peer| peer.kind() == PeerKind::Relay);
        relays.map(|peer| peer.handle)
    }

    /// Returns all sessions except links, in a deterministic order.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        let over_network = self.iter().filter(|peer| !peer.is_link());
        over_network.map(|peer| peer.handle).collect()
    }

    /// Returns the number of sessions, not counting links.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns the number of sessions in each draft, not counting links, in the order of [`Draft::ALL`]. Visits every
    /// session.
    pub(crate) fn by_draft(&self) -> [u64; Draft::ALL.len()] {
        let drafts = self.iter().filter(|peer| !peer.is_link());
        let drafts: Vec<Draft> = drafts.map(|peer| peer.session().draft()).collect();
        Draft::ALL.map(|draft| drafts.iter().filter(|one| **one == draft).count() as u64)
    }

    /// Returns the number of requests that bring objects of a session.
    pub(crate) fn sources_of(&self, handle: Handle) -> usize {
        let peer = self.places.get(handle.index()).and_then(Option::as_deref);
        peer.map_or(0, |peer| peer.counts().sources)
    }

    /// Returns the number of requests of a session.
    pub(crate) fn requests_of(&self, handle: Handle) -> usize {
        let peer = self.places.get(handle.index()).and_then(Option::as_deref);
        peer.map_or(0, Peer::requests_len)
    }

    /// Returns the number of objects received over a link to an upstream relay.
    pub(crate) fn objects_of(&self, handle: Handle) -> u64 {
        let peer = self.places.get(handle.index()).and_then(Option::as_deref);
        peer.map_or(0, |peer| peer.objects)
    }

    /// Has a session processed at the end of the turn.
    pub(crate) fn process_later(&mut self, handle: Handle) {
        self.unprocessed.push(handle);
    }

    /// Notes that a session is processed: the last one that was to be is not processed twice.
    pub(crate) fn note_processed(&mut self, handle: Handle) {
        self.unprocessed.pop_if(|last| *last == handle);
    }

    /// Takes the next session to process.
    pub(crate) fn next_unprocessed(&mut self) -> Option<Handle> {
        self.unprocessed.pop()
    }

    /// Adds the counters of a session that has ended.
    pub(crate) fn keep_counters(&mut self, counters: session::Counters) {
        self.ended = self.ended.plus(counters);
    }

    /// Returns what sessions did not pass on, including sessions that have ended.
    pub(crate) fn session_counters(&self) -> session::Counters {
        let peers = self.iter().filter(|peer| !peer.is_link());
        let counters = peers.map(|peer| *peer.session().counters());
        counters.fold(self.ended, session::Counters::plus)
    }

    /// Returns whether new sessions and requests are refused because of load.
    pub(crate) fn is_shedding(&self) -> bool {
        self.shedder.is_shedding()
    }

    /// Returns whether new sessions and requests are refused because the relay is draining.
    pub(crate) fn is_draining(&self) -> bool {
        self.stage != Stage::Serving
    }

    /// Returns whether the drain is over.
    pub(crate) fn is_finished(&self) -> bool {
        self.stage == Stage::Over
    }
}

impl Turn<'_> {
    /// Sets the wake-up for the next timeout of a session.
    pub(crate) fn set_session_timer(&mut self, handle: Handle) {
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        if let Some(at) = peer.session().poll_timeout()
            && peer.timer.is_none_or(|timer| at < timer)
        {
            if let Some(later) = peer.timer.replace(at) {
                self.timers.cancel(later, Timer::Session(handle));
            }
            self.timers.set(at, Timer::Session(handle));
        }
    }

    /// Handles a session timer. Returns false if the session's connection is gone, in which case it would wake up
    /// forever.
    pub(crate) fn on_session_timer(&mut self, handle: Handle) -> bool {
        let now = self.now;
        if let Some(peer) = self.sessions.get(handle) {
            peer.timer = None;
        }
        let acted = self.with_session(handle, |session, connection| {
            session.handle_timeout(now, connection);
        });
        acted.is_some()
    }

    /// Observes how the host keeps up.
    pub(crate) fn observe_load(&mut self, load: Load) {
        let shedder = &mut self.sessions.shedder;
        let before = shedder.is_shedding();
        let is_shedding = shedder.observe(self.now, load);
        if is_shedding != before {
            let log = &mut self.sessions.log;
            match shedder.overload() {
                Some(overload) => {
                    log.overload_begins(self.now, overload, load, shedder.limits());
                }
                None => log.overload_ends(self.now),
            }
            self.counters.load_sheddings += u64::from(is_shedding);
            let is_refusing = is_shedding || self.sessions.is_draining();
            self.endpoint.refuse_incoming(is_refusing);
        }
    }
}
