//! A comparison of HTTP/3 servers as text for a terminal, and as Markdown.

use super::{
    super::{
        Median,
        column::{self, Column},
        incomplete,
    },
    Comparison, Scenario, Standing,
};
use crate::form::{
    number::{self, printable},
    table::{Table, left, markdown as markdown_text},
};

/// Renders the comparison for a terminal.
pub fn table(comparison: &Comparison) -> String {
    let mut out: Vec<String> = Vec::new();
    for line in &comparison.setting {
        out.push(format!("{}\n", printable(line)));
    }
    out.push("\n".to_owned());
    for line in testbed(comparison).terminal().lines() {
        out.push(format!("  {line}\n"));
    }
    for scenario in &comparison.contenders.scenarios {
        out.push(format!(
            "\n{}: {}\n",
            printable(&scenario.name),
            printable(&scenario.load)
        ));
        for line in scenario_table(comparison, scenario).terminal().lines() {
            out.push(format!("  {line}\n"));
        }
    }
    if comparison.has_different_rates() {
        out.push(format!("\n{EQUAL_RATES}\n"));
    }
    if let Some(note) = comparison.disturbed_words() {
        out.push(format!("\n{note}\n"));
    }
    if let Some(note) = incomplete("runs", comparison.broken_off.as_deref()) {
        out.push(format!("\n{}\n", printable(&note)));
    }
    out.concat()
}

/// Renders the comparison as Markdown: tables with bars of requests per CPU second.
pub fn markdown(comparison: &Comparison) -> String {
    let mut out: Vec<String> = Vec::new();
    for line in &comparison.setting {
        out.push(format!("{}\n\n", markdown_text(line)));
    }
    out.push(format!("{}\n", testbed(comparison).markdown(false)));
    out.push(READING.to_owned());
    if comparison.has_different_rates() {
        out.push(format!("\n{EQUAL_RATES}\n"));
    }
    if let Some(note) = comparison.disturbed_words() {
        out.push(format!("\n{note}\n"));
    }
    for scenario in &comparison.contenders.scenarios {
        out.push(format!(
            "\n**{}**: {}\n\n",
            markdown_text(&scenario.name),
            markdown_text(&scenario.load)
        ));
        let best = scenario.best();
        let rate = |standing: &Standing| bar(standing.requests_per_cpu_second, best);
        let rates = scenario.standings.iter().map(rate);
        let table = scenario_table(comparison, scenario);
        let table = table.with_column(left("requests per CPU second"), rates);
        out.push(table.markdown(false));
    }
    if let Some(note) = incomplete("runs", comparison.broken_off.as_deref()) {
        out.push(format!("\n{}\n", markdown_text(&note)));
    }
    out.concat()
}

impl Comparison {
    /// Returns true if the requests per second of the servers of a scenario differ by more than a tenth.
    pub(super) fn has_different_rates(&self) -> bool {
        let differ = |scenario: &Scenario| {
            let rates = || {
                let standings = scenario.standings.iter();
                standings.filter_map(|one| Some(one.requests_per_second?.median))
            };
            let (least, most) = (rates().reduce(f64::min), rates().reduce(f64::max));
            least.is_some_and(|least| most.is_some_and(|most| most > least * 1.1))
        };
        self.contenders.scenarios.iter().any(differ)
    }
}

impl Scenario {
    /// Returns the most requests per CPU second of all servers.
    pub(super) fn best(&self) -> f64 {
        let rates = self.standings.iter();
        rates
            .filter_map(|standing| standing.requests_per_cpu_second)
            .map(|rate| rate.median)
            .fold(0.0, f64::max)
    }
}

/// The note that explains the figures.
const READING: &str = "Median of the runs (smallest–largest). Compare servers by µs per request: the CPU time of the server per \
successful request (status 200 and the exact length). Requests per second are the server's maximum only if the server was the \
limit.\n";

/// The note that CPU times at different rates cannot be compared.
pub(super) const EQUAL_RATES: &str = "CPU time per request falls as the rate rises, and these rates differ. To compare it, \
give all servers one rate that each of them reaches: arguments = [\"--rate\", \"N\"] above the first [[server]].";

/// Creates the table of the machine and its network.
pub(super) fn testbed(comparison: &Comparison) -> Table {
    let rows = comparison.contenders.testbed.iter();
    let rows = rows.map(|(part, what)| [printable(part), printable(what)]);
    Table::new(["testbed", "here"].map(left)).with_rows(rows)
}

/// A server in a scenario.
struct Row<'a> {
    comparison: &'a Comparison,
    standing: &'a Standing,
}

/// The columns of the table.
fn columns<'a>() -> [Column<Row<'a>>; 9] {
    [
        Column::words("server", |row| {
            let name = &row.standing.entry.server;
            row.comparison.full_name(name)
        }),
        Column::figures("µs per request", |row| {
            spread(row.standing.cpu_us_per_request)
        }),
        Column::figures("requests/s", |row| spread(row.standing.requests_per_second)),
        Column::figures("server busy", |row| {
            median(row.standing.server_percent, percent)
        }),
        Column::figures("client busy", |row| {
            median(row.standing.client_percent, percent)
        }),
        Column::figures("connections", |row| {
            median(row.standing.connections, number::count_of)
        }),
        Column::figures("latency p99", |row| {
            median(row.standing.latency_p99_ms, number::milliseconds)
        }),
        Column::figures("failed", |row| failed(row.standing)),
        Column::figures("limit", |row| row.standing.limit_words()),
    ]
}

/// Creates the table of a scenario: a row for each server, best first, and problems as notes.
pub(super) fn scenario_table(comparison: &Comparison, scenario: &Scenario) -> Table {
    let rows = scenario.standings.iter().map(|standing| Row {
        comparison,
        standing,
    });
    let rows: Vec<Row<'_>> = rows.collect();
    column::table(&columns(), rows.iter()).with_notes(problems(scenario))
}

fn failed(standing: &Standing) -> String {
    let failed = number::count(standing.failed);
    match standing.receive_errors {
        0 => failed,
        errors => format!("{failed}; {} packets dropped", number::count(errors)),
    }
}

fn median(figure: Option<Median>, format: fn(f64) -> String) -> String {
    number::or_none(figure, |figure| format(figure.median))
}

/// Returns a median with minimum and maximum.
fn spread(figure: Option<Median>) -> String {
    let Some(figure) = figure else {
        return number::NONE.to_owned();
    };
    let text = number::decimal(figure.median);
    if figure.min < figure.max {
        format!(
            "{text} ({}–{})",
            number::decimal(figure.min),
            number::decimal(figure.max)
        )
    } else {
        text
    }
}

pub(super) fn percent(value: f64) -> String {
    format!("{value:.0} %")
}

/// Returns each problem once, with the name of its server.
pub(super) fn problems(scenario: &Scenario) -> Vec<String> {
    let mut found = Vec::new();
    if scenario.standings.iter().any(|one| one.receive_errors > 0) {
        found.push(PACKETS_DROPPED.to_owned());
    }
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

const PACKETS_DROPPED: &str = "Packets dropped: a receive buffer of the server or of the client was full. With hundreds of requests in \
                               flight that is part of the load; with few of them, another program delayed a side";

/// Returns a bar of up to [`BAR_CELLS`] cells, in eighths of a cell, with its figure.
fn bar(rate: Option<Median>, best: f64) -> String {
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

/// Length of the longest bar.
const BAR_CELLS: f64 = 16.0;
/// Most problems shown for a scenario. The JSON has them all.
const PROBLEMS_MAX: usize = 20;
