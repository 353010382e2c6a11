//! The frame of all HTML pages, and their common parts. A page is one file that needs no network.
//!
//! A script shows figures under the pointer. Without it, the page is otherwise complete.

use maud::{DOCTYPE, Markup, PreEscaped, Render, html};

use super::number::printable;

/// A page: its content, and what is above and below.
pub(crate) struct Page<'a> {
    /// Title of the window.
    pub(crate) title: String,
    /// The command that made the page, such as `weir bench`.
    pub(crate) program: &'a str,
    /// The heading.
    pub(crate) heading: String,
    /// Lines below the heading.
    pub(crate) facts: Vec<String>,
    /// The content.
    pub(crate) main: Markup,
    /// Lines below the content.
    pub(crate) footer: Vec<String>,
}

/// The Content-Security-Policy: the page may neither fetch nor send anything, whatever the report contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

impl Page<'_> {
    /// Renders the complete document, without control characters.
    pub(crate) fn render(self) -> String {
        let document = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) }
                    style { (PreEscaped(include_str!("page.css"))) }
                }
                body {
                    header {
                        (brand(self.program))
                        h1 { (cut(&self.heading)) }
                        @for line in &self.facts { p.facts { (cut(line)) } }
                    }
                    main { (self.main) }
                    footer { @for line in &self.footer { p { (cut(line)) } } }
                    div #tip hidden {}
                    script { (PreEscaped(include_str!("page.js"))) }
                }
            }
        };
        printable(&document.into_string()) + "\n"
    }
}

/// Renders the name of the program with its logo.
fn brand(program: &str) -> Markup {
    html! {
        p.brand {
            svg.glyph viewBox="0 0 24 24" aria-hidden="true" {
                path d="M2 8h9c4 0 3.5 9 7 9h4" {}
                path.still d="M2 13h5M2 18h9" {}
            }
            (program)
        }
    }
}

/// The tone of a verdict, which sets its colour and sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Warn,
}

impl Tone {
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Warn => "warn",
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Self::Good => "✓",
            Self::Bad => "✕",
            Self::Warn => "!",
        }
    }
}

/// Renders a verdict in a box: title and text.
pub(crate) fn verdict(tone: Tone, title: &str, body: &Markup) -> Markup {
    html! {
        section.verdict.(tone.class()) {
            span.sign aria-hidden="true" { (tone.sign()) }
            div { h2 { (title) } (body) }
        }
    }
}

/// A card with a key figure.
#[derive(Default)]
pub(crate) struct Card {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) unit: String,
    /// The text below the figure.
    pub(crate) beside: String,
    /// Whether the figure is shown as an alarm.
    pub(crate) is_alarm: bool,
}

impl Render for Card {
    fn render(&self) -> Markup {
        let size = match self.value.len() {
            0..=8 => "",
            9..=10 => "long",
            _ => "longer",
        };
        html! {
            div.card.alarm[self.is_alarm] {
                h3 { (self.name) }
                p.figure.(size) {
                    (self.value)
                    @if !self.unit.is_empty() { span.unit { " " (self.unit) } }
                }
                p.beside { (self.beside) }
            }
        }
    }
}

/// Renders cards side by side.
pub(crate) fn cards(cards: &[Card]) -> Markup {
    html! {
        section.cards aria-label="Key figures" { @for card in cards { (card) } }
    }
}

/// Renders a section with a title and a sentence below it.
pub(crate) fn section(title: &str, lead: &str, body: &Markup) -> Markup {
    html! {
        section {
            h2 { (title) }
            @if !lead.is_empty() { p.lead { (lead) } }
            (body)
        }
    }
}

/// Renders plots side by side, as many as fit.
pub(crate) fn plots(plots: impl IntoIterator<Item = Markup>) -> Markup {
    html! { div.plots { @for plot in plots { (plot) } } }
}

/// Renders the heading of a table or list.
pub(crate) fn table_title(title: &str) -> Markup {
    html! { h4.table-title { (title) } }
}

/// Renders names with values, side by side, as many as fit.
pub(crate) fn facts<N: AsRef<str>>(facts: impl IntoIterator<Item = (N, String)>) -> Markup {
    html! {
        dl.fact-grid {
            @for (name, value) in facts {
                div { dt { (name.as_ref()) } dd { (cut(&value)) } }
            }
        }
    }
}

/// Renders the command line of the run; nothing if it is empty.
pub(crate) fn command_line(command_line: &str) -> Markup {
    html! {
        @if !command_line.is_empty() {
            (table_title("Command line"))
            pre { (cut(command_line)) }
        }
    }
}

/// An entry of a legend: CSS class of the swatch, and its meaning.
pub(crate) type Key = (&'static str, String);

/// Renders a figure: heading, legend, plot, and a sentence that explains it.
pub(crate) fn figure(title: &str, keys: &[Key], reading: &str, plot: &Markup) -> Markup {
    html! {
        figure {
            figcaption {
                h4 { (title) }
                @if !keys.is_empty() {
                    p.legend {
                        @for (class, name) in keys { span.key.(class) { (name) } }
                    }
                }
            }
            div.canvas { (plot) }
            @if !reading.is_empty() { p.reading { (reading) } }
        }
    }
}

/// Returns `text`, cut with a mark if it is too long.
pub(crate) fn cut(text: &str) -> String {
    if text.len() <= TEXT_MAX {
        return text.to_owned();
    }
    format!("{} […]", &text[..text.floor_char_boundary(TEXT_MAX)])
}

/// Most bytes of a text that are shown.
const TEXT_MAX: usize = 20_000;
/// Most entries shown of a list of reasons, clauses, counters or threads.
pub(crate) const ENTRIES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_escaped_and_control_characters_are_replaced() {
        let hostile = "</p><script>\"'&\u{0}\u{1b}[31m\u{202e}\tok";
        let page = Page {
            title: hostile.to_owned(),
            program: "weir bench",
            heading: hostile.to_owned(),
            facts: vec![hostile.to_owned()],
            main: html! { p title=(hostile) { (hostile) } },
            footer: vec![hostile.to_owned()],
        };
        let text = page.render();
        assert_eq!(text.matches("<script>").count(), 1, "the page's own");
        let escaped = "&lt;/p&gt;&lt;script&gt;&quot;'&amp;\u{fffd}\u{fffd}[31m\u{fffd}\tok";
        assert_eq!(text.matches(escaped).count(), 6);
    }
}
