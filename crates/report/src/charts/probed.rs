//! What share of the cases of `weir probe` relays passed.

use super::tables::{Table, number};
use super::{Panel, class, of_panels};
use crate::form::bars::Bar;
use crate::form::image::Image;

pub(super) fn image(tables: &[Table]) -> Option<Image> {
    let rows = tables
        .first()?
        .columns(["Relay", "Transport", "Conformance", "Robustness"])?;
    let panel = |title: &str, column: usize| {
        let bars = rows.iter().filter_map(|row| {
            let (passed, all) = row[column].split_once(" of ")?;
            let share = 100.0 * number(passed)? / number(all)?;
            Some(Bar {
                name: format!("{}, {}", row[0], row[1]),
                value: share,
                span: (share, share),
                label: row[column].to_owned(),
                class: class(row[0]),
            })
        });
        Panel {
            title: title.to_owned(),
            lead: String::new(),
            bars: bars.collect(),
        }
    };
    of_panels(
        "Conformance and robustness",
        "Required cases that relays passed, and hostile peers that they survived. Longer is better.",
        &[panel("conformance", 2), panel("robustness", 3)],
    )
}
