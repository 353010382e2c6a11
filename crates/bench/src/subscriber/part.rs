//! Parts of a run's subscribers, each for a role on a thread of its own.

use std::sync::Arc;

use super::SubscriberConfig;

/// One of several parts of a run's subscribers. Parts take subscribers in turn: part `number` of `of` has subscribers
/// `number`, `number + of`, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The part's number, from zero.
    pub number: usize,
    /// The number of parts, at least one.
    pub of: usize,
    /// The subscribers of all parts.
    pub all: usize,
}

impl Part {
    /// Returns the part that has all `subscribers`.
    pub fn whole(subscribers: usize) -> Self {
        Self {
            number: 0,
            of: 1,
            all: subscribers,
        }
    }

    /// Returns the number in the run of the subscriber with number `local` in this part.
    pub(crate) fn number_in_run(&self, local: usize) -> usize {
        local * self.of + self.number
    }
}

impl SubscriberConfig {
    /// Divides the subscribers into `parts` parts, at least one. The parts join at the rate of the whole, as they would
    /// in one role.
    pub fn split(self, parts: usize) -> Vec<Self> {
        let of = parts.max(1);
        let all = self.subscribers.len();
        let part = |number: usize| Self {
            subscribers: self
                .subscribers
                .iter()
                .skip(number)
                .step_by(of)
                .map(Arc::clone)
                .collect(),
            part: Part { number, of, all },
            // Each part announces its own subscribers.
            announce_as: self
                .announce_as
                .map(|process| process.wrapping_add(number as u64)),
            ..self.clone()
        };
        (0..of).map(part).collect()
    }
}
