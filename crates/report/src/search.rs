//! The search for the largest load that a relay carries: which load to probe next, and the answer.
//!
//! [`next`] is a function of the probes made so far, without state of its own. So an interrupted search is continued
//! from its recorded probes. The search doubles the load until a probe fails, bisects, and repeats both sides of the
//! boundary until each is settled. The caller runs the probes.

mod answer;
mod estimate;
mod probe;
mod record;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::answer::{Answer, BrokenClause, Interval};
pub use self::probe::{Probe, ProbeFigures, ProbeOutcome, STOLEN_PERCENT_MAX};
pub use self::record::{Dimension, FIND_MAX_SCHEMA, FixedLoad, ReadError, Record, RecordedSearch};
pub use self::table::{heading, row};

/// The settings of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The load of the first probe.
    pub from: u64,
    /// The smallest load that is probed, at least 1.
    pub least: u64,
    /// The largest load that is probed.
    pub most: u64,
    /// Largest distance between both sides of the boundary at the end, in per cent of the lower side.
    pub precision_percent: u64,
    /// Probes of each side of the boundary.
    pub repeats: u32,
    /// Probes of `repeats` that have to hold for the load to hold; at most `repeats`.
    pub needed: u32,
    /// Number of probes after which the search ends, settled or not.
    pub probes_max: usize,
}

/// The next step of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Run a probe at this load.
    Probe(u64),
    /// The search is over; this is the answer.
    Done(Answer),
}

impl Settings {
    /// Returns what is wrong with the settings, if anything.
    pub fn problem(&self) -> Option<&'static str> {
        if self.least == 0 {
            Some("the smallest load must be at least 1")
        } else if self.most < self.least {
            Some("the largest load must not be below the smallest")
        } else if !(self.least..=self.most).contains(&self.from) {
            Some("the first load must lie between the smallest and the largest")
        } else if self.needed == 0 || self.needed > self.repeats {
            Some(
                "the number of repeats that have to hold must be at least 1 and at most all repeats",
            )
        } else {
            None
        }
    }

    /// Returns the largest distance between both sides of a boundary above `held`.
    fn gap(&self, held: u64) -> u64 {
        (held.saturating_mul(self.precision_percent) / 100).max(1)
    }
}

/// Returns the next step after `probes`. At each load, the first [`DISTURBED_PROBES_MAX`] disturbed probes
/// ([`Probe::is_disturbed`]) do not count, so they are repeated.
pub fn next(settings: &Settings, probes: &[Probe]) -> Step {
    let is_used_up = probes.len() >= settings.probes_max;
    let probes = &counted(probes);
    let tallies = tally(probes);
    if let Some((load, _)) = tallies.iter().find(|(_, tally)| tally.is_doubtful()) {
        return Step::Probe(*load);
    }
    let bound = boundary(&tallies);
    if is_used_up {
        return Step::Done(answer::open(
            &bound,
            &tallies,
            probes,
            "the number of probes was used up",
        ));
    }
    let unsettled = [bound.held, bound.not_held]
        .into_iter()
        .flatten()
        .find(|load| !tallies[load].is_settled(settings));
    let probe = match (bound.held, bound.not_held) {
        (None, None) => Some(settings.from),
        (Some(held), None) if held < settings.most => {
            Some(held.saturating_mul(2).min(settings.most))
        }
        (None, Some(upper)) if upper > settings.least => Some((upper / 2).max(settings.least)),
        (Some(held), Some(upper)) if upper - held > settings.gap(held) => {
            Some(held + (upper - held) / 2)
        }
        (Some(_), None | Some(_)) | (None, Some(_)) => unsettled,
    };
    probe.map_or_else(
        || Step::Done(answer::settled(&bound, &tallies, probes)),
        Step::Probe,
    )
}

/// Returns the answer of a search that ends after `probes` for `reason`.
pub fn broken_off(probes: &[Probe], reason: &str) -> Answer {
    let probes = &counted(probes);
    let tallies = tally(probes);
    answer::open(&boundary(&tallies), &tallies, probes, reason)
}

/// Counts of the outcomes of all probes at one load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    held: u32,
    broke: u32,
    generator: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Held,
    Broke,
    Generator,
}

impl Tally {
    /// Classifies by the majority of the probes. As many held as broken count as broken.
    fn class(self) -> Class {
        if self.generator >= GENERATOR_PROBES {
            Class::Generator
        } else if self.held > self.broke {
            Class::Held
        } else if self.broke > 0 {
            Class::Broke
        } else {
            Class::Generator
        }
    }

    /// Returns true if more probes would not change the class.
    fn is_settled(self, settings: &Settings) -> bool {
        self.generator >= GENERATOR_PROBES
            || self.held >= settings.needed
            || self.broke > settings.repeats - settings.needed
    }

    /// Returns true if the only probes are a few in which the generator was the limit, possibly by a disturbance.
    fn is_doubtful(self) -> bool {
        self.generator > 0 && self.generator < GENERATOR_PROBES && self.held + self.broke == 0
    }
}

/// Returns the probes that count: all except the first [`DISTURBED_PROBES_MAX`] disturbed probes at each load. Later
/// ones count, so that a search ends on a machine that is always busy.
fn counted(probes: &[Probe]) -> Vec<Probe> {
    let mut disturbed: BTreeMap<u64, usize> = BTreeMap::new();
    let counts = |probe: &&Probe| {
        if !probe.is_disturbed() {
            return true;
        }
        let times = disturbed.entry(probe.load).or_default();
        *times += 1;
        *times > DISTURBED_PROBES_MAX
    };
    probes.iter().filter(counts).cloned().collect()
}

fn tally(probes: &[Probe]) -> BTreeMap<u64, Tally> {
    let mut tallies: BTreeMap<u64, Tally> = BTreeMap::new();
    for probe in probes {
        let tally = tallies.entry(probe.load).or_default();
        match probe.outcome {
            ProbeOutcome::Held => tally.held += 1,
            ProbeOutcome::Broke { .. } => tally.broke += 1,
            ProbeOutcome::Generator { .. } => tally.generator += 1,
        }
    }
    tallies
}

/// Both sides of the boundary between loads that hold and loads that do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Boundary {
    /// The largest load below `not_held` that held.
    held: Option<u64>,
    /// The smallest load that did not hold.
    not_held: Option<u64>,
}

fn boundary(tallies: &BTreeMap<u64, Tally>) -> Boundary {
    let not_held = tallies
        .iter()
        .find(|(_, tally)| tally.class() != Class::Held)
        .map(|(load, _)| *load);
    let held = tallies
        .range(..not_held.unwrap_or(u64::MAX))
        .next_back()
        .map(|(load, _)| *load);
    Boundary { held, not_held }
}

/// Most probes at one load that are repeated because the hypervisor gave CPU time to others.
pub const DISTURBED_PROBES_MAX: usize = 4;
/// Number of probes after which the generator counts as the limit at a load.
const GENERATOR_PROBES: u32 = 2;
