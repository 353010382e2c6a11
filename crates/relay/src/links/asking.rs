//! Asks for tracks that sessions wait for: first the sessions that announced the namespace, then links.

use weir_moqt::{
    error::RequestErrorCode,
    name::{FullTrackName, Namespace},
};
use weir_quic::Handle;

use super::Linking;
use crate::{
    catalogue::walks::{self, Steps, Walk},
    effect::Effect,
    ids::TrackId,
    sessions::peer::PeerKind,
    track::{Publisher, Track},
    turn::Turn,
};

impl Linking<'_> {
    /// Handles a session that waits for a track: establishes the request, or asks the sessions that may have the track.
    pub(crate) fn on_wanted(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        by: PeerKind,
        new_group: Option<u64>,
    ) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        if track.is_established_for(by) {
            if let Some(group) = new_group {
                self.tracks.request_group(turn, id, group);
            }
            if !by.is_link() {
                self.ask(turn, id);
            }
            return self.delivery.admit_pending(turn, self.tracks, id);
        }
        if !self.links.is_empty() {
            // A link may have offered the track, and was answered with FORWARD 0.
            self.on_demand_changed(turn, id);
        }
        if by == PeerKind::Child {
            // It was redirected here because this relay has the track, or is about to.
            return self.end_unserved(turn, id);
        }
        let is_asking = |track: &mut Track| track.is_asking_for(by);
        let is_asking = self.tracks.get(id).is_some_and(is_asking);
        let is_asked = self.ask_publishers(turn, id, None) | self.ask_fallback(turn, id, None);
        if by != PeerKind::Client {
            return self.end_unserved(turn, id);
        }
        if !is_asking && !is_asked {
            let code = RequestErrorCode::DOES_NOT_EXIST;
            self.delivery.on_publishers_declined(turn, id, code);
        }
    }

    /// Tells the publishers of a track what its subscribers want now.
    pub(crate) fn on_demand_changed(&mut self, turn: &mut Turn<'_>, track: TrackId) {
        let delivery = &self.delivery;
        let demand = |publisher| delivery.demand(track, publisher);
        self.tracks.on_demand(turn, track, demand);
        // The last publisher may have been one that had not answered, and that nobody wants any longer.
        let has_none = self
            .tracks
            .get(track)
            .is_some_and(|it| it.publishers().is_empty());
        if has_none && self.delivery.has_lasting(track) {
            self.tracks.orphan(turn, track);
        }
    }

    /// Handles a namespace that a session announced: passes it on, and asks the session for what subscribers wait for.
    pub(crate) fn on_announced(
        &mut self,
        turn: &mut Turn<'_>,
        namespace: Namespace,
        handle: Handle,
    ) {
        let from = turn.kind(handle);
        self.links.announce(turn, from, &namespace);
        self.walk(turn, Walk::Announcer(handle, namespace));
    }

    /// Sends SUBSCRIBE to every session that announced the track's namespace and was not asked, except one that just
    /// left. Returns whether a session was asked.
    pub(crate) fn ask_publishers(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        except: Option<Handle>,
    ) -> bool {
        let Some(track) = self.tracks.get(id) else {
            return false;
        };
        let announcers = self.catalogue.announcers_of(turn, &track.name().namespace);
        let (mut is_asked, mut is_full) = (false, false);
        for handle in announcers {
            if is_full && !turn.is_link(handle) {
                turn.counters.publishers_not_asked += 1;
                continue;
            }
            let before = turn.counters.publishers_not_asked;
            is_asked |= Some(handle) != except && self.ask_session(turn, id, handle);
            is_full |= turn.counters.publishers_not_asked > before;
        }
        is_asked
    }

    /// Sends SUBSCRIBE over the first link that is asked for what no session has: those to relays of the fleet that
    /// registered the namespace, then those to upstream relays. If `declined` is such a link, over the next one. Returns
    /// whether one was asked or is waited for, or a session is asked already.
    pub(crate) fn ask_fallback(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        declined: Option<Handle>,
    ) -> bool {
        let Some(track) = self.tracks.get(id) else {
            return false;
        };
        if track.expects_answer() || track.is_established() || self.links.awaits(id) {
            return true;
        }
        let is_asking = track.is_asking();
        let is_upstream = |handle: &Handle| self.catalogue.fallbacks().contains(handle);
        if !declined.as_ref().is_some_and(is_upstream) && self.ask_fleet(turn, id, declined) {
            return true;
        }
        let fallbacks = self.catalogue.fallbacks().to_vec();
        let after = |handle| fallbacks.iter().position(|&other| other == handle);
        let first = declined.and_then(after).map_or(0, |place| place + 1);
        let mut rest = fallbacks[first..].iter();
        let is_asked = rest.any(|&handle| self.ask_session(turn, id, handle));
        is_asked || self.await_fallbacks(turn, id) || is_asking
    }

    /// Has all such links wait for a publisher of a track as long as the subscribers here do. Returns whether one was
    /// asked.
    fn await_fallbacks(&mut self, turn: &mut Turn<'_>, id: TrackId) -> bool {
        let until = self.delivery.patience(id).filter(|until| *until > turn.now);
        let fallbacks = self.catalogue.fallbacks().to_vec();
        let (Some(until), false) = (until, fallbacks.is_empty()) else {
            return false;
        };
        if !self.links.may_await(turn, id) {
            return false;
        }
        let rendezvous = Some(until.saturating_duration_since(turn.now));
        let mut is_asked = false;
        for handle in fallbacks {
            let demand = self.delivery.demand(id, turn.kind(handle));
            let tracks = &mut *self.tracks;
            is_asked |= tracks.ask_patiently(turn, id, handle, demand, rendezvous);
        }
        is_asked
    }

    /// Asks links again to wait for a track that they declined.
    pub(crate) fn on_await_over(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        self.links.end_await_pause(id);
        let is_answered = |track: &mut Track| track.expects_answer() || track.is_established();
        if !self.tracks.get(id).is_some_and(is_answered) {
            self.await_fallbacks(turn, id);
        }
    }

    /// Handles the time at which answers of publishers are due. The requests of subscribers wait on.
    pub(crate) fn on_unanswered(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        let overdue = self.tracks.take_overdue(turn, id);
        for publisher in &overdue {
            turn.note_unresponsive(publisher.session());
        }
        let is_missing = |track: &mut Track| !track.is_established();
        if overdue.is_empty() || !self.tracks.get(id).is_some_and(is_missing) {
            return;
        }
        self.ask_publishers(turn, id, None);
        let link = overdue.iter().rfind(|publisher| publisher.is_link());
        self.ask_fallback(turn, id, link.map(Publisher::session));
    }

    /// Asks links for the tracks that are waited for and that no session sends, and for those that come from a relay that
    /// leaves.
    pub(crate) fn ask_for_all(&mut self, turn: &mut Turn<'_>) {
        self.walk(turn, Walk::Waiting(Namespace::EMPTY));
    }

    /// Begins something that may take many steps.
    pub(super) fn walk(&mut self, turn: &mut Turn<'_>, walk: Walk) {
        let start = if let Walk::Waiting(namespace) | Walk::Announcer(_, namespace) = &walk {
            walks::start(namespace)
        } else {
            walks::start(&Namespace::EMPTY)
        };
        if let Some(start) = self.catalogue.begin_walk(turn, &walk, start) {
            let steps = self.step(turn, &walk, start);
            self.catalogue.walk_on(turn, walk, steps);
        }
    }

    /// Takes the next steps of a walk over what has to do with links, from a name on. Returns the name at which it continues.
    pub(crate) fn step(&mut self, turn: &mut Turn<'_>, walk: &Walk, from: FullTrackName) -> Steps {
        match walk {
            Walk::Announcer(handle, namespace)
                if self.catalogue.is_announced_by(namespace, *handle) =>
            {
                self.visit(turn, namespace, &from, |linking, turn, track| {
                    linking.ask_session(turn, track, *handle);
                })
            }
            Walk::Waiting(namespace) => self.visit(turn, namespace, &from, Self::ask_next),
            Walk::Moving { from: old, to } if self.links.is_ready(*to) => {
                self.visit(turn, &Namespace::EMPTY, &from, |linking, turn, track| {
                    linking.ask_instead(turn, track, *old, *to);
                })
            }
            Walk::Announced(link) if self.links.is_ready(*link) => {
                self.announce_next(turn, *link, &from.namespace)
            }
            Walk::Interests => self.change_next_interests(turn, from),
            Walk::Found(link) => self.review_found(turn, *link, &from.namespace),
            Walk::Prefix(_)
            | Walk::Announcer(..)
            | Walk::Moving { .. }
            | Walk::Parked
            | Walk::Announced(_) => Steps::default(),
        }
    }

    /// Does something for the next tracks under a namespace, from a name on.
    fn visit(
        &mut self,
        turn: &mut Turn<'_>,
        namespace: &Namespace,
        from: &FullTrackName,
        visit: impl Fn(&mut Self, &mut Turn<'_>, TrackId),
    ) -> Steps {
        let count = walks::TRACKS_MAX;
        let tracks = self.tracks.under_from(namespace, from);
        let mut tracks: Vec<_> = tracks.take(count + 1).collect();
        let rest = (tracks.len() > count).then(|| tracks.pop()).flatten();
        let rest = rest.and_then(|id| Some(self.tracks.get(id)?.name().clone()));
        let work = tracks.len();
        for track in tracks {
            visit(self, turn, track);
        }
        Steps { rest, work }
    }

    /// Handles a namespace that a relay of the fleet has registered: asks it for tracks that are waited for, and for those
    /// that come from a relay that leaves.
    pub(crate) fn on_registered(&mut self, turn: &mut Turn<'_>, namespace: &Namespace) {
        self.links.announce(turn, PeerKind::Fleet, namespace);
        self.walk(turn, Walk::Waiting(namespace.clone()));
    }

    /// Asks the next link for a track that is waited for, or that comes from a relay that leaves. Refuses the requests for the
    /// track if there is none.
    pub(crate) fn ask_next(&mut self, turn: &mut Turn<'_>, track: TrackId) {
        self.links.stop_slow_wait(track);
        if self.is_leaving(track) {
            self.ask_fleet(turn, track, None);
        } else if !self.ask_fallback(turn, track, None) {
            let code = RequestErrorCode::DOES_NOT_EXIST;
            self.delivery.on_publishers_declined(turn, track, code);
            self.end_unserved(turn, track);
        }
    }

    /// Asks a link for a track that comes over another one.
    fn ask_instead(&mut self, turn: &mut Turn<'_>, track: TrackId, old: Handle, new: Handle) {
        let comes = |track: &mut Track| track.has_publisher(old);
        if !self.tracks.get(track).is_some_and(comes) {
            return;
        }
        if let Some(relay) = self.links.upstreams.relay(new) {
            let demand = self.delivery.demand(track, PeerKind::Fleet);
            self.ask_relay(turn, track, relay, demand);
        } else {
            self.ask_session(turn, track, new);
        }
    }

    /// Handles GOAWAY of the relay behind a link. It is asked for nothing more, and the next link is asked for the tracks
    /// that come over this one, so that they are not interrupted.
    pub(crate) fn on_link_leaving(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        match turn.kind(handle) {
            PeerKind::Client | PeerKind::Relay | PeerKind::Child => return,
            PeerKind::Fleet => return self.on_fleet_leaving(turn, handle),
            PeerKind::Sibling | PeerKind::Upstream => {}
        }
        self.on_fallback_lost(turn, handle);
        if let Some(&to) = self.catalogue.fallbacks().first() {
            self.walk(turn, Walk::Moving { from: handle, to });
        }
    }

    /// Sends SUBSCRIBE again to a session whose former request was cancelled.
    pub(crate) fn ask_again(&mut self, turn: &mut Turn<'_>, track: TrackId, handle: Handle) {
        self.ask_session(turn, track, handle);
        turn.push(Effect::DemandChanged(track));
    }

    pub(super) fn ask_session(
        &mut self,
        turn: &mut Turn<'_>,
        track: TrackId,
        handle: Handle,
    ) -> bool {
        let demand = self.delivery.demand(track, turn.kind(handle));
        self.tracks.ask(turn, track, handle, demand)
    }
}
