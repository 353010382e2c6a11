//! The canvas of a plot: scales, axes, lines, bars, and the strips that answer to a pointer.

use std::fmt::Write;

use super::markup::Markup;
use crate::form::number;

/// Width of a plot in its own units; about its width in pixels on a laptop.
pub(super) const WIDTH: f64 = 560.0;
const LEFT: f64 = 52.0;
pub(super) const RIGHT: f64 = 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 40.0;

/// How values become places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// Equal steps are equal differences.
    Linear {
        /// Value at the beginning of the axis.
        low: f64,
        /// Value at its end.
        high: f64,
    },
    /// One step for each of many, from the first to the last; its ticks are whole numbers.
    Ranks {
        /// How many there are.
        high: f64,
    },
    /// Equal steps are equal factors; both ends are above zero.
    Log {
        /// Value at the beginning of the axis.
        low: f64,
        /// Value at its end.
        high: f64,
    },
}

impl Scale {
    /// A linear scale from zero to a round value at or above `high`.
    pub(crate) fn from_zero(high: f64) -> Self {
        let high = if high.is_finite() && high > 0.0 {
            high
        } else {
            1.0
        };
        let step = round_step(high / 4.0);
        Self::Linear {
            low: 0.0,
            high: (high / step - 1e-9).ceil() * step,
        }
    }

    /// A logarithmic scale whose ends are 1, 2 or 5 times a power of ten.
    pub(crate) fn log_around(low: f64, high: f64) -> Self {
        let low = if low.is_finite() {
            low.max(0.001)
        } else {
            0.001
        };
        let high = if high.is_finite() {
            high.max(low * 1.5)
        } else {
            low * 10.0
        };
        Self::Log {
            low: round_down(low),
            high: round_up(high),
        }
    }

    /// Where `value` lies: 0 at the beginning, 1 at the end, never outside.
    pub(crate) fn place(self, value: f64) -> f64 {
        let place = match self {
            Self::Linear { low, high } => (value - low) / (high - low),
            Self::Ranks { high } => value / high,
            Self::Log { low, high } => (value.max(low) / low).ln() / (high / low).ln(),
        };
        if place.is_finite() {
            place.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// The value at `place`.
    pub(crate) fn value(self, place: f64) -> f64 {
        match self {
            Self::Linear { low, high } => low + place * (high - low),
            Self::Ranks { high } => place * high,
            Self::Log { low, high } => low * (high / low).powf(place),
        }
    }

    /// Round values on the scale, about `wanted` of them.
    pub(crate) fn ticks(self, wanted: u32) -> Vec<f64> {
        match self {
            Self::Linear { low, high } => linear_ticks(low, high, wanted, 0.0),
            Self::Ranks { high } => linear_ticks(0.0, high, wanted, 1.0),
            Self::Log { low, high } => log_ticks(low, high),
        }
    }
}

fn linear_ticks(low: f64, high: f64, wanted: u32, step_min: f64) -> Vec<f64> {
    let step = round_step((high - low) / f64::from(wanted.max(1))).max(step_min);
    let first = (low / step - 1e-9).ceil();
    (0..64)
        .map(|number| (first + f64::from(number)) * step)
        .take_while(|tick| *tick <= high + step * 1e-6)
        .collect()
}

/// All of 1, 2, 5 within three decades, powers of ten alone beyond.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let factors: &[f64] = if high / low > 1_500.0 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    (-6..12)
        .flat_map(|exponent| {
            factors
                .iter()
                .map(move |factor| factor * 10_f64.powi(exponent))
        })
        .filter(|tick| *tick >= low * 0.999 && *tick <= high * 1.001)
        .collect()
}

/// Places for labels in a row, each as near to where it wants to be as its neighbours let it: `(middle, half width)`
/// in ascending order. They overlap only if all together are wider than the row.
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

/// Between two labels in a row.
const LABEL_GAP: f64 = 9.0;

/// 1, 2 or 5 times a power of ten, at or above `step`.
fn round_step(step: f64) -> f64 {
    round_up(step.max(1e-6))
}

fn round_up(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * decade >= value * (1.0 - 1e-9));
    decade * factor.unwrap_or(10.0)
}

