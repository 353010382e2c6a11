//! PUBLISH from the relay: tracks for those who asked for all under a prefix.

use weir_moqt::{
    message::RequestOk,
    parameter::Parameters,
    session::{Refused, RequestId},
};
use weir_quic::Handle;

use crate::{
    catalogue::interests::{Interest, Subject, interest},
    delivery::subscription::Subscriber,
    dispatch::Owners,
    sessions::peer::Part,
    track::table::TrackId,
    turn::Turn,
};

impl Owners {
    /// A track is published for the first time: it is offered to all who want such tracks, unless they have it
    /// already [moqt-18 §9.5].
    pub(crate) fn offer_all(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        track.awaits_offer = false;
        let interests: Vec<_> = self
            .track_interests
            .covering(&track.name.namespace)
            .collect();
        for who in interests {
            self.offer(turn, id, who);
        }
        self.update_upstream(turn, id);
    }

    /// Offers a track to a session that asked for such tracks with `request`. Its objects follow without waiting for
    /// the answer.
    pub(crate) fn offer(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        (handle, request): (Handle, RequestId),
    ) {
        let (Some(track), Some(peer)) = (self.tracks.get(id), turn.sessions.get(handle)) else {
            return;
        };
        let is_full = peer.counts.subscribers >= turn.config.limits.subscriptions_per_session_max;
        let expires = peer.expiries.get(request);
        let Some(Interest {
            subject: Subject::Tracks { forward, blocked },
            ..
        }) = interest(peer, request)
        else {
            return;
        };
        let is_its_own = track.sources.iter().any(|source| source.handle == handle);
        if is_its_own || track.has_subscriber(handle) || blocked.contains(&track.name) {
            return;
        }
        if !track.is_established() {
            // A neighbour offered it and rests: it is asked first how far the track has come.
            track.awaits_offer = true;
            return self.update_upstream(turn, id);
        }
        let name = track.name.clone();
        if is_full {
            return self.note_blocked(turn, (handle, request), &name);
        }
        let parameters = Parameters {
            forward: Some(*forward),
            ..Parameters::default()
        };
        let subscription = Parameters {
            largest_object: track.largest,
            ..parameters.clone()
        };
        let (alias, properties) = (track.alias, track.properties.clone());
        let offered = turn.with_session(handle, |session, connection| {
            session.publish_now(connection, name.clone(), alias, subscription, properties)
        });
        let own = match offered {
            Some(Ok(own)) => own,
            Some(Err(Refused::NoStream | Refused::Limit)) => {
                return self.note_blocked(turn, (handle, request), &name);
            }
            // It leaves, or the offer is longer than a message can be.
            Some(Err(Refused::GoingAway | Refused::Closed | Refused::Over | Refused::TooLong))
            | None => return,
        };
        turn.counters.offers += 1;
        if let Some(peer) = turn.sessions.get(handle) {
            peer.insert(own, Part::Subscriber(id));
        }
        turn.note_expiry(handle, own, expires);
        if let Some(track) = self.tracks.get(id)
            && let Err(place) = track.place(handle, own)
        {
            let (largest, defaults) = (track.largest, track.defaults());
            let subscriber = Subscriber::new(handle, own, &parameters, largest, defaults);
            track.subscribers.insert(place, subscriber);
        }
    }

    /// A session accepted a track that was offered to it, and says how it wants it.
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
        self.dismiss_neighbours(turn, track_id);
        self.dismiss_if_drained(turn, track_id, handle, id);
    }

    /// A session does not want a track that was offered to it.
    pub(crate) fn on_offer_rejected(&mut self, turn: &mut Turn<'_>, handle: Handle, id: RequestId) {
        if let Some(peer) = turn.sessions.get(handle)
            && matches!(peer.requests.get(&id), Some(Part::Subscriber(_)))
            && let Some(part) = peer.remove(id)
        {
            turn.counters.offers_rejected += 1;
            self.part_gone(turn, handle, id, part);
        }
    }
}
