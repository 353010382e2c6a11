//! Fragmented MP4 from a byte stream (ISO/IEC 14496-12 §8.8): boxes, the init segment, fragments.

mod boxes;
mod fragment;
mod init;
mod nesting;

pub(crate) use self::boxes::{BoxReader, RawBox};
pub(crate) use self::fragment::{Fragment, Times, fragment};
pub use self::init::{Audio, Init, Media, Track};

use crate::h264::SampleError;

/// Why a stream cannot be ingested. The text begins with the offset in the stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IngestError {
    /// A box is larger than its limit.
    #[error(
        "byte {offset}: the box {kind} has {size} bytes; at most {size_max} are accepted. Is the input fragmented MP4?"
    )]
    BoxTooLarge {
        /// Where the box begins.
        offset: u64,
        /// The box's type.
        kind: String,
        /// Its size.
        size: u64,
        /// The limit.
        size_max: u64,
    },
    /// A box with an invalid size: smaller than its header, or open to the end of the file.
    #[error("byte {offset}: the box {kind} has the invalid size {size}")]
    BoxSize {
        /// Where the box begins.
        offset: u64,
        /// The box's type.
        kind: String,
        /// The size in the box.
        size: u64,
    },
    /// The stream ends inside a box.
    #[error("byte {offset}: the stream ends {missing} bytes before the end of a box{}", .kind.as_ref().map(|kind| format!(" {kind}")).unwrap_or_default())]
    Truncated {
        /// Where the box begins.
        offset: u64,
        /// Its type, if known.
        kind: Option<String>,
        /// The least number of missing bytes.
        missing: u64,
    },
    /// A box whose contents are invalid.
    #[error("byte {offset}: the box {kind} is invalid: {reason}")]
    Broken {
        /// Where the box begins.
        offset: u64,
        /// Its type.
        kind: &'static str,
        /// The problem.
        reason: String,
    },
    /// A box in the wrong order.
    #[error("byte {offset}: the box {kind} comes {when}")]
    Order {
        /// Where the box begins.
        offset: u64,
        /// Its type.
        kind: &'static str,
        /// The box that it precedes or follows.
        when: &'static str,
    },
    /// The stream ended before a `moov` box.
    #[error("byte {offset}: the stream ends without a moov box")]
    NoInit {
        /// How many bytes arrived.
        offset: u64,
    },
    /// The `moov` box describes no H.264 video.
    #[error("byte {offset}: no track of the moov box is H.264 video ({found})")]
    NoVideo {
        /// Where the box begins.
        offset: u64,
        /// The tracks that it describes.
        found: String,
    },
    /// A fragment with no frame, or with several.
    #[error(
        "byte {offset}: the fragment has {samples} frames, not one (ffmpeg: -movflags frag_every_frame)"
    )]
    NotOneFrame {
        /// Where the fragment begins.
        offset: u64,
        /// The number of frames.
        samples: usize,
    },
    /// A frame that cannot be parsed.
    #[error("byte {offset}: {error}")]
    Sample {
        /// Where the fragment begins.
        offset: u64,
        /// The problem with the frame.
        error: SampleError,
    },
    /// The stream begins with a frame that is not a keyframe.
    #[error("byte {offset}: the first frame is a {letter}-frame, not a keyframe")]
    NoKeyframe {
        /// Where the fragment begins.
        offset: u64,
        /// The kind of the frame.
        letter: char,
    },
    /// A group of pictures that is too long.
    #[error("byte {offset}: {frames} frames without a keyframe")]
    GroupTooLong {
        /// Where the fragment begins.
        offset: u64,
        /// The number of frames in the group.
        frames: u64,
    },
    /// A decode time before that of the preceding frame.
    #[error(
        "byte {offset}: time runs backwards in track {track}: decode time {decode} after {previous}"
    )]
    Backwards {
        /// Where the fragment begins.
        offset: u64,
        /// The track's number in the MP4 stream.
        track: u32,
        /// The decode time, in units of the track.
        decode: u64,
        /// The decode time of the preceding frame.
        previous: u64,
    },
    /// A time too large to be converted to microseconds.
    #[error("byte {offset}: the time {value} of track {track} is out of range")]
    TimeRange {
        /// Where the fragment begins.
        offset: u64,
        /// The track's number in the MP4 stream.
        track: u32,
        /// The time, in units of the track.
        value: i128,
    },
}
