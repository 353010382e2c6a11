//! One FETCH of a peer: what it asks for, how far it has come, and what its stream has not taken yet.
//!
//! It holds references to the bytes of one object at most; where the bytes come from is not its business.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use weir_moqt::{
    data::{FetchEncoder, FetchEntry, FetchHeader, FetchObject},
    draft::Draft,
    error::RequestErrorCode,
    location::Location,
    message::FetchKind,
    parameter::{GroupOrder, Parameters},
    priority::{SUBSCRIBER_PRIORITY_DEFAULT, rank},
    session::RequestId,
};
use weir_quic::{Connection, Handle};
use weir_transport::{Direction, StreamId, Transport as _, WriteError};

use crate::{cache::Span, track::table::TrackId};

/// Names a fetch, of a peer or of the relay: the session and the request in it.
pub(crate) type FetchId = (Handle, RequestId);

/// One FETCH of a peer.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) track: TrackId,
    /// The subscription that it joins and that is not established yet, and how.
    pub(crate) joins: Option<FetchKind>,
    /// The subscription that it joined and whose authorization it has, not one of its own.
    pub(crate) stands_with: Option<RequestId>,
    pub(crate) span: Span,
    /// Whether the answer covers the span as it stands, and not less.
    pub(crate) is_end_known: bool,
    /// Whether the end of the span is the end of the track.
    pub(crate) is_end_of_track: bool,
    pub(crate) is_answered: bool,
    /// The next location to look at.
    pub(crate) at: Option<Location>,
    /// Up to where, in its order, publishers were asked for all that was unknown.
    pub(crate) asked: Option<Location>,
    /// Why a publisher did not answer.
    pub(crate) failure: Option<RequestErrorCode>,
    /// How long it may still wait for publishers.
    budget: Duration,
    waits: Option<Wait>,
    priority: u8,
    publisher_priority: u8,
    draft: Draft,
    encoder: FetchEncoder,
    /// Last location of a range without objects behind the last entry.
    skipped: Option<Location>,
    has_entries: bool,
    state: State,
    unsent: VecDeque<Bytes>,
}

/// Since when it waits, and until when at most.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Instant,
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is to be written yet.
    Idle,
    /// It has something to write, and the peer allows no further stream for now.
    Pending,
    /// Takes what is written.
    Open(StreamId),
    /// Takes nothing before the connection says so.
    Full(StreamId),
}

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    All,
    /// The connection takes no more for now; a stream that is open waits for room.
    Full,
    /// The peer wants no more, or the stream is gone.
    Gone,
}

impl Fetch {
    /// A fetch of the objects of `span` with the parameters of its FETCH, in a session of `draft`, which may wait for
    /// `budget`.
    pub(crate) fn new(
        draft: Draft,
        track: TrackId,
        span: Span,
        parameters: &Parameters,
        budget: Duration,
    ) -> Self {
        let priority = parameters.subscriber_priority;
        Self {
            track,
            joins: None,
            stands_with: None,
            span,
            is_end_known: false,
            is_end_of_track: false,
            is_answered: false,
            at: Some(span.first()),
            asked: None,
            failure: None,
            budget,
            waits: None,
            priority: priority.unwrap_or(SUBSCRIBER_PRIORITY_DEFAULT),
            publisher_priority: 0,
            draft,
            encoder: FetchEncoder::new(draft, span.order),
            skipped: None,
            has_entries: false,
            state: State::Idle,
            unsent: VecDeque::new(),
        }
    }

    /// It covers `start` to `end`, the end being final.
    pub(crate) fn set_range(&mut self, start: Location, end: Location) {
        self.span.start = start;
        self.span.end = end;
        self.is_end_known = true;
        self.at = Some(self.span.first());
    }

    /// Its end is known: `end`, or what was asked for if that is less.
    pub(crate) fn set_end(&mut self, end: Location, is_end_of_track: bool) {
        self.is_end_known = true;
        self.is_end_of_track = is_end_of_track && end <= self.span.end;
        if end >= self.span.end {
            return;
        }
        self.span.end = end;
        self.skipped = None;
        self.at = self.at.and_then(|at| self.span.within(at));
    }

    /// Whether anything stands on its stream.
    pub(crate) fn has_entries(&self) -> bool {
        self.has_entries
    }

