//! The report of one benchmark run: what was measured, and its three forms.
//!
//! This module holds the model: plain data that stands alone, so that it can be written by a run, kept,
//! and read again by a later version. It does not measure; the runner fills it. The main types are
//! [`Report`], [`TrackReport`] and [`Verdict`]; [`json`] keeps a report, [`terminal`] and [`html`] show it.
//!
//! Times are milliseconds, and seconds of a series count from the start of the run on the generator's clock.

pub mod archive;
pub mod csv;
pub mod generator_health;
pub mod html;
pub mod json;
pub mod live_view;
pub mod per_second;
pub mod prometheus;
pub mod terminal;

mod altered;
mod cost;
mod heat_map;
mod over_time;
mod proof;
mod rows;
mod sanitize;
mod track;
mod verdict;

#[cfg(test)]
mod example;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::altered::Altered;
pub use self::cost::{
    Generator, GeneratorSecond, GeneratorThread, MetricSecond, Relay, RelayCost, RelayMetric,
    RelaySamples, RelaySecond, RelaySource, Window,
};
#[cfg(test)]
pub(crate) use self::example::example_report;
pub use self::heat_map::{HeatMap, HeatMapRow};
pub use self::over_time::ProgressSecond;
pub use self::proof::{Calibration, Fairness, Headroom};
pub use self::sanitize::{SanitizeError, sanitize};
pub use self::track::{
    Completion, CompletionSummary, Conduct, Delivery, ObjectPosition, Progress, ProgressSummary,
    Published, SetApart, Status, StatusCounts, SubscriberReport, TrackDefinition, TrackReport,
    Variance, VarianceSummary,
};
pub use self::verdict::{Outcome, Verdict};
use crate::form::number;
use crate::service_level::{JudgedClause, JudgedLevel};
use crate::statistics::Distribution;

/// Version of the report's form, written as `schema`; it grows whenever a field comes, changes or goes, for all are always written.
pub const SCHEMA: u32 = 5;

/// All that one run has to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Report of weir bench", extend("$id" = format!("urn:weir:report:{SCHEMA}")))]
pub struct Report {
    /// Version of this form.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: u32,
    /// The conclusion, drawn from everything below.
    pub verdict: Verdict,
    /// What was run, with what, on what.
    pub run: Run,
    /// The service level asked for, and whether it held.
    pub slo: JudgedLevel,
    /// One entry per track definition of the profile, in the profile's order.
    pub tracks: Vec<TrackReport>,
    /// How long the subscribers took to get going.
    pub set_up: SetUp,
    /// What the relay spent.
    pub relay: Relay,
    /// Whether the load generator could be trusted.
    pub generator: Generator,
    /// How far the generator was from its own limit; none if the run was too short to tell.
    pub headroom: Option<Headroom>,
}

impl Report {
    /// Makes a report of its measured parts; set-up times and the verdict follow from them.
    pub fn new(
        run: Run,
        slo: JudgedLevel,
        tracks: Vec<TrackReport>,
        relay: Relay,
        generator: Generator,
    ) -> Self {
        let report = Self {
            schema: SCHEMA,
            verdict: Verdict::default(),
            run,
            slo,
            set_up: SetUp::over(&tracks),
            headroom: Headroom::of(&tracks, &generator),
            tracks,
            relay,
            generator,
        };
        report.judged_again()
    }

    /// The report with its verdict drawn again, after something in it was changed.
    #[must_use]
    pub fn judged_again(mut self) -> Self {
        self.verdict = Verdict::of(&self);
        self
    }

    /// The report with what the same load did against a null relay. Where that did not hold either, nothing that broke
    /// can be the relay's fault alone.
    #[must_use]
    pub fn calibrated(mut self, calibration: Calibration) -> Self {
        if !calibration.held && self.verdict.outcome != Outcome::Held {
            self.generator.healthy = false;
            let reasons = calibration.reasons.iter().cloned();
            self.generator.reasons.extend(reasons);
        }
        self.generator.calibration = Some(calibration);
        self.judged_again()
    }

    /// Objects that reached their subscribers, over all tracks.
    pub fn objects_delivered(&self) -> u64 {
        self.tracks
            .iter()
            .map(|track| track.completion.objects_received.sum)
            .sum()
    }

    /// Objects that did not reach their subscribers and were planned before the part of the run that is judged.
    pub fn objects_lost_before(&self) -> u64 {
        self.objects_lost().saturating_sub(self.slo.lost_objects)
    }

    /// Whether the run had publishers only: subscribers are in another process, and in its report.
    pub(crate) fn is_of_publishers(&self) -> bool {
        let has_none = |track: &TrackReport| track.subscribers.is_empty();
        self.run.subscribers_requested == 0 && self.tracks.iter().all(has_none)
    }

