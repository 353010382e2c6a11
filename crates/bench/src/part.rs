//! Parts of a run's clients, each for a role on a thread or a host of its own.

use std::sync::Arc;

use crate::publisher::PublisherConfig;
use crate::subscriber::SubscriberConfig;
use weir_client::target::Target;

/// One of several parts of a run's publishers or subscribers. Clients lie in blocks of equal size, such as the clients of a
/// meeting. Parts take the blocks in turn: part `number` of `of` has blocks `number`, `number + of`, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The part's number, from zero.
    number: usize,
    /// The number of parts, at least one.
    of: usize,
    /// The clients of all parts.
    all: usize,
    /// Clients in a block, at least one.
    block: usize,
}

impl Part {
    /// Returns the part that has all of `clients` clients.
    pub fn whole(clients: usize) -> Self {
        Self::whole_of_blocks(clients, 1)
    }

    /// Returns the part that has all of `clients` clients, of which each `block` stay together.
    pub fn whole_of_blocks(clients: usize, block: usize) -> Self {
        Self {
            number: 0,
            of: 1,
            all: clients,
            block: block.max(1),
        }
    }

    /// Divides the part into `parts` parts, at least one.
    pub fn split(self, parts: usize) -> impl Iterator<Item = Self> {
        let parts = parts.max(1);
        (0..parts).map(move |share| Self {
            number: self.number + share * self.of,
            of: self.of * parts,
            ..self
        })
    }

    /// Returns the part's number, from zero.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the number of clients in all parts together.
    pub fn all(&self) -> usize {
        self.all
    }

    /// Returns the number of clients in a block.
    pub fn block(&self) -> usize {
        self.block
    }

    /// Returns the number of clients in this part.
    pub fn len(&self) -> usize {
        self.pick(0..self.all).count()
    }

    /// Whether this part has no client.
    pub fn is_empty(&self) -> bool {
        self.number * self.block >= self.all
    }

    /// Returns the number in the run of the client with number `local` in this part.
    pub fn number_in_run(&self, local: usize) -> usize {
        let (block, within) = (local / self.block, local % self.block);
        (block * self.of + self.number) * self.block + within
    }

    /// Selects the clients of this part from those of all parts.
    pub fn pick<T>(&self, all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        let Self {
            number, of, block, ..
        } = *self;
        let numbered = all.into_iter().enumerate();
        numbered.filter_map(move |(place, client)| (place / block % of == number).then_some(client))
    }
}

impl PublisherConfig {
    /// Returns the publishers of one part. These must be those of the whole run. Parts connect at the rate of the whole.
    #[must_use]
    pub fn of(&self, part: Part) -> Self {
        Self {
            target: target_of(&self.target, part),
            publishers: part.pick(&self.publishers).cloned().collect(),
            part,
            ..self.clone()
        }
    }
}

impl SubscriberConfig {
    /// Returns the subscribers of one part. These must be those of the whole run. Parts join at the rate of the whole.
    #[must_use]
    pub fn of(&self, part: Part) -> Self {
        Self {
            target: target_of(&self.target, part),
            subscribers: part.pick(&self.subscribers).map(Arc::clone).collect(),
            part,
            // Each part announces its own subscribers.
            announce_as: self
                .announce_as
                .map(|process| process.wrapping_add(part.number as u64)),
            ..self.clone()
        }
    }
}

/// Returns the relay with the tokens that the clients of this part have among all.
fn target_of(target: &Target, part: Part) -> Target {
    let numbers = (0..part.len()).map(|local| part.number_in_run(local));
    Target {
        tokens: target.tokens.of_part(numbers),
        ..target.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers in the run of a part's clients.
    fn numbers(part: Part) -> Vec<usize> {
        let picked: Vec<_> = part.pick(0..part.all()).collect();
        let counted = (0..picked.len()).map(|local| part.number_in_run(local));
        assert!(picked.iter().copied().eq(counted), "{part:?}");
        assert_eq!(
            (part.len(), part.is_empty()),
            (picked.len(), picked.is_empty())
        );
        picked
    }

    #[test]
    fn parts_take_turns_and_leave_nobody_out() {
        let parts: Vec<_> = Part::whole(7).split(3).map(numbers).collect();
        assert_eq!(parts, [&[0, 3, 6][..], &[1, 4], &[2, 5]]);
        assert_eq!(numbers(Part::whole(0)), [0; 0]);
    }

    #[test]
    fn blocks_stay_together() {
        let whole = Part::whole_of_blocks(10, 2);
        let parts: Vec<_> = whole.split(3).map(numbers).collect();
        assert_eq!(parts, [&[0, 1, 6, 7][..], &[2, 3, 8, 9], &[4, 5]]);
    }

    #[test]
    fn a_part_can_be_divided_again() {
        for (clients, block) in [(23, 1), (24, 3), (2, 1)] {
            let whole = Part::whole_of_blocks(clients, block);
            let mut all = Vec::new();
            for (part, threads) in whole.split(3).zip([1, 2, 4]) {
                let mut of_part: Vec<_> = part.split(threads).flat_map(numbers).collect();
                of_part.sort_unstable();
                assert_eq!(of_part, numbers(part));
                all.extend(of_part);
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..clients));
        }
    }
}
