//! One FETCH of a peer: its range, how far it is served, and the state of its answer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_moqt::{
    data::{FetchEntry, FetchObject, RangeEnd},
    draft::Draft,
    error::RequestErrorCode,
    location::Location,
    message::{Fetch, FetchKind, FetchOk},
    parameter::{GroupOrder, Parameters},
    priority::{SUBSCRIBER_PRIORITY_DEFAULT, rank},
    property::Properties,
    session::RequestId,
};
use weir_quic::Connection;

use crate::{
    cache::Span,
    fetch::served_stream::{ServedStream, Written},
    ids::TrackId,
};

/// One FETCH of a peer. It holds at most one object that its stream has not accepted.
#[derive(Debug)]
pub(crate) struct ServedFetch {
    track: TrackId,
    /// The subscription that the fetch joined, if the authorization of that subscription applies.
    authorized_by: Option<RequestId>,
    span: Span,
    answer: Answer,
    /// The next location to serve; `None` once the whole range has been served.
    next: Option<Location>,
    /// The last location, in the order of the fetch, up to which unknown ranges have been requested from publishers.
    requested: Option<Location>,
    /// The error of a publisher that refused a range that the fetch needs.
    failure: Option<RequestErrorCode>,
    /// How long the fetch may still wait for publishers.
    time_left: Duration,
    wait: Option<Wait>,
    priority: u8,
    /// The publisher's priority of the last object.
    publisher_priority: u8,
    /// The last location of a range without objects that follows the last entry.
    skipped: Option<Location>,
    stream: ServedStream,
}

/// How far the answer to a FETCH has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The range depends on a subscription that is not established yet.
    Joining(Join),
    /// The range may end before the end that the peer asked for; FETCH_OK has not been sent.
    EndUnknown,
    /// The end of the range is final; FETCH_OK has not been sent.
    EndKnown { is_end_of_track: bool },
    /// FETCH_OK has been sent.
    Sent,
}

/// An event that changes the state of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerEvent {
    /// The subscription that the fetch joins was established.
    Joined,
    /// The end of the range became known.
    EndLearned { is_end_of_track: bool },
    /// FETCH_OK was sent.
    FetchOk,
}

/// A subscription that a fetch joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Join {
    pub(crate) subscription: RequestId,
    first: First,
    /// The last location wanted, if that is before the start of the subscription.
    end: Location,
}

/// The first location of a joining fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Absolute(Location),
    /// Number of groups before the one that the subscription starts in.
    Relative(u64),
}

/// A wait for publishers.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Instant,
    until: Instant,
}

impl Answer {
    /// Returns the state after an event. An event that cannot happen in a state does not change it.
    pub(crate) fn after(self, event: AnswerEvent) -> Self {
        match (self, event) {
            (Self::Joining(_), AnswerEvent::Joined) => Self::EndKnown {
                is_end_of_track: false,
            },
            (Self::EndUnknown, AnswerEvent::EndLearned { is_end_of_track }) => {
                Self::EndKnown { is_end_of_track }
            }
            (Self::EndUnknown | Self::EndKnown { .. }, AnswerEvent::FetchOk) => Self::Sent,
            (state, _) => state,
        }
    }
}

impl Join {
    /// Returns the subscription that a FETCH joins, if it is a joining fetch.
    pub(crate) fn of(kind: &FetchKind) -> Option<Self> {
        let (subscription, first, end) = match *kind {
            FetchKind::Standalone { .. } | FetchKind::Recent { .. } => return None,
            FetchKind::RelativeJoining { request_id, groups } => {
                (request_id, First::Relative(groups), Location::MAX)
            }
            FetchKind::AbsoluteJoining {
                request_id,
                start,
                end,
            } => (request_id, First::Absolute(start), end),
        };
        Some(Self {
            subscription: RequestId(subscription),
            first,
            end,
        })
    }

    /// Returns the first and the last location to fetch, given the largest location of the subscription.
    pub(crate) fn range(self, joining: Location) -> (Location, Location) {
        let start = match self.first {
            First::Absolute(start) => start,
            First::Relative(groups) => Location::new(joining.group.saturating_sub(groups), 0),
        };
        (start, self.end.min(joining))
    }
}

