//! The conclusion of a run, in one word and one sentence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Altered, Generator, Report};
use crate::form::number;
use crate::service_level::{JudgedClause, JudgedLevel};
use crate::statistics;

/// The conclusion of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// In one word.
    pub outcome: Outcome,
    /// In one sentence: what the relay carried and what it cost, or why nothing can be said about it.
    pub sentence: String,
}

/// How a run came out; the program's exit code is 0 for [`Outcome::Held`] only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The run was whole, the generator kept up, and every clause of the service level held.
    Held,
    /// A clause of the service level broke, and it was not the generator's doing.
    Broken,
    /// The generator did not keep up, so nothing can be said about the relay.
    GeneratorLimit,
    /// The run ended before its time.
    Partial,
    /// Nothing was measured.
    #[default]
    Empty,
}

impl Outcome {
    /// Whether a script may go on.
    pub fn is_held(self) -> bool {
        self == Self::Held
    }

    /// The word that stands before the sentence.
    pub fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Broken => "broken",
            Self::GeneratorLimit => "invalid",
            Self::Partial => "partial",
            Self::Empty => "empty",
        }
    }
}

impl Verdict {
    /// Draws the conclusion of `report`. What makes the figures worthless outranks what the figures say.
    pub(super) fn of(report: &Report) -> Self {
        let Report { run, slo, .. } = report;
        let carried = carried(report);
        let (outcome, sentence) = if run.partial || run.interrupted.is_some() {
            let reason = run.interrupted.as_deref();
            let reason = reason.unwrap_or("the run ended before its time");
            (Outcome::Partial, format!("{reason}; until then {carried}"))
        } else if report.tracks.is_empty() {
            (Outcome::Empty, "no track was measured".to_owned())
        } else if !report.generator.healthy {
            let sentence = generator_sentence(&report.generator);
            (Outcome::GeneratorLimit, sentence)
        } else if slo.held {
            (Outcome::Held, carried)
        } else {
            let sentence = format!("{}; {carried}", broken_clause(slo));
            (Outcome::Broken, sentence)
        };
        Self { outcome, sentence }
    }
}

/// What may be said of one clause, given how the run came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    Held,
    HeldSoFar,
    Broke,
    NotDecidable,
    None,
}

impl Judgement {
    pub(super) fn of(clause: &JudgedClause, outcome: Outcome) -> Self {
        match (outcome, clause.held) {
            (Outcome::GeneratorLimit | Outcome::Empty, _) => Self::None,
            (_, None) => Self::NotDecidable,
            (Outcome::Partial, Some(true)) => Self::HeldSoFar,
            (Outcome::Held | Outcome::Broken, Some(true)) => Self::Held,
            (Outcome::Held | Outcome::Broken | Outcome::Partial, Some(false)) => Self::Broke,
        }
    }

    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Held => "✓",
            Self::Broke => "✕",
            Self::NotDecidable => "?",
            Self::HeldSoFar | Self::None => "·",
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::HeldSoFar => "held so far",
            Self::Broke => "broke",
            Self::NotDecidable => "not decidable: publishers have another clock",
            Self::None => "not judged",
        }
    }
}

/// What an unhealthy generator leaves to be said.
pub(super) const GENERATOR_LIMIT: &str =
    "the generator was the limit; no statement about the relay";

fn generator_sentence(generator: &Generator) -> String {
    if generator.reasons.is_empty() {
        GENERATOR_LIMIT.to_owned()
    } else {
        format!("{GENERATOR_LIMIT}: {}", generator.reasons.join("; "))
    }
}

/// What of the run the clauses about loss and latency look at; none if that is all of it.
pub(super) fn judged(report: &Report) -> Option<String> {
    if report.slo.judged_from_ms <= 0.0 {
        return None;
    }
    Some(format!(
        "loss and latency of objects planned from {} s of the data phase on: {} of them lost, and {} before",
        number::plain(report.slo.judged_from_ms / 1e3),
        number::count(report.slo.lost_objects),
        number::count(report.objects_lost_before()),
    ))
}

/// The first clause that broke in the order in which they were asked for, and how many others did.
fn broken_clause(slo: &JudgedLevel) -> String {
    let mut broken = slo.clauses.iter().filter(|clause| clause.is_broken());
    let Some(first) = broken.next() else {
        return "the service level did not hold".to_owned();
    };
    let measured = first.measured.map_or_else(
        || "not measured".to_owned(),
        |value| format!("measured {}", number::quantity(value, &first.unit)),
    );
    let others = match broken.count() {
        0 => String::new(),
        others => format!(" (and {})", number::counted(others as u64, "other clause")),
    };
    format!("{} broke{others}, {measured}", first.text)
}

/// What was delivered, how fast, and at what cost.
fn carried(report: &Report) -> String {
    let Report { run, tracks, .. } = report;
    let (received, lost) = (report.objects_delivered(), report.objects_lost());
    let published: u64 = tracks.iter().map(|one| one.published.objects).sum();
    let mut parts = vec![if run.subscribers_requested == 0 {
        // Somebody else's report says who received them.
        format!("{} objects published", number::count(published))
    } else {
        format!(
            "{}, {} objects delivered, {}",
            number::counted(run.subscribers_requested, "subscriber"),
            number::count(received),
            number::loss(lost, received.saturating_add(lost)),
        )
    }];
    parts.extend(Altered::over(tracks).and_then(|altered| altered.words()));
    let failed: u64 = tracks
        .iter()
        .map(|one| one.status.failed + one.status.incomplete)
        .sum();
    if failed > 0 {
        parts.push(format!(
            "{} not good",
            number::counted(failed, "subscription")
        ));
    }
    let undecided = report.slo.clauses.iter().filter(|one| one.held.is_none());
    let undecided: Vec<&str> = undecided.map(|one| one.text.as_str()).collect();
    if !undecided.is_empty() {
        parts.push(format!(
            "{} not decidable, since publishers have another clock",
            undecided.join(", ")
        ));
    }
    let latencies = tracks
        .iter()
        .filter_map(|one| Some(one.latency.overall?.p99_ms));
    if let Some(worst) = statistics::Spread::over(latencies) {
        parts.push(format!("p99 {} ms", number::brief(worst.max)));
    }
    if let Some(cost) = &report.relay.cost {
        let per_object = cost
            .cpu_us_per_delivered_object
            .map(|cpu| format!("{} µs CPU per object, ", number::brief(cpu)))
            .unwrap_or_default();
        parts.push(format!(
            "relay {per_object}{} % of a core",
            number::brief(cost.cpu_percent)
        ));
    }
    parts.join("; ")
}
