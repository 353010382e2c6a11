//! REQUEST_UPDATE of subscriptions, and what a joining FETCH has to know of one.

use weir_moqt::{
    location::Location, message::RequestOk, parameter::Parameters, session::RequestId,
};
use weir_quic::Handle;

use super::Delivery;
use crate::{effect::Effect, ids::TrackId, track::Tracks, turn::Turn};

/// How far a subscription is that a FETCH wants to join [moqt-18 §5.1].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// It waits for a publisher.
    Pending,
    /// It gets objects; the largest location that it was told of when it was established or woken up.
    Forwarding(Option<Location>),
    /// It wants no objects now.
    Paused,
}

impl Delivery {
    /// How far a subscription is; `None` if there is none.
    pub(crate) fn joined(
        &self,
        id: TrackId,
        (handle, request): (Handle, RequestId),
    ) -> Option<Joined> {
        let subscriptions = self.tracks.get(id)?;
        let mut pending = subscriptions.pending.iter();
        if let Some(waiting) = pending.find(|waiting| waiting.is_of(handle, request)) {
            return Some(match waiting.parameters.forward {
                Some(false) => Joined::Paused,
                Some(true) | None => Joined::Pending,
            });
        }
        let index = subscriptions.position(handle, request).ok()?;
        let subscription = &subscriptions.established[index];
        Some(if subscription.forwards() {
            Joined::Forwarding(subscription.joining)
        } else {
            Joined::Paused
        })
    }

    /// A session changes one of its subscriptions; gives what the answer says.
    pub(crate) fn on_update(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        (id, handle, request): (TrackId, Handle, RequestId),
        parameters: &Parameters,
    ) -> RequestOk {
        let mut answer = RequestOk::default();
        if let Some(subscriptions) = self.tracks.get_mut(id) {
            let mut pending = subscriptions.pending.iter_mut();
            if let Some(waiting) = pending.find(|waiting| waiting.is_of(handle, request)) {
                waiting.parameters.change(parameters);
                return answer;
            }
        }
        let largest = tracks.get(id).and_then(|track| track.largest());
        self.with_subscription(
            turn,
            tracks,
            (id, handle, request),
            |subscription, connection, _, fan_out| {
                let was_forwarding = subscription.forwards();
                subscription.update(connection, parameters, largest, fan_out);
                let wakes = subscription.forwards() && !was_forwarding;
                if wakes {
                    subscription.joining = largest;
                }
                if wakes || parameters.filter.is_some() {
                    answer.parameters.largest_object = largest;
                }
            },
        );
        push_changes(turn, (id, handle, request), parameters);
        answer.parameters.expires = turn.expires_in(handle, request);
        answer
    }

    /// A session accepted a track that was offered to it, and says how it wants it.
    pub(crate) fn on_offer_accepted(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        (id, handle, request): (TrackId, Handle, RequestId),
        parameters: &Parameters,
    ) {
        let largest = tracks.get(id).and_then(|track| track.largest());
        self.with_subscription(
            turn,
            tracks,
            (id, handle, request),
            |subscription, connection, _, fan_out| {
                subscription.update(connection, parameters, largest, fan_out);
            },
        );
        push_changes(turn, (id, handle, request), parameters);
    }
}

/// What others have to do when a subscription has changed.
fn push_changes(
    turn: &mut Turn<'_>,
    (id, handle, request): (TrackId, Handle, RequestId),
    parameters: &Parameters,
) {
    if let Some(group) = parameters.new_group_request {
        turn.push(Effect::NewGroupWanted(id, group));
    }
    turn.push(Effect::DemandChanged(id));
    turn.push(Effect::LinksUnserved(id));
    turn.push(Effect::MaybeDrained(id, handle, request));
}
