//! The machine that a run was made on, and its cores.

use std::fs;

/// What the report says about the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) cpu_model: String,
    /// Cores that this process may run on.
    pub(crate) cores: Vec<usize>,
    /// All cores, on which other processes may run.
    pub(crate) online: Vec<usize>,
}

impl Machine {
    /// This machine.
    pub(crate) fn this() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let cpu_model = model.map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':']));
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let cores = allowed_cores(&status);
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let mut online = parse_list(online.trim());
        if online.is_empty() {
            online.clone_from(&cores);
        }
        Self {
            kernel: kernel.trim().to_owned(),
            cpu_model: cpu_model.to_owned(),
            cores,
            online,
        }
    }
}

/// Cores that a process may run on, from its `/proc/PID/status`.
pub(crate) fn allowed_cores(status: &str) -> Vec<usize> {
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map(|list| parse_list(list.trim())).unwrap_or_default()
}

/// Cores from the kernel's form, such as `0-3,8`.
fn parse_list(list: &str) -> Vec<usize> {
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_lists() {
        assert_eq!(parse_list("0-1"), [0, 1]);
        assert_eq!(parse_list("0,2-4,9"), [0, 2, 3, 4, 9]);
        assert!(parse_list("").is_empty());
    }

    #[test]
    fn this_machine_has_cores() {
        let machine = Machine::this();
        assert!(!machine.cores.is_empty());
        let is_online = |core: &usize| machine.online.contains(core);
        assert!(machine.cores.iter().all(is_online), "{machine:?}");
    }
}
