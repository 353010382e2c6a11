//! Delivered objects that differ from what was published.

use super::{Delivery, TrackReport};
use crate::form::number;

/// Counts of received objects that differ from what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Altered {
    /// Objects whose content or extension headers differ from what was sent.
    pub corrupt: u64,
    /// Objects with another group or object number than they were sent with.
    pub misplaced: u64,
    /// Objects of another run, by the run number in their payload.
    pub foreign: u64,
}

impl Altered {
    /// Takes the counts from the delivery to one or several subscribers.
    pub(super) fn of(delivery: &Delivery) -> Self {
        Self {
            corrupt: delivery.corrupt,
            misplaced: delivery.misplaced,
            foreign: delivery.foreign,
        }
    }

    /// Sums the counts over all subscriptions, including those of slow and churning subscribers. None without
    /// subscriptions.
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

    /// Returns the number of objects that the relay altered: corrupt plus misplaced, so an object that is both counts
    /// twice. Objects of other runs are not included, because a relay may rightly cache them.
    pub fn objects(&self) -> u64 {
        self.corrupt + self.misplaced
    }

    /// Returns the counts in words; none if all are 0.
    pub(super) fn words(&self) -> Option<String> {
        let parts: Vec<String> = [
            (self.corrupt, "with other content than was sent"),
            (self.misplaced, "under another number"),
            (
                self.foreign,
                "of other runs (does the publisher use another --seed?)",
            ),
        ]
        .into_iter()
        .filter(|(objects, _)| *objects > 0)
        .map(|(objects, difference)| format!("{} {difference}", number::counted(objects, "object")))
        .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
