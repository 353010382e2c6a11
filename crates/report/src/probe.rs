//! The report of one run of `weir probe`, and its output formats.
//!
//! The main type is [`Report`]; [`tap`], [`json`], [`html`] and [`page`] are its formats. Times are in milliseconds.

pub mod html;
pub mod json;
pub mod page;
pub mod tap;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

/// Version of the report's form, written as `schema`. It grows whenever a field is added, changed or removed.
pub const SCHEMA: u32 = 2;

/// The report of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Version of the report's form.
    pub schema: u32,
    /// The relay's URL, without what may hold a token.
    pub url: String,
    /// The name of the relay that was given, otherwise the one that it sent in SETUP.
    pub relay: String,
    /// `raw QUIC` or `WebTransport`.
    pub transport: String,
    /// The draft of the cases, as the ALPN name: `moqt-22`.
    pub draft: String,
    /// When the run began, in UTC.
    pub start_time: String,
    /// Version of weir that made the run.
    pub weir_version: String,
    /// The command that made the run.
    pub command_line: String,
    /// The seed of what is random.
    pub seed: u64,
    /// The cases, in the order in which they ran.
    pub cases: Vec<Case>,
    /// What the bystander lost in each part of the run; the first is before the cases.
    pub bystander: Vec<Bystander>,
    /// Why the bystander's sessions ended, if they did.
    pub bystander_failure: Option<String>,
    /// The relay's memory; null if its process was not watched.
    pub memory: Option<Memory>,
}

/// A case and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// What kind of case it is.
    pub kind: Kind,
    /// The section of the report's draft; empty for cases of robustness.
    pub section: String,
    /// What the relay has to do.
    pub requirement: String,
    /// How strictly the draft requires it.
    pub level: Level,
    /// The result.
    pub result: Outcome,
    /// What was expected and what happened, of a case that failed; the reason, of one that was skipped.
    pub details: String,
    /// How long the case took.
    pub duration_ms: f64,
    /// Messages and datagrams that the case sent.
    pub messages: u64,
}

/// The kinds of case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A rule of the draft.
    Conformance,
    /// The relay survives what it is sent, and serves others.
    Robustness,
    /// Many hostile messages.
    Volume,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Conformance, Self::Robustness, Self::Volume];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conformance => "Conformance",
            Self::Robustness => "Robustness",
            Self::Volume => "Volume",
        }
    }
}

/// How strictly the draft requires what a case tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The draft says MUST.
    Must,
    /// The draft says SHOULD.
    Should,
    /// The draft does not say what the receiver has to do.
    Implied,
}

impl Level {
    /// Returns what the draft says.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::Implied => "implied",
        }
    }
}

/// The result of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The relay did what it has to do.
    Passed,
    /// It did not.
    Failed,
    /// The relay did not do something else, so that the requirement could not be tested.
    Unreached,
    /// The case does not concern this relay or transport.
    Skipped,
}

/// What the bystander lost in a part of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bystander {
    /// The part of the run.
    pub during: String,
    /// Objects that were planned.
    pub planned: u64,
    /// Objects that did not arrive.
    pub lost: u64,
    /// How late the median object was, from its planned time.
    pub p50_ms: f64,
    /// How late 99 % of the objects were at most.
    pub p99_ms: f64,
    /// How late the last object was.
    pub max_ms: f64,
}

/// The memory of the relay's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Resident memory before the first case.
    pub before_bytes: u64,
    /// The peak until the end.
    pub peak_bytes: u64,
    /// Resident memory after the last case, and a pause.
    pub after_bytes: u64,
}

impl Case {
    /// Whether its failure makes the run fail.
    pub fn is_fatal(&self) -> bool {
        let has_failed = matches!(self.result, Outcome::Failed | Outcome::Unreached);
        has_failed && self.level == Level::Must
    }
}

impl Report {
    /// Returns the name of the draft's document.
    pub fn document(&self) -> String {
        self.draft.replacen("moqt-", "draft-ietf-moq-transport-", 1)
    }

    /// Returns the number of cases with this result, among those that the draft requires.
    pub fn count(&self, result: Outcome) -> usize {
        let required = self.cases.iter().filter(|case| case.level == Level::Must);
        required.filter(|case| case.result == result).count()
    }

    /// Returns the number of objects that the bystander lost after the cases began.
    pub fn bystander_lost(&self) -> u64 {
        self.bystander.iter().skip(1).map(|part| part.lost).sum()
    }

    /// Whether all required cases passed or were skipped, and the bystander lost nothing.
    pub fn holds(&self) -> bool {
        !self.cases.iter().any(Case::is_fatal) && self.bystander_lost() == 0
    }
}
