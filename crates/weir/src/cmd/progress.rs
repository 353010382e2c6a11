//! Progress on standard error: a view that is drawn again on a terminal, a line now and then elsewhere.

use std::io::{IsTerminal as _, Write as _};

use weir_bench::report::live::{LiveView, Moment};

use super::print_line;

/// What is shown of a run while it goes on.
pub(super) struct Progress {
    is_terminal: bool,
    colour: bool,
    lines: u32,
    /// What is on the terminal, and how many lines of it.
    view: LiveView,
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
            let size = terminal_size::terminal_size_of(std::io::stderr());
            let width = size.map_or(PLAIN_WIDTH, |(width, _)| width.0.into());
            let text = self.view.render(moment, width, self.colour);
            self.draw(&text);
        } else if self.lines.is_multiple_of(PLAIN_LINE_EVERY) {
            print_line(&moment.line());
        }
        self.lines += 1;
    }

    /// Shows a line about a run of another kind.
    pub(super) fn say(&mut self, line: &str) {
        if self.is_terminal {
            self.draw(&format!("{line}\n"));
        } else if self.lines.is_multiple_of(PLAIN_LINE_EVERY) {
            print_line(line);
        }
        self.lines += 1;
    }

    /// Leaves nothing behind on a terminal.
    pub(super) fn end(&mut self) {
        if self.is_terminal {
            self.draw("");
        }
        (self.view, self.lines) = (LiveView::default(), 0);
    }

    /// Draws over what was drawn before.
    fn draw(&mut self, text: &str) {
        let mut err = std::io::stderr().lock();
        let up = match self.drawn {
            0 => "\r".to_owned(),
            lines => format!("\r\x1b[{lines}A"),
        };
        // In one piece: between two of them a terminal may show what is half erased.
        let frame = format!("{up}\x1b[J{text}");
        drop(err.write_all(frame.as_bytes()).and_then(|()| err.flush()));
        self.drawn = text.lines().count();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// Seconds between two lines of progress when they do not go to a terminal.
const PLAIN_LINE_EVERY: u32 = 5;
/// Columns of a terminal that does not tell.
const PLAIN_WIDTH: usize = 80;
