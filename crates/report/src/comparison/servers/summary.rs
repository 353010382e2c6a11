//! The first scenario of a comparison of HTTP/3 servers in two sentences.

use super::{Comparison, Scenario, Standing};
use crate::form::{number, table::markdown};

/// Renders a paragraph of Markdown: the CPU time of a request, and the requests per second of servers that were the limit. It is
/// empty if nothing was measured.
pub fn summary(comparison: &Comparison) -> String {
    let measured = comparison.contenders.scenarios.iter();
    let first = measured.filter(|scenario| scenario.best() > 0.0).take(1);
    first.map(paragraph).collect()
}

fn paragraph(scenario: &Scenario) -> String {
    let standings = || scenario.standings.iter();
    let costs = standings().filter_map(|standing| {
        let cost = standing.cpu_us_per_request?.median;
        Some(format!("{} {} µs", name(standing), number::decimal(cost)))
    });
    let costs: Vec<String> = costs.collect();
    let mut full: Vec<&Standing> = standings().filter(|one| is_full(one)).collect();
    let rate = |standing: &Standing| standing.requests_per_second.map_or(0.0, |rate| rate.median);
    full.sort_by(|one, other| rate(other).total_cmp(&rate(one)));
    let rates = full
        .iter()
        .map(|standing| format!("{} {}", name(standing), number::decimal(rate(standing))));
    let rates: Vec<String> = rates.collect();
    let mut text = format!(
        "CPU time of the server per response ({}): {}.",
        markdown(&scenario.name),
        costs.join(", ")
    );
    if !rates.is_empty() {
        text = format!(
            "{text} Requests per second with a full core, where the server was the limit in every run: {}.",
            rates.join(", ")
        );
    }
    let others = standings().filter(|one| !is_full(one) && !one.entry.runs.is_empty());
    let others: Vec<String> = others
        .map(|standing| format!("{} ({})", name(standing), standing.limit_words()))
        .collect();
    if !others.is_empty() {
        text = format!("{text} The limit of others: {}.", others.join(", "));
    }
    text
}

/// Returns true if the server was the limit in every run.
fn is_full(standing: &Standing) -> bool {
    standing.is_capacity() && standing.server_limited > 0
}

fn name(standing: &Standing) -> String {
    markdown(&standing.entry.server)
}
