//! The age of the picture over links that differ in one condition: a panel for each condition.

use super::tables::{Table, figure};
use super::{Panel, class, of_panels};
use crate::form::bars::Bar;
use crate::form::image::Image;

pub(super) fn image(tables: &[Table]) -> Option<Image> {
    let rows = tables.first()?.columns(["link", "strategy", "age"])?;
    let usual = rows.first()?[0];
    let mut shown: Vec<Panel> = Vec::new();
    for [link, strategy, age] in &rows {
        let Some((condition, value)) = condition(usual, link) else {
            continue;
        };
        let title = format!("{usual}: {condition}");
        if shown.last().is_none_or(|panel| panel.title != title) {
            let of_usual = rows.iter().filter(|row| row[0] == usual);
            shown.push(Panel {
                title,
                lead: String::new(),
                bars: of_usual
                    .filter_map(|row| bar(row[1], "as usual", row[2]))
                    .collect(),
            });
        }
        let bars = shown.last_mut().map(|panel| &mut panel.bars);
        if let (Some(bars), Some(bar)) = (bars, bar(strategy, value, age)) {
            bars.push(bar);
        }
    }
    of_panels(
        "Live video over links with other conditions",
        "Mean age of the picture over links that differ from the usual one in one condition. Shorter is better.",
        &shown,
    )
}

/// The condition in which a link differs from the usual one, and its value: `delay` and `5 ms`.
fn condition<'a>(usual: &str, link: &'a str) -> Option<(&'a str, &'a str)> {
    link.strip_prefix(usual)?.strip_prefix(' ')?.split_once(' ')
}

fn bar(strategy: &str, value: &str, age: &str) -> Option<Bar> {
    let age = figure(age)?;
    Some(Bar {
        name: format!("{strategy}, {value}"),
        value: age.median,
        span: (age.min, age.max),
        label: format!("{:.2} s", age.median),
        class: class(strategy),
    })
}
