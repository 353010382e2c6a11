//! The clock that origin and player share.

use std::time::{Duration, Instant};

/// Maps the host's clock to the microseconds of a clock that origin and player share.
#[derive(Clone, Copy, Debug)]
pub struct Timebase {
    /// A time of the host's clock.
    pub at: Instant,
    /// What the shared clock says at that time, in microseconds.
    pub us: i64,
}

impl Timebase {
    /// What the shared clock says at `now`, in microseconds.
    pub fn microseconds(&self, now: Instant) -> i64 {
        let after = now.saturating_duration_since(self.at).as_micros();
        let before = self.at.saturating_duration_since(now).as_micros();
        let offset = i64::try_from(after).unwrap_or(i64::MAX / 4)
            - i64::try_from(before).unwrap_or(i64::MAX / 4);
        self.us.saturating_add(offset)
    }

    /// The time at which the shared clock says `us`.
    pub fn instant(&self, us: i64) -> Instant {
        let offset = Duration::from_micros((us - self.us).unsigned_abs());
        if us >= self.us {
            self.at + offset
        } else {
            self.at.checked_sub(offset).unwrap_or(self.at)
        }
    }
}
