//! The record of a search as a file: settings, every probe, the answer. `--resume` continues a search from it.

use serde::{Deserialize, Serialize};

use super::{Answer, Probe, Settings, Step, next};
use crate::relay::Calibration;

/// Version of the record's form. It grows whenever a field is changed or removed.
pub const FIND_MAX_SCHEMA: u32 = 6;

/// The dimension in which a search raises the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Subscribers of one publisher.
    Subscribers,
    /// Meetings with the same number of clients each.
    Meetings,
    /// Bit rate of all tracks of the profile together, in kbit/s.
    BitRate,
    /// Publishers, among which the subscribers take turns.
    Publishers,
    /// Copies of each track of the profile; every subscriber receives all of them.
    Tracks,
}

/// The record of one search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Version of this form: [`FIND_MAX_SCHEMA`].
    pub find_max: u32,
    /// The settings and the load of the search.
    pub search: RecordedSearch,
    /// The probes in the order in which they were made.
    pub probes: Vec<Probe>,
    /// The calibration at the load of the answer; none if it was not requested, or failed.
    pub calibration: Option<Calibration>,
    /// Why the calibration failed; none if it succeeded or was not requested.
    pub calibration_problem: Option<String>,
    /// The answer.
    pub answer: Answer,
    /// The answer in a sentence.
    pub sentence: String,
}

/// The settings and the load of a search. A record can be resumed only by a search with the same values in all fields
/// except `settings`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedSearch {
    /// The dimension in which the load is raised.
    pub dimension: Dimension,
    /// Range, precision and repeats.
    pub settings: Settings,
    /// The profile in canonical form.
    pub profile: String,
    /// The service level.
    pub slo: String,
    /// URL of the relay, or `weir` if each probe starts weir's own.
    pub relay: String,
    /// The part of the load that is the same in every probe.
    pub fixed: FixedLoad,
    /// How tracks are offered and found: the publish flow and the subscribe flow.
    pub flow: String,
    /// Encoding of the benchmark's messages (`--wire`).
    pub wire: String,
}

/// The part of the load that a search does not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedLoad {
    /// Publishers; none if their number is searched, and in meetings.
    pub publishers: Option<u64>,
    /// Subscribers in a run without meetings; none if their number is searched, and in meetings.
    pub subscribers: Option<u64>,
    /// Meetings; none if their number is searched, and without meetings.
    pub meetings: Option<u64>,
    /// Clients of each meeting; none without meetings.
    pub clients_per_meeting: Option<u64>,
}

/// An error in reading a record.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The text is not a record of a search.
    #[error("not a record of a search: {0}")]
    Invalid(serde_json::Error),
    /// The record has a version that this program does not read.
    #[error("the record has version {0}, and this program reads version {FIND_MAX_SCHEMA}")]
    Version(u32),
    /// The record is of another search. The text says what differs, with both values.
    #[error("the record is of another search: its {0}")]
    Other(String),
}

impl Dimension {
    /// Returns the unit of loads.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Subscribers => "subscribers",
            Self::Meetings => "meetings",
            Self::BitRate => "kbit/s per subscriber",
            Self::Publishers => "publishers",
            Self::Tracks => "copies of each track",
        }
    }
}

impl Record {
    /// Makes the record of a search after `probes`. `broken_off` says why the search ended before it was settled.
    pub fn new(
        search: RecordedSearch,
        probes: Vec<Probe>,
        calibration: Option<Calibration>,
        broken_off: Option<&str>,
    ) -> Self {
        let answer = match (next(&search.settings, &probes), broken_off) {
            (Step::Done(answer), _) => answer,
            (Step::Probe(_), reason) => {
                super::broken_off(&probes, reason.unwrap_or("the search is not finished"))
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
            calibration_problem: None,
            answer,
        }
    }

    /// Writes the record as JSON, with a line feed at its end.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        let mut text = text.expect("a record has string keys only, and memory takes all");
        text.push('\n');
        text
    }

    /// Reads a record that [`Record::to_json`] wrote.
    ///
    /// # Errors
    /// The text is not a record, has another version, or is of another search than `search`.
    pub fn resume(text: &str, search: &RecordedSearch) -> Result<Self, ReadError> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(ReadError::Invalid)?;
        let version = value.get("find_max").and_then(serde_json::Value::as_u64);
        if let Some(version) = version
            && version != u64::from(FIND_MAX_SCHEMA)
        {
            return Err(ReadError::Version(
                u32::try_from(version).unwrap_or(u32::MAX),
            ));
        }
        let record: Self = serde_json::from_str(text).map_err(ReadError::Invalid)?;
        match record.search.difference_to(search) {
            Some(error) => Err(error),
            None => Ok(record),
        }
    }

    /// Returns the record with the reason why its calibration failed.
    #[must_use]
    pub fn uncalibrated(mut self, reason: &str) -> Self {
        self.calibration_problem = Some(reason.to_owned());
        self.sentence = format!("{}: {reason}", self.sentence);
        self
    }
}

impl RecordedSearch {
    /// Returns the first difference to the search `here`, if any.
    fn difference_to(&self, here: &Self) -> Option<ReadError> {
        let count =
            |count: Option<u64>| count.map_or_else(|| "none".to_owned(), |one| one.to_string());
        let (mine, other) = (self.fixed, here.fixed);
        let texts = [
            ("dimension", self.dimension.unit(), here.dimension.unit()),
            ("service level", &*self.slo, &*here.slo),
            ("relay", &*self.relay, &*here.relay),
            ("publish flow", &*self.flow, &*here.flow),
            ("encoding of messages (--wire)", &*self.wire, &*here.wire),
        ];
        let texts = texts.map(|(name, there, here)| (name, there.to_owned(), here.to_owned()));
        let counts = [
            ("number of publishers", mine.publishers, other.publishers),
            ("number of subscribers", mine.subscribers, other.subscribers),
            ("number of meetings", mine.meetings, other.meetings),
            (
                "number of clients in a meeting",
                mine.clients_per_meeting,
                other.clients_per_meeting,
            ),
        ];
        let counts = counts.map(|(name, there, here)| (name, count(there), count(here)));
        let mut all = texts.into_iter().chain(counts);
        let differing = all.find(|(_, there, here)| there != here);
        if let Some((name, there, here)) = differing {
            let words = format!("{name} is {there} in the record, and {here} in this search");
            return Some(ReadError::Other(words));
        }
        // Profiles are too long for an error message.
        let is_same = self.profile == here.profile;
        (!is_same).then(|| ReadError::Other("profile differs".to_owned()))
    }
}

/// Returns the answer in words, with the result of the calibration.
fn sentence(answer: &Answer, unit: &str, calibration: Option<&Calibration>) -> String {
    let sentence = answer.sentence(unit);
    let Some(calibration) = calibration else {
        return if answer.load_to_calibrate().is_some() {
            format!("{sentence}; not calibrated")
        } else {
            sentence
        };
    };
    if !calibration.held {
        return sentence;
    }
    let p99 = calibration
        .latency_p99_ms
        .map_or_else(String::new, |p99| format!(", p99 {p99:.1} ms"));
    let cpu = calibration
        .generator_cpu_percent
        .map_or_else(String::new, |cpu| {
            format!(", busiest thread at {cpu:.0} % of a core")
        });
    format!("{sentence}; against a null relay the generator made this load{p99}{cpu}")
}
