//! Folders of the tests, and the program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// A service level that holds on every machine, so that what is tested is not the machine.
pub(crate) const ANY: &str = "loss<100%,p99<600s";

/// A second of audio.
pub(crate) const PROFILE: &str = "[audio]
namespace = boardroom/{run}
name = chairman
track_mode = datagram
priority = 2
ttl = 2000
time_interval = 20
objects_per_group = 1
first_object_size = 120
object_size = 120
start_delay = 500
total_transmit_time = 1500
";

/// A folder of its own for each test, with the profile in it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kept-{name}"));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("profile.ini"), PROFILE).unwrap();
        Self(folder)
    }

    /// Where a file of that name lies, or would.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let file = self.file(name);
        fs::write(&file, content).unwrap();
        file
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap()
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).unwrap()
    }
}

pub(crate) fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
