//! Relays under one load: CPU time per object, and memory per session.

use super::tables::{Table, figure};
use super::{Panel, class, panels, words};
use crate::form::bars::Bar;
use crate::form::image::Image;
use crate::form::number;

pub(super) fn image(title: &str, tables: &[Table]) -> Option<Image> {
    let rows = tables
        .first()?
        .columns(["relay", "µs/object", "KiB/session"])?;
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
    let shown = [
        panel("CPU time per object", 1, "µs"),
        panel("memory per session", 2, "KiB"),
    ];
    if shown.iter().all(|panel| panel.bars.is_empty()) {
        return None;
    }
    let (content, height) = panels(&shown);
    Some(Image {
        title: title.to_owned(),
        lead: "Median of the runs; whiskers: smallest and largest run. Shorter is better."
            .to_owned(),
        description: words(&shown),
        source: String::new(),
        content,
        height,
    })
}
