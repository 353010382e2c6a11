//! Where the relay stands between its start and its end.

use std::sync::atomic::{AtomicU8, Ordering};

/// Where the relay stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not listening yet.
    Starting,
    /// Listening.
    Serving,
    /// Asked to end: new clients should go elsewhere, those that are here take leave.
    Draining,
}

/// The phase, as several threads see it.
#[derive(Debug, Default)]
pub(crate) struct Lifecycle {
    phase: AtomicU8,
}

impl Lifecycle {
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            _ => Phase::Draining,
        }
    }

    /// The relay listens. One that is to end already does not come back.
    pub(crate) fn serve(&self) {
        self.phase.fetch_max(1, Ordering::AcqRel);
    }

    /// The relay is to end.
    pub(crate) fn drain(&self) {
        self.phase.fetch_max(2, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_that_is_to_end_does_not_come_back() {
        let lifecycle = Lifecycle::default();
        assert_eq!(lifecycle.phase(), Phase::Starting);
        lifecycle.serve();
        assert_eq!(lifecycle.phase(), Phase::Serving);
        lifecycle.drain();
        lifecycle.serve();
        assert_eq!(lifecycle.phase(), Phase::Draining);
    }
}
