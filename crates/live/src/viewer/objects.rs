//! What a player does with objects: it finds the frames in them.

use std::time::Instant;

use bytes::Bytes;
use weir_moqt::data::{ObjectHeader, ObjectStatus};
use weir_moqt::error::ResetCode;
use weir_quic::Endpoint;
use weir_transport::StreamId;

use super::Viewer;
use super::incoming::{Current, Of, Whole, has_room};
use super::publisher_change::Sender;
use super::unpacking::Unpacked;
use crate::limits::{HELD_BYTES_MAX, OBJECT_BYTES_MAX};
use crate::packaging::FrameTag;

impl Viewer {
    pub(super) fn on_object(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        stream: StreamId,
        object: &ObjectHeader,
    ) {
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return;
        };
        incoming.current = None;
        if object.status != ObjectStatus::Normal {
            return;
        }
        let group = incoming.group;
        let bytes_max = match incoming.of {
            Of::Held(_) => Some(HELD_BYTES_MAX as u64),
            Of::Track(place) if self.tracks[place].unpacker.is_some() => Some(OBJECT_BYTES_MAX),
            Of::Track(_) => None,
        };
        let tag = match FrameTag::read(&object.properties) {
            Ok(tag) if tag.is_some() => tag,
            Ok(_) if bytes_max.is_some_and(|max| object.payload_len <= max) => None,
            Ok(_) => return self.on_unknown("it is too large, or says nothing about its frame"),
            Err(error) => return self.on_unknown(&error.to_string()),
        };
        incoming.current = Some(Current::new(tag, object));
        let now_us = self.config.timebase.microseconds(now);
        if let (Some(freshness), Some(tag)) = (&mut self.freshness, &tag)
            && !freshness.is_wanted(now_us, group, tag)
        {
            return self.refuse(now, endpoint, stream, ResetCode::CANCELLED);
        }
        self.on_payload(now, endpoint, stream, &Bytes::new());
    }

    pub(super) fn on_unknown(&mut self, reason: &str) {
        self.objects_unknown += 1;
        self.complaint = Some(reason.to_owned());
    }

    pub(super) fn on_payload(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        stream: StreamId,
        data: &Bytes,
    ) {
        if !has_room(&self.streams, stream, data.len()) {
            return self.refuse(now, endpoint, stream, ResetCode::EXCESSIVE_LOAD);
        }
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return;
        };
        let (of, group) = (incoming.of, incoming.group);
        let Some(current) = incoming.current.take_if(|current| current.push(data)) else {
            return;
        };
        match (of, current.tag) {
            (Of::Held(request), _) => {
                let payload = current.payload.freeze();
                self.on_held(now, endpoint, request, group, payload);
            }
            (Of::Track(place), Some(tag)) => {
                let bytes = current.bytes;
                let whole = Whole {
                    group,
                    tag,
                    is_told: true,
                    bytes,
                };
                self.on_whole(now, place, whole);
            }
            (Of::Track(place), None) => self.unpack(now, place, group, current),
        }
    }

    /// Finds the frames in an object that does not say which it has.
    fn unpack(&mut self, now: Instant, place: usize, group: u64, current: Current) {
        let arrived_us = self.config.timebase.microseconds(now);
        let Some(unpacker) = &mut self.tracks[place].unpacker else {
            return;
        };
        let object = Unpacked {
            group,
            id: current.id,
            properties: &current.properties,
            payload: current.payload.freeze(),
            arrived_us,
        };
        match unpacker.read(&object) {
            Ok(tags) => {
                for (tag, number) in tags.into_iter().zip(0..) {
                    let whole = Whole {
                        group,
                        tag,
                        is_told: false,
                        bytes: if number == 0 { current.bytes } else { 0 },
                    };
                    self.on_whole(now, place, whole);
                }
            }
            Err(error) => self.on_unknown(&error.to_string()),
        }
    }

    fn on_whole(&mut self, now: Instant, place: usize, whole: Whole) {
        let now_us = self.config.timebase.microseconds(now);
        match self.succession.judge(now_us, &whole) {
            Sender::Same => {}
            Sender::Another => self.follow_publisher(),
            Sender::Before => {
                self.frames_of_former += 1;
                return;
            }
        }
        match &mut self.sequence {
            Some(sequence) if place == 0 => {
                sequence.push(whole.group, whole);
                self.pass(now);
            }
            Some(_) | None => self.on_frame(now, &whole),
        }
    }
}
