//! One FETCH of the relay: the range requested from a publisher, and how much of it was answered.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use weir_moqt::{
    data::{FetchEntry, FetchObject, ObjectStatus, RangeEnd},
    location::Location,
};
use weir_quic::Handle;

use crate::{
    cache::{Content, Contradiction, Keeper, LAST, Span, TrackCache, after, before},
    fetch::upstream_stream::{UpstreamEvent, UpstreamStream},
    ids::TrackId,
};

/// One FETCH of the relay.
#[derive(Debug)]
pub(crate) struct UpstreamFetch {
    track: TrackId,
    /// The session whose limit its partial object counts towards; `None` if the publisher is a link.
    account: Option<Handle>,
    /// The requested range; once granted, only as far as there are objects.
    span: Span,
    /// The first location that the answer has not covered; `None` once the answer has covered the range.
    next: Option<Location>,
    /// Publishers to ask if this publisher refuses.
    alternatives: Vec<Handle>,
    /// By when the publisher has to answer, before another one is asked.
    answer_by: Option<Instant>,
    grant: Option<Grant>,
    stream: UpstreamStream,
    object: Option<PartialObject>,
}

/// The contents of FETCH_OK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    end: Location,
    is_end_of_track: bool,
}

/// An object whose payload is arriving.
#[derive(Debug)]
struct PartialObject {
    header: FetchObject,
    /// When the object's header arrived.
    received: Instant,
    payload: BytesMut,
    /// Payload bytes that have not arrived.
    missing: u64,
    /// Whether the object is not kept, because it is too large or there is no room for it.
    is_dropped: bool,
}

/// The fault of a malformed answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A location outside the range that was requested, or not in its order.
    OutOfOrder,
    /// The answer contradicts what is known of the track.
    Contradiction,
}

impl From<Contradiction> for Fault {
    fn from(_: Contradiction) -> Self {
        Self::Contradiction
    }
}

impl UpstreamFetch {
    /// Creates a request for `span`. `alternatives` are the publishers to ask if it is refused.
    pub(crate) fn new(
        track: TrackId,
        account: Option<Handle>,
        span: Span,
        alternatives: Vec<Handle>,
    ) -> Self {
        Self {
            track,
            account,
            span,
            next: Some(span.first()),
            alternatives,
            answer_by: None,
            grant: None,
            stream: UpstreamStream::Awaited,
            object: None,
        }
    }

    pub(crate) fn track(&self) -> TrackId {
        self.track
    }

    /// Returns the session whose limit its partial object counts towards.
    pub(crate) fn account(&self) -> Option<Handle> {
        self.account
    }

    /// Returns the requested range; once granted, only as far as there are objects.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Returns the publishers to ask for the same range instead; empty once part of it has been answered.
    pub(crate) fn alternatives(&self) -> &[Handle] {
        if self.next == Some(self.span.first()) {
            &self.alternatives
        } else {
            &[]
        }
    }

    /// Puts a publisher first among the alternatives.
    pub(crate) fn prefer(&mut self, publisher: Handle) {
        self.alternatives.insert(0, publisher);
    }

    /// Sets by when the publisher has to answer.
    pub(crate) fn await_answer(&mut self, by: Instant) {
        self.answer_by = Some(by);
    }

    /// Returns by when the publisher had to answer, and forgets it.
    pub(crate) fn take_answer_by(&mut self) -> Option<Instant> {
        self.answer_by.take()
    }

    /// Returns whether the publisher has granted the fetch.
    pub(crate) fn is_granted(&self) -> bool {
        self.grant.is_some()
    }

