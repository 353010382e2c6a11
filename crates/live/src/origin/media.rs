//! Publishes the source's frames and audio.

use std::time::Instant;

use bytes::Bytes;
use weir_client::turn::Turn;
use weir_moqt::error::ResetCode;
use weir_moqt::location::Location;

use super::Origin;
use super::send_stream::{Object, SendOrder};
use crate::Frame;
use crate::packaging::FrameTag;
use crate::strategy::{Step, StreamKey};

impl Origin {
    /// Publishes a frame as the strategy says.
    pub(super) fn on_frame(&mut self, turn: &mut Turn<'_>, at: Instant, frame: &Frame) {
        let number = self.counters.frames;
        self.counters.frames += 1;
        self.group = frame.group;
        let mut steps = std::mem::take(&mut self.steps);
        self.strategy.place(frame, &mut steps);
        for step in steps.drain(..) {
            match step {
                Step::Write {
                    stream,
                    priority,
                    reset_after,
                } => {
                    let tag = FrameTag::new(frame, number, self.timebase.microseconds(at));
                    let (properties, payload) =
                        self.packaging.frame(frame, &tag, self.init.as_deref());
                    let object = Object {
                        id: frame.index,
                        properties,
                        payload,
                    };
                    self.counters.frames_written += 1;
                    self.write(turn, stream, priority, object);
                    if let Some(after) = reset_after {
                        self.streams.reset_at(turn.now + after, stream);
                    }
                }
                Step::Finish(stream) => self.streams.finish(stream),
                Step::Reset(stream) => self.reset(turn, stream),
            }
        }
        self.steps = steps;
    }

    /// Publishes audio. Its groups begin with those of the video, each on one stream.
    pub(super) fn on_audio(
        &mut self,
        turn: &mut Turn<'_>,
        track: u32,
        tag: FrameTag,
        fragment: &Bytes,
        sample: &Bytes,
    ) {
        self.counters.audio_objects += 1;
        let mut publications = self.publications.iter_mut().enumerate();
        let found = publications.find_map(|(alias, one)| {
            let audio = one.audio.as_mut()?;
            (audio.0 == track).then_some((alias, audio))
        });
        let Some((alias, (_, group, objects))) = found else {
            return;
        };
        let key = |group| StreamKey {
            track: alias,
            group,
            subgroup: 0,
        };
        let previous = *group;
        if previous != self.group {
            (*group, *objects) = (self.group, 0);
        }
        let id = *objects;
        *objects += 1;
        if previous != self.group {
            self.streams.finish(key(previous));
        }
        let (properties, payload) = self.packaging.audio(&tag, fragment, sample);
        let object = Object {
            id,
            properties,
            payload,
        };
        let key = key(self.group);
        self.write(turn, key, AUDIO_PRIORITY, object);
    }

    /// Queues an object for its stream. Gives up streams whose queues are too long.
    pub(super) fn write(
        &mut self,
        turn: &mut Turn<'_>,
        key: StreamKey,
        priority: u8,
        object: Object,
    ) {
        let numbered = StreamKey {
            group: self.first_group + key.group,
            ..key
        };
        let location = Location {
            group: numbered.group,
            object: object.id,
        };
        let Some(publication) = self.publications.get_mut(key.track) else {
            return;
        };
        if !publication.note(key.group, location) {
            return;
        }
        let Some((session, mut connection)) = self.client.open(turn) else {
            return;
        };
        if publication.begins_over(numbered.group) {
            let publication = &*publication;
            self.streams
                .update_ranks(&mut connection, key.track, |order| {
                    publication.rank(order.priority, order.key.group, order.key.subgroup)
                });
        }
        let order = SendOrder {
            key: numbered,
            priority,
            rank: publication.rank(priority, numbered.group, numbered.subgroup),
        };
        let draft = session.draft();
        let is_over = self.streams.push(draft, key, order, object);
        let mut surplus = is_over.then_some(key);
        while let Some(key) = surplus.or_else(|| self.streams.surplus(self.group)) {
            surplus = None;
            let code = ResetCode::EXCESSIVE_LOAD;
            if self.streams.give_up(&mut connection, key, code) {
                self.counters.streams_overflowed += 1;
            }
        }
    }
}

/// After the init segment and the catalog, before all video.
const AUDIO_PRIORITY: u8 = 16;
