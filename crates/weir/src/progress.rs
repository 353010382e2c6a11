//! Progress on standard error: a view that is redrawn on a terminal, otherwise a line every five seconds.

use std::io::{IsTerminal as _, Write as _};

use weir_report::relay::live_view::{LiveView, Moment};

use crate::output::print_line;

/// The progress of runs, on standard error.
pub(crate) struct Progress {
    is_terminal: bool,
    colour: bool,
    lines: u32,
    view: LiveView,
    /// Lines of the view on the terminal.
    drawn: usize,
    label: String,
}

impl Progress {
    pub(crate) fn new() -> Self {
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

    /// Shows a moment of a run. Another label begins another run.
    pub(crate) fn show(&mut self, moment: &Moment) {
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

    /// Shows a line of progress.
    pub(crate) fn say(&mut self, line: &str) {
        if self.is_terminal {
            let size = Size::now();
            let line: String = line.chars().take(size.columns.saturating_sub(1)).collect();
            self.draw(size, &format!("{line}\n"));
        } else if self.lines.is_multiple_of(PLAIN_LINE_EVERY) {
            print_line(line);
        }
        self.lines += 1;
    }

    /// Prints a line that stays.
    pub(crate) fn keep(&mut self, line: &str) {
        self.end();
        print_line(line);
    }

    /// Removes the view from the terminal.
    pub(crate) fn end(&mut self) {
        if self.is_terminal {
            self.draw(Size::now(), "");
        }
        (self.view, self.lines) = (LiveView::default(), 0);
    }

    /// Draws `text` over the previous view, as many lines as fit.
    ///
    /// A terminal that became narrower may have wrapped lines. Then some old lines stay; lines above the view are never erased.
    fn draw(&mut self, size: Size, text: &str) {
        let mut err = std::io::stderr().lock();
        let up = match self.drawn {
            0 => "\r".to_owned(),
            lines => format!("\r\x1b[{lines}A"),
        };
        let mut frame = format!("{up}\x1b[J");
        // The cursor needs the last line.
        let lines = text.lines().take(size.rows.saturating_sub(1).max(1));
        self.drawn = 0;
        for line in lines {
            self.drawn += 1;
            frame.push_str(line);
            frame.push('\n');
        }
        // One write, so that the terminal never shows a half-drawn view.
        drop(err.write_all(frame.as_bytes()).and_then(|()| err.flush()));
    }
}

/// The current size of the terminal.
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

/// Seconds between two lines of progress without a terminal.
const PLAIN_LINE_EVERY: u32 = 5;
/// The size of a terminal that does not report it.
const PLAIN_SIZE: Size = Size {
    columns: 80,
    rows: 24,
};
