//! One session and its requests.

use std::{collections::BTreeMap, time::Instant};

use weir_moqt::{
    name::Namespace,
    session::{RequestId, Session},
};
use weir_quic::{Counted, Handle, Origin};

use super::{
    access::Access, deadlines::Silence, expiries::Expiries, rate::Rate, verifying::Verified,
};
use crate::{
    AccessToken, Grant, TokenMemo,
    ids::{RequestKey, TrackId},
    ownership::Reservations,
    timers::Timer,
};

/// One session.
pub(crate) struct Peer {
    pub(super) handle: Handle,
    kind: PeerKind,
    session: Session,
    /// Counts the session for its address.
    counted: Option<Counted>,
    /// Counts what its requests have added for its address.
    pub(super) shares: BTreeMap<RequestId, Counted>,
    /// The rate of its updates.
    pub(super) updates: Rate,
    /// The rate at which matches of its prefixes are counted.
    pub(super) matches: Rate,
    /// The rate of its stream resets and stops.
    pub(super) resets: Rate,
    /// When the session's timer in the relay's queue is due.
    pub(super) timer: Option<Instant>,
    requests: BTreeMap<RequestId, Purpose>,
    /// The track of each request that brings objects, sorted by request. Every datagram causes a look-up, so the list
    /// is small and contiguous.
    sources: Vec<(RequestId, TrackId)>,
    counts: Counts,
    /// Objects of subscriptions received, if the session is a link to an upstream relay.
    pub(crate) objects: u64,
    /// The number of streams that were reset before they could be attributed, at the last check.
    pub(super) resets_early: u64,
    /// The rights of the session.
    pub(super) access: Access,
    /// When its requests expire; most requests do not.
    pub(super) expiries: Expiries,
    /// When the earliest expiry is checked.
    pub(super) expiry_timer: Option<Instant>,
    /// The tokens by which a request is permitted, if they came with it.
    own_tokens: BTreeMap<RequestId, Vec<AccessToken>>,
    /// Namespaces that the session has reserved.
    pub(super) reserved: Reservations,
    /// What is known of its tokens.
    pub(super) memo: TokenMemo,
    /// The tokens that were verified lately.
    pub(super) verified: Verified,
    /// By when the session has to make a permitted request, if it has no rights.
    pub(super) permit_by: Option<Instant>,
    /// How long nothing has come from the session, if it publishes.
    pub(super) silence: Option<Silence>,
    /// Whether it has not answered a request of the relay in time, nor any since.
    pub(super) is_unresponsive: bool,
}

/// The kind of peer of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PeerKind {
    /// A publisher or subscriber, or a relay that connected as one.
    Client,
    /// A relay of the fleet that asks for what the clients of this relay publish. It has the rights of a client.
    Relay,
    /// The same, with a subscription to a track that the fleet's registry does not say to be here: it was redirected here, and is
    /// served also from links to relays of the fleet. No session as a whole is of this kind.
    Child,
    /// A link to a relay of the same process.
    Sibling,
    /// A link to a relay that this relay asks for what it does not have.
    Upstream,
    /// A link to a relay of the fleet, which is asked for what the registry says that it has.
    Fleet,
}

impl PeerKind {
    /// Every kind, in the order of their numbers.
    pub(crate) const ALL: [Self; 6] = [
        Self::Client,
        Self::Relay,
        Self::Child,
        Self::Sibling,
        Self::Upstream,
        Self::Fleet,
    ];

    /// Returns whether it is a link. The relay behind a link acts for all of its clients.
    #[inline]
    pub(crate) fn is_link(self) -> bool {
        match self {
            Self::Client | Self::Relay | Self::Child => false,
            Self::Sibling | Self::Upstream | Self::Fleet => true,
        }
    }

