//! The configuration of a player.

use std::time::Duration;

use weir_client::target::Target;
use weir_moqt::name::Namespace;

use crate::playout::{BufferChoice, PlayerSettings};
use crate::strategy::Strategy;
use crate::timebase::Timebase;

/// The configuration of a player.
#[derive(Clone, Debug)]
pub struct ViewerConfig {
    /// Where the relay is.
    pub target: Target,
    /// The namespace of the stream's tracks.
    pub namespace: Namespace,
    /// What is played.
    pub choice: Choice,
    /// Where to begin.
    pub join: Join,
    /// How much is buffered.
    pub buffer: BufferChoice,
    /// How long the relay may wait for somebody to publish the stream (`RENDEZVOUS_TIMEOUT`).
    pub rendezvous_timeout: Duration,
    /// How long to wait for another publisher after the stream has ended. Zero: the player leaves with the stream. Without a
    /// catalog the player does not wait.
    pub reconnect_timeout: Duration,
    /// The clock that availability is told in.
    pub timebase: Timebase,
}

/// What a player plays.
#[derive(Clone, Debug)]
pub enum Choice {
    /// What the stream's catalog says, by the rules of the strategy that it names, or else of the usual one.
    Catalog,
    /// These tracks, whose objects describe their frames.
    Known {
        /// Names of the tracks; the first one has the keyframes.
        tracks: Vec<String>,
        /// How they are played, but for what the viewer wants of the buffer.
        settings: PlayerSettings,
    },
}

impl Choice {
    /// The tracks of a strategy, played as the strategy says.
    pub fn of(strategy: &dyn Strategy) -> Self {
        let names = strategy.tracks().iter().map(|track| track.name.to_owned());
        Self::Known {
            tracks: names.collect(),
            settings: strategy.player(),
        }
    }
}

/// Where a player begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// With the next group: the lowest latency.
    Next,
    /// With the present group, of which it fetches what is past: the quickest start.
    Current,
}
