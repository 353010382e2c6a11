//! The drafts that the cases are written for, and where a rule stands in each.

use weir_moqt::draft::Draft;

/// A draft of draft-ietf-moq-transport that the cases are written for. The newest is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Edition {
    /// draft-ietf-moq-transport-18.
    Eighteen,
    /// draft-ietf-moq-transport-22.
    #[default]
    TwentyTwo,
}

impl Edition {
    /// All editions, newest first: the order of preference in which they are offered to a relay.
    pub const ALL: [Self; 2] = [Self::TwentyTwo, Self::Eighteen];

    /// Returns the protocol's name in ALPN and in WebTransport [moqt-18 §3.1] [moqt-22 §6.2].
    pub const fn alpn(self) -> &'static str {
        match self {
            Self::Eighteen => "moqt-18",
            Self::TwentyTwo => "moqt-22",
        }
    }

    /// Returns the ALPN names of all editions, newest first.
    pub fn alpns() -> [&'static str; Self::ALL.len()] {
        Self::ALL.map(Self::alpn)
    }

    /// Returns the edition with the ALPN `alpn`.
    pub fn from_alpn(alpn: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.alpn() == alpn)
    }

    /// Returns the draft for the codec that reads the relay's messages.
    pub(crate) fn codec(self) -> Draft {
        Draft::from_alpn(self.alpn().as_bytes()).expect("the codec speaks the drafts of the cases")
    }
}

/// Where a rule stands in each edition: the section, or `None` if the edition does not have the rule. Cases of robustness
/// have the section `""`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sections {
    eighteen: Option<&'static str>,
    twenty_two: Option<&'static str>,
}

impl Sections {
    /// Returns the section of an edition, if the edition has the rule.
    pub(crate) const fn of(self, edition: Edition) -> Option<&'static str> {
        match edition {
            Edition::Eighteen => self.eighteen,
            Edition::TwentyTwo => self.twenty_two,
        }
    }
}

/// Returns the sections of a rule that draft-18 and draft-22 have.
pub(crate) const fn in_both(eighteen: &'static str, twenty_two: &'static str) -> Sections {
    Sections {
        eighteen: Some(eighteen),
        twenty_two: Some(twenty_two),
    }
}

/// Returns the section of a rule of draft-18 that draft-22 does not have.
pub(crate) const fn in_18(section: &'static str) -> Sections {
    Sections {
        eighteen: Some(section),
        twenty_two: None,
    }
}

/// Returns the section of a rule of draft-22 that draft-18 does not have.
pub(crate) const fn in_22(section: &'static str) -> Sections {
    Sections {
        eighteen: None,
        twenty_two: Some(section),
    }
}
