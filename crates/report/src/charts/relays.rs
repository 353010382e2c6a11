//! The largest load of each relay, and its CPU time per object: two panels for each profile.

use super::tables::{Table, figure, number};
use super::{Panel, class, of_panels};
use crate::comparison::Median;
use crate::form::bars::Bar;
use crate::form::image::Image;

pub(super) fn image(tables: &[Table], markdown: &str) -> Option<Image> {
    let table = tables.first()?;
    let rows = table.columns([
        "profile",
        "relay",
        "largest load",
        "95 % interval",
        "CPU µs/object",
    ])?;
    let mut shown: Vec<Panel> = Vec::new();
    for rows in rows.chunk_by(|one, other| one[0] == other[0]) {
        let profile = rows.first().map_or("", |row| row[0]);
        let profile = profile.trim_end_matches(".ini");
        let carried = rows.iter().filter_map(|[_, relay, load, interval, _]| {
            let (load, _) = load.rsplit_once(' ').unwrap_or((*load, ""));
            let median = figure(load)?;
            let ends = interval.split_once(" to ");
            let ends = ends.and_then(|(low, high)| Some((number(low)?, number(high)?)));
            Some(bar(relay, median.median, ends, load.to_owned()))
        });
        let costs = rows.iter().filter_map(|[_, relay, .., cost]| {
            let Median { median, min, max } = figure(cost)?;
            Some(bar(relay, median, Some((min, max)), format!("{median} µs")))
        });
        let carried = ("subscribers", "longer is better", carried.collect());
        let costs = ("CPU time per object", "shorter is better", costs.collect());
        for (title, lead, bars) in [carried, costs] {
            shown.push(Panel {
                title: format!("{profile}: {title}"),
                lead: lead.to_owned(),
                bars,
            });
        }
    }
    of_panels(
        "What a relay carries on one core",
        &format!(
            "Largest audience with {}; whiskers: 95 % interval",
            service_level(markdown)
        ),
        &shown,
    )
}

/// The service level of the searches, as the notes below the table name it.
fn service_level(markdown: &str) -> &str {
    let mut lines = markdown.lines();
    let level = lines.find_map(|line| line.strip_prefix("Service level: "));
    let level = level.and_then(|line| line.split(". ").next());
    level.unwrap_or("the service level held")
}

fn bar(relay: &str, value: f64, span: Option<(f64, f64)>, label: String) -> Bar {
    Bar {
        name: relay.to_owned(),
        value,
        span: span.unwrap_or((value, value)),
        label,
        class: class(relay),
    }
}
