//! The same live streams in virtual time, in real time and in a browser: two panels for each link.

use super::tables::{Table, figure};
use super::{Panel, class, of_panels};
use crate::form::bars::Bar;
use crate::form::image::Image;

pub(super) fn image(title: &str, tables: &[Table]) -> Option<Image> {
    let rows = tables
        .first()?
        .columns(["link", "strategy", "age", "longest"])?;
    let mut shown = Vec::new();
    for rows in rows.chunk_by(|one, other| one[0] == other[0]) {
        let link = rows.first().map_or("", |row| row[0]);
        for (what, column) in [("age of the picture", 2), ("longest freeze", 3)] {
            let bars = rows.iter().flat_map(|row| bars(row[1], row[column]));
            shown.push(Panel {
                title: format!("{link}: {what}"),
                lead: String::new(),
                bars: bars.collect(),
            });
        }
    }
    of_panels(
        title,
        "Medians of the runs. Shorter is better; equal lengths agree.",
        &shown,
    )
}

/// The bars of a cell such as `0.514 / 0.509 (-0.005)`: one for each of [`WAYS`].
fn bars(strategy: &str, cell: &str) -> Vec<Bar> {
    let figures = cell.split(" / ").zip(WAYS);
    let bars = figures.filter_map(|(cell, way)| {
        let value = figure(cell)?.median;
        Some(Bar {
            name: format!("{strategy}, {way}"),
            value,
            span: (value, value),
            label: format!("{value:.2} s"),
            class: class(strategy),
        })
    });
    bars.collect()
}

/// The ways in which a stream runs, in the order of a cell.
const WAYS: [&str; 3] = ["virtual time", "real time", "browser"];
