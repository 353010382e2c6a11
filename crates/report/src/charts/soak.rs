//! The browser page over a long time: memory and latency in each quarter.

use super::tables::{Table, figure};
use super::{Panel, of_panels};
use crate::form::bars::Bar;
use crate::form::image::Image;
use crate::form::number;

pub(super) fn image(tables: &[Table]) -> Option<Image> {
    let columns = ["", "1st quarter", "2nd", "3rd", "4th"];
    let rows = tables.first()?.columns(columns)?;
    let panel = |(row, title, unit): &(&str, &str, &str)| {
        let [_, quarters @ ..] = rows.iter().find(|cells| cells[0] == *row)?;
        let bars = quarters.iter().zip(QUARTERS).filter_map(|(cell, quarter)| {
            let value = figure(cell)?.median;
            Some(Bar {
                name: quarter.to_owned(),
                value,
                span: (value, value),
                label: format!("{} {unit}", number::plain(value)),
                class: "ours",
            })
        });
        Some(Panel {
            title: (*title).to_owned(),
            lead: String::new(),
            bars: bars.collect(),
        })
    };
    let shown = ROWS.iter().map(panel).collect::<Option<Vec<Panel>>>()?;
    of_panels(
        "The browser page over time",
        "Medians of each quarter of the run. Equal lengths in the last quarters: nothing grows further.",
        &shown,
    )
}

/// Rows of the table that are shown, each with its title and unit.
const ROWS: [(&str, &str, &str); 4] = [
    ("heap MB, median", "JavaScript heap", "MB"),
    ("renderer MB, median", "browser processes of the page", "MB"),
    ("latency ms, median", "latency, median", "ms"),
    ("p95 ms, median", "latency, 95th percentile", "ms"),
];

const QUARTERS: [&str; 4] = [
    "first quarter",
    "second quarter",
    "third quarter",
    "fourth quarter",
];
