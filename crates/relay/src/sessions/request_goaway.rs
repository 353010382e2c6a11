//! Single requests that a peer wants moved [moqt-18 §10.4]: they are made anew in the same session, since that is the
//! only place where the relay can reach it. What the peer asked for itself, it moves itself.

use std::time::Instant;

use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode},
    message::PublishDone,
    session::RequestId,
};
use weir_quic::{Endpoint, Handle};

use crate::{Relay, sessions::peer::Part, track::Origin, track::table::TrackId};

impl Relay {
    /// A peer wants a request moved. It may wish so as often as requests may be updated.
    pub(crate) fn on_request_goaway(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
    ) {
        let max = self.config.limits.updates_per_second_max;
        let Some(peer) = self.peers.get(handle) else {
            return;
        };
        let Some(part) = peer.requests.get(&id).cloned() else {
            return;
        };
        if peer.session.is_of_peer(id) {
            return;
        }
        if !peer.updates.permits(now, max) {
            self.counters.updates_refused += 1;
            return;
        }
        self.counters.requests_renewed += 1;
        match part {
            Part::Source(track) => self.move_source(now, endpoint, track, (handle, id)),
            Part::Subscriber(track) => self.move_offer(now, endpoint, track, (handle, id)),
            Part::Feeder(_) => {
                if let Some(feeder) = self.feeders.get_mut(&(handle, id)) {
                    feeder.others.insert(0, handle);
                }
                let code = RequestErrorCode::GOING_AWAY;
                self.fail_feeder(now, endpoint, (handle, id), code);
            }
            Part::Inquiry => self.renew_inquiry(now, endpoint, (handle, id)),
            Part::Namespace(_) | Part::Interest(_) | Part::Fetch(_) | Part::Status(_) => {}
        }
    }

    /// A publisher wants one of the relay's subscriptions moved.
    fn move_source(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        track_id: TrackId,
        (handle, id): (Handle, RequestId),
    ) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let source = track.source(handle, id).cloned();
        let is_own = source.filter(|source| source.origin != Origin::Published);
        if let Some(source) = is_own.filter(|source| source.leaving.is_none()) {
            self.cancel_source(now, endpoint, track_id, &source);
            self.ask(now, endpoint, track_id, handle);
            self.update_upstream(now, endpoint, track_id);
        }
    }

    /// A subscriber wants a track moved that was offered to it: the old subscription ends, and it is offered again.
    fn move_offer(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        track_id: TrackId,
        (handle, id): (Handle, RequestId),
    ) {
        let done = PublishDone {
            code: PublishDoneCode::GOING_AWAY,
            stream_count: None,
            reason: "the subscription moves".to_owned(),
        };
        let is_it = |request| request == id;
        self.dismiss_subscribers(now, endpoint, track_id, &done, |subscriber| {
            subscriber.handle == handle && is_it(subscriber.request)
        });
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let interests = self.track_interests.covering(&track.name.namespace);
        let own: Vec<_> = interests.filter(|who| who.0 == handle).collect();
        for who in own {
            self.offer(now, endpoint, track_id, who);
        }
    }
}
