//! The source of an origin's frames.

use std::fmt::{self, Debug, Display, Formatter};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::{Frame, FrameKind, Item};

/// A source of a stream's items.
pub trait Source: Debug {
    /// Returns the next item that is available at `now`, and since when.
    fn poll(&mut self, now: Instant) -> Option<(Instant, Item)>;

    /// Returns when the next item is available; `None` if unknown, or never.
    fn next_at(&self) -> Option<Instant>;

    /// Whether the source has ended.
    fn is_over(&self) -> bool;
}

/// One frame of a real encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceFrame {
    /// How the frame is coded.
    pub kind: FrameKind,
    /// Whether no other frame needs it.
    pub is_disposable: bool,
    /// Its size in bytes, with its container.
    pub bytes: u32,
    /// The decode time, in microseconds of media time.
    pub decode_us: i64,
    /// The presentation time, in microseconds of media time.
    pub presentation_us: i64,
    /// The duration, in microseconds.
    pub duration_us: i64,
}

/// Kinds, sizes and times of a real encode's frames, in decoding order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameTrace(Arc<[TraceFrame]>);

/// A trace of a minute of real H.264: x264 with the options of the thesis, 700 kbit/s at 720p and 24 frames per second.
/// The picture is ffmpeg's generator `life` with seed 7. The example `trace` wrote it.
pub const LIFE_720P: &str = include_str!("../traces/life-720p.txt");

/// A minute at 30 frames per second, 720p, groups of two seconds, two B-frames in a row, 1 Mbit/s: a zoom into a picture
/// without end (ffmpeg's generator `mandelbrot`).
pub const ZOOM_720P: &str = include_str!("../traces/zoom-720p.txt");

/// A minute at 25 frames per second, 360p, groups of one second, no B-frames, as browsers encode, 450 kbit/s: a pattern
/// that scrolls like text (ffmpeg's generator `cellauto` with rule 110 and seed 7).
pub const SCROLL_360P: &str = include_str!("../traces/scroll-360p.txt");

/// The committed traces, by their names.
pub const TRACES: [(&str, &str); 3] = [
    ("life", LIFE_720P),
    ("zoom", ZOOM_720P),
    ("scroll", SCROLL_360P),
];

/// Why a text is not a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line that is not in the form of a trace.
    #[error(
        "line {0} is not \"KIND DISPOSABLE BYTES DECODE PRESENTATION DURATION\" (I, P or B; 0 or 1; microseconds)"
    )]
    Line(usize),
    /// The first frame is not a keyframe, or there is none.
    #[error("the trace does not begin with a keyframe")]
    NoKeyframe,
    /// A decode time before that of the line above.
    #[error("line {0}: time runs backwards")]
    Backwards(usize),
}

impl FrameTrace {
    /// Parses a trace. Each line is a frame: kind (`I`, `P` or `B`), 1 if it is disposable or else 0, bytes, decode
    /// time, presentation time and duration in microseconds. Lines that begin with `#` are ignored.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut frames: Vec<TraceFrame> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            let frame = parse_line(line).ok_or(TraceError::Line(number))?;
            if frames.is_empty() && frame.kind != FrameKind::Key {
                return Err(TraceError::NoKeyframe);
            }
            if frames
                .last()
                .is_some_and(|last| last.decode_us >= frame.decode_us)
            {
                return Err(TraceError::Backwards(number));
            }
            frames.push(frame);
        }
        if frames.is_empty() {
            return Err(TraceError::NoKeyframe);
        }
        Ok(Self(frames.into()))
    }

    /// Returns the trace of these frames, of which the first is a keyframe.
    ///
    /// # Errors
    /// There is no frame, the first is not a keyframe, or a decode time is not after that of the frame before.
    pub fn of(frames: Vec<TraceFrame>) -> Result<Self, TraceError> {
        if frames
            .first()
            .is_none_or(|frame| frame.kind != FrameKind::Key)
        {
            return Err(TraceError::NoKeyframe);
        }
        let mut pairs = (2..).zip(frames.windows(2));
        match pairs.find(|(_, pair)| pair[0].decode_us >= pair[1].decode_us) {
            Some((number, _)) => Err(TraceError::Backwards(number)),
            None => Ok(Self(frames.into())),
        }
    }

    /// Returns the frames.
    pub fn frames(&self) -> &[TraceFrame] {
        &self.0
    }

    /// Returns the places of the keyframes, at least one.
    pub fn keyframes(&self) -> Vec<usize> {
        let places = (0..).zip(self.frames());
        let keys = places.filter(|(_, frame)| frame.kind == FrameKind::Key);
        keys.map(|(place, _)| place).collect()
    }

    /// Counts the frames that end within `span` of the begin of frame `first`, in a trace that repeats.
    pub fn frames_within(&self, first: usize, span: Duration) -> u64 {
        let (count, period) = (self.0.len(), self.period_us());
        let span = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        let begin = self.0[first].decode_us;
        let ends_within = |place: &usize| {
            let lap = if *place < count { 0 } else { period };
            let frame = &self.0[place % count];
            frame.decode_us - begin + lap + frame.duration_us <= span % period
        };
        let rest = (first..first + count).take_while(ends_within).count() as u64;
        u64::try_from(span / period).unwrap_or(0) * count as u64 + rest
    }

    /// Returns the media time after which the trace repeats.
    pub fn period_us(&self) -> i64 {
        let span = |(first, last): (&TraceFrame, &TraceFrame)| last.decode_us - first.decode_us;
        let ends = self.0.first().zip(self.0.last());
        ends.map_or(1, span) + self.0.last().map_or(0, |last| last.duration_us).max(1)
    }
}

