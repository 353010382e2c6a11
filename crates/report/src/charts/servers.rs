//! CPU time per request of each HTTP/3 server: a panel for each load.

use super::tables::{Table, figure};
use super::{Panel, class, of_panels};
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
    let mut shown: Vec<Panel> = tables.iter().filter_map(panel).collect();
    shown.retain(|panel| !panel.bars.is_empty());
    of_panels(
        "Server CPU time per HTTP/3 request",
        "Median of the rounds; whiskers: smallest and largest round. Shorter is better.",
        &shown,
    )
}

/// A server's name without the parts of a version that would fill the row.
fn short(server: &str) -> &str {
    let end = server.find([':', '+']).unwrap_or(server.len());
    &server[..end]
}
