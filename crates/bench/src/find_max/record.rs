//! A search as a file: what was asked, every probe, the answer. A search is resumed from it.

use serde::{Deserialize, Serialize};

use super::{Answer, Probe, Settings, Step, next};
use crate::report::Calibration;

/// Version of the record's form; it grows whenever a field changes or goes.
pub const FIND_MAX_SCHEMA: u32 = 3;

/// What the load of a search is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Subscribers of one publisher.
    Subscribers,
    /// Meetings, each of the same number of clients.
    Meetings,
    /// Bits per second of the profile's tracks together, in thousands.
    BitRate,
}

/// All that one search has to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Version of this form: [`FIND_MAX_SCHEMA`].
    pub find_max: u32,
    /// What was searched.
    pub search: RecordedSearch,
    /// The probes in the order in which they were made.
    pub probes: Vec<Probe>,
    /// The load of the answer against a null relay; none if that was not tried.
    pub calibration: Option<Calibration>,
    /// What they say.
    pub answer: Answer,
    /// The same in a sentence.
    pub sentence: String,
}

/// What was searched. A record is resumed only by a search of the same, though its settings may be others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedSearch {
    /// What the load is made of.
    pub dimension: Dimension,
    /// How it was searched.
    pub settings: Settings,
    /// The profile in canonical form.
    pub profile: String,
    /// The service level that has to hold.
    pub slo: String,
    /// Where the relay was reached, or `weir` for one of our own for each probe.
    pub relay: String,
}

/// Why a record could not be read or does not fit.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The text is no record of a search.
    #[error("not a record of a search: {0}")]
    Invalid(#[from] serde_json::Error),
    /// The record has another form than this version reads.
    #[error("the record has version {0}, and this program reads version {FIND_MAX_SCHEMA}")]
    Version(u32),
    /// The record is of another search.
    #[error("the record is of another search: its {0} differs")]
    Other(&'static str),
}

impl Dimension {
    /// What loads are counted in.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Subscribers => "subscribers",
            Self::Meetings => "meetings",
            Self::BitRate => "kbit/s per subscriber",
        }
    }
}

impl Record {
    /// The record of a search that has come this far; `broken_off` says why it does not go on, if so.
    pub fn new(
        search: RecordedSearch,
        probes: Vec<Probe>,
        calibration: Option<Calibration>,
        broken_off: Option<&str>,
    ) -> Self {
        let answer = match (next(&search.settings, &probes), broken_off) {
            (Step::Done(answer), _) => answer,
            (Step::Probe(_), reason) => {
                super::broken_off(&probes, reason.unwrap_or("the search is not over"))
            }
        };
        let answer = match &calibration {
            Some(calibration) => answer.calibrated(calibration),
            None => answer,
        };
        Self {
            find_max: FIND_MAX_SCHEMA,
            sentence: sentence(&answer, search.dimension.unit(), calibration.as_ref()),
            search,
            probes,
            calibration,
            answer,
        }
    }

    /// The record as JSON, with a line feed at its end.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        let mut text = text.expect("a record has string keys only, and memory takes all");
        text.push('\n');
        text
    }

    /// Reads what [`Record::to_json`] wrote, for a search of the same as `search`.
    pub fn resume(text: &str, search: &RecordedSearch) -> Result<Self, ReadError> {
        let value: serde_json::Value = serde_json::from_str(text)?;
        let version = value.get("find_max").and_then(serde_json::Value::as_u64);
        if let Some(version) = version
            && version != u64::from(FIND_MAX_SCHEMA)
        {
            return Err(ReadError::Version(
                u32::try_from(version).unwrap_or(u32::MAX),
            ));
        }
        let record: Self = serde_json::from_str(text)?;
        let differences = [
            ("dimension", record.search.dimension != search.dimension),
            ("profile", record.search.profile != search.profile),
            ("service level", record.search.slo != search.slo),
            ("relay", record.search.relay != search.relay),
        ];
        match differences.into_iter().find(|(_, differs)| *differs) {
            Some((what, _)) => Err(ReadError::Other(what)),
            None => Ok(record),
        }
    }
}

/// The answer in words, and what shows that it is the relay's and not the generator's.
fn sentence(answer: &Answer, unit: &str, calibration: Option<&Calibration>) -> String {
    let sentence = answer.sentence(unit);
    let proof = calibration.filter(|calibration| calibration.held);
    proof.map_or_else(
        || sentence.clone(),
        |proof| {
            let p99 = proof
                .latency_p99_ms
                .map_or_else(String::new, |p99| format!(", p99 {p99:.1} ms"));
            let cpu = proof.generator_cpu_percent.map_or_else(String::new, |cpu| {
                format!(", its busiest thread at {cpu:.0} %")
            });
            format!("{sentence}; the generator did the same against a null relay{p99}{cpu}")
        },
    )
}
