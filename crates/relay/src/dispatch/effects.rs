//! The effects of one owner's step on other owners.

use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode, ResetCode, SessionError},
    name::{FullTrackName, Namespace},
    session::RequestId,
};
use weir_quic::Handle;

use super::Owners;
use crate::{
    catalogue::{
        TrackStatusEvent,
        walks::{self, Walk},
    },
    delivery::Scope,
    effect::Effect,
    ids::{PublisherId, RequestKey, TrackId},
    links::is_moved,
    registry::RelayId,
    sessions::{
        peer::{PeerKind, Purpose},
        refusal::refusal,
    },
    track::{Demand, Publisher, Track},
    turn::Turn,
};

impl Owners {
    /// Carries out the effects of a step, in order, including the effects that these cause.
    pub(crate) fn carry_effects(&mut self, turn: &mut Turn<'_>) {
        while let Some(effect) = turn.effects.pop_front() {
            self.carry(turn, effect);
        }
    }

    fn carry(&mut self, turn: &mut Turn<'_>, effect: Effect) {
        match effect {
            Effect::CloseSession(handle, code, reason) => {
                self.close_session(turn, handle, code, &reason);
            }
            Effect::DrainContinues => turn.continue_drain(),
            Effect::DrainOver => turn.end_drain(),
            Effect::RequestEnded(handle, id, purpose) => self.on_ended(turn, (handle, id), purpose),
            Effect::UpdateFailed(handle, id, code) => self.fail_update(turn, (handle, id), code),
            Effect::NamespaceAnnounced(namespace, handle) => {
                let from = turn.kind(handle);
                self.links.announce(turn, from, &namespace);
                let start = walks::start(&namespace);
                let rest = self.ask_announcer(turn, &namespace, handle, &start);
                let walk = Walk::Announcer(handle, namespace);
                self.catalogue.walk_on(turn, walk, rest);
            }
            Effect::NamespaceWithdrawn(namespace) => {
                self.links.withdraw(turn, &self.catalogue, &namespace);
            }
            Effect::NamespaceRegistered(namespace) => self.on_registered(turn, &namespace),
            Effect::FleetLinkChanged(relay, link) => self.on_fleet_link(turn, relay, link),
            Effect::FallbackFound(handle) => self.on_fallback(turn, handle),
            Effect::FallbackLost(handle) => self.linking().on_fallback_lost(turn, handle),
            Effect::PrefixWanted(kind, prefix) => {
                self.linking().on_prefix_wanted(turn, (kind, prefix));
            }
            Effect::PrefixUnwanted(kind, prefix) => {
                self.linking().on_prefix_unwanted(turn, (kind, prefix));
            }
            Effect::TrackWanted {
                track,
                by,
                new_group,
            } => self.on_wanted(turn, track, by, new_group),
            Effect::NewGroupWanted(track, group) => self.tracks.request_group(turn, track, group),
            Effect::DemandChanged(track) => self.on_demand_changed(turn, track),
            Effect::Established(track) => {
                // One copy is enough.
                let fallbacks = self.catalogue.fallbacks();
                self.tracks.cancel_asked(turn, track, fallbacks);
                self.delivery.admit_pending(turn, &mut self.tracks, track);
            }
            Effect::Published { track, is_new } => self.on_published(turn, track, is_new),
            Effect::OfferAwaited(track) => self.offering().offer_awaited(turn, track),
            Effect::PublisherGone(track, publisher, code) => {
                self.on_publisher_gone(turn, track, publisher, code);
            }
            Effect::LinksUnserved(track) => self.linking().end_unserved(turn, track),
            Effect::SubscriptionsAnswered(track) => {
                self.serving().on_subscriptions_answered(turn, track);
            }
            Effect::MaybeDrained(track, handle, id) => {
                self.delivery.end_if_drained(turn, track, handle, id);
            }
            Effect::LogRead(track, log) => {
                self.delivery.trim_subgroup(&mut self.tracks, track, log);
            }
            Effect::Malformed(track, publisher) => self.on_malformed(turn, track, publisher),
            Effect::Released(track) => self.forget_if_unused(turn, track),
        }
    }

