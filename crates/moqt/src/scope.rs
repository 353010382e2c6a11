//! In which messages of which requests a parameter may stand.

use crate::kinds::RequestKind;

/// The moment of a request at which parameters are sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The request itself.
    Request,
    /// The message that grants the request.
    Answer,
    /// A `REQUEST_UPDATE` of it.
    Update,
    /// The `REQUEST_OK` that grants an update.
    UpdateAnswer,
}

/// A set of requests and moments in which a parameter may stand.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scopes(u32);

impl Scopes {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn of(kind: RequestKind, step: Step) -> Self {
        Self(1 << (kind as u32 * 4 + step as u32))
    }

    /// The scope of `step` in all requests of `kinds`.
    pub(crate) const fn each(step: Step, kinds: &[RequestKind]) -> Self {
        let mut all = Self::NONE;
        let mut index = 0;
        while index < kinds.len() {
            all = all.or(Self::of(kinds[index], step));
            index += 1;
        }
        all
    }

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
