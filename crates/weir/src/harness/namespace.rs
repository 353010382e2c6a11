//! A network namespace of its own, whose loopback interface has the packet size of a usual network.
//!
//! Loopback carries packets of 64 KiB as a rule, so that a stack that looks for large packets finds them there, and looks
//! several times better than on any network. In a namespace of its own the interface is set to 1500 bytes, and nothing
//! else on the machine is touched.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use anyhow::Context as _;

/// Bytes of the largest packet.
pub(crate) const MTU_BYTES: u64 = 1500;

/// Runs this program again with the same arguments and `flag` in a namespace. Returns only if that cannot be done, with
/// the reason.
pub(crate) fn enter(flag: &str) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut problem = String::new();
    for rights in [&[][..], &["--user", "--map-root-user"]] {
        // First a try, since there is no way back from the second.
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

/// A shell in a namespace that sets the interface up and then does `script`.
fn shell(rights: &[&str], script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(rights).args(["--net", "--", "sh", "-c"]);
    command.arg(format!("ip link set dev lo mtu {MTU_BYTES} up && {script}"));
    command
}

/// This program's arguments, with `flag` behind them.
fn arguments(flag: &str) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    arguments.push(flag.into());
    arguments
}
