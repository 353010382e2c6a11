//! The only place that reads a clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock, as all pure crates want it.
#[inline]
pub fn now() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one reading of the monotonic clock"
    )]
    Instant::now()
}

/// The time of day.
pub fn wall() -> SystemTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one reading of the wall clock"
    )]
    SystemTime::now()
}

/// Seconds and nanoseconds since 1970.
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

/// CPU time, user and system, that the calling thread has used.
pub fn thread_cpu() -> Duration {
    crate::sys::thread_cpu()
}
