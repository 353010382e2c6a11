//! The file of `weir h3 compare`: the servers to compare, and the loads.

use std::{
    fs,
    net::{Ipv4Addr, UdpSocket},
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::{
    options::LoadOptions,
    scenario::{FILES, LinkConditions, Load},
    url::Url,
};
use crate::{
    event_loop,
    file_kind::Kind,
    harness::contender::{self, Contender, Entry, refused_flag},
    run::TrustArguments,
};

/// The content of the file.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerFile {
    /// Names of the loads, from the table of scenarios.
    #[serde(default = "scenarios")]
    pub(crate) scenarios: Vec<String>,
    /// Runs of each server in each scenario, 1 to 50.
    #[serde(default = "rounds")]
    pub(crate) rounds: u32,
    /// Seconds of each run, 0.1 to 600.
    #[serde(default = "seconds")]
    pub(crate) seconds: f64,
    /// Seconds of the same load before each run, which are not measured, up to 600.
    #[serde(default = "warm_up_seconds")]
    pub(crate) warm_up_seconds: f64,
    /// Core of the servers. Default: the first core.
    pub(crate) server_core: Option<usize>,
    /// Cores of the client, one for each thread. Default: all others.
    #[serde(default)]
    pub(crate) client_cores: Vec<usize>,
    /// Whether the number of connections is raised until the server or the client is the limit. Flags in `arguments` that set
    /// connections, requests in flight or the rate switch this off, and so do `loss` and `round_trip_ms`.
    #[serde(default = "sweep")]
    pub(crate) sweep: bool,
    /// Shares of packets that an emulated link loses in each direction, from 0 to below 1, up to 16. Each scenario runs over
    /// each pair of loss and round-trip time, through `weir link` unless both are 0. Default: none.
    #[serde(default, deserialize_with = "list")]
    pub(crate) loss: Vec<f64>,
    /// Round-trip times of the emulated link in milliseconds, at most 10000 each, up to 16. Default: none.
    #[serde(default, deserialize_with = "list")]
    pub(crate) round_trip_ms: Vec<u64>,
    /// More flags of `weir h3 bench`, such as `--rate`, or `--max-concurrent-conns` of each thread. Default: none.
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    /// The servers, 1 to 32.
    pub(crate) server: Vec<ServerEntry>,
}

/// One server.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerEntry {
    /// Name of the server in tables.
    pub(crate) name: String,
    /// Program and arguments, with placeholders.
    pub(crate) start: Vec<String>,
    /// Core of this server. Default: `server_core`.
    pub(crate) core: Option<usize>,
    /// UDP port of the server. Default: a free one in each turn.
    pub(crate) port: Option<u16>,
    /// Certificate chain, PEM, relative to the TOML file. Default: one made for the comparison (ECDSA P-256).
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the certificate, PEM, relative to the TOML file. Default: that of the made certificate.
    pub(crate) key: Option<PathBuf>,
    /// Path of the URLs, with `{file}` in place of the file's name.
    #[serde(default = "path")]
    pub(crate) path: String,
    /// Program and arguments whose first line of output is the version. Default: none.
    #[serde(default)]
    pub(crate) version: Vec<String>,
    /// The version, if no program prints it. Default: none.
    pub(crate) version_text: Option<String>,
    /// A note for readers of the report. Default: none.
    pub(crate) note: Option<String>,
    /// Longest time from the server's start to its first response, in seconds, 0.1 to 120.
    #[serde(default = "ready_seconds")]
    pub(crate) ready_seconds: f64,
}

/// Reads a list. The error for anything else says how one is written.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Vec::deserialize(from).map_err(|error| {
        let error = error.to_string();
        D::Error::custom(format!(
            "{}; a list stands in brackets: [0, 1]",
            error.trim_end()
        ))
    })
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

fn sweep() -> bool {
    true
}

fn path() -> String {
    "/{file}".to_owned()
}

fn ready_seconds() -> f64 {
    10.0
}

impl ServerFile {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, or a value is wrong; the error names the place.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let mut described: Self = contender::read(file, Kind::Servers)?;
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

    /// Returns the loads, in the file's order: each scenario over each link.
    pub(crate) fn loads(&self) -> Vec<Load> {
        let links = LinkConditions::grid(&self.loss, &self.round_trip_ms);
        let scenarios = self.scenarios.iter().filter_map(|name| Load::named(name));
        scenarios
            .flat_map(|load| links.iter().map(move |link| load.clone().over(*link)))
            .collect()
    }

