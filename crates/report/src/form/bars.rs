//! Horizontal bars, one below the other, for a page and for a chart of its own.

use maud::{Markup, html};

use super::page;
use super::plot::{RIGHT, VISIBLE, WIDTH, label, line, rectangle};

/// One bar of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    /// Name, written above the bar.
    pub(crate) name: String,
    /// Length of the bar.
    pub(crate) value: f64,
    /// The ends of its whisker, such as the smallest and the largest round.
    pub(crate) span: (f64, f64),
    /// Text above its right end, such as the value with its unit.
    pub(crate) label: String,
    /// Classes of its rectangle.
    pub(crate) class: &'static str,
}

/// Returns a figure of `list` for a page.
pub(crate) fn bars(title: &str, list: &[Bar]) -> Markup {
    let view = format!("0 0 {WIDTH} {}", height(list.len()));
    let svg = html! {
        svg viewBox=(view) role="img" {
            title { (title) }
            desc { (words(list)) }
            (canvas(list, WIDTH - RIGHT))
        }
    };
    page::figure(title, &[], "", &svg)
}

/// Returns the bars of `list` without an SVG element. The longest bar or whisker ends at `width`.
pub(crate) fn canvas(list: &[Bar], width: f64) -> Markup {
    let longest = list.iter().map(|bar| bar.span.1.max(bar.value));
    let longest = longest.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let across = |value: f64| (value / longest).clamp(0.0, 1.0) * (width - 2.0);
    html! {
        @for (number, bar) in (0_u32..).zip(list) {
            @let top = f64::from(number) * BAR_ROW;
            @let size = (across(bar.value).max(VISIBLE), BAR_THICK);
            @let (low, high) = (2.0 + across(bar.span.0), 2.0 + across(bar.span.1));
            (label("name", (2.0, top + 13.0), &bar.name))
            (label("end", (width, top + 13.0), &bar.label))
            (rectangle(bar.class, (2.0, top + 19.0), size))
            @if high - low > 1.0 { (whisker(low, high, top + 19.0 + BAR_THICK / 2.0)) }
        }
    }
}

/// Returns a line with a short stroke at both ends.
fn whisker(low: f64, high: f64, middle: f64) -> Markup {
    let cap = |across: f64| line("axis", (across, middle - 3.5), (across, middle + 3.5));
    html! { (cap(low)) (line("axis", (low, middle), (high, middle))) (cap(high)) }
}

/// Returns the height of so many bars.
pub(crate) fn height(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) * BAR_ROW
}

/// Returns the bars in words.
pub(crate) fn words(list: &[Bar]) -> String {
    let words = list.iter().map(|bar| format!("{} {}", bar.name, bar.label));
    words.collect::<Vec<_>>().join("; ")
}

/// Distance of two bars.
const BAR_ROW: f64 = 42.0;
/// Thickness of a bar.
const BAR_THICK: f64 = 13.0;
