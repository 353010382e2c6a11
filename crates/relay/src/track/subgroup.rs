//! One subgroup: the log that all its subscribers read.

use std::{collections::VecDeque, ops::Range, time::Instant};

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
    sessions::peer::PeerKind,
};

/// The bytes of a subgroup as every subscriber receives them, from the oldest that a subscriber needs.
#[derive(Debug)]
pub(crate) struct Subgroup {
    pub(crate) id: SubgroupId,
    pub(crate) header: SubgroupHeader,
    /// The kind of peer that sent it.
    pub(crate) from: PeerKind,
    /// The publisher whose stream brings it.
    pub(crate) sender: Option<PublisherId>,
    draft: Draft,
    /// Pieces that some subscriber has not read.
    log: VecDeque<Piece>,
    /// Offset of the end of the log. All subscribers have read what precedes its first piece.
    end: u64,
    /// Bytes received in this turn, not yet in the log.
    fresh: BytesMut,
    /// Objects that begin in `fresh`.
    marks: Vec<Mark>,
    previous: Option<u64>,
    /// Payload bytes of the last object that are missing.
    missing: u64,
    /// When the incomplete object at the end of the log began.
    began: Option<Instant>,
    /// The subgroup ID.
    number: u64,
    ended: Option<Ended>,
    /// When its publisher finished it, from which its delivery timeout counts [moqt-18 §8].
    finished_at: Option<Instant>,
    /// When the last piece of the log was received.
    last_received: Option<Instant>,
    /// The incomplete object at the end of the log, for the cache.
    partial: Option<Partial>,
}

/// An incomplete object.
#[derive(Debug)]
struct Partial {
    object: u64,
    received: Instant,
    properties: Bytes,
    /// The payload received so far.
    parts: Vec<Bytes>,
    bytes: u64,
}

/// A piece of the log.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) data: Bytes,
    start: u64,
    /// When its first object began to arrive, from which delivery timeouts count [moqt-18 §8].
    pub(crate) received: Instant,
}

/// The position of an object in the log.
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
    /// Whether only the subgroup header precedes it.
    first: bool,
}

/// How a subgroup ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its publisher finished it.
    Finished,
    /// Its publisher reset it, or is gone.
    Reset(ResetCode),
    /// Another publisher continues it: what came is delivered, and nothing more.
    Displaced,
}

/// Where a subscriber's stream starts.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// Bytes that precede the log for this subscriber.
    pub(crate) prologue: Bytes,
    /// Offset in the log from which the subscriber reads.
    pub(crate) cursor: u64,
}

impl Partial {
    /// Appends a part of the payload.
    fn push(&mut self, part: Bytes) {
        self.bytes += part.len() as u64;
        match self.parts.last_mut() {
            Some(last) if is_joined(last, &part) => *last = joined(last, &part),
            _ => self.parts.push(part),
        }
    }
}

impl Subgroup {
    /// Creates a subgroup with the ID `number`. `header` carries the relay's own Track Alias.
    pub(crate) fn new(id: SubgroupId, header: SubgroupHeader, number: u64, draft: Draft) -> Self {
        let mut fresh = BytesMut::new();
        header.encode(draft, &mut fresh);
        Self {
            id,
            header,
            from: PeerKind::Client,
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

    /// Appends the header of an object.
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

    /// Appends payload bytes of the object.
    pub(crate) fn extend(&mut self, payload: &[u8]) {
        self.missing = self.missing.saturating_sub(payload.len() as u64);
        self.fresh.extend_from_slice(payload);
    }

    /// Ends the subgroup. An incomplete object is not kept for the cache.
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

    /// Returns the session that it comes from, unless that session is a link.
    pub(crate) fn session(&self) -> Option<Handle> {
        let sender = self.sender.filter(|_| !self.from.is_link());
        sender.map(|(session, _)| session)
    }

    /// Returns when its publisher finished it.
    pub(crate) fn finished_at(&self) -> Option<Instant> {
        self.finished_at
    }

    /// Returns when its last bytes were received.
    pub(crate) fn last_received(&self) -> Option<Instant> {
        self.last_received
    }

    /// Returns its group ID and subgroup ID.
    pub(crate) fn key(&self) -> SubgroupKey {
        (self.header.group, self.number)
    }

    /// Returns the first object that is incomplete or has not begun.
    pub(crate) fn next_object(&self) -> u64 {
        match self.previous {
            None => 0,
            Some(previous) if self.missing > 0 => previous,
            Some(previous) => previous.saturating_add(1),
        }
    }

    /// Returns the object that began last.
    pub(crate) fn last_begun(&self) -> Option<u64> {
        self.previous
    }

    /// Returns whether data arrived since the last [`publish`](Self::publish).
    pub(crate) fn is_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Returns whether the object that began last, or one that is not in the log yet, lies between `first` and `last`,
    /// inclusive.
    pub(crate) fn has_begun_any(&self, first: Location, last: Location) -> bool {
        let newest = self.previous.map(|object| Location {
            group: self.header.group,
            object,
        });
        let unpublished = self.marks.iter().map(|mark| mark.location);
        let mut begun = newest.into_iter().chain(unpublished);
        begun.any(|location| first <= location && location <= last)
    }

    /// Returns whether the object at `location` has begun and is incomplete, or is not in the log yet.
    pub(crate) fn is_arriving(&self, location: Location) -> bool {
        self.header.group == location.group
            && (self.missing > 0 && self.previous == Some(location.object)
                || self.marks.iter().any(|mark| mark.location == location))
            && self.ended.is_none()
    }

    /// Moves what arrived to the log, as one piece, and returns the objects that begin in it. Passes complete objects
    /// to `keep`, with the time at which they began to arrive. At most `partial_max` bytes of an incomplete object are
    /// kept for this.
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
            let is_long = self.log.len() >= PIECES_MAX;
            match self.log.back_mut().filter(|_| is_long) {
                // Its objects count as received with those before, which a reader so far behind does not notice.
                Some(last) if is_joined(&last.data, &data) => last.data = joined(&last.data, &data),
                _ => self.log.push_back(Piece {
                    data,
                    start,
                    received,
                }),
            }
            let last_began = if self.marks.is_empty() {
                self.began
            } else {
                Some(now)
            };
            self.began = last_began.filter(|_| self.missing > 0);
        }
        std::mem::take(&mut self.marks)
    }

