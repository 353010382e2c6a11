//! A comparison of HTTP/3 servers as one HTML file: two bar charts and a table for each scenario.

use maud::{Markup, html};

use super::text::{EQUAL_RATES, scenario_table, testbed};
use super::{Comparison, Scenario, Standing};
use crate::comparison::{Median, incomplete};
use crate::form::bars::{Bar, bars};
use crate::form::number;
use crate::form::page::{Page, cut, plots, section};
use crate::form::table::{Table, left};

/// Renders a comparison as a complete document.
pub fn page(comparison: &Comparison) -> String {
    let servers = comparison.contenders.servers.iter().map(|server| {
        let note = server.note.as_deref().unwrap_or("");
        [&server.name, &server.version, note].map(cut)
    });
    let servers = Table::new(["Server", "Version", "Note"].map(left)).with_rows(servers);
    let page = Page {
        title: "HTTP/3 servers – weir h3 compare".to_owned(),
        program: "weir h3 compare",
        heading: "HTTP/3 servers side by side".to_owned(),
        facts: comparison.setting.clone(),
        main: html! {
            @if let Some(note) = incomplete("runs", comparison.broken_off.as_deref()) {
                p.lead { (cut(&note)) }
            }
            @for scenario in &comparison.contenders.scenarios { (scenario_section(comparison, scenario)) }
            @if let Some(note) = comparison.disturbed_words() { p { (note) } }
            (section("Servers", "", &html! { (servers) }))
            (section("Testbed", "", &html! { (testbed(comparison)) }))
        },
        footer: [
            Some("A success has status 200 and the exact length. Figures are medians of the runs; the thin line on a bar goes \
             from the smallest to the largest run. Requests per second are the server's capacity only if the server was \
             the limit. A pale bar: it was not the limit in every run. CPU time is that of all processes of the server, \
             user and system."),
            comparison.has_different_rates().then_some(EQUAL_RATES),
        ]
        .into_iter()
        .flatten()
        .map(str::to_owned)
        .collect(),
    };
    page.render()
}

fn scenario_section(comparison: &Comparison, scenario: &Scenario) -> Markup {
    let table = scenario_table(comparison, scenario);
    let cost: fn(&Standing) -> _ = |standing| standing.requests_per_cpu_second;
    let rate: fn(&Standing) -> _ = |standing| standing.requests_per_second;
    let body = html! {
        (plots([
            chart(scenario, "requests per CPU second of the server", cost, |_| true),
            chart(scenario, "requests per second", rate, Standing::is_capacity),
        ]))
        div.dense { (table) }
    };
    section(&scenario.name, &cut(&scenario.load), &body)
}

fn chart(
    scenario: &Scenario,
    title: &str,
    pick: fn(&Standing) -> Option<Median>,
    is_full: fn(&Standing) -> bool,
) -> Markup {
    let standings = scenario.standings.iter();
    let mut shown: Vec<(&Standing, Median)> = standings
        .filter_map(|standing| Some((standing, pick(standing)?)))
        .collect();
    shown.sort_by(|(_, a), (_, b)| b.median.total_cmp(&a.median));
    if shown.is_empty() {
        return html! {};
    }
    let percent = |words: &str, busy: Option<Median>| {
        busy.map_or_else(String::new, |busy| format!("{words} {:.0} %", busy.median))
    };
    let bar = |(standing, median): &(&Standing, Median)| Bar {
        name: cut(&standing.entry.server),
        value: median.median,
        span: (median.min, median.max),
        label: format!(
            "{}{}{}",
            number::count_of(median.median),
            percent(" · server busy", standing.server_percent),
            percent(", client", standing.client_percent)
        ),
        class: if is_full(standing) { "bar" } else { "bar pale" },
    };
    let list: Vec<Bar> = shown.iter().map(bar).collect();
    bars(&format!("{}: {title}", scenario.name), &list)
}
