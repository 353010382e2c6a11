//! The answer of a search, in figures and in a sentence.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Boundary, Class, Probe, ProbeOutcome, Tally, estimate};
use crate::relay::Calibration;
use crate::service_level::JudgedClause;

/// The answer of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// The relay's limit lies between two loads.
    Found {
        /// The largest load that held.
        held: u64,
        /// The smallest load that broke.
        broke: u64,
        /// The clause that broke in most probes at `broke`. Of each probe, the first broken clause in the order of the
        /// service level counts.
        clause: BrokenClause,
        /// The 95 % interval of the limit, from all probes.
        interval: Option<Interval>,
    },
    /// The largest load of the search held.
    AtLeast {
        /// The largest load.
        held: u64,
    },
    /// The smallest load of the search broke.
    Nothing {
        /// The smallest load.
        broke: u64,
        /// The clause that broke in most probes at that load.
        clause: BrokenClause,
    },
    /// The generator was the limit, so the limit of the relay is not known.
    Generator {
        /// The largest load that held; none if none did.
        held: Option<u64>,
        /// The load that the generator could not make.
        at: u64,
        /// The parts of the load that the generator did not keep up with.
        reasons: Vec<String>,
    },
    /// The search ended before it found the limit.
    Open {
        /// The largest load that held so far.
        held: Option<u64>,
        /// The smallest load that broke the relay so far.
        not_held: Option<u64>,
        /// The clause that broke in most probes at that load.
        #[serde(default)]
        clause: Option<BrokenClause>,
        /// Why the search ended.
        reason: String,
    },
}

/// A clause of the service level that broke.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokenClause {
    /// The clause as requested, such as `p99<100ms`; or another reason why the run failed.
    pub text: String,
    /// The measured value, in `unit`; none if it was not measured.
    pub measured: Option<f64>,
    /// Unit of the measured value: `ms`, `%`, or empty for a count.
    pub unit: String,
}

/// An interval that contains the limit with a probability of 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Lower end.
    pub low: u64,
    /// Upper end.
    pub high: u64,
}

impl Answer {
    /// Returns the answer in one sentence; `unit` is the unit of loads, such as `subscribers`.
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
                        "; the limit is between {} and {} (95 % interval)",
                        interval.low, interval.high
                    )
                });
                format!(
                    "the relay carries {held} {unit}; at {broke}, {} broke{interval}",
                    clause.sentence()
                )
            }
            Self::AtLeast { held } => format!(
                "the relay carries at least {held} {unit}, the largest load that the search may try"
            ),
            Self::Nothing { broke, clause } => format!(
                "the relay does not carry {broke} {unit}, the smallest load that was tried: {} broke",
                clause.sentence()
            ),
            Self::Generator { held, at, reasons } => {
                let held = held.map_or_else(String::new, |held| {
                    format!("; largest load that held: {held} {unit}")
                });
                format!(
                    "no limit found for the relay: at {at} {unit} the generator was the limit ({}){held}",
                    reasons.join("; ")
                )
            }
            Self::Open {
                held,
                not_held,
                clause,
                reason,
            } => {
                let held = held.map_or_else(
                    || "no load held".to_owned(),
                    |load| format!("{load} {unit} held"),
                );
                let broke = not_held.zip(clause.as_ref());
                let broke = broke.map_or_else(String::new, |(load, clause)| {
                    format!("; at {load}, {} broke", clause.sentence())
                });
                format!("{held}{broke}; the limit was not found: {reason}")
            }
        }
    }

    /// Returns the answer after a calibration at the load that broke. If the null relay failed too, or most of a latency
    /// that broke is there without the relay, the generator was the limit.
    pub(super) fn calibrated(self, calibration: &Calibration) -> Self {
        let (held, broke, clause) = match &self {
            Self::Found {
                held,
                broke,
                clause,
                ..
            } => (Some(*held), *broke, clause),
            Self::Nothing { broke, clause } => (None, *broke, clause),
            Self::Open {
                held,
                not_held: Some(broke),
                clause: Some(clause),
                ..
            } => (*held, *broke, clause),
            Self::AtLeast { .. } | Self::Generator { .. } | Self::Open { .. } => return self,
        };
        let reasons = if calibration.held {
            clause.without_relay(calibration).map(|p99| {
                vec![format!(
                    "p99 is {p99:.1} ms without the relay, against a null relay"
                )]
            })
        } else {
            Some(calibration.reasons.clone())
        };
        match reasons {
            None => self,
            Some(reasons) => Self::Generator {
                held,
                at: broke,
                reasons,
            },
        }
    }

    /// Returns the load at which a calibration tells whether the relay or the generator was the limit; none if no load
    /// broke a relay.
    pub fn load_to_calibrate(&self) -> Option<u64> {
        match self {
            Self::Found { broke, .. } | Self::Nothing { broke, .. } => Some(*broke),
            Self::AtLeast { held } => Some(*held),
            // What the relay used of its core it used, whatever a null relay does.
            Self::Open {
                not_held, clause, ..
            } => {
                let is_of_cpu = |clause: &BrokenClause| clause.text.starts_with("cpu");
                not_held.filter(|_| !clause.as_ref().is_some_and(is_of_cpu))
            }
            Self::Generator { .. } => None,
        }
    }

    /// Returns the largest load that held, if a larger load broke the relay.
    pub fn limit(&self) -> Option<u64> {
        let Self::Found { held, .. } = self else {
            return None;
        };
        Some(*held)
    }
}

