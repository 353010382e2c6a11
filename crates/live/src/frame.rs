//! One frame of video, as delivery and playout see it.

use bytes::Bytes;

/// How a frame is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameKind {
    /// A keyframe (IDR), which needs no other frame.
    Key,
    /// Predicted from earlier frames.
    Predicted,
    /// Predicted from earlier and later frames.
    Bidirectional,
}

impl FrameKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Key, Self::Predicted, Self::Bidirectional];

    /// Returns the letter of the kind: `I`, `P` or `B`.
    pub const fn letter(self) -> char {
        match self {
            Self::Key => 'I',
            Self::Predicted => 'P',
            Self::Bidirectional => 'B',
        }
    }

    /// Returns the kind with this letter.
    pub fn from_letter(letter: char) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.letter() == letter)
    }
}

/// One frame of video, in decoding order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// How the frame is coded.
    pub kind: FrameKind,
    /// Whether no other frame needs it (`nal_ref_idc` is 0).
    pub is_disposable: bool,
    /// The number of its group of pictures, from 0.
    pub group: u64,
    /// Its index in the group in decoding order, from 0.
    pub index: u64,
    /// The number of earlier frames of the group that are not disposable. The frame may need all of them.
    pub references: u64,
    /// The decode time, in microseconds of media time.
    pub decode_us: i64,
    /// The presentation time, in microseconds of media time.
    pub presentation_us: i64,
    /// The duration, in microseconds.
    pub duration_us: i64,
    /// The fragment as received: its `moof` and `mdat` boxes.
    pub fragment: Bytes,
    /// The coded frame: NAL units with their lengths.
    pub sample: Bytes,
}
