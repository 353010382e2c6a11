//! Requests of sessions that wait for a link to a relay of the fleet.

use std::collections::BTreeMap;

use weir_moqt::{message::FetchKind, name::FullTrackName, session::Request};

use super::{Linking, Links};
use crate::{
    ids::RequestKey,
    registry::RelayId,
    sessions::peer::{PeerKind, Purpose},
    turn::Turn,
};

/// Requests that wait for a link, or have waited for one.
#[derive(Debug, Default)]
pub(super) struct Parked {
    waiting: BTreeMap<RelayId, BTreeMap<RequestKey, Request>>,
    /// Requests that wait no longer, and are about to be handled.
    over: BTreeMap<RequestKey, Request>,
}

impl Parked {
    fn len(&self) -> usize {
        let waiting = self.waiting.values().map(BTreeMap::len);
        waiting.sum::<usize>() + self.over.len()
    }

    /// Ends the wait of all requests that wait for the link to a relay.
    pub(super) fn unpark(&mut self, relay: RelayId) {
        if let Some(mut requests) = self.waiting.remove(&relay) {
            self.over.append(&mut requests);
        }
    }
}

impl Links {
    /// Takes a request that has waited for a link. The next call returns the next one.
    pub(crate) fn take_unparked(&mut self) -> Option<(RequestKey, Request)> {
        self.fleet.as_mut()?.parked.over.pop_first()
    }

    /// Forgets a request that has ended while it waited for a link.
    pub(crate) fn forget_parked(&mut self, key: RequestKey) {
        if let Some(fleet) = &mut self.fleet {
            let parked = &mut fleet.parked;
            parked.over.remove(&key);
            parked.waiting.retain(|_, requests| {
                requests.remove(&key);
                !requests.is_empty()
            });
        }
    }
}

impl Linking<'_> {
    /// Lets a request wait if it needs a link to a relay of the fleet that is not established. Returns the request if it
    /// does not.
    pub(crate) fn park(
        &mut self,
        turn: &mut Turn<'_>,
        key: RequestKey,
        request: Request,
    ) -> Option<Request> {
        let Some(relay) = self.relay_needed(turn, key, &request) else {
            return Some(request);
        };
        let fleet = self.links.fleet.as_mut()?;
        if fleet.parked.len() >= turn.config.limits.tracks_waiting_max {
            turn.counters.link_waits_dropped += 1;
            return Some(request);
        }
        fleet.open(turn, &mut self.links.upstreams, relay);
        let parked = &mut fleet.parked.waiting;
        parked.entry(relay).or_default().insert(key, request);
        turn.insert_request(key, Purpose::AwaitsLink);
        None
    }

    /// Returns the relay of the fleet whose link a request has to wait for.
    fn relay_needed(
        &mut self,
        turn: &mut Turn<'_>,
        key: RequestKey,
        request: &Request,
    ) -> Option<RelayId> {
        let fleet = self.links.fleet.as_ref()?;
        let name = subject(request)?;
        let relays = self.catalogue.relays_of(&name.namespace);
        let is_linked = |relay: &RelayId| self.catalogue.fleet_link(*relay).is_some();
        if relays.is_empty() || relays.iter().any(is_linked) {
            return None;
        }
        if !PeerKind::Fleet.serves(turn.kind(key.0)) {
            return None;
        }
        let track = self.tracks.find(name).and_then(|id| self.tracks.get(id));
        if track.is_some_and(|track| track.is_established() || track.is_published()) {
            return None;
        }
        let announcers = self.catalogue.announcers_of(turn, &name.namespace);
        if !announcers.into_iter().all(|it| turn.is_unresponsive(it)) {
            return None;
        }
        let upstreams = &self.links.upstreams;
        let mut relays = relays.into_iter();
        relays.find(|relay| fleet.is_usable(upstreams, *relay))
    }
}

/// Returns the track that a request asks for, if such a request can wait for a link. A SUBSCRIBE waits with its track.
fn subject(request: &Request) -> Option<&FullTrackName> {
    match request {
        Request::TrackStatus(status) => Some(&status.track),
        Request::Fetch(fetch) => match &fetch.kind {
            FetchKind::Standalone { track, .. } | FetchKind::Recent { track, .. } => Some(track),
            // Such a fetch waits for the subscription that it joins.
            FetchKind::RelativeJoining { .. } | FetchKind::AbsoluteJoining { .. } => None,
        },
        Request::Subscribe(_)
        | Request::Publish(_)
        | Request::PublishNamespace(_)
        | Request::SubscribeNamespace(_)
        | Request::SubscribeTracks(_) => None,
    }
}
