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
    /// The relay.
    pub target: Target,
    /// The namespace of the stream's tracks.
    pub namespace: Namespace,
    /// The stream to play.
    pub choice: Choice,
    /// The joining point.
    pub join: Join,
    /// How much is buffered.
    pub buffer: BufferChoice,
    /// How long the relay may wait for a publisher (`RENDEZVOUS_TIMEOUT`). A relay that does not wait is asked again in the
    /// meantime.
    pub rendezvous_timeout: Duration,
    /// How long to wait for another publisher after the end of the stream. Zero: the player leaves at the end. Without
    /// a catalog the player never waits.
    pub reconnect_timeout: Duration,
    /// The clock in which availability is expressed.
    pub timebase: Timebase,
}

/// The choice of tracks.
#[derive(Clone, Debug)]
pub enum Choice {
    /// The tracks of the catalog, played by the strategy that it names, or else by the default strategy.
    Catalog,
    /// These tracks, whose objects carry frame tags.
    Known {
        /// Names of the tracks; the first one has the keyframes.
        tracks: Vec<String>,
        /// The settings of playout. The viewer's choice of buffer takes precedence.
        settings: PlayerSettings,
    },
}

impl Choice {
    /// Returns the tracks and the settings of a strategy.
    pub fn of(strategy: &dyn Strategy) -> Self {
        let names = strategy.tracks().iter().map(|track| track.name.to_owned());
        Self::Known {
            tracks: names.collect(),
            settings: strategy.player(),
        }
    }
}

/// The joining point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// The next group: the lowest latency.
    Next,
    /// The current group, whose earlier objects the player fetches: the quickest start.
    Current,
}
