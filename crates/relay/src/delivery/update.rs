//! REQUEST_UPDATE of subscriptions, and the state of a subscription for a joining FETCH.

use weir_moqt::{
    location::Location, message::RequestOk, parameter::Parameters, session::RequestId,
};
use weir_quic::Handle;

use super::Delivery;
use crate::{effect::Effect, ids::TrackId, track::Tracks, turn::Turn};

/// The state of a subscription that a FETCH joins [moqt-18 §5.1].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// The request waits for a publisher.
    Pending,
    /// Objects are forwarded; with the largest location sent when the subscription was established or resumed.
    Forwarding(Option<Location>),
    /// The subscriber wants no objects (FORWARD 0).
    Paused,
}

impl Delivery {
    /// Returns the state of a subscription; `None` if there is none.
    pub(crate) fn joined(
        &self,
        id: TrackId,
        (handle, request): (Handle, RequestId),
    ) -> Option<Joined> {
        let subscriptions = self.tracks.get(id)?;
        if let Some(waiting) = subscriptions.pending.get((handle, request)) {
            return Some(match waiting.parameters.forward {
                Some(false) => Joined::Paused,
                Some(true) | None => Joined::Pending,
            });
        }
        let subscription = subscriptions.established.get(handle, request)?;
        Some(if subscription.forwards() {
            Joined::Forwarding(subscription.joining)
        } else {
            Joined::Paused
        })
    }

    /// Applies a REQUEST_UPDATE of a subscription. Returns the parameters of the answer.
    pub(crate) fn on_update(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: &mut Tracks,
        (id, handle, request): (TrackId, Handle, RequestId),
        parameters: &Parameters,
    ) -> RequestOk {
        let mut answer = RequestOk::default();
        if let Some(subscriptions) = self.tracks.get_mut(id)
            && subscriptions.pending.change((handle, request), parameters)
        {
            return answer;
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
                if wakes || parameters.fill.is_some() {
                    subscription.joining = largest;
                }
                answer.parameters.largest_object = largest;
            },
        );
        push_changes(turn, (id, handle, request), parameters);
        answer.parameters.expires = turn.expires_in(handle, request);
        answer
    }

    /// Handles the acceptance of an offered track, with the parameters that the session chose.
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

/// Pushes the effects of a changed subscription.
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
