//! Observation of a process through `/proc`: CPU time, memory, cores.

use std::{
    collections::BTreeSet, ffi::OsStr, fs, io, os::unix::ffi::OsStrExt as _, path::Path,
    time::Duration,
};

use anyhow::{Context as _, bail};
use weir_report::process::Usage;

use super::machine;

/// Returns the usage of a process so far.
///
/// # Errors
/// The process has ended (a zombie too), or `/proc` is not mounted.
pub(crate) fn usage(pid: u32) -> io::Result<Usage> {
    let mut usage = Usage::default();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = thread?.path();
        // A thread may end during the listing.
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
    let stat = stat(pid).filter(|stat| !stat.starts_with(ENDED));
    let stat = stat.ok_or(io::ErrorKind::NotFound)?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    usage.resident_bytes = field(&status, "VmRSS:") * KILOBYTE;
    usage.resident_peak_bytes = field(&status, "VmHWM:") * KILOBYTE;
    usage.cpu = usage.cpu.max(ticks_of(&stat).unwrap_or_default());
    Ok(usage)
}

/// Returns the only process, except this one, whose program is called `name`.
///
/// # Errors
/// There is none, or there are several; the error lists them.
pub(crate) fn find(name: &str) -> anyhow::Result<u32> {
    let found = all(|pid| is_called(pid, name)).context("/proc cannot be read")?;
    match found[..] {
        [] => bail!("no process is called {name:?}; is the relay running on this machine?"),
        [pid] => Ok(pid),
        _ => bail!(
            "several processes are called {name:?}: {found:?}; choose one with --relay-pid PID"
        ),
    }
}

/// Returns the cores that threads of a process are pinned to: those of threads that may not run on all of `cores`. Empty if no
/// thread is pinned, or the process has ended.
pub(crate) fn bound_cores(pid: u32, cores: &[usize]) -> Vec<usize> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let bound = threads.flatten().flatten().flat_map(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let allowed = machine::allowed_cores(&status);
        let is_bound = cores.iter().any(|core| !allowed.contains(core));
        allowed.into_iter().filter(move |_| is_bound)
    });
    bound.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns all processes, except this one, for which `is_meant` is true.
pub(crate) fn all(mut is_meant: impl FnMut(u32) -> bool) -> io::Result<Vec<u32>> {
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        // Processes may end during the listing.
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let pid = name.to_str().and_then(|text| text.parse().ok());
        if let Some(pid) = pid.filter(|pid| *pid != own && is_meant(*pid)) {
            found.push(pid);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Whether `name` is the file name of a process's program, or of its first argument.
pub(crate) fn is_called(pid: u32, name: &str) -> bool {
    let file_name = |path: &Path| path.file_name() == Some(OsStr::new(name));
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    if program.is_ok_and(|path| file_name(&path)) {
        return true;
    }
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let first = command.split(|byte| *byte == 0).next().unwrap_or_default();
    file_name(Path::new(OsStr::from_bytes(first)))
}

/// Whether a process has ended; a zombie has.
pub(crate) fn has_ended(pid: u32) -> bool {
    // Other threads may run after the first has ended.
    let is_ended = |stat: String| stat.starts_with(ENDED) && threads(pid).count() <= 1;
    stat(pid).is_none_or(is_ended)
}

/// Returns the CPU time of each thread of a process, by thread ID.
pub(crate) fn threads(pid: u32) -> impl Iterator<Item = (u32, Duration)> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    entries.into_iter().flatten().flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let schedule = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        let nanos = schedule.split(' ').next()?.parse().ok()?;
        Some((number, Duration::from_nanos(nanos)))
    })
}

/// Returns the process group of a process.
pub(crate) fn group_of(pid: u32) -> Option<u32> {
    stat(pid)?.split(' ').nth(2)?.parse().ok()
}

/// Returns the fields of `/proc/PID/stat` from the state on; `None` if the process has ended.
fn stat(pid: u32) -> Option<String> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    after_name(&line).map(str::to_owned)
}

