//! How subscriptions end: with their track, with their session, or because the subscriber is too slow.

use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode},
    message::PublishDone,
    session::RequestId,
};
use weir_quic::Handle;

use super::{Delivery, subscription::Subscription};
use crate::{effect::Effect, ids::TrackId, sessions::peer::PeerKind, track::Tracks, turn::Turn};

/// The subscriptions of a track that end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of them.
    All,
    /// Subscriptions of sessions of a kind.
    Kind(PeerKind),
    /// One.
    One(Handle, RequestId),
}

impl Scope {
    fn covers(self, subscription: &Subscription) -> bool {
        match self {
            Self::All => true,
            Self::Kind(kind) => subscription.kind == kind,
            Self::One(handle, request) => {
                subscription.handle == handle && subscription.request == request
            }
        }
    }
}

impl Delivery {
    /// Ends subscriptions of a track: at once if all their streams are complete, otherwise as soon as they are
    /// [moqt-18 §10.11].
    pub(crate) fn end(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        scope: Scope,
        done: &PublishDone,
    ) {
        let Some(subscriptions) = self.tracks.get_mut(id) else {
            return;
        };
        let mut drained = Vec::new();
        let established = subscriptions.established.iter_mut();
        for subscription in established.filter(|other| scope.covers(other)) {
            subscription.end_with(done);
            if subscription.is_drained() {
                drained.push((subscription.handle, subscription.request));
            }
        }
        for (handle, request) in drained {
            self.end_if_drained(turn, id, handle, request);
        }
        turn.push(Effect::Released(id));
    }

    /// Sends PUBLISH_DONE to a subscription that is ending, once its streams are complete.
    pub(crate) fn end_if_drained(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        handle: Handle,
        request: RequestId,
    ) {
        let Some(subscriptions) = self.tracks.get_mut(id) else {
            return;
        };
        let subscription = subscriptions.established.get(handle, request);
        let Some(done) = subscription.and_then(Subscription::done) else {
            return;
        };
        subscriptions.established.remove(handle, request);
        let is_last = subscriptions.established.is_empty();
        turn.remove_request((handle, request));
        turn.publish_done((handle, request), done);
        if is_last {
            turn.push(Effect::DemandChanged(id));
        }
        turn.push(Effect::Released(id));
    }

    /// Ends a subscription at once, and resets its open streams.
    pub(crate) fn cut(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        (id, handle, request): (TrackId, Handle, RequestId),
        code: PublishDoneCode,
    ) {
        let subscriptions = self.tracks.get(id);
        let subscription = subscriptions.and_then(|it| it.established.get(handle, request));
        let Some(streams) = subscription.map(Subscription::streams_opened) else {
            let code = match code {
                PublishDoneCode::EXPIRED => RequestErrorCode::EXPIRED_AUTH_TOKEN,
                PublishDoneCode::MALFORMED_TRACK => RequestErrorCode::MALFORMED_TRACK,
                _ => RequestErrorCode::INTERNAL_ERROR,
            };
            self.refuse_pending(turn, handle, request, code);
            return turn.push(Effect::DemandChanged(id));
        };
        turn.remove_request((handle, request));
        self.on_unsubscribed(turn, tracks, (id, handle, request));
        let done = PublishDone {
            code,
            stream_count: Some(streams),
            reason: String::new(),
        };
        turn.publish_done((handle, request), done);
    }

    /// Ends all subscriptions of a track at once.
    pub(crate) fn cut_all(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        id: TrackId,
        code: PublishDoneCode,
    ) {
        let Some(subscriptions) = self.tracks.get(id) else {
            return;
        };
        let established = subscriptions.established.iter();
        let all: Vec<_> = established.map(|it| (id, it.handle, it.request)).collect();
        for who in all {
            self.cut(turn, tracks, who, code);
        }
    }

    /// Handles a subscription that its subscriber ended, or whose session is gone.
    pub(crate) fn on_unsubscribed(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        (id, handle, request): (TrackId, Handle, RequestId),
    ) {
        self.stop_waiting(turn, id, handle, request);
        let who = (id, handle, request);
        let released =
            self.with_subscription(turn, tracks, who, |subscription, connection, _, fan_out| {
                subscription.abandon(connection, fan_out);
                std::mem::take(&mut fan_out.released)
            });
        let subscriptions = self.tracks.get_mut(id);
        let subscription = subscriptions.and_then(|it| it.established.remove(handle, request));
        let holds = subscription.map(|subscription| subscription.holds());
        // Many may leave in one turn.
        for released in [released, holds].into_iter().flatten() {
            self.trim_later(turn, id, released);
        }
        turn.push(Effect::SubscriptionsAnswered(id));
        turn.push(Effect::DemandChanged(id));
        turn.push(Effect::Released(id));
    }
}
