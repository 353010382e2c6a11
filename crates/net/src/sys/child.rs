//! Child processes that end with their parent.

use std::{io, os::unix::process::CommandExt as _, process::Command};

use super::check;

/// Makes the child of `command` receive SIGTERM when the thread that starts it ends, even by SIGKILL. So a thread that
/// lives as long as the child is needed must start it.
pub fn end_with_parent(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec only system calls that are safe there are made, and nothing is allocated.
    unsafe { command.pre_exec(move || follow(parent)) };
}

fn follow(parent: u32) -> io::Result<()> {
    let signal = libc::c_ulong::from(libc::SIGTERM.unsigned_abs());
    // SAFETY: no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) })?;
    // The parent may have ended before the call of prctl.
    // SAFETY: no arguments; it cannot fail.
    let of_now = unsafe { libc::getppid() };
    if u32::try_from(of_now) == Ok(parent) {
        Ok(())
    } else {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}
