//! A host's pause after it received something, adjustable by its role.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The length of a host's pauses (see [`HostConfig::receive_pause`](crate::HostConfig::receive_pause)), for a role that
/// adjusts it while it runs. Clones share one length.
#[derive(Clone, Debug)]
pub struct ReceivePause(Arc<AtomicU64>);

impl ReceivePause {
    /// Returns pauses of this initial length.
    pub fn new(duration: Duration) -> Self {
        let pause = Self(Arc::default());
        pause.set(duration);
        pause
    }

    /// Sets the length of the next pauses.
    pub fn set(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanos, Ordering::Relaxed);
    }

    /// Returns the length of the next pause.
    #[inline]
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
