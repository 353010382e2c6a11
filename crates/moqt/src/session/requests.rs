//! The table of requests of both endpoints, each from its first message to the end of its stream.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::request_ids::RequestId;
use super::request_state::{EndedBy, Opener, State};
use super::send_stream::SendStream;
use crate::location::Location;
use crate::message::{RequestKind, RequestOk};
use crate::name::{FullTrackName, Namespace};
use crate::parameter::{Filter, GroupOrder, Parameters};
use crate::reader::MessageReader;

/// All requests whose stream is not over, and those that wait for one.
#[derive(Debug, Default)]
pub(super) struct Requests {
    table: BTreeMap<RequestId, Entry>,
    /// Own requests without a stream, in the order in which they were made.
    queued: VecDeque<RequestId>,
    /// Ended requests whose stream is not over, oldest first.
    draining: VecDeque<RequestId>,
    own_live: usize,
    peer_live: usize,
    /// Own subscriptions without an answer.
    awaiting_alias: usize,
}

/// One request, and its stream.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) kind: RequestKind,
    pub(super) opener: Opener,
    pub(super) state: State,
    /// This endpoint's direction of the stream; not open while the request is queued.
    pub(super) sending: SendStream,
    /// Reads the peer's direction of the stream, until its end.
    pub(super) reader: Option<MessageReader>,
    pub(super) subject: Subject,
    /// The terms of a subscription, in drafts in which fills depend on them.
    pub(super) terms: Option<Box<Terms>>,
    /// The fills of a subscription that may not be over.
    pub(super) fills: Vec<RequestId>,
    /// Whether the requester wants no Track Properties in the answer.
    pub(super) omits_properties: bool,
}

/// What the subscriber of a track has set, and how many fills it got.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) forward: bool,
    pub(super) priority: Option<u8>,
    pub(super) group_order: Option<GroupOrder>,
    pub(super) filter: Filter,
    /// Number of streams opened for fills.
    pub(super) fill_streams: u64,
}

impl Terms {
    pub(super) fn new(parameters: &Parameters) -> Self {
        Self {
            forward: parameters.forward.unwrap_or(true),
            priority: parameters.subscriber_priority,
            group_order: parameters.group_order,
            filter: parameters.filter.unwrap_or(Filter::EVERYTHING),
            fill_streams: 0,
        }
    }

    /// Applies an update; parameters absent from it stay.
    pub(super) fn change(&mut self, update: &Parameters) {
        self.forward = update.forward.unwrap_or(self.forward);
        self.priority = update.subscriber_priority.or(self.priority);
        self.filter = update.filter.unwrap_or(self.filter);
    }
}

/// The subject of a request, as far as the session needs it later.
#[derive(Debug)]
pub(super) enum Subject {
    /// Nothing.
    None,
    /// The track of a subscription whose objects come here.
    Track(FullTrackName),
    /// The start of an own standalone fetch.
    Range(Location),
    /// The subscription that a fill belongs to.
    Fill(RequestId),
    /// An own `SUBSCRIBE_NAMESPACE`.
    Namespaces(Box<Announced>),
    /// An own `SUBSCRIBE_TRACKS` with a fill for each track.
    FilledTracks {
        prefix: Namespace,
        order: Option<GroupOrder>,
    },
}

/// The namespaces that the peer has announced in answer to a `SUBSCRIBE_NAMESPACE`.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) prefix: Namespace,
    /// In full, since an update of the prefix changes the suffixes.
    pub(super) namespaces: BTreeSet<Namespace>,
}

impl Announced {
    pub(super) fn new(prefix: Namespace) -> Self {
        Self {
            prefix,
            namespaces: BTreeSet::new(),
        }
    }
}

impl Entry {
    /// Creates a request without an answer, whose stream is not read.
    pub(super) fn new(kind: RequestKind, opener: Opener, sending: SendStream) -> Self {
        Self {
            kind,
            opener,
            state: State::new(),
            sending,
            reader: None,
            subject: Subject::None,
            terms: None,
            fills: Vec::new(),
            omits_properties: false,
        }
    }

    /// Returns whether objects of the request come to this endpoint.
    pub(super) fn receives_objects(&self) -> bool {
        match self.opener {
            Opener::Here => matches!(self.kind, RequestKind::Subscribe | RequestKind::Fetch),
            Opener::Peer => self.kind == RequestKind::Publish,
        }
    }

    /// Returns whether the answer to the request will name a track alias.
    fn awaits_alias(&self) -> bool {
        self.opener == Opener::Here
            && self.kind == RequestKind::Subscribe
            && self.state.is_pending()
    }

    /// Returns whether neither side has ended the request.
    pub(super) fn is_live(&self) -> bool {
        self.state.live().is_some()
    }

    /// Returns whether either side has ended the request, and this endpoint owes no answer.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }

    /// Returns whether both directions of the stream are over.
    pub(super) fn is_gone(&self) -> bool {
        self.reader.is_none() && self.sending.is_closed()
    }
}

impl Requests {
    pub(super) fn get(&self, id: RequestId) -> Option<&Entry> {
        self.table.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: RequestId) -> Option<&mut Entry> {
        self.table.get_mut(&id)
    }