impl From<&Frame> for TraceFrame {
    fn from(frame: &Frame) -> Self {
        Self {
            kind: frame.kind,
            is_disposable: frame.is_disposable,
            bytes: u32::try_from(frame.fragment.len()).unwrap_or(u32::MAX),
            decode_us: frame.decode_us,
            presentation_us: frame.presentation_us,
            duration_us: frame.duration_us,
        }
    }
}

/// Writes the frame as a line of a trace, as [`FrameTrace::parse`] reads it.
impl Display for TraceFrame {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let (kind, is_disposable) = (self.kind.letter(), u8::from(self.is_disposable));
        let [decode, presentation, duration] =
            [self.decode_us, self.presentation_us, self.duration_us];
        let bytes = self.bytes;
        write!(
            formatter,
            "{kind} {is_disposable} {bytes} {decode} {presentation} {duration}"
        )
    }
}

fn parse_line(line: &str) -> Option<TraceFrame> {
    let mut words = line.split_whitespace();
    let kind = words.next()?;
    let frame = TraceFrame {
        kind: FrameKind::from_letter(kind.parse().ok()?)?,
        is_disposable: words.next()?.parse::<u8>().ok()? == 1,
        bytes: words.next()?.parse().ok()?,
        decode_us: words.next()?.parse().ok()?,
        presentation_us: words.next()?.parse().ok()?,
        duration_us: words.next()?.parse().ok()?,
    };
    let is_bounded = [frame.decode_us, frame.presentation_us, frame.duration_us]
        .iter()
        .all(|time| time.unsigned_abs() < 1 << 50);
    (is_bounded && words.next().is_none()).then_some(frame)
}

/// Plays a trace in a loop: each frame at its decode time, with zero bytes as its content.
#[derive(Debug)]
pub struct TraceSource {
    trace: FrameTrace,
    start: Instant,
    frames_left: u64,
    next: usize,
    rounds: i64,
    /// The group, its number of frames, and how many of these are references.
    group: Option<(u64, u64, u64)>,
}

impl TraceSource {
    /// Returns a source of `frames` frames, the first available at `start`. It begins at the first keyframe at or after
    /// frame `offset` of the trace.
    pub fn new(trace: FrameTrace, start: Instant, offset: usize, frames: u64) -> Self {
        let is_key = |(_, frame): &(usize, &TraceFrame)| frame.kind == FrameKind::Key;
        let count = trace.frames().len();
        let places = trace.frames().iter().enumerate();
        let next = places
            .skip(offset % count)
            .find(is_key)
            .map_or(0, |(place, _)| place);
        let mut source = Self {
            start,
            frames_left: frames,
            next,
            rounds: 0,
            group: None,
            trace,
        };
        let skipped = u64::try_from(source.decode_us()).unwrap_or(0);
        source.start = start
            .checked_sub(Duration::from_micros(skipped))
            .unwrap_or(start);
        source
    }

    fn decode_us(&self) -> i64 {
        self.trace.frames()[self.next].decode_us + self.rounds * self.trace.period_us()
    }
}

impl Source for TraceSource {
    fn poll(&mut self, now: Instant) -> Option<(Instant, Item)> {
        let at = self.next_at().filter(|at| *at <= now)?;
        let frame = self.trace.frames()[self.next];
        let shift = self.rounds * self.trace.period_us();
        let (group, index, references) = match (frame.kind, self.group) {
            (FrameKind::Key, Some((group, ..))) => (group + 1, 0, 0),
            (FrameKind::Predicted | FrameKind::Bidirectional, Some(group)) => group,
            (_, None) => (0, 0, 0),
        };
        self.group = Some((
            group,
            index + 1,
            references + u64::from(!frame.is_disposable),
        ));
        self.frames_left -= 1;
        self.next += 1;
        if self.next == self.trace.frames().len() {
            self.next = 0;
            self.rounds += 1;
        }
        let payload = Bytes::from(vec![0; usize::try_from(frame.bytes).unwrap_or(0)]);
        let frame = Frame {
            kind: frame.kind,
            is_disposable: frame.is_disposable,
            group,
            index,
            references,
            decode_us: frame.decode_us + shift,
            presentation_us: frame.presentation_us + shift,
            duration_us: frame.duration_us,
            fragment: payload.clone(),
            sample: payload,
        };
        Some((at, Item::Frame(frame)))
    }

    fn next_at(&self) -> Option<Instant> {
        let after = Duration::from_micros(u64::try_from(self.decode_us()).unwrap_or(0));
        (self.frames_left > 0).then(|| self.start + after)
    }

    fn is_over(&self) -> bool {
        self.frames_left == 0
    }
}
