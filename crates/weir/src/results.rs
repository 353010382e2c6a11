//! Results documents, such as `docs/results.md`: each section is written by one command.
//!
//! A section stands between two comments that name it and its command. A command replaces its own section, and writes the
//! section's chart into a file beside the document; text outside of sections is kept.

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
    time::UNIX_EPOCH,
};

use weir_net::clock;
use weir_report::charts::{self, Chart};

/// A section to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section<'a> {
    /// The name in the comments: ASCII letters, digits, hyphens.
    pub(crate) name: &'a str,
    /// The heading.
    pub(crate) heading: &'a str,
    /// Where it was measured, such as `on AMD EPYC, 2 cores, Linux 6.18.44` or `in virtual time`.
    pub(crate) place: &'a str,
    /// The command that writes the section again, run from the root of the repository.
    pub(crate) command: &'a str,
    /// Tables and notes in Markdown.
    pub(crate) body: &'a str,
}

/// Writes a section into the Markdown file at `path`, in place of the section of that name, or at the end. If the section has a
/// chart, writes the chart beside the file, and links the chart from the section unless the rest of the file does.
///
/// The document is replaced as a whole or not at all. Errors name the file. It is an error if the section begins without an end
/// or occurs twice, and if its name or command would break the comments.
pub(crate) fn write_section(path: &Path, section: &Section<'_>) -> io::Result<()> {
    let at_file = |kind: ErrorKind, problem: &str| {
        io::Error::new(kind, format!("{}: {problem}", path.display()))
    };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(at_file(error.kind(), &error.to_string())),
    };
    let Section {
        name,
        heading,
        place,
        command,
        body,
    } = section;
    let source = format!("Measured on {} {place}: `{command}`.", today());
    let chart = charts::chart(name, &format!("{source}\n\n{body}"));
    let image = chart.as_ref().map(|_| chart_file(path, name));
    let link = link(&text, name, chart.as_ref().zip(image.as_deref()));
    let body = format!(
        "## {heading}\n\n{source}\n\n{link}{}",
        body.trim_start_matches('\n')
    );
    let text = with_section(&text, name, command, &body)
        .map_err(|problem| at_file(ErrorKind::InvalidData, &problem))?;
    replace(path, &text)?;
    match chart.zip(image) {
        Some((chart, image)) => replace(&path.with_file_name(image), &chart.svg),
        None => Ok(()),
    }
}

/// The name of a section's chart: `results-relay-limits.svg` beside `results.md`.
fn chart_file(path: &Path, name: &str) -> String {
    let stem = path.file_stem().unwrap_or_default();
    format!("{}-{name}.svg", stem.to_string_lossy())
}

/// The line that shows a section's chart; empty if it has none, or if the text outside of the section shows it.
fn link(text: &str, name: &str, chart: Option<(&Chart, &str)>) -> String {
    let Some((chart, image)) = chart else {
        return String::new();
    };
    let outside = around(text, name).ok().flatten();
    let (before, after) = outside.unwrap_or((text, ""));
    if [before, after]
        .iter()
        .any(|part| part.contains(&format!("]({image})")))
    {
        return String::new();
    }
    format!("![{}]({image})\n\n", chart.title)
}

/// Today's date in UTC, such as 2026-11-23.
fn today() -> String {
    let now = humantime::format_rfc3339_seconds(UNIX_EPOCH + clock::since_epoch()).to_string();
    now.split('T').next().unwrap_or_default().to_owned()
}

/// Writes a file under another name first, so that it is replaced as a whole or not at all.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, path))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Returns `text` with the section in it, or what is wrong.
fn with_section(text: &str, name: &str, command: &str, body: &str) -> Result<String, String> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '-';
    if name.is_empty() || !name.chars().all(is_name) {
        return Err(format!("{name:?} is no name of a section"));
    }
    if command.contains("-->") || command.contains('\n') {
        return Err(format!("{command:?} cannot stand in a comment"));
    }
    if body.contains(&begins_with(name)) || body.contains(&end(name)) {
        return Err(format!("section {name} contains its own marks"));
    }
    let section = format!(
        "{}{command} -->\n\n{}\n\n{}",
        begins_with(name),
        body.trim_matches('\n'),
        end(name)
    );
    let Some((before, after)) = around(text, name)? else {
        let before = text.trim_end_matches('\n');
        let gap = if before.is_empty() { "" } else { "\n\n" };
        return Ok(format!("{before}{gap}{section}\n"));
    };
    Ok(format!("{before}{section}{after}"))
}

/// Returns the text before and after the section `name`, if there is one.
fn around<'a>(text: &'a str, name: &str) -> Result<Option<(&'a str, &'a str)>, String> {
    let (begin, end) = (begins_with(name), end(name));
    let begins = text.matches(&begin).count();
    let ends = text.matches(&end).count();
    match (begins, ends) {
        (0, 0) => Ok(None),
        (1, 1) => {
            let (before, rest) = text.split_once(&begin).unwrap_or((text, ""));
            let after = rest.split_once(&end).map(|(_, after)| after);
            let after = after.ok_or_else(|| format!("section {name} ends before it begins"))?;
            Ok(Some((before, after)))
        }
        _ => Err(format!(
            "section {name} begins {begins} times and ends {ends} times"
        )),
    }
}