fn round_down(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let factor = [5.0, 2.0]
        .into_iter()
        .find(|factor| factor * decade <= value * (1.0 + 1e-9));
    decade * factor.unwrap_or(1.0)
}

/// What a plot is called and what its axes mean.
#[derive(Debug)]
pub(crate) struct Labels<'a> {
    /// What the plot shows.
    pub(crate) title: &'a str,
    /// What a reader who does not see it should know.
    pub(crate) description: &'a str,
    /// Unit of the horizontal axis.
    pub(crate) x: &'a str,
    /// Unit of the vertical axis.
    pub(crate) y: &'a str,
}

/// A plot's area: two scales, and where they lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plot {
    x: Scale,
    y: Scale,
    height: f64,
}

/// A rectangle by the values that it spans: from left to right, and from low to high.
pub(crate) type Cell = ((f64, f64), (f64, f64));

/// How many strips answer to a pointer at most.
pub(crate) const STRIPS_MAX: usize = 240;

impl Plot {
    /// A plot of the usual height.
    pub(crate) fn new(x: Scale, y: Scale) -> Self {
        Self {
            x,
            y,
            height: 250.0,
        }
    }

    /// A plot with another height, in units of which the width has 560.
    pub(crate) fn with_height(self, height: f64) -> Self {
        Self { height, ..self }
    }

    /// Draws axes, and over them what `body` draws.
    pub(crate) fn draw(
        self,
        markup: &mut Markup,
        labels: &Labels<'_>,
        body: impl FnOnce(Self, &mut Markup),
    ) {
        let view = format!("0 0 {WIDTH} {}", self.height);
        markup.element("svg", &[("viewBox", &view), ("role", &"img")], |markup| {
            markup.leaf("title", &[], &labels.title);
            markup.leaf("desc", &[], &labels.description);
            self.horizontal_axis(markup, labels.x);
            self.vertical_axis(markup, labels.y);
            body(self, markup);
            let floor = self.bottom();
            line(markup, "axis", (LEFT, floor), (WIDTH - RIGHT, floor));
        });
    }

