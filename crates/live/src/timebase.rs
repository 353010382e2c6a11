//! The clock that origin and player share.

use std::time::{Duration, Instant};

/// Maps the host's clock to a clock that origin and player share.
#[derive(Clone, Copy, Debug)]
pub struct Timebase {
    /// An instant of the host's clock.
    pub at: Instant,
    /// The microseconds of the shared clock at that instant.
    pub us: i64,
}

impl Timebase {
    /// Returns the microseconds of the shared clock at `now`.
    pub fn microseconds(&self, now: Instant) -> i64 {
        let after = now.saturating_duration_since(self.at).as_micros();
        let before = self.at.saturating_duration_since(now).as_micros();
        let offset = i64::try_from(after).unwrap_or(i64::MAX / 4)
            - i64::try_from(before).unwrap_or(i64::MAX / 4);
        self.us.saturating_add(offset)
    }

    /// Returns the instant at which the shared clock reads `us`.
    pub fn instant(&self, us: i64) -> Instant {
        let offset = Duration::from_micros((us - self.us).unsigned_abs());
        if us >= self.us {
            self.at + offset
        } else {
            self.at.checked_sub(offset).unwrap_or(self.at)
        }
    }
}
