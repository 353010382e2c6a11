//! The table of requests, own and the peer's, from the call or first message to the end of the
//! stream.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::RequestId;
use super::request_state::{Opener, State};
use super::send_stream::Outgoing;
use crate::location::Location;
use crate::message::{RequestKind, RequestOk};
use crate::name::{FullTrackName, Namespace};
use crate::reader::MessageReader;
use crate::transport::StreamId;

/// All requests whose stream is not over, and those that wait for one.
#[derive(Debug, Default)]
pub(super) struct Requests {
    table: BTreeMap<RequestId, Request>,
    /// Own requests without a stream, in the order of the calls.
    queued: VecDeque<RequestId>,
    /// Ended requests whose stream is not over, oldest first.
    draining: VecDeque<RequestId>,
    own_live: usize,
    peer_live: usize,
    /// Own subscriptions without an answer.
    awaiting_alias: usize,
}

/// One request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) kind: RequestKind,
    pub(super) opener: Opener,
    /// Without `updating`, which follows from `updates_sent`.
    state: State,
    /// `None` while queued.
    pub(super) stream: Option<StreamId>,
    pub(super) outgoing: Outgoing,
    /// Whether the peer's direction is open.
    pub(super) receiving: bool,
    pub(super) reader: MessageReader,
    /// Own updates without an answer: the new prefix of each that has one.
    pub(super) updates_sent: VecDeque<Option<Namespace>>,
    /// The peer's updates without an answer.
    pub(super) updates_due: usize,
    /// The answers to the oldest of them, which follow the one to the request.
    pub(super) updates_granted: VecDeque<RequestOk>,
    pub(super) goaway_sent: bool,
    pub(super) goaway_received: bool,
    /// Whether the role has heard the last of it.
    pub(super) silent: bool,
    pub(super) subject: Subject,
}

/// What the session has to remember of what a request is about.
#[derive(Debug)]
pub(super) enum Subject {
    /// Nothing.
    None,
    /// The track of a subscription whose objects come here.
    Track(FullTrackName),
    /// The start of an own standalone fetch.
    Range(Location),
    /// An own `SUBSCRIBE_NAMESPACE`.
    Namespaces(Box<Announced>),
}

/// What the peer has announced in answer to a `SUBSCRIBE_NAMESPACE`.
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

impl Request {
    pub(super) fn new(kind: RequestKind, opener: Opener, reader: MessageReader) -> Self {
        Self {
            kind,
            opener,
            state: State::Pending,
            stream: None,
            outgoing: Outgoing::default(),
            receiving: true,
            reader,
            updates_sent: VecDeque::new(),
            updates_due: 0,
            updates_granted: VecDeque::new(),
            goaway_sent: false,
            goaway_received: false,
            silent: false,
            subject: Subject::None,
        }
    }

    /// How far the request has come.
    pub(super) fn state(&self) -> State {
        match self.state {
            State::Established { .. } => State::Established {
                updating: !self.updates_sent.is_empty(),
            },
            State::Pending | State::DoneUnanswered | State::EndedByPeer | State::EndedHere => {
                self.state
            }
        }
    }

    /// Whether objects of the request come to this endpoint.
    pub(super) fn receives_objects(&self) -> bool {
        match self.opener {
            Opener::Here => matches!(self.kind, RequestKind::Subscribe | RequestKind::Fetch),
            Opener::Peer => self.kind == RequestKind::Publish,
        }
    }

    /// Whether the request will bring an alias that is not known yet.
    fn awaits_alias(&self) -> bool {
        self.opener == Opener::Here
            && self.kind == RequestKind::Subscribe
            && self.state == State::Pending
    }

    /// Whether neither side has ended the request.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.state, State::Pending | State::Established { .. })
    }

    /// Whether both directions of the stream are over.
    pub(super) fn is_gone(&self) -> bool {
        !self.receiving && self.outgoing.is_closed()
    }
}

impl Requests {
    pub(super) fn get(&self, id: RequestId) -> Option<&Request> {
        self.table.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: RequestId) -> Option<&mut Request> {
        self.table.get_mut(&id)
    }

    /// Adds a request with a stream.
    pub(super) fn insert(&mut self, id: RequestId, request: Request) {
        match request.opener {
            Opener::Here => self.own_live += 1,
            Opener::Peer => self.peer_live += 1,
        }
        self.awaiting_alias += usize::from(request.awaits_alias());
        let previous = self.table.insert(id, request);
        assert!(previous.is_none(), "a Request ID is used once");
    }

    /// Adds an own request that waits for a stream, with the bytes that open it.
    pub(super) fn queue(&mut self, id: RequestId, mut request: Request, first: Bytes) {
        request.outgoing.hold(first);
        self.queued.push_back(id);
        self.insert(id, request);
    }

    /// The own request that waits longest for a stream.
    pub(super) fn first_queued(&self) -> Option<RequestId> {
        self.queued.front().copied()
    }

    /// Gives the request that waits longest its stream.
    pub(super) fn open_first_queued(&mut self, stream: StreamId) -> Option<&mut Request> {
        let request = self.table.get_mut(&self.queued.pop_front()?)?;
        request.stream = Some(stream);
        Some(request)
    }

    /// Takes note of the OK to a request.
    pub(super) fn establish(&mut self, id: RequestId) {
        let Some(request) = self.table.get_mut(&id) else {
            return;
        };
        assert_eq!(request.state, State::Pending, "a request is answered once");
        self.awaiting_alias -= usize::from(request.awaits_alias());
        request.state = State::Established { updating: false };
    }

    /// Ends a request in one of the states after its life, and keeps it until its stream is over.
    pub(super) fn end(&mut self, id: RequestId, state: State) {
        assert!(!matches!(state, State::Pending | State::Established { .. }));
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
    pub(super) fn remove(&mut self, id: RequestId) -> Option<Request> {
        let request = self.table.remove(&id)?;
        self.awaiting_alias -= usize::from(request.awaits_alias());
        if request.is_live() {
            self.count_down(request.opener);
        } else if let Some(at) = self.draining.iter().position(|&other| other == id) {
            self.draining.remove(at);
        }
        if request.stream.is_none() {
            self.queued.retain(|&other| other != id);
        }
        Some(request)
    }

    /// The longest drained request, if more than this many are.
    pub(super) fn draining_beyond(&self, max: usize) -> Option<RequestId> {
        if self.draining.len() > max {
            self.draining.front().copied()
        } else {
            None
        }
    }

    /// Own requests that neither side has ended, queued ones included.
    pub(super) fn own_live(&self) -> usize {
        self.own_live
    }

    /// The peer's requests that neither side has ended.
    pub(super) fn peer_live(&self) -> usize {
        self.peer_live
    }

    /// Whether an own subscription is not answered, so that an alias may come to life again.
    pub(super) fn is_awaiting_alias(&self) -> bool {
        self.awaiting_alias > 0
    }

    /// Own requests that wait for a stream.
    pub(super) fn queued_len(&self) -> usize {
        self.queued.len()
    }

    /// All requests there is state for.
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
