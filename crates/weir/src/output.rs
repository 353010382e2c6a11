//! What goes to standard output, standard error and the files that a flag names.

use std::{
    fs,
    io::{IsTerminal as _, Write as _},
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;

/// Says in one line on standard error what went wrong and where.
pub(crate) fn print_error(error: &anyhow::Error) {
    print_line(&format!("weir: {error:#}"));
}

/// Writes a line to standard error. Nothing can be done if that fails.
pub(crate) fn print_line(line: &str) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

/// Writes `text` to standard output as it stands.
pub(crate) fn print_out(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

/// Writes a line of JSON to standard output.
pub(crate) fn print_json(value: &serde_json::Value) -> anyhow::Result<()> {
    print_out(&format!("{value}\n"))
}

/// Columns of standard output, and whether it takes colour.
pub(crate) fn screen() -> (usize, bool) {
    let is_terminal = std::io::stdout().is_terminal();
    let size = terminal_size::terminal_size().filter(|_| is_terminal);
    let width = size.map_or(PLAIN_WIDTH, |(width, _)| width.0.into());
    (width, is_terminal && std::env::var_os("NO_COLOR").is_none())
}

/// Finds out before a run whether its report can be written.
pub(crate) fn check_writable(file: &Path) -> anyhow::Result<()> {
    let open = fs::OpenOptions::new().create(true).append(true).open(file);
    open.map(drop)
        .with_context(|| format!("{}: cannot be written", file.display()))
}

/// Writes a report.
pub(crate) fn write_file(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("{}: cannot be written", file.display()))
}

/// Writes a form of a report, if a flag names a file for it.
pub(crate) fn write_named(
    file: Option<&Path>,
    render: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    file.map_or(Ok(()), |file| write_file(file, &render()))
}

/// The exit code of a run that was made: 0 if what was to hold does.
pub(crate) fn exit_code(holds: bool) -> ExitCode {
    if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The command line for reports, which are passed on: without the token.
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

/// Columns when the report does not go to a terminal.
const PLAIN_WIDTH: usize = 100;
