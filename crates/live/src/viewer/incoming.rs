//! Incoming data of a player: tracks, streams, and one object in each stream.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use weir_moqt::data::ObjectHeader;
use weir_moqt::property::Properties;
use weir_moqt::session::RequestId;
use weir_transport::StreamId;

use super::unpacking::Unpacker;
use crate::FrameKind;
use crate::limits::PARTIAL_BYTES_MAX;
use crate::packaging::FrameTag;

/// A track of the player.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) name: String,
    pub(super) request: RequestId,
    /// Finds frames in objects without a frame tag, if the catalog says how.
    pub(super) unpacker: Option<Unpacker>,
    /// Streams that have begun.
    pub(super) streams: u64,
    end: End,
    pub(super) retries: Retries,
}

/// Whether a track has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The track continues.
    Open,
    /// The track ended after this many streams.
    After(u64),
    /// The track ended after an unknown number of streams.
    Unknown,
}

impl Track {
    /// Returns a track that has received nothing.
    pub(super) fn new(name: String, request: RequestId, unpacker: Option<Unpacker>) -> Self {
        Self {
            name,
            request,
            unpacker,
            streams: 0,
            end: End::Open,
            retries: Retries::default(),
        }
    }

    /// Ends the track. The first number of streams is kept.
    pub(super) fn end(&mut self, streams: Option<u64>) {
        if self.end == End::Open {
            self.end = streams.map_or(End::Unknown, End::After);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.end != End::Open
    }

    /// Whether all of the track's streams have begun. A stream that was reset before its first byte never begins.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.end, End::After(streams) if self.streams >= streams)
    }
}

/// The owner of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamContent {
    /// The track with this index.
    Track(usize),
    /// The metadata track of this request.
    Metadata(RequestId),
}

/// An incoming stream.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) of: StreamContent,
    pub(super) group: u64,
    /// The subgroup of the current object. `None` if it was sent as a datagram, or if no object has begun.
    pub(super) subgroup: Option<u64>,
    /// Whether the stream answers a FETCH for a group's earlier objects. Later objects arrive on other streams.
    pub(super) is_fetch: bool,
    pub(super) current: Option<PartialObject>,
}

impl Incoming {
    pub(super) fn new(of: StreamContent, group: u64, is_fetch: bool) -> Self {
        Self {
            of,
            group,
            subgroup: None,
            is_fetch,
            current: None,
        }
    }

    /// Whether a part of a keyframe has arrived.
    pub(super) fn has_keyframe(&self) -> bool {
        let tag = self.current.as_ref().and_then(|current| current.tag);
        !self.is_fetch && tag.is_some_and(|tag| tag.kind == FrameKind::Key)
    }
}

/// Whether this many more bytes of an object may be stored.
pub(super) fn has_room(
    streams: &BTreeMap<StreamId, Incoming>,
    stream: StreamId,
    bytes: usize,
) -> bool {
    let current = |incoming: &Incoming| incoming.current.as_ref().map(PartialObject::kept_bytes);
    match streams.get(&stream).and_then(current) {
        Some(Some(_)) => {
            let kept = streams.values().filter_map(current).flatten();
            kept.sum::<usize>() + bytes <= PARTIAL_BYTES_MAX
        }
        Some(None) | None => true,
    }
}

/// An incomplete object.
#[derive(Debug)]
pub(super) struct PartialObject {
    /// Its Object ID.
    pub(super) id: u64,
    /// Its frame tag.
    pub(super) tag: Option<FrameTag>,
    pub(super) properties: Properties,
    pub(super) bytes: u64,
    missing: u64,
    /// The payload so far, of an object without a frame tag.
    pub(super) payload: BytesMut,
}

impl PartialObject {
    pub(super) fn new(tag: Option<FrameTag>, object: &ObjectHeader) -> Self {
        Self {
            id: object.id,
            tag,
            properties: object.properties.clone(),
            bytes: object.payload_len,
            missing: object.payload_len,
            payload: BytesMut::new(),
        }
    }

    /// Returns the bytes stored, if any are.
    fn kept_bytes(&self) -> Option<usize> {
        self.tag.is_none().then_some(self.payload.len())
    }

    /// Takes the next bytes. Returns whether the object is complete.
    pub(super) fn push(&mut self, data: &Bytes) -> bool {
        self.missing = self.missing.saturating_sub(data.len() as u64);
        if self.tag.is_none() {
            self.payload.extend_from_slice(data);
        }
        self.missing == 0
    }
}

/// A frame that has arrived.
#[derive(Debug)]
pub(super) struct ReceivedFrame {
    pub(super) group: u64,
    pub(super) tag: FrameTag,
    /// Whether the object carried the tag. Without it, `tag` holds only what the catalog and the payload say.
    pub(super) has_frame_tag: bool,
    pub(super) bytes: u64,
}

/// How often a track was requested again because the relay did not know that the previous subscription had ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retries(u32);

impl Retries {
    /// Returns whether another request is allowed, and counts it.
    pub(super) fn take(&mut self) -> bool {
        self.0 += u32::from(self.0 <= RETRIES_MAX);
        self.0 <= RETRIES_MAX
    }
}

/// Repeated requests after which a refusal is final.
const RETRIES_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use weir_moqt::data::ObjectStatus;

    use super::*;

    #[test]
    fn a_track_is_asked_for_again_so_often_and_no_more() {
        let mut retries = Retries::default();
        assert!((0..RETRIES_MAX).all(|_| retries.take()));
        assert!(!retries.take() && !retries.take());
    }

    #[test]
    fn objects_that_are_here_in_part_have_so_many_bytes_together_and_no_more() {
        let header = ObjectHeader {
            id: 0,
            properties: Properties::EMPTY,
            status: ObjectStatus::Normal,
            payload_len: 1 << 30,
        };
        let mut streams = BTreeMap::new();
        for (number, bytes) in [(0, PARTIAL_BYTES_MAX - 10), (1, 4), (2, 0)] {
            let mut current = PartialObject::new(None, &header);
            current.payload = BytesMut::zeroed(bytes);
            let mut incoming = Incoming::new(StreamContent::Track(0), 0, false);
            incoming.current = (number < 2).then_some(current);
            streams.insert(StreamId(number), incoming);
        }
        for number in [0, 1] {
            assert!(has_room(&streams, StreamId(number), 6));
            assert!(!has_room(&streams, StreamId(number), 7));
        }
        assert!(has_room(&streams, StreamId(2), 7), "nothing is kept of it");
    }

    #[test]
    fn a_track_is_complete_when_so_many_streams_have_begun_as_its_end_says() {
        let mut track = Track::new("video".to_owned(), RequestId(0), None);
        track.streams = 2;
        assert!(!track.is_over() && !track.is_complete());
        track.end(Some(3));
        track.end(None);
        assert!(track.is_over() && !track.is_complete());
        track.streams = 3;
        assert!(track.is_complete());
        let mut vanished = Track::new("video".to_owned(), RequestId(0), None);
        vanished.end(None);
        assert!(vanished.is_over() && !vanished.is_complete());
    }
}
