//! Charts of a results document, such as `docs/results.md`: one SVG file for each section that has a chart.
//!
//! A chart is drawn from the Markdown of its section, not from the measurement: so it always agrees with the tables below it, and
//! a test can draw it again. [`chart`] knows which sections have one.

mod agreement;
mod compared;
mod gaps;
mod live;
mod materials;
mod probed;
mod relays;
mod servers;
mod soak;
mod sweep;
mod tables;
#[cfg(test)]
mod tests;
mod through;

use maud::{Markup, html};

use self::tables::tables;
use crate::form::bars::{self, Bar};
use crate::form::image::{Image, MARGIN, WIDTH};
use crate::form::plot::{in_lines, label};

/// A chart of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// The heading of the chart.
    pub title: String,
    /// The SVG document.
    pub svg: String,
}

/// Returns the chart of the section `name`, drawn from the tables in its Markdown; none if such a section has no chart, or if its
/// tables lack a column or hold no figure.
pub fn chart(name: &str, markdown: &str) -> Option<Chart> {
    let tables = tables(markdown);
    let image = match name {
        "relay-limits" => relays::image(&tables, markdown)?,
        "http3-servers" => servers::image(&tables)?,
        "live-lab" => live::image(&tables, markdown)?,
        "relays-compared" => compared::image("Relays under one load", &tables)?,
        "audiences" => compared::image("What an audience costs the relay", &tables)?,
        "drafts" => compared::image("What drafts cost the relay", &tables)?,
        "live-sources" => materials::image(&tables)?,
        "live-sweep" => sweep::image(&tables)?,
        "live-agreement" => agreement::image("Live video in virtual and in real time", &tables)?,
        "live-browser" => agreement::image("Live video in a browser", &tables)?,
        "live-relays" => through::image(&tables)?,
        "fleet-kills" => gaps::of_fleet("Gaps when a relay is killed", &tables)?,
        "fleet-drops" => gaps::of_fleet("Gaps when all packets of a relay are dropped", &tables)?,
        "fleet-cuts" => gaps::of_fleet("Gaps when clients cannot reach a relay", &tables)?,
        "kills" => gaps::of_processes(&tables)?,
        "probe" => probed::image(&tables)?,
        "soak-web" => soak::image(&tables)?,
        _ => return None,
    };
    let image = Image {
        source: source(markdown),
        ..image
    };
    Some(Chart {
        svg: image.svg(),
        title: image.title,
    })
}

/// The line of the section that says where and when it was measured, without the command.
fn source(markdown: &str) -> String {
    let mut lines = markdown.lines();
    let line = lines.find(|line| line.starts_with(MEASURED));
    let line = line.map_or("", |line| line.split(": `").next().unwrap_or(line));
    line.to_owned()
}

/// How that line begins.
const MEASURED: &str = "Measured on ";

/// A list of bars under a heading.
struct Panel {
    title: String,
    lead: String,
    bars: Vec<Bar>,
}

/// Returns panels in two columns, row by row, and their height.
fn panels(panels: &[Panel]) -> (Markup, f64) {
    let leads: Vec<Vec<String>> = panels
        .iter()
        .map(|panel| in_lines(&panel.lead, LEAD_ROOM))
        .collect();
    let lines = leads.iter().map(Vec::len).max().unwrap_or(0);
    let head = HEADING + LINE * count(lines);
    let longest = panels.iter().map(|panel| panel.bars.len()).max();
    let tall = head + bars::height(longest.unwrap_or(0)) + GAP / 2.0;
    let rows = panels.len().div_ceil(2);
    let place = |number: usize| {
        let left = count(number % 2) * (PANEL + GAP);
        format!("translate({left} {})", count(number / 2) * tall)
    };
    let content = html! {
        @for (number, (panel, lead)) in panels.iter().zip(&leads).enumerate() {
            g transform=(place(number)) {
                (label("panel", (2.0, 16.0), &panel.title))
                @for (line, text) in lead.iter().enumerate() {
                    (label("small", (2.0, 33.0 + LINE * count(line)), text))
                }
                g transform=(format!("translate(0 {head})")) { (bars::canvas(&panel.bars, PANEL)) }
            }
        }
    };
    (content, count(rows) * tall - GAP / 2.0)
}

/// Returns the chart of some panels; none if there is none, or if one of them has no bar.
fn of_panels(title: &str, lead: &str, shown: &[Panel]) -> Option<Image> {
    if shown.is_empty() || shown.iter().any(|panel| panel.bars.is_empty()) {
        return None;
    }
    let (content, height) = panels(shown);
    Some(Image {
        title: title.to_owned(),
        lead: lead.to_owned(),
        description: words(shown),
        source: String::new(),
        content,
        height,
    })
}

/// All figures of some panels in words.
fn words(panels: &[Panel]) -> String {
    let panels = panels.iter();
    let words = panels.map(|panel| format!("{}: {}.", panel.title, bars::words(&panel.bars)));
    words.collect::<Vec<_>>().join(" ")
}

/// The class of a contender's bar: weir stands out.
fn class(name: &str) -> &'static str {
    if name.starts_with("weir") {
        "ours"
    } else {
        "theirs"
    }
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Between two panels.
const GAP: f64 = 32.0;
/// Width of a panel.
const PANEL: f64 = (WIDTH - 2.0 * MARGIN - GAP) / 2.0;
/// Room for the lead of a panel in the measure of [`in_lines`], which takes letters to be wider than they are here.
const LEAD_ROOM: f64 = PANEL * 1.35;
/// From the top of a panel to its first bar, without lines of the lead.
const HEADING: f64 = 26.0;
/// From one line of a lead to the next.
const LINE: f64 = 16.0;
