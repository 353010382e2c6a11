//! Plots in SVG: axes, curves, bars, symbols, labels, and strips that show a text under the pointer.

use std::fmt::Write;

use maud::{Markup, html};

use super::labels;
use super::number;
use super::page::{self, Key};
use super::scale::Scale;
use crate::statistics::float;

/// Width of a plot on a page, in its own units; about its width in pixels on a laptop.
pub(super) const WIDTH: f64 = 560.0;
const LEFT: f64 = 52.0;
pub(super) const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 40.0;

/// The usual label of a horizontal axis.
pub(crate) const TIME: &str = "seconds since the start of the run";
/// Largest number of strips of a plot.
pub(crate) const STRIPS_MAX: usize = 240;

/// A rectangle: the values from left to right, and from low to high.
pub(crate) type Cell = ((f64, f64), (f64, f64));

/// A range of the horizontal axis, and the text that is shown under a pointer there.
pub(crate) type Strip = (f64, f64, String);

/// An axis: its label, and its scale.
pub(crate) type Axis<'a> = (&'a str, Scale);

/// A plot under construction. Later shapes lie over earlier ones.
pub(crate) struct Plot<'a> {
    title: String,
    reading: String,
    description: Option<String>,
    x: Axis<'a>,
    y: Axis<'a>,
    width: f64,
    height: f64,
    keys: Vec<Key>,
    shapes: Vec<Markup>,
    /// Names below the horizontal axis in place of ticks: the middle of each, and its lines.
    names: Vec<(f64, Vec<String>)>,
    /// Height of the room below the horizontal axis.
    foot: f64,
}

impl<'a> Plot<'a> {
    /// Returns a plot without shapes, of the usual size.
    pub(crate) fn new(title: impl Into<String>, x: Axis<'a>, y: Axis<'a>) -> Self {
        Self {
            title: title.into(),
            reading: String::new(),
            description: None,
            x,
            y,
            width: WIDTH,
            height: 250.0,
            keys: Vec::new(),
            shapes: Vec::new(),
            names: Vec::new(),
            foot: BOTTOM,
        }
    }

    /// Adds a sentence below the plot that says what it shows.
    pub(crate) fn reading(mut self, reading: impl Into<String>) -> Self {
        self.reading = reading.into();
        self
    }

    /// Sets the description for readers who do not see the plot; by default, it is the sentence below the plot.
    pub(crate) fn described(mut self, description: String) -> Self {
        self.description = Some(description);
        self
    }

