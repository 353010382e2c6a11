//! PUBLISH from the relay: tracks that are offered to the sessions that sent SUBSCRIBE_TRACKS.

use weir_moqt::session::Refused;
use weir_quic::Handle;

use crate::{
    catalogue::{Catalogue, RequestKey},
    delivery::Delivery,
    effect::Effect,
    ids::TrackId,
    sessions::peer::Part,
    track::Tracks,
    turn::Turn,
};

impl Catalogue {
    /// Offers a newly published track to all sessions that subscribe to such tracks, unless they have it already
    /// [moqt-18 §9.5].
    pub(crate) fn offer_all(
        &mut self,
        turn: &mut Turn<'_>,
        delivery: &mut Delivery,
        tracks: &mut Tracks,
        id: TrackId,
    ) {
        let Some(track) = tracks.get(id) else {
            return;
        };
        track.set_awaits_offer(false);
        for key in self.subscriptions.to_tracks_of(&track.name().namespace) {
            self.offer(turn, delivery, tracks, id, key);
        }
        turn.push(Effect::DemandChanged(id));
    }

    /// Offers a track again to a session whose subscription to it has moved.
    pub(crate) fn offer_again(
        &mut self,
        turn: &mut Turn<'_>,
        delivery: &mut Delivery,
        tracks: &mut Tracks,
        id: TrackId,
        handle: Handle,
    ) {
        let Some(track) = tracks.get(id) else {
            return;
        };
        let mut subscriptions = self.subscriptions.to_tracks_of(&track.name().namespace);
        subscriptions.retain(|key| key.0 == handle);
        for key in subscriptions {
            self.offer(turn, delivery, tracks, id, key);
        }
    }

    /// Offers a track because of a SUBSCRIBE_TRACKS request. The track's objects follow without waiting for the answer.
    pub(super) fn offer(
        &mut self,
        turn: &mut Turn<'_>,
        delivery: &mut Delivery,
        tracks: &mut Tracks,
        id: TrackId,
        key: RequestKey,
    ) {
        let handle = key.0;
        let (Some(track), Some(peer)) = (tracks.get(id), turn.sessions.get(handle)) else {
            return;
        };
        let subscription = self.subscriptions.get(key);
        let forward = subscription.and_then(|subscription| subscription.forward_for(track.name()));
        let is_its_own = track.has_publisher(handle);
        let (Some(forward), false) = (forward, is_its_own || delivery.has_subscriber(id, handle))
        else {
            return;
        };
        if !track.is_established() {
            // A link offers it and sends no objects yet: the link first has to say how far the track has come.
            track.set_awaits_offer(true);
            return turn.push(Effect::DemandChanged(id));
        }
        let name = track.name().clone();
        if peer.counts.subscribers >= turn.config.limits.subscriptions_per_session_max {
            return self.send_publish_blocked(turn, key, &name);
        }
        match delivery.publish(turn, (id, track), handle, forward) {
            Ok(request) => {
                turn.counters.offers += 1;
                let expires = turn
                    .sessions
                    .get(handle)
                    .and_then(|it| it.expiries.get(key.1));
                turn.note_expiry(handle, request, expires);
            }
            Err(Refused::NoStream | Refused::Limit) => self.send_publish_blocked(turn, key, &name),
            // The session ends soon, or the offer is longer than a message can be.
            Err(Refused::GoingAway | Refused::Closed | Refused::Over | Refused::TooLong) => {}
        }
    }
}

impl Turn<'_> {
    /// Ends the subscription of a session that refused the offer of a track.
    pub(crate) fn on_offer_rejected(&mut self, (handle, id): RequestKey) {
        if let Some(peer) = self.sessions.get(handle)
            && matches!(peer.requests.get(&id), Some(Part::Subscriber(_)))
            && let Some(part) = peer.remove(id)
        {
            self.counters.offers_rejected += 1;
            self.push(Effect::RequestEnded(handle, id, part));
        }
    }
}
