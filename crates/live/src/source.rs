//! Where an origin's frames come from.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::{Frame, FrameKind, Item};

/// Hands out what a stream consists of when it is there.
pub trait Source: Debug {
    /// The next thing that is there at `now`, with the time since when.
    fn poll(&mut self, now: Instant) -> Option<(Instant, Item)>;

    /// When the next thing is there; `None` if that is not known, or never.
    fn next_at(&self) -> Option<Instant>;

    /// Whether nothing will come any more.
    fn is_over(&self) -> bool;
}

/// What is known of one frame of a real encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceFrame {
    /// How it was coded.
    pub kind: FrameKind,
    /// Whether no other frame needs it.
    pub is_disposable: bool,
    /// Its bytes, with its container.
    pub bytes: u32,
    /// When it is decoded, in microseconds of media time.
    pub decode_us: i64,
    /// When it is shown, in microseconds of media time.
    pub presentation_us: i64,
    /// How long it is shown, in microseconds.
    pub duration_us: i64,
}

/// Kinds, sizes and times of the frames of a real encode, in the order of decoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameTrace(Arc<[TraceFrame]>);

/// The trace of a minute of real H.264: x264 with the thesis's options, 700 kbit/s at 720p and 24 frames per
/// second, of ffmpeg's generator `life` with seed 7; made with the example `trace`.
pub const LIFE_720P: &str = include_str!("../traces/life-720p.txt");

/// Why a text is not a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line is not of the stated form.
    #[error(
        "line {0} is not \"KIND DISPOSABLE BYTES DECODE PRESENTATION DURATION\" (I, P or B; 0 or 1; microseconds)"
    )]
    Line(usize),
    /// The first frame needs others, or there is none.
    #[error("the trace does not begin with a keyframe")]
    NoKeyframe,
    /// A frame is decoded before the one above it.
    #[error("line {0}: time runs backwards")]
    Backwards(usize),
}

impl FrameTrace {
    /// Reads a trace: a frame per line, its kind (`I`, `P` or `B`), 1 if it is disposable or else 0, its
    /// bytes, decode time, presentation time and duration in microseconds. Lines with `#` in front are
    /// passed over.
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

    /// The frames.
    pub fn frames(&self) -> &[TraceFrame] {
        &self.0
    }

    /// The media time after which it can be repeated.
    pub fn period_us(&self) -> i64 {
        let span = |(first, last): (&TraceFrame, &TraceFrame)| last.decode_us - first.decode_us;
        let ends = self.0.first().zip(self.0.last());
        ends.map_or(1, span) + self.0.last().map_or(0, |last| last.duration_us).max(1)
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

/// Plays a trace again and again, each frame at its decode time, with as many zero bytes.
#[derive(Debug)]
pub struct TraceSource {
    trace: FrameTrace,
    start: Instant,
    frames_left: u64,
    next: usize,
    rounds: i64,
    /// Group, frames in it, and references among these.
    group: Option<(u64, u64, u64)>,
}

impl TraceSource {
    /// A source whose first frame is there at `start`, and that begins with frame `offset` of the trace
    /// or the first keyframe behind it, and ends after `frames` frames.
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
