//! Progress on standard error: one line that changes on a terminal, a line now and then elsewhere.

use std::io::{IsTerminal as _, Write as _};

use super::print_line;

/// The lines about a run while it goes on.
pub(super) struct Progress {
    is_terminal: bool,
    lines: u32,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            lines: 0,
        }
    }

    pub(super) fn show(&mut self, line: &str) {
        if self.is_terminal {
            let mut err = std::io::stderr().lock();
            drop(write!(err, "\r\x1b[K{line}").and_then(|()| err.flush()));
        } else if self.lines.is_multiple_of(PLAIN_LINE_EVERY) {
            print_line(line);
        }
        self.lines += 1;
    }

    pub(super) fn end(&mut self) {
        if self.is_terminal {
            let mut err = std::io::stderr().lock();
            drop(write!(err, "\r\x1b[K").and_then(|()| err.flush()));
        }
    }
}

/// Seconds between two lines of progress when they do not go to a terminal.
const PLAIN_LINE_EVERY: u32 = 5;
