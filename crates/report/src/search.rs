//! The search for the largest load that a relay carries: which load to probe next, and what the probes say.
//!
//! The search is a fold over the probes made so far, without a state of its own: a search that was broken off
//! goes on where it stopped when it is given its probes again. It brackets by doubling, bisects, and repeats both
//! sides of the boundary until each is settled. What it is *not*: it makes no probe itself.

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

/// What a search looks for, and how thoroughly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The load of the first probe.
    pub from: u64,
    /// The smallest load that is probed, at least 1.
    pub least: u64,
    /// The largest load that is probed.
    pub most: u64,
    /// The boundary is found when its sides are this share of the lower one apart, in per cent.
    pub precision_percent: u64,
    /// Probes of each side of the boundary.
    pub repeats: u32,
    /// How many of these have to hold for the load to hold, at most `repeats`.
    pub needed: u32,
    /// Probes in all, after which the search ends where it stands.
    pub probes_max: usize,
}

/// What a search wants next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A probe at this load.
    Probe(u64),
    /// Nothing: this is the answer.
    Done(Answer),
}

impl Settings {
    /// What is wrong with these settings, if anything.
    pub fn problem(&self) -> Option<&'static str> {
        if self.least == 0 {
            Some("the smallest load is at least 1")
        } else if self.most < self.least {
            Some("the largest load is not below the smallest")
        } else if !(self.least..=self.most).contains(&self.from) {
            Some("the first load lies between the smallest and the largest")
        } else if self.needed == 0 || self.needed > self.repeats {
            Some("at least one repeat has to hold, and at most all")
        } else {
            None
        }
    }

    /// How far apart the sides of a boundary above `held` may be.
    fn gap(&self, held: u64) -> u64 {
        (held.saturating_mul(self.precision_percent) / 100).max(1)
    }
}

/// The next step after `probes`. Of those that were disturbed ([`Probe::is_disturbed`]) the first few at a load do not count, so
/// that they are made again.
pub fn next(settings: &Settings, probes: &[Probe]) -> Step {
    let is_used_up = probes.len() >= settings.probes_max;
    let probes = &counted(probes);
    let tallies = tally(probes);
    if let Some((load, _)) = tallies.iter().find(|(_, tally)| tally.is_doubtful()) {
        return Step::Probe(*load);
    }
    let bound = boundary(&tallies);
    if is_used_up {
        return Step::Done(answer::open(&bound, "the number of probes was used up"));
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

/// The answer that `probes` give if the search ends now, for `reason`.
pub fn broken_off(probes: &[Probe], reason: &str) -> Answer {
    answer::open(&boundary(&tally(&counted(probes))), reason)
}

/// The probes of one load, counted.
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
    /// By the majority; a draw is no success.
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

    /// Whether more probes would not change the class.
    fn is_settled(self, settings: &Settings) -> bool {
        self.generator >= GENERATOR_PROBES
            || self.held >= settings.needed
            || self.broke > settings.repeats - settings.needed
    }

    /// Whether the generator's weakness was seen once and nothing else: it may have been the machine's hiccup.
    fn is_doubtful(self) -> bool {
        self.generator > 0 && self.generator < GENERATOR_PROBES && self.held + self.broke == 0
    }
}

/// The probes that count: all but the first few at each load that were disturbed. Past these the machine is as it is.
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

/// The two sides of the boundary.
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

/// Probes at one load that are made again because of others.
pub const DISTURBED_PROBES_MAX: usize = 4;
/// Probes after which the generator is believed to be too weak for a load.
const GENERATOR_PROBES: u32 = 2;
