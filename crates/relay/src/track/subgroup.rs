//! One subgroup on its way through: the log that all its subscribers read from.

use std::{collections::VecDeque, time::Instant};

use bytes::{Bytes, BytesMut};
use weir_moqt::{
    data::{ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId as WireSubgroup},
    draft::Draft,
    error::ResetCode,
    location::Location,
};
use weir_quic::Handle;

use crate::{
    cache::Content,
    ids::{PublisherId, SubgroupId, SubgroupKey},
};

/// The bytes of a subgroup as every subscriber gets them, from the oldest that someone still needs.
#[derive(Debug)]
pub(crate) struct Subgroup {
    pub(crate) id: SubgroupId,
    pub(crate) header: SubgroupHeader,
    /// It came from a link, and goes to none.
    pub(crate) from_link: bool,
    /// Whose stream it comes on.
    pub(crate) sender: Option<PublisherId>,
    draft: Draft,
    /// Pieces not yet taken by all.
    log: VecDeque<Piece>,
    /// Offset of the end of the log; what came before its first piece was taken by all.
    end: u64,
    /// Received in this turn, not yet in the log.
    fresh: BytesMut,
    /// Objects that begin in `fresh`.
    marks: Vec<Mark>,
    previous: Option<u64>,
    /// Payload bytes of the last object that are still to come.
    missing: u64,
    /// When the object began within which the log ends.
    began: Option<Instant>,
    /// The subgroup's ID.
    number: u64,
    ended: Option<Ended>,
    /// When its publisher finished it: its delivery time-out counts from here [moqt-18 §8].
    finished_at: Option<Instant>,
    /// When the last piece of the log was received.
    last_received: Option<Instant>,
    /// The object within which the log ends, for the cache.
    partial: Option<Partial>,
}

/// An object that has not arrived in full.
#[derive(Debug)]
struct Partial {
    object: u64,
    received: Instant,
    properties: Bytes,
    /// What has come of its payload.
    parts: Vec<Bytes>,
    bytes: u64,
}

/// A piece of the log.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) data: Bytes,
    start: u64,
    /// When its first object began to arrive: delivery time-outs count from here [moqt-18 §8].
    pub(crate) received: Instant,
}

/// Where an object begins in the log.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) location: Location,
    pub(crate) object: ObjectHeader,
    /// Offset of its header.
    start: u64,
    /// Offset of its properties.
    properties: u64,
    /// Offset of its payload.
    body: u64,
    /// Nothing but the subgroup's header stands before it.
    first: bool,
}

/// How a subgroup came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its publisher finished it.
    Finished,
    /// Its publisher reset it, or is gone.
    Reset(ResetCode),
    /// Another publisher goes on with it: all that came is passed on, and nothing more.
    Displaced,
}

/// Where a subscriber's stream starts.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// Bytes that stand before the log for this subscriber.
    pub(crate) prologue: Bytes,
    /// Offset in the log from which it reads.
    pub(crate) cursor: u64,
}

impl Subgroup {
    /// A subgroup with the ID `number`, whose header, with the relay's own Track Alias, is `header`.
    pub(crate) fn new(id: SubgroupId, header: SubgroupHeader, number: u64, draft: Draft) -> Self {
        let mut fresh = BytesMut::new();
        header.encode(draft, &mut fresh);
        Self {
            id,
            header,
            from_link: false,
            sender: None,
            draft,
            log: VecDeque::new(),
            end: 0,
            fresh,
            marks: Vec::new(),
            previous: None,
            missing: 0,
            began: None,
            number,
            ended: None,
            finished_at: None,
            last_received: None,
            partial: None,
        }
    }

    /// An object begins.
    pub(crate) fn begin(&mut self, object: ObjectHeader) {
        let location = Location {
            group: self.header.group,
            object: object.id,
        };
        let begin = self.fresh.len();
        let properties = object.encode_in_subgroup(
            self.previous,
            self.header.has_properties,
            self.draft,
            &mut self.fresh,
        );
        let first = self.previous.is_none();
        let start = self.end + begin as u64;
        let body = self.end + self.fresh.len() as u64;
        self.previous = Some(object.id);
        self.missing = object.payload_len;
        self.marks.push(Mark {
            location,
            object,
            start,
            properties: self.end + properties.start as u64,
            body,
            first,
        });
    }

    /// The next bytes of the object's payload.
    pub(crate) fn extend(&mut self, payload: &[u8]) {
        self.missing = self.missing.saturating_sub(payload.len() as u64);
        self.fresh.extend_from_slice(payload);
    }

