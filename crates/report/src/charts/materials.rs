//! Live streams of several videos: a panel with the age of the picture for each link and video.

use super::tables::{Table, figure};
use super::{Panel, class, of_panels};
use crate::form::bars::Bar;
use crate::form::image::Image;

pub(super) fn image(tables: &[Table]) -> Option<Image> {
    let columns = ["link", "controller", "strategy", "age"];
    let mut rows = tables.first()?.columns(columns)?;
    rows.retain(|row| row[1] == CONTROLLER);
    let links = rows.chunk_by(|one, other| one[0] == other[0]);
    let shown = links.map(|rows| {
        let bars = rows.iter().filter_map(|[.., strategy, age]| {
            let age = figure(age)?;
            Some(Bar {
                name: (*strategy).to_owned(),
                value: age.median,
                span: (age.min, age.max),
                label: format!("{:.2} s", age.median),
                class: class(strategy),
            })
        });
        Panel {
            title: rows.first().map_or("", |row| row[0]).to_owned(),
            lead: String::new(),
            bars: bars.collect(),
        }
    });
    of_panels(
        "Live video of other material",
        "Mean age of the picture with the relay's default controller. Shorter is better. Whiskers: the range in the table.",
        &shown.collect::<Vec<_>>(),
    )
}

/// The default congestion controller of weir's relay.
const CONTROLLER: &str = "delay";