    /// Returns whether objects and announcements of a session of this kind are passed on to sessions of the kind
    /// `other`, and requests of those to it. What came over a link is not passed on over a link of the same kind, nor
    /// from one machine to the next, so nothing circulates ("split horizon"). The exception are relays of the fleet that
    /// were redirected here (`links/tree.rs`).
    #[inline]
    pub(crate) fn serves(self, other: Self) -> bool {
        match self {
            Self::Client | Self::Relay | Self::Child => true,
            Self::Sibling => other != Self::Sibling,
            Self::Upstream => matches!(other, Self::Client | Self::Sibling),
            Self::Fleet => matches!(other, Self::Client | Self::Sibling | Self::Child),
        }
    }

    /// Returns whether it is a link to another machine.
    #[inline]
    pub(crate) fn is_remote_link(self) -> bool {
        matches!(self, Self::Upstream | Self::Fleet)
    }
}

/// The purpose of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Objects of the track come from this session: its PUBLISH, or a SUBSCRIBE to it.
    Source(TrackId),
    /// Objects of the track go to this session, or will once there is a publisher.
    Subscriber(TrackId),
    /// The session announced a namespace.
    Namespace(Namespace),
    /// The session subscribes to the namespaces or tracks under a prefix.
    Prefix(Namespace),
    /// The session fetches objects of the track.
    Fetch(TrackId),
    /// The relay fetches objects of the track from the session.
    UpstreamFetch(TrackId),
    /// The session sent TRACK_STATUS and waits for the answer of a publisher.
    TrackStatus,
    /// The relay sent TRACK_STATUS for this request of another session.
    UpstreamTrackStatus(RequestKey),
    /// The relay subscribes to the namespaces or tracks under a prefix at the relay behind a link.
    UpstreamPrefix,
    /// The relay announced a namespace over a link.
    Announcement,
    /// The relay asked over a link whether its requests return to it.
    RingProbe,
    /// The request of the session waits until a link to a relay of the fleet is established.
    AwaitsLink,
}

/// The subject of a subscription to a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PrefixKind {
    /// Namespaces: SUBSCRIBE_NAMESPACE.
    Namespaces,
    /// Tracks: SUBSCRIBE_TRACKS.
    Tracks,
}

/// The number of a session's requests of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sources: usize,
    pub(crate) subscribers: usize,
    pub(crate) namespaces: usize,
    pub(crate) prefixes: usize,
    pub(crate) fetches: usize,
    pub(crate) upstream_fetches: usize,
    pub(crate) track_statuses: usize,
}

impl Counts {
    /// Returns whether a session publishes or announces anything.
    pub(crate) fn publishes(&self) -> bool {
        self.sources + self.namespaces > 0
    }

    /// Returns the count that a purpose belongs to, if it is counted.
    fn of(&mut self, purpose: &Purpose) -> Option<&mut usize> {
        match purpose {
            Purpose::Source(_) => Some(&mut self.sources),
            Purpose::Subscriber(_) => Some(&mut self.subscribers),
            Purpose::Namespace(_) => Some(&mut self.namespaces),
            Purpose::Prefix(_) => Some(&mut self.prefixes),
            Purpose::Fetch(_) => Some(&mut self.fetches),
            Purpose::UpstreamFetch(_) => Some(&mut self.upstream_fetches),
            Purpose::TrackStatus => Some(&mut self.track_statuses),
            Purpose::UpstreamTrackStatus(_)
            | Purpose::UpstreamPrefix
            | Purpose::Announcement
            | Purpose::RingProbe
            | Purpose::AwaitsLink => None,
        }
    }
}

impl Peer {
    /// Creates the session of a publisher or subscriber.
    pub(crate) fn client(handle: Handle, session: Session, counted: Counted) -> Self {
        let access = Access::Unknown;
        Self::new((handle, PeerKind::Client), session, Some(counted), access)
    }

    /// Creates the session of another relay, which acts for all of its clients.
    pub(crate) fn link(handle: Handle, kind: PeerKind, session: Session) -> Self {
        let access = Access::Link(Grant::everything());
        Self::new((handle, kind), session, None, access)
    }