    /// The horizontal place of `value`.
    pub(crate) fn across(self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    /// The vertical place of `value`.
    pub(crate) fn down(self, value: f64) -> f64 {
        self.bottom() - self.y.place(value) * (self.bottom() - TOP)
    }

    /// A line through `points`, broken where one lies more than `gap` beyond the one before.
    pub(crate) fn curve(self, markup: &mut Markup, class: &str, points: &[(f64, f64)], gap: f64) {
        let mut path = String::new();
        let mut last: Option<f64> = None;
        for (x, y) in points
            .iter()
            .copied()
            .filter(|(x, y)| x.is_finite() && y.is_finite())
        {
            let command = if last.is_some_and(|last| x - last <= gap) {
                'L'
            } else {
                'M'
            };
            let (across, down) = (self.across(x), self.down(y));
            write!(path, "{command}{across:.1} {down:.1}").expect("a String takes all");
            last = Some(x);
        }
        if let [(x, y)] = points {
            let class = format!("dot {class}");
            dot(markup, &class, (self.across(*x), self.down(*y)));
        } else if !path.is_empty() {
            markup.empty(
                "path",
                &[("class", &format!("curve {class}")), ("d", &path)],
            );
        }
    }

    /// The area under a curve of `points`, down to the axis.
    pub(crate) fn area(self, markup: &mut Markup, class: &str, points: &[(f64, f64)]) {
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
        markup.empty("path", &[("class", &format!("area {class}")), ("d", &path)]);
    }

    /// A bar over `from..to`, between two heights; never thinner than can be seen.
    pub(crate) fn bar(
        self,
        markup: &mut Markup,
        class: &str,
        span: (f64, f64),
        heights: (f64, f64),
    ) {
        let (left, right) = (self.across(span.0), self.across(span.1));
        let (low, high) = (self.down(heights.0), self.down(heights.1));
        let tall = (low - high).max(VISIBLE);
        let gap = if right - left > 4.0 { 1.0 } else { 0.0 };
        rectangle(
            markup,
            class,
            (left, low - tall),
            ((right - left - gap).max(0.6), tall),
        );
    }

    /// Cells of one colour, as one path.
    pub(crate) fn cells(self, markup: &mut Markup, class: &str, cells: &[Cell]) {
        let mut path = String::new();
        for (span, heights) in cells {
            let (left, top) = (self.across(span.0), self.down(heights.1));
            let (wide, tall) = (self.across(span.1) - left, self.down(heights.0) - top);
            write!(path, "M{left:.1} {top:.1}h{wide:.1}v{tall:.1}h-{wide:.1}z")
                .expect("a String takes all");
        }
        if !path.is_empty() {
            markup.empty("path", &[("class", &class), ("d", &path)]);
        }
    }

    /// A thick stroke over `from..to` at one height.
    pub(crate) fn cap(self, markup: &mut Markup, class: &str, span: (f64, f64), height: f64) {
        let (left, right) = (self.across(span.0), self.across(span.1));
        rectangle(
            markup,
            class,
            (left, self.down(height) - 1.1),
            ((right - left).max(0.6), 2.2),
        );
    }

    /// A shaded stretch of the horizontal axis.
    pub(crate) fn shade(self, markup: &mut Markup, class: &str, span: (f64, f64)) {
        let (left, right) = (self.across(span.0), self.across(span.1));
        rectangle(
            markup,
            class,
            (left, TOP),
            ((right - left).max(0.0), self.bottom() - TOP),
        );
    }

    /// A level with its name above its right end.
    pub(crate) fn level(self, markup: &mut Markup, class: &str, value: f64, name: &str) {
        let down = self.down(value);
        line(
            markup,
            &format!("level {class}"),
            (LEFT, down),
            (WIDTH - RIGHT, down),
        );
        label(markup, "note end", (WIDTH - RIGHT, down - 4.0), name);
    }

    /// Upright lines with names above the plot, which make way for each other.
    pub(crate) fn marks(self, markup: &mut Markup, marks: &[(f64, &str, String)]) {
        let wanted: Vec<(f64, f64)> = marks
            .iter()
            .map(|(value, _, name)| (self.across(*value), width_of(name) / 2.0))
            .collect();
        let middles = side_by_side(&wanted, LEFT, WIDTH);
        for ((value, class, name), middle) in marks.iter().zip(middles) {
            let across = self.across(*value);
            line(
                markup,
                &format!("mark {class}"),
                (across, TOP),
                (across, self.bottom()),
            );
            // In the line's own colour: it may stand above another one.
            label(
                markup,
                &format!("note middle {class}"),
                (middle, TOP - 7.0),
                name,
            );
        }
    }

    /// Strips of the plot that show a text under the pointer: `(from, to, text)`.
    pub(crate) fn strips(self, markup: &mut Markup, strips: &[(f64, f64, String)]) {
        markup.element("g", &[("class", &"strips")], |markup| {
            for (from, to, text) in strips.iter().take(STRIPS_MAX) {
                let (left, right) = (self.across(*from), self.across(*to));
                let (width, tall) = ((right - left).max(0.5), self.bottom() - TOP);
                markup.empty(
                    "rect",
                    &[
                        ("x", &place(left)),
                        ("y", &place(TOP)),
                        ("width", &place(width)),
                        ("height", &place(tall)),
                        ("data-tip", text),
                    ],
                );
            }
        });
    }

    fn bottom(self) -> f64 {
        self.height - BOTTOM
    }

    fn horizontal_axis(self, markup: &mut Markup, name: &str) {
        let floor = self.bottom();
        let mut free_from = 0.0;
        for tick in self.x.ticks(7) {
            let across = self.across(tick);
            line(markup, "tick", (across, floor), (across, floor + 4.0));
            let text = number::tick(tick);
            let half = width_of(&text) / 2.0;
            let middle = across.min(WIDTH - half);
            if middle - half >= free_from {
                label(markup, "middle", (middle, floor + 17.0), &text);
                free_from = middle + half + 6.0;
            }
        }
        label(markup, "note end", (WIDTH - RIGHT, self.height - 6.0), name);
    }

    fn vertical_axis(self, markup: &mut Markup, name: &str) {
        let mut free_below = f64::INFINITY;
        for tick in self.y.ticks(4) {
            let down = self.down(tick);
            line(markup, "grid", (LEFT, down), (WIDTH - RIGHT, down));
            if down + 13.0 <= free_below {
                label(markup, "end", (LEFT - 7.0, down + 4.0), &number::tick(tick));
                free_below = down;
            }
        }
        label(markup, "note", (2.0, 11.0), name);
    }
}

/// The least height of a bar that stands for something.
pub(super) const VISIBLE: f64 = 1.5;

/// About how wide `text` is in a plot, on a phone: there letters are larger, seen from the plot.
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

pub(super) fn line(markup: &mut Markup, class: &str, from: (f64, f64), to: (f64, f64)) {
    let path = format!("M{:.1} {:.1}L{:.1} {:.1}", from.0, from.1, to.0, to.1);
    markup.empty("path", &[("class", &class), ("d", &path)]);
}

fn dot(markup: &mut Markup, class: &str, at: (f64, f64)) {
    markup.empty(
        "circle",
        &[
            ("class", &class),
            ("cx", &place(at.0)),
            ("cy", &place(at.1)),
            ("r", &"3.5"),
        ],
    );
}

pub(super) fn rectangle(markup: &mut Markup, class: &str, at: (f64, f64), size: (f64, f64)) {
    markup.empty(
        "rect",
        &[
            ("class", &class),
            ("x", &place(at.0)),
            ("y", &place(at.1)),
            ("width", &place(size.0)),
            ("height", &place(size.1)),
        ],
    );
}

pub(super) fn label(markup: &mut Markup, class: &str, at: (f64, f64), text: &str) {
    markup.leaf(
        "text",
        &[("class", &class), ("x", &place(at.0)), ("y", &place(at.1))],
        &text,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_on_round_values() {
        assert_eq!(
            Scale::from_zero(17.3),
            Scale::Linear {
                low: 0.0,
                high: 20.0
            }
        );
        assert_eq!(Scale::from_zero(f64::NAN), Scale::from_zero(1.0));
        let Scale::Log { low, high } = Scale::log_around(0.34, 61.0) else {
            panic!("logarithmic")
        };
        assert!(
            (low - 0.2).abs() < 1e-9 && (high - 100.0).abs() < 1e-9,
            "{low} {high}"
        );
    }

    #[test]
    fn a_place_is_never_outside() {
        for scale in [Scale::from_zero(5.0), Scale::log_around(0.5, 50.0)] {
            for value in [
                f64::NEG_INFINITY,
                -1.0,
                0.0,
                1.0,
                1e9,
                f64::NAN,
                f64::INFINITY,
            ] {
                assert!(
                    (0.0..=1.0).contains(&scale.place(value)),
                    "{scale:?} {value}"
                );
            }
        }
    }

    #[test]
    fn ticks_lie_on_the_scale() {
        assert_eq!(Scale::from_zero(100.0).ticks(4), [0.0, 50.0, 100.0]);
        assert_eq!(
            Scale::Log {
                low: 0.5,
                high: 20.0
            }
            .ticks(4)
            .len(),
            6
        );
        assert!(
            Scale::Log {
                low: 0.001,
                high: 1e5
            }
            .ticks(4)
            .len()
                < 12
        );
    }
}
