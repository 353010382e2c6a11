//! The machine of a run: kernel, CPU, cores, and stolen time.

use std::{collections::BTreeMap, fs};

use anyhow::bail;

/// The machine, as reports describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) cpu_model: String,
    /// Cores that this process may run on.
    pub(crate) cores: Vec<usize>,
    /// All cores of the machine.
    pub(crate) online: Vec<usize>,
}

impl Machine {
    /// Returns this machine.
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

    /// Processor, number of cores and kernel in words, such as `AMD EPYC, 2 cores, Linux 6.18.44`.
    pub(crate) fn words(&self) -> String {
        let cores = self.cores.len();
        let plural = if cores == 1 { "" } else { "s" };
        format!(
            "{}, {cores} core{plural}, Linux {}",
            self.cpu_model, self.kernel
        )
    }
}

/// Checks that the cores that `place` names, a flag or a key, are among `cores`.
pub(crate) fn check_cores(place: &str, asked: &[usize], cores: &[usize]) -> anyhow::Result<()> {
    let Some(missing) = asked.iter().find(|core| !cores.contains(core)) else {
        return Ok(());
    };
    let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
    bail!(
        "{place}: there is no core {missing} on this machine; expected one of {}",
        cores.join(", ")
    )
}

/// The time that each core has spent up to a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachineTime {
    cores: BTreeMap<u64, Ticks>,
}

/// Time in kernel ticks: all, and the part that the hypervisor gave to other machines (steal).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    all: u64,
    stolen: u64,
}

impl MachineTime {
    /// Returns the current times; `None` if the kernel does not report them.
    pub(crate) fn now() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses `/proc/stat`: a line for all cores, then one for each.
    fn read(text: &str) -> Option<Self> {
        let lines = text.lines().skip(1).map_while(|line| {
            let (number, ticks) = line.strip_prefix("cpu")?.split_once(' ')?;
            Some((number.parse().ok()?, Ticks::read(ticks)?))
        });
        let cores: BTreeMap<u64, Ticks> = lines.collect();
        (!cores.is_empty()).then_some(Self { cores })
    }

    /// Returns the stolen time of the core that lost most, between this moment and `later`, in per cent.
    pub(crate) fn stolen_percent(&self, later: &Self) -> Option<f64> {
        let both = self.cores.iter();
        let both = both.filter_map(|(core, before)| Some((before, later.cores.get(core)?)));
        let most = both.map(|(before, later)| before.stolen_per_mille(*later));
        let most = u32::try_from(most.max()?).ok()?;
        Some(f64::from(most) / 10.0)
    }

    /// Returns the stolen time of `cores` between this moment and `later`, in per cent of their time; `None` if none of them is
    /// known.
    pub(crate) fn stolen_percent_of(&self, cores: &[u32], later: &Self) -> Option<f64> {
        let both = cores
            .iter()
            .map(|core| u64::from(*core))
            .filter_map(|core| {
                let (before, later) = (self.cores.get(&core)?, later.cores.get(&core)?);
                Some(f64::from(u32::try_from(before.stolen_per_mille(*later)).ok()?) / 10.0)
            });
        let percents: Vec<f64> = both.collect();
        let count = u32::try_from(percents.len())
            .ok()
            .filter(|count| *count > 0)?;
        Some(percents.iter().sum::<f64>() / f64::from(count))
    }

    /// Does `work`. Returns its result, and the stolen time of the core that lost most meanwhile, in per cent.
    pub(crate) fn stolen_during<T>(work: impl FnOnce() -> T) -> (T, Option<f64>) {
        let before = Self::now();
        let done = work();
        let both = before.zip(Self::now());
        (
            done,
            both.and_then(|(before, now)| before.stolen_percent(&now)),
        )
    }
}

impl Ticks {
    /// Parses the columns user, nice, system, idle, I/O wait, interrupts, soft interrupts, steal.
    fn read(text: &str) -> Option<Self> {
        let ticks = text.split_whitespace().take(8);
        let ticks: Vec<u64> = ticks.map_while(|tick| tick.parse().ok()).collect();
        Some(Self {
            all: ticks.iter().sum(),
            stolen: *ticks.get(7)?,
        })
    }

    fn stolen_per_mille(self, later: Self) -> u64 {
        let stolen = later.stolen.saturating_sub(self.stolen);
        stolen.saturating_mul(1000) / later.all.saturating_sub(self.all).max(1)
    }
}

/// Returns the cores that a process may run on, from its `/proc/PID/status`.
pub(crate) fn allowed_cores(status: &str) -> Vec<usize> {
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map(|list| parse_list(list.trim())).unwrap_or_default()
}

/// Parses a list of cores in the kernel's form, such as `0-3,8`.
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
    fn stolen_time_is_that_of_the_core_that_lost_most() {
        let read = |one: &str, other: &str| {
            let text = format!("cpu  1 2 3\ncpu0 {one} 7 7\ncpu1 {other} 7 7\nintr 5\n");
            MachineTime::read(&text)
        };
        let before = read("90 1 1 1 1 1 5 0", "80 0 0 20 0 0 0 9").unwrap();
        let after = read("190 1 1 1 1 1 5 0", "80 0 0 70 0 0 0 59").unwrap();
        assert_eq!(before.stolen_percent(&after), Some(50.0));
        assert_eq!(before.stolen_percent(&before), Some(0.0));
        assert_eq!(before.stolen_percent_of(&[1], &after), Some(50.0));
        assert_eq!(before.stolen_percent_of(&[0, 1], &after), Some(25.0));
        assert_eq!(before.stolen_percent_of(&[2], &after), None);
        assert_eq!(
            read("1 2 3", "1 2 3 4 5 6 7 8"),
            None,
            "a kernel without that column"
        );
        assert_eq!(MachineTime::read(""), None);
        let (seven, stolen) = MachineTime::stolen_during(|| 7);
        assert!(seven == 7 && stolen.is_some_and(|one| one >= 0.0));
    }

    #[test]
    fn this_machine_has_cores() {
        let machine = Machine::this();
        assert!(!machine.cores.is_empty());
        let is_online = |core: &usize| machine.online.contains(core);
        assert!(machine.cores.iter().all(is_online), "{machine:?}");
    }
}