    /// Returns whether the session's draft refuses a subscription whose filter ends before the largest object.
    pub(crate) fn refuses_past_filters(&self) -> bool {
        self.session.draft().refuses_past_filters()
    }

    fn new(
        (handle, kind): (Handle, PeerKind),
        session: Session,
        counted: Option<Counted>,
        access: Access,
    ) -> Self {
        Self {
            handle,
            kind,
            counted,
            shares: BTreeMap::new(),
            updates: Rate::default(),
            matches: Rate::default(),
            resets: Rate::default(),
            session,
            timer: None,
            requests: BTreeMap::new(),
            sources: Vec::new(),
            counts: Counts::default(),
            objects: 0,
            resets_early: 0,
            access,
            expiries: Expiries::default(),
            expiry_timer: None,
            own_tokens: BTreeMap::new(),
            reserved: Reservations::default(),
            memo: TokenMemo::default(),
            verified: Verified::default(),
            permit_by: None,
            silence: None,
            is_unresponsive: false,
        }
    }

    /// Notes that the session is that of a relay of the fleet.
    pub(crate) fn become_relay(&mut self) {
        assert_eq!(self.kind, PeerKind::Client, "only clients can be relays");
        self.kind = PeerKind::Relay;
    }

    /// Returns what the session is to this relay.
    #[inline]
    pub(crate) fn kind(&self) -> PeerKind {
        self.kind
    }