impl ServedFetch {
    /// Creates a fetch in a session of `draft`, which waits for publishers for at most `fill_max`.
    pub(crate) fn new(draft: Draft, track: TrackId, message: &Fetch, fill_max: Duration) -> Self {
        let parameters = &message.parameters;
        let join = Join::of(&message.kind);
        let (start, end) = match message.kind {
            FetchKind::Standalone { start, end, .. } => (start, end),
            // Set when the largest location, or the subscription, is known.
            FetchKind::Recent { .. }
            | FetchKind::RelativeJoining { .. }
            | FetchKind::AbsoluteJoining { .. } => (Location::ZERO, Location::ZERO),
        };
        let order = parameters.group_order.unwrap_or_default();
        let span = Span { start, end, order };
        let has_tokens = !parameters.authorization_tokens.is_empty();
        let priority = parameters.subscriber_priority;
        Self {
            track,
            authorized_by: join.filter(|_| !has_tokens).map(|join| join.subscription),
            span,
            answer: join.map_or(Answer::EndUnknown, Answer::Joining),
            next: Some(span.first()),
            requested: None,
            failure: None,
            time_left: parameters.fill_timeout.unwrap_or(fill_max).min(fill_max),
            wait: None,
            priority: priority.unwrap_or(SUBSCRIBER_PRIORITY_DEFAULT),
            publisher_priority: 0,
            skipped: None,
            stream: ServedStream::new(draft, order),
        }
    }

    pub(crate) fn track(&self) -> TrackId {
        self.track
    }

    /// Returns the range of the fetch.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Returns the next location to serve; `None` once the whole range has been served.
    pub(crate) fn next(&self) -> Option<Location> {
        self.next
    }

    /// Returns the subscription that the fetch waits for.
    pub(crate) fn join(&self) -> Option<Join> {
        match self.answer {
            Answer::Joining(join) => Some(join),
            Answer::EndUnknown | Answer::EndKnown { .. } | Answer::Sent => None,
        }
    }

    /// Returns the subscription whose authorization applies; `None` if the fetch has its own.
    pub(crate) fn authorized_by(&self) -> Option<RequestId> {
        self.authorized_by
    }

    /// Detaches the fetch from the authorization of the subscription that it joined.
    pub(crate) fn use_own_authorization(&mut self) {
        self.authorized_by = None;
    }

    /// Sets the range once the joined subscription is established.
    pub(crate) fn set_range(&mut self, start: Location, end: Location) {
        self.answer = self.answer.after(AnswerEvent::Joined);
        self.span.start = start;
        self.span.end = end;
        self.next = Some(self.span.first());
    }

    /// Sets the end of the range to `end`, or to the end that the peer asked for if that is smaller.
    pub(crate) fn set_end(&mut self, end: Location, is_end_of_track: bool) {
        let is_end_of_track = is_end_of_track && end <= self.span.end;
        let event = AnswerEvent::EndLearned { is_end_of_track };
        self.answer = self.answer.after(event);
        if end >= self.span.end {
            return;
        }
        self.span.end = end;
        self.skipped = None;
        self.next = self.next.and_then(|next| self.span.within(next));
    }

    /// Returns whether the end of the range may still change.
    pub(crate) fn is_end_unknown(&self) -> bool {
        self.answer == Answer::EndUnknown
    }

    /// Returns whether FETCH_OK is due: everything has been served, or the end is known and there is something to send.
    pub(crate) fn is_answer_due(&self) -> bool {
        match self.answer {
            Answer::Joining(_) | Answer::Sent => false,
            Answer::EndUnknown => self.next.is_none(),
            Answer::EndKnown { .. } => self.next.is_none() || self.stream.has_entries(),
        }
    }

    /// Returns whether FETCH_OK has been sent.
    pub(crate) fn is_answered(&self) -> bool {
        self.answer == Answer::Sent
    }

    /// Returns the FETCH_OK to send, for a track with `properties`.
    pub(crate) fn answer(&mut self, properties: Properties) -> FetchOk {
        let end_of_track = self.answer
            == Answer::EndKnown {
                is_end_of_track: true,
            };
        self.answer = self.answer.after(AnswerEvent::FetchOk);
        FetchOk {
            end_of_track,
            end: self.span.end,
            parameters: Parameters::default(),
            properties,
        }
    }