    /// Asks a session that announced a namespace for the next tracks that somebody waits for, from a name on. Returns the
    /// name of the first track that is left.
    fn ask_announcer(
        &mut self,
        turn: &mut Turn<'_>,
        namespace: &Namespace,
        handle: Handle,
        from: &FullTrackName,
    ) -> Option<FullTrackName> {
        let count = walks::TRACKS_MAX;
        let tracks = self.tracks.under_from(namespace, from);
        let mut tracks: Vec<_> = tracks.take(count + 1).collect();
        let rest = (tracks.len() > count).then(|| tracks.pop()).flatten();
        for track in tracks {
            self.ask(turn, track, handle);
        }
        Some(self.tracks.get(rest?)?.name().clone())
    }

    /// Continues what requests ask for under their prefixes.
    pub(super) fn on_walks(&mut self, turn: &mut Turn<'_>) {
        self.catalogue.on_walks_due();
        for _ in 0..walks::WALKS_PER_TURN {
            let Some((walk, from)) = self.catalogue.take_walk() else {
                break;
            };
            let rest = match &walk {
                Walk::Prefix(id) => self.offering().send_matches(turn, *id, &from),
                Walk::Announcer(handle, namespace)
                    if self.catalogue.is_announced_by(namespace, *handle) =>
                {
                    self.ask_announcer(turn, namespace, *handle, &from)
                }
                Walk::Announcer(..) => None,
            };
            self.catalogue.walk_on(turn, walk, rest);
        }
        self.catalogue.arm_walks(turn);
    }

    pub(super) fn demand_of(
        &self,
        turn: &mut Turn<'_>,
        track: TrackId,
        publisher: Handle,
    ) -> Demand {
        self.delivery.demand(track, turn.kind(publisher))
    }

    fn on_demand_changed(&mut self, turn: &mut Turn<'_>, track: TrackId) {
        let delivery = &self.delivery;
        let demand = |publisher| delivery.demand(track, publisher);
        self.tracks.on_demand(turn, track, demand);
    }

