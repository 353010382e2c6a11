//! One run at one load: how it came out, and what it measured.

use serde::{Deserialize, Serialize};

use super::BrokenClause;
use crate::relay::{Outcome, Report};
use crate::service_level::JudgedClause;

/// One run at one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The load, in the unit of the search.
    pub load: u64,
    /// How it came out.
    pub outcome: ProbeOutcome,
    /// What was measured.
    pub figures: ProbeFigures,
}

/// How a probe came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ProbeOutcome {
    /// Every clause of the service level held.
    Held,
    /// The relay broke the service level, or died.
    Broke {
        /// The clauses that broke, in the service level's order; at least one.
        clauses: Vec<BrokenClause>,
        /// Whether the probe was ended before its time, since they could not hold any more: then others may have broken too.
        ended_early: bool,
    },
    /// The load generator did not keep up: nothing is said of the relay.
    Generator {
        /// What it did not keep up with.
        reasons: Vec<String>,
        /// Whether the probe was ended before its time, since the service level could not hold any more.
        ended_early: bool,
    },
}

/// What one probe measured, for the table of probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeFigures {
    /// Objects that reached their subscribers.
    pub objects_delivered: u64,
    /// Objects that did not, of those that the service level judges; where the probe was ended early, also those that
    /// were on their way.
    pub objects_lost: u64,
    /// Objects that did not, of those in the beginning that nothing is judged by.
    pub objects_lost_before: u64,
    /// 99th percentile of the latency that the service level judges.
    pub latency_p99_ms: Option<f64>,
    /// The relay's load; 100 is one core.
    pub cpu_percent: Option<f64>,
    /// The relay's CPU time per object delivered.
    pub cpu_us_per_delivered_object: Option<f64>,
    /// The relay's memory per session.
    pub bytes_per_session: Option<f64>,
    /// The generator's busiest thread; 100 is one core.
    pub generator_cpu_percent: Option<f64>,
    /// How long the probe took, ramp and drain included.
    pub duration_ms: f64,
    /// What the hypervisor gave to others meanwhile, of that core which lost most; 100 is all of its time. None where the
    /// kernel does not say it.
    pub stolen_percent: Option<f64>,
}

impl Probe {
    /// The probe at `load` that `report` tells of.
    pub fn of(load: u64, report: &Report) -> Self {
        let ended_early = !report.run.ended_early_by.is_empty();
        let broke = |clauses: &[JudgedClause]| ProbeOutcome::Broke {
            clauses: clauses
                .iter()
                .filter(|clause| clause.is_broken())
                .map(BrokenClause::of)
                .collect(),
            ended_early,
        };
        let outcome = match report.verdict.outcome {
            Outcome::Held => ProbeOutcome::Held,
            Outcome::GeneratorLimit => ProbeOutcome::generator(report, ended_early),
            Outcome::Broken => broke(&report.slo.clauses),
            Outcome::Partial if ended_early && !report.generator.healthy => {
                ProbeOutcome::generator(report, ended_early)
            }
            // What was on its way counts as lost in the report, so only what ended the run is held against the relay.
            Outcome::Partial if ended_early => broke(&report.run.ended_early_by),
            Outcome::Partial | Outcome::Empty => ProbeOutcome::failed(&report.verdict.sentence),
        };
        let cost = report.relay.cost.as_ref();
        let busiest = report
            .generator
            .threads
            .iter()
            .map(|thread| thread.cpu_percent);
        Self {
            load,
            outcome,
            figures: ProbeFigures {
                objects_delivered: report.objects_delivered(),
                objects_lost: report.slo.lost_objects,
                objects_lost_before: report.objects_lost_before(),
                latency_p99_ms: report.slo.latency_p99_ms,
                cpu_percent: cost.map(|cost| cost.cpu_percent),
                cpu_us_per_delivered_object: cost.and_then(|cost| cost.cpu_us_per_delivered_object),
                bytes_per_session: cost.and_then(|cost| cost.bytes_per_session),
                generator_cpu_percent: busiest.reduce(f64::max),
                duration_ms: report.run.duration_ms,
                stolen_percent: None,
            },
        }
    }

    /// Whether it did not hold while others took so much of the machine that it says nothing of relay and generator. A probe
    /// that held, held in spite of them.
    pub fn is_disturbed(&self) -> bool {
        let stolen = self.figures.stolen_percent;
        self.outcome != ProbeOutcome::Held && stolen.is_some_and(|one| one >= STOLEN_PERCENT_MAX)
    }

    /// A probe at `load` that yielded no report, since the relay did not let the clients in.
    pub fn failed(load: u64, reason: &str) -> Self {
        Self {
            load,
            outcome: ProbeOutcome::failed(reason),
            figures: ProbeFigures::default(),
        }
    }
}

impl ProbeOutcome {
    fn failed(reason: &str) -> Self {
        Self::Broke {
            clauses: vec![BrokenClause {
                text: reason.to_owned(),
                measured: None,
                unit: String::new(),
            }],
            ended_early: false,
        }
    }

    fn generator(report: &Report, ended_early: bool) -> Self {
        Self::Generator {
            reasons: report.generator.reasons.clone(),
            ended_early,
        }
    }

    /// Whether the probe was ended before its time, since the service level could not hold any more.
    pub fn is_ended_early(&self) -> bool {
        match self {
            Self::Held => false,
            Self::Broke { ended_early, .. } | Self::Generator { ended_early, .. } => *ended_early,
        }
    }
}

/// Share of a core's time that others may take before a probe that did not hold is theirs to answer for: of ten seconds this
/// is 200 ms, and 100 ms are one object in a hundred.
pub const STOLEN_PERCENT_MAX: f64 = 2.0;