    /// Passes on the objects that `data`, the next piece of the log, completes.
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
        let first = self.marks.first();
        let goes_on = |end: usize| end == data.len() && self.missing > 0;
        let incomplete = self.incomplete_bytes(data);
        let slice = |range: Range<usize>| slice(data, range, incomplete);
        let mut partial = None;
        if let Some(mut begun) = self.partial.take() {
            // The header of the next object follows the payload and marks its end.
            let end = first.map_or(data.len(), |mark| self.place(mark.start));
            begun.push(slice(0..end));
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
            let body = self.place(mark.body);
            let properties = self.place(mark.properties);
            let properties_end = properties + mark.object.properties.as_bytes().len();
            let properties = slice(properties..properties_end);
            let next = self.marks.get(index + 1);
            let end = next.map_or(data.len(), |next| self.place(next.start));
            let payload = slice(body..end);
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

    /// Returns the place of an offset in the next piece of the log.
    fn place(&self, offset: u64) -> usize {
        usize::try_from(offset - self.end).unwrap_or(usize::MAX)
    }

    /// Returns how many bytes of `data`, the next piece of the log, belong to objects of which the rest comes before or after.
    fn incomplete_bytes(&self, data: &Bytes) -> usize {
        let (Some(first), Some(last)) = (self.marks.first(), self.marks.last()) else {
            return data.len();
        };
        let begun = if self.missing > 0 {
            data.len() - self.place(last.start)
        } else {
            0
        };
        self.place(first.start) + begun
    }

    /// Returns whether the log ends within an object.
    pub(crate) fn is_within_object(&self) -> bool {
        self.missing > 0 && self.ended.is_none()
    }

    /// Returns whether what came of that object is kept for the cache.
    pub(crate) fn holds_part(&self) -> bool {
        self.partial.is_some()
    }

    /// Removes what came of that object; the cache will not have it.
    pub(crate) fn forget_part(&mut self) {
        self.partial = None;
    }

    /// Returns the bytes kept for the cache of an incomplete object.
    pub(crate) fn partial_bytes(&self) -> u64 {
        self.partial.as_ref().map_or(0, |partial| partial.bytes)
    }

    /// Returns the offset of the end of the log.
    pub(crate) fn len(&self) -> u64 {
        self.end
    }

    /// Returns the piece that holds the byte at `cursor`, from that byte on.
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

    /// Returns the index of the piece that holds the byte at `cursor`; most readers are in the last piece.
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

    /// Returns where a subscriber starts that joins at the object of `mark`.
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

    /// Returns when the byte at `cursor` was received, or its object began.
    pub(crate) fn received(&self, cursor: u64) -> Option<Instant> {
        self.index_of(cursor).map(|index| self.log[index].received)
    }

    /// Takes the list of [`publish`](Self::publish) back to reuse its memory.
    pub(crate) fn recycle(&mut self, mut marks: Vec<Mark>) {
        marks.clear();
        self.marks = marks;
    }

    /// Removes pieces that end at or before `taken`.
    pub(crate) fn trim(&mut self, taken: u64) {
        while let Some(piece) = self.log.front()
            && piece.start + piece.data.len() as u64 <= taken
        {
            self.log.pop_front();
        }
    }

    /// Returns the bytes held for subscribers that have not read them.
    pub(crate) fn held(&self) -> u64 {
        self.log.front().map_or(0, |piece| self.end - piece.start)
    }
}

/// Returns a slice of a piece for the cache. It shares the memory of the piece, unless most of that belongs to incomplete objects,
/// which the cache may not get in the end.
fn slice(data: &Bytes, range: Range<usize>, incomplete: usize) -> Bytes {
    let is_small = 2 * range.len() < data.len();
    if is_small && 2 * incomplete > data.len() {
        Bytes::copy_from_slice(&data[range])
    } else {
        data.slice(range)
    }
}

/// Returns whether two pieces that follow each other become one: each costs memory of its own.
fn is_joined(one: &Bytes, other: &Bytes) -> bool {
    one.len() + other.len() <= JOINED_BYTES_MAX
}

fn joined(one: &Bytes, other: &Bytes) -> Bytes {
    let mut joined = BytesMut::with_capacity(one.len() + other.len());
    joined.extend_from_slice(one);
    joined.extend_from_slice(other);
    joined.freeze()
}

/// Pieces of a log beyond which small ones are joined.
const PIECES_MAX: usize = 256;
/// Most bytes of two pieces that are joined. To copy them costs less than to keep both.
const JOINED_BYTES_MAX: usize = 4096;

/// Returns the header of a stream that carries only the later objects of a subgroup.
pub(crate) fn resumed(header: SubgroupHeader, number: u64) -> SubgroupHeader {
    SubgroupHeader {
        subgroup: WireSubgroup::Explicit(number),
        first_object: false,
        ..header
    }
}

#[cfg(test)]
mod tests;
