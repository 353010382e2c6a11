//! Contenders of a comparison: relays or servers that a TOML file describes, and that a comparison starts, measures and ends.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;

use crate::file_kind::{Kind, explained};

/// A program to compare with others: a relay or an HTTP/3 server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) name: String,
    /// Program and arguments, with placeholders such as `{cert}`.
    pub(crate) start: Vec<String>,
    /// Core of the program; any if none is given.
    pub(crate) core: Option<usize>,
    /// Program and arguments that print the version; empty if there are none.
    pub(crate) version: Vec<String>,
    /// The version, for a program that does not print it.
    pub(crate) version_text: Option<String>,
    /// Certificate chain and private key, PEM; without them, the contender gets those of the comparison.
    pub(crate) certificate: Option<[PathBuf; 2]>,
}

/// A table of the file that describes a contender.
pub(crate) trait Entry {
    /// The name of the table.
    const KIND: &'static str;
    /// The placeholders that `start` may contain.
    const PLACEHOLDERS: &'static [&'static str];

    /// Returns the contender that the table describes.
    fn contender(&self) -> Contender;

    /// Whether the contender runs already, so that the comparison neither starts nor ends it.
    fn runs_already(&self) -> bool {
        false
    }
}

/// Reads the TOML file of a comparison, which is of this kind.
///
/// # Errors
/// The file cannot be read, or does not have this form; the error names the place.
pub(crate) fn read<T: DeserializeOwned>(file: &Path, kind: Kind) -> anyhow::Result<T> {
    let name = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("{name}: cannot be read"));
    let read = text.and_then(|text| {
        toml::from_str(&text).with_context(|| {
            format!("{name}: not a file of this command (docs/comparison-files.md lists its keys)")
        })
    });
    read.map_err(|error| explained(file, kind, error))
}

/// Refuses too many contenders or none, two of one name, a contender without a program, and unknown placeholders.
pub(crate) fn check<E: Entry>(entries: &[E]) -> anyhow::Result<()> {
    let kind = E::KIND;
    if entries.is_empty() || entries.len() > CONTENDERS_MAX {
        bail!(
            "[[{kind}]]: expected 1 to {CONTENDERS_MAX} tables, not {}",
            entries.len()
        );
    }
    let mut names = Vec::new();
    for entry in entries {
        let contender = entry.contender();
        let name = &contender.name;
        if names.contains(name) {
            bail!("{kind} {name:?} is listed twice; rename or remove one");
        }
        if contender.start.is_empty() && !entry.runs_already() {
            bail!("{kind} {name:?}: start: expected a program and its arguments");
        }
        let mut used = contender.start.iter().flat_map(|word| placeholders(word));
        if let Some(unknown) = used.find(|used| !E::PLACEHOLDERS.contains(used)) {
            let known = E::PLACEHOLDERS.join(", ");
            bail!(
                "{kind} {name:?}: start: there is no placeholder {unknown}; expected one of {known}"
            );
        }
        names.push(contender.name);
    }
    Ok(())
}

/// Keeps the contenders that --only names, or all if it names none.
pub(crate) fn keep_only<E: Entry>(
    entries: &mut Vec<E>,
    names: &[String],
    file: &Path,
) -> anyhow::Result<()> {
    for name in names {
        let is_named = |entry: &E| entry.contender().name == *name;
        if !entries.iter().any(is_named) {
            let (kind, file) = (E::KIND, file.display());
            let known: Vec<String> = entries.iter().map(|one| one.contender().name).collect();
            let known = known.join(", ");
            bail!("--only: there is no {kind} {name:?} in {file}; expected one of {known}");
        }
    }
    if !names.is_empty() {
        entries.retain(|entry| names.contains(&entry.contender().name));
    }
    Ok(())
}

/// Returns the placeholders in a word of `start`: names in braces. `${name}` is a variable of a shell.
fn placeholders(word: &str) -> impl Iterator<Item = &str> {
    word.match_indices('{').filter_map(move |(begin, _)| {
        let end = begin + word[begin..].find('}')?;
        let name = &word[begin + 1..end];
        let is_name = name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let is_variable = word[..begin].ends_with('$');
        (is_name && !name.is_empty() && !is_variable).then_some(&word[begin..=end])
    })
}

/// Refuses an element of `arguments` that holds both a flag and its value.
pub(crate) fn check_arguments(arguments: &[String]) -> anyhow::Result<()> {
    for word in arguments.iter().filter(|word| word.starts_with("--")) {
        if let Some((flag, value)) = word.split_once(char::is_whitespace)
            && !flag.contains('=')
        {
            let value = value.trim();
            bail!(
                "arguments: expected a flag and its value as two elements, {flag:?}, {value:?}, not as one, {word:?}"
            );
        }
    }
    Ok(())
}

/// Returns the first of `flags` in a file's `arguments`, and what to use instead.
pub(crate) fn refused_flag<'a>(
    arguments: &[String],
    flags: &[(&'a str, &'a str)],
) -> Option<(&'a str, &'a str)> {
    let mut given = arguments
        .iter()
        .map(|word| word.split('=').next().unwrap_or_default());
    given.find_map(|given| flags.iter().find(|(flag, _)| *flag == given).copied())
}

/// Most contenders of a comparison: a longer table is not readable.
const CONTENDERS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_names_in_braces() {
        let found = |word| placeholders(word).collect::<Vec<_>>();
        assert_eq!(found("127.0.0.1:{port}"), ["{port}"]);
        assert_eq!(found("{root}/{rot}"), ["{root}", "{rot}"]);
        // A script with a variable, an action of awk, and JSON.
        let script =
            "v=${core} awk '{print $2}' {} '{\"admin\":{\"disabled\":true}}' {folder}/a.json";
        assert_eq!(found(script), ["{folder}"]);
        assert!(found("{port").is_empty());
    }

    #[test]
    fn a_flag_and_its_value_are_two_elements() {
        let check = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            check_arguments(&words).map_err(|error| error.to_string())
        };
        assert_eq!(
            check(&["--rate", "5", "--slo=loss=0, p99<1s", "a b"]),
            Ok(())
        );
        let error = "arguments: expected a flag and its value as two elements, \"--rate\", \"5\", not as one, \"--rate 5\"";
        assert_eq!(check(&["--no-gro", "--rate 5"]), Err(error.to_owned()));
    }
}
