//! The probes of a search as lines of a table.

use super::{Figures, Probe, ProbeOutcome};

/// The heading above [`row`]s.
pub fn heading(unit: &str) -> String {
    let load = unit.split(' ').next().unwrap_or(unit);
    line(
        load,
        "outcome",
        &["p99", "lost", "relay CPU", "µs/object", "generator"].map(str::to_owned),
        "",
    )
}

/// One probe in one line.
pub fn row(probe: &Probe) -> String {
    let Figures {
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
        // What was on its way is not lost.
        let lost = "–".to_owned();
        (lost, format!("{because}; ended early, after {seconds} s"))
    } else {
        let before = match objects_lost_before {
            0 => None,
            lost => Some(format!("{lost} lost before what is judged")),
        };
        let because: Vec<String> = [Some(because).filter(|because| !because.is_empty()), before]
            .into_iter()
            .flatten()
            .collect();
        (objects_lost.to_string(), because.join("; "))
    };
    let because = match stolen_percent {
        Some(stolen) if probe.is_disturbed() => {
            format!("{because}; others took {stolen:.0} % of a core")
        }
        Some(_) | None => because,
    };
    line(
        &probe.load.to_string(),
        word,
        &[
            figure(latency_p99_ms, 1, " ms"),
            lost,
            figure(cpu_percent, 0, " %"),
            figure(cpu_us_per_delivered_object, 2, ""),
            figure(generator_cpu_percent, 0, " %"),
        ],
        &because,
    )
}

fn line(load: &str, outcome: &str, figures: &[String; 5], because: &str) -> String {
    let [p99, lost, cpu, cost, generator] = figures;
    let text = format!(
        "{load:>11}  {outcome:<9} {p99:>10} {lost:>10} {cpu:>10} {cost:>10} {generator:>10}  {because}"
    );
    text.trim_end().to_owned()
}
