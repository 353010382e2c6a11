//! Errors in profiles: what is wrong, where, and what is expected.

use std::fmt::{self, Display};

use thiserror::Error;

use super::key::Key;
use crate::interpolate::TemplateError;
use crate::limits::{LINE_BYTES_MAX, PROFILE_BYTES_MAX, SECTION_NAME_BYTES_MAX, TRACKS_MAX};

/// The first error in a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The name of the file as the user gave it.
    pub file: String,
    /// The line, from one; `None` if the error concerns the whole file.
    pub line: Option<usize>,
    /// The key as written there.
    pub key: Option<String>,
    /// The problem.
    pub problem: Problem,
}

/// The kinds of errors in a profile.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Problem {
    /// A file that is too large.
    #[error("expected a file of at most {PROFILE_BYTES_MAX} bytes")]
    FileTooLarge,
    /// No section.
    #[error("the file has no track: expected at least one [section]")]
    NoTrack,
    /// More sections than allowed.
    #[error("expected at most {TRACKS_MAX} tracks")]
    TooManyTracks,
    /// A line that is too long.
    #[error("expected a line of at most {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// Bytes that are not UTF-8.
    #[error("expected text in UTF-8")]
    NotText,
    /// A line that is neither section, key, comment nor blank.
    #[error("expected `[section]`, `key = value` or `; comment`, found {}", shown(.0))]
    NotALine(String),
    /// An item of a list of settings that is not a setting.
    #[error("expected KEY=VALUE with commas between, found {}", shown(.0))]
    NotAPair(String),
    /// A section without a valid name.
    #[error("expected a section name of 1 to {SECTION_NAME_BYTES_MAX} bytes in brackets")]
    SectionName,
    /// A section that occurs twice.
    #[error("the section [{section}] is on line {first_line} already; rename or remove one")]
    DuplicateSection {
        /// The section's name.
        section: String,
        /// The line where it occurs first.
        first_line: usize,
    },
    /// A key before the first section.
    #[error("expected a [section] before the first key")]
    OutsideSection,
    /// An unknown key.
    #[error("unknown key; expected one of {}", Key::names(*.of_audience))]
    UnknownKey {
        /// Whether it is in the section `[audience]`.
        of_audience: bool,
    },
    /// A key that occurs twice, perhaps under two names.
    #[error("the key is on line {first_line} already, as {first_name}; remove one")]
    DuplicateKey {
        /// The line where it occurs first.
        first_line: usize,
        /// Its name there.
        first_name: String,
    },
    /// A section that lacks a required key.
    #[error("the section [{section}] lacks this key")]
    MissingKey {
        /// The section's name.
        section: String,
    },
    /// A value that is out of range or of the wrong kind.
    #[error("expected {expected}, found {}", shown(.found))]
    Value {
        /// The values that are allowed.
        expected: String,
        /// The value found.
        found: String,
    },
    /// A template that is not valid.
    #[error("{0}")]
    Template(TemplateError),
    /// A value that other settings exclude, or that lacks another one.
    #[error("{0}")]
    Contradiction(&'static str),
    /// Two keys that contradict each other.
    #[error("contradicts {other_name} on line {other_line}: {reason}")]
    Conflict {
        /// The other key.
        other_name: String,
        /// The line of the other key.
        other_line: usize,
        /// How they contradict each other.
        reason: String,
    },
}

impl Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {}", excerpt(key))?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for ProfileError {}

impl ProfileError {
    /// Returns an error of the whole file, whose name is filled in later.
    pub(super) fn of_file(problem: Problem) -> Self {
        Self {
            file: String::new(),
            line: None,
            key: None,
            problem,
        }
    }

    /// Returns an error of a whole line.
    pub(super) fn at(line: usize, problem: Problem) -> Self {
        let line = Some(line);
        Self {
            line,
            ..Self::of_file(problem)
        }
    }

    /// Returns an error of a key or its value.
    pub(super) fn of_key(line: usize, key: &str, problem: Problem) -> Self {
        let key = Some(key.to_owned());
        Self {
            key,
            ..Self::at(line, problem)
        }
    }

    pub(super) fn in_file(self, file: &str) -> Self {
        let file = file.to_owned();
        Self { file, ..self }
    }
}

/// Returns text of the file in quotes, shortened for an error message.
fn shown(text: &str) -> String {
    if text.is_empty() {
        "nothing".to_owned()
    } else {
        format!("`{}`", excerpt(text))
    }
}

/// Returns the beginning of `text`, safe to print on a terminal.
fn excerpt(text: &str) -> String {
    let head: String = text.chars().take(EXCERPT_CHARS_MAX).collect();
    let more = if head.len() < text.len() { "…" } else { "" };
    format!("{}{more}", head.escape_debug())
}

const EXCERPT_CHARS_MAX: usize = 48;
