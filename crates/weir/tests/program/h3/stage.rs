//! A server's process, a folder, and runs of the load client.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
};

use serde_json::Value;

pub(crate) fn weir() -> Command {
    Command::new(env!("CARGO_BIN_EXE_weir"))
}

/// `weir h3 serve` on a free port; killed when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    /// The line of JSON that it printed when it was ready.
    pub(crate) ready: Value,
    out: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        Self::run(&["h3", "serve"], arguments)
    }

    /// Starts a relay with a self-signed certificate.
    pub(crate) fn relay() -> Self {
        Self::run(&["relay"], &[])
    }

    fn run(command: &[&str], arguments: &[&str]) -> Self {
        Self::of(weir(), command, arguments)
    }

    /// Starts the server that `program` runs.
    pub(crate) fn of(mut program: Command, command: &[&str], arguments: &[&str]) -> Self {
        let mut child = program
            .args(command)
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("weir is built");
        let out = child.stdout.take().expect("it was asked for");
        let mut out = BufReader::new(out);
        let mut line = String::new();
        out.read_line(&mut line).expect("it says when it is ready");
        let ready: Value = serde_json::from_str(&line).expect("one line of JSON");
        let address = ready["listening"].as_str().expect("an address").to_owned();
        Self {
            child,
            ready,
            out,
            address,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    pub(crate) fn port(&self) -> &str {
        let (_, port) = self.address.rsplit_once(':').expect("an address");
        port
    }

    /// Ends the process with SIGTERM. Returns its exit status, and the rest of its output.
    pub(crate) fn terminate(mut self) -> (ExitStatus, String) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.expect("there is a program called kill").success());
        let status = self.child.wait().expect("it is ours");
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("it writes text");
        (status, rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A folder of one test; deleted when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("weir-h3-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for a test");
        Self(folder)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The path of the folder, as an argument.
    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("a plain name")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

pub(crate) fn bench(url: &str, arguments: &[&str]) -> Output {
    let mut command = weir();
    command
        .args(["h3", "bench", url, "--insecure"])
        .args(arguments);
    command.output().expect("weir is built")
}

/// Returns the output of a run of this number of seconds. On a busy machine, no request may succeed: then the run is repeated with
/// a longer duration.
#[track_caller]
pub(crate) fn succeed(seconds: f64, run: impl Fn(f64) -> Output) -> Output {
    let mut said = String::new();
    for seconds in [seconds, 10.0, 60.0] {
        let output = run(seconds);
        if output.status.code() == Some(0) {
            return output;
        }
        said += &text(&output.stderr);
    }
    panic!("{said}");
}

/// The first core that this process may run on.
pub(crate) fn core() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let (_, list) = status.split_once("Cpus_allowed_list:").unwrap();
    let number = list.trim_start().split(|one: char| !one.is_ascii_digit());
    number.into_iter().next().unwrap().parse().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn json(file: &Path) -> Value {
    let text = fs::read_to_string(file).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}
