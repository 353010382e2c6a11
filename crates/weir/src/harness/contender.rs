//! Contenders of a comparison: programs that are started, measured and ended, as a TOML file describes them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;

/// A program that is compared with others: a relay or an HTTP/3 server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) name: String,
    /// Program and arguments, with placeholders such as `{cert}`.
    pub(crate) start: Vec<String>,
    /// Core that it runs on; wherever the system wants if none is given.
    pub(crate) core: Option<usize>,
    /// Program and arguments that print its version; empty if there are none.
    pub(crate) version: Vec<String>,
    /// Its version where no program prints it.
    pub(crate) version_text: Option<String>,
    /// Its certificate chain and private key, PEM; those of the comparison if it has none of its own.
    pub(crate) certificate: Option<[PathBuf; 2]>,
}

/// A table of a comparison's file that describes a contender.
pub(crate) trait Entry {
    /// The name of the table.
    const KIND: &'static str;

    fn contender(&self) -> Contender;
}

/// Reads the TOML file of a comparison.
///
/// # Errors
/// It cannot be read, or is no such file; the error says where.
pub(crate) fn read<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let name = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("{name}: cannot be read"))?;
    toml::from_str(&text).with_context(|| name.to_string())
}

/// Refuses too many contenders or none, two of one name, and those without a program.
pub(crate) fn check<E: Entry>(entries: &[E]) -> anyhow::Result<()> {
    let kind = E::KIND;
    if entries.is_empty() || entries.len() > CONTENDERS_MAX {
        bail!("{kind}: expected 1 to {CONTENDERS_MAX} of them");
    }
    let mut names = Vec::new();
    for contender in entries.iter().map(Entry::contender) {
        let name = &contender.name;
        if names.contains(name) {
            bail!("{kind} {name:?} stands twice");
        }
        if contender.start.is_empty() {
            bail!("{kind} {name:?}: start: expected a program and its arguments");
        }
        names.push(contender.name);
    }
    Ok(())
}

/// Keeps the contenders that `--only` names; all if it names none.
pub(crate) fn keep_only<E: Entry>(
    entries: &mut Vec<E>,
    names: &[String],
    file: &Path,
) -> anyhow::Result<()> {
    for name in names {
        let is_named = |entry: &E| entry.contender().name == *name;
        if !entries.iter().any(is_named) {
            let (kind, file) = (E::KIND, file.display());
            bail!("--only: there is no {kind} {name:?} in {file}");
        }
    }
    if !names.is_empty() {
        entries.retain(|entry| names.contains(&entry.contender().name));
    }
    Ok(())
}

/// The first of `flags` that stands in a file's `arguments`, and what there is instead of it.
pub(crate) fn refused_flag<'a>(
    arguments: &[String],
    flags: &[(&'a str, &'a str)],
) -> Option<(&'a str, &'a str)> {
    let mut given = arguments
        .iter()
        .map(|word| word.split('=').next().unwrap_or_default());
    given.find_map(|given| flags.iter().find(|(flag, _)| *flag == given).copied())
}

/// More than a table is read for.
const CONTENDERS_MAX: usize = 32;
