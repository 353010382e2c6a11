//! Progress on standard error: a view that is drawn again on a terminal, a line now and then elsewhere.

use std::io::{IsTerminal as _, Write as _};

use weir_report::relay::live_view::{LiveView, Moment};

use super::print_line;

/// What is shown of a run while it goes on.
pub(super) struct Progress {
    is_terminal: bool,
    colour: bool,
    lines: u32,
    view: LiveView,
    /// How many lines of it are on the terminal.
    drawn: usize,
    label: String,
}

impl Progress {
    pub(super) fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self {
            is_terminal,
            colour: is_terminal && std::env::var_os("NO_COLOR").is_none(),
            lines: 0,
            view: LiveView::default(),
            drawn: 0,
            label: String::new(),
        }
    }

    /// Shows a moment of a run; one of another label is of another run.
    pub(super) fn show(&mut self, moment: &Moment) {
        if moment.label != self.label {
            self.label.clone_from(&moment.label);
            (self.view, self.lines) = (LiveView::default(), 0);
        }
        if self.is_terminal {
            self.view.push(moment);
            let size = Size::now();
            let text = self.view.render(moment, size.columns, self.colour);
            self.draw(size, &text);
        } else if self.lines.is_multiple_of(PLAIN_LINE_EVERY) {
            print_line(&moment.line());
        }
        self.lines += 1;
    }

    /// Shows a line about a run of another kind.
    pub(super) fn say(&mut self, line: &str) {
        if self.is_terminal {
            let size = Size::now();
            let line: String = line.chars().take(size.columns.saturating_sub(1)).collect();
            self.draw(size, &format!("{line}\n"));
        } else if self.lines.is_multiple_of(PLAIN_LINE_EVERY) {
            print_line(line);
        }
        self.lines += 1;
    }

    /// Leaves nothing behind on a terminal.
    pub(super) fn end(&mut self) {
        if self.is_terminal {
            self.draw(Size::now(), "");
        }
        (self.view, self.lines) = (LiveView::default(), 0);
    }

    /// Draws over what was drawn before, as much as there is room for.
    ///
    /// A terminal that has become narrower may have broken lines in two: then some of the old ones are left, and never is
    /// anything erased that was there before.
    fn draw(&mut self, size: Size, text: &str) {
        let mut err = std::io::stderr().lock();
        let up = match self.drawn {
            0 => "\r".to_owned(),
            lines => format!("\r\x1b[{lines}A"),
        };
        let mut frame = format!("{up}\x1b[J");
        // The last line is the cursor's.
        let lines = text.lines().take(size.rows.saturating_sub(1).max(1));
        self.drawn = 0;
        for line in lines {
            self.drawn += 1;
            frame.push_str(line);
            frame.push('\n');
        }
        // In one piece: between two of them a terminal may show what is half erased.
        drop(err.write_all(frame.as_bytes()).and_then(|()| err.flush()));
    }
}

/// How large the terminal is just now.
#[derive(Clone, Copy, Debug)]
struct Size {
    columns: usize,
    rows: usize,
}

impl Size {
    fn now() -> Self {
        let size = terminal_size::terminal_size_of(std::io::stderr());
        size.map_or(PLAIN_SIZE, |(width, height)| Self {
            columns: width.0.into(),
            rows: height.0.into(),
        })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// Seconds between two lines of progress when they do not go to a terminal.
const PLAIN_LINE_EVERY: u32 = 5;
/// A terminal that does not tell.
const PLAIN_SIZE: Size = Size {
    columns: 80,
    rows: 24,
};
