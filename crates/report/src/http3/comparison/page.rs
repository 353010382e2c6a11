//! A comparison as one HTML file: for each scenario two bar charts and a table.

use super::{
    Comparison, Scenario, Standing,
    text::{HEAD, problems, rows},
};
use crate::{
    comparison::Middle,
    form::{
        bars::{Bar, bars},
        markup::Markup,
        number,
    },
    relay::html::{brand, charts::figure, cut, document, section, tables},
};

/// Renders a comparison as a complete document.
pub fn page(comparison: &Comparison) -> String {
    document("HTTP/3 servers – weir h3 compare", |markup| {
        markup.element("header", &[], |markup| {
            brand(markup, "weir h3 compare");
            markup.leaf("h1", &[], &"HTTP/3 servers side by side");
            for line in &comparison.setting {
                markup.leaf("p", &[("class", &"facts")], &cut(line));
            }
        });
        markup.element("main", &[], |markup| {
            if let Some(reason) = &comparison.broken_off {
                let note = format!("Not all runs were made: {reason}.");
                markup.leaf("p", &[("class", &"lead")], &cut(&note));
            }
            for scenario in &comparison.scenarios {
                scenario_section(markup, comparison, scenario);
            }
            servers(markup, comparison);
        });
        markup.element("footer", &[], |markup| {
            let note = "A success has status 200 and the exact length. Figures are medians; the thin line on a bar goes \
                        from the smallest to the largest run. Requests per second are the server's own only where the \
                        server was the limit: a paler bar says that it was not in every run. Requests per CPU second count the CPU \
                        time of all processes of the server, user and system.";
            markup.leaf("p", &[], &note);
        });
    })
}

fn scenario_section(markup: &mut Markup, comparison: &Comparison, scenario: &Scenario) {
    section(markup, &scenario.name, &cut(&scenario.load), |markup| {
        markup.element("div", &[("class", &"plots")], |markup| {
            chart(
                markup,
                scenario,
                "Requests per CPU second of the server",
                |standing| standing.requests_per_cpu_second,
                |_| true,
            );
            chart(
                markup,
                scenario,
                "Requests per second",
                |standing| standing.requests_per_second,
                Standing::is_own_rate,
            );
        });
        let rows: Vec<Vec<String>> = rows(comparison, scenario)
            .into_iter()
            .map(Vec::from)
            .collect();
        tables::table(markup, "", &HEAD, &rows);
        for problem in problems(scenario) {
            markup.leaf("p", &[("class", &"reading")], &cut(&problem));
        }
    });
}

fn chart(
    markup: &mut Markup,
    scenario: &Scenario,
    title: &str,
    pick: fn(&Standing) -> Option<Middle>,
    is_own: fn(&Standing) -> bool,
) {
    let mut shown: Vec<(&Standing, Middle)> = scenario
        .standings
        .iter()
        .filter_map(|standing| Some((standing, pick(standing)?)))
        .collect();
    shown.sort_by(|(_, a), (_, b)| b.median.total_cmp(&a.median));
    if shown.is_empty() {
        return;
    }
    let list: Vec<Bar> = shown
        .iter()
        .map(|(standing, middle)| {
            let busy = standing.server_percent.map_or_else(String::new, |busy| {
                format!(" · server {:.0} %", busy.median)
            });
            let client = standing
                .client_percent
                .map_or_else(String::new, |busy| format!(", client {:.0} %", busy.median));
            Bar {
                name: cut(&standing.entry.server),
                value: middle.median,
                span: (middle.min, middle.max),
                label: format!("{}{busy}{client}", number::count_of(middle.median)),
                is_pale: !is_own(standing),
            }
        })
        .collect();
    let description = list
        .iter()
        .map(|bar| format!("{} {}", bar.name, bar.label))
        .collect::<Vec<_>>()
        .join("; ");
    let title = format!("{}: {title}", scenario.name);
    figure(markup, &title, &[], "", |markup| {
        bars(markup, &title, &description, &list);
    });
}

fn servers(markup: &mut Markup, comparison: &Comparison) {
    section(markup, "Servers", "", |markup| {
        let rows: Vec<Vec<String>> = comparison
            .servers
            .iter()
            .map(|server| {
                vec![
                    cut(&server.name),
                    cut(&server.version),
                    cut(server.note.as_deref().unwrap_or("")),
                ]
            })
            .collect();
        tables::table(markup, "", &["Server", "Version", "Note"], &rows);
    });
}
