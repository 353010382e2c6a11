//! What a player is made with.

use std::time::Duration;

use weir_client::target::Target;
use weir_moqt::name::Namespace;

use crate::playout::{BufferChoice, PlayerSettings};
use crate::timebase::Timebase;

/// What a player is made with.
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
    /// How long to wait for somebody to publish the stream.
    pub patience: Duration,
    /// How long to wait for a publisher to come back after the stream has ended; zero: it leaves with the stream. Only of
    /// streams with a catalog is another one waited for.
    pub patience_again: Duration,
    /// The clock that availability is told in.
    pub timebase: Timebase,
}

/// What a player plays.
#[derive(Clone, Debug)]
pub enum Choice {
    /// What the stream's catalog says, by the rules of the strategy that it names, or else of the usual one.
    Catalog,
    /// These tracks, whose objects say themselves which frames they are.
    Known {
        /// Names of the tracks; the first one has the keyframes.
        tracks: Vec<String>,
        /// How they are played, but for what the viewer wants of the buffer.
        settings: PlayerSettings,
    },
}

/// Where a player begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// With the next group: the lowest latency.
    Next,
    /// With the present group, of which it fetches what is past: the quickest start.
    Current,
}