    /// Objects that did not reach their subscribers, over all tracks.
    pub fn objects_lost(&self) -> u64 {
        self.tracks
            .iter()
            .map(|track| track.completion.lost_objects.sum)
            .sum()
    }
}

/// What was run, with what, on what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Version of the program that measured.
    pub weir_version: String,
    /// The program's arguments as given, joined by blanks.
    pub command_line: String,
    /// The benchmark profile.
    pub profile: Profile,
    /// Seed of everything random in the run.
    pub seed: u64,
    /// Name of this run; it stands in every track's namespace where the profile says `{run}`.
    pub run_id: String,
    /// When the run began, RFC 3339 with a zone.
    pub start_time: String,
    /// From the start of the run to its end, set-up and drain included.
    pub duration_ms: f64,
    /// Where the relay was reached.
    pub relay_url: String,
    /// The draft both sides agreed on, by its ALPN, such as `moqt-18`; none if no session came up.
    pub draft: Option<String>,
    /// What carried the sessions: `raw QUIC` or `WebTransport`.
    pub transport: String,
    /// How tracks were offered, and found if not by SUBSCRIBE: `PUBLISH`, `PUBLISH_NAMESPACE`, or one of these with
    /// `, SUBSCRIBE_NAMESPACE` or `, SUBSCRIBE_TRACKS` behind it.
    pub publish_flow: String,
    /// Where one-way latency takes its time from, in words: one clock, or the wall clocks of two processes.
    pub latency_clock: String,
    /// Subscribers the run was asked for.
    pub subscribers_requested: u64,
    /// Publishers the run was asked for.
    pub publishers_requested: u64,
    /// Which CPU cores did what.
    pub cores: Cores,
    /// The operating system's kernel, such as `Linux 6.1.0`.
    pub kernel: String,
    /// The CPU's name.
    pub cpu_model: String,
    /// Why the run ended before its time; none if it did not.
    pub interrupted: Option<String>,
    /// The clauses of the service level that could not hold any more, for which the run was ended early, with what had been
    /// measured by then; empty if it was not.
    pub ended_early_by: Vec<JudgedClause>,
    /// Whether figures below cover only a part of the profile.
    pub partial: bool,
}

impl Run {
    /// The run as one that was ended early for clauses that could not hold any more, if there are any.
    #[must_use]
    pub fn ended_early(mut self, clauses: Vec<JudgedClause>) -> Self {
        if !clauses.is_empty() {
            self.interrupted = Some(cost::ended_early(&clauses));
            self.partial = true;
            self.ended_early_by = clauses;
        }
        self
    }
}

/// A benchmark profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name of the profile, usually its file name.
    pub name: String,
    /// The profile in canonical form: Appendix A's keys, defaults written out.
    pub text: String,
}

/// The CPU cores that each part was bound to; empty where it was not bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cores {
    /// Cores of the relay.
    pub relay: Vec<u32>,
    /// Cores of the publishers.
    pub publishers: Vec<u32>,
    /// Cores of the subscribers.
    pub subscribers: Vec<u32>,
}

impl Cores {
    /// What is wrong with the choice: relay and generator share a core. None if nothing is.
    pub fn problem(&self) -> Option<String> {
        let generator = || self.publishers.iter().chain(&self.subscribers);
        let is_shared = |core: &&u32| generator().any(|one| one == *core);
        let mut shared: Vec<u32> = self.relay.iter().filter(is_shared).copied().collect();
        shared.sort_unstable();
        shared.dedup();
        let cores = if shared.len() > 1 { "cores" } else { "core" };
        (!shared.is_empty()).then(|| {
            format!(
                "relay and load generator share {cores} {}: each takes time from the other",
                number::cores(&shared)
            )
        })
    }
}

/// How long the subscribers took to get going.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetUp {
    /// From the first packet to a connected transport, over connections.
    pub handshake: Option<Distribution>,
    /// From the connected transport to the peer's SETUP, over connections.
    pub setup: Option<Distribution>,
    /// From SUBSCRIBE to the first object of any kind, over subscriptions.
    pub first_object: Option<Distribution>,
}

impl SetUp {
    /// Gathers the set-up times of all subscribers; a connection that serves several tracks counts once.
    pub fn over(tracks: &[TrackReport]) -> Self {
        let subscribers = || tracks.iter().flat_map(|track| &track.subscribers);
        let per_connection = |pick: fn(&SubscriberReport) -> Option<f64>| {
            let by_connection: std::collections::BTreeMap<u64, f64> = subscribers()
                .filter_map(|subscriber| Some((subscriber.index, pick(subscriber)?)))
                .collect();
            Distribution::of(by_connection.into_values())
        };
        Self {
            handshake: per_connection(|subscriber| subscriber.handshake_ms),
            setup: per_connection(|subscriber| subscriber.setup_ms),
            first_object: Distribution::of(
                subscribers().filter_map(|subscriber| subscriber.first_object_ms),
            ),
        }
    }
}
