//! A chart as an SVG file of its own, for a document that shows it with `<img>`.
//!
//! The file has no script and fetches nothing. It follows the reader's colour scheme and paints its own ground, so that a page
//! of the other scheme can show it too.

use maud::{Markup, PreEscaped, html};

use super::number::printable;
use super::plot::label;

/// A chart under construction.
pub(crate) struct Image {
    /// The heading, and the name for readers who do not see the chart.
    pub(crate) title: String,
    /// A line below the heading: the drawn figures, and which direction is better.
    pub(crate) lead: String,
    /// The figures in words, for readers who do not see the chart.
    pub(crate) description: String,
    /// Machine, date and command.
    pub(crate) source: String,
    /// Shapes and texts between the lead and the source.
    pub(crate) content: Markup,
    /// Height of the content.
    pub(crate) height: f64,
}

impl Image {
    /// Returns the SVG document, [`WIDTH`] pixels wide.
    pub(crate) fn svg(&self) -> String {
        let (height, from) = (
            HEAD + self.height + FOOT,
            format!("translate({MARGIN} {HEAD})"),
        );
        let svg = html! {
            svg xmlns="http://www.w3.org/2000/svg" width=(WIDTH) height=(height) viewBox=(format!("0 0 {WIDTH} {height}")) role="img" {
                title { (self.title) }
                desc { (self.description) }
                style { (PreEscaped(include_str!("image.css"))) }
                rect.page x="0.5" y="0.5" width=(WIDTH - 1.0) height=(height - 1.0) rx="10" {}
                (label("title", (MARGIN, 36.0), &self.title))
                (label("lead", (MARGIN, 58.0), &self.lead))
                g transform=(from) { (self.content) }
                (label("small", (MARGIN, height - 16.0), &self.source))
            }
        };
        printable(&svg.into_string()) + "\n"
    }
}

/// Width of a chart in pixels.
pub(crate) const WIDTH: f64 = 800.0;
/// Free room at the left and at the right of a chart.
pub(crate) const MARGIN: f64 = 24.0;
/// Room for the title and the lead.
const HEAD: f64 = 82.0;
/// Room for the source.
const FOOT: f64 = 40.0;
