//! Finds frames in a player's objects.

use std::time::Instant;

use bytes::Bytes;
use weir_client::turn::Turn;
use weir_moqt::data::{FetchEntry, ObjectHeader, ObjectStatus};
use weir_moqt::error::ResetCode;
use weir_transport::StreamId;

use super::Viewer;
use super::incoming::{Incoming, PartialObject, ReceivedFrame, StreamContent, has_room};
use super::publisher_change::FramePublisher;
use super::unpacking::ReceivedObject;
use crate::FrameKind;
use crate::limits::OBJECT_BYTES_MAX;
use crate::packaging::FrameTag;

impl Viewer {
    /// Begins an object of a fetch. An entry for a gap changes nothing.
    pub(super) fn on_fetch_entry(
        &mut self,
        turn: &mut Turn<'_>,
        stream: StreamId,
        entry: FetchEntry,
    ) {
        let FetchEntry::Object(object) = entry else {
            return;
        };
        if let Some(incoming) = self.streams.get_mut(&stream) {
            incoming.group = object.group;
            incoming.subgroup = object.subgroup;
        }
        let header = ObjectHeader {
            id: object.object,
            properties: object.properties,
            status: ObjectStatus::Normal,
            payload_len: object.payload_len,
        };
        self.on_object(turn, stream, &header);
    }

    pub(super) fn on_object(
        &mut self,
        turn: &mut Turn<'_>,
        stream: StreamId,
        object: &ObjectHeader,
    ) {
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return;
        };
        incoming.current = None;
        if !incoming.is_fetch {
            // The first object names a subgroup that its header did not.
            incoming.subgroup.get_or_insert(object.id);
        }
        if object.status != ObjectStatus::Normal {
            return;
        }
        let (group, subgroup) = (incoming.group, incoming.subgroup);
        let bytes_max = match incoming.of {
            StreamContent::Metadata(request) => Some(self.discovery.bytes_max(request) as u64),
            StreamContent::Track(place) if self.tracks[place].unpacker.is_some() => {
                Some(OBJECT_BYTES_MAX)
            }
            StreamContent::Track(_) => None,
        };
        let tag = match FrameTag::read(&object.properties) {
            Ok(tag) if tag.is_some() => tag,
            Ok(_) if bytes_max.is_some_and(|max| object.payload_len <= max) => None,
            Ok(_) => return self.on_unknown("it is too large, or says nothing about its frame"),
            Err(error) => return self.on_unknown(&error.to_string()),
        };
        incoming.current = Some(PartialObject::new(tag, object));
        if let Some(tag) = &tag
            && tag.kind != FrameKind::Key
        {
            let is_under_way = self.streams.values().any(Incoming::has_keyframe);
            self.receive_window.note_frame(is_under_way);
        }
        let now_us = self.config.timebase.microseconds(turn.now);
        if let (Some(freshness), Some(tag)) = (&mut self.freshness, &tag)
            && !freshness.is_wanted(now_us, group, subgroup, tag.kind, tag.available_us)
        {
            return self.refuse(turn, stream, ResetCode::CANCELLED);
        }
        self.on_payload(turn, stream, &Bytes::new());
    }

    pub(super) fn on_unknown(&mut self, reason: &str) {
        self.objects_unknown += 1;
        self.complaint = Some(reason.to_owned());
    }

    pub(super) fn on_payload(&mut self, turn: &mut Turn<'_>, stream: StreamId, data: &Bytes) {
        let now = turn.now;
        if !has_room(&self.streams, stream, data.len()) {
            return self.refuse(turn, stream, ResetCode::EXCESSIVE_LOAD);
        }
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return;
        };
        let (of, group) = (incoming.of, incoming.group);
        let Some(current) = incoming.current.take_if(|current| current.push(data)) else {
            return;
        };
        match (of, current.tag) {
            (StreamContent::Metadata(request), _) => {
                let payload = current.payload.freeze();
                self.on_metadata(turn, request, group, payload);
            }
            (StreamContent::Track(place), Some(tag)) => {
                if tag.kind == FrameKind::Key {
                    self.receive_window.note_keyframe();
                }
                let bytes = current.bytes;
                let frame = ReceivedFrame {
                    group,
                    tag,
                    has_frame_tag: true,
                    bytes,
                };
                self.on_received_frame(now, place, frame);
            }
            (StreamContent::Track(place), None) => self.unpack(now, place, group, current),
        }
    }

    /// Finds the frames in an object without a frame tag.
    fn unpack(&mut self, now: Instant, place: usize, group: u64, current: PartialObject) {
        let arrived_us = self.config.timebase.microseconds(now);
        let Some(unpacker) = &mut self.tracks[place].unpacker else {
            return;
        };
        let object = ReceivedObject {
            group,
            id: current.id,
            properties: &current.properties,
            payload: current.payload.freeze(),
            arrived_us,
        };
        match unpacker.read(&object) {
            Ok(tags) => {
                for (tag, number) in tags.into_iter().zip(0..) {
                    let frame = ReceivedFrame {
                        group,
                        tag,
                        has_frame_tag: false,
                        bytes: if number == 0 { current.bytes } else { 0 },
                    };
                    self.on_received_frame(now, place, frame);
                }
            }
            Err(error) => self.on_unknown(&error.to_string()),
        }
    }

    fn on_received_frame(&mut self, now: Instant, place: usize, frame: ReceivedFrame) {
        let now_us = self.config.timebase.microseconds(now);
        match self.publisher_tracker.publisher_of(now_us, &frame) {
            FramePublisher::Current => {}
            FramePublisher::Successor => self.follow_publisher(),
            FramePublisher::Former => {
                self.frames_of_former += 1;
                return;
            }
        }
        match &mut self.sequence {
            Some(sequence) if place == 0 => {
                sequence.push(frame.group, frame);
                self.pass(now);
            }
            Some(_) | None => self.on_frame(now, &frame),
        }
    }
}
