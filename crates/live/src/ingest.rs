//! The input of an origin: turns a byte stream into frames.

use bytes::Bytes;

use crate::h264;
use crate::limits::FRAMES_PER_GROUP_MAX;
use crate::mp4::{BoxReader, Fragment, IngestError, Init, Media, RawBox, Times, fragment};
use crate::{Frame, FrameKind};

/// One item of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The init segment: the first item, and only once.
    Init(Box<Init>),
    /// A frame of the video track.
    Frame(Frame),
    /// A fragment of an audio track, unchanged.
    Audio {
        /// The track's number in the MP4 stream.
        track: u32,
        /// The presentation time, in microseconds of media time.
        presentation_us: i64,
        /// The duration, in microseconds.
        duration_us: i64,
        /// Its `moof` and `mdat` boxes.
        fragment: Bytes,
        /// Its samples, concatenated.
        samples: Bytes,
        /// The size of each sample in bytes.
        sizes: Vec<usize>,
    },
}

/// Reads fragmented MP4 with one frame per fragment, from pieces of any size.
///
/// After an error the stream cannot be used.
#[derive(Debug, Default)]
pub struct Ingest {
    boxes: BoxReader,
    /// The boxes before the `moov` box.
    head: Vec<u8>,
    init: Option<Init>,
    /// A `moof` box whose `mdat` box has not arrived.
    moof: Option<RawBox>,
    /// The last decode time of each track, by track number.
    last_decode: Vec<(u32, u64)>,
    group: Option<Group>,
}

/// The group of pictures that is being read.
#[derive(Clone, Copy, Debug)]
struct Group {
    number: u64,
    frames: u64,
    references: u64,
}

impl Ingest {
    /// Returns an ingest that has read nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes. Before the next call, call [`poll`](Self::poll) until it returns `None`.
    pub fn push(&mut self, data: &[u8]) {
        self.boxes.push(data);
    }

