//! A case: a requirement of the draft, and the script that tests it.

use std::time::Duration;

use crate::{
    edition::{Edition, Sections},
    script::{Script, Space},
};

/// One case of the table.
pub struct Case {
    /// Its name, such as `goaway.repeated`. The part before the first point is its group.
    pub name: String,
    /// The section of the draft in the edition of the table, such as `10.4`; empty for cases of robustness.
    pub section: &'static str,
    /// What the relay has to do.
    pub requirement: String,
    /// How strictly the draft requires it.
    pub level: Level,
    /// What kind of case it is.
    pub kind: Kind,
    /// The transports that it concerns.
    pub on: On,
    sections: Sections,
    pub(crate) script: Box<dyn Fn(&mut Script) + Send>,
}

/// How strictly the draft requires what a case tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The draft says MUST of the relay, or the case is one of robustness.
    Must,
    /// The draft says SHOULD of the relay.
    Should,
    /// The draft forbids something to the sender, or describes it, and does not say what the receiver has to do.
    Implied,
}

/// The kinds of case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A rule of the draft.
    Conformance,
    /// The relay survives what it is sent, and serves others.
    Robustness,
    /// Many hostile messages.
    Volume,
}

/// The transports that a case concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Raw QUIC and WebTransport.
    Both,
    /// Raw QUIC.
    Quic,
    /// WebTransport.
    WebTransport,
}

impl On {
    /// Whether it includes WebTransport (true) or raw QUIC (false).
    pub fn includes(self, web_transport: bool) -> bool {
        match self {
            Self::Both => true,
            Self::Quic => !web_transport,
            Self::WebTransport => web_transport,
        }
    }
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The relay did what it has to do.
    Passed,
    /// The relay did not.
    Failed {
        /// Whether the case failed before its requirement could be tested, because the relay did not do something else.
        is_unreached: bool,
        /// What was expected.
        expected: String,
        /// What happened instead.
        found: String,
    },
    /// The case does not concern this relay or transport, for this reason.
    Skipped(String),
}

/// A case that was run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The result.
    pub verdict: Verdict,
    /// From the start of the probe to the start of the case.
    pub began: Duration,
    /// How long the case took.
    pub took: Duration,
    /// Messages and datagrams that the case sent.
    pub messages: u64,
}

impl Case {
    /// Returns a case of a rule that the draft states with MUST.
    pub(crate) fn must(
        name: impl Into<String>,
        sections: Sections,
        requirement: impl Into<String>,
        script: impl Fn(&mut Script) + Send + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            section: "",
            sections,
            requirement: requirement.into(),
            level: Level::Must,
            kind: Kind::Conformance,
            on: On::Both,
            script: Box::new(script),
        }
    }

    /// Returns the case at another level.
    #[must_use]
    pub(crate) fn level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Returns the case with another requirement.
    #[must_use]
    pub(crate) fn requiring(self, requirement: String) -> Self {
        Self {
            requirement,
            ..self
        }
    }

    /// Returns the case of another kind.
    #[must_use]
    pub(crate) fn kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// Returns the case for one transport only.
    #[must_use]
    pub(crate) fn on(self, on: On) -> Self {
        Self { on, ..self }
    }

    /// Returns the case in an edition; `None` if the edition does not have its rule.
    pub(crate) fn in_edition(self, edition: Edition) -> Option<Self> {
        let section = self.sections.of(edition)?;
        Some(Self { section, ..self })
    }

    /// Returns its script.
    pub(crate) fn script(&self, space: &Space) -> Script {
        let mut script = Script::new(space, &self.name);
        (self.script)(&mut script);
        script
    }
}
