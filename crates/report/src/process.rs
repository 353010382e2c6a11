//! CPU time, memory and context switches of processes, as plain data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::statistics::float;

/// The resources that a process has used so far, and holds at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// CPU time of all threads, user and system. Exact to a nanosecond for running threads, to a hundredth of a second
    /// for threads that have ended.
    pub cpu: Duration,
    /// Resident memory.
    pub resident_bytes: u64,
    /// Largest resident memory since the start of the process.
    pub resident_peak_bytes: u64,
    /// Context switches because a thread had to wait.
    pub switches_voluntary: u64,
    /// Context switches because another thread took the core.
    pub switches_involuntary: u64,
    /// Number of threads.
    pub threads: u64,
}

impl Usage {
    /// Returns the usage of this process and another one together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let sum = |pick: fn(&Self) -> u64| pick(self).saturating_add(pick(other));
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            resident_bytes: sum(|usage| usage.resident_bytes),
            resident_peak_bytes: sum(|usage| usage.resident_peak_bytes),
            switches_voluntary: sum(|usage| usage.switches_voluntary),
            switches_involuntary: sum(|usage| usage.switches_involuntary),
            threads: sum(|usage| usage.threads),
        }
    }

    /// Returns the usage since `earlier`. Memory and threads are those of `self`.
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

/// Returns `cpu` divided by `count`, in microseconds; none if `count` is 0.
pub(crate) fn microseconds_each(cpu: Duration, count: u64) -> Option<f64> {
    (count > 0).then(|| cpu.as_secs_f64() * 1e6 / float(count))
}

/// Returns the CPU load of a process that used `cpu` in `elapsed`, in per cent; 100 is one core.
pub fn percent(cpu: Duration, elapsed: Duration) -> f64 {
    if elapsed.is_zero() {
        0.0
    } else {
        100.0 * cpu.as_secs_f64() / elapsed.as_secs_f64()
    }
}
