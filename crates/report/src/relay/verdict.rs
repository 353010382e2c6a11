//! The verdict on a run: one word and one sentence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Altered, Generator, Report};
use crate::form::number;
use crate::service_level::{JudgedClause, JudgedLevel};
use crate::statistics;

/// The verdict on a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// How the run ended, in one word.
    pub outcome: Outcome,
    /// The verdict in one sentence: what the relay carried and what that cost, or why the run says nothing about the relay.
    pub sentence: String,
}

/// How a run ended. The program's exit code is 0 for [`Outcome::Held`] only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The run was complete, the load generator kept up, and every clause of the service level held.
    Held,
    /// A clause of the service level broke, and the load generator kept up.
    Broken,
    /// The load generator did not keep up, so the run says nothing about the relay.
    GeneratorLimit,
    /// The run ended early.
    Partial,
    /// Nothing was measured.
    #[default]
    Empty,
}

impl Outcome {
    /// Returns true if every clause of the service level held in a complete run.
    pub fn is_held(self) -> bool {
        self == Self::Held
    }

    /// Returns the word that the verdict begins with in the terminal.
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
    /// Judges `report`. An early end comes first, then an overloaded generator, then the service level, because each
    /// makes the figures of the next meaningless.
    pub(super) fn of(report: &Report) -> Self {
        let Report { run, slo, .. } = report;
        let carried = carried(report);
        let (outcome, sentence) = if run.partial || run.interrupted.is_some() {
            let reason = run.interrupted.as_deref();
            let reason = reason.unwrap_or("the run ended early");
            (Outcome::Partial, format!("{reason}; until then: {carried}"))
        } else if report.tracks.is_empty() {
            (Outcome::Empty, "no track was measured".to_owned())
        } else if nothing_was_published(report) {
            (Outcome::Empty, nothing_published(report))
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

/// The judgement on one clause, which depends on how the run ended.
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

/// The verdict on a run whose load generator did not keep up.
pub(super) const GENERATOR_LIMIT: &str =
    "the generator was the limit; the run says nothing about the relay";

fn generator_sentence(generator: &Generator) -> String {
    if generator.reasons.is_empty() {
        GENERATOR_LIMIT.to_owned()
    } else {
        format!("{GENERATOR_LIMIT}: {}", generator.reasons.join("; "))
    }
}

/// Says which objects the clauses about loss and latency count; none if they count all.
pub(super) fn judged_part(report: &Report) -> Option<String> {
    if report.slo.judged_from_ms <= 0.0 {
        return None;
    }
    Some(format!(
        "for loss and latency, only objects planned {} s or more after the start of the data phase: {} of them lost, \
         and {} before",
        number::plain(report.slo.judged_from_ms / 1e3),
        number::count(report.slo.lost_objects),
        number::count(report.objects_lost_before()),
    ))
}

/// Names the first broken clause of the service level, and counts the others.
fn broken_clause(slo: &JudgedLevel) -> String {
    let mut broken = slo.clauses.iter().filter(|clause| clause.is_broken());
    let Some(first) = broken.next() else {
        return "the service level did not hold".to_owned();
    };
    let measured = match first.measured {
        Some(_) => format!("measured {}", first.measured_in_words()),
        None => first.measured_in_words(),
    };
    let others = match broken.count() {
        0 => String::new(),
        others => format!(" (and {})", number::counted(others as u64, "other clause")),
    };
    format!("{} broke{others}, {measured}", first.text)
}

/// Returns whether there were subscribers, and no object for them.
fn nothing_was_published(report: &Report) -> bool {
    let published: u64 = report.tracks.iter().map(|one| one.published.objects).sum();
    report.run.subscribers_requested > 0
        && published + report.objects_delivered() + report.objects_lost() == 0
}

fn nothing_published(report: &Report) -> String {
    let mut subscribers = report.tracks.iter().flat_map(|track| &track.subscribers);
    match subscribers.find_map(|one| one.reason.as_ref()) {
        Some(reason) => format!("no object reached the subscribers; the first one says: {reason}"),
        None => "no object was published to the subscribers; does a publisher run (--role publish), with the same profile \
                 and --seed?"
            .to_owned(),
    }
}

/// Returns the objects delivered, their latency and their cost, as a sentence.
fn carried(report: &Report) -> String {
    let Report { run, tracks, .. } = report;
    let (received, lost) = (report.objects_delivered(), report.objects_lost());
    let published: u64 = tracks.iter().map(|one| one.published.objects).sum();
    let mut parts = vec![if run.subscribers_requested == 0 {
        // The report of the subscribers' process says how many arrived.
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
            "{} failed or incomplete",
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
        let of = if tracks.len() > 1 {
            " of the slowest track"
        } else {
            ""
        };
        parts.push(format!("p99{of} {} ms", number::brief(worst.max)));
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
