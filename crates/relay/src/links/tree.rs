//! Trees of relays: how a relay redirects others, and how it follows redirects.
//!
//! A relay that serves as many relays with a track as it may (`fleet_children_max`) redirects a further one to one of these
//! [moqt-18 §10.6.1]. The redirect has the URL by which the registry knows that relay, so none leads out of the fleet. A
//! relay that follows redirects keeps the *hop list* of the track: the relays that its objects pass, the publisher's relay first.
//!
//! Nothing circulates. A relay refuses the request of a relay in its own hop list. One that has lost its source ends what it
//! serves from there at once (`Linking::end_unserved`). So a relay that looks for a source serves no other, and cannot close a
//! circle. The relays that it served ask the publisher's relay again.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use weir_moqt::{
    error::RequestErrorCode,
    message::{Redirect, RequestError},
    name::{FullTrackName, Namespace},
};
use weir_quic::Handle;

use super::{Linking, Links};
use crate::{
    ids::{RequestKey, TrackId},
    registry::RelayId,
    sessions::peer::PeerKind,
    timers::Timer,
    track::{Publisher, Track},
    turn::Turn,
};

/// The relays that this one serves, and the ways of tracks through the fleet.
#[derive(Debug, Default)]
pub(super) struct Trees {
    /// The sessions of relays of the fleet, with the number that each gives for itself.
    served: BTreeMap<Handle, RelayId>,
    ways: BTreeMap<TrackId, Way>,
}

/// The way of a track through the fleet.
#[derive(Debug, Default)]
struct Way {
    /// The relays that redirected this one, the publisher's relay first, then the one that is asked or sends the track.
    hops: Vec<RelayId>,
    /// Whether the last of these is to be asked: this relay was redirected to it.
    is_redirected: bool,
    /// Whether a redirect led nowhere.
    is_lost: bool,
    /// How often redirects led nowhere since a relay has accepted.
    attempts: u32,
    /// When the publisher's relay is asked again, after a redirect that led nowhere.
    again_at: Option<Instant>,
    /// Relays that this one has redirected.
    redirected: usize,
}

/// Whom to ask next for a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The relay to which this one was redirected.
    Redirected(RelayId),
    /// The publisher's relay, after a pause.
    Again,
    /// The next relay that registered the namespace, after this one if there is one.
    Registered(Option<RelayId>),
}

impl Trees {
    pub(super) fn welcome(&mut self, session: Handle, relay: RelayId) {
        self.served.insert(session, relay);
    }

    pub(super) fn forget_session(&mut self, session: Handle) {
        self.served.remove(&session);
    }

    pub(super) fn forget_track(&mut self, track: TrackId) {
        self.ways.remove(&track);
    }

    /// Returns whether a track waits for the end of a pause.
    pub(super) fn is_pausing(&self, track: TrackId) -> bool {
        let way = self.ways.get(&track);
        way.is_some_and(|way| way.again_at.is_some())
    }

    /// Returns the relay to which this one was redirected for a track and which it has not asked.
    pub(super) fn redirected(&self, track: TrackId) -> Option<RelayId> {
        let way = self.ways.get(&track).filter(|way| way.is_redirected);
        way?.hops.last().copied()
    }

    /// Returns whom to ask for a track, after a relay that declined. `may_follow` tells whether the relay to which this one was
    /// redirected can be asked.
    pub(super) fn next(
        &mut self,
        track: TrackId,
        declined: Option<RelayId>,
        may_follow: bool,
    ) -> Next {
        let Some(way) = self.ways.get_mut(&track) else {
            return Next::Registered(declined);
        };
        let [first, last] = match way.hops[..] {
            [only] => [only, only],
            [first, .., last] => [first, last],
            [] => return Next::Registered(declined),
        };
        let has_declined = declined == Some(last) && (way.is_lost || way.hops.len() > 1);
        if way.is_redirected && may_follow {
            return Next::Redirected(last);
        }
        if !way.is_redirected && !has_declined {
            return Next::Registered(declined);
        }
        if way.attempts < ATTEMPTS_MAX {
            return Next::Again;
        }
        (way.is_redirected, way.attempts) = (false, 0);
        Next::Registered(Some(first))
    }

