//! The relay's phases: starting, serving, draining.

use std::sync::atomic::{AtomicU8, Ordering};

/// A phase of the relay's life. A relay never returns to an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not listening yet.
    Starting,
    /// Listening.
    Serving,
    /// Shutting down: new clients are refused, and connected ones are asked to leave.
    Draining,
}

/// The current phase, shared by threads.
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

    /// Enters the phase `Serving`, unless the relay is draining.
    pub(crate) fn serve(&self) {
        self.phase.fetch_max(1, Ordering::AcqRel);
    }

    /// Enters the phase `Draining`.
    pub(crate) fn drain(&self) {
        self.phase.fetch_max(2, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draining_relay_does_not_serve_again() {
        let lifecycle = Lifecycle::default();
        assert_eq!(lifecycle.phase(), Phase::Starting);
        lifecycle.serve();
        assert_eq!(lifecycle.phase(), Phase::Serving);
        lifecycle.drain();
        lifecycle.serve();
        assert_eq!(lifecycle.phase(), Phase::Draining);
    }
}
