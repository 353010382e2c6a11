//! The age of the picture against the share of frames shown: a point for each strategy over each link.

use maud::{Markup, html};

use super::tables::{Table, figure};
use super::{class, count};
use crate::comparison::Median;
use crate::form::image::{Image, MARGIN, WIDTH};
use crate::form::plot::{Plot, Symbol, label};
use crate::form::scale::Scale;

/// One strategy over one link.
struct Point<'a> {
    /// The link, with the congestion controller if the table has one.
    link: String,
    strategy: &'a str,
    /// In seconds.
    age: Median,
    /// In per cent.
    shown: Median,
}

impl Point<'_> {
    fn place(&self) -> (f64, f64) {
        (self.age.median, self.shown.median)
    }

    /// Whether another point is so far away that it needs a label of its own.
    fn is_far(&self, other: &Self, oldest: f64) -> bool {
        (self.age.median - other.age.median).abs() > oldest / 10.0
            || (self.shown.median - other.shown.median).abs() > 5.0
    }
}

pub(super) fn image(tables: &[Table], markdown: &str) -> Option<Image> {
    let table = tables.first()?;
    let rows = table.columns(["link", "strategy", "age", "shown %"])?;
    let controllers = table.columns(["controller"]);
    let points = rows.iter().enumerate().filter_map(|(place, row)| {
        let [link, strategy, age, shown] = row;
        let controller = controllers.as_ref().and_then(|rows| rows.get(place));
        Some(Point {
            link: controller.map_or_else(
                || (*link).to_owned(),
                |[controller]| format!("{link}, {controller}"),
            ),
            strategy,
            age: figure(age)?,
            shown: figure(shown)?,
        })
    });
    let points: Vec<Point<'_>> = points.collect();
    if points.is_empty() {
        return None;
    }
    let mut strategies: Vec<&str> = Vec::new();
    for point in &points {
        if !strategies.contains(&point.strategy) {
            strategies.push(point.strategy);
        }
    }
    let words = points.iter().map(|point| {
        let (age, shown) = point.place();
        format!(
            "{} over {}: age {age} s, {shown} % shown",
            point.strategy, point.link
        )
    });
    Some(Image {
        title: "Live video over links that are too slow".to_owned(),
        lead: "Age of the picture against frames shown: left and up is better. Thin lines: smallest to largest seed."
            .to_owned(),
        description: words.collect::<Vec<_>>().join("; "),
        source: String::new(),
        content: html! {
            (legend(&strategies, markdown))
            g transform=(format!("translate(0 {LEGEND})")) { (plot(&points, &strategies).canvas()) }
        },
        height: LEGEND + PLOT,
    })
}

fn plot<'a>(points: &[Point<'_>], strategies: &[&str]) -> Plot<'a> {
    let oldest = points.iter().map(|point| point.age.max).fold(0.1, f64::max);
    let least = points.iter().map(|point| point.shown.min);
    let low = (least.fold(90.0, f64::min) / 10.0 - 0.5).floor().max(0.0) * 10.0;
    let y = Scale::Linear { low, high: 100.0 };
    let x = (
        "mean age of the picture, seconds",
        Scale::up_to((oldest * 2.0).ceil() / 2.0),
    );
    let mut plot = Plot::new("", x, ("frames shown, %", y)).sized((WIDTH - 2.0 * MARGIN, PLOT));
    let of_links = || points.chunk_by(|one, other| one.link == other.link);
    let paths = of_links().map(|points| points.iter().map(Point::place).collect());
    let paths: Vec<Vec<(f64, f64)>> = paths.collect();
    for path in &paths {
        plot.curve("link", path, f64::INFINITY);
    }
    let mut lines = paths;
    for point in points {
        let ranges = [point.age, point.shown].map(|median| (median.min, median.max));
        plot.ranges("range", point.place(), ranges);
        let (age, shown) = point.place();
        let [across, down] = ranges;
        lines.push(vec![(across.0, shown), (across.1, shown)]);
        lines.push(vec![(age, down.0), (age, down.1)]);
    }
    for point in points {
        let (class, symbol) = look(strategies, point.strategy);
        plot.symbols(class, symbol, &[point.place()]);
    }
    let mut labels = Vec::new();
    for link in of_links() {
        let is_labelled = |point: &&Point<'_>| {
            let first = &link[0];
            std::ptr::eq(*point, first) || first.is_far(point, oldest)
        };
        let labelled = link.iter().filter(is_labelled);
        labels.extend(labelled.map(|point| (point.place(), point.link.clone())));
    }
    plot.labels(&labels, &lines);
    plot
}

/// The strategies with their symbols and, if the section names them, their congestion controllers.
fn legend(strategies: &[&str], markdown: &str) -> Markup {
    html! {
        @for (number, strategy) in strategies.iter().enumerate() {
            @let left = 10.0 + LEGEND_ENTRY * count(number);
            @let (class, symbol) = look(strategies, strategy);
            (symbol.at(class, (left, 12.0)))
            (label("name", (left + 14.0, 16.5), &named(strategy, markdown)))
        }
    }
}

/// A strategy with its controller: `weir (delay)`.
fn named(strategy: &str, markdown: &str) -> String {
    let before = markdown.split_once(&format!("` for `{strategy}`"));
    match before.and_then(|(before, _)| before.rsplit('`').next()) {
        Some(controller) => format!("{strategy} ({controller})"),
        None => strategy.to_owned(),
    }
}

/// Colour and shape of a strategy.
fn look(strategies: &[&str], strategy: &str) -> (&'static str, Symbol) {
    let place = strategies.iter().position(|one| *one == strategy);
    let place = place.unwrap_or(0) % Symbol::ALL.len();
    let class = match class(strategy) {
        "ours" => "ours",
        _ => ["s4", "s1", "s3", "s2", "s0"][place],
    };
    (class, Symbol::ALL[place])
}

/// Height of the legend.
const LEGEND: f64 = 34.0;
/// Width of an entry of the legend.
const LEGEND_ENTRY: f64 = 145.0;
/// Height of the plot.
const PLOT: f64 = 430.0;
