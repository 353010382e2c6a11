//! SUBSCRIBE: requests that wait for a publisher, and how they become subscriptions.

use std::time::{Duration, Instant};

use weir_moqt::{
    error::RequestErrorCode,
    location::Location,
    message::{Subscribe, SubscribeOk},
    parameter::{Filter, Parameters},
    session::RequestId,
};
use weir_quic::Handle;

use super::{Delivery, pending::PendingSubscribe, subscription::Subscription};
use crate::{
    effect::Effect,
    ids::{RequestKey, TrackId},
    sessions::peer::{PeerKind, Purpose},
    track::{Track, Tracks},
    turn::Turn,
};

impl Delivery {
    /// Handles a SUBSCRIBE of a session, which is served as one of a kind. The request waits until a publisher has accepted or offered the track.
    pub(crate) fn on_subscribe(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        ((handle, request), kind): (RequestKey, PeerKind),
        subscribe: Subscribe,
    ) {
        let limits = &turn.config.limits;
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        if !kind.is_link() && peer.counts().subscribers >= limits.subscriptions_per_session_max {
            turn.counters.refused_limit_subscriptions += 1;
            return turn.refuse(handle, request, RequestErrorCode::EXCESSIVE_LOAD);
        }
        let id = match tracks.find_or_await(turn, (handle, request), &subscribe.track) {
            Ok(id) => id,
            Err(full) => {
                full.count(turn.counters);
                return turn.refuse(handle, request, RequestErrorCode::EXCESSIVE_LOAD);
            }
        };
        if self.has_subscriber(id, handle) {
            turn.counters.refused_duplicate += 1;
            return turn.refuse(handle, request, RequestErrorCode::DUPLICATE_SUBSCRIPTION);
        }
        let parameters = subscribe.parameters;
        let new_group = parameters.new_group_request;
        let rendezvous = parameters.rendezvous_timeout.unwrap_or_default();
        let until = turn.now + rendezvous.min(limits.rendezvous_max);
        let pending = PendingSubscribe {
            handle,
            request,
            kind,
            parameters,
            until,
            wake: until.max(turn.now + UPSTREAM_ANSWER_MAX),
        };
        turn.timers.set(pending.wake, pending.timer());
        self.tracks.entry(id).pending.insert(pending);
        turn.insert_request((handle, request), Purpose::Subscriber(id));
        turn.push(Effect::TrackWanted {
            track: id,
            by: kind,
            new_group,
        });
    }

    /// Establishes the requests that wait for a track, which has a publisher. Requests of links continue to wait unless
    /// a publisher serves them.
    pub(crate) fn admit_pending(&mut self, turn: &mut Turn<'_>, tracks: &mut Tracks, id: TrackId) {
        let Some(track) = tracks.get(id) else {
            return;
        };
        let serves = PeerKind::ALL.map(|kind| track.is_established_for(kind));
        let pending = &mut self.tracks.entry(id).pending;
        for pending in pending.take_all(|kind| serves[kind as usize]) {
            turn.timers.cancel(pending.wake, pending.timer());
            self.admit(turn, track, id, &pending);
        }
        turn.push(Effect::DemandChanged(id));
        turn.push(Effect::SubscriptionsAnswered(id));
    }

    fn admit(
        &mut self,
        turn: &mut Turn<'_>,
        track: &Track,
        id: TrackId,
        pending: &PendingSubscribe,
    ) {
        let (handle, request) = (pending.handle, pending.request);
        let parameters = &pending.parameters;
        let peer = turn.sessions.get(handle);
        let refuses_past = peer.is_some_and(|peer| peer.refuses_past_filters());
        if refuses_past && is_over(parameters.filter, track.largest()) {
            turn.remove_request((handle, request));
            turn.counters.refused_range += 1;
            return turn.refuse(handle, request, RequestErrorCode::INVALID_RANGE);
        }
        let (largest, defaults) = (track.largest(), track.defaults());
        let mut subscription = Subscription::new(handle, request, parameters, largest, defaults);
        subscription.kind = pending.kind;
        self.tracks.entry(id).established.insert(subscription);
        let ok = SubscribeOk {
            track_alias: track.alias(),
            parameters: Parameters {
                largest_object: largest,
                expires: turn.expires_in(handle, request),
                ..Parameters::default()
            },
            properties: track.properties().clone(),
        };
        turn.with_session(handle, |session, connection| {
            session.subscribe_ok(connection, request, ok);
        });
    }

    /// Returns until when the most patient of the waiting requests for a track waits for a publisher to appear.
    pub(crate) fn patience(&self, id: TrackId) -> Option<Instant> {
        self.tracks.get(id)?.pending.patience()
    }

    /// Handles a request whose time to wait for a publisher is over.
    pub(crate) fn on_rendezvous_over(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        request: RequestId,
    ) {
        let peer = turn.sessions.get(handle);
        let purpose = peer.and_then(|peer| peer.purpose(request));
        let Some(&Purpose::Subscriber(id)) = purpose else {
            return;
        };
        turn.counters.refused_timeout += 1;
        self.refuse_pending(turn, handle, request, RequestErrorCode::TIMEOUT);
        turn.push(Effect::DemandChanged(id));
    }

    /// Refuses the requests that do not wait for a publisher to appear, since no publisher is left that could accept.
    pub(crate) fn on_publishers_declined(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        code: RequestErrorCode,
    ) {
        let Some(subscriptions) = self.tracks.get_mut(id) else {
            return;
        };
        let timers = &mut *turn.timers;
        let refused = subscriptions.pending.decline(turn.now, |waiting, until| {
            timers.cancel(waiting.wake, waiting.timer());
            timers.set(until, waiting.timer());
        });
        for (handle, request) in refused {
            if code == RequestErrorCode::DOES_NOT_EXIST {
                turn.counters.refused_does_not_exist += 1;
            }
            self.refuse_pending(turn, handle, request, code);
        }
    }

    /// Refuses the waiting requests of links of a kind for a track.
    pub(crate) fn refuse_pending_links(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        kind: PeerKind,
    ) {
        let links = self.tracks.get(id).map(|it| it.pending.of_kind(kind));
        for (handle, request) in links.into_iter().flatten() {
            self.refuse_pending(turn, handle, request, RequestErrorCode::DOES_NOT_EXIST);
        }
    }

    /// Refuses a waiting request.
    pub(super) fn refuse_pending(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        request: RequestId,
        code: RequestErrorCode,
    ) {
        if let Some(Purpose::Subscriber(id)) = turn.remove_request((handle, request)) {
            self.stop_waiting(turn, id, handle, request);
            turn.push(Effect::SubscriptionsAnswered(id));
            turn.push(Effect::Released(id));
        }
        turn.refuse(handle, request, code);
    }

    pub(super) fn stop_waiting(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        handle: Handle,
        request: RequestId,
    ) {
        let Some(subscriptions) = self.tracks.get_mut(id) else {
            return;
        };
        if let Some(waiting) = subscriptions.pending.remove((handle, request)) {
            turn.timers.cancel(waiting.wake, waiting.timer());
        }
    }
}

/// Returns whether a filter ends before the largest group of the track [moqt-18 §5.1.2].
fn is_over(filter: Option<Filter>, largest: Option<Location>) -> bool {
    match (filter, largest) {
        (Some(Filter::AbsoluteRange { end, .. }), Some(largest)) => end.group < largest.group,
        (_, _) => false,
    }
}

/// How long publishers may take to answer a SUBSCRIBE of the relay.
const UPSTREAM_ANSWER_MAX: Duration = Duration::from_secs(10);