impl BrokenClause {
    /// Returns the p99 latency against the null relay, if the clause is about the latest objects, and that latency is more
    /// than half of theirs: then most of it is not the relay's.
    fn without_relay(&self, calibration: &Calibration) -> Option<f64> {
        let is_of_latest = ["p99", "max"].iter().any(|it| self.text.starts_with(it));
        let (measured, p99) = (self.measured?, calibration.latency_p99_ms?);
        (is_of_latest && p99 > measured / 2.0).then_some(p99)
    }

    pub(super) fn of(clause: &JudgedClause) -> Self {
        Self {
            text: clause.text.clone(),
            measured: clause.measured,
            unit: clause.unit.clone(),
        }
    }

    /// Returns the clause with the measured value: `p99<100ms (measured 131 ms)`.
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

/// Returns the answer of a search whose boundary is settled on both sides.
pub(super) fn settled(
    bound: &Boundary,
    tallies: &BTreeMap<u64, Tally>,
    probes: &[Probe],
) -> Answer {
    let Some(upper) = bound.not_held else {
        return match bound.held {
            Some(held) => Answer::AtLeast { held },
            None => open(bound, tallies, probes, "no probe was made"),
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

/// Returns the answer of a search that ends before it is settled. A load at which the generator was the limit is no load that the
/// relay did not carry.
pub(super) fn open(
    bound: &Boundary,
    tallies: &BTreeMap<u64, Tally>,
    probes: &[Probe],
    reason: &str,
) -> Answer {
    let is_generator = |load: &u64| tallies[load].class() == Class::Generator;
    let reason = match bound.not_held.filter(is_generator) {
        Some(load) => format!(
            "{reason}, and the generator was the limit at a load of {load}, which says nothing about the relay"
        ),
        None => reason.to_owned(),
    };
    let mut broke = tallies
        .iter()
        .filter(|(_, tally)| tally.class() == Class::Broke);
    let not_held = broke.next().map(|(load, _)| *load);
    Answer::Open {
        held: bound.held,
        not_held,
        clause: not_held.map(|load| clause_at(probes, load)),
        reason,
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

/// Returns the clause that broke in most probes at `load`, counting the first broken clause of each probe. Of equally
/// frequent clauses, the one that broke first.
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
