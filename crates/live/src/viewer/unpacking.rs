//! Describes frames whose objects carry no frame tag, as those of other publishers.

mod last_groups;
mod loc_clock;

use bytes::Bytes;
use weir_moqt::property::Properties;

use self::last_groups::LastGroups;
use self::loc_clock::LocClock;
use crate::limits::{FRAMES_PER_OBJECT_MAX, HEAD_BYTES_PER_OBJECT_MAX};
use crate::mp4::{BoxReader, IngestError, Init, Media, Times, fragment};
use crate::packaging::{FrameTag, LOC_TIMESCALE, LOC_TIMESTAMPS};
use crate::plan::{Form, VideoPlan};
use crate::{FrameKind, h264};

/// Finds frames in the objects of one track.
#[derive(Debug)]
pub(super) struct Unpacker {
    plan: VideoPlan,
    /// Frames so far.
    frames: u64,
    /// The number of reference frames in each of the last groups.
    references: LastGroups<u64>,
    /// Derives the decode times of LOC frames.
    clock: LocClock,
}

/// A complete object.
#[derive(Debug)]
pub(super) struct ReceivedObject<'a> {
    pub(super) group: u64,
    /// Its Object ID.
    pub(super) id: u64,
    pub(super) properties: &'a Properties,
    pub(super) payload: Bytes,
    pub(super) arrived_us: i64,
}

/// Why no frame was found in an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnpackError {
    #[error("the object has no time (LOC: property {:#x})", LOC_TIMESTAMPS[0])]
    NoTime,
    #[error("the time of the object is out of range")]
    TimeRange,
    #[error("the object is not a fragment of the track: {0}")]
    Fragment(#[from] IngestError),
    #[error("the object is not a fragment of the track: it has no video samples")]
    Empty,
    #[error("the object has more than {} frames", FRAMES_PER_OBJECT_MAX)]
    TooManyFrames,
    #[error("the object has more than {HEAD_BYTES_PER_OBJECT_MAX} bytes beside its samples")]
    HeadTooLarge,
}

impl Unpacker {
    pub(super) fn new(plan: VideoPlan) -> Self {
        Self {
            plan,
            frames: 0,
            references: LastGroups::new(),
            clock: LocClock::new(),
        }
    }

    /// Returns the frames of an object. Their availability is unknown, so the time of arrival replaces it.
    pub(super) fn read(
        &mut self,
        object: &ReceivedObject<'_>,
    ) -> Result<Vec<FrameTag>, UnpackError> {
        let (parts, length_bytes) = match &self.plan.form {
            Form::Loc {
                timescale,
                length_bytes,
            } => {
                let presentation_us = loc_time_us(object.properties, *timescale)?;
                let times = self.clock.next(object.group, presentation_us);
                (vec![(times, object.payload.clone())], *length_bytes)
            }
            Form::Cmaf(init) => {
                let length_bytes = match init.video.media {
                    Media::Video { length_bytes, .. } => length_bytes,
                    Media::Audio(_) => return Err(UnpackError::Empty),
                };
                (cmaf_parts(init, &object.payload)?, length_bytes)
            }
        };
        let mut tags = Vec::with_capacity(parts.len());
        for (place, (times, sample)) in parts.into_iter().enumerate() {
            let is_first = object.id == 0 && place == 0;
            tags.push(self.tag(object, is_first, times, &sample, length_bytes));
        }
        Ok(tags)
    }

    fn tag(
        &mut self,
        object: &ReceivedObject<'_>,
        is_first: bool,
        times: Times,
        sample: &[u8],
        length_bytes: usize,
    ) -> FrameTag {
        let picture = self.plan.codec.starts_with("avc");
        let picture = picture.then(|| h264::picture(sample, length_bytes).ok());
        let (kind, is_disposable) = match picture.flatten() {
            Some(picture) => (picture.kind, picture.is_disposable),
            // A group begins with a keyframe. Of other codecs than H.264 nothing else is known.
            None if is_first => (FrameKind::Key, false),
            None => (FrameKind::Predicted, false),
        };
        let known = self.references.get(object.group);
        let before = known.filter(|_| kind != FrameKind::Key).unwrap_or(0);
        let references = before + u64::from(!is_disposable);
        self.references.insert(object.group, references);
        let number = self.frames;
        self.frames += 1;
        FrameTag {
            kind,
            is_disposable,
            references: before,
            available_us: object.arrived_us,
            decode_us: times.decode_us,
            presentation_us: times.presentation_us,
            duration_us: times.duration_us,
            number,
        }
    }
}

/// Returns the presentation time of a LOC frame, in microseconds.
fn loc_time_us(properties: &Properties, timescale: u64) -> Result<i64, UnpackError> {
    let mut found = LOC_TIMESTAMPS.iter();
    let time = found.find_map(|one| properties.find_int(*one));
    let time = i128::from(time.ok_or(UnpackError::NoTime)?);
    let scale = properties.find_int(LOC_TIMESCALE).unwrap_or(timescale);
    let us = (time * 1_000_000).checked_div(scale.into());
    let us = us.and_then(|us| i64::try_from(us).ok());
    let us = us.filter(|us| *us <= LOC_TIME_US_MAX);
    us.ok_or(UnpackError::TimeRange)
}

/// Returns the video samples of a fragment. Other boxes may precede it.
fn cmaf_parts(init: &Init, payload: &[u8]) -> Result<Vec<(Times, Bytes)>, UnpackError> {
    let mut boxes = BoxReader::default();
    boxes.push(payload);
    let mut parts = Vec::new();
    let mut head = None;
    let mut head_bytes = 0;
    while let Some(found) = boxes.poll()? {
        if &found.kind != b"mdat" {
            head_bytes += found.bytes.len();
            if head_bytes > HEAD_BYTES_PER_OBJECT_MAX {
                return Err(UnpackError::HeadTooLarge);
            }
        }
        match &found.kind {
            b"moof" => head = Some(found),
            b"mdat" => {
                let Some(head) = head.take() else {
                    return Err(UnpackError::Empty);
                };
                if let Some(fragment) = fragment(init, &head, &found)?
                    && fragment.track == init.video.number
                {
                    if parts.len() + fragment.samples.len() > FRAMES_PER_OBJECT_MAX {
                        return Err(UnpackError::TooManyFrames);
                    }
                    parts.extend(fragment.parts(init.video.timescale)?);
                }
            }
            // Segment types, producer reference times, events.
            _ => {}
        }
    }
    boxes.finish()?;
    if parts.is_empty() {
        return Err(UnpackError::Empty);
    }
    Ok(parts)
}

/// The limit of times, so that sums of a few do not overflow.
const LOC_TIME_US_MAX: i64 = 1 << 60;

#[cfg(test)]
mod tests;
