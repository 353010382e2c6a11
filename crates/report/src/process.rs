//! What processes cost, as plain data.

use std::time::Duration;

use crate::statistics::float;

/// What a process has used so far and holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all its threads, user and system. To the nanosecond for threads that live, to the hundredth of
    /// a second for those that ended.
    pub cpu: Duration,
    /// Memory that is resident now.
    pub resident_bytes: u64,
    /// Most memory that was ever resident.
    pub resident_peak_bytes: u64,
    /// Context switches because a thread had to wait.
    pub switches_voluntary: u64,
    /// Context switches because another thread wanted the core.
    pub switches_involuntary: u64,
    /// Threads now.
    pub threads: u64,
}

impl Usage {
    /// Returns what was used since `earlier`; memory and threads stay as they are in `self`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let more = |pick: fn(&Self) -> u64| pick(self).saturating_sub(pick(earlier));
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            switches_voluntary: more(|usage| usage.switches_voluntary),
            switches_involuntary: more(|usage| usage.switches_involuntary),
            ..*self
        }
    }
}

/// CPU time for each of `count`, in microseconds; none if `count` is 0.
pub(crate) fn microseconds_each(cpu: Duration, count: u64) -> Option<f64> {
    (count > 0).then(|| cpu.as_secs_f64() * 1e6 / float(count))
}

/// Load of a process that used `cpu` in `elapsed`; 100 is one core.
pub fn percent(cpu: Duration, elapsed: Duration) -> f64 {
    if elapsed.is_zero() {
        0.0
    } else {
        100.0 * cpu.as_secs_f64() / elapsed.as_secs_f64()
    }
}
