//! A search as a file: what was asked, every probe, the answer. A search is resumed from it.

use serde::{Deserialize, Serialize};

use super::{Answer, Probe, Settings, Step, next};
use crate::relay::Calibration;

/// Version of the record's form; it grows whenever a field changes or goes.
pub const FIND_MAX_SCHEMA: u32 = 6;

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
    /// Publishers, among which the subscribers take turns.
    Publishers,
    /// Copies of each track of the profile; every subscriber receives all of them.
    Tracks,
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
    /// The load of the answer against a null relay; none if that was not tried, or failed.
    pub calibration: Option<Calibration>,
    /// Why the load of the answer could not be put on a null relay; none if it was, or was not to be.
    pub calibration_problem: Option<String>,
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
    /// What of the load stays the same in every probe.
    pub fixed: FixedLoad,
    /// How tracks are offered and found.
    pub flow: String,
    /// How the benchmark's messages look.
    pub wire: String,
}

/// What of the load a search leaves as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedLoad {
    /// Publishers of the fan-out; none where they are what is searched, and for meetings.
    pub publishers: Option<u64>,
    /// Subscribers of the fan-out; none where they are what is searched, and for meetings.
    pub subscribers: Option<u64>,
    /// Meetings; none where they are what is searched, and for a fan-out.
    pub meetings: Option<u64>,
    /// Clients of each meeting; none for a fan-out.
    pub clients_per_meeting: Option<u64>,
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
    /// The record is of another search: what differs, as it is in both.
    #[error("the record is of another search: its {0}")]
    Other(String),
}

impl Dimension {
    /// What loads are counted in.
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
            calibration_problem: None,
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
        match record.search.difference_to(search) {
            Some(error) => Err(error),
            None => Ok(record),
        }
    }

    /// The record of an answer that could not be put on a null relay, for `reason`.
    #[must_use]
    pub fn uncalibrated(mut self, reason: &str) -> Self {
        self.calibration_problem = Some(reason.to_owned());
        self.sentence = format!("{}: {reason}", self.sentence);
        self
    }
}

impl RecordedSearch {
    /// The first thing in which a search is another one than `here`.
    fn difference_to(&self, here: &Self) -> Option<ReadError> {
        let count =
            |count: Option<u64>| count.map_or_else(|| "none".to_owned(), |one| one.to_string());
        let (mine, other) = (self.fixed, here.fixed);
        let texts = [
            ("dimension", self.dimension.unit(), here.dimension.unit()),
            ("service level", &*self.slo, &*here.slo),
            ("relay", &*self.relay, &*here.relay),
            ("publish flow", &*self.flow, &*here.flow),
            ("form of messages", &*self.wire, &*here.wire),
        ];
        let texts = texts.map(|(name, there, here)| (name, there.to_owned(), here.to_owned()));
        let counts = [
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
            let words = format!("{name} differs: {there} there, {here} here");
            return Some(ReadError::Other(words));
        }
        // Too long to stand in a line.
        let is_same = self.profile == here.profile;
        (!is_same).then(|| ReadError::Other("profile differs".to_owned()))
    }
}

/// The answer in words, and what shows that it is the relay's and not the generator's.
fn sentence(answer: &Answer, unit: &str, calibration: Option<&Calibration>) -> String {
    let sentence = answer.sentence(unit);
    let Some(calibration) = calibration else {
        return if answer.wants_proof() {
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
            format!(", its busiest thread at {cpu:.0} %")
        });
    format!("{sentence}; the generator did the same against a null relay{p99}{cpu}")
}
