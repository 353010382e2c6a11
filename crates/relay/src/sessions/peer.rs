//! One session and what it takes part in.

use std::{collections::BTreeMap, time::Instant};

use weir_moqt::{
    data::SubgroupHeader,
    name::Namespace,
    session::{RequestId, Session},
};
use weir_quic::{Connection, Handle};
use weir_transport::StreamId;

use crate::{
    Credentials, Denial, Grant,
    catalogue::interests::Interest,
    delivery::blocked_streams::{FullStreams, Reader},
    delivery::deadlines::Deliveries,
    delivery::stream::{FanOut, Wait},
    delivery::subscription::Subscriber,
    sessions::admission::Origin,
    sessions::expiries::Expiries,
    sessions::rate::Rate,
    track::subgroup::SubgroupId,
    track::table::TrackId,
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
    /// It is another thread of the relay.
    pub(crate) is_neighbour: bool,
    /// When the session's timer in the relay's queue is due.
    pub(crate) timer: Option<Instant>,
    pub(crate) requests: BTreeMap<RequestId, Part>,
    /// Track of each request that brings objects, sorted by request: looked at for every datagram, so small
    /// and in one piece.
    sources: Vec<(RequestId, TrackId)>,
    /// Subgroup streams being received.
    pub(crate) inbound: BTreeMap<StreamId, Inbound>,
    /// Subgroup streams being sent that took no more data.
    pub(crate) full: FullStreams,
    /// Streams being sent that have to arrive in time.
    pub(crate) deliveries: Deliveries,
    /// Streams being sent that answer its fetches.
    pub(crate) fetch_streams: BTreeMap<StreamId, RequestId>,
    /// Streams being received that answer fetches of the relay.
    pub(crate) feeder_streams: BTreeMap<StreamId, RequestId>,
    /// It said that it serves no FETCH.
    pub(crate) declines_fetch: bool,
    pub(crate) counts: Counts,
    /// Streams of which it never became known what they are for, when it was looked at last.
    pub(crate) resets_early: u64,
    /// Bytes that its subscriptions are behind.
    pub(crate) lag_bytes: u64,
    /// What was shown in SETUP, once it came.
    pub(crate) credentials: Option<Box<Credentials>>,
    /// What that is good for.
    pub(crate) grants: Result<Vec<Grant>, Denial>,
    /// When requests end because their authorization does; most have no such end.
    pub(crate) expiries: Expiries,
    /// When the first of them is looked at.
    pub(crate) expiry_timer: Option<Instant>,
}

/// A subgroup stream being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inbound {
    pub(crate) track: TrackId,
    pub(crate) request: RequestId,
    /// The publisher's header.
    pub(crate) header: SubgroupHeader,
    pub(crate) flow: Flow,
    /// The object that began last is dropped: it was known not to exist.
    pub(crate) is_ruled_out: bool,
}

/// Where the objects of a subgroup stream go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// None has come.
    Fresh,
    /// They are passed on, in this subgroup.
    Passed(SubgroupId),
    /// They are dropped, because another publisher sends them or has sent them.
    Repeated(Repetition),
}

/// How far a subgroup has come whose objects are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repetition {
    /// The subgroup's ID.
    pub(crate) number: u64,
    /// The last object that began.
    pub(crate) object: u64,
    /// Bytes that have come of its payload.
    pub(crate) bytes: u64,
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
    /// The session wants to hear of what lies under a prefix.
    Interest(Box<Interest>),
    /// It fetches objects of the track.
    Fetch(TrackId),
    /// The relay fetches objects of the track from it.
    Feeder(TrackId),
    /// It wants to know how a track stands; the relay's own question to a publisher.
    Status((Handle, RequestId)),
    /// The relay wants to know how a track stands.
    Inquiry,
}

/// How many requests of each kind a session has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sources: usize,
    pub(crate) subscribers: usize,
    pub(crate) namespaces: usize,
    pub(crate) prefixes: usize,
    pub(crate) fetches: usize,
    pub(crate) feeders: usize,
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
            is_neighbour: false,
            timer: None,
            requests: BTreeMap::new(),
            sources: Vec::new(),
            inbound: BTreeMap::new(),
            full: FullStreams::default(),
            deliveries: Deliveries::default(),
            fetch_streams: BTreeMap::new(),
            feeder_streams: BTreeMap::new(),
            declines_fetch: false,
            counts: Counts::default(),
            resets_early: 0,
            lag_bytes: 0,
            credentials: None,
            grants: Err(Denial::Unauthorized),
            expiries: Expiries::default(),
            expiry_timer: None,
        }
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
            Part::Interest(_) => self.counts.prefixes += 1,
            Part::Fetch(_) => self.counts.fetches += 1,
            Part::Feeder(_) => self.counts.feeders += 1,
            Part::Status(_) => self.counts.inquiries += 1,
            Part::Inquiry => {}
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
            Part::Interest(_) => self.counts.prefixes -= 1,
            Part::Fetch(_) => self.counts.fetches -= 1,
            Part::Feeder(_) => self.counts.feeders -= 1,
            Part::Status(_) => self.counts.inquiries -= 1,
            Part::Inquiry => {}
        }
        Some(part)
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
                | Part::Interest(_)
                | Part::Fetch(_)
                | Part::Feeder(_)
                | Part::Status(_)
                | Part::Inquiry => None,
            })
    }

    /// Takes note of how far one of its subscriptions fell behind or caught up, and holds it to what the session may be
    /// behind in all. Others are not to pay for it, even of the same session.
    pub(crate) fn settle_lag(
        &mut self,
        subscriber: &mut Subscriber,
        connection: &mut Connection<'_>,
        max: u64,
        fan_out: &mut FanOut<'_>,
    ) {
        self.lag_bytes = self
            .lag_bytes
            .saturating_add_signed(std::mem::take(&mut fan_out.lag_change));
        let max = if self.is_neighbour {
            // It stands for all sessions of its thread.
            max.saturating_mul(NEIGHBOUR_SESSIONS)
        } else {
            max
        };
        if self.lag_bytes > max {
            let others = self.lag_bytes - subscriber.behind();
            subscriber.shed_beyond(connection, max.saturating_sub(others), fan_out);
            self.lag_bytes = self
                .lag_bytes
                .saturating_add_signed(std::mem::take(&mut fan_out.lag_change));
        }
    }

    /// Takes note of streams of a subscription that wait for room, or no longer do. Returns how many began to.
    pub(crate) fn note_waits(
        &mut self,
        track: TrackId,
        request: RequestId,
        waits: Vec<Wait>,
    ) -> u64 {
        let mut begun = 0;
        for wait in waits {
            match wait {
                Wait::For(stream, rank, id) => {
                    let reader = Reader::Subgroup(track, request, id);
                    begun += u64::from(self.full.insert(stream, rank, reader));
                }
                Wait::Over(stream) => drop(self.full.remove(stream)),
            }
        }
        begun
    }
}

/// A neighbour may be behind by as much as so many sessions.
const NEIGHBOUR_SESSIONS: u64 = 16;