    /// Adds entries of the legend: the class of each swatch, and its name.
    pub(crate) fn keys<const N: usize>(mut self, keys: [(&'static str, &str); N]) -> Self {
        self.keys
            .extend(keys.map(|(class, name)| (class, name.to_owned())));
        self
    }

    /// Sets the height, in units of [`WIDTH`].
    pub(crate) fn height(self, height: f64) -> Self {
        Self { height, ..self }
    }

    /// Sets width and height, for a chart that is not on a page. Comes before [`Self::names`].
    pub(crate) fn sized(self, (width, height): (f64, f64)) -> Self {
        Self {
            width,
            height,
            ..self
        }
    }

    /// Sets names in place of the ticks of the horizontal axis. Long names take several lines, for which the plot grows.
    pub(crate) fn names(mut self, names: Vec<(f64, String)>) -> Self {
        let room = (self.width - LEFT - RIGHT) / float(names.len().max(1) as u64) - LABEL_GAP;
        let names = names.into_iter();
        let names = names.map(|(value, name)| (value, in_lines(&name, room)));
        self.names = names.collect();
        let lines = self.names.iter().map(|(_, lines)| lines.len()).max();
        let more = NAME_LINE * float(lines.unwrap_or(1).max(1) as u64 - 1);
        self.height += more;
        self.foot += more;
        self
    }

    /// Adds an entry of the legend.
    pub(crate) fn key(&mut self, class: &'static str, name: impl Into<String>) {
        self.keys.push((class, name.into()));
    }

    /// Returns the plot as a figure of a page, with title and legend.
    pub(crate) fn figure(self) -> Markup {
        let view = format!("0 0 {} {}", self.width, self.height);
        let description = self.description.as_ref().unwrap_or(&self.reading);
        let svg = html! {
            svg viewBox=(view) role="img" {
                title { (self.title) }
                desc { (description) }
                (self.canvas())
            }
        };
        page::figure(&self.title, &self.keys, &self.reading, &svg)
    }

    /// Returns axes and shapes without an SVG element.
    pub(crate) fn canvas(&self) -> Markup {
        let (right, floor) = (self.width - RIGHT, self.bottom());
        html! {
            @if self.names.is_empty() { (self.ticks_across()) } @else { (self.names_across()) }
            (label("note end", (right, self.height - 6.0), self.x.0))
            (self.ticks_down())
            (label("note", (2.0, 11.0), self.y.0))
            @for shape in &self.shapes { (shape) }
            (line("axis", (LEFT, floor), (right, floor)))
        }
    }

    /// Adds a line through `points`, with a gap where the next point is more than `gap` away on the horizontal axis.
    pub(crate) fn curve(&mut self, class: &str, points: &[(f64, f64)], gap: f64) {
        let mut path = String::new();
        let mut last: Option<f64> = None;
        let finite = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
        for (x, y) in points.iter().copied().filter(finite) {
            let is_near = last.is_some_and(|last| x - last <= gap);
            let command = if is_near { 'L' } else { 'M' };
            let (across, down) = (self.across(x), self.down(y));
            write!(path, "{command}{across:.1} {down:.1}").expect("a String takes all");
            last = Some(x);
        }
        if let [point] = points {
            self.dots(class, &[*point], 3.5);
        } else if !path.is_empty() {
            self.shapes.push(html! { path.curve.(class) d=(path) {} });
        }
    }

    /// Adds a dot at each of `points`.
    pub(crate) fn dots(&mut self, class: &str, points: &[(f64, f64)], radius: f64) {
        for (x, y) in points {
            let (x, y) = (place(self.across(*x)), place(self.down(*y)));
            self.shapes
                .push(html! { circle.dot.(class) cx=(x) cy=(y) r=(radius) {} });
        }
    }

    /// Adds a symbol at each of `points`.
    pub(crate) fn symbols(&mut self, class: &str, symbol: Symbol, points: &[(f64, f64)]) {
        for point in points {
            self.shapes.push(symbol.at(class, self.at(*point)));
        }
    }

    /// Adds a line over the range of each of a point's two values; both cross at the point.
    pub(crate) fn ranges(&mut self, class: &str, point: (f64, f64), ranges: [(f64, f64); 2]) {
        let [across, down] = ranges;
        let (left, right) = (self.at((across.0, point.1)), self.at((across.1, point.1)));
        let (low, high) = (self.at((point.0, down.0)), self.at((point.0, down.1)));
        for (from, to) in [(left, right), (low, high)] {
            if (to.0 - from.0).hypot(to.1 - from.1) > 1.0 {
                self.shapes.push(line(class, from, to));
            }
        }
    }

    /// Adds labels beside their points, where they cover neither each other nor the lines through `paths`.
    pub(crate) fn labels(&mut self, labels: &[((f64, f64), String)], paths: &[Vec<(f64, f64)>]) {
        let placed =
            |points: &Vec<(f64, f64)>| points.iter().map(|point| self.at(*point)).collect();
        let paths: Vec<Vec<(f64, f64)>> = paths.iter().map(placed).collect();
        let points = labels.iter();
        let points = points.map(|(point, name)| (self.at(*point), name.as_str()));
        let room = ((LEFT, TOP), (self.width - RIGHT, self.bottom()));
        let points: Vec<((f64, f64), &str)> = points.collect();
        let places = labels::beside(&points, &paths, room);
        for ((_, name), place) in labels.iter().zip(places) {
            self.shapes.push(label("spot", place, name));
        }
    }

    /// Adds the area between a curve of `points` and the axis.
    pub(crate) fn area(&mut self, class: &str, points: &[(f64, f64)]) {
        let [(first, _), .., (last, _)] = points else {
            return;
        };
        let floor = self.bottom();
        let mut path = format!("M{:.1} {floor:.1}", self.across(*first));
        for (x, y) in points {
            write!(path, "L{:.1} {:.1}", self.across(*x), self.down(*y))
                .expect("a String takes all");
        }
        write!(path, "L{:.1} {floor:.1}Z", self.across(*last)).expect("a String takes all");
        self.shapes.push(html! { path.area.(class) d=(path) {} });
    }

    /// Adds a bar over `span` between two heights, thick enough to be seen.
    pub(crate) fn bar(&mut self, class: &str, span: (f64, f64), heights: (f64, f64)) {
        let (left, right) = (self.across(span.0), self.across(span.1));
        let (low, high) = (self.down(heights.0), self.down(heights.1));
        let tall = (low - high).max(VISIBLE);
        let gap = if right - left > 4.0 { 1.0 } else { 0.0 };
        let size = ((right - left - gap).max(0.6), tall);
        self.shapes.push(rectangle(class, (left, low - tall), size));
    }

    /// Adds cells of one colour, as one path.
    pub(crate) fn cells(&mut self, class: &str, cells: &[Cell]) {
        let mut path = String::new();
        for (span, heights) in cells {
            let (left, top) = (self.across(span.0), self.down(heights.1));
            let (wide, tall) = (self.across(span.1) - left, self.down(heights.0) - top);
            write!(path, "M{left:.1} {top:.1}h{wide:.1}v{tall:.1}h-{wide:.1}z")
                .expect("a String takes all");
        }
        if !path.is_empty() {
            self.shapes.push(html! { path.(class) d=(path) {} });
        }
    }

    /// Adds a thick stroke over `span` at one height.
    pub(crate) fn cap(&mut self, class: &str, span: (f64, f64), height: f64) {
        let (left, right) = (self.across(span.0), self.across(span.1));
        let size = ((right - left).max(0.6), 2.2);
        let at = (left, self.down(height) - 1.1);
        self.shapes.push(rectangle(class, at, size));
    }

    /// Shades a range of the horizontal axis.
    pub(crate) fn shade(&mut self, class: &str, span: (f64, f64)) {
        let (left, right) = (self.across(span.0), self.across(span.1));
        let size = ((right - left).max(0.0), self.bottom() - TOP);
        self.shapes.push(rectangle(class, (left, TOP), size));
    }

    /// Adds a horizontal line with its name above its right end.
    pub(crate) fn level(&mut self, class: &str, value: f64, name: &str) {
        let down = self.down(value);
        self.shapes.push(html! {
            (line(&format!("level {class}"), (LEFT, down), (self.width - RIGHT, down)))
            (label("note end", (self.width - RIGHT, down - 4.0), name))
        });
    }

    /// Adds vertical lines, with names above the plot that do not overlap.
    pub(crate) fn marks(&mut self, marks: &[(f64, &str, String)]) {
        let wanted: Vec<(f64, f64)> = marks
            .iter()
            .map(|(value, _, name)| (self.across(*value), width_of(name) / 2.0))
            .collect();
        let middles = side_by_side(&wanted, LEFT, self.width);
        for ((value, class, name), middle) in marks.iter().zip(middles) {
            let across = self.across(*value);
            // The name has the line's colour, since it may stand above another line.
            let (line_class, name_class) =
                (format!("mark {class}"), format!("note middle {class}"));
            self.shapes.push(html! {
                (line(&line_class, (across, TOP), (across, self.bottom())))
                (label(&name_class, (middle, TOP - 7.0), name))
            });
        }
    }

    /// Adds strips that show a text under the pointer.
    pub(crate) fn strips(&mut self, strips: &[Strip]) {
        let tall = place(self.bottom() - TOP);
        self.shapes.push(html! {
            g.strips {
                @for (from, to, text) in strips.iter().take(STRIPS_MAX) {
                    @let (left, right) = (self.across(*from), self.across(*to));
                    rect x=(place(left)) y=(place(TOP)) width=(place((right - left).max(0.5))) height=(tall) data-tip=(text) {}
                }
            }
        });
    }

    /// The place of a point.
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.across(x), self.down(y))
    }

