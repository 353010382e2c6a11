//! `docs/results.md` and its like: a text for people in which each section is made by one command.
//!
//! A section stands between two comments that name it and its command, so that whoever runs the command again replaces
//! that section and nothing else. What stands outside of all sections is left as it is.

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
};

/// Writes `body` as the section `name` into the Markdown file at `path`: in place of the one that is there, or at the
/// end. `command` is what the reader has to run to make it again, relative to the project's root.
///
/// The file is replaced as a whole or not at all. An error names the file; a section that begins and does not end, or
/// does so twice, is one, and so are a name and a command that would break the comments.
pub(crate) fn write_section(path: &Path, name: &str, command: &str, body: &str) -> io::Result<()> {
    let at_file = |kind: ErrorKind, problem: &str| {
        io::Error::new(kind, format!("{}: {problem}", path.display()))
    };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(at_file(error.kind(), &error.to_string())),
    };
    let text = with_section(&text, name, command, body)
        .map_err(|problem| at_file(ErrorKind::InvalidData, &problem))?;
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, path))
        .map_err(|error| at_file(error.kind(), &error.to_string()))
}

/// `text` with that section in it, or what is wrong.
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

/// What stands before and after the section `name`, if there is one.
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
        // The same once more changes nothing.
        let once_more = with_section(&again, "one", "make one FAST=1", "longer\n\n1").unwrap();
        assert_eq!(once_more, again);
        // A name that begins with another one's is another section.
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
        let folder = std::env::temp_dir().join(format!("weir-results-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("results.md");
        write_section(&file, "one", "make one", "1").unwrap();
        write_section(&file, "one", "make one", "2").unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("\n2\n") && !text.contains("\n1\n"), "{text}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::write(&file, "<!-- one end -->").unwrap();
        let error = write_section(&file, "one", "make one", "3").unwrap_err();
        assert!(
            error.to_string().contains("results.md: section one"),
            "{error}"
        );
        let nowhere = folder.join("none").join("results.md");
        let error = write_section(&nowhere, "one", "make one", "3").unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
