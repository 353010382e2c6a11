//! Single requests that a peer wants moved [moqt-18 §10.4]: they are made anew in the same session, since that is the
//! only place where the relay can reach it. What the peer asked for itself, it moves itself.

use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode},
    message::PublishDone,
    session::RequestId,
};
use weir_quic::Handle;

use crate::{
    dispatch::Owners, sessions::peer::Part, track::Origin, track::table::TrackId, turn::Turn,
};

impl Owners {
    /// A peer wants a request moved. It may wish so as often as requests may be updated.
    pub(crate) fn on_request_goaway(&mut self, turn: &mut Turn<'_>, handle: Handle, id: RequestId) {
        let max = turn.config.limits.updates_per_second_max;
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let Some(part) = peer.requests.get(&id).cloned() else {
            return;
        };
        if peer.session.is_of_peer(id) {
            return;
        }
        if !peer.updates.permits(turn.now, max) {
            turn.counters.updates_refused += 1;
            return;
        }
        turn.counters.requests_renewed += 1;
        match part {
            Part::Source(track) => self.move_source(turn, track, (handle, id)),
            Part::Subscriber(track) => self.move_offer(turn, track, (handle, id)),
            Part::Feeder(_) => {
                if let Some(feeder) = self.feeders.get_mut(&(handle, id)) {
                    feeder.others.insert(0, handle);
                }
                let code = RequestErrorCode::GOING_AWAY;
                self.fail_feeder(turn, (handle, id), code);
            }
            Part::Inquiry => self.renew_inquiry(turn, (handle, id)),
            Part::Namespace(_) | Part::Interest(_) | Part::Fetch(_) | Part::Status(_) => {}
        }
    }

    /// A publisher wants one of the relay's subscriptions moved.
    fn move_source(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        (handle, id): (Handle, RequestId),
    ) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let source = track.source(handle, id).cloned();
        let is_own = source.filter(|source| source.origin != Origin::Published);
        if let Some(source) = is_own.filter(|source| source.leaving.is_none()) {
            self.cancel_source(turn, track_id, &source);
            self.ask(turn, track_id, handle);
            self.update_upstream(turn, track_id);
        }
    }

    /// A subscriber wants a track moved that was offered to it: the old subscription ends, and it is offered again.
    fn move_offer(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        (handle, id): (Handle, RequestId),
    ) {
        let done = PublishDone {
            code: PublishDoneCode::GOING_AWAY,
            stream_count: None,
            reason: "the subscription moves".to_owned(),
        };
        let is_it = |request| request == id;
        self.dismiss_subscribers(turn, track_id, &done, |subscriber| {
            subscriber.handle == handle && is_it(subscriber.request)
        });
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let interests = self.track_interests.covering(&track.name.namespace);
        let own: Vec<_> = interests.filter(|who| who.0 == handle).collect();
        for who in own {
            self.offer(turn, track_id, who);
        }
    }
}