    /// Returns true if the number of connections is searched for. It is not over links, which would be the limit themselves,
    /// nor in the scenario without a link beside them, so that all have the same load.
    pub(super) fn sweeps(&self) -> bool {
        let is_fixed = FIXING_FLAGS.iter().any(|flag| self.gives(flag));
        self.sweep && !is_fixed && self.loss.is_empty() && self.round_trip_ms.is_empty()
    }

    /// Returns true if `arguments` holds a flag.
    fn gives(&self, flag: &str) -> bool {
        refused_flag(&self.arguments, &[(flag, "")]).is_some()
    }

    /// Returns the flags of every run under a load, without the server's address. `connections` is the number of all threads'
    /// connections together; flags of the file replace it.
    pub(super) fn options(&self, load: &Load, connections: usize) -> anyhow::Result<LoadOptions> {
        let mut options = LoadOptions {
            trust: TrustArguments {
                insecure: true,
                ..TrustArguments::default()
            },
            duration: Duration::from_secs_f64(self.seconds),
            warm_up: Duration::from_secs_f64(self.warm_up_seconds),
            expect_length: Some(load.bytes),
            short: load.short,
            cores: self.client_cores.clone(),
            ..LoadOptions::from_arguments(&self.arguments)?
        };
        if !self.gives(THREADS) {
            options.threads = self.client_cores.len().max(1);
        }
        if !self.gives(CONNECTIONS) {
            options.max_concurrent_conns = connections.div_ceil(options.threads).max(1);
        }
        Ok(options)
    }

    /// Sends every server `rate` requests per second, in place of a rate in `arguments`.
    pub(crate) fn set_rate(&mut self, rate: f64) {
        let mut is_value = false;
        self.arguments.retain(|word| {
            let is_rate = std::mem::replace(&mut is_value, word == "--rate");
            !is_rate && word != "--rate" && !word.starts_with("--rate=")
        });
        self.arguments.push(format!("--rate={rate}"));
    }

    pub(crate) fn check(&self) -> anyhow::Result<()> {
        contender::check(&self.server)?;
        if self.rounds == 0 || self.rounds > ROUNDS_MAX {
            bail!("rounds: expected 1 to {ROUNDS_MAX}, not {}", self.rounds);
        }
        for (name, value) in [
            ("seconds", self.seconds),
            ("warm_up_seconds", self.warm_up_seconds),
        ] {
            let least = if name == "seconds" { 0.1 } else { 0.0 };
            if !(least..=SECONDS_MAX).contains(&value) {
                bail!("{name}: expected {least} to {SECONDS_MAX} seconds, not {value}");
            }
        }
        for (number, name) in self.scenarios.iter().enumerate() {
            if Load::named(name).is_none() {
                let files = FILES.map(|(file, _)| file).join(", ");
                bail!(
                    "there is no scenario {name:?}; expected one of {files}, with -short, -resumed or -0rtt behind it for \
                     short connections"
                );
            }
            if self.scenarios[..number].contains(name) {
                bail!("scenarios: {name:?} is listed twice; remove one");
            }
        }
        if self.scenarios.is_empty() {
            bail!("scenarios: expected at least one, such as 15k");
        }
        LinkConditions::check(&self.loss, &self.round_trip_ms)?;
        contender::check_arguments(&self.arguments)?;
        if let Some((flag, instead)) = refused_flag(&self.arguments, &OWN_FLAGS) {
            bail!("arguments: {flag} is not allowed here; {instead}");
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
            bail!("port: expected 1 to 65535; leave it out for a free port");
        }
        if self.cert.is_some() != self.key.is_some() {
            bail!("cert, key: expected both, or none for a certificate made for the comparison");
        }
        for (name, file) in [("cert", &self.cert), ("key", &self.key)] {
            if let Some(file) = file.as_ref().filter(|file| !file.is_file()) {
                bail!("{name}: there is no file {}", file.display());
            }
        }
        if !self.path.starts_with('/') || !self.path.contains("{file}") {
            bail!(
                "path: expected a path that begins with / and contains {{file}}, not {:?}",
                self.path
            );
        }
        if !(0.1..=READY_SECONDS_MAX).contains(&self.ready_seconds) {
            bail!(
                "ready_seconds: expected 0.1 to {READY_SECONDS_MAX} seconds, not {}",
                self.ready_seconds
            );
        }
        Ok(())
    }

    /// Longest time from the server's start to its first response.
    pub(crate) fn ready_time(&self) -> Duration {
        Duration::from_secs_f64(self.ready_seconds)
    }