    /// Adds a request with a stream.
    pub(super) fn insert(&mut self, id: RequestId, request: Entry) {
        match request.opener {
            Opener::Here => self.own_live += 1,
            Opener::Peer => self.peer_live += 1,
        }
        self.awaiting_alias += usize::from(request.awaits_alias());
        let previous = self.table.insert(id, request);
        assert!(previous.is_none(), "a Request ID is used once");
    }

    /// Adds an own request that waits for a stream.
    pub(super) fn queue(&mut self, id: RequestId, request: Entry) {
        self.queued.push_back(id);
        self.insert(id, request);
    }

    /// Returns the own request that has waited longest for a stream.
    pub(super) fn first_queued(&self) -> Option<RequestId> {
        self.queued.front().copied()
    }

    /// Takes the request that has waited longest out of the queue, since there is a stream for it.
    pub(super) fn pop_first_queued(&mut self) -> Option<&mut Entry> {
        self.table.get_mut(&self.queued.pop_front()?)
    }

    /// Records the OK to a request; returns the OKs to its updates that follow it.
    pub(super) fn establish(&mut self, id: RequestId) -> VecDeque<RequestOk> {
        let Some(request) = self.table.get_mut(&id) else {
            return VecDeque::new();
        };
        self.awaiting_alias -= usize::from(request.awaits_alias());
        let State::Pending { live, granted } = &mut request.state else {
            panic!("a request is answered once");
        };
        let granted = std::mem::take(granted);
        request.state = State::Established(std::mem::take(live));
        granted
    }

    /// Records the peer's `PUBLISH_DONE`; returns whether this endpoint still has to answer the `PUBLISH`.
    pub(super) fn done(&mut self, id: RequestId) -> bool {
        let Some(request) = self.table.get_mut(&id) else {
            return false;
        };
        let is_unanswered = request.state.is_pending();
        let state = match &mut request.state {
            State::Pending { live, granted } => State::DoneUnanswered {
                updates_due: live.updates_due,
                granted: std::mem::take(granted),
            },
            State::Established(_) | State::DoneUnanswered { .. } | State::Ended(_) => {
                State::Ended(EndedBy::Peer { is_reported: false })
            }
        };
        self.end_in(id, state);
        is_unanswered
    }

    /// Ends a request, and keeps it until its stream is over.
    pub(super) fn end(&mut self, id: RequestId, by: EndedBy) {
        self.end_in(id, State::Ended(by));
    }

    /// Records that the role wants no notice of the end of a request that the peer has ended.
    pub(super) fn note_reported(&mut self, id: RequestId) {
        if let Some(request) = self.table.get_mut(&id)
            && let State::Ended(EndedBy::Peer { is_reported }) = &mut request.state
        {
            *is_reported = true;
        }
    }

    /// Puts a request into a state in which it is not live, and counts it as draining.
    fn end_in(&mut self, id: RequestId, state: State) {
        let Some(request) = self.table.get_mut(&id) else {
            return;
        };
        let was_live = request.is_live();
        self.awaiting_alias -= usize::from(request.awaits_alias());
        request.state = state;
        let opener = request.opener;
        if was_live {
            self.draining.push_back(id);
            self.count_down(opener);
        }
    }

    /// Forgets a request.
    pub(super) fn remove(&mut self, id: RequestId) -> Option<Entry> {
        let request = self.table.remove(&id)?;
        self.awaiting_alias -= usize::from(request.awaits_alias());
        if request.is_live() {
            self.count_down(request.opener);
        } else if let Some(at) = self.draining.iter().position(|&other| other == id) {
            self.draining.remove(at);
        }
        if request.sending.stream().is_none() {
            self.queued.retain(|&other| other != id);
        }
        Some(request)
    }

    /// Returns the oldest ended request whose stream is not over, if there are more than `max`.
    pub(super) fn draining_beyond(&self, max: usize) -> Option<RequestId> {
        if self.draining.len() > max {
            self.draining.front().copied()
        } else {
            None
        }
    }

    /// Returns the number of own requests that neither side has ended, including queued ones.
    pub(super) fn own_live(&self) -> usize {
        self.own_live
    }

    /// Returns the number of the peer's requests that neither side has ended.
    pub(super) fn peer_live(&self) -> usize {
        self.peer_live
    }

    /// Returns the order of groups in the fill that an own `SUBSCRIBE_TRACKS` asks for, of the tracks in a namespace.
    pub(super) fn fill_of_tracks(&self, namespace: &Namespace) -> Option<GroupOrder> {
        self.table.values().find_map(|request| {
            let Subject::FilledTracks { prefix, order } = &request.subject else {
                return None;
            };
            let covers = request.is_live() && namespace.starts_with(prefix);
            covers.then(|| order.unwrap_or_default())
        })
    }

    /// Returns whether an own subscription is not answered, so that a retired alias may be used again.
    pub(super) fn is_awaiting_alias(&self) -> bool {
        self.awaiting_alias > 0
    }

    /// Returns the number of own requests that wait for a stream.
    pub(super) fn queued_len(&self) -> usize {
        self.queued.len()
    }

    /// Returns the bytes of messages that wait for their streams. Visits every request.
    pub(super) fn waiting_bytes(&self) -> usize {
        let requests = self.table.values();
        requests
            .map(|request| request.sending.waiting_bytes())
            .sum()
    }

    /// Returns the number of requests, in any state.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    fn count_down(&mut self, opener: Opener) {
        match opener {
            Opener::Here => self.own_live -= 1,
            Opener::Peer => self.peer_live -= 1,
        }
    }
}
