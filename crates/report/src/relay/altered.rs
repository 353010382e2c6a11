//! What a relay delivered that is not what was published.

use super::{Delivery, TrackReport};
use crate::form::number;

/// Objects that are not as they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Altered {
    /// With other content, or other extension headers, than were sent.
    pub corrupt: u64,
    /// Under another group or object number.
    pub misplaced: u64,
    /// Of other runs.
    pub foreign: u64,
}

impl Altered {
    /// What one subscriber was delivered, or several.
    pub(super) fn of(delivery: &Delivery) -> Self {
        Self {
            corrupt: delivery.corrupt,
            misplaced: delivery.misplaced,
            foreign: delivery.foreign,
        }
    }

    /// Over all subscriptions, those set apart included, since what they get is not their own doing. None where nobody
    /// subscribes.
    pub fn over(tracks: &[TrackReport]) -> Option<Self> {
        let subscribers = tracks.iter().flat_map(|track| &track.subscribers);
        subscribers
            .map(|one| Self::of(&one.delivery))
            .reduce(|one, other| Self {
                corrupt: one.corrupt + other.corrupt,
                misplaced: one.misplaced + other.misplaced,
                foreign: one.foreign + other.foreign,
            })
    }

    /// Objects that the relay changed or moved; one that is both counts for either. Objects of other runs are not among
    /// them: a relay may rightly have kept them.
    pub fn objects(&self) -> u64 {
        self.corrupt + self.misplaced
    }

    /// In words; none if there is nothing to say.
    pub(super) fn words(&self) -> Option<String> {
        let parts: Vec<String> = [
            (self.corrupt, "with other content than was sent"),
            (self.misplaced, "under another number"),
            (self.foreign, "of other runs"),
        ]
        .into_iter()
        .filter(|(objects, _)| *objects > 0)
        .map(|(objects, how)| format!("{} {how}", number::counted(objects, "object")))
        .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