    /// Returns whether the answer is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_granted() && self.stream == UpstreamStream::Finished
    }

    /// Returns the stream with the objects.
    pub(crate) fn stream(&self) -> UpstreamStream {
        self.stream
    }

    /// Applies an event of the stream. Returns whether the state changed.
    pub(crate) fn on_stream(&mut self, event: UpstreamEvent) -> bool {
        let before = self.stream;
        self.stream = before.after(event);
        self.stream != before
    }

    /// Returns whether the answer may still contain the object at `location`.
    pub(crate) fn covers(&self, location: Location) -> bool {
        let is_ahead = |at| !self.span.is_before(location, at);
        self.span.contains(location) && self.next.is_some_and(is_ahead)
    }

    /// Returns the first location of `span` that the answer may still contain, if the answer has the order of `span`.
    pub(crate) fn next_within(&self, span: &Span) -> Option<Location> {
        let at = span.within(self.next?)?.max(span.start);
        (span.order == self.span.order && self.covers(at)).then_some(at)
    }

    /// Returns whether the rest of the answer is of use to a fetch of `span` that is served up to `at`.
    pub(crate) fn is_wanted_by(&self, span: &Span, at: Location) -> bool {
        let Some(own) = self.next else { return false };
        span.order == self.span.order
            && !self.span.is_before(self.span.last(), at)
            && !span.is_before(span.last(), own)
    }

    /// Notes that the publisher granted the fetch up to `end`.
    pub(crate) fn grant(&mut self, end: Location, is_end_of_track: bool) {
        self.grant = Some(Grant {
            end,
            is_end_of_track,
        });
        if end < self.span.start {
            // There is no object in the range.
            self.next = None;
        } else if end < self.span.end {
            self.span.end = end;
            self.next = self.next.and_then(|next| self.span.within(next));
        }
    }

    /// Handles the next entry of the stream.
    pub(crate) fn take_entry(
        &mut self,
        cache: &mut TrackCache,
        keeper: &mut Keeper<'_>,
        entry: FetchEntry,
    ) -> Result<(), Fault> {
        let at = self.next.ok_or(Fault::OutOfOrder)?;
        let (location, is_unknown) = match &entry {
            FetchEntry::Object(object) => (Location::new(object.group, object.object), false),
            FetchEntry::EndOfRange { reason, location } => {
                let is_unknown = *reason != RangeEnd::NonExistent;
                (self.span.clamp(*location), is_unknown)
            }
        };
        if !self.span.contains(location) || self.span.is_before(location, at) {
            return Err(Fault::OutOfOrder);
        }
        match entry {
            FetchEntry::Object(header) => {
                self.exclude_before(cache, keeper, at, location);
                self.next = Some(location);
                self.object = Some(PartialObject::new(header, keeper.now));
                self.store_if_complete(cache, keeper)?;
            }
            FetchEntry::EndOfRange { .. } => {
                if !is_unknown {
                    self.exclude_before(cache, keeper, at, location);
                    cache.exclude(keeper, location, location);
                }
                self.next = self.span.after(location);
            }
        }
        Ok(())
    }

    /// Handles the next bytes of an object's payload. An object that is too large, or for which there is no room, is
    /// dropped; its location stays unknown.
    pub(crate) fn take_payload(
        &mut self,
        cache: &mut TrackCache,
        keeper: &mut Keeper<'_>,
        data: &Bytes,
    ) -> Result<(), Contradiction> {
        let Some(object) = &mut self.object else {
            return Ok(());
        };
        object.missing = object.missing.saturating_sub(data.len() as u64);
        let held = object.payload.len() as u64;
        let is_too_large = object.header.payload_len > keeper.limits.cache_object_bytes_max;
        let is_part = object.missing > 0;
        let is_past_room =
            is_part && held + data.len() as u64 > keeper.fetched_partial_max(self.account, held);
        object.is_dropped |= is_too_large || is_past_room;
        if object.is_dropped {
            object.payload = BytesMut::new();
        } else {
            object.payload.extend_from_slice(data);
        }
        self.store_if_complete(cache, keeper)
    }

    fn store_if_complete(
        &mut self,
        cache: &mut TrackCache,
        keeper: &mut Keeper<'_>,
    ) -> Result<(), Contradiction> {
        let Some(object) = self.object.take_if(|object| object.missing == 0) else {
            return Ok(());
        };
        self.next = self.span.after(object.location());
        if object.is_dropped {
            keeper.counters.fetched_objects_dropped += 1;
            return Ok(());
        }
        object.store(cache, keeper)
    }

    /// Returns the payload bytes held of an incomplete object.
    pub(crate) fn held_bytes(&self) -> u64 {
        let payload = self.object.as_ref().map(|object| object.payload.len());
        payload.unwrap_or(0) as u64
    }

    /// Notes that objects that a complete answer left out do not exist [moqt-18 §10.12.3].
    pub(crate) fn exclude_rest(&self, cache: &mut TrackCache, keeper: &mut Keeper<'_>) {
        let Some(Grant {
            end,
            is_end_of_track,
        }) = self.grant
        else {
            return;
        };
        if let Some(at) = self.next {
            for (first, last) in self.span.ranges(at, self.span.last()) {
                cache.exclude(keeper, first, last);
            }
        }
        if is_end_of_track && let Some(first) = after(end) {
            cache.exclude(keeper, first, LAST);
        }
    }

    /// Notes that no objects exist from `at` up to, but not including, `location`.
    fn exclude_before(
        &self,
        cache: &mut TrackCache,
        keeper: &mut Keeper<'_>,
        at: Location,
        location: Location,
    ) {
        if at == location {
            return;
        }
        for (first, last) in self.span.ranges(at, location) {
            if last != location {
                cache.exclude(keeper, first, last);
            } else if first < location
                && let Some(last) = before(location)
            {
                cache.exclude(keeper, first, last);
            }
        }
    }
}

impl PartialObject {
    fn new(header: FetchObject, received: Instant) -> Self {
        Self {
            received,
            payload: BytesMut::new(),
            missing: header.payload_len,
            is_dropped: false,
            header,
        }
    }

    fn location(&self) -> Location {
        Location::new(self.header.group, self.header.object)
    }

    /// Stores the object in the cache.
    fn store(self, cache: &mut TrackCache, keeper: &mut Keeper<'_>) -> Result<(), Contradiction> {
        let (location, header) = (self.location(), self.header);
        cache.learn(keeper, location, ObjectStatus::Normal, &header.properties)?;
        // A copy, so that the object does not keep whole packets in memory.
        let properties = Bytes::copy_from_slice(header.properties.as_bytes());
        let content = Content::Fetched {
            subgroup: header.subgroup,
            priority: header.priority,
            properties,
            payload: self.payload.freeze(),
        };
        cache.insert(keeper, location, self.received, content)
    }
}
