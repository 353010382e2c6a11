//! One FETCH of the relay's own: what it asked a publisher for, and how far the answer has come.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use weir_moqt::{
    data::{FetchEntry, FetchObject},
    location::Location,
};
use weir_quic::Handle;
use weir_transport::StreamId;

use crate::{
    cache::{Content, Contradiction, Keeper, LAST, Span, TrackCache, after, before},
    track::table::TrackId,
};

/// One FETCH of the relay's own.
#[derive(Debug)]
pub(crate) struct Feeder {
    pub(crate) track: TrackId,
    /// The session that was asked, unless that is a neighbour.
    pub(crate) session: Option<Handle>,
    /// What was asked for; once it is granted, as far as there are objects.
    pub(crate) span: Span,
    /// The first location of which nothing was said yet, or whose object has not come in full.
    pub(crate) at: Option<Location>,
    /// Who else may be asked if this publisher has no answer.
    pub(crate) others: Vec<Handle>,
    pub(crate) stream: Option<StreamId>,
    /// Its stream is not read at present.
    pub(crate) is_paused: bool,
    /// The last location granted, and whether the track ends there.
    pub(crate) granted: Option<(Location, bool)>,
    /// Its stream has come to its end.
    pub(crate) has_ended: bool,
    object: Option<Arriving>,
}

/// An object whose payload is coming.
#[derive(Debug)]
struct Arriving {
    header: FetchObject,
    received: Instant,
    payload: BytesMut,
    missing: u64,
    /// It is too large, or there was no room for it.
    is_dropped: bool,
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The publisher sends what it was not asked for, or not in that order.
    OutOfOrder,
    /// It contradicts what is known of the track.
    Contradiction,
}

impl From<Contradiction> for Fault {
    fn from(_: Contradiction) -> Self {
        Self::Contradiction
    }
}

impl Feeder {
    pub(crate) fn new(
        track: TrackId,
        session: Option<Handle>,
        span: Span,
        others: Vec<Handle>,
    ) -> Self {
        Self {
            track,
            session,
            span,
            at: Some(span.first()),
            others,
            stream: None,
            is_paused: false,
            granted: None,
            has_ended: false,
            object: None,
        }
    }

    /// Whether it may still bring the object at `location`.
    pub(crate) fn covers(&self, location: Location) -> bool {
        let is_ahead = |at| !self.span.is_before(location, at);
        self.span.contains(location) && self.at.is_some_and(is_ahead)
    }

    /// Whether what it may still bring is of use to somebody who reads on from `at` in `span`.
    pub(crate) fn is_wanted_by(&self, span: &Span, at: Location) -> bool {
        let Some(own) = self.at else { return false };
        span.order == self.span.order
            && !self.span.is_before(self.span.last(), at)
            && !span.is_before(span.last(), own)
    }

    /// It was granted up to `end`.
    pub(crate) fn grant(&mut self, end: Location, is_end_of_track: bool) {
        self.granted = Some((end, is_end_of_track));
        if end < self.span.start {
            // There is nothing in the range yet.
            self.at = None;
        } else if end < self.span.end {
            self.span.end = end;
            self.at = self.at.and_then(|at| self.span.within(at));
        }
    }

    /// The next entry of its stream has come.
    pub(crate) fn take_entry(
        &mut self,
        cache: &mut TrackCache,
        keeper: &mut Keeper<'_>,
        entry: FetchEntry,
    ) -> Result<(), Fault> {
        let at = self.at.ok_or(Fault::OutOfOrder)?;
        let (location, is_unknown) = match &entry {
            FetchEntry::Object(object) => (Location::new(object.group, object.object), false),
            FetchEntry::EndOfRange { unknown, location } => (self.span.clamp(*location), *unknown),
        };
        if !self.span.contains(location) || self.span.is_before(location, at) {
            return Err(Fault::OutOfOrder);
        }
        match entry {
            FetchEntry::Object(header) => {
                self.exclude_before(cache, keeper, at, location);
                self.at = Some(location);
                self.object = Some(Arriving {
                    received: keeper.now,
                    payload: BytesMut::new(),
                    missing: header.payload_len,
                    is_dropped: false,
                    header,
                });
                self.settle_object(cache, keeper)?;
            }
            FetchEntry::EndOfRange { .. } => {
                if !is_unknown {
                    self.exclude_before(cache, keeper, at, location);
                    cache.exclude(keeper, location, location);
                }
                self.at = self.span.after(location);
            }
        }
        Ok(())
    }

    /// The next bytes of the object have come. What is too large to be kept, by itself or beside what of other objects
    /// has come in part, is dropped: to those who fetch it, it is unknown.
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
            is_part && held + data.len() as u64 > keeper.fetched_partial_max(self.session, held);
        object.is_dropped |= is_too_large || is_past_room;
        if object.is_dropped {
            object.payload = BytesMut::new();
        } else {
            object.payload.extend_from_slice(data);
        }
        self.settle_object(cache, keeper)
    }

    fn settle_object(
        &mut self,
        cache: &mut TrackCache,
        keeper: &mut Keeper<'_>,
    ) -> Result<(), Contradiction> {
        let Some(object) = self.object.take_if(|object| object.missing == 0) else {
            return Ok(());
        };
        let Arriving {
            header,
            received,
            payload,
            ..
        } = object;
        let location = Location::new(header.group, header.object);
        self.at = self.span.after(location);
        if header.payload_len != payload.len() as u64 {
            keeper.counters.fetched_objects_dropped += 1;
            return Ok(());
        }
        cache.insert_fetched(keeper, &header, received, payload.freeze())
    }

    /// Bytes held of an object that has not come in full.
    pub(crate) fn held_bytes(&self) -> u64 {
        let payload = self.object.as_ref().map(|object| object.payload.len());
        payload.unwrap_or(0) as u64
    }

    /// Its stream has ended and it was granted: what did not come does not exist [moqt-18 §10.12.3].
    pub(crate) fn conclude(&self, cache: &mut TrackCache, keeper: &mut Keeper<'_>) {
        let Some((end, is_end_of_track)) = self.granted else {
            return;
        };
        if let Some(at) = self.at {
            for (first, last) in self.span.ranges(at, self.span.last()) {
                cache.exclude(keeper, first, last);
            }
        }
        if is_end_of_track && let Some(first) = after(end) {
            cache.exclude(keeper, first, LAST);
        }
    }

    /// There is nothing from `at` up to `location`, which is not included.
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

impl TrackCache {
    /// Remembers an object that came in answer to a fetch.
    fn insert_fetched(
        &mut self,
        keeper: &mut Keeper<'_>,
        header: &FetchObject,
        received: Instant,
        payload: Bytes,
    ) -> Result<(), Contradiction> {
        let location = Location::new(header.group, header.object);
        let status = weir_moqt::data::ObjectStatus::Normal;
        self.learn(keeper, location, status, &header.properties)?;
        // A copy, so that not whole packets are kept for its sake.
        let properties = Bytes::copy_from_slice(header.properties.as_bytes());
        let content = Content::Fetched {
            subgroup: header.subgroup,
            priority: header.priority,
            properties,
            payload,
        };
        self.insert(keeper, location, received, content)
    }
}