    /// Returns the URL of the requests of a load, for a server on `port`.
    pub(super) fn url(&self, load: &Load, port: u16) -> anyhow::Result<Url> {
        let path = self.path.replace("{file}", load.file);
        let url = format!("https://localhost:{port}{path}").parse();
        url.context("path")
    }
}

impl Entry for ServerEntry {
    const KIND: &'static str = "server";
    const PLACEHOLDERS: &'static [&'static str] = &[
        "{weir}", "{port}", "{cert}", "{key}", "{root}", "{folder}", "{core}",
    ];

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

/// The folder of files to serve, which exists as long as the comparison runs.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) root: PathBuf,
}

impl Files {
    /// Makes the files of all loads below `folder`.
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

/// Returns a UDP port of this machine that is free, and that no other program gets unless it asks for it: servers are started
/// on it in several rounds. It is below the ports that Linux gives to sockets without one (`ip_local_port_range`).
pub(crate) fn free_port() -> anyhow::Result<u16> {
    let first = u16::from_le_bytes(event_loop::seed()?);
    let candidates = (0..PORTS.len()).map(|step| {
        let place = (usize::from(first) + step) % PORTS.len();
        PORTS.start + u16::try_from(place).unwrap_or_default()
    });
    let is_free = |port: &u16| UdpSocket::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let mut free = candidates.filter(is_free);
    free.next().context("cannot find a free port")
}

/// The ports of servers.
const PORTS: Range<u16> = 10_000..32_768;

/// Flags of `weir h3 bench` that a comparison sets itself, and what to use instead.
const OWN_FLAGS: [(&str, &str); 14] = [
    ("--connect", "set `port` of the server"),
    ("--insecure", "set `cert` and `key` of the server"),
    ("--ca", "set `cert` and `key` of the server"),
    ("--certificate-hash", "set `cert` and `key` of the server"),
    ("--duration", "set `seconds`"),
    ("--warm-up", "set `warm_up_seconds`"),
    ("--expect-length", "set `scenarios`"),
    ("--short", "set `scenarios`"),
    ("--core", "set `client_cores`"),
    ("--cores", "set `client_cores`"),
    ("--server-pid", STARTED),
    ("--server-process", STARTED),
    ("--json", "use the flag --json of `weir h3 compare`"),
    ("--html", "use the flag --html of `weir h3 compare`"),
];
const STARTED: &str = "leave it out: the processes that `start` begins are watched";
const THREADS: &str = "--threads";
const CONNECTIONS: &str = "--max-concurrent-conns";
/// Flags that say how much load there is, so that no search for it makes sense.
const FIXING_FLAGS: [&str; 4] = [
    CONNECTIONS,
    "--max-concurrent-requests",
    "--max-requests-per-thread",
    "--rate",
];
pub(crate) const ROUNDS_MAX: u32 = 50;
const SECONDS_MAX: f64 = 600.0;
const READY_SECONDS_MAX: f64 = 120.0;

#[cfg(test)]
mod tests {
    use super::{super::plan::Handshake, *};

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
        assert!(problem(&format!("{SERVER}{SERVER}")).contains("\"a\" is listed twice"));
        let twice = problem(&format!("scenarios = [\"1k\", \"1k\"]\n{SERVER}"));
        assert!(twice.contains("\"1k\" is listed twice"));
        for name in ["3k", "1k-slow", "-short", ""] {
            let error = problem(&format!("scenarios = [\"{name}\"]\n{SERVER}"));
            assert!(error.contains("expected one of 1k, 5k"), "{error}");
        }
        let none = SERVER.replace("[\"a\"]", "[]");
        assert!(problem(&none).contains("server \"a\": start: expected"));
        let unknown = problem(&SERVER.replace("[\"a\"]", "[\"a\", \"--root={rot}\"]"));
        let expected =
            "server \"a\": start: there is no placeholder {rot}; expected one of {weir}, {port}";
        assert!(unknown.contains(expected), "{unknown}");
        let joined = problem(&format!("arguments = [\"--rate 5\"]\n{SERVER}"));
        let expected =
            "arguments: expected a flag and its value as two elements, \"--rate\", \"5\"";
        assert!(joined.contains(expected), "{joined}");
        let path = format!("{SERVER}path = \"x\"\n");
        assert!(problem(&path).contains("{file}"));
        let error = problem(&format!("{SERVER}port = 0\n"));
        assert!(error.contains("server \"a\": port: expected 1"), "{error}");
        assert!(problem(&format!("{SERVER}port = 65536\n")).contains("65536"));
        let error = problem(&format!("{SERVER}cert = \"a\"\n"));
        assert!(error.contains("expected both, or none"), "{error}");
        let error = problem(&format!("{SERVER}cert = \"/\"\nkey = \"/\"\n"));
        assert!(error.contains("cert: there is no file /"), "{error}");
        for (flag, _) in OWN_FLAGS {
            for argument in [flag.to_owned(), format!("{flag}=20")] {
                let error = problem(&format!("arguments = [\"{argument}\"]\n{SERVER}"));
                let expected = format!("arguments: {flag} is not allowed here");
                assert!(error.contains(&expected), "{error}");
            }
        }
    }

