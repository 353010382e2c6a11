//! The server's processes seen from outside, and what the kernel says of lost packets.

use std::{collections::BTreeMap, fs, time::Duration};

use crate::run::{
    machine,
    process::{self, Usage},
};

/// The processes that are watched: those of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processes {
    pub(crate) pids: Vec<u32>,
}

/// What they have used up to a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// All together; none if no process is there any more.
    pub(super) usage: Option<Usage>,
    /// CPU time of each thread, by its number.
    threads: BTreeMap<u32, Duration>,
}

impl Processes {
    /// All processes whose program is called `name`.
    pub(crate) fn by_name(name: &str) -> Self {
        let found = process::all(|pid| process::is_called(pid, name));
        Self {
            pids: found.unwrap_or_default(),
        }
    }

    /// All processes of the group of `pid`, which leads it.
    pub(super) fn of_group(pid: u32) -> Self {
        let found = process::all(|one| group_of(one) == Some(pid));
        Self {
            pids: found.unwrap_or_default(),
        }
    }

    /// Looks at all of them.
    pub(super) fn sample(&self) -> Sample {
        let mut sample = Sample::default();
        for pid in &self.pids {
            let Ok(usage) = process::usage(*pid) else {
                continue;
            };
            let sum = sample.usage.get_or_insert_with(Usage::default);
            sum.cpu += usage.cpu;
            sum.resident_bytes += usage.resident_bytes;
            sum.resident_peak_bytes += usage.resident_peak_bytes;
            sum.switches_voluntary += usage.switches_voluntary;
            sum.switches_involuntary += usage.switches_involuntary;
            sum.threads += usage.threads;
            sample.threads.extend(threads(*pid));
        }
        sample
    }

    /// Cores that the first of them may run on.
    pub(super) fn cores(&self) -> Vec<u32> {
        let status = self
            .pids
            .first()
            .and_then(|pid| fs::read_to_string(format!("/proc/{pid}/status")).ok());
        let cores = machine::allowed_cores(&status.unwrap_or_default());
        cores
            .into_iter()
            .filter_map(|core| u32::try_from(core).ok())
            .collect()
    }
}

impl Sample {
    /// The most CPU time that one thread used since `earlier`.
    pub(super) fn busiest_since(&self, earlier: &Self) -> Duration {
        let of = |(number, cpu): (&u32, &Duration)| {
            let before = earlier.threads.get(number).copied().unwrap_or_default();
            cpu.saturating_sub(before)
        };
        self.threads.iter().map(of).max().unwrap_or_default()
    }
}

/// UDP receive-buffer errors of this network namespace so far, both of IPv4 and IPv6.
pub(super) fn receive_buffer_errors() -> Option<u64> {
    let v4 = fs::read_to_string("/proc/net/snmp").ok()?;
    let v6 = fs::read_to_string("/proc/net/snmp6").unwrap_or_default();
    Some(udp_errors(&v4)? + udp6_errors(&v6))
}

/// Largest packet of the loopback interface.
pub(crate) fn loopback_mtu() -> Option<u64> {
    let text = fs::read_to_string("/sys/class/net/lo/mtu").ok()?;
    text.trim().parse().ok()
}

fn udp_errors(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names.split(' ').position(|name| name == "RcvbufErrors")?;
    values.split(' ').nth(place)?.parse().ok()
}

fn udp6_errors(snmp6: &str) -> u64 {
    let mut lines = snmp6.lines();
    let found = lines.find_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
    found.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
}

fn threads(pid: u32) -> impl Iterator<Item = (u32, Duration)> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    entries.into_iter().flatten().flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let schedule = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        let nanos = schedule.split(' ').next()?.parse().ok()?;
        Some((number, Duration::from_nanos(nanos)))
    })
}

fn group_of(pid: u32) -> Option<u32> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let (_, after) = line.rsplit_once(") ")?;
    after.split(' ').nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_counts() {
        let snmp = "Tcp: a b\nTcp: 1 2\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
                    Udp: 10 1 7 10 6 0\nUdpLite: InDatagrams\nUdpLite: 9\n";
        assert_eq!(udp_errors(snmp), Some(6));
        assert_eq!(udp_errors("Tcp: a\nTcp: 1\n"), None);
        let snmp6 = "Udp6InErrors                    3\nUdp6RcvbufErrors                2\n";
        assert_eq!((udp6_errors(snmp6), udp6_errors("")), (2, 0));
        assert!(receive_buffer_errors().is_some());
        assert!(loopback_mtu().is_some());
    }

    #[test]
    fn finds_processes_and_sees_what_they_use() {
        let own = Processes {
            pids: vec![std::process::id()],
        };
        let before = own.sample();
        assert!(before.usage.is_some() && !own.cores().is_empty());
        let after = own.sample();
        assert!(after.busiest_since(&before) <= after.usage.unwrap().cpu);
        let group = group_of(std::process::id()).unwrap();
        assert!(
            !Processes::of_group(group)
                .pids
                .contains(&std::process::id()),
            "itself"
        );
        assert!(Processes::by_name("no-such-program-here").pids.is_empty());
        let gone = Processes {
            pids: vec![u32::MAX],
        };
        assert!(gone.sample().usage.is_none());
    }
}
