//! Delivery strategies: how a live stream maps to tracks, groups, subgroups and priorities.
//!
//! A strategy uses MOQT's own terms only, so that a relay can deliver by a strategy that it does not know. It decides
//! which stream an object belongs to, the publisher priority of the stream, and the order of groups. It also decides
//! how long a stream may take, and which streams are reset because their rest is not worth sending.
//!
//! The browser player has a counterpart of each (`web/playout/strategy.js`). Both pass
//! `vectors/playout/strategies.json`.

mod layers;
mod protective;

use std::fmt::Debug;
use std::time::Duration;

use weir_moqt::parameter::GroupOrder;

use self::layers::Layers;
use self::protective::Protective;
use crate::Frame;
use crate::playout::{Buffering, PlayerSettings};

/// A delivery strategy.
pub trait Strategy: Debug + Send {
    /// Returns the name that selects it.
    fn name(&self) -> &'static str;

    /// Returns its tracks. The first one holds the keyframes. Groups are aligned over all tracks.
    fn tracks(&self) -> &[TrackTerms];

    /// Adds the steps for `frame`, which has just become available. Frames come in decoding order.
    fn place(&mut self, frame: &Frame, steps: &mut Vec<Step>);

    /// Returns the settings of its player.
    fn player(&self) -> PlayerSettings;

    /// Returns the latency that it aims at, if it has such a target. The catalog tells it to players.
    fn target(&self) -> Option<Duration> {
        None
    }

    /// Whether its connections should keep queues short, with a delay-based congestion controller.
    fn wants_short_queues(&self) -> bool;

    /// Returns the strategy for relays that are not weir's, if that is another one. They need neither priorities nor more than
    /// one stream for each group: moq-relay 0.17 forwards only one, and moq-relay-ietf 0.8 sends the lowest priority first.
    fn for_other_relays(&self) -> Option<Box<dyn Strategy>> {
        None
    }
}

/// The settings of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackTerms {
    /// The track's name.
    pub name: &'static str,
    /// The group order at equal priorities.
    pub order: GroupOrder,
    /// How long a subgroup may take to arrive after its end [moqt-18 §8]; `None` means no limit. Publisher and relays
    /// apply it on each hop.
    pub subgroup_timeout: Option<Duration>,
}

/// The key of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    /// The track's index among the strategy's tracks.
    pub track: usize,
    /// The group.
    pub group: u64,
    /// The subgroup.
    pub subgroup: u64,
}

/// An instruction to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write the frame to this stream, which opens with its first frame.
    Write {
        /// The stream.
        stream: StreamKey,
        /// The publisher priority; a lower number is sent first.
        priority: u8,
        /// Reset the stream after this time, unless it is acknowledged.
        reset_after: Option<Duration>,
    },
    /// End this stream.
    Finish(StreamKey),
    /// Reset this stream, since the rest is not worth sending.
    Reset(StreamKey),
}

/// The names of all strategies. The last one is the default.
pub const NAMES: [&str; 5] = ["baseline", "deprioritize-b", "skip", "combined", "weir"];

/// Returns the strategy with this name.
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

/// Returns the strategy with this name and this target of the latency. Strategies other than `weir` have no target and
/// ignore it.
pub fn by_name_and_target(name: &str, target: Duration) -> Option<Box<dyn Strategy>> {
    match name {
        "weir" => Some(Box::new(Protective::new(target))),
        _ => by_name(name),
    }
}

/// Returns the default strategy, with [`TARGET_DEFAULT`].
pub fn usual() -> Box<dyn Strategy> {
    Box::new(Protective::new(TARGET_DEFAULT))
}

/// The target of the latency unless another is chosen.
pub const TARGET_DEFAULT: Duration = Duration::from_millis(500);

/// The player of the thesis, with a jitter buffer of 100 ms.
const THESIS_PLAYER: PlayerSettings = PlayerSettings {
    buffering: Buffering::Fixed(100_000),
    snap_us: None,
    reorders: false,
    catches_up: false,
    resumes_at_once: false,
    in_sequence: false,
    stops_stale: false,
    limits_queue: false,
};
/// The shortest gap that B-frames cannot cause. At 24 frames per second and more, at most three B-frames follow each
/// other.
const SNAP_US: i64 = 250_000;
