//! The file of `weir h3 compare`: which servers are compared, and under which loads.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use super::{options::LoadOptions, plan::Handshake, url::Url};
use crate::{
    harness::contender::{self, Contender, Entry, refused_flag},
    run::TrustArguments,
};

/// What is compared, as the file says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerFile {
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
    pub(crate) server: Vec<ServerEntry>,
}

/// One server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerEntry {
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

impl ServerFile {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or something in it is wrong; the error says where.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let mut described: Self = contender::read(file)?;
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        for server in &mut described.server {
            for file in [&mut server.cert, &mut server.key].into_iter().flatten() {
                *file = folder.join(&*file);
            }
        }
        let checked = described.check();
        checked.with_context(|| file.display().to_string())?;
        Ok(described)
    }

    /// The loads, in the file's order.
    pub(crate) fn loads(&self) -> Vec<Load> {
        self.scenarios
            .iter()
            .filter_map(|name| Load::named(name))
            .collect()
    }

    /// The options of every run under a load, without the server's address.
    pub(super) fn options(&self, load: &Load) -> anyhow::Result<LoadOptions> {
        let given = LoadOptions::from_arguments(&self.arguments)?;
        Ok(LoadOptions {
            trust: TrustArguments {
                insecure: true,
                ..TrustArguments::default()
            },
            duration: Duration::from_secs_f64(self.seconds),
            warm_up: Duration::from_secs_f64(self.warm_up_seconds),
            expect_length: Some(load.bytes),
            max_concurrent_conns: load.connections(),
            max_concurrent_requests: REQUESTS_AT_ONCE,
            short: load.short,
            cores: self.client_core.into_iter().collect(),
            ..given
        })
    }

    pub(crate) fn check(&self) -> anyhow::Result<()> {
        contender::check(&self.server)?;
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
        if let Some((flag, instead)) = refused_flag(&self.arguments, &OWN_FLAGS) {
            bail!("arguments: {flag} is the comparison's own: {instead}");
        }
        for server in &self.server {
            let checked = server.check();
            checked.with_context(|| format!("server {:?}", server.name))?;
        }
        Ok(())
    }
}

impl ServerEntry {
    fn check(&self) -> anyhow::Result<()> {
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

    /// How long it may take from its start to its first answer.
    pub(crate) fn ready_time(&self) -> Duration {
        Duration::from_secs_f64(self.ready_seconds)
    }

    /// What is asked for under a load if the server listens on `port`.
    pub(super) fn url(&self, load: &Load, port: u16) -> anyhow::Result<Url> {
        let path = self.path.replace("{file}", load.file);
        let url = format!("https://localhost:{port}{path}").parse();
        url.context("path")
    }
}

impl Entry for ServerEntry {
    const KIND: &'static str = "server";

    fn contender(&self) -> Contender {
        let certificate = self.cert.clone().zip(self.key.clone());
        Contender {
            name: self.name.clone(),
            start: self.start.clone(),
            core: self.core,
            version: self.version.clone(),
            version_text: self.version_text.clone(),
            certificate: certificate.map(|(chain, key)| [chain, key]),
        }
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
const OWN_FLAGS: [(&str, &str); 16] = [
    ("--connect", "each server has a port"),
    ("--insecure", "each server has a certificate"),
    ("--ca", "each server has a certificate"),
    ("--certificate-hash", "each server has a certificate"),
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
/// Of each long connection.
const REQUESTS_AT_ONCE: usize = 10;
pub(crate) const ROUNDS_MAX: u32 = 50;
const SECONDS_MAX: f64 = 600.0;
const READY_SECONDS_MAX: f64 = 120.0;

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "[[server]]\nname = \"a\"\nstart = [\"a\"]\n";

    fn problem(text: &str) -> String {
        let parsed = toml::from_str::<ServerFile>(text).map_err(anyhow::Error::from);
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
        let described: ServerFile = toml::from_str(&text).unwrap();
        let options = |load: &str| described.options(&Load::named(load).unwrap()).unwrap();
        let long = options("15k");
        assert_eq!(
            (long.duration.as_secs(), long.warm_up.as_millis()),
            (3, 250)
        );
        assert_eq!((long.expect_length, long.short), (Some(15_360), None));
        let at_once = |one: &LoadOptions| (one.max_concurrent_conns, one.max_concurrent_requests);
        assert_eq!(at_once(&long), (10, 10));
        assert!(long.trust.insecure && long.no_gro && long.cores == [3]);
        let short = options("1k-0rtt");
        assert_eq!(short.short, Some(Handshake::Early));
        assert_eq!(
            (short.max_concurrent_conns, short.expect_length),
            (100, Some(1024))
        );
        let server = &described.server[0];
        let url = server.url(&Load::named("1k-0rtt").unwrap(), 7).unwrap();
        assert_eq!(url.to_string(), "https://localhost:7/1k");
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
        let described = ServerFile::read(Path::new(file)).unwrap();
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
        let error = format!("{:#}", ServerFile::read(&file).unwrap_err());
        let expected = format!("cert: there is no file {}", folder.join("c.pem").display());
        assert!(error.contains(&expected), "{error}");
        for name in ["c.pem", "k.pem"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let server = ServerFile::read(&file).unwrap().server.remove(0);
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
