//! Relays under one load: CPU time per object, and memory per session.

use super::tables::{Table, figure};
use super::{Panel, class, of_panels};
use crate::form::bars::Bar;
use crate::form::image::Image;
use crate::form::number;

pub(super) fn image(title: &str, tables: &[Table]) -> Option<Image> {
    let rows = tables
        .first()?
        .columns(["relay", "CPU µs/object", "KiB/session"])?;
    let panel = |title: &str, column: usize, unit: &str| {
        let bars = rows.iter().filter_map(|row| {
            let figure = figure(row[column])?;
            Some(Bar {
                name: row[0].to_owned(),
                value: figure.median,
                span: (figure.min, figure.max),
                label: format!("{} {unit}", number::decimal(figure.median)),
                class: class(row[0]),
            })
        });
        Panel {
            title: title.to_owned(),
            lead: String::new(),
            bars: bars.collect(),
        }
    };
    let mut shown = vec![
        panel("CPU time per object", 1, "µs"),
        panel("memory per session", 2, "KiB"),
    ];
    shown.retain(|panel| !panel.bars.is_empty());
    of_panels(
        title,
        "Median of the runs; whiskers: smallest and largest run. Shorter is better.",
        &shown,
    )
}
