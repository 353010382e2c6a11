//! PUBLISH from the relay: tracks that are offered to the sessions that sent SUBSCRIBE_TRACKS.

use weir_moqt::{error::PublishDoneCode, message::PublishDone, session::Refused};

use crate::{
    catalogue::Offering,
    delivery::Scope,
    effect::Effect,
    ids::{RequestKey, TrackId},
    sessions::peer::Purpose,
    turn::Turn,
};

impl Offering<'_> {
    /// Offers a newly published track to all sessions with a matching SUBSCRIBE_TRACKS, unless they subscribe to the
    /// track already [moqt-18 §9.5].
    pub(crate) fn offer_all(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        track.set_awaits_offer(false);
        let subscriptions = &self.catalogue.subscriptions;
        for key in subscriptions.to_tracks_of(&track.name().namespace) {
            self.offer(turn, id, key);
        }
        turn.push(Effect::DemandChanged(id));
    }

    /// Offers a track whose largest location has become known.
    pub(crate) fn offer_awaited(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        if self.tracks.get(id).is_some_and(|it| it.awaits_offer()) {
            self.offer_all(turn, id);
        }
    }

    /// Ends the subscription of a session that asked for the offer of the track to be sent again, and sends the offer
    /// again.
    pub(crate) fn on_offer_goaway(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        (handle, request): RequestKey,
    ) {
        let done = PublishDone::new(PublishDoneCode::GOING_AWAY, "the subscription moves");
        self.delivery
            .end(turn, id, Scope::One(handle, request), &done);
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let subscriptions = &self.catalogue.subscriptions;
        let mut subscriptions = subscriptions.to_tracks_of(&track.name().namespace);
        subscriptions.retain(|key| key.0 == handle);
        for key in subscriptions {
            self.offer(turn, id, key);
        }
    }

    /// Offers a track because of a SUBSCRIBE_TRACKS request. The track's objects follow without waiting for the answer.
    pub(super) fn offer(&mut self, turn: &mut Turn<'_>, id: TrackId, key: RequestKey) {
        let handle = key.0;
        let (Some(track), Some(peer)) = (self.tracks.get(id), turn.sessions.get(handle)) else {
            return;
        };
        let subscription = self.catalogue.subscriptions.get(key);
        let wanted = subscription.and_then(|it| it.wanted_of(track.name()));
        let has_track = track.has_publisher(handle) || self.delivery.has_subscriber(id, handle);
        let (Some(wanted), false) = (wanted, has_track) else {
            return;
        };
        if !track.is_established() {
            // A link offers the track and sends no objects yet: its largest location has to be known first.
            track.set_awaits_offer(true);
            return turn.push(Effect::DemandChanged(id));
        }
        let name = track.name().clone();
        if peer.counts().subscribers >= turn.config.limits.subscriptions_per_session_max {
            return self.catalogue.send_publish_blocked(turn, key, &name);
        }
        match self.delivery.publish(turn, (id, track), handle, wanted) {
            Ok(request) => {
                turn.counters.offers += 1;
                if let Some(group) = wanted.new_group_request {
                    turn.push(Effect::NewGroupWanted(id, group));
                }
                let peer = turn.sessions.get(handle);
                let expires = peer.and_then(|peer| {
                    peer.set_own_tokens(request, peer.own_tokens(key.1));
                    peer.expiry(key.1)
                });
                turn.note_expiry(handle, request, expires);
            }
            Err(Refused::NoStream | Refused::Limit) => {
                self.catalogue.send_publish_blocked(turn, key, &name);
            }
            // The session is ending, or the message would be too long.
            Err(
                Refused::GoingAway
                | Refused::Closed
                | Refused::Over
                | Refused::TooLong
                | Refused::NotInDraft,
            ) => {}
        }
    }
}

impl Turn<'_> {
    /// Ends the subscription of a session that refused the offer of a track.
    pub(crate) fn on_offer_rejected(&mut self, (handle, id): RequestKey) {
        if let Some(peer) = self.sessions.get(handle)
            && matches!(peer.purpose(id), Some(Purpose::Subscriber(_)))
            && let Some(purpose) = peer.remove(id)
        {
            self.counters.offers_rejected += 1;
            self.push(Effect::RequestEnded(handle, id, purpose));
        }
    }
}
