//! Bars from left to right: what several things of a kind come to, side by side.

use super::{
    markup::Markup,
    plot::{RIGHT, VISIBLE, WIDTH, label, line, rectangle},
};

/// One bar of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    /// What it stands for.
    pub(crate) name: String,
    /// How long it is.
    pub(crate) value: f64,
    /// The smallest and the largest of the values that it stands for.
    pub(crate) span: (f64, f64),
    /// What is written at its end.
    pub(crate) label: String,
    /// Drawn paler, since it says less.
    pub(crate) is_pale: bool,
}

/// A list of bars from left to right, one below the other, each with its name above it.
pub(crate) fn bars(markup: &mut Markup, title: &str, description: &str, list: &[Bar]) {
    let longest = list.iter().map(|bar| bar.span.1.max(bar.value));
    let longest = longest.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let across = |value: f64| (value / longest).clamp(0.0, 1.0) * (WIDTH - RIGHT - 2.0);
    let rows = u32::try_from(list.len()).unwrap_or(u32::MAX);
    let view = format!("0 0 {WIDTH} {}", f64::from(rows) * BAR_ROW);
    markup.element("svg", &[("viewBox", &view), ("role", &"img")], |markup| {
        markup.leaf("title", &[], &title);
        markup.leaf("desc", &[], &description);
        for (number, bar) in (0_u32..).zip(list) {
            let top = f64::from(number) * BAR_ROW;
            label(markup, "name", (2.0, top + 13.0), &bar.name);
            label(markup, "end", (WIDTH - RIGHT, top + 13.0), &bar.label);
            let class = if bar.is_pale { "bar pale" } else { "bar" };
            let size = (across(bar.value).max(VISIBLE), BAR_THICK);
            rectangle(markup, class, (2.0, top + 19.0), size);
            let (low, high) = (2.0 + across(bar.span.0), 2.0 + across(bar.span.1));
            if high - low > 1.0 {
                let middle = top + 19.0 + BAR_THICK / 2.0;
                line(markup, "axis", (low, middle), (high, middle));
            }
        }
    });
}

/// From one bar of a list to the next.
const BAR_ROW: f64 = 42.0;
/// How thick a bar of a list is.
const BAR_THICK: f64 = 13.0;
