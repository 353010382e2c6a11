//! Servers that a file describes: how each is started, reached and stopped.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::h3::measurement::Handshake;

/// What is compared, as the file says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Described {
    /// The kinds of load, by their names; see [`Load::named`].
    #[serde(default = "scenarios")]
    pub(crate) scenarios: Vec<String>,
    /// Runs of each server in each scenario.
    #[serde(default = "rounds")]
    pub(crate) rounds: u32,
    /// Seconds of each run.
    #[serde(default = "seconds")]
    pub(crate) seconds: f64,
    /// Seconds of the same load before each run, which do not count.
    #[serde(default = "warm_up_seconds")]
    pub(crate) warm_up_seconds: f64,
    /// Core of the server.
    pub(crate) server_core: Option<usize>,
    /// Core of the client.
    pub(crate) client_core: Option<usize>,
    /// Further arguments of `weir h3 bench`.
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    /// The servers.
    pub(crate) server: Vec<DescribedServer>,
}

/// One server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DescribedServer {
    pub(crate) name: String,
    /// Program and arguments; `{weir}`, `{port}`, `{cert}`, `{key}`, `{root}`, `{core}` and `{folder}` are filled in.
    pub(crate) start: Vec<String>,
    /// Core that it runs on, if not `server_core`.
    pub(crate) core: Option<usize>,
    /// UDP port that it listens on; a free one in each turn if none is given.
    pub(crate) port: Option<u16>,
    /// Its certificate chain, PEM, seen from the file's folder; one made for the comparison if none is given.
    pub(crate) cert: Option<PathBuf>,
    /// The private key of that certificate, PEM.
    pub(crate) key: Option<PathBuf>,
    /// The path of a URL, with `{file}` for the file's name.
    #[serde(default = "path")]
    pub(crate) path: String,
    /// Program and arguments that print its version.
    #[serde(default)]
    pub(crate) version: Vec<String>,
    /// What to call the version where no program prints it.
    pub(crate) version_text: Option<String>,
    /// What a reader of the results should know of it.
    pub(crate) note: Option<String>,
    /// How long it may take from its start to its first answer.
    #[serde(default = "ready_seconds")]
    pub(crate) ready_seconds: f64,
}

fn scenarios() -> Vec<String> {
    ["15k", "50k", "2m", "1k-short"].map(str::to_owned).to_vec()
}

fn rounds() -> u32 {
    3
}

fn seconds() -> f64 {
    3.0
}

fn warm_up_seconds() -> f64 {
    0.5
}

fn path() -> String {
    "/{file}".to_owned()
}

fn ready_seconds() -> f64 {
    10.0
}

/// A kind of load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) name: String,
    /// The file that is asked for.
    pub(crate) file: &'static str,
    pub(crate) bytes: u64,
    /// Of short connections: how they begin.
    pub(crate) short: Option<Handshake>,
}

impl Load {
    /// The load of this name: a file's, with long connections; or with `-short`, `-resumed` or `-0rtt` behind it, one
    /// request for each connection.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let (file, kind) = name.split_once('-').unwrap_or((name, ""));
        let (file, bytes) = FILES.into_iter().find(|(one, _)| *one == file)?;
        let short = match kind {
            "" => None,
            "short" => Some(Handshake::Full),
            "resumed" => Some(Handshake::Resumed),
            "0rtt" => Some(Handshake::Early),
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            file,
            bytes,
            short,
        })
    }

    /// Connections at once.
    pub(crate) fn connections(&self) -> usize {
        if self.short.is_some() { 100 } else { 10 }
    }

    /// In words.
    pub(crate) fn words(&self) -> String {
        let size = format!("answers of {} bytes", self.bytes);
        let connections = self.connections();
        match self.short {
            None => format!("{size}, {connections} connections with 10 requests at once"),
            Some(handshake) => {
                let begin = match handshake {
                    Handshake::Full => "full handshakes",
                    Handshake::Resumed => "resumed handshakes",
                    Handshake::Early => "requests in the first packet (0-RTT)",
                };
                format!("{size}, {connections} connections at once with one request each, {begin}")
            }
        }
    }
}

