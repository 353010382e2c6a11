//! How long a host rests, where that is not settled beforehand.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The length of a host's rests (see [`HostConfig::rest`](crate::HostConfig::rest)), for a role that finds out while it
/// runs what suits it. Copies are the same rest.
#[derive(Clone, Debug)]
pub struct Rest(Arc<AtomicU64>);

impl Rest {
    /// A rest of this length to begin with.
    pub fn new(duration: Duration) -> Self {
        let rest = Self(Arc::default());
        rest.set(duration);
        rest
    }

    /// Makes the next rests this long.
    pub fn set(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanos, Ordering::Relaxed);
    }

    /// How long a rest is now.
    #[inline]
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
