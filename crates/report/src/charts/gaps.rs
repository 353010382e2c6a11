//! How long viewers see no new picture after a failure: a bar for each kind of failure and of viewer.

use super::tables::{Table, number};
use super::{Panel, of_panels};
use crate::form::bars::Bar;
use crate::form::image::Image;

/// Gaps of viewers of a fleet: a panel for each relay that failed.
pub(super) fn of_fleet(title: &str, tables: &[Table]) -> Option<Image> {
    let rows = tables
        .first()?
        .columns(["relay", "viewers", "p50 s", "p95 s", "longest s"])?;
    let panels = rows.chunk_by(|one, other| one[0] == other[0]).map(|rows| {
        let bars = rows
            .iter()
            .filter_map(|row| bar(&row[1].replace('`', ""), [row[2], row[3], row[4]]));
        Panel {
            title: rows.first().map_or("", |row| row[0]).to_owned(),
            lead: String::new(),
            bars: bars.collect(),
        }
    });
    of_panels(title, LEAD, &panels.collect::<Vec<_>>())
}

/// Gaps of viewers after processes were killed: one panel.
pub(super) fn of_processes(tables: &[Table]) -> Option<Image> {
    let rows = tables
        .first()?
        .columns(["killed", "p50 s", "p95 s", "longest s"])?;
    let bars = rows
        .iter()
        .filter_map(|row| bar(&format!("a {} is killed", row[0]), [row[1], row[2], row[3]]));
    let panel = Panel {
        title: "gap of the viewers that stay".to_owned(),
        lead: String::new(),
        bars: bars.collect(),
    };
    of_panels("Processes that are killed", LEAD, &[panel])
}

fn bar(name: &str, [median, p95, longest]: [&str; 3]) -> Option<Bar> {
    let (median, p95, longest) = (number(median)?, number(p95)?, number(longest)?);
    Some(Bar {
        name: name.to_owned(),
        value: p95,
        span: (median, longest),
        label: format!("{p95:.2} s"),
        class: "ours",
    })
}

const LEAD: &str =
    "95th percentile of the gaps; whiskers: median and longest gap. Shorter is better.";
