//! CPU time per request of each HTTP/3 server: a panel for each load.

use super::tables::{Table, figure};
use super::{Panel, class, panels, words};
use crate::form::bars::Bar;
use crate::form::image::Image;
use crate::form::number;

pub(super) fn image(tables: &[Table]) -> Option<Image> {
    let panel = |table: &Table| {
        let rows = table.columns(["server", "µs per request"])?;
        let bars = rows.iter().filter_map(|[server, cost]| {
            let cost = figure(cost)?;
            Some(Bar {
                name: short(server).to_owned(),
                value: cost.median,
                span: (cost.min, cost.max),
                label: format!("{} µs", number::decimal(cost.median)),
                class: class(server),
            })
        });
        let (title, lead) = table.lead.split_once(": ").unwrap_or((&table.lead, ""));
        Some(Panel {
            title: title.trim_matches('*').to_owned(),
            lead: lead.to_owned(),
            bars: bars.collect(),
        })
    };
    let shown: Vec<Panel> = tables.iter().filter_map(panel).collect();
    if shown.iter().all(|panel| panel.bars.is_empty()) {
        return None;
    }
    let (content, height) = panels(&shown);
    Some(Image {
        title: "Server CPU time per HTTP/3 request".to_owned(),
        lead: "Median of the rounds; whiskers: smallest and largest round. Shorter is better."
            .to_owned(),
        description: words(&shown),
        source: String::new(),
        content,
        height,
    })
}

/// A server's name without the parts of a version that would fill the row.
fn short(server: &str) -> &str {
    let end = server.find([':', '+']).unwrap_or(server.len());
    &server[..end]
}