    /// Notes that a relay has accepted to send a track.
    fn note_accepted(&mut self, track: TrackId) {
        if let Some(way) = self.ways.get_mut(&track) {
            way.attempts = 0;
        }
    }

    /// Notes that a relay is asked, or that the link to it is waited for. `is_sent` tells whether it was asked.
    pub(super) fn note_asked(&mut self, track: TrackId, relay: RelayId, is_sent: bool) {
        let way = self.ways.entry(track).or_default();
        way.is_lost = false;
        if !way.is_redirected {
            way.hops = vec![relay];
        }
        way.is_redirected &= !is_sent;
    }

    /// Plans to ask the publisher's relay for a track again.
    pub(super) fn pause(&mut self, turn: &mut Turn<'_>, track: TrackId) {
        let way = self.ways.entry(track).or_default();
        (way.is_redirected, way.is_lost) = (false, false);
        if way.again_at.is_none() {
            way.attempts += 1;
            let at = turn.now + AGAIN_PAUSE;
            way.again_at = Some(at);
            turn.timers.set(at, Timer::Redirected(track));
        }
    }
}

impl Links {
    /// Returns whether the relay has registered the namespace or a prefix of it.
    fn has_registered(&self, namespace: &Namespace) -> bool {
        let announced = |prefix| self.announced.contains_key(&(PeerKind::Upstream, prefix));
        namespace.prefixes().any(announced)
    }

    /// Returns the hop list of a track that comes from the fleet; an empty one if it does not.
    pub(crate) fn hops(&self, id: TrackId, track: &Track) -> &[RelayId] {
        let way = self
            .fleet
            .as_ref()
            .and_then(|fleet| fleet.trees.ways.get(&id));
        let hops = way.map_or(&[][..], |way| &way.hops);
        let mut publishers = track.publishers().iter();
        let comes = publishers.any(|publisher| {
            let relay = self.upstreams.relay(publisher.session());
            relay.is_some() && relay.as_ref() == hops.last()
        });
        if comes { hops } else { &[] }
    }

    /// Notes that a session has accepted to send a track.
    pub(crate) fn note_accepted(&mut self, track: TrackId) {
        if let Some(fleet) = &mut self.fleet {
            fleet.trees.note_accepted(track);
        }
    }

    /// Ends the pause of a track after a redirect that led nowhere. Returns false if it has ended before.
    pub(crate) fn end_redirect_pause(&mut self, turn: &Turn<'_>, track: TrackId) -> bool {
        let fleet = self.fleet.as_mut();
        let way = fleet.and_then(|fleet| fleet.trees.ways.get_mut(&track));
        way.is_some_and(|way| way.again_at.take_if(|at| *at <= turn.now).is_some())
    }
}

