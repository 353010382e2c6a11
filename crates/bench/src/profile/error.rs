//! What is wrong with a profile, where, and what was expected instead.

use std::fmt::{self, Display};

use thiserror::Error;

use super::key::Key;
use crate::interpolate::TemplateError;
use crate::limits::{LINE_BYTES_MAX, PROFILE_BYTES_MAX, SECTION_NAME_BYTES_MAX, TRACKS_MAX};

/// The first thing wrong with a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The file as the user named it.
    pub file: String,
    /// The line, from one; `None` if the file as a whole is at fault.
    pub line: Option<usize>,
    /// The key as it is written there.
    pub key: Option<String>,
    /// What is wrong.
    pub problem: Problem,
}

/// What can be wrong with a profile.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Problem {
    /// More bytes than any profile needs.
    #[error("the file is larger than {PROFILE_BYTES_MAX} bytes")]
    FileTooLarge,
    /// No section at all.
    #[error("no track: expected at least one [section]")]
    NoTrack,
    /// More sections than allowed.
    #[error("more than {TRACKS_MAX} tracks")]
    TooManyTracks,
    /// A line that is too long.
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// Bytes that are no text.
    #[error("the line is not UTF-8 text")]
    NotText,
    /// A line that is none of the known forms.
    #[error("expected `[section]`, `key = value` or `; comment`, found {}", shown(.0))]
    NotALine(String),
    /// A section line without a proper name.
    #[error("expected a section name of 1 to {SECTION_NAME_BYTES_MAX} bytes in brackets")]
    SectionName,
    /// A section that stands twice.
    #[error("the section [{section}] stands on line {first_line} already")]
    DuplicateSection {
        /// The section's name.
        section: String,
        /// Where it stands first.
        first_line: usize,
    },
    /// A key above the first section.
    #[error("a key before the first [section]")]
    OutsideSection,
    /// A key that nobody knows.
    #[error("unknown key; expected one of {}", Key::names(*.of_audience))]
    UnknownKey {
        /// Whether it stands in the section of the audience.
        of_audience: bool,
    },
    /// A key that stands twice, perhaps under two names.
    #[error("the key stands on line {first_line} already, as {first_name}")]
    DuplicateKey {
        /// Where it stands first.
        first_line: usize,
        /// What it is called there.
        first_name: String,
    },
    /// A section without a key that it needs.
    #[error("missing from the section [{section}]")]
    MissingKey {
        /// The section's name.
        section: String,
    },
    /// A value out of range or of another kind.
    #[error("expected {expected}, found {}", shown(.found))]
    Value {
        /// What would have been right.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// A template that cannot be filled in.
    #[error("{0}")]
    Template(TemplateError),
    /// Two keys that contradict each other.
    #[error("contradicts {other_name} on line {other_line}: {reason}")]
    Conflict {
        /// The other key.
        other_name: String,
        /// Where it stands.
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
    /// A fault of the whole file, whose name is not known yet.
    pub(super) fn of_file(problem: Problem) -> Self {
        Self {
            file: String::new(),
            line: None,
            key: None,
            problem,
        }
    }

    /// A fault of a whole line.
    pub(super) fn at(line: usize, problem: Problem) -> Self {
        let line = Some(line);
        Self {
            line,
            ..Self::of_file(problem)
        }
    }

    /// A fault of a key, or of its value.
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

/// What stands in the file, in quotes, cut to what fits an error message.
fn shown(text: &str) -> String {
    if text.is_empty() {
        "nothing".to_owned()
    } else {
        format!("`{}`", excerpt(text))
    }
}

/// The head of `text`, harmless to a terminal.
fn excerpt(text: &str) -> String {
    let head: String = text.chars().take(EXCERPT_CHARS_MAX).collect();
    let more = if head.len() < text.len() { "…" } else { "" };
    format!("{}{more}", head.escape_debug())
}

const EXCERPT_CHARS_MAX: usize = 48;
