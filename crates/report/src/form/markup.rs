//! Builds HTML and SVG text so that nothing unescaped and nothing unclosed can come out.

use std::fmt::{Display, Write};

use crate::form::number::is_control;

/// Attributes of an element, in order; values are escaped as they are written.
pub(crate) type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

/// A document under construction.
#[derive(Debug, Default)]
pub(crate) struct Markup {
    out: String,
}

impl Markup {
    /// An element with children, which `body` adds.
    pub(crate) fn element(
        &mut self,
        tag: &'static str,
        attributes: Attributes<'_>,
        body: impl FnOnce(&mut Self),
    ) {
        self.begin(tag, attributes);
        self.out.push('>');
        body(self);
        self.out.push_str("</");
        self.out.push_str(tag);
        self.out.push('>');
    }

    /// An element that holds nothing but `text`.
    pub(crate) fn leaf(
        &mut self,
        tag: &'static str,
        attributes: Attributes<'_>,
        text: &dyn Display,
    ) {
        self.element(tag, attributes, |markup| markup.text(text));
    }

    /// An element without content: `<meta/>`, or a shape of SVG.
    pub(crate) fn empty(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.begin(tag, attributes);
        self.out.push_str("/>");
    }

    /// An element of HTML that stays empty but must be closed.
    pub(crate) fn empty_block(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.element(tag, attributes, |_| ());
    }

    /// Text of any origin.
    pub(crate) fn text(&mut self, text: &dyn Display) {
        write!(Escape(&mut self.out), "{text}").expect("a String takes all");
    }

    /// Our own text as it stands: a style sheet, a script, the document type.
    pub(crate) fn verbatim(&mut self, text: &'static str) {
        self.out.push_str(text);
    }

    /// The document.
    pub(crate) fn finish(self) -> String {
        self.out
    }

    fn begin(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.out.push('<');
        self.out.push_str(tag);
        for (name, value) in attributes {
            self.out.push(' ');
            self.out.push_str(name);
            self.out.push_str("=\"");
            self.text(*value);
            self.out.push('"');
        }
    }
}

/// Escapes what is written through it, for text and for quoted attribute values alike.
struct Escape<'a>(&'a mut String);

impl Write for Escape<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for letter in text.chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                letter if is_control(letter) => self.0.push(char::REPLACEMENT_CHARACTER),
                letter => self.0.push(letter),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_are_escaped() {
        let mut markup = Markup::default();
        markup.leaf(
            "p",
            &[("title", &"\"><script>'&")],
            &"</p>\u{0}\u{1b}[31m\u{202e}\tok",
        );
        assert_eq!(
            markup.finish(),
            "<p title=\"&quot;&gt;&lt;script&gt;&#39;&amp;\">&lt;/p&gt;\u{fffd}\u{fffd}[31m\u{fffd}\tok</p>"
        );
    }

    #[test]
    fn elements_nest() {
        let mut markup = Markup::default();
        markup.element("g", &[("id", &1)], |markup| {
            markup.empty("path", &[("d", &"M0 0")]);
        });
        assert_eq!(markup.finish(), "<g id=\"1\"><path d=\"M0 0\"/></g>");
    }
}