    /// The horizontal place of `value`.
    fn across(&self, value: f64) -> f64 {
        LEFT + self.x.1.place(value) * (self.width - LEFT - RIGHT)
    }

    /// The vertical place of `value`.
    fn down(&self, value: f64) -> f64 {
        self.bottom() - self.y.1.place(value) * (self.bottom() - TOP)
    }

    fn bottom(&self) -> f64 {
        self.height - self.foot
    }

    fn ticks_across(&self) -> Markup {
        let floor = self.bottom();
        let mut free_from = 0.0;
        let tick = |tick: f64| {
            let across = self.across(tick);
            let text = number::tick(tick);
            let half = width_of(&text) / 2.0;
            let middle = across.min(self.width - half);
            let is_free = middle - half >= free_from;
            if is_free {
                free_from = middle + half + 6.0;
            }
            html! {
                (line("tick", (across, floor), (across, floor + 4.0)))
                @if is_free { (label("middle", (middle, floor + 17.0), &text)) }
            }
        };
        let ticks: Vec<Markup> = self.x.1.ticks(7).into_iter().map(tick).collect();
        html! { @for tick in ticks { (tick) } }
    }

    fn names_across(&self) -> Markup {
        html! {
            @for (value, lines) in &self.names {
                @for (number, line) in (0_u32..).zip(lines) {
                    @let down = self.bottom() + 17.0 + NAME_LINE * f64::from(number);
                    (label("middle", (self.across(*value), down), line))
                }
            }
        }
    }

    fn ticks_down(&self) -> Markup {
        let mut free_below = f64::INFINITY;
        let tick = |tick: f64| {
            let down = self.down(tick);
            let is_free = down + 13.0 <= free_below;
            if is_free {
                free_below = down;
            }
            html! {
                (line("grid", (LEFT, down), (self.width - RIGHT, down)))
                @if is_free { (label("end", (LEFT - 7.0, down + 4.0), &number::tick(tick))) }
            }
        };
        let ticks: Vec<Markup> = self.y.1.ticks(4).into_iter().map(tick).collect();
        html! { @for tick in ticks { (tick) } }
    }
}