impl Described {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or something in it is wrong; the error says where.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let name = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("{name}: cannot be read"))?;
        let mut described: Self = toml::from_str(&text).with_context(|| name.to_string())?;
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        for server in &mut described.server {
            for file in [&mut server.cert, &mut server.key].into_iter().flatten() {
                *file = folder.join(&*file);
            }
        }
        described.check().with_context(|| name.to_string())?;
        Ok(described)
    }

    /// The loads, in the file's order.
    pub(crate) fn loads(&self) -> Vec<Load> {
        self.scenarios
            .iter()
            .filter_map(|name| Load::named(name))
            .collect()
    }

    /// What `weir h3 bench` is told for a run.
    pub(crate) fn line(&self, server: &DescribedServer, load: &Load, port: u16) -> Vec<String> {
        let path = server.path.replace("{file}", load.file);
        let mut line = vec![
            format!("https://localhost:{port}{path}"),
            format!("--connect=127.0.0.1:{port}"),
            "--insecure".to_owned(),
            format!("--duration={}", self.seconds),
            format!("--warm-up={}", self.warm_up_seconds),
            format!("--expect-length={}", load.bytes),
            format!("--max-concurrent-conns={}", load.connections()),
        ];
        match load.short {
            None => line.push("--max-concurrent-requests=10".to_owned()),
            Some(handshake) => line.push(format!("--short={}", handshake.name())),
        }
        if let Some(core) = self.client_core {
            line.push(format!("--cores={core}"));
        }
        line.extend(self.arguments.iter().cloned());
        line
    }

    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.server.is_empty() || self.server.len() > SERVERS_MAX {
            bail!("server: expected 1 to {SERVERS_MAX} of them");
        }
        if self.rounds == 0 || self.rounds > ROUNDS_MAX {
            bail!("rounds: expected 1 to {ROUNDS_MAX}");
        }
        for (name, value) in [
            ("seconds", self.seconds),
            ("warm_up_seconds", self.warm_up_seconds),
        ] {
            let least = if name == "seconds" { 0.1 } else { 0.0 };
            if !(least..=SECONDS_MAX).contains(&value) {
                bail!("{name}: expected {least} to {SECONDS_MAX}");
            }
        }
        for (number, name) in self.scenarios.iter().enumerate() {
            if Load::named(name).is_none() {
                let files = FILES.map(|(file, _)| file).join(", ");
                bail!(
                    "scenarios: {name:?} is none; expected one of {files}, with -short, -resumed or -0rtt behind it for \
                     short connections"
                );
            }
            if self.scenarios[..number].contains(name) {
                bail!("scenarios: {name:?} stands twice");
            }
        }
        if self.scenarios.is_empty() {
            bail!("scenarios: expected one at least");
        }
        for argument in &self.arguments {
            let flag = argument.split('=').next().unwrap_or_default();
            if let Some((_, instead)) = OWN_FLAGS.into_iter().find(|(own, _)| *own == flag) {
                bail!("arguments: {flag} is the comparison's own: {instead}");
            }
        }
        for (number, server) in self.server.iter().enumerate() {
            server
                .check()
                .with_context(|| format!("server {:?}", server.name))?;
            if self.server[..number]
                .iter()
                .any(|one| one.name == server.name)
            {
                bail!("server {:?} stands twice", server.name);
            }
        }
        Ok(())
    }
}

impl DescribedServer {
    fn check(&self) -> anyhow::Result<()> {
        if self.start.is_empty() {
            bail!("start: expected a program and its arguments");
        }
        if self.port == Some(0) {
            bail!("port: expected 1 to 65535");
        }
        if self.cert.is_some() != self.key.is_some() {
            bail!("cert, key: expected both or none");
        }
        for (name, file) in [("cert", &self.cert), ("key", &self.key)] {
            if let Some(file) = file.as_ref().filter(|file| !file.is_file()) {
                bail!("{name}: there is no file {}", file.display());
            }
        }
        if !self.path.starts_with('/') || !self.path.contains("{file}") {
            bail!(
                "path: expected a slash in front and {{file}} in it, not {:?}",
                self.path
            );
        }
        if !(0.1..=READY_SECONDS_MAX).contains(&self.ready_seconds) {
            bail!("ready_seconds: expected 0.1 to {READY_SECONDS_MAX}");
        }
        Ok(())
    }

