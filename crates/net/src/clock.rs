//! The clocks. Only this module reads a clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Returns the time of the monotonic clock, as all pure crates use it.
#[inline]
pub fn now() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one reading of the monotonic clock"
    )]
    Instant::now()
}

/// Returns the time of day.
pub fn wall() -> SystemTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one reading of the wall clock"
    )]
    SystemTime::now()
}

/// Returns the time since 1970.
pub fn since_epoch() -> Duration {
    wall().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The system's time of day for address-validation tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl weir_quic::TimeSource for SystemClock {
    fn now(&self) -> SystemTime {
        wall()
    }
}

/// Returns the CPU time, user and system, of the calling thread.
pub fn thread_cpu() -> Duration {
    crate::sys::thread_cpu()
}
