//! Connection IDs from a seeded cryptographic generator.

use std::time::Duration;

use quinn_proto::{ConnectionId, ConnectionIdGenerator};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::Shard;

/// Generates connection IDs of [`LENGTH`] bytes. Equal seeds give equal IDs, so that a simulated run repeats. Without
/// the seed they cannot be linked to each other (RFC 9000 §5.1), except by the mark of the [`Shard`].
pub(crate) struct SeededConnectionIds {
    generator: StdRng,
    shard: Shard,
}

impl SeededConnectionIds {
    pub(crate) fn new(seed: [u8; 32], shard: Shard) -> Self {
        Self {
            generator: StdRng::from_seed(seed),
            shard,
        }
    }
}

impl ConnectionIdGenerator for SeededConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = self.generator.random::<[u8; LENGTH]>();
        id[0] = self.shard.mark(id[0]);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Eight bytes: enough to avoid collisions among a million connections.
const LENGTH: usize = 8;
