//! Processes that this one has started, so that none outlives it, whatever ends it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Groups of processes that run now, by the number of their leader.
static RUNNING: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// A group of processes that is ended with this one. Forgotten when dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    group: i32,
}

impl Registered {
    /// Takes note of the group that a child leads.
    pub(crate) fn new(leader: u32) -> Self {
        // A number that is none names no group, and is passed over.
        let group = i32::try_from(leader).unwrap_or(0);
        running().push(group);
        Self { group }
    }

    /// Asks the whole group to end.
    pub(crate) fn terminate(&self) {
        weir_net::terminate(-self.group);
    }

    /// Ends the whole group.
    pub(crate) fn kill(&self) {
        weir_net::kill(-self.group);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut running = running();
        if let Some(place) = running.iter().position(|group| *group == self.group) {
            running.swap_remove(place);
        }
    }
}

/// Ends all groups at once: the last act of a process that goes without taking leave of them.
pub(crate) fn kill_all() {
    for group in running().iter() {
        weir_net::kill(-group);
    }
}

fn running() -> MutexGuard<'static, Vec<i32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::{CommandExt as _, ExitStatusExt as _},
        process::Command,
    };

    use super::*;

    #[test]
    fn a_group_is_ended_with_all_that_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & wait"]).process_group(0);
        let mut child = command.spawn().unwrap();
        let registered = Registered::new(child.id());
        assert!(running().contains(&registered.group));
        registered.kill();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        let group = registered.group;
        drop(registered);
        assert!(!running().contains(&group));
    }
}