    #[test]
    fn a_run_has_the_flags_that_the_file_gives() {
        let text = format!(
            "warm_up_seconds = 0.25\nclient_cores = [3]\narguments = [\"--no-gro\"]\n{SERVER}"
        );
        let described: ServerFile = toml::from_str(&text).unwrap();
        let options = |load: &str| {
            let load = Load::named(load).unwrap();
            described.options(&load, load.connections()).unwrap()
        };
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
    fn a_rate_replaces_that_of_the_file() {
        for rate in ["\"--rate\", \"7\",", "\"--rate=7\",", ""] {
            let text = format!("arguments = [{rate} \"--no-gro\"]\n{SERVER}");
            let mut described: ServerFile = toml::from_str(&text).unwrap();
            described.set_rate(2000.0);
            assert_eq!(described.arguments, ["--no-gro", "--rate=2000"]);
            let load = Load::named("15k").unwrap();
            assert!(!described.sweeps());
            let options = described.options(&load, 25).unwrap();
            assert_eq!(options.rate, Some(2000.0));
        }
    }

    #[test]
    fn connections_are_shared_by_threads_unless_flags_say_how_many() {
        let read = |head: &str| toml::from_str::<ServerFile>(&format!("{head}\n{SERVER}")).unwrap();
        let load = Load::named("15k").unwrap();
        let two = read("client_cores = [1, 2]");
        let options = two.options(&load, 25).unwrap();
        assert_eq!((options.threads, options.max_concurrent_conns), (2, 13));
        assert!(two.sweeps());
        let given = read(
            "client_cores = [1, 2]\narguments = [\"--threads\", \"3\", \"--max-concurrent-conns=7\", \
             \"--max-concurrent-requests\", \"4\"]",
        );
        given.check().unwrap();
        let options = given.options(&load, 25).unwrap();
        assert_eq!((options.threads, options.max_concurrent_conns), (3, 7));
        assert_eq!(options.max_concurrent_requests, 4);
        assert!(!given.sweeps());
        assert!(!read("arguments = [\"--rate=100\"]").sweeps());
        assert!(!read("sweep = false").sweeps());
    }

    #[test]
    fn scenarios_run_over_each_link() {
        let text =
            format!("scenarios = [\"1k\"]\nloss = [0, 0.01]\nround_trip_ms = [0, 40]\n{SERVER}");
        let described: ServerFile = toml::from_str(&text).unwrap();
        described.check().unwrap();
        let loads = described.loads();
        let names: Vec<&str> = loads.iter().map(|load| load.name.as_str()).collect();
        let expected = [
            "1k",
            "1k, round trip 40 ms",
            "1k, loss 1 %",
            "1k, loss 1 %, round trip 40 ms",
        ];
        assert_eq!(names, expected);
        assert!(!described.sweeps());
        for wrong in [
            "loss = [1.5]",
            "loss = [0.01, 0.01]",
            "round_trip_ms = [7200001]",
        ] {
            let error = problem(&format!("{wrong}\n{SERVER}"));
            assert!(error.contains("expected"), "{error}");
        }
        for wrong in ["loss = 0.01", "round_trip_ms = 50"] {
            let error = problem(&format!("{wrong}\n{SERVER}"));
            let is_named = error.contains("line 1") && error.contains(wrong);
            assert!(is_named && error.contains("in brackets"), "{error}");
        }
    }

    #[test]
    fn the_example_is_right() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../profiles/contenders.toml"
        );
        let described = ServerFile::read(Path::new(file)).unwrap();
        let names: Vec<&str> = described
            .server
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        for name in ["weir", "nginx", "LSQUIC", "tokio-quiche"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        assert!(names.len() > 6, "six servers besides ours: {names:?}");
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
