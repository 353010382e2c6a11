//! Runs the program `weir` for a test.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use serde_json::Value;
use weir_net::clock;

/// Time limit on a busy machine; only a test that hangs takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// Calls a function until it returns a value, for at most [`PATIENCE`].
pub(crate) fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = clock::now() + PATIENCE;
    while clock::now() < end {
        if let Some(found) = look() {
            return Some(found);
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    None
}

/// Runs `weir` to its end, with `variables` as its only environment variables of weir.
pub(crate) fn weir_with(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    command(arguments, variables).output().unwrap()
}

/// Runs `weir` to its end.
pub(crate) fn weir(arguments: &[&str]) -> Output {
    weir_with(arguments, &[])
}

/// Starts `weir`, and captures its output.
pub(crate) fn start(arguments: &[&str]) -> Child {
    start_with(arguments, &[])
}

/// Does the same with environment variables.
pub(crate) fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    command(arguments, variables)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Sends a process a signal, such as `HUP`.
pub(crate) fn signal(pid: u32, name: &str) {
    let pid = pid.to_string();
    let sent = Command::new("kill").args(["-s", name, &pid]).status();
    assert!(sent.unwrap().success());
}

/// Returns the lines of a refused run.
#[track_caller]
pub(crate) fn refusal(arguments: &[&str]) -> String {
    let output = weir(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    text
}

fn command(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WEIR_") {
            command.env_remove(name);
        }
    }
    command.envs(variables.iter().copied());
    command
}

/// Returns a free port of loopback, outside the range from which the system chooses ports.
pub(crate) fn free_port() -> u16 {
    // Tests of one process take consecutive ports, and other processes begin elsewhere.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id() % 100 * 100;
    std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed))
        .map(|number| u16::try_from(20_000 + (begin + number) % 10_000).unwrap())
        .find(|port| UdpSocket::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

/// Waits until the lines of progress of a benchmark, started by [`start`], report delivered objects. Returns the reader of
/// further lines.
#[track_caller]
pub(crate) fn wait_for_delivery(bench: &mut Child) -> BufReader<ChildStderr> {
    let mut progress = BufReader::new(bench.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(" received") || line.contains(" 0 received") {
        line.clear();
        let length = progress.read_line(&mut line).unwrap();
        assert!(length > 0, "the run ended before anything was delivered");
    }
    progress
}

/// A relay that runs until the end of the test.
pub(crate) struct Relay {
    pub(crate) child: Child,
    out: BufReader<ChildStdout>,
    /// The line of JSON that it printed when it was ready.
    pub(crate) ready: Value,
}

impl Relay {
    /// Starts a relay on a port that the system chooses.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    pub(crate) fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let all = [&["relay", "--listen", "127.0.0.1:0"][..], arguments].concat();
        Self::launch(&all, variables)
    }

    /// Starts a relay at an address.
    pub(crate) fn at(address: &str) -> Self {
        Self::launch(&["relay", "--listen", address], &[])
    }

    /// Starts another process that clients reach in place of a relay, such as a link.
    pub(crate) fn launch(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = command(arguments, variables)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap();
        Self { child, out, ready }
    }

    /// The address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.ready["listening"].as_str().unwrap().parse().unwrap()
    }

    /// The address of its metrics and health.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.ready["admin"].as_str().unwrap().parse().unwrap()
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Sends the relay a signal, such as `HUP`.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for the end of the relay. Returns the exit code and the rest of standard error.
    pub(crate) fn wait(&mut self) -> (Option<i32>, Value) {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        let code = self.child.wait().unwrap().code();
        (code, serde_json::from_str(&rest).unwrap_or_default())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A folder of one test; deleted when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = folder.join(format!("{name}-{process}-{number}"));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// Returns the path of a file of that name, which need not exist.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, content: &(impl AsRef<[u8]> + ?Sized)) -> String {
        let path = self.file(name);
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap()
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        let text = self.text(name);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A service level that holds on every machine, however busy.
pub(crate) const ANY: &str = "loss<100%,p99<600s";

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
