//! The report of one run of the relay benchmark, and its output formats.
//!
//! This module holds the data of a report, which the program fills. The main types are [`Report`], [`TrackReport`] and
//! [`Verdict`]. [`json`] stores a report, [`terminal`] and [`html`] show it, and [`archive`] keeps the whole run.
//!
//! Times are in milliseconds. Seconds of a series count from the start of the run, by the generator's clock.

pub mod agents;
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
mod audience;
mod conduct;
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

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::agents::{Agent, AgentSecond};
pub use self::altered::Altered;
pub use self::audience::{Acknowledged, Audience};
pub use self::conduct::{Conduct, SetApart};
pub use self::cost::{
    Generator, GeneratorSecond, GeneratorThread, MetricSecond, Relay, RelayCost, RelayMetric,
    RelaySamples, RelaySecond, RelaySource, Window,
};
#[cfg(test)]
pub(crate) use self::example::example_report;
pub use self::heat_map::{HeatMap, HeatMapRow};
pub use self::over_time::ProgressSecond;
pub use self::proof::{Calibration, Fairness, Headroom};
pub use self::sanitize::{SanitizeError, sanitize, sanitize_record};
pub use self::track::{
    Completion, CompletionSummary, Delivery, ObjectPosition, Progress, ProgressSummary, Published,
    Status, StatusCounts, SubscriberReport, TrackDefinition, TrackReport, Variance,
    VarianceSummary,
};
pub use self::verdict::{Outcome, Verdict};
use crate::form::number;
use crate::service_level::{JudgedClause, JudgedLevel};
use crate::statistics::Distribution;

/// Version of the report's form, written as `schema`. It grows whenever a field is added, changed or removed.
pub const SCHEMA: u32 = 7;

/// The report of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Report of weir bench", extend("$id" = format!("urn:weir:report:{SCHEMA}")))]
pub struct Report {
    /// Version of the report's form.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: u32,
    /// The verdict, which follows from all other fields.
    pub verdict: Verdict,
    /// Load, relay address and machine of the run.
    pub run: Run,
    /// The requested service level, and whether it held.
    pub slo: JudgedLevel,
    /// An entry for each track definition, in the order of the profile.
    pub tracks: Vec<TrackReport>,
    /// How long connecting and subscribing took.
    pub set_up: SetUp,
    /// Cost, counters and metrics of the relay.
    pub relay: Relay,
    /// Whether the load generator kept up, and its own load.
    pub generator: Generator,
    /// How much more load the generator could have made; null if the run was too short, or CPU times are missing.
    pub headroom: Option<Headroom>,
}

impl Report {
    /// Makes a report from its measured parts, and computes set-up times, headroom and verdict.
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

    /// Returns the report with a new verdict, after a change of other fields.
    #[must_use]
    pub fn judged_again(mut self) -> Self {
        self.verdict = Verdict::of(&self);
        self
    }

    /// Returns the report with the calibration of its load. If the calibration did not hold, the generator counts as
    /// unhealthy, unless the run held.
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

    /// Returns the number of objects received, over all tracks and subscribers.
    pub fn objects_delivered(&self) -> u64 {
        self.tracks
            .iter()
            .map(|track| track.completion.objects_received.sum)
            .sum()
    }

    /// Returns the number of lost objects before the judged part of the run.
    pub fn objects_lost_before(&self) -> u64 {
        self.objects_lost().saturating_sub(self.slo.lost_objects)
    }

    /// Returns the number of lost objects, over all tracks and subscribers.
    pub fn objects_lost(&self) -> u64 {
        self.tracks
            .iter()
            .map(|track| track.completion.lost_objects.sum)
            .sum()
    }
}