    /// Handles a session that waits for a track: establishes the request, or asks the sessions that may have the track.
    fn on_wanted(
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
                self.linking().ask(turn, id);
            }
            return self.delivery.admit_pending(turn, &mut self.tracks, id);
        }
        if !self.links.is_empty() {
            // A link may have offered the track, and was answered with FORWARD 0.
            self.on_demand_changed(turn, id);
        }
        let is_asking = |track: &mut Track| track.is_asking_for(by);
        let is_asking = self.tracks.get(id).is_some_and(is_asking);
        let is_asked = self.ask_publishers(turn, id, None) | self.ask_fallback(turn, id, None);
        if by != PeerKind::Client {
            return self.linking().end_unserved(turn, id);
        }
        if !is_asking && !is_asked {
            let code = RequestErrorCode::DOES_NOT_EXIST;
            self.delivery.on_publishers_declined(turn, id, code);
        }
    }

    /// Sends SUBSCRIBE to every session that announced the track's namespace and was not asked, except one that just
    /// left. Returns whether a session was asked.
    pub(super) fn ask_publishers(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        except: Option<Handle>,
    ) -> bool {
        let Some(track) = self.tracks.get(id) else {
            return false;
        };
        let announcers = self.catalogue.announcers_of(turn, &track.name().namespace);
        let mut is_asked = false;
        for handle in announcers {
            is_asked |= Some(handle) != except && self.ask(turn, id, handle);
        }
        is_asked
    }

    /// Sends SUBSCRIBE over the first link that is asked for what no session has: those to relays of the fleet that
    /// registered the namespace, then those to upstream relays. If `declined` is such a link, over the next one. Returns
    /// whether one was asked or is waited for, or a session is asked already.
    pub(super) fn ask_fallback(
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
        if !declined.as_ref().is_some_and(is_upstream)
            && self.linking().ask_fleet(turn, id, declined)
        {
            return true;
        }
        let fallbacks = self.catalogue.fallbacks().to_vec();
        let after = |handle| fallbacks.iter().position(|&other| other == handle);
        let first = declined.and_then(after).map_or(0, |place| place + 1);
        let mut rest = fallbacks[first..].iter();
        let is_asked = rest.any(|&handle| self.ask(turn, id, handle));
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
            let demand = self.demand_of(turn, id, handle);
            let tracks = &mut self.tracks;
            is_asked |= tracks.ask_patiently(turn, id, handle, demand, rendezvous);
        }
        is_asked
    }

    /// Asks links again to wait for a track that they declined.
    pub(super) fn on_await_over(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        self.links.on_await_over(id);
        let is_answered = |track: &mut Track| track.expects_answer() || track.is_established();
        if !self.tracks.get(id).is_some_and(is_answered) {
            self.await_fallbacks(turn, id);
        }
    }

    /// Handles a link that can be asked for what no session has: asks it for the tracks that are waited for.
    fn on_fallback(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        self.linking().on_fallback(turn, handle);
        self.ask_for_all(turn);
    }

    /// Handles a namespace that a relay of the fleet has registered: asks it for tracks that are waited for, and for those
    /// that come from a relay that leaves.
    fn on_registered(&mut self, turn: &mut Turn<'_>, namespace: &Namespace) {
        self.links.announce(turn, PeerKind::Fleet, namespace);
        for track in self.tracks.under(namespace).collect::<Vec<_>>() {
            self.ask_next(turn, track);
        }
    }

    /// Asks the next link for a track that is waited for, or that comes from a relay that leaves. Returns whether a link was
    /// asked or is waited for, or the track comes meanwhile.
    fn ask_next(&mut self, turn: &mut Turn<'_>, track: TrackId) -> bool {
        if self.linking().is_leaving(track) {
            self.linking().ask_fleet(turn, track, None);
            return true;
        }
        self.ask_fallback(turn, track, None)
    }

    /// Handles a link to a relay of the fleet that was established, or was lost or could not be established. What waited
    /// for it continues.
    fn on_fleet_link(&mut self, turn: &mut Turn<'_>, relay: RelayId, link: Option<Handle>) {
        let (tracks, parked) = self.linking().on_fleet_link(turn, relay, link);
        for (key, request) in parked {
            self.on_permitted(turn, key, request);
            turn.forget_expiry_if_over(key.0, key.1);
        }
        for track in tracks {
            if !self.ask_next(turn, track) {
                let code = RequestErrorCode::DOES_NOT_EXIST;
                self.delivery.on_publishers_declined(turn, track, code);
                self.linking().end_unserved(turn, track);
            }
        }
        if link.is_some() {
            self.ask_for_all(turn);
        }
    }

    /// Handles GOAWAY of the relay behind a link. It is asked for nothing more, and the next link is asked for the tracks
    /// that come over this one, so that they are not interrupted.
    pub(super) fn on_link_leaving(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        match turn.kind(handle) {
            PeerKind::Client | PeerKind::Relay => return,
            PeerKind::Fleet => return self.linking().on_fleet_leaving(turn, handle),
            PeerKind::Sibling | PeerKind::Upstream => {}
        }
        self.linking().on_fallback_lost(turn, handle);
        let Some(&next) = self.catalogue.fallbacks().first() else {
            return;
        };
        for track in self.tracks.under(&Namespace::EMPTY).collect::<Vec<_>>() {
            let comes = |track: &mut Track| track.has_publisher(handle);
            if self.tracks.get(track).is_some_and(comes) {
                self.ask(turn, track, next);
            }
        }
    }

    /// Handles a GOAWAY on a request stream [moqt-18 §10.4]. A request of the relay is sent again in the same session,
    /// the only one in which the relay can reach the peer. This counts towards the limit of updates. The peer itself
    /// moves the requests that it sent.
    pub(super) fn on_request_goaway(&mut self, turn: &mut Turn<'_>, (handle, id): RequestKey) {
        let Some(purpose) = turn.moved_purpose((handle, id)) else {
            return;
        };
        match purpose {
            // The next link may have the track.
            Purpose::Source(track) if turn.is_link(handle) => {
                turn.cancel((handle, id), ResetCode::GOING_AWAY);
                let code = RequestErrorCode::GOING_AWAY;
                turn.push(Effect::PublisherGone(track, (handle, id), code));
            }
            Purpose::Source(track) => {
                if self.tracks.cancel_own(turn, track, (handle, id)) {
                    self.ask_again(turn, track, handle);
                }
            }
            Purpose::Subscriber(track) => {
                self.offering().on_offer_goaway(turn, track, (handle, id));
            }
            Purpose::UpstreamFetch(_) => self.serving().on_upstream_moved(turn, (handle, id)),
            Purpose::UpstreamTrackStatus(requester) => {
                let event = TrackStatusEvent::GoAway;
                self.catalogue.on_track_status_event(turn, requester, event);
            }
            Purpose::Namespace(_)
            | Purpose::Prefix(_)
            | Purpose::Fetch(_)
            | Purpose::TrackStatus
            | Purpose::UpstreamPrefix
            | Purpose::Announcement
            | Purpose::RingProbe
            | Purpose::AwaitsLink => {}
        }
    }

    /// Asks for the tracks that are waited for and that no session sends.
    pub(super) fn ask_for_all(&mut self, turn: &mut Turn<'_>) {
        for track in self.tracks.under(&Namespace::EMPTY).collect::<Vec<_>>() {
            self.ask_fallback(turn, track, None);
        }
    }

    /// Sends SUBSCRIBE again to a session whose former request was cancelled.
    pub(super) fn ask_again(&mut self, turn: &mut Turn<'_>, track: TrackId, handle: Handle) {
        self.ask(turn, track, handle);
        turn.push(Effect::DemandChanged(track));
    }

    fn ask(&mut self, turn: &mut Turn<'_>, track: TrackId, handle: Handle) -> bool {
        let demand = self.demand_of(turn, track, handle);
        self.tracks.ask(turn, track, handle, demand)
    }

    /// Handles a track that a session published, and offers it to the sessions with a matching SUBSCRIBE_TRACKS.
    fn on_published(&mut self, turn: &mut Turn<'_>, id: TrackId, is_new: bool) {
        if is_new {
            self.offering().offer_all(turn, id);
        }
        self.linking().offer(turn, id);
        self.linking().end_unserved(turn, id);
    }

    /// Handles the loss of a publisher of a track. `code` is for requests that wait for its answer.
    fn on_publisher_gone(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        publisher: PublisherId,
        code: RequestErrorCode,
    ) {
        let is_end = self.tracks.cut_publisher(turn, id, publisher);
        self.publish_grown(turn);
        if let Some(gone) = self.tracks.remove_publisher(id, publisher, is_end)
            && gone.is_last
        {
            self.after_last_publisher(turn, id, &gone.publisher, code);
        }
        self.linking().withdraw_unpublished(turn, id);
        self.linking().end_unserved(turn, id);
        turn.push(Effect::Released(id));
    }

    fn after_last_publisher(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        last: &Publisher,
        code: RequestErrorCode,
    ) {
        let done = last.done();
        if let Some(done) = done.filter(|done| !(last.is_link() && is_moved(done.code))) {
            self.tracks.restart(id);
            self.delivery.end(turn, id, Scope::All, done);
            self.ask_publishers(turn, id, None);
        } else if last.was_established() {
            self.tracks.restart(id);
            if self.delivery.has_subscriptions(id) {
                self.tracks.orphan(turn, id);
            }
            self.ask_publishers(turn, id, Some(last.session()));
            self.ask_fallback(turn, id, None);
        } else {
            self.ask_fallback(turn, id, Some(last.session()));
        }
        let is_asking = |track: &mut Track| track.is_asking();
        if !self.tracks.get(id).is_none_or(is_asking) && !self.links.awaits(id) {
            self.delivery.on_publishers_declined(turn, id, code);
        }
        turn.push(Effect::DemandChanged(id));
    }

    /// Handles a track that is malformed by what `publisher` sent. Its subscriptions and fetches end at once, and
    /// nothing more of the track is accepted from the publisher [moqt-18 §2.4.2].
    fn on_malformed(&mut self, turn: &mut Turn<'_>, id: TrackId, publisher: Handle) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        turn.counters.tracks_malformed += 1;
        tracing::debug!(track = %track.name(), connection = publisher.index(), "malformed");
        let publishers = self.tracks.publishers_of(id);
        let code = PublishDoneCode::MALFORMED_TRACK;
        self.delivery.cut_all(turn, &mut self.tracks, id, code);
        let code = RequestErrorCode::MALFORMED_TRACK;
        self.serving().on_malformed(turn, id, publisher);
        for gone in publishers.iter().filter(|it| it.session() == publisher) {
            let (handle, request) = gone.id();
            turn.cancel((handle, request), ResetCode::MALFORMED_TRACK);
            self.on_publisher_gone(turn, id, gone.id(), code);
        }
        self.publish_grown(turn);
    }

    /// Forgets a track without publishers, subscribers and fetches.
    fn forget_if_unused(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        if self.delivery.is_unused(id) && self.fetches.is_unused(id) {
            self.links.forget_track(id);
            self.delivery.forget_track(id);
            self.tracks.forget_if_unused(turn, id);
        }
    }

    /// Handles the end of a request or of a whole session.
    pub(super) fn on_ended(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): (Handle, RequestId),
        purpose: Purpose,
    ) {
        let code = RequestErrorCode::DOES_NOT_EXIST;
        match purpose {
            Purpose::Source(track) => self.on_publisher_gone(turn, track, (handle, id), code),
            Purpose::Subscriber(track) => {
                let who = (track, handle, id);
                self.delivery.on_unsubscribed(turn, &mut self.tracks, who);
            }
            Purpose::Namespace(namespace) => {
                self.catalogue.withdraw(turn, handle, &namespace);
            }
            Purpose::Prefix(_) => self.catalogue.on_prefix_closed(turn, (handle, id)),
            Purpose::UpstreamPrefix => self.linking().on_interest_closed(turn, (handle, id)),
            Purpose::Announcement | Purpose::RingProbe => {}
            Purpose::AwaitsLink => self.links.unpark((handle, id)),
            Purpose::Fetch(_) => self.serving().cancel(turn, (handle, id)),
            Purpose::UpstreamFetch(_) => self.serving().fail_upstream(turn, (handle, id), code),
            Purpose::TrackStatus => {
                let event = TrackStatusEvent::Cancelled;
                self.catalogue
                    .on_track_status_event(turn, (handle, id), event);
            }
            Purpose::UpstreamTrackStatus(requester) => {
                let event = TrackStatusEvent::UpstreamClosed;
                self.catalogue.on_track_status_event(turn, requester, event);
            }
        }
    }

    /// Refuses an update. A subscription, a fetch or a request about namespaces ends with it; a publication is ended by
    /// its publisher [moqt-18 §10.9.1].
    pub(super) fn fail_update(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): (Handle, RequestId),
        code: RequestErrorCode,
    ) {
        turn.log_refusal((handle, id), code, None);
        turn.with_session(handle, |session, connection| {
            session.update_error(connection, id, refusal(code));
        });
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        match peer.purpose(id) {
            Some(&Purpose::Subscriber(track)) => {
                let who = (track, handle, id);
                let code = PublishDoneCode::UPDATE_FAILED;
                self.delivery.cut(turn, &mut self.tracks, who, code);
            }
            Some(Purpose::Namespace(_) | Purpose::Prefix(_) | Purpose::Fetch(_)) => {
                if let Some(purpose) = peer.remove(id) {
                    self.on_ended(turn, (handle, id), purpose);
                }
            }
            Some(
                Purpose::Source(_)
                | Purpose::UpstreamFetch(_)
                | Purpose::TrackStatus
                | Purpose::UpstreamTrackStatus(_)
                | Purpose::UpstreamPrefix
                | Purpose::Announcement
                | Purpose::RingProbe
                | Purpose::AwaitsLink,
            )
            | None => {}
        }
    }

    /// Closes a session from this side.
    pub(super) fn close_session(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        code: SessionError,
        reason: &str,
    ) {
        turn.with_session(handle, |session, connection| {
            session.close(connection, code, reason);
        });
        self.on_lost(turn, handle, reason);
    }

    /// Handles the expiry timer of a session.
    pub(super) fn on_expiry(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        turn.clear_expiry_timer(handle);
        // The end of one request may end others. Those are not revoked, since they were told why they end.
        while let Some(id) = turn.pop_expired(handle) {
            self.expire(turn, (handle, id));
            self.carry_effects(turn);
        }
        turn.set_expiry_timer(handle);
    }

    /// Ends a request whose authorization has expired.
    fn expire(&mut self, turn: &mut Turn<'_>, id: PublisherId) {
        turn.counters.requests_expired += 1;
        self.revoke(turn, id);
    }

    /// Ends a request that is not permitted any longer.
    pub(super) fn revoke(&mut self, turn: &mut Turn<'_>, (handle, id): PublisherId) {
        if let Some(Purpose::Subscriber(track)) = turn.purpose((handle, id)) {
            let who = (track, handle, id);
            let code = PublishDoneCode::EXPIRED;
            return self.delivery.cut(turn, &mut self.tracks, who, code);
        }
        turn.cancel((handle, id), ResetCode::EXPIRED_AUTH_TOKEN);
        if let Some(purpose) = turn.remove_request((handle, id)) {
            self.on_ended(turn, (handle, id), purpose);
        }
        self.publish_grown(turn);
    }
}
