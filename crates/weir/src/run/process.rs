//! A process seen from outside, through `/proc`: what it costs, whoever wrote it.

use std::{fs, io, time::Duration};

/// What a process has used so far and holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// CPU time of all its threads, user and system. To the nanosecond for threads that live, to the hundredth of
    /// a second for those that ended.
    pub(crate) cpu: Duration,
    /// Memory that is resident now.
    pub(crate) resident_bytes: u64,
    /// Most memory that was ever resident.
    pub(crate) resident_peak_bytes: u64,
    /// Context switches because a thread had to wait.
    pub(crate) switches_voluntary: u64,
    /// Context switches because another thread wanted the core.
    pub(crate) switches_involuntary: u64,
    /// Threads now.
    pub(crate) threads: u64,
}

/// Looks at a process.
///
/// # Errors
/// The process is gone, or `/proc` is not there.
pub(crate) fn usage(pid: u32) -> io::Result<Usage> {
    let mut usage = Usage::default();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = thread?.path();
        // A thread may end between the listing and the look.
        let Ok(schedule) = fs::read_to_string(path.join("schedstat")) else {
            continue;
        };
        let nanos = schedule
            .split(' ')
            .next()
            .and_then(|field| field.parse().ok());
        usage.cpu += Duration::from_nanos(nanos.unwrap_or(0));
        usage.threads += 1;
        let Ok(status) = fs::read_to_string(path.join("status")) else {
            continue;
        };
        usage.switches_voluntary += field(&status, "voluntary_ctxt_switches:");
        usage.switches_involuntary += field(&status, "nonvoluntary_ctxt_switches:");
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    usage.resident_bytes = field(&status, "VmRSS:") * KILOBYTE;
    usage.resident_peak_bytes = field(&status, "VmHWM:") * KILOBYTE;
    let ticks = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    usage.cpu = usage.cpu.max(ticks_of(&ticks).unwrap_or_default());
    Ok(usage)
}

/// User and system time of all threads, ended ones included, from a line of `/proc/PID/stat`.
fn ticks_of(line: &str) -> Option<Duration> {
    // The name, in parentheses, may hold anything.
    let (_, after) = line.rsplit_once(") ")?;
    let mut fields = after.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis(
        (user + system) * 1000 / TICKS_PER_SECOND,
    ))
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// `USER_HZ`, the same on all Linux machines that weir runs on.
const TICKS_PER_SECOND: u64 = 100;
/// Unit of sizes in `/proc/PID/status`.
const KILOBYTE: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_itself() {
        let usage = usage(std::process::id()).unwrap();
        assert!(usage.cpu > Duration::ZERO);
        assert!(usage.resident_bytes > 100_000);
        assert!(usage.resident_peak_bytes >= usage.resident_bytes);
        assert!(usage.threads >= 1);
    }

    #[test]
    fn reads_ticks_behind_an_odd_name() {
        let line = "42 (a ) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1";
        assert_eq!(ticks_of(line), Some(Duration::from_secs(2)));
        assert_eq!(ticks_of("nonsense"), None);
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        assert!(usage(u32::MAX).is_err());
    }
}
