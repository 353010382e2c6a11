//! Text for a terminal: rows, wrapped paragraphs, colours. Control characters of foreign text are replaced.

use crate::form::number;

/// The style of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Paint {
    Plain,
    Strong,
    Faint,
    Good,
    Bad,
    Warn,
}

impl Paint {
    /// Returns the escape sequence, with one of the sixteen colours of every terminal.
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "\x1b[1m",
            Self::Faint => "\x1b[2m",
            Self::Good => "\x1b[1;32m",
            Self::Bad => "\x1b[1;31m",
            Self::Warn => "\x1b[1;33m",
        }
    }
}

/// Lines under construction.
pub(crate) struct Screen {
    out: String,
    width: usize,
    colour: bool,
}

impl Screen {
    /// Creates an empty screen of `width` columns, with escape sequences for colour if `colour`.
    pub(crate) fn new(width: usize, colour: bool) -> Self {
        Self {
            out: String::new(),
            width: width.max(WIDTH_MIN),
            colour,
        }
    }

    /// Returns the lines; each ends with a line feed.
    pub(crate) fn finish(self) -> String {
        self.out
    }

    /// Ends the line.
    pub(crate) fn blank(&mut self) {
        self.out.push('\n');
    }

    /// Writes a row of a table: a name, and as many columns as fit.
    pub(crate) fn row(&mut self, paint: Paint, name: &str, cells: &[impl AsRef<str>]) {
        let room = self.width.saturating_sub(2 + NAME) / COLUMN;
        let mut line = format!("  {name:<NAME$}");
        for cell in cells.iter().take(room) {
            line = format!("{line} {:>1$}", cell.as_ref(), COLUMN - 1);
        }
        self.paint(paint, line.trim_end());
        self.blank();
    }

    /// Writes a name, and a paragraph that begins and is indented at `column`.
    pub(crate) fn entry(
        &mut self,
        name: &str,
        paint: Paint,
        indent: usize,
        column: usize,
        text: &str,
    ) {
        self.out.push_str(&" ".repeat(indent));
        self.paint(paint, name);
        let used = indent + name.chars().count();
        let gap = column.saturating_sub(used).max(1);
        self.out.push_str(&" ".repeat(gap));
        self.wrapped(Paint::Plain, used + gap, column, text);
    }

    /// Writes an indented paragraph.
    pub(crate) fn paragraph(&mut self, paint: Paint, indent: usize, text: &str) {
        self.out.push_str(&" ".repeat(indent));
        self.wrapped(paint, indent, indent, text);
    }

    /// Writes `text`, broken at spaces, but not between a number and its unit. The first line begins at `column`, the
    /// others at `indent`.
    fn wrapped(&mut self, paint: Paint, column: usize, indent: usize, text: &str) {
        let mut column = column;
        let mut line = String::new();
        for piece in pieces(&number::printable(text)) {
            let length = piece.chars().count();
            if !line.is_empty() && column + 1 + length > self.width {
                self.paint(paint, &line);
                self.blank();
                self.out.push_str(&" ".repeat(indent));
                line.clear();
                column = indent;
            }
            if !line.is_empty() {
                line.push(' ');
                column += 1;
            }
            line.push_str(&piece);
            column += length;
        }
        self.paint(paint, &line);
        self.blank();
    }

    fn paint(&mut self, paint: Paint, text: &str) {
        let code = if self.colour { paint.code() } else { "" };
        let end = if code.is_empty() { "" } else { "\x1b[0m" };
        self.out.push_str(code);
        self.out.push_str(text);
        self.out.push_str(end);
    }
}

/// Returns the words of `text`; a word after a number stays with the number.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match pieces.last_mut() {
            Some(number) if number.ends_with(|letter: char| letter.is_ascii_digit()) => {
                number.push(' ');
                number.push_str(word);
            }
            Some(_) | None => pieces.push(word.to_owned()),
        }
    }
    pieces
}

/// Least width of a screen. In a narrow terminal, tables lose columns on the right.
const WIDTH_MIN: usize = 40;
/// Width of the names of rows.
const NAME: usize = 27;
/// Width of a column of figures.
pub(crate) const COLUMN: usize = 12;
