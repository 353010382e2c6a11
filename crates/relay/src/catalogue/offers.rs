//! PUBLISH from the relay: tracks that are offered to the sessions that sent SUBSCRIBE_TRACKS.

use weir_moqt::{
    message::RequestOk,
    parameter::Parameters,
    session::{Refused, RequestId},
};
use weir_quic::Handle;

use crate::{
    catalogue::{Catalogue, RequestKey},
    delivery::subscription::Subscriber,
    dispatch::Owners,
    effect::Effect,
    sessions::peer::Part,
    track::{Track, table::TrackId, table::Tracks},
    turn::Turn,
};

impl Catalogue {
    /// Offers a newly published track to all sessions that subscribe to such tracks, unless they have it already
    /// [moqt-18 §9.5].
    pub(crate) fn offer_all(&mut self, turn: &mut Turn<'_>, tracks: &mut Tracks, id: TrackId) {
        let Some(track) = tracks.get(id) else {
            return;
        };
        track.awaits_offer = false;
        for key in self.subscriptions.to_tracks_of(&track.name.namespace) {
            self.offer(turn, tracks, id, key);
        }
        turn.push(Effect::DemandChanged(id));
    }

    /// Offers a track again to a session whose subscription to it has moved.
    pub(crate) fn offer_again(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        id: TrackId,
        handle: Handle,
    ) {
        let Some(track) = tracks.get(id) else {
            return;
        };
        let mut subscriptions = self.subscriptions.to_tracks_of(&track.name.namespace);
        subscriptions.retain(|key| key.0 == handle);
        for key in subscriptions {
            self.offer(turn, tracks, id, key);
        }
    }

    /// Offers a track because of a SUBSCRIBE_TRACKS request. The track's objects follow without waiting for the answer.
    pub(super) fn offer(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        id: TrackId,
        key: RequestKey,
    ) {
        let handle = key.0;
        let (Some(track), Some(peer)) = (tracks.get(id), turn.sessions.get(handle)) else {
            return;
        };
        let subscription = self.subscriptions.get(key);
        let forward = subscription.and_then(|subscription| subscription.forward_for(&track.name));
        let is_its_own = track.sources.iter().any(|source| source.handle == handle);
        let (Some(forward), false) = (forward, is_its_own || track.has_subscriber(handle)) else {
            return;
        };
        if !track.is_established() {
            // A link offers it and sends no objects yet: the link first has to say how far the track has come.
            track.awaits_offer = true;
            return turn.push(Effect::DemandChanged(id));
        }
        let name = track.name.clone();
        if peer.counts.subscribers >= turn.config.limits.subscriptions_per_session_max {
            return self.send_publish_blocked(turn, key, &name);
        }
        match publish(turn, track, id, handle, forward) {
            Ok(subscriber) => {
                turn.counters.offers += 1;
                let expires = turn
                    .sessions
                    .get(handle)
                    .and_then(|it| it.expiries.get(key.1));
                turn.note_expiry(handle, subscriber.request, expires);
            }
            Err(Refused::NoStream | Refused::Limit) => self.send_publish_blocked(turn, key, &name),
            // The session ends soon, or the offer is longer than a message can be.
            Err(Refused::GoingAway | Refused::Closed | Refused::Over | Refused::TooLong) => {}
        }
    }
}

/// Sends PUBLISH for a track to a session, and subscribes the session to the track.
pub(crate) fn publish<'t>(
    turn: &mut Turn<'_>,
    track: &'t mut Track,
    id: TrackId,
    handle: Handle,
    forward: bool,
) -> Result<&'t mut Subscriber, Refused> {
    let parameters = Parameters {
        forward: Some(forward),
        ..Parameters::default()
    };
    let offer = Parameters {
        largest_object: track.largest,
        ..parameters.clone()
    };
    let (name, alias) = (track.name.clone(), track.alias);
    let properties = track.properties.clone();
    let sent = turn.with_session(handle, |session, connection| {
        session.publish_now(connection, name, alias, offer, properties)
    });
    let request = sent.unwrap_or(Err(Refused::Closed))?;
    if let Some(peer) = turn.sessions.get(handle) {
        peer.insert(request, Part::Subscriber(id));
    }
    let place = track.place(handle, request).unwrap_or_else(|place| {
        let (largest, defaults) = (track.largest, track.defaults());
        let subscriber = Subscriber::new(handle, request, &parameters, largest, defaults);
        track.subscribers.insert(place, subscriber);
        place
    });
    Ok(&mut track.subscribers[place])
}

impl Turn<'_> {
    /// Ends the subscription of a session that refused the offer of a track.
    pub(crate) fn on_offer_rejected(&mut self, handle: Handle, id: RequestId) {
        if let Some(peer) = self.sessions.get(handle)
            && matches!(peer.requests.get(&id), Some(Part::Subscriber(_)))
            && let Some(part) = peer.remove(id)
        {
            self.counters.offers_rejected += 1;
            self.push(Effect::RequestEnded(handle, id, part));
        }
    }
}

impl Owners {
    /// Applies the parameters with which a session accepted the offer of a track.
    pub(crate) fn on_offer_accepted(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        ok: &RequestOk,
    ) {
        let peer = turn.sessions.get(handle);
        let part = peer.and_then(|peer| peer.requests.get(&id));
        let Some(&Part::Subscriber(track_id)) = part else {
            return;
        };
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let largest = track.largest;
        let who = (track_id, handle, id);
        self.with_subscriber(turn, who, |subscriber, connection, _, turn| {
            subscriber.update(connection, &ok.parameters, largest, turn);
        });
        self.request_group(turn, track_id, &ok.parameters);
        self.update_upstream(turn, track_id);
        self.dismiss_links(turn, track_id);
        self.dismiss_if_drained(turn, track_id, handle, id);
    }
}
