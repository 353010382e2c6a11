//! How a live stream is put into tracks, groups, subgroups and priorities.
//!
//! A strategy says all it has to say in MOQT's own terms, so that a relay that has never heard of it
//! can deliver by it: which stream an object goes to, which publisher priority the stream has, in which
//! order groups go, which streams are no longer worth sending and are reset, and how long one may take.
//!
//! The browser player has a twin of each (`web/playout/strategy.js`), and both pass `vectors/playout/strategies.json`.

mod layers;
mod protective;

use std::fmt::Debug;
use std::time::Duration;

use weir_moqt::parameter::GroupOrder;

use self::layers::Layers;
use self::protective::Protective;
use crate::Frame;
use crate::playout::{Buffering, PlayerSettings};

/// A way to deliver a live stream.
pub trait Strategy: Debug + Send {
    /// The name it is chosen by.
    fn name(&self) -> &'static str;

    /// Its tracks; the first one has the keyframes. Groups are aligned.
    fn tracks(&self) -> &[TrackTerms];

    /// Says what is to be done now that `frame` is there, in order.
    fn place(&mut self, frame: &Frame, steps: &mut Vec<Step>);

    /// How its player plays.
    fn player(&self) -> PlayerSettings;

    /// Whether its connections are to keep queues short, by a congestion controller that listens to
    /// delay.
    fn wants_short_queues(&self) -> bool;
}

/// What a track says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackTerms {
    /// Its name.
    pub name: &'static str,
    /// Which groups go first, where priorities are equal.
    pub order: GroupOrder,
    /// How long a subgroup may take to arrive once it has ended [moqt-18 §8]; `None` for as long as it takes. It is told to whoever
    /// delivers the track, and holds on each hop.
    pub subgroup_timeout: Option<Duration>,
}

/// One stream of a strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    /// The track's place among the strategy's tracks.
    pub track: usize,
    /// The group.
    pub group: u64,
    /// The subgroup.
    pub subgroup: u64,
}

/// Something to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write the frame to this stream, which is opened if need be.
    Write {
        /// The stream.
        stream: StreamKey,
        /// Its publisher priority; lower is sent first.
        priority: u8,
        /// Reset the stream when this time has passed, delivered or not.
        reset_after: Option<Duration>,
    },
    /// Nothing more comes on this stream.
    Finish(StreamKey),
    /// What is left of this stream is not worth sending.
    Reset(StreamKey),
}

/// The names of all strategies; the last is the default.
pub const NAMES: [&str; 5] = ["baseline", "deprioritize-b", "skip", "combined", "weir"];

/// The strategy with this name.
pub fn by_name(name: &str) -> Option<Box<dyn Strategy>> {
    Some(match name {
        "baseline" => Box::new(Layers::baseline()),
        "skip" => Box::new(Layers::skip()),
        "deprioritize-b" => Box::new(Layers::deprioritize()),
        "combined" => Box::new(Layers::combined()),
        "weir" => usual(),
        _ => return None,
    })
}

/// The strategy that is used if none is named.
pub fn usual() -> Box<dyn Strategy> {
    Box::new(Protective::default())
}

/// The player of the thesis: a jitter buffer of 100 ms.
const THESIS_PLAYER: PlayerSettings = PlayerSettings {
    buffering: Buffering::Fixed(100_000),
    snap_us: None,
    reorders: false,
    catches_up: false,
    resumes_at_once: false,
    in_sequence: false,
    stops_stale: false,
};
/// A gap that B-frames cannot make, of which there are at most three in a row, at 24 frames per
/// second and more.
const SNAP_US: i64 = 250_000;