    /// Takes up an object, which is the next one.
    pub(crate) fn push_object(&mut self, object: FetchObject, payload: Vec<Bytes>) {
        let location = Location::new(object.group, object.object);
        self.publisher_priority = object.priority;
        self.push_entry(&FetchEntry::Object(object));
        let parts = payload.into_iter().filter(|part| !part.is_empty());
        self.unsent.extend(parts);
        self.skipped = None;
        self.at = self.span.after(location);
    }

    /// There are no objects up to `last`.
    pub(crate) fn skip_absent(&mut self, last: Location) {
        self.skipped = Some(last);
        self.at = self.span.after(last);
    }

    /// Nothing is known up to `last`, and will not be. What is known not to exist before that is told apart
    /// [moqt-18 §11.4.4.2].
    pub(crate) fn skip_unknown(&mut self, last: Location) {
        if let Some(location) = self.skipped.take() {
            self.push_entry(&FetchEntry::EndOfRange {
                unknown: false,
                location,
            });
        }
        self.push_entry(&FetchEntry::EndOfRange {
            unknown: true,
            location: last,
        });
        self.at = self.span.after(last);
    }

    fn push_entry(&mut self, entry: &FetchEntry) {
        let mut encoded = BytesMut::with_capacity(ENTRY_BYTES);
        self.encoder.encode(entry, &mut encoded);
        self.unsent.push_back(encoded.freeze());
        self.has_entries = true;
    }

    /// Writes what the connection takes. With `is_last`, the stream is finished behind it.
    pub(crate) fn write(
        &mut self,
        request: RequestId,
        connection: &mut Connection<'_>,
        is_last: bool,
    ) -> Written {
        let stream = match self.state {
            State::Idle if self.unsent.is_empty() && !is_last => return Written::All,
            State::Idle | State::Pending => {
                let Some(stream) = connection.open(Direction::Uni) else {
                    self.state = State::Pending;
                    return Written::Full;
                };
                let mut header = BytesMut::with_capacity(ENTRY_BYTES);
                let request_id = request.0;
                FetchHeader { request_id }.encode(self.draft, &mut header);
                self.unsent.push_front(header.freeze());
                self.state = State::Open(stream);
                stream
            }
            State::Open(stream) => stream,
            State::Full(_) => return Written::Full,
        };
        connection.set_priority(stream, self.rank());
        while let Some(front) = self.unsent.front_mut() {
            match connection.write(stream, front) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(WriteError::Blocked) => {
                    self.state = State::Full(stream);
                    return Written::Full;
                }
                Err(WriteError::Stopped(_) | WriteError::Closed) => return Written::Gone,
            }
        }
        if is_last {
            connection.finish(stream);
        }
        Written::All
    }

    /// The connection takes more, or another stream.
    pub(crate) fn resume(&mut self) {
        if let State::Full(stream) = self.state {
            self.state = State::Open(stream);
        }
    }

    /// Whether it waits for the peer to allow another stream.
    pub(crate) fn is_pending(&self) -> bool {
        self.state == State::Pending
    }

    /// Its stream, if that takes nothing for now.
    pub(crate) fn full_stream(&self) -> Option<StreamId> {
        match self.state {
            State::Full(stream) => Some(stream),
            State::Idle | State::Pending | State::Open(_) => None,
        }
    }

    /// Its stream, if one is open.
    pub(crate) fn stream(&self) -> Option<StreamId> {
        match self.state {
            State::Open(stream) | State::Full(stream) => Some(stream),
            State::Idle | State::Pending => None,
        }
    }

    /// Its place in the order in which the connection sends.
    pub(crate) fn rank(&self) -> i32 {
        rank(
            self.priority,
            self.publisher_priority,
            GroupOrder::Ascending,
            0,
            0,
        )
    }

    pub(crate) fn set_priority(&mut self, priority: u8) {
        self.priority = priority;
    }

    /// Waits from now on; gives the time until which it may, unless there is none left.
    pub(crate) fn wait(&mut self, now: Instant) -> Option<Instant> {
        if self.budget.is_zero() {
            return None;
        }
        let until = now + self.budget;
        self.waits = Some(Wait { since: now, until });
        Some(until)
    }

    /// Waits no longer; gives the time until which it would have.
    pub(crate) fn wake(&mut self, now: Instant) -> Option<Instant> {
        let wait = self.waits.take()?;
        let waited = now.saturating_duration_since(wait.since);
        self.budget = self.budget.saturating_sub(waited);
        Some(wait.until)
    }

    /// Whether it may still wait for publishers.
    pub(crate) fn has_time(&self) -> bool {
        !self.budget.is_zero()
    }
}

/// Room for an entry without properties.
const ENTRY_BYTES: usize = 48;
