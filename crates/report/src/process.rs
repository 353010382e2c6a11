//! What processes cost, as plain data.

use std::time::Duration;

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

/// Load of a process that used `cpu` in `elapsed`; 100 is one core.
pub fn percent(cpu: Duration, elapsed: Duration) -> f64 {
    if elapsed.is_zero() {
        0.0
    } else {
        100.0 * cpu.as_secs_f64() / elapsed.as_secs_f64()
    }
}
