//! Delivery: the subscriptions of every track, and the data under way to every session.
//!
//! Objects are not queued per subscriber: a subscription has a cursor into the log of each subgroup that it reads. A
//! slow session delays only itself.

mod blocked_streams;
mod deadlines;
mod ending;
mod established;
mod fan_out;
mod outgoing;
mod pending;
mod state;
mod stream;
mod subscribe;
mod subscription;
mod timeouts;
mod update;

use std::{collections::BTreeSet, time::Instant};

use weir_moqt::{
    parameter::Parameters,
    property::Properties,
    session::{Refused, RequestId},
};
use weir_quic::Handle;

pub(crate) use self::{blocked_streams::Reader, ending::Scope, update::Joined};

use self::{
    established::Established, outgoing::Outgoing, pending::Pending, subscription::Subscription,
};
use crate::{
    ids::{BySession, ByTrack, SubgroupId, TrackId},
    sessions::peer::{PeerKind, Purpose},
    track::{Demand, Track},
    turn::Turn,
};

/// Subscriptions of all tracks, and the streams under way to sessions.
#[derive(Default)]
pub(crate) struct Delivery {
    tracks: ByTrack<Subscriptions>,
    sessions: BySession<Outgoing>,
    /// Subgroups that some subscriber has released and that are not yet trimmed.
    untrimmed: BTreeSet<(TrackId, SubgroupId)>,
}

/// The subscribers of one track.
#[derive(Debug, Default)]
struct Subscriptions {
    /// Sorted by session and request, so that the fan-out visits connections in memory order.
    established: Established,
    /// SUBSCRIBE requests that wait for a publisher.
    pending: Pending,
}

/// Numbers of subscriptions, over all tracks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Subscriptions of relays of the same process.
    pub(crate) siblings: usize,
    /// Established subscriptions of clients.
    pub(crate) clients: usize,
    /// SUBSCRIBE requests of clients that wait for a publisher.
    pub(crate) pending: usize,
}

impl Delivery {
    /// Returns the demand that publishers of a kind have to know. Only sessions that they serve count. For a publisher
    /// behind a link, waiting requests count even with FORWARD 0, since their answer needs the largest location.
    pub(crate) fn demand(&self, id: TrackId, publisher: PeerKind) -> Demand {
        let Some(subscriptions) = self.tracks.get(id) else {
            return Demand::NONE;
        };
        let Subscriptions {
            established,
            pending,
        } = subscriptions;
        let counts = |subscriber: PeerKind| publisher.serves(subscriber);
        let is_subscribed = established
            .iter()
            .any(|other| counts(other.kind) && !other.is_declined_offer());
        let is_pending = pending.any(counts);
        let wants = |other: &Subscription| other.forwards() && !other.is_ending();
        let is_wanted = established
            .iter()
            .any(|other| wants(other) && counts(other.kind))
            || if publisher.is_link() {
                is_pending
            } else {
                pending.any_wants_objects(counts)
            };
        Demand {
            is_wanted,
            is_unwanted: !is_subscribed && !is_pending,
            new_group: pending.new_group(),
            has_subscriptions: !established.is_empty(),
        }
    }

    /// Returns whether a track has neither subscriptions nor waiting requests.
    pub(crate) fn is_unused(&self, id: TrackId) -> bool {
        let subscriptions = self.tracks.get(id);
        subscriptions.is_none_or(|it| it.established.is_empty() && it.pending.is_empty())
    }

    /// Returns the number of streams that a subscription has or waits for.
    pub(crate) fn streams_of(&self, (id, handle, request): (TrackId, Handle, RequestId)) -> usize {
        let subscriptions = self.tracks.get(id);
        let subscription = subscriptions.and_then(|it| it.established.get(handle, request));
        subscription.map_or(0, Subscription::streams_len)
    }

    /// Returns whether a track has established subscriptions that can go on: those that are ending need no publisher.
    pub(crate) fn has_lasting(&self, id: TrackId) -> bool {
        let lasts = |it: &Subscription| !it.is_ending();
        let subscriptions = self.tracks.get(id);
        subscriptions.is_some_and(|it| it.established.iter().any(lasts))
    }