/// Returns the part of a line of `/proc/PID/stat` after the name. The name is in parentheses and may contain anything.
fn after_name(line: &str) -> Option<&str> {
    line.rsplit_once(") ").map(|(_, after)| after)
}

/// Returns user and system time of all threads, including ended ones, from the result of [`stat`].
fn ticks_of(stat: &str) -> Option<Duration> {
    let mut fields = stat.split(' ').skip(11);
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

/// States of a process that has ended: zombie, or dead.
const ENDED: [char; 3] = ['Z', 'X', 'x'];
/// `USER_HZ`, the same on all Linux machines that weir runs on.
const TICKS_PER_SECOND: u64 = 100;
/// Unit of sizes in `/proc/PID/status`.
const KILOBYTE: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_itself() {
        // CPU time is counted in ticks, and this process may have used less than one.
        let seen = || usage(std::process::id()).unwrap();
        let mut usage = std::iter::repeat_with(seen);
        let usage = usage.find(|usage| usage.cpu > Duration::ZERO).unwrap();
        assert!(usage.resident_bytes > 100_000);
        assert!(usage.resident_peak_bytes >= usage.resident_bytes);
        assert!(usage.threads >= 1);
    }

    #[test]
    fn finds_a_process_by_its_program() {
        let folder = std::env::temp_dir().join(format!("weir-process-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let name = format!("sleeper-of-{}", std::process::id());
        // A link, not a copy: a process that another thread starts meanwhile would hold the written file open.
        std::os::unix::fs::symlink("/bin/sleep", folder.join(&name)).unwrap();
        let start = || {
            std::process::Command::new(folder.join(&name))
                .arg("60")
                .spawn()
                .unwrap()
        };
        // A process gets its name a moment after its start.
        let mut looks = std::iter::repeat_with(|| find(&name));
        let mut one = start();
        assert_eq!(looks.find_map(Result::ok), Some(one.id()));
        let mut other = start();
        let error = looks.find_map(Result::err).unwrap().to_string();
        assert!(error.contains("several processes"), "{error}");
        assert!(error.contains(&other.id().to_string()), "{error}");
        for child in [&mut one, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let error = find(&name).unwrap_err().to_string();
        assert!(error.contains("no process is called"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn cores_that_a_process_is_bound_to() {
        let cores = machine::Machine::this().cores;
        let (first, all) = (cores[0], cores.clone());
        let work = move || {
            weir_net::pin_to_core(first).unwrap();
            let mut child = std::process::Command::new("sleep")
                .arg("60")
                .spawn()
                .unwrap();
            let bound = bound_cores(child.id(), &all);
            child.kill().unwrap();
            child.wait().unwrap();
            bound
        };
        let thread = std::thread::Builder::new().spawn(work).unwrap();
        let bound = thread.join().unwrap();
        // With one core, no thread is pinned to fewer than all cores.
        assert_eq!(
            bound,
            if cores.len() > 1 {
                vec![first]
            } else {
                Vec::new()
            }
        );
        assert_eq!(bound_cores(u32::MAX, &cores), [0; 0]);
    }

    #[test]
    fn reads_ticks_behind_an_odd_name() {
        let line = "42 (a ) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1";
        let stat = after_name(line).unwrap();
        assert_eq!(ticks_of(stat), Some(Duration::from_secs(2)));
        assert_eq!((after_name("nonsense"), ticks_of("nonsense")), (None, None));
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        assert!(usage(u32::MAX).is_err());
    }

    #[test]
    fn a_process_that_nobody_waited_for_is_gone_too() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert!(usage(child.id()).is_ok());
        child.kill().unwrap();
        while !has_ended(child.id()) {
            std::thread::yield_now();
        }
        assert!(usage(child.id()).is_err());
        child.wait().unwrap();
        assert!(has_ended(child.id()));
        assert_eq!(after_name("42 (a) Z) S 1 2"), Some("S 1 2"));
    }
}
