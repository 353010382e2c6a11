//! Probes: runs at one load, with their outcomes and figures.

use serde::{Deserialize, Serialize};

use super::BrokenClause;
use crate::relay::{Outcome, Report};
use crate::service_level::JudgedClause;

/// A probe: one run at one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The load, in the unit of the search.
    pub load: u64,
    /// The outcome.
    pub outcome: ProbeOutcome,
    /// The measured figures.
    pub figures: ProbeFigures,
}

/// The outcome of a probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ProbeOutcome {
    /// Every clause of the service level held.
    Held,
    /// The service level broke, or the relay's process ended.
    Broke {
        /// The broken clauses, in the order of the service level; at least one.
        clauses: Vec<BrokenClause>,
        /// True if the probe was ended early because these clauses were clearly broken. Others may have broken later.
        ended_early: bool,
    },
    /// The load generator did not keep up, so the probe says nothing about the relay.
    Generator {
        /// The parts of the load that the generator did not keep up with.
        reasons: Vec<String>,
        /// True if the probe was ended early because a clause was clearly broken.
        ended_early: bool,
    },
}

/// The figures of a probe, as the tables show them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeFigures {
    /// Objects that subscribers received.
    pub objects_delivered: u64,
    /// Lost objects in the judged part of the probe. In a probe that was ended early, also objects that had not arrived yet.
    pub objects_lost: u64,
    /// Lost objects before the judged part.
    pub objects_lost_before: u64,
    /// 99th percentile of latency in the judged part, in ms; none if no latency was measured.
    pub latency_p99_ms: Option<f64>,
    /// Mean CPU load of the relay, 100 is one core; none if its process was not observed.
    pub cpu_percent: Option<f64>,
    /// CPU time of the relay per delivered object, in µs.
    pub cpu_us_per_delivered_object: Option<f64>,
    /// Memory of the relay per session, in bytes.
    pub bytes_per_session: Option<f64>,
    /// Mean CPU load of the generator's busiest thread; 100 is one core.
    pub generator_cpu_percent: Option<f64>,
    /// Duration of the probe in ms, ramp and drain included.
    pub duration_ms: f64,
    /// CPU time that the hypervisor gave to others during the probe, in per cent of the time of the core that lost most.
    /// None if the kernel does not report it.
    pub stolen_percent: Option<f64>,
}

impl Probe {
    /// Makes the probe at `load` from its report.
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
            // The report counts objects that had not arrived yet as lost, so only the clauses that ended the run count.
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

    /// Returns true if the probe did not hold and the hypervisor gave at least [`STOLEN_PERCENT_MAX`] of a core to others.
    /// Such a probe says nothing about relay and generator. A probe that held counts in any case.
    pub fn is_disturbed(&self) -> bool {
        let stolen = self.figures.stolen_percent;
        self.outcome != ProbeOutcome::Held && stolen.is_some_and(|one| one >= STOLEN_PERCENT_MAX)
    }

    /// Makes a probe at `load` without a report, because the relay did not accept the clients.
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

    /// Returns true if the probe was ended early because a clause was clearly broken.
    pub fn is_ended_early(&self) -> bool {
        match self {
            Self::Held => false,
            Self::Broke { ended_early, .. } | Self::Generator { ended_early, .. } => *ended_early,
        }
    }
}

/// Least share of a core's time, in per cent, that counts as a disturbance if the hypervisor gives it to others. In ten
/// seconds this is 200 ms; 100 ms delay one object in a hundred.
pub const STOLEN_PERCENT_MAX: f64 = 2.0;