/// The shape of a point in a plot of several series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symbol {
    Disc,
    Square,
    Diamond,
    Triangle,
    Cross,
}

impl Symbol {
    /// All symbols, in the order in which series get them.
    pub(crate) const ALL: [Self; 5] = [
        Self::Diamond,
        Self::Disc,
        Self::Square,
        Self::Triangle,
        Self::Cross,
    ];

    /// Returns the symbol, centred at a place.
    pub(crate) fn at(self, class: &str, (x, y): (f64, f64)) -> Markup {
        let corners: &[(f64, f64)] = match self {
            Self::Disc => {
                return html! { circle.dot.(class) cx=(place(x)) cy=(place(y)) r="6" {} };
            }
            Self::Square => &[(-5.5, -5.5), (5.5, -5.5), (5.5, 5.5), (-5.5, 5.5)],
            Self::Diamond => &[(0.0, -8.0), (8.0, 0.0), (0.0, 8.0), (-8.0, 0.0)],
            Self::Triangle => &[(0.0, -7.5), (7.0, 5.5), (-7.0, 5.5)],
            Self::Cross => &[
                (-6.5, -3.5),
                (-3.5, -6.5),
                (0.0, -3.0),
                (3.5, -6.5),
                (6.5, -3.5),
                (3.0, 0.0),
                (6.5, 3.5),
                (3.5, 6.5),
                (0.0, 3.0),
                (-3.5, 6.5),
                (-6.5, 3.5),
                (-3.0, 0.0),
            ],
        };
        let corners = corners.iter();
        let corners = corners.map(|(right, down)| format!("{:.1},{:.1}", x + right, y + down));
        let corners: Vec<String> = corners.collect();
        html! { polygon.dot.(class) points=(corners.join(" ")) {} }
    }
}

/// Returns the middles of labels in a row, each as near to its wanted middle as the others permit. `wanted` has middle and half
/// width of each label, from left to right. Labels overlap only if all together are wider than the row.
fn side_by_side(wanted: &[(f64, f64)], left: f64, right: f64) -> Vec<f64> {
    let mut middles: Vec<f64> = Vec::with_capacity(wanted.len());
    let mut free_from = left;
    for (middle, half) in wanted {
        let middle = middle.max(free_from + half);
        middles.push(middle);
        free_from = middle + half + LABEL_GAP;
    }
    let mut free_to = right;
    for (middle, (_, half)) in middles.iter_mut().zip(wanted).rev() {
        *middle = middle.min(free_to - half);
        free_to = *middle - half - LABEL_GAP;
    }
    middles
}

/// `name` in lines that are no wider than `room`, broken after blanks and underscores.
pub(crate) fn in_lines(name: &str, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in name.split_inclusive([' ', '_']) {
        match lines.last_mut() {
            Some(line) if width_of(line) + width_of(word.trim_end()) <= room => line.push_str(word),
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Distance of two lines of a name below a plot.
const NAME_LINE: f64 = 18.0;

/// Least distance of two labels in a row.
const LABEL_GAP: f64 = 9.0;

/// Least height of a bar that is not empty.
pub(super) const VISIBLE: f64 = 1.5;

/// Estimates the width of `text` on a phone, where letters are larger in relation to the plot.
fn width_of(text: &str) -> f64 {
    let letters = text.chars().map(|letter| match letter {
        ' ' | ',' | '.' => 4.9,
        'm' => 14.6,
        _ => 9.6,
    });
    letters.sum()
}

fn place(value: f64) -> String {
    format!("{value:.1}")
}

pub(super) fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Markup {
    let path = format!("M{:.1} {:.1}L{:.1} {:.1}", from.0, from.1, to.0, to.1);
    html! { path.(class) d=(path) {} }
}

pub(super) fn rectangle(class: &str, at: (f64, f64), size: (f64, f64)) -> Markup {
    let [x, y, width, height] = [at.0, at.1, size.0, size.1].map(place);
    html! { rect.(class) x=(x) y=(y) width=(width) height=(height) {} }
}

pub(crate) fn label(class: &str, at: (f64, f64), text: &str) -> Markup {
    html! { text.(class) x=(place(at.0)) y=(place(at.1)) { (text) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_too_long_for_their_stretch_take_several_lines() {
        assert_eq!(in_lines("INTRA_CASCADE", 73.0), ["INTRA_", "CASCADE"]);
        assert_eq!(in_lines("INTRA_CASCADE", 200.0), ["INTRA_CASCADE"]);
        assert_eq!(in_lines("500k", 10.0), ["500k"], "it has no place to break");
        assert_eq!(in_lines("SPIKE, 300 ms", 80.0), ["SPIKE, ", "300 ms"]);
    }
}