    /// Returns whether unknown ranges up to `location` have been requested from publishers.
    pub(crate) fn is_requested(&self, location: Location) -> bool {
        let requested = self.requested;
        requested.is_some_and(|last| !self.span.is_before(last, location))
    }

    /// Notes that unknown ranges up to `last` have been requested, or that no publisher has them.
    pub(crate) fn set_requested(&mut self, last: Location) {
        self.requested = Some(last);
    }

    /// Returns the error of the publisher that refused a range that the fetch needs.
    pub(crate) fn failure(&self) -> Option<RequestErrorCode> {
        self.failure
    }

    /// Notes that a publisher refused a range that the fetch needs. The first such error counts.
    pub(crate) fn note_failure(&mut self, code: RequestErrorCode) {
        self.failure.get_or_insert(code);
    }

    /// Takes over the end that a publisher granted for `span`, if the end of the fetch lies in `span` and is unknown.
    pub(crate) fn note_grant(&mut self, span: &Span, end: Location, is_end_of_track: bool) {
        if !self.is_end_unknown() || !span.contains(self.span.end) {
            return;
        }
        if end < self.span.start {
            self.failure = Some(RequestErrorCode::INVALID_RANGE);
        } else {
            self.set_end(end, is_end_of_track);
        }
    }

    /// Appends the next object.
    pub(crate) fn push_object(&mut self, object: FetchObject, payload: Vec<Bytes>) {
        let location = Location::new(object.group, object.object);
        self.publisher_priority = object.priority;
        self.stream.push(&FetchEntry::Object(object), payload);
        self.skipped = None;
        self.next = self.span.after(location);
    }

    /// Skips locations up to `last`, where no objects exist.
    pub(crate) fn skip_absent(&mut self, last: Location) {
        self.skipped = Some(last);
        self.next = self.span.after(last);
    }

    /// Skips locations up to `last` that stay unknown, because no publisher has them or because the fetch has no time
    /// left. A range without objects before them gets an entry of its own [moqt-18 §11.4.4.2] [moqt-22 §3.2.2].
    pub(crate) fn skip_unknown(&mut self, last: Location) {
        if let Some(location) = self.skipped.take() {
            let reason = RangeEnd::NonExistent;
            let entry = FetchEntry::EndOfRange { reason, location };
            self.stream.push(&entry, Vec::new());
        }
        let reason = if self.has_time() {
            RangeEnd::Unknown
        } else {
            RangeEnd::TimedOut
        };
        let location = last;
        let entry = FetchEntry::EndOfRange { reason, location };
        self.stream.push(&entry, Vec::new());
        self.next = self.span.after(last);
    }

    /// Writes as much as the connection accepts, and finishes the stream once the whole range has been served.
    pub(crate) fn write(&mut self, request: RequestId, connection: &mut Connection<'_>) -> Written {
        let (rank, is_last) = (self.rank(), self.next.is_none());
        self.stream.write(request, rank, is_last, connection)
    }

    /// Returns the stream that answers the fetch.
    pub(crate) fn stream(&self) -> &ServedStream {
        &self.stream
    }

    /// Lets the fetch write again: the connection has room on its stream, or allows another stream.
    pub(crate) fn resume(&mut self) {
        self.stream.resume();
    }

    /// Returns the send priority of the stream.
    pub(crate) fn rank(&self) -> i32 {
        let order = GroupOrder::Ascending;
        rank(self.priority, self.publisher_priority, order, 0, 0)
    }

    pub(crate) fn set_priority(&mut self, priority: u8) {
        self.priority = priority;
    }

    /// Begins to wait for publishers. Returns the latest end of the wait; `None` if no time is left.
    pub(crate) fn begin_wait(&mut self, now: Instant) -> Option<Instant> {
        if self.time_left.is_zero() {
            return None;
        }
        let until = now + self.time_left;
        self.wait = Some(Wait { since: now, until });
        Some(until)
    }

    /// Ends the wait, if there is one. Returns when the wait would have ended at the latest.
    pub(crate) fn end_wait(&mut self, now: Instant) -> Option<Instant> {
        let wait = self.wait.take()?;
        let waited = now.saturating_duration_since(wait.since);
        self.time_left = self.time_left.saturating_sub(waited);
        Some(wait.until)
    }

    /// Returns whether the fetch may still wait for publishers.
    pub(crate) fn has_time(&self) -> bool {
        !self.time_left.is_zero()
    }
}
