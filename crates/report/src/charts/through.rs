//! Live streams through several relays: two panels for each link.

use super::tables::{Table, figure};
use super::{Panel, class, of_panels};
use crate::form::bars::Bar;
use crate::form::image::Image;

pub(super) fn image(tables: &[Table]) -> Option<Image> {
    let rows = tables
        .first()?
        .columns(["link", "controller", "strategy", "shown %", "longest"])?;
    let is_one = rows.iter().all(|row| row[2] == rows[0][2]);
    let mut shown = Vec::new();
    for rows in rows.chunk_by(|one, other| one[0] == other[0]) {
        let link = rows.first().map_or("", |row| row[0]);
        for (what, column, unit, digits) in
            [("frames shown", 3, "%", 0), ("longest freeze", 4, "s", 2)]
        {
            let bars = rows.iter().filter_map(|row| {
                let relay = row[1].strip_prefix("of ").unwrap_or(row[1]);
                let name = if is_one {
                    relay.to_owned()
                } else {
                    format!("{relay}, {}", row[2])
                };
                let figure = figure(row[column])?;
                Some(Bar {
                    name,
                    value: figure.median,
                    span: (figure.min, figure.max),
                    label: format!("{:.digits$} {unit}", figure.median),
                    class: class(relay),
                })
            });
            shown.push(Panel {
                title: format!("{link}: {what}"),
                lead: String::new(),
                bars: bars.collect(),
            });
        }
    }
    of_panels(
        "Live video through other relays",
        "Frames shown: longer is better. Longest freeze: shorter is better. Whiskers: smallest and largest seed.",
        &shown,
    )
}