    /// Returns whether a session has a subscription to a track, or a waiting request for it.
    pub(crate) fn has_subscriber(&self, id: TrackId, handle: Handle) -> bool {
        self.tracks.get(id).is_some_and(|it| it.has_session(handle))
    }

    /// Returns whether a session is a relay of the fleet that was redirected here for a track.
    pub(crate) fn has_child(&self, id: TrackId, handle: Handle) -> bool {
        let subscriptions = self.tracks.get(id);
        subscriptions.is_some_and(|it| {
            let mut established = it.established.iter();
            established.any(|other| other.handle == handle && other.kind == PeerKind::Child)
        })
    }

    /// Removes the subscriptions of a track that is gone.
    pub(crate) fn forget_track(&mut self, id: TrackId) {
        self.tracks.remove(id);
    }

    /// Removes what was under way to a session that is gone. Returns when its timer is due.
    pub(crate) fn forget_session(&mut self, handle: Handle) -> Option<Instant> {
        self.sessions.remove(handle)?.disarm()
    }

    /// Returns the bytes that all subscriptions have not read.
    pub(crate) fn lag_bytes(&self) -> u64 {
        self.sessions.iter().map(|it| it.lag_bytes()).sum()
    }

    /// Returns the bytes that the subscriptions of a session have not read.
    pub(crate) fn lag_of(&self, handle: Handle) -> u64 {
        let outgoing = self.sessions.get(handle);
        outgoing.map_or(0, |outgoing| outgoing.lag_bytes())
    }

    /// Counts subscriptions. Visits every track.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for subscriptions in self.tracks.iter() {
            let siblings = subscriptions.siblings_len();
            totals.siblings += siblings;
            totals.clients += subscriptions.established.clients_len();
            totals.pending += subscriptions.pending.clients_len();
        }
        totals
    }

    /// Returns the numbers of a track's subscriptions and of its waiting requests.
    pub(crate) fn lens(&self, id: TrackId) -> (usize, usize) {
        let subscriptions = self.tracks.get(id);
        subscriptions.map_or((0, 0), |it| (it.established.len(), it.pending.len()))
    }

    /// Sends PUBLISH for a track to a session, and subscribes the session to the track with the parameters that it wants
    /// [moqt-21 §9.18.1]. Objects follow without waiting for the answer. Returns the ID of the request.
    pub(crate) fn publish(
        &mut self,
        turn: &mut Turn<'_>,
        (id, track): (TrackId, &Track),
        handle: Handle,
        wanted: &Parameters,
    ) -> Result<RequestId, Refused> {
        let (name, alias) = (track.name().clone(), track.alias());
        let properties = if wanted.include_properties == Some(false) {
            Properties::EMPTY
        } else {
            track.properties().clone()
        };
        let sent = turn.with_session(handle, |session, connection| {
            let offer = Parameters {
                largest_object: track.largest(),
                fill: wanted.fill.clone(),
                ..wanted.repeated_in_publish(session.draft())
            };
            session.publish_now(connection, name, alias, offer, properties)
        });
        let request = sent.unwrap_or(Err(Refused::Closed))?;
        let mut kind = PeerKind::Client;
        if let Some(peer) = turn.sessions.get(handle) {
            peer.insert(request, Purpose::Subscriber(id));
            kind = peer.kind();
        }
        let (largest, defaults) = (track.largest(), track.defaults());
        let mut subscription = Subscription::new(handle, request, wanted, largest, defaults);
        subscription.kind = kind;
        subscription.is_offer = kind.is_link();
        self.tracks.entry(id).established.insert(subscription);
        Ok(request)
    }
}

impl Subscriptions {
    fn has_session(&self, handle: Handle) -> bool {
        self.established.has_session(handle) || self.pending.has_session(handle)
    }

    /// Returns the number of subscriptions of relays of the same process, which are sorted first.
    fn siblings_len(&self) -> usize {
        let mut established = self.established.iter();
        let first_other =
            established.position(|subscription| subscription.kind != PeerKind::Sibling);
        first_other.unwrap_or(self.established.len())
    }
}