fn begins_with(name: &str) -> String {
    format!("<!-- {name} begin: made by ")
}

fn end(name: &str) -> String {
    format!("<!-- {name} end -->")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const HEAD: &str = "# Results\n\nMeasured.\n";

    #[test]
    fn a_new_section_goes_to_the_end() {
        let text = with_section(HEAD, "relays", "make results-relays", "\n| a |\n\n").unwrap();
        assert_eq!(
            text,
            "# Results\n\nMeasured.\n\n<!-- relays begin: made by make results-relays -->\n\n| a |\n\n\
             <!-- relays end -->\n"
        );
        let text = with_section("", "relays", "make x", "a").unwrap();
        assert!(text.starts_with("<!-- relays begin: made by make x -->\n\na\n"));
    }

    #[test]
    fn a_section_is_replaced_and_nothing_else() {
        let text = with_section(HEAD, "one", "make one", "1").unwrap();
        let text = with_section(&text, "two", "make two", "2").unwrap() + "\nWritten by hand.\n";
        let again = with_section(&text, "one", "make one FAST=1", "longer\n\n1").unwrap();
        let expected = text
            .replace("made by make one", "made by make one FAST=1")
            .replace("\n1\n", "\nlonger\n\n1\n");
        assert_eq!(again, expected);
        // Writing the same section again changes nothing.
        let once_more = with_section(&again, "one", "make one FAST=1", "longer\n\n1").unwrap();
        assert_eq!(once_more, again);
        // A name that begins with another name is another section.
        let other = with_section(&again, "on", "make on", "0").unwrap();
        assert!(other.starts_with(again.trim_end()), "{other}");
    }

    #[test]
    fn broken_marks_are_errors() {
        let whole = with_section(HEAD, "one", "make one", "1").unwrap();
        let cut = whole.replace("<!-- one end -->", "");
        let error = with_section(&cut, "one", "make one", "1").unwrap_err();
        assert_eq!(error, "section one begins 1 times and ends 0 times");
        let twice = format!("{whole}{whole}");
        assert!(with_section(&twice, "one", "make one", "1").is_err());
        let turned = "<!-- one end -->\n<!-- one begin: made by x -->\n";
        let error = with_section(turned, "one", "make one", "1").unwrap_err();
        assert_eq!(error, "section one ends before it begins");
        for (name, command, body) in [
            ("", "make", "1"),
            ("a b", "make", "1"),
            ("one", "make --> x", "1"),
            ("one", "make\nx", "1"),
            ("one", "make", "<!-- one end -->"),
        ] {
            assert!(
                with_section(HEAD, name, command, body).is_err(),
                "{name:?} {command:?}"
            );
        }
    }

    #[test]
    fn files_are_made_replaced_and_named_in_errors() {
        let folder = Folder::new("files");
        let file = folder.0.join("results.md");
        let one = |body| Section {
            body,
            ..section("one")
        };
        write_section(&file, &one("1")).unwrap();
        write_section(&file, &one("2")).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("\n2\n") && !text.contains("\n1\n"), "{text}");
        assert!(
            text.contains(" in virtual time: `make one`.\n\n2"),
            "{text}"
        );
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "no chart");
        fs::write(&file, "<!-- one end -->").unwrap();
        let error = write_section(&file, &one("3")).unwrap_err().to_string();
        assert!(error.contains("results.md: section one"), "{error}");
        let nowhere = folder.0.join("none").join("results.md");
        let error = write_section(&nowhere, &one("3")).unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
    }

    #[test]
    fn a_chart_stands_beside_the_file_and_is_shown_once() {
        let folder = Folder::new("charts");
        let file = folder.0.join("results.md");
        let body = "| link | strategy | age | shown % |\n|---|---|---|---|\n| SPIKE | weir | 0.45 (0.40–0.50) | 68 |\n";
        let lab = Section {
            body,
            ..section("live-lab")
        };
        let shown = "](results-live-lab.svg)";
        write_section(&file, &lab).unwrap();
        write_section(&file, &lab).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.matches(shown).count(), 1, "{text}");
        let chart = fs::read_to_string(folder.0.join("results-live-lab.svg")).unwrap();
        assert!(chart.contains("age 0.45 s, 68 % shown"), "{chart}");
        assert!(chart.contains("Measured on 2"), "{chart}");
        // A summary before the section shows it already.
        fs::write(&file, format!("![The lab{shown}\n{text}")).unwrap();
        write_section(&file, &lab).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.matches(shown).count(), 1, "{text}");
        assert!(text.starts_with("![The lab"), "{text}");
    }

    fn section(name: &str) -> Section<'_> {
        Section {
            name,
            heading: "One",
            place: "in virtual time",
            command: "make one",
            body: "",
        }
    }

    /// A folder of one test; deleted when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("weir-results-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }
}