    /// It is over; nothing follows. An object that was not complete is no longer held for the cache.
    pub(crate) fn end(&mut self, now: Instant, ended: Ended) {
        match ended {
            Ended::Finished => self.finished_at = Some(now),
            Ended::Displaced if self.missing == 0 => {}
            Ended::Reset(_) | Ended::Displaced => self.forget_part(),
        }
        self.ended = Some(ended);
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// The session that it comes from, unless that is a link.
    pub(crate) fn session(&self) -> Option<Handle> {
        let sender = self.sender.filter(|_| !self.from_link);
        sender.map(|(session, _)| session)
    }

    /// When its publisher finished it.
    pub(crate) fn finished_at(&self) -> Option<Instant> {
        self.finished_at
    }

    /// When the last of its bytes were received.
    pub(crate) fn last_received(&self) -> Option<Instant> {
        self.last_received
    }

    /// Group and subgroup ID.
    pub(crate) fn key(&self) -> SubgroupKey {
        (self.header.group, self.number)
    }

    /// The first object that did not arrive in full, or at all.
    pub(crate) fn next_object(&self) -> u64 {
        match self.previous {
            None => 0,
            Some(previous) if self.missing > 0 => previous,
            Some(previous) => previous.saturating_add(1),
        }
    }

    /// The object that began last.
    pub(crate) fn last_begun(&self) -> Option<u64> {
        self.previous
    }

    /// Whether something arrived since the last [`publish`](Self::publish).
    pub(crate) fn is_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Whether the object that began last, or one that is not published, lies from `first` to `last`, both included.
    pub(crate) fn has_begun_any(&self, first: Location, last: Location) -> bool {
        let newest = self.previous.map(|object| Location {
            group: self.header.group,
            object,
        });
        let unpublished = self.marks.iter().map(|mark| mark.location);
        let mut begun = newest.into_iter().chain(unpublished);
        begun.any(|location| first <= location && location <= last)
    }

    /// Whether an object has begun and is not complete, or not published.
    pub(crate) fn is_arriving(&self, location: Location) -> bool {
        self.header.group == location.group
            && (self.missing > 0 && self.previous == Some(location.object)
                || self.marks.iter().any(|mark| mark.location == location))
            && self.ended.is_none()
    }

    /// Moves what arrived to the log, as one piece, and gives the objects that begin in it. Objects that are
    /// complete with it are handed to `keep`, with the time at which they began to arrive; of one that is not, no more
    /// than `partial_max` bytes are held for it.
    pub(crate) fn publish(
        &mut self,
        now: Instant,
        partial_max: u64,
        keep: impl FnMut(u64, Instant, Content),
    ) -> Vec<Mark> {
        if !self.fresh.is_empty() {
            let data = self.fresh.split().freeze();
            let start = self.end;
            self.collect(now, &data, partial_max, keep);
            self.end += data.len() as u64;
            let received = self.began.unwrap_or(now);
            self.last_received = Some(received);
            self.log.push_back(Piece {
                data,
                start,
                received,
            });
            let last_began = if self.marks.is_empty() {
                self.began
            } else {
                Some(now)
            };
            self.began = last_began.filter(|_| self.missing > 0);
        }
        std::mem::take(&mut self.marks)
    }

    /// Finds the objects that are complete with `data`, the next piece of the log.
    fn collect(
        &mut self,
        now: Instant,
        data: &Bytes,
        partial_max: u64,
        mut keep: impl FnMut(u64, Instant, Content),
    ) {
        let (number, priority) = (self.number, self.header.priority);
        let content = |properties, payload, rest| Content::Stream {
            subgroup: number,
            priority,
            properties,
            payload,
            rest,
        };
        let place = |offset: u64| usize::try_from(offset - self.end).unwrap_or(usize::MAX);
        let first = self.marks.first();
        let goes_on = |end: usize| end == data.len() && self.missing > 0;
        let mut partial = None;
        if let Some(mut begun) = self.partial.take() {
            // The header of the next object stands behind its payload, and says where that ends.
            let end = first.map_or(data.len(), |mark| place(mark.start));
            begun.bytes += end as u64;
            begun.parts.push(data.slice(..end));
            if first.is_none() && goes_on(end) {
                partial = Some(begun);
            } else {
                let mut parts = begun.parts.into_iter();
                let payload = parts.next().unwrap_or_default();
                let content = content(begun.properties, payload, parts.collect());
                keep(begun.object, begun.received, content);
            }
        }
        for (index, mark) in self.marks.iter().enumerate() {
            if mark.object.status != ObjectStatus::Normal {
                continue;
            }
            let body = place(mark.body);
            let properties = place(mark.properties);
            let properties_end = properties + mark.object.properties.as_bytes().len();
            let properties = data.slice(properties..properties_end);
            let next = self.marks.get(index + 1);
            let end = next.map_or(data.len(), |next| place(next.start));
            let payload = data.slice(body..end);
            if next.is_none() && goes_on(end) {
                partial = Some(Partial {
                    object: mark.object.id,
                    received: now,
                    properties,
                    bytes: payload.len() as u64,
                    parts: vec![payload],
                });
            } else {
                keep(
                    mark.object.id,
                    now,
                    content(properties, payload, Vec::new()),
                );
            }
        }
        let is_cut = matches!(self.ended, Some(Ended::Reset(_) | Ended::Displaced));
        self.partial = partial.filter(|partial| !is_cut && partial.bytes <= partial_max);
    }

    /// Whether it stands within an object whose end has not come.
    pub(crate) fn is_within_object(&self) -> bool {
        self.missing > 0 && self.ended.is_none()
    }

    /// Whether it holds for the cache what has come of that object.
    pub(crate) fn holds_part(&self) -> bool {
        self.partial.is_some()
    }

    /// Forgets what has come of that object: the cache is not to have it.
    pub(crate) fn forget_part(&mut self) {
        self.partial = None;
    }

    /// Bytes held for the cache of an object that has not arrived in full.
    pub(crate) fn partial_bytes(&self) -> u64 {
        self.partial.as_ref().map_or(0, |partial| partial.bytes)
    }

    /// Offset of the end of the log.
    pub(crate) fn len(&self) -> u64 {
        self.end
    }

    /// The piece that holds the byte at `cursor`, from that byte on.
    #[inline]
    pub(crate) fn from(&self, cursor: u64) -> Option<Piece> {
        let piece = &self.log[self.index_of(cursor)?];
        let skip = usize::try_from(cursor - piece.start).ok()?;
        Some(Piece {
            data: piece.data.slice(skip..),
            start: cursor,
            received: piece.received,
        })
    }

    /// Place of the piece that holds the byte at `cursor`; most readers are in the last one.
    #[inline]
    fn index_of(&self, cursor: u64) -> Option<usize> {
        if cursor >= self.end {
            return None;
        }
        let last = self.log.len().checked_sub(1)?;
        if cursor >= self.log[last].start {
            return Some(last);
        }
        self.log
            .partition_point(|piece| piece.start <= cursor)
            .checked_sub(1)
    }

    /// Where a subscriber starts that joins with the object at `mark`.
    pub(crate) fn start_at(&self, mark: &Mark) -> Start {
        if mark.first {
            return Start {
                prologue: Bytes::new(),
                cursor: 0,
            };
        }
        let mut prologue = BytesMut::new();
        resumed(self.header, self.number).encode(self.draft, &mut prologue);
        mark.object
            .encode_in_subgroup(None, self.header.has_properties, self.draft, &mut prologue);
        Start {
            prologue: prologue.freeze(),
            cursor: mark.body,
        }
    }

    /// When the byte at `cursor` was received, or the object that it belongs to began.
    pub(crate) fn received(&self, cursor: u64) -> Option<Instant> {
        self.index_of(cursor).map(|index| self.log[index].received)
    }

    /// Takes the list of [`publish`](Self::publish) back, for its memory.
    pub(crate) fn recycle(&mut self, mut marks: Vec<Mark>) {
        marks.clear();
        self.marks = marks;
    }

    /// Forgets pieces that end at or before `taken`.
    pub(crate) fn trim(&mut self, taken: u64) {
        while let Some(piece) = self.log.front()
            && piece.start + piece.data.len() as u64 <= taken
        {
            self.log.pop_front();
        }
    }

    /// Bytes held for subscribers that have not taken them.
    pub(crate) fn held(&self) -> u64 {
        self.log.front().map_or(0, |piece| self.end - piece.start)
    }
}

/// The header of a stream that carries only the later objects of a subgroup.
pub(crate) fn resumed(header: SubgroupHeader, number: u64) -> SubgroupHeader {
    SubgroupHeader {
        subgroup: WireSubgroup::Explicit(number),
        first_object: false,
        ..header
    }
}

#[cfg(test)]
mod tests;