    /// Returns the next complete item.
    pub fn poll(&mut self) -> Result<Option<Item>, IngestError> {
        while let Some(found) = self.boxes.poll()? {
            if let Some(item) = self.on_box(found)? {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// Checks that the stream may end here. Fails inside a fragment, or before the first one.
    pub fn finish(&self) -> Result<(), IngestError> {
        self.boxes.finish()?;
        let offset = self.boxes.offset();
        if self.init.is_none() {
            return Err(IngestError::NoInit { offset });
        }
        match &self.moof {
            Some(moof) => Err(IngestError::Truncated {
                offset: moof.offset,
                kind: Some("\"mdat\"".to_owned()),
                missing: 8,
            }),
            None => Ok(()),
        }
    }

    fn on_box(&mut self, found: RawBox) -> Result<Option<Item>, IngestError> {
        let offset = found.offset;
        match &found.kind {
            b"ftyp" => {
                self.check_before_moov(offset, "ftyp")?;
                self.head.extend_from_slice(&found.bytes);
            }
            b"moov" => {
                self.check_before_moov(offset, "moov")?;
                let init = Init::read(&self.head, &found)?;
                self.init = Some(init.clone());
                return Ok(Some(Item::Init(Box::new(init))));
            }
            b"moof" => {
                let misplaced = if self.init.is_none() {
                    Some("before the box moov")
                } else if self.moof.is_some() {
                    Some("behind another one, without a box mdat between")
                } else {
                    None
                };
                if let Some(when) = misplaced {
                    let kind = "moof";
                    return Err(IngestError::Order { offset, kind, when });
                }
                self.moof = Some(found);
            }
            b"mdat" => {
                let (kind, when) = ("mdat", "before its box moof (not a fragmented file?)");
                let moof = self.moof.take();
                let moof = moof.ok_or(IngestError::Order { offset, kind, when })?;
                return self.on_fragment(&moof, &found);
            }
            // Indexes, producer reference times and similar boxes.
            _ => {}
        }
        Ok(None)
    }

    fn check_before_moov(&self, offset: u64, kind: &'static str) -> Result<(), IngestError> {
        let is_good = self.init.is_none() && (kind == "moov" || self.head.is_empty());
        let when = "a second time";
        is_good
            .then_some(())
            .ok_or(IngestError::Order { offset, kind, when })
    }

    fn on_fragment(&mut self, moof: &RawBox, mdat: &RawBox) -> Result<Option<Item>, IngestError> {
        let Some(init) = &self.init else {
            return Ok(None);
        };
        let Some(fragment) = fragment(init, moof, mdat)? else {
            return Ok(None);
        };
        let Some(track) = init.track(fragment.track) else {
            return Ok(None);
        };
        let timescale = track.timescale;
        let times = fragment.times(timescale)?;
        let length_bytes = match track.media {
            Media::Video { length_bytes, .. } => Some(length_bytes),
            Media::Audio(_) => None,
        };
        self.check_time(&fragment, length_bytes.is_some())?;
        let Some(length_bytes) = length_bytes else {
            return Ok(Some(Item::Audio {
                track: fragment.track,
                presentation_us: times.presentation_us,
                duration_us: times.duration_us,
                fragment: fragment.bytes,
                samples: fragment.data,
                sizes: fragment.samples.iter().map(|one| one.size).collect(),
            }));
        };
        self.frame(fragment, times, length_bytes)
            .map(|frame| Some(Item::Frame(frame)))
    }

    /// Checks that decode times grow along a track. Those of audio may repeat: ffmpeg ends some streams like this.
    fn check_time(&mut self, fragment: &Fragment, is_video: bool) -> Result<(), IngestError> {
        let mut known = self.last_decode.iter_mut();
        match known.find(|(track, _)| *track == fragment.track) {
            Some((_, previous))
                if fragment.decode < *previous || is_video && fragment.decode == *previous =>
            {
                Err(IngestError::Backwards {
                    offset: fragment.offset,
                    track: fragment.track,
                    decode: fragment.decode,
                    previous: *previous,
                })
            }
            Some((_, previous)) => {
                *previous = fragment.decode;
                Ok(())
            }
            None => {
                self.last_decode.push((fragment.track, fragment.decode));
                Ok(())
            }
        }
    }

    fn frame(
        &mut self,
        fragment: Fragment,
        times: Times,
        length_bytes: usize,
    ) -> Result<Frame, IngestError> {
        let (offset, samples) = (fragment.offset, fragment.samples.len());
        if samples != 1 {
            return Err(IngestError::NotOneFrame { offset, samples });
        }
        let picture = h264::picture(&fragment.data, length_bytes)
            .map_err(|error| IngestError::Sample { offset, error })?;
        let group = match (picture.kind, self.group) {
            (FrameKind::Key, before) => Group {
                number: before.map_or(0, |group| group.number + 1),
                frames: 0,
                references: 0,
            },
            (FrameKind::Predicted | FrameKind::Bidirectional, Some(group)) => group,
            (FrameKind::Predicted | FrameKind::Bidirectional, None) => {
                let letter = picture.kind.letter();
                return Err(IngestError::NoKeyframe { offset, letter });
            }
        };
        if group.frames >= FRAMES_PER_GROUP_MAX {
            let frames = group.frames + 1;
            return Err(IngestError::GroupTooLong { offset, frames });
        }
        self.group = Some(Group {
            frames: group.frames + 1,
            references: group.references + u64::from(!picture.is_disposable),
            ..group
        });
        Ok(Frame {
            kind: picture.kind,
            is_disposable: picture.is_disposable,
            group: group.number,
            index: group.frames,
            references: group.references,
            decode_us: times.decode_us,
            presentation_us: times.presentation_us,
            duration_us: times.duration_us,
            fragment: fragment.bytes,
            sample: fragment.data,
        })
    }
}

#[cfg(test)]
mod tests;
