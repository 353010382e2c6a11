//! Standard output, standard error, and the files that flags name.

use std::{
    fs,
    io::{IsTerminal as _, Write as _},
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;

use crate::hints::hint;

/// Prints an error as one line on standard error, and a hint below it if there is one.
pub(crate) fn print_error(error: &anyhow::Error) {
    let line = format!("weir: {error:#}");
    print_line(&line);
    if let Some(hint) = hint(&line) {
        print_line(hint);
    }
}

/// Prints a line on standard error. A failure is ignored.
pub(crate) fn print_line(line: &str) {
    print_text(&format!("{line}\n"));
}

/// Prints `text` on standard error. A failure is ignored.
pub(crate) fn print_text(text: &str) {
    drop(std::io::stderr().lock().write_all(text.as_bytes()));
}

/// Prints `text` on standard output, unchanged.
pub(crate) fn print_out(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

/// Prints a line of JSON on standard output.
pub(crate) fn print_json(value: &serde_json::Value) -> anyhow::Result<()> {
    print_out(&format!("{value}\n"))
}

/// Returns the columns of standard output, and whether it shows colour.
pub(crate) fn screen() -> (usize, bool) {
    let is_terminal = std::io::stdout().is_terminal();
    let size = terminal_size::terminal_size().filter(|_| is_terminal);
    let width = size.map_or(PLAIN_WIDTH, |(width, _)| width.0.into());
    (width, is_terminal && std::env::var_os("NO_COLOR").is_none())
}

/// Checks that a report can be written to `file`, before the run.
pub(crate) fn check_writable(file: &Path) -> anyhow::Result<()> {
    let open = fs::OpenOptions::new().create(true).append(true).open(file);
    open.map(drop)
        .with_context(|| format!("{}: cannot be written", file.display()))
}

/// Writes `text` to `file`.
pub(crate) fn write_file(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("{}: cannot be written", file.display()))
}

/// Writes a report in the form that `render` returns, if a flag names a file for it.
pub(crate) fn write_named(
    file: Option<&Path>,
    render: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    file.map_or(Ok(()), |file| write_file(file, &render()))
}

/// Returns the exit code of a completed run: 0 if the service level held, otherwise 1.
pub(crate) fn exit_code(holds: bool) -> ExitCode {
    if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Returns the command line for reports, with `***` in place of the token.
pub(crate) fn command_line() -> String {
    let mut words = Vec::new();
    let mut is_token = false;
    for word in std::env::args() {
        words.push(match word.split_once('=') {
            _ if std::mem::take(&mut is_token) => "***".to_owned(),
            Some(("--token", _)) => "--token=***".to_owned(),
            Some(_) | None => word.clone(),
        });
        is_token = word == "--token";
    }
    words.join(" ")
}

/// Columns of a report that does not go to a terminal.
const PLAIN_WIDTH: usize = 100;
