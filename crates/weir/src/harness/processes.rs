//! Observation of all processes of a server.

use std::{collections::BTreeMap, fs, time::Duration};

use weir_report::process::Usage;

use super::{machine, process};

/// The processes of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processes {
    pub(crate) pids: Vec<u32>,
}

/// The usage of a server's processes up to a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// Usage by process ID; that of an ended process stays.
    seen: BTreeMap<u32, Seen>,
    /// Processes that have ended.
    ended: Vec<u32>,
}

/// The usage of a process.
#[derive(Clone, Debug, Default)]
struct Seen {
    usage: Usage,
    /// CPU time of each thread, by thread ID.
    threads: BTreeMap<u32, Duration>,
}

impl Processes {
    /// Returns all processes whose program is called `name`.
    pub(crate) fn by_name(name: &str) -> Self {
        let found = process::all(|pid| process::is_called(pid, name));
        Self {
            pids: found.unwrap_or_default(),
        }
    }

    /// Returns all processes of the group that `pid` leads.
    pub(crate) fn of_group(pid: u32) -> Self {
        let found = process::all(|one| process::group_of(one) == Some(pid));
        Self {
            pids: found.unwrap_or_default(),
        }
    }

    /// Samples all processes; usage of ended ones is taken from `before`.
    pub(crate) fn sample(&self, before: &Sample) -> Sample {
        let mut sample = before.clone();
        sample.ended.clear();
        for pid in &self.pids {
            if let Ok(usage) = process::usage(*pid) {
                let seen = sample.seen.entry(*pid).or_default();
                seen.update(usage, process::threads(*pid));
            }
            if process::has_ended(*pid) {
                sample.ended.push(*pid);
            }
        }
        sample
    }

    /// Returns which processes had ended at `sample`, in words; `None` if all ran.
    pub(crate) fn died(&self, sample: &Sample) -> Option<String> {
        let ended = &sample.ended;
        if ended.is_empty() {
            return None;
        }
        if ended.len() < self.pids.len() {
            let of = self.pids.len();
            return Some(format!(
                "Of the server's {of} processes {ended:?} ended during the run"
            ));
        }
        Some(match ended.len() {
            1 => "The server's process ended during the run".to_owned(),
            _ => "The server's processes ended during the run".to_owned(),
        })
    }

    /// Returns the cores that the first process may run on.
    pub(crate) fn cores(&self) -> Vec<u32> {
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

impl Seen {
    /// Updates the usage. A zombie still has its CPU time, but neither memory nor threads, so the larger values stay.
    fn update(&mut self, now: Usage, threads: impl Iterator<Item = (u32, Duration)>) {
        let before = self.usage;
        let most = |pick: fn(&Usage) -> u64| pick(&now).max(pick(&before));
        self.usage = Usage {
            cpu: now.cpu.max(before.cpu),
            resident_peak_bytes: most(|usage| usage.resident_peak_bytes),
            switches_voluntary: most(|usage| usage.switches_voluntary),
            switches_involuntary: most(|usage| usage.switches_involuntary),
            ..now
        };
        self.threads.extend(threads);
    }
}

impl Sample {
    /// Whether no process was observed.
    pub(crate) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Returns the usage of all processes since `earlier`, and their memory.
    pub(crate) fn used_since(&self, earlier: &Self) -> Usage {
        let mut sum = Usage::default();
        for (pid, Seen { usage, .. }) in &self.seen {
            let before = earlier.seen.get(pid).map(|seen| seen.usage);
            let before = before.unwrap_or_default();
            let used = usage.since(&before);
            sum.cpu += used.cpu;
            sum.resident_bytes += used.resident_bytes;
            sum.resident_peak_bytes += used.resident_peak_bytes;
            sum.switches_voluntary += used.switches_voluntary;
            sum.switches_involuntary += used.switches_involuntary;
            sum.threads += used.threads;
        }
        sum
    }

    /// Returns the CPU time of the busiest thread since `earlier`.
    pub(crate) fn busiest_since(&self, earlier: &Self) -> Duration {
        let of = |(pid, seen): (&u32, &Seen)| {
            let before = earlier.seen.get(pid);
            let of = |(number, cpu): (&u32, &Duration)| {
                let before = before.and_then(|seen| seen.threads.get(number));
                cpu.saturating_sub(before.copied().unwrap_or_default())
            };
            seen.threads.iter().map(of).max()
        };
        self.seen.iter().filter_map(of).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn finds_processes_and_sees_what_they_use() {
        let own = Processes {
            pids: vec![std::process::id()],
        };
        let before = own.sample(&Sample::default());
        assert!(!before.is_empty() && !own.cores().is_empty());
        let after = own.sample(&before);
        assert!(after.busiest_since(&before) <= after.used_since(&Sample::default()).cpu);
        assert!(after.used_since(&before).cpu < after.used_since(&Sample::default()).cpu);
        assert_eq!(own.died(&after), None);
        let group = process::group_of(std::process::id()).unwrap();
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
        let sample = gone.sample(&Sample::default());
        assert!(sample.is_empty() && gone.died(&sample).is_some());
    }

    #[test]
    fn what_a_process_used_until_it_ended_is_kept() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let both = Processes {
            pids: vec![std::process::id(), child.id()],
        };
        let first = both.sample(&Sample::default());
        let of_child = |sample: &Sample| sample.seen[&child.id()].usage.cpu;
        let second = loop {
            let second = both.sample(&first);
            if of_child(&second) > of_child(&first) + Duration::from_millis(30) {
                break second;
            }
        };
        assert_eq!(both.died(&second), None);
        let used = second.used_since(&first).cpu;

        // The child becomes a zombie.
        let pid = child.id();
        let of_child = |sample: &Sample| sample.seen[&pid].usage.cpu;
        child.kill().unwrap();
        let third = loop {
            let third = both.sample(&second);
            if !third.ended.is_empty() {
                break third;
            }
        };
        assert!(Path::new(&format!("/proc/{pid}")).exists() && process::has_ended(pid));
        child.wait().unwrap();
        let last = both.sample(&third);
        for sample in [&third, &last] {
            let words = format!("Of the server's 2 processes [{pid}] ended during the run");
            assert_eq!(both.died(sample), Some(words));
            assert!(of_child(sample) >= of_child(&second));
            assert!(sample.used_since(&first).cpu >= used);
        }
        let alone = Processes { pids: vec![pid] };
        let words = "The server's process ended during the run".to_owned();
        assert_eq!(alone.died(&alone.sample(&last)), Some(words));
    }
}
