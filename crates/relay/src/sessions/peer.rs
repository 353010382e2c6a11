//! One session and what it takes part in.

use std::{collections::BTreeMap, time::Instant};

use weir_moqt::{
    name::Namespace,
    session::{RequestId, Session},
};
use weir_quic::Handle;

use crate::{
    Credentials, Denial, Grant,
    ids::{RequestKey, TrackId},
    sessions::admission::Origin,
    sessions::expiries::Expiries,
    sessions::rate::Rate,
};

/// One session.
pub(crate) struct Peer {
    pub(crate) handle: Handle,
    pub(crate) session: Session,
    /// Where it comes from, if that is counted.
    pub(crate) origin: Option<Origin>,
    /// How often it changes requests.
    pub(crate) updates: Rate,
    /// How often it resets or stops streams.
    pub(crate) resets: Rate,
    /// Who is at the other end.
    pub(crate) kind: PeerKind,
    /// When the session's timer in the relay's queue is due.
    pub(crate) timer: Option<Instant>,
    pub(crate) requests: BTreeMap<RequestId, Part>,
    /// Track of each request that brings objects, sorted by request: looked at for every datagram, so small
    /// and in one piece.
    sources: Vec<(RequestId, TrackId)>,
    pub(crate) counts: Counts,
    /// Streams of which it never became known what they are for, when it was looked at last.
    pub(crate) resets_early: u64,
    /// What was shown in SETUP, once it came.
    pub(crate) credentials: Option<Box<Credentials>>,
    /// What that is good for.
    pub(crate) grants: Result<Vec<Grant>, Denial>,
    /// When requests end because their authorization does; most have no such end.
    pub(crate) expiries: Expiries,
    /// When the first of them is looked at.
    pub(crate) expiry_timer: Option<Instant>,
}

/// Who is at the other end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerKind {
    /// A publisher or subscriber that connected to the relay.
    Client,
    /// Another relay, which stands for all of its own clients.
    Link,
}

/// What a request of a session stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Objects of the track come from this session: its PUBLISH, or a SUBSCRIBE to it.
    Source(TrackId),
    /// Objects of the track go to this session, or will once there is a publisher.
    Subscriber(TrackId),
    /// The session announced a namespace.
    Namespace(Namespace),
    /// The session subscribes to the namespaces or tracks under a prefix.
    Prefix(Namespace),
    /// It fetches objects of the track.
    Fetch(TrackId),
    /// The relay fetches objects of the track from it.
    UpstreamFetch(TrackId),
    /// The session sent TRACK_STATUS and waits for the answer of a publisher.
    TrackStatus,
    /// The relay sent TRACK_STATUS for this request of another session.
    UpstreamStatus(RequestKey),
}

/// How many requests of each kind a session has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sources: usize,
    pub(crate) subscribers: usize,
    pub(crate) namespaces: usize,
    pub(crate) prefixes: usize,
    pub(crate) fetches: usize,
    pub(crate) upstream_fetches: usize,
    pub(crate) inquiries: usize,
}

impl Peer {
    pub(crate) fn new(handle: Handle, session: Session, origin: Option<Origin>) -> Self {
        Self {
            handle,
            origin,
            updates: Rate::default(),
            resets: Rate::default(),
            session,
            kind: PeerKind::Client,
            timer: None,
            requests: BTreeMap::new(),
            sources: Vec::new(),
            counts: Counts::default(),
            resets_early: 0,
            credentials: None,
            grants: Err(Denial::Unauthorized),
            expiries: Expiries::default(),
            expiry_timer: None,
        }
    }

    /// Whether the other end is another relay.
    #[inline]
    pub(crate) fn is_link(&self) -> bool {
        self.kind == PeerKind::Link
    }

    pub(crate) fn insert(&mut self, request: RequestId, part: Part) {
        match &part {
            Part::Source(track) => {
                let place = self.sources.partition_point(|&(other, _)| other < request);
                self.sources.insert(place, (request, *track));
                self.counts.sources += 1;
            }
            Part::Subscriber(_) => self.counts.subscribers += 1,
            Part::Namespace(_) => self.counts.namespaces += 1,
            Part::Prefix(_) => self.counts.prefixes += 1,
            Part::Fetch(_) => self.counts.fetches += 1,
            Part::UpstreamFetch(_) => self.counts.upstream_fetches += 1,
            Part::TrackStatus => self.counts.inquiries += 1,
            Part::UpstreamStatus(_) => {}
        }
        let before = self.requests.insert(request, part);
        debug_assert!(
            before.is_none(),
            "the session gives every request its own ID"
        );
    }

    pub(crate) fn remove(&mut self, request: RequestId) -> Option<Part> {
        let part = self.requests.remove(&request)?;
        self.expiries.remove(request);
        match part {
            Part::Source(_) => {
                self.sources.retain(|&(other, _)| other != request);
                self.counts.sources -= 1;
            }
            Part::Subscriber(_) => self.counts.subscribers -= 1,
            Part::Namespace(_) => self.counts.namespaces -= 1,
            Part::Prefix(_) => self.counts.prefixes -= 1,
            Part::Fetch(_) => self.counts.fetches -= 1,
            Part::UpstreamFetch(_) => self.counts.upstream_fetches -= 1,
            Part::TrackStatus => self.counts.inquiries -= 1,
            Part::UpstreamStatus(_) => {}
        }
        Some(part)
    }

    /// Notes that a request is for another prefix now.
    pub(crate) fn change_prefix(&mut self, request: RequestId, prefix: Namespace) {
        if let Some(Part::Prefix(current)) = self.requests.get_mut(&request) {
            *current = prefix;
        }
    }

    /// The track that the objects of a request belong to.
    #[inline]
    pub(crate) fn source(&self, request: RequestId) -> Option<TrackId> {
        let sources = &self.sources;
        let place = sources.binary_search_by_key(&request, |&(other, _)| other);
        place.ok().map(|place| sources[place].1)
    }

    /// The subscriptions of this session, waiting ones included.
    pub(crate) fn subscriptions(&self) -> impl Iterator<Item = (RequestId, TrackId)> {
        self.requests
            .iter()
            .filter_map(|(&request, part)| match part {
                Part::Subscriber(track) => Some((request, *track)),
                Part::Source(_)
                | Part::Namespace(_)
                | Part::Prefix(_)
                | Part::Fetch(_)
                | Part::UpstreamFetch(_)
                | Part::TrackStatus
                | Part::UpstreamStatus(_) => None,
            })
    }
}
