//! Standard output, standard error, and the files that flags name.

use std::{
    fs,
    io::{ErrorKind, IsTerminal as _, Write as _},
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;

use crate::{hints::hint, urls::Redacted};

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

/// Checks that a report can be written to `file`, before the run. Leaves a file as it is, and none where none was.
pub(crate) fn check_writable(file: &Path) -> anyhow::Result<()> {
    let made = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file);
    let checked = match made {
        Ok(_) => fs::remove_file(file),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let open = fs::OpenOptions::new().create(true).append(true).open(file);
            open.map(drop)
        }
        Err(error) => Err(error),
    };
    checked.with_context(|| format!("{}: cannot be written", file.display()))
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

/// Returns the command line for reports, with `***` in place of the token, and URLs without what may hold one.
pub(crate) fn command_line() -> String {
    without_secrets(std::env::args())
}

fn without_secrets(arguments: impl Iterator<Item = String>) -> String {
    let mut words = Vec::new();
    let mut is_token = false;
    for word in arguments {
        words.push(match word.split_once('=') {
            _ if std::mem::take(&mut is_token) => "***".to_owned(),
            Some(("--token", _)) => "--token=***".to_owned(),
            Some(_) | None if word.contains("://") => Redacted(&word).to_string(),
            Some(_) | None => word.clone(),
        });
        is_token = word == "--token";
    }
    words.join(" ")
}

/// Columns of a report that does not go to a terminal.
const PLAIN_WIDTH: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_leaves_no_file_behind_and_no_file_changed() {
        let folder = std::env::temp_dir().join(format!("weir-writable-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("report.html");
        check_writable(&file).unwrap();
        assert!(!file.exists());
        fs::write(&file, "earlier").unwrap();
        check_writable(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "earlier");
        let error = check_writable(&folder.join("none/report.html")).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("report.html: cannot be written")
        );
        assert!(check_writable(&folder).is_err(), "it is a folder");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_command_line_is_kept_without_its_secrets() {
        let line = "weir bench a.ini --token s --token=s --relay moqt://h:1/a?jwt=s --json=b";
        let kept = without_secrets(line.split(' ').map(str::to_owned));
        assert_eq!(
            kept,
            "weir bench a.ini --token *** --token=*** --relay moqt://h:1/a?redacted --json=b"
        );
    }
}
