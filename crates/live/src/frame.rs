//! One frame of video, as far as delivery and playout know it.

use bytes::Bytes;

/// How a frame was coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameKind {
    /// A keyframe (IDR): needs no other frame.
    Key,
    /// Predicted from earlier frames.
    Predicted,
    /// Predicted from earlier and later frames.
    Bidirectional,
}

impl FrameKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Key, Self::Predicted, Self::Bidirectional];

    /// The letter that stands for it: `I`, `P` or `B`.
    pub const fn letter(self) -> char {
        match self {
            Self::Key => 'I',
            Self::Predicted => 'P',
            Self::Bidirectional => 'B',
        }
    }

    /// The kind with this letter.
    pub fn from_letter(letter: char) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.letter() == letter)
    }
}

/// One frame of video, in the order of decoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// How it was coded.
    pub kind: FrameKind,
    /// Whether no other frame needs it (`nal_ref_idc` is 0).
    pub is_disposable: bool,
    /// The group of pictures, counted from 0.
    pub group: u64,
    /// Its place in the group in the order of decoding, from 0.
    pub index: u64,
    /// How many frames of the group before it are not disposable: all of these it may need.
    pub references: u64,
    /// When it is decoded, in microseconds of media time.
    pub decode_us: i64,
    /// When it is shown, in microseconds of media time.
    pub presentation_us: i64,
    /// How long it is shown, in microseconds.
    pub duration_us: i64,
    /// The fragment as it came: its `moof` and `mdat` boxes.
    pub fragment: Bytes,
    /// The coded frame alone: NAL units with their lengths.
    pub sample: Bytes,
}