impl Linking<'_> {
    /// Handles a SUBSCRIBE of a session: redirects a relay of the fleet if this one serves enough others with the track, and
    /// refuses it if the track comes from it. Otherwise returns as what kind of session the subscriber is to be served.
    pub(crate) fn seat(
        &mut self,
        turn: &mut Turn<'_>,
        key: RequestKey,
        name: &FullTrackName,
    ) -> Option<PeerKind> {
        let fleet = self.links.fleet.as_ref();
        let asker = fleet.and_then(|fleet| {
            let relay = *fleet.trees.served.get(&key.0)?;
            fleet.has_joined(relay).then_some(relay)
        });
        let Some(asker) = asker else {
            return Some(turn.kind(key.0));
        };
        let kind = if self.links.has_registered(&name.namespace) {
            PeerKind::Relay
        } else {
            PeerKind::Child
        };
        let Some(id) = self.tracks.find(name) else {
            return Some(kind);
        };
        let Some(track) = self.tracks.get(id) else {
            return Some(kind);
        };
        let sessions = track.publishers().iter().map(Publisher::session);
        let mut sources = sessions.filter_map(|session| self.links.upstreams.relay(session));
        let hops = self.links.hops(id, track);
        if kind == PeerKind::Child && (hops.contains(&asker) || sources.any(|it| it == asker)) {
            turn.counters.fleet_circles_refused += 1;
            turn.refuse(key.0, key.1, RequestErrorCode::DOES_NOT_EXIST);
            return None;
        }
        let depth = hops.len();
        let Some(to) = self.redirect(turn, (key.0, asker), (id, &name.namespace), depth) else {
            return Some(kind);
        };
        turn.redirect(key, to);
        None
    }

    /// Returns the URL of the relay that another one is redirected to; `None` if this one is to serve it.
    fn redirect(
        &mut self,
        turn: &mut Turn<'_>,
        (session, asker): (Handle, RelayId),
        (id, namespace): (TrackId, &Namespace),
        depth: usize,
    ) -> Option<String> {
        let fleet = self.links.fleet.as_mut()?;
        let served = fleet.trees.served.iter();
        let children: Vec<RelayId> = served
            .filter(|(other, relay)| {
                **other != session
                    && fleet.has_joined(**relay)
                    && self.delivery.has_subscriber(id, **other)
            })
            .map(|(_, &relay)| relay)
            .collect();
        let limits = &turn.config.limits;
        if children.len() < limits.fleet_children_max {
            return None;
        }
        // A relay that has registered the namespace itself is asked for its own tracks.
        let may_serve =
            |relay: &RelayId| *relay != asker && !fleet.has_registered(*relay, namespace);
        let mut candidates = children;
        candidates.retain(may_serve);
        if candidates.is_empty() || depth + 2 > limits.fleet_depth_max {
            turn.counters.fleet_children_beyond += 1;
            return None;
        }
        let way = fleet.trees.ways.entry(id).or_default();
        let to = candidates[way.redirected % candidates.len()];
        way.redirected = way.redirected.wrapping_add(1);
        turn.counters.fleet_redirected += 1;
        fleet.url(to)
    }

    /// Notes the redirect of a relay of the fleet that was asked for a track. It is followed when the next relay is asked.
    pub(crate) fn note_redirect(
        &mut self,
        turn: &mut Turn<'_>,
        (id, session): (TrackId, Handle),
        error: &RequestError,
    ) {
        let from = self.links.upstreams.relay(session);
        let (Some(redirect), Some(from), Some(fleet)) =
            (&error.redirect, from, &mut self.links.fleet)
        else {
            return;
        };
        let to = fleet.relay_at(&self.links.upstreams, &redirect.connect_uri);
        let way = fleet.trees.ways.entry(id).or_default();
        let depth_max = turn.config.limits.fleet_depth_max;
        let may_follow = |to: &RelayId| {
            way.hops.last() == Some(&from) && way.hops.len() < depth_max && !way.hops.contains(to)
        };
        let is_same = redirect.track == FullTrackName::default();
        if let Some(to) = to.filter(may_follow).filter(|_| is_same) {
            turn.counters.fleet_redirects_followed += 1;
            way.hops.push(to);
            way.is_redirected = true;
        } else {
            turn.counters.fleet_redirects_refused += 1;
            way.is_lost = true;
        }
    }

    /// Handles a session that declined a track which still comes from a relay that leaves: asks the next one.
    pub(crate) fn on_declined(&mut self, turn: &mut Turn<'_>, id: TrackId, by: Handle) {
        if self.is_leaving(id) && !self.links.awaits(id) {
            self.ask_fleet(turn, id, Some(by));
        }
    }
}

impl Turn<'_> {
    /// Answers a request with a redirect to another relay.
    fn redirect(&mut self, (handle, id): RequestKey, connect_uri: String) {
        let code = RequestErrorCode::REDIRECT;
        self.log_refusal((handle, id), code, None);
        let redirect = Redirect {
            connect_uri,
            track: FullTrackName::default(),
        };
        let error = RequestError {
            redirect: Some(redirect),
            ..RequestError::new(
                code,
                "this relay serves as many relays as it may, and another one has the track",
            )
        };
        self.with_session(handle, |session, connection| {
            session.request_error(connection, id, error);
        });
    }
}

/// The pause before the publisher's relay is asked again, after a redirect that led nowhere. A relay that died is noticed
/// within 1.5 s.
const AGAIN_PAUSE: Duration = Duration::from_millis(200);
/// Redirects that may lead nowhere before the next relay that registered the namespace is asked.
const ATTEMPTS_MAX: u32 = 10;
