//! Child processes. Each leads a process group, which ends when this program ends.

use std::{
    os::unix::process::CommandExt as _,
    process::{Child, ChildStdout, Command, ExitStatus},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use weir_net::{Stop, clock, pin_to_core};

/// The running process groups, by the process ID of their leaders.
static RUNNING: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// A child process, and all processes that it starts. The drop ends the whole group.
#[derive(Debug)]
pub(crate) struct ChildGroup {
    leader: Child,
    /// ID of the process group.
    group: i32,
}

impl ChildGroup {
    /// Starts a command on `core`, or on any core. Signals of the terminal do not reach the child.
    pub(crate) fn start(mut command: Command, core: Option<usize>) -> anyhow::Result<Self> {
        command.process_group(0);
        let leader = spawn_on(command, core)?;
        // 0 is no group.
        let group = i32::try_from(leader.id()).unwrap_or(0);
        running().push(group);
        Ok(Self { leader, group })
    }

    /// Returns the process ID of the child.
    pub(crate) fn pid(&self) -> u32 {
        self.leader.id()
    }

    /// Takes the child's standard output, if it is piped and not taken yet.
    pub(crate) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.leader.stdout.take()
    }

    /// Returns the child's exit status; `None` if it runs.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.leader.try_wait().ok()?
    }

    /// Sends SIGTERM to the group.
    pub(crate) fn terminate(&self) {
        weir_net::terminate(-self.group);
    }

    /// Sends SIGKILL to the group, and waits for the child.
    pub(crate) fn kill(&mut self) {
        weir_net::kill(-self.group);
        self.wait();
    }

    /// Waits until the child has ended.
    pub(crate) fn wait(&mut self) {
        // Fails only after an earlier wait.
        drop(self.leader.wait());
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        self.terminate();
        let give_up = clock::now() + PATIENCE;
        while self.exit_status().is_none() && clock::now() < give_up {
            drop(Stop::new().map(|stop| stop.wait(STEP)));
        }
        // The child's own children may still run.
        self.kill();
        let mut running = running();
        if let Some(place) = running.iter().position(|group| *group == self.group) {
            running.swap_remove(place);
        }
    }
}

/// Kills all groups, before this process ends without waiting for them.
pub(crate) fn kill_all() {
    for group in running().iter() {
        weir_net::kill(-group);
    }
}

fn running() -> MutexGuard<'static, Vec<i32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a command on `core`. A child inherits the core of the thread that starts it.
fn spawn_on(mut command: Command, core: Option<usize>) -> anyhow::Result<Child> {
    let Some(core) = core else {
        return Ok(command.spawn()?);
    };
    let work = move || -> anyhow::Result<Child> {
        pin_to_core(core).with_context(|| format!("cannot run on core {core}"))?;
        Ok(command.spawn()?)
    };
    let thread = std::thread::Builder::new().spawn(work)?;
    thread
        .join()
        .map_err(|_| anyhow::anyhow!("the thread that starts it panicked"))?
}

/// Time that a child may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two looks whether the child has ended.
const STEP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_group_is_ended_with_all_that_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & wait"]);
        let mut child = ChildGroup::start(command, None).unwrap();
        let group = child.group;
        assert!(running().contains(&group));
        child.kill();
        assert_eq!(child.exit_status().unwrap().signal(), Some(9));
        drop(child);
        assert!(!running().contains(&group));
    }
}