/// The run: program, load, relay address and machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Version of weir that made the run.
    pub weir_version: String,
    /// The command line, its arguments joined by spaces.
    pub command_line: String,
    /// The benchmark profile.
    pub profile: Profile,
    /// Seed of all random choices of the run. A 64-bit number: programs that read numbers as doubles may round it.
    pub seed: u64,
    /// Name of the run. It replaces `{run}` in namespaces of the profile.
    pub run_id: String,
    /// Start of the run, in the form of RFC 3339.
    pub start_time: String,
    /// Duration of the run, set-up and drain included.
    pub duration_ms: f64,
    /// URL of the relay.
    pub relay_url: String,
    /// The negotiated draft, by its ALPN, such as `moqt-18`; null if no session was established.
    pub draft: Option<String>,
    /// Transport of the sessions: `raw QUIC` or `WebTransport`.
    pub transport: String,
    /// How tracks were offered: `PUBLISH` or `PUBLISH_NAMESPACE`. If subscribers found them by `SUBSCRIBE_NAMESPACE` or
    /// `SUBSCRIBE_TRACKS`, this follows after a comma.
    pub publish_flow: String,
    /// Clock of one-way latency, in words: one clock, or the wall clocks of two processes.
    pub latency_clock: String,
    /// Largest error of latency because publishers and subscribers have different clocks: 0 for one clock, null if it is
    /// unknown.
    pub clock_error_ms: Option<f64>,
    /// Number of subscribers requested.
    pub subscribers_requested: u64,
    /// Number of publishers requested.
    pub publishers_requested: u64,
    /// Sockets, threads and acknowledgements of the subscribers.
    pub audience: Audience,
    /// CPU cores of relay and load generator.
    pub cores: Cores,
    /// Kernel of the operating system, such as `Linux 6.1.0`.
    pub kernel: String,
    /// Model name of the CPU.
    pub cpu_model: String,
    /// Why the run ended early; null if it did not.
    pub interrupted: Option<String>,
    /// The clearly broken clauses for which the run was ended early, with the values measured so far; empty if it was not.
    pub ended_early_by: Vec<JudgedClause>,
    /// True if the run ended early, so that the figures cover only a part of the profile.
    pub partial: bool,
}

impl Run {
    /// Returns the largest error of latency because of different clocks; `None` if it is unknown.
    pub(crate) fn clock_error(&self) -> Option<Duration> {
        let seconds = self.clock_error_ms? / 1e3;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// Returns the run, marked as ended early if there are clearly broken `clauses`.
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
    /// Name of the profile, usually the file name.
    pub name: String,
    /// The profile in canonical form: the keys of Appendix A of the draft, with default values written out.
    pub text: String,
}

/// The CPU cores of relay and load generator. A list is empty if the part was not bound to cores.
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
    /// Returns a warning if relay and generator share a core.
    pub fn problem(&self) -> Option<String> {
        let generator = || self.publishers.iter().chain(&self.subscribers);
        let is_shared = |core: &&u32| generator().any(|one| one == *core);
        let mut shared: Vec<u32> = self.relay.iter().filter(is_shared).copied().collect();
        shared.sort_unstable();
        shared.dedup();
        let cores = if shared.len() > 1 { "cores" } else { "core" };
        (!shared.is_empty()).then(|| {
            format!(
                "relay and load generator share {cores} {} and slow each other down",
                number::cores(&shared)
            )
        })
    }
}

/// Times of connecting and subscribing. Null: nothing was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetUp {
    /// Time from the first packet to the end of the QUIC handshake, over all connections.
    pub handshake: Option<Distribution>,
    /// Time from the end of the handshake to the relay's SETUP, over all connections.
    pub setup: Option<Distribution>,
    /// Time from SUBSCRIBE to the first object, START included, over all subscriptions.
    pub first_object: Option<Distribution>,
    /// Time from a joining FETCH to the end of its stream, over the subscriptions that made one.
    pub joining_fetch: Option<Distribution>,
}

impl SetUp {
    /// Collects the set-up times of all subscribers. A connection with several tracks counts once.
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
            joining_fetch: Distribution::of(
                subscribers().filter_map(|subscriber| subscriber.joining_fetch_ms),
            ),
        }
    }
}
