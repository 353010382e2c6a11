//! A network namespace whose loopback interface has an MTU of 1500 bytes, as usual networks do.
//!
//! The default MTU of loopback is 64 KiB. Stacks with path MTU discovery use such large packets there, and seem several times
//! faster than on any network. A namespace changes the MTU without effect on the rest of the machine.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use anyhow::Context as _;

/// The MTU in the namespace, in bytes.
pub(crate) const MTU_BYTES: u64 = 1500;

/// Runs this program again in a namespace, with the same arguments and `flag`. Returns only on failure, with the reason.
pub(crate) fn enter(flag: &str) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut problem = String::new();
    for rights in [&[][..], &["--user", "--map-root-user"]] {
        // A trial first, since `exec` does not return.
        let tried = shell(rights, "true").stderr(Stdio::piped()).output();
        match tried {
            Ok(output) if output.status.success() => {
                let error = shell(rights, "exec \"$@\"")
                    .arg("sh")
                    .arg(&program)
                    .args(arguments(flag))
                    .exec();
                return Err(error).context("unshare cannot be started");
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let last = said.lines().last().unwrap_or_default().trim();
                problem = format!("unshare: {last}");
            }
            Err(error) => problem = format!("unshare: {error}"),
        }
    }
    Ok(problem)
}

/// Returns a shell in a namespace, which sets up the interface and then runs `script`.
fn shell(rights: &[&str], script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(rights).args(["--net", "--", "sh", "-c"]);
    command.arg(format!("ip link set dev lo mtu {MTU_BYTES} up && {script}"));
    command
}

/// Returns this program's arguments, and `flag` after them.
fn arguments(flag: &str) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    arguments.push(flag.into());
    arguments
}
