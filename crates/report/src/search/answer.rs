//! What a search has found, in figures and in a sentence.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Boundary, Class, Probe, ProbeOutcome, Tally, estimate};
use crate::relay::Calibration;
use crate::service_level::JudgedClause;

/// What a search has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// The relay's limit lies between two loads.
    Found {
        /// The largest load that held.
        held: u64,
        /// The smallest load that broke.
        broke: u64,
        /// The clause that broke there, by the majority of the probes; where several did, the first in the order in which
        /// they were asked for.
        clause: BrokenClause,
        /// Where the limit lies by all probes together.
        interval: Option<Interval>,
    },
    /// The largest load of the search held.
    AtLeast {
        /// That load.
        held: u64,
    },
    /// The smallest load of the search broke.
    Nothing {
        /// That load.
        broke: u64,
        /// The clause that broke there, chosen likewise.
        clause: BrokenClause,
    },
    /// No limit for the relay: the generator was the limit.
    Generator {
        /// The largest load that held; none if none did.
        held: Option<u64>,
        /// The load that the generator could not make.
        at: u64,
        /// What it did not keep up with.
        reasons: Vec<String>,
    },
    /// The search was broken off.
    Open {
        /// The largest load that held so far.
        held: Option<u64>,
        /// The smallest load that did not hold so far.
        not_held: Option<u64>,
        /// Why it was broken off.
        reason: String,
    },
}

/// A clause of the service level that broke.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokenClause {
    /// As it was asked for, such as `p99<100ms`; or what else ended the run.
    pub text: String,
    /// What was measured, in `unit`; none if it could not be.
    pub measured: Option<f64>,
    /// Unit of the measured value; empty for a plain number.
    pub unit: String,
}

/// A stretch that holds the limit with a probability of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Its lower end.
    pub low: u64,
    /// Its upper end.
    pub high: u64,
}

impl Answer {
    /// The answer in one sentence; `unit` is what loads are counted in, such as `subscribers`.
    pub fn sentence(&self, unit: &str) -> String {
        match self {
            Self::Found {
                held,
                broke,
                clause,
                interval,
            } => {
                let interval = interval.map_or_else(String::new, |interval| {
                    format!(
                        "; 95 % interval of the limit {} to {}",
                        interval.low, interval.high
                    )
                });
                format!(
                    "the relay carries {held} {unit}; at {broke}, {} broke{interval}",
                    clause.sentence()
                )
            }
            Self::AtLeast { held } => format!(
                "the relay carries at least {held} {unit}, the most that the search was allowed to try"
            ),
            Self::Nothing { broke, clause } => format!(
                "the relay does not carry {broke} {unit}, the least that was tried: {} broke",
                clause.sentence()
            ),
            Self::Generator { held, at, reasons } => {
                let held = held.map_or_else(String::new, |held| {
                    format!(" (the relay held {held} {unit})")
                });
                format!(
                    "no limit for the relay: at {at} {unit} the generator was the limit{held}: {}",
                    reasons.join("; ")
                )
            }
            Self::Open {
                held,
                not_held,
                reason,
            } => {
                let load =
                    |load: &Option<u64>| load.map_or_else(|| "none".to_owned(), |l| l.to_string());
                format!(
                    "no limit found: {reason}; largest load that held: {}, smallest that did not: {} ({unit})",
                    load(held),
                    load(not_held)
                )
            }
        }
    }

    /// The answer in the light of a null relay under the load that broke: if it broke there too, it was not the relay.
    pub(super) fn calibrated(self, calibration: &Calibration) -> Self {
        let (held, broke) = match &self {
            Self::Found { held, broke, .. } => (Some(*held), *broke),
            Self::Nothing { broke, .. } => (None, *broke),
            Self::AtLeast { .. } | Self::Generator { .. } | Self::Open { .. } => return self,
        };
        if calibration.held {
            return self;
        }
        Self::Generator {
            held,
            at: broke,
            reasons: calibration.reasons.clone(),
        }
    }

    /// Whether it says something of the relay that might be the generator's doing.
    pub(super) fn wants_proof(&self) -> bool {
        !matches!(self, Self::Generator { .. } | Self::Open { .. })
    }

    /// The largest load that held, where the relay's limit is known from both sides.
    pub fn limit(&self) -> Option<u64> {
        let Self::Found { held, .. } = self else {
            return None;
        };
        Some(*held)
    }
}

impl BrokenClause {
    pub(super) fn of(clause: &JudgedClause) -> Self {
        Self {
            text: clause.text.clone(),
            measured: clause.measured,
            unit: clause.unit.clone(),
        }
    }

    /// The clause with what was measured: `p99<100ms (measured 131 ms)`.
    pub fn sentence(&self) -> String {
        match self.measured {
            Some(measured) if self.unit.is_empty() => {
                format!("{} (measured {})", self.text, rounded(measured))
            }
            Some(measured) => format!(
                "{} (measured {} {})",
                self.text,
                rounded(measured),
                self.unit
            ),
            None => self.text.clone(),
        }
    }
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// The answer once both sides of the boundary are settled.
pub(super) fn settled(
    bound: &Boundary,
    tallies: &BTreeMap<u64, Tally>,
    probes: &[Probe],
) -> Answer {
    let Some(upper) = bound.not_held else {
        return match bound.held {
            Some(held) => Answer::AtLeast { held },
            None => open(bound, "nothing was tried"),
        };
    };
    if tallies[&upper].class() == Class::Generator {
        return Answer::Generator {
            held: bound.held,
            at: upper,
            reasons: reasons_at(probes, upper),
        };
    }
    let clause = clause_at(probes, upper);
    match bound.held {
        Some(held) => Answer::Found {
            held,
            broke: upper,
            clause,
            interval: estimate::interval(probes),
        },
        None => Answer::Nothing {
            broke: upper,
            clause,
        },
    }
}

/// The answer of a search that ends before it is settled.
pub(super) fn open(bound: &Boundary, reason: &str) -> Answer {
    Answer::Open {
        held: bound.held,
        not_held: bound.not_held,
        reason: reason.to_owned(),
    }
}

fn reasons_at(probes: &[Probe], load: u64) -> Vec<String> {
    let reasons = probes
        .iter()
        .rev()
        .filter(|probe| probe.load == load)
        .find_map(|probe| match &probe.outcome {
            ProbeOutcome::Generator { reasons, .. } => Some(reasons.clone()),
            ProbeOutcome::Held | ProbeOutcome::Broke { .. } => None,
        });
    reasons.unwrap_or_default()
}

/// The clause that broke in most probes at `load`, of each the first that was asked for; of equals the one that was seen
/// first.
fn clause_at(probes: &[Probe], load: u64) -> BrokenClause {
    let firsts: Vec<&BrokenClause> = probes
        .iter()
        .filter(|probe| probe.load == load)
        .filter_map(|probe| match &probe.outcome {
            ProbeOutcome::Broke { clauses, .. } => clauses.first(),
            ProbeOutcome::Held | ProbeOutcome::Generator { .. } => None,
        })
        .collect();
    let times = |text: &str| firsts.iter().filter(|one| one.text == text).count();
    let most = firsts
        .iter()
        .rev()
        .max_by_key(|clause| times(&clause.text))
        .copied();
    most.cloned().unwrap_or_else(|| BrokenClause {
        text: "the service level".to_owned(),
        measured: None,
        unit: String::new(),
    })
}
