//! A comparison as text: for a terminal, and as Markdown.

use super::{Comparison, Scenario, Standing};
use crate::{
    comparison::Middle,
    form::number::{self, printable},
};

/// The comparison for a terminal.
pub fn table(comparison: &Comparison) -> String {
    let mut out: Vec<String> = Vec::new();
    for line in &comparison.setting {
        out.push(format!("{}\n", printable(line)));
    }
    for scenario in &comparison.scenarios {
        out.push(format!(
            "\n{}: {}\n",
            printable(&scenario.name),
            printable(&scenario.load)
        ));
        let rows = rows(comparison, scenario);
        let widths: Vec<usize> = (0..HEAD.len())
            .map(|column| {
                let cells = rows.iter().map(|row| row[column].chars().count());
                cells
                    .chain([HEAD[column].chars().count()])
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let head = HEAD.map(str::to_owned);
        for row in [head].iter().chain(&rows) {
            let cells = row.iter().zip(&widths).enumerate();
            let line: String = cells
                .map(|(column, (cell, width))| match column {
                    0 => format!("  {cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                })
                .collect();
            out.push(format!("{}\n", line.trim_end()));
        }
        for problem in problems(scenario) {
            out.push(format!("  {problem}\n"));
        }
    }
    if let Some(reason) = &comparison.broken_off {
        out.push(format!(
            "\nNot all runs were made: {}.\n",
            printable(reason)
        ));
    }
    out.concat()
}

/// The comparison as Markdown: tables, and bars of requests per CPU second.
pub fn markdown(comparison: &Comparison) -> String {
    let mut out: Vec<String> = Vec::new();
    for line in &comparison.setting {
        out.push(format!("{}\n", escaped(line)));
    }
    out.push(READING.to_owned());
    for scenario in &comparison.scenarios {
        out.push(format!(
            "\n**{}**: {}\n\n",
            escaped(&scenario.name),
            escaped(&scenario.load)
        ));
        out.push(format!(
            "| {} | requests per CPU second |\n",
            HEAD.join(" | ")
        ));
        out.push(format!("|---|{}---|\n", "---:|".repeat(HEAD.len() - 1)));
        let best = scenario.best();
        for (standing, row) in scenario.standings.iter().zip(rows(comparison, scenario)) {
            let cells: Vec<String> = row.iter().map(|cell| escaped(cell)).collect();
            out.push(format!(
                "| {} | {} |\n",
                cells.join(" | "),
                bar(standing.requests_per_cpu_second, best)
            ));
        }
        for problem in problems(scenario) {
            out.push(format!("\n{}\n", escaped(&problem)));
        }
    }
    if let Some(reason) = &comparison.broken_off {
        out.push(format!("\nNot all runs were made: {}.\n", escaped(reason)));
    }
    out.concat()
}

impl Scenario {
    /// The most requests per CPU second of all servers.
    pub(super) fn best(&self) -> f64 {
        let rates = self.standings.iter();
        rates
            .filter_map(|standing| standing.requests_per_cpu_second)
            .map(|rate| rate.median)
            .fold(0.0, f64::max)
    }
}

/// The columns of a table.
pub(super) const HEAD: [&str; 8] = [
    "server",
    "µs per request",
    "requests/s",
    "server busy",
    "client busy",
    "p99",
    "failed",
    "limit",
];

/// What the figures mean.
const READING: &str = "\nMedians of the runs, with the smallest and the largest in parentheses. The first figure is the \
server's CPU time per successful request (status 200 and the exact length). Requests per second are the server's own \
only where it was the limit.\n";

/// A row for each server, best first.
pub(super) fn rows(comparison: &Comparison, scenario: &Scenario) -> Vec<[String; 8]> {
    let cell = |middle: Option<Middle>, format: fn(f64) -> String| {
        middle.map_or_else(|| number::NONE.to_owned(), |middle| format(middle.median))
    };
    let row = |standing: &Standing| {
        let failed = match (standing.failed, standing.receive_errors) {
            (failed, 0) => number::count(failed),
            (failed, errors) => format!(
                "{}, {} receive errors",
                number::count(failed),
                number::count(errors)
            ),
        };
        [
            printable(&comparison.full_name(&standing.entry.server)),
            spread(standing.cpu_us_per_request),
            spread(standing.requests_per_second),
            cell(standing.server_percent, percent),
            cell(standing.client_percent, percent),
            cell(standing.latency_p99_ms, number::milliseconds),
            failed,
            standing.limit_words(),
        ]
    };
    scenario.standings.iter().map(row).collect()
}

/// A median with its spread.
fn spread(middle: Option<Middle>) -> String {
    let Some(middle) = middle else {
        return number::NONE.to_owned();
    };
    let text = number::decimal(middle.median);
    if middle.min < middle.max {
        format!(
            "{text} ({}–{})",
            number::decimal(middle.min),
            number::decimal(middle.max)
        )
    } else {
        text
    }
}

pub(super) fn percent(value: f64) -> String {
    format!("{value:.0} %")
}

/// Each problem once, with the server that had it.
pub(super) fn problems(scenario: &Scenario) -> Vec<String> {
    let mut found = Vec::new();
    for standing in &scenario.standings {
        for problem in &standing.entry.problems {
            let text = printable(&format!("{}: {problem}", standing.entry.server));
            if !found.contains(&text) && found.len() < PROBLEMS_MAX {
                found.push(text);
            }
        }
    }
    found
}

/// A bar of up to [`BAR_CELLS`] cells, in eighths, and its figure.
fn bar(rate: Option<Middle>, best: f64) -> String {
    let Some(rate) = rate.filter(|_| best > 0.0) else {
        return String::new();
    };
    let eighths = (rate.median / best * BAR_CELLS * 8.0)
        .round()
        .clamp(1.0, BAR_CELLS * 8.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to a small positive number"
    )]
    let eighths = eighths as usize;
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    format!(
        "{}{part} {}",
        "█".repeat(eighths / 8),
        number::count_of(rate.median)
    )
}

fn escaped(text: &str) -> String {
    let text = printable(text).replace('|', "\\|");
    text.replace('<', "&lt;").replace('\n', " ")
}

/// Length of the longest bar.
const BAR_CELLS: f64 = 16.0;
/// Problems of a scenario shown at most; the JSON has them all.
const PROBLEMS_MAX: usize = 20;