    /// Returns whether the session is a link.
    #[inline]
    pub(crate) fn is_link(&self) -> bool {
        self.kind.is_link()
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Returns where it comes from, if its address is counted.
    pub(crate) fn origin(&self) -> Option<Origin> {
        self.counted.as_ref()?.origin()
    }

    /// Returns the number of its requests of each kind.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the purpose of a request.
    pub(crate) fn purpose(&self, request: RequestId) -> Option<&Purpose> {
        self.requests.get(&request)
    }

    /// Returns the tokens that came with a request, or with the one that it was derived from.
    pub(crate) fn own_tokens(&self, request: RequestId) -> Vec<AccessToken> {
        self.own_tokens.get(&request).cloned().unwrap_or_default()
    }

    /// Notes the tokens by which a request is permitted. None: the session's grants permit it.
    pub(crate) fn set_own_tokens(&mut self, request: RequestId, tokens: Vec<AccessToken>) {
        if tokens.is_empty() {
            self.own_tokens.remove(&request);
        } else {
            self.own_tokens.insert(request, tokens);
        }
    }

    /// Returns the tracks whose objects come from the session.
    pub(crate) fn published(&self) -> impl Iterator<Item = TrackId> {
        self.sources.iter().map(|&(_, track)| track)
    }

    /// Returns the tracks that it has named in a request of its own, once for each: those that it offers, and those that
    /// it subscribes to or waits for.
    pub(crate) fn named(&self) -> impl Iterator<Item = TrackId> {
        let offered = self.sources.iter();
        let offered = offered.filter(|&&(request, _)| self.session.is_of_peer(request));
        let subscribed = self.subscriptions().map(|(_, track)| track);
        offered.map(|&(_, track)| track).chain(subscribed)
    }

    /// Returns the bytes in memory for its requests and for control messages that it does not read. Visits every request.
    pub(crate) fn held_bytes(&self) -> u64 {
        let requests = self.requests.len() as u64 * REQUEST_BYTES;
        let tokens = self.own_tokens.values().flatten();
        let tokens: usize = tokens.map(|token| token.value.len()).sum();
        let names = self.requests.values().map(|purpose| {
            if let Purpose::Namespace(name) | Purpose::Prefix(name) = purpose {
                name.bytes_len()
            } else {
                0
            }
        });
        let known = names.sum::<usize>() + self.memo.held_bytes() + self.reserved.held_bytes();
        requests + (tokens + known + self.session.waiting_bytes()) as u64
    }

    /// Returns the number of its requests.
    pub(crate) fn requests_len(&self) -> usize {
        self.requests.len()
    }

    /// Returns its requests, in order of their ID.
    pub(crate) fn requests(&self) -> impl Iterator<Item = RequestId> {
        self.requests.keys().copied()
    }

    /// Returns its requests with their purposes.
    pub(crate) fn into_requests(self) -> BTreeMap<RequestId, Purpose> {
        self.requests
    }

    /// Returns when the authorization of a request expires.
    pub(crate) fn expiry(&self, request: RequestId) -> Option<Instant> {
        self.expiries.get(request)
    }

    /// Returns the timers that are set for the session.
    pub(crate) fn timers(&self) -> [(Option<Instant>, Timer); 4] {
        let silence = self.silence.map(|silence| silence.due);
        [
            (self.timer, Timer::Session(self.handle)),
            (self.expiry_timer, Timer::Expiry(self.handle)),
            (self.permit_by, Timer::Unauthorized(self.handle)),
            (silence, Timer::Silence(self.handle)),
        ]
    }

    pub(crate) fn insert(&mut self, request: RequestId, purpose: Purpose) {
        if let Purpose::Source(track) = purpose {
            let place = self.sources.partition_point(|&(other, _)| other < request);
            self.sources.insert(place, (request, track));
        }
        if let Some(count) = self.counts.of(&purpose) {
            *count += 1;
        }
        let before = self.requests.insert(request, purpose);
        debug_assert!(
            before.is_none(),
            "the session gives every request its own ID"
        );
    }

    pub(crate) fn remove(&mut self, request: RequestId) -> Option<Purpose> {
        self.own_tokens.remove(&request);
        self.reserved.on_ended(request);
        self.shares.remove(&request);
        let purpose = self.requests.remove(&request)?;
        self.expiries.remove(request);
        if let Purpose::Source(_) = purpose {
            self.sources.retain(|&(other, _)| other != request);
        }
        if let Some(count) = self.counts.of(&purpose) {
            *count -= 1;
        }
        Some(purpose)
    }

    /// Removes a request that waited for a link, but not what permits it.
    pub(crate) fn end_wait(&mut self, request: RequestId) {
        let purpose = self.requests.remove(&request);
        debug_assert_eq!(purpose, Some(Purpose::AwaitsLink));
    }

    /// Changes the prefix of a request.
    pub(crate) fn change_prefix(&mut self, request: RequestId, prefix: Namespace) {
        if let Some(Purpose::Prefix(current)) = self.requests.get_mut(&request) {
            *current = prefix;
        }
    }

    /// Returns the track that the objects of a request belong to.
    #[inline]
    pub(crate) fn source(&self, request: RequestId) -> Option<TrackId> {
        let sources = &self.sources;
        let place = sources.binary_search_by_key(&request, |&(other, _)| other);
        place.ok().map(|place| sources[place].1)
    }

    /// Returns the subscriptions of the session, including those that wait.
    pub(crate) fn subscriptions(&self) -> impl Iterator<Item = (RequestId, TrackId)> {
        self.requests
            .iter()
            .filter_map(|(&request, purpose)| match purpose {
                Purpose::Subscriber(track) => Some((request, *track)),
                Purpose::Source(_)
                | Purpose::Namespace(_)
                | Purpose::Prefix(_)
                | Purpose::Fetch(_)
                | Purpose::UpstreamFetch(_)
                | Purpose::TrackStatus
                | Purpose::UpstreamTrackStatus(_)
                | Purpose::UpstreamPrefix
                | Purpose::Announcement
                | Purpose::RingProbe
                | Purpose::AwaitsLink => None,
            })
    }
}

/// About what a request costs, in the session, in the relay's tables and in its track.
const REQUEST_BYTES: u64 = 1 << 10;
