//! The probes of a search as rows of a table for the terminal.

use super::{Probe, ProbeFigures, ProbeOutcome};
use crate::form::table::{Table, left, right};

/// Returns the heading above the [`row`]s.
pub fn heading(unit: &str) -> String {
    table(unit).line(0)
}

/// Creates the table. Its columns have fixed widths, because each row is printed when its probe ends.
fn table(unit: &str) -> Table {
    let load = unit.split(' ').next().unwrap_or(unit);
    let figures = ["p99", "lost", "relay CPU", "µs/object", "gen. CPU"];
    let figures = figures.map(|name| right(name).wide(9));
    Table::new(
        [right(load).wide(11), left("outcome").wide(9)]
            .into_iter()
            .chain(figures)
            .chain([left("")]),
    )
}

/// Returns a probe as one line.
pub fn row(probe: &Probe) -> String {
    let ProbeFigures {
        objects_lost,
        objects_lost_before,
        latency_p99_ms,
        cpu_percent,
        cpu_us_per_delivered_object,
        generator_cpu_percent,
        duration_ms,
        stolen_percent,
        ..
    } = probe.figures;
    let figure = |value: Option<f64>, digits: usize, unit: &str| {
        value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}{unit}"))
    };
    let (word, because) = match &probe.outcome {
        ProbeOutcome::Held => ("held", String::new()),
        ProbeOutcome::Broke { clauses, .. } => {
            let all: Vec<&str> = clauses.iter().map(|clause| clause.text.as_str()).collect();
            ("broke", all.join(", "))
        }
        ProbeOutcome::Generator { reasons, .. } => ("generator", reasons.join("; ")),
    };
    let (lost, because) = if probe.outcome.is_ended_early() {
        let seconds = (duration_ms / 1e3).round();
        // Objects that had not arrived yet are not lost.
        let lost = "–".to_owned();
        (lost, format!("{because}; ended early, after {seconds} s"))
    } else {
        let before = match objects_lost_before {
            0 => None,
            lost => Some(format!("{lost} lost before the judged part")),
        };
        let because: Vec<String> = [Some(because).filter(|because| !because.is_empty()), before]
            .into_iter()
            .flatten()
            .collect();
        (objects_lost.to_string(), because.join("; "))
    };
    let because = match stolen_percent {
        Some(stolen) if probe.is_disturbed() => {
            format!("{because}; the hypervisor gave {stolen:.0} % of a core to others")
        }
        Some(_) | None => because,
    };
    let cells = [
        probe.load.to_string(),
        word.to_owned(),
        figure(latency_p99_ms, 1, " ms"),
        lost,
        figure(cpu_percent, 0, " %"),
        figure(cpu_us_per_delivered_object, 2, ""),
        figure(generator_cpu_percent, 0, " %"),
        because,
    ];
    table("").with_rows([cells]).line(1)
}
