//! Known quirks of relays, by their make.

use clap::ValueEnum;
use serde::Deserialize;

use super::options::Flow;

/// The make of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Preset {
    /// weir's own relay.
    Weir,
    /// moq-relay-ietf, of moq-rs.
    MoqRelayIetf,
    /// moq-relay, of moq-dev.
    MoqRelay,
    /// lapsRelay, of LAPS.
    Laps,
}

/// What a benchmark has to know of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quirks {
    /// Drafts that work, by their ALPN; empty: all.
    pub(crate) drafts: &'static [&'static str],
    /// The only way to offer tracks that works, if there is only one.
    pub(crate) publish_flow: Option<Flow>,
    /// The delivery strategy for live streams that works, if not every one does.
    pub(crate) strategy: Option<&'static str>,
    /// What a reader of the table has to know; may be empty.
    pub(crate) note: &'static str,
}

impl Preset {
    /// Returns the quirks of the relay, as docs/interop.md describes them.
    pub(crate) fn quirks(self) -> Quirks {
        match self {
            Self::Weir => Quirks {
                drafts: &[],
                publish_flow: None,
                strategy: None,
                note: "",
            },
            Self::MoqRelayIetf => Quirks {
                drafts: &["moqt-18"],
                publish_flow: Some(Flow::Namespace),
                strategy: Some("skip"),
                note: "keeps only the latest datagram of a track, so one is lost if the next comes before its task runs",
            },
            Self::MoqRelay => Quirks {
                drafts: &[],
                publish_flow: Some(Flow::Namespace),
                strategy: Some("skip"),
                note: "serves clients without a token only below the paths of --auth-public, and of each group only subgroup 0",
            },
            Self::Laps => Quirks {
                drafts: &["moqt-18"],
                publish_flow: Some(Flow::Namespace),
                strategy: None,
                note: "speaks the draft-18 of June 2026, whose PUBLISH_OK is shorter than the published one",
            },
        }
    }
}