    pub(crate) fn ready_time(&self) -> Duration {
        Duration::from_secs_f64(self.ready_seconds)
    }
}

/// What start commands may refer to: files to serve, and places of their own. Gone after the comparison.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) root: PathBuf,
}

impl Files {
    /// Makes the files that loads ask for below `folder`.
    pub(crate) fn make(folder: &Path) -> anyhow::Result<Self> {
        let root = folder.join("root");
        fs::create_dir(&root).context("cannot make a folder for the files to serve")?;
        for (name, bytes) in FILES {
            let length = usize::try_from(bytes).context("a file is larger than memory")?;
            let content: Vec<u8> = b"weir ".iter().copied().cycle().take(length).collect();
            fs::write(root.join(name), content).context("cannot write a file to serve")?;
        }
        Ok(Self { root })
    }
}

/// A UDP port of this machine that nobody uses at the moment.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .and_then(|socket| socket.local_addr())
        .context("cannot find a free port")?;
    Ok(socket.port())
}

/// The files that there are, by name and size.
const FILES: [(&str, u64); 5] = [
    ("1k", 1 << 10),
    ("5k", 5 << 10),
    ("15k", 15 << 10),
    ("50k", 50 << 10),
    ("2m", 2 << 20),
];
/// Flags of `weir h3 bench` that a comparison gives itself, or that would be of no use in it, and what there is instead.
const OWN_FLAGS: [(&str, &str); 14] = [
    ("--connect", "each server has a port"),
    ("--insecure", "each server has a certificate"),
    ("--duration", "the file has `seconds`"),
    ("--warm-up", "the file has `warm_up_seconds`"),
    ("--expect-length", "the file has `scenarios`"),
    ("--max-concurrent-conns", "the file has `scenarios`"),
    ("--max-concurrent-requests", "the file has `scenarios`"),
    ("--short", "the file has `scenarios`"),
    ("--core", "the file has `client_core`"),
    ("--cores", "the file has `client_core`"),
    ("--server-pid", "what it has started is watched"),
    ("--server-process", "what it has started is watched"),
    ("--json", "`weir h3 compare` has --json"),
    ("--html", "`weir h3 compare` has --html"),
];
/// More than a table is read for.
const SERVERS_MAX: usize = 32;
const ROUNDS_MAX: u32 = 50;
const SECONDS_MAX: f64 = 600.0;
const READY_SECONDS_MAX: f64 = 120.0;

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "[[server]]\nname = \"a\"\nstart = [\"a\"]\n";

    fn problem(text: &str) -> String {
        let parsed = toml::from_str::<Described>(text).map_err(anyhow::Error::from);
        let error = parsed.and_then(|file| file.check());
        format!("{:#}", error.unwrap_err())
    }

    #[test]
    fn files_that_are_wrong_are_named_with_the_place() {
        let error = problem(&format!("round = 3\n{SERVER}"));
        assert!(
            error.contains("line 1") && error.contains("round"),
            "{error}"
        );
        assert!(problem("server = []\n").contains("expected 1 to 32"));
        assert!(problem(&format!("rounds = 0\n{SERVER}")).contains("rounds: expected"));
        assert!(problem(&format!("rounds = 51\n{SERVER}")).contains("rounds: expected"));
        assert!(problem(&format!("seconds = 0\n{SERVER}")).contains("seconds: expected"));
        assert!(problem(&format!("{SERVER}{SERVER}")).contains("\"a\" stands twice"));
        let twice = problem(&format!("scenarios = [\"1k\", \"1k\"]\n{SERVER}"));
        assert!(twice.contains("\"1k\" stands twice"));
        for name in ["3k", "1k-slow", "-short", ""] {
            let error = problem(&format!("scenarios = [\"{name}\"]\n{SERVER}"));
            assert!(error.contains("expected one of 1k, 5k"), "{error}");
        }
        let none = SERVER.replace("[\"a\"]", "[]");
        assert!(problem(&none).contains("server \"a\": start: expected"));
        let path = format!("{SERVER}path = \"x\"\n");
        assert!(problem(&path).contains("{file}"));
        let error = problem(&format!("{SERVER}port = 0\n"));
        assert!(error.contains("server \"a\": port: expected 1"), "{error}");
        assert!(problem(&format!("{SERVER}port = 65536\n")).contains("65536"));
        let error = problem(&format!("{SERVER}cert = \"a\"\n"));
        assert!(error.contains("expected both or none"), "{error}");
        let error = problem(&format!("{SERVER}cert = \"/\"\nkey = \"/\"\n"));
        assert!(error.contains("cert: there is no file /"), "{error}");
        for (flag, _) in OWN_FLAGS {
            for argument in [flag.to_owned(), format!("{flag}=20")] {
                let error = problem(&format!("arguments = [\"{argument}\"]\n{SERVER}"));
                let expected = format!("arguments: {flag} is the comparison's own");
                assert!(error.contains(&expected), "{error}");
            }
        }
    }

    #[test]
    fn a_run_is_told_what_the_file_says() {
        let text = format!(
            "warm_up_seconds = 0.25\nclient_core = 3\narguments = [\"--no-gro\"]\n{SERVER}"
        );
        let described: Described = toml::from_str(&text).unwrap();
        let line = |load: &str| {
            let load = Load::named(load).unwrap();
            described.line(&described.server[0], &load, 7).join(" ")
        };
        assert_eq!(
            line("15k"),
            "https://localhost:7/15k --connect=127.0.0.1:7 --insecure --duration=3 --warm-up=0.25 --expect-length=15360 \
             --max-concurrent-conns=10 --max-concurrent-requests=10 --cores=3 --no-gro"
        );
        assert_eq!(
            line("1k-0rtt"),
            "https://localhost:7/1k --connect=127.0.0.1:7 --insecure --duration=3 --warm-up=0.25 --expect-length=1024 \
             --max-concurrent-conns=100 --short=0rtt --cores=3 --no-gro"
        );
    }

    #[test]
    fn loads_by_their_names() {
        let long = Load::named("2m").unwrap();
        assert_eq!(
            (long.bytes, long.connections(), long.short),
            (2 << 20, 10, None)
        );
        let short = Load::named("1k-0rtt").unwrap();
        assert_eq!((short.file, short.connections()), ("1k", 100));
        assert_eq!(short.short, Some(Handshake::Early));
        assert!(short.words().contains("0-RTT"));
    }

    #[test]
    fn the_example_is_right() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../profiles/contenders.toml"
        );
        let described = Described::read(Path::new(file)).unwrap();
        assert!(described.server.len() >= 4);
        assert_eq!(described.loads().len(), described.scenarios.len());
    }

    #[test]
    fn certificates_lie_beside_the_file() {
        let folder = std::env::temp_dir().join(format!("weir-described-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("servers.toml");
        fs::write(
            &file,
            format!("{SERVER}cert = \"c.pem\"\nkey = \"k.pem\"\n"),
        )
        .unwrap();
        let error = format!("{:#}", Described::read(&file).unwrap_err());
        let expected = format!("cert: there is no file {}", folder.join("c.pem").display());
        assert!(error.contains(&expected), "{error}");
        for name in ["c.pem", "k.pem"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let server = Described::read(&file).unwrap().server.remove(0);
        assert_eq!(server.key, Some(folder.join("k.pem")));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_have_their_sizes() {
        let folder = std::env::temp_dir().join(format!("weir-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let files = Files::make(&folder).unwrap();
        for (name, bytes) in FILES {
            assert_eq!(fs::metadata(files.root.join(name)).unwrap().len(), bytes);
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
