//! Relays that a file describes: how each is started, reached and stopped.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use weir_bench::limits::DURATION_MAX;
use weir_net::{Stop, clock, pin_to_core};

use super::children::Registered;

/// What is compared, as the file says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Described {
    /// The profile, seen from the file's folder.
    pub(crate) profile: PathBuf,
    /// Subscribers of each run, unless its arguments ask for meetings.
    pub(crate) subscribers: Option<usize>,
    /// Runs of each relay that count.
    #[serde(default = "repeats")]
    pub(crate) repeats: u32,
    /// Seconds of a run before them that does not count; 0 for none.
    #[serde(default = "warm_up_seconds")]
    pub(crate) warm_up_seconds: u64,
    /// Seconds that a run sends; the profile's own time if it is not given.
    pub(crate) seconds: Option<u64>,
    /// What has to hold.
    pub(crate) slo: Option<String>,
    /// Further arguments of `weir bench`.
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    /// How --find-max searches.
    #[serde(default)]
    pub(crate) find_max: DescribedSearch,
    /// The relays.
    pub(crate) relay: Vec<DescribedRelay>,
}

/// How the limits of the relays are searched.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DescribedSearch {
    /// The profiles, seen from the file's folder; the file's one if none is named.
    pub(crate) profiles: Vec<PathBuf>,
    /// What has to hold; as for single runs if it is not given.
    pub(crate) slo: Option<String>,
    /// Subscribers of the first probe.
    pub(crate) from: u64,
    /// Subscribers at most.
    pub(crate) most: u64,
    /// How close the two sides of the boundary have to come, in per cent.
    pub(crate) precision: u64,
    /// Probes of each side of the boundary.
    pub(crate) repeats: u32,
    /// How many of them have to hold.
    pub(crate) needed: u32,
    /// Seconds that a probe sends and is judged by.
    pub(crate) steady_seconds: u64,
    /// Seconds after which a search begins no further probe.
    pub(crate) search_seconds: u64,
}

impl Default for DescribedSearch {
    fn default() -> Self {
        Self {
            profiles: Vec::new(),
            slo: None,
            from: 100,
            most: 10_000,
            precision: 10,
            repeats: 2,
            needed: 2,
            steady_seconds: 5,
            search_seconds: 210,
        }
    }
}

/// One relay.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DescribedRelay {
    pub(crate) name: String,
    /// Program and arguments; `{weir}`, `{cert}`, `{key}` and `{core}` are filled in.
    pub(crate) start: Vec<String>,
    /// Where it is reached.
    pub(crate) url: String,
    /// Core that it runs on.
    pub(crate) core: Option<usize>,
    /// Drafts that it may be measured with, by their ALPN; any if none is named.
    #[serde(default)]
    pub(crate) drafts: Vec<String>,
    /// As --publish-flow.
    pub(crate) publish_flow: Option<String>,
    /// Program and arguments that print its version.
    #[serde(default)]
    pub(crate) version: Vec<String>,
    /// What to call the version where no program prints it.
    pub(crate) version_text: Option<String>,
    /// Load of the first probe of a search; that of `[find_max]` if none is given.
    pub(crate) from: Option<u64>,
    /// Further arguments of `weir bench` for this relay.
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    /// From its start to the first connection.
    #[serde(default = "ready_ms")]
    pub(crate) ready_ms: u64,
}

fn repeats() -> u32 {
    5
}

fn warm_up_seconds() -> u64 {
    2
}

fn ready_ms() -> u64 {
    1000
}

impl Described {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or something in it is wrong; the error says where.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let name = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("{name}: cannot be read"))?;
        let described: Self = toml::from_str(&text).with_context(|| name.to_string())?;
        described.check().with_context(|| name.to_string())?;
        Ok(described)
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.relay.is_empty() || self.relay.len() > RELAYS_MAX {
            bail!("relay: expected 1 to {RELAYS_MAX} of them");
        }
        if self.repeats == 0 || self.repeats > REPEATS_MAX {
            bail!("repeats: expected 1 to {REPEATS_MAX}");
        }
        for (key, seconds) in [
            ("seconds", self.seconds.unwrap_or_default()),
            ("warm_up_seconds", self.warm_up_seconds),
            ("find_max.steady_seconds", self.find_max.steady_seconds),
        ] {
            let most = DURATION_MAX.as_secs();
            if seconds > most {
                bail!("{key}: expected at most {most}, not {seconds}");
            }
        }
        let search = &self.find_max;
        if search.steady_seconds == 0 || search.repeats == 0 || search.needed > search.repeats {
            bail!(
                "find_max: expected steady_seconds and repeats of at least 1, and needed up to repeats"
            );
        }
        for (number, relay) in self.relay.iter().enumerate() {
            let name = &relay.name;
            if self.relay[..number].iter().any(|one| one.name == *name) {
                bail!("relay {name:?} stands twice");
            }
            if relay.start.is_empty() {
                bail!("relay {name:?}: start: expected a program and its arguments");
            }
            for draft in &relay.drafts {
                if !super::protocols().contains(&draft.as_str()) {
                    let known = super::protocols().join(", ");
                    bail!("relay {name:?}: drafts: {draft:?} is none that weir speaks ({known})");
                }
            }
        }
        Ok(())
    }
}

/// What start commands may refer to: a certificate, made for this comparison and gone after it.
#[derive(Debug)]
pub(crate) struct Workplace {
    folder: PathBuf,
}

impl Workplace {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let number = format!(
            "weir-{}-{}",
            std::process::id(),
            clock::since_epoch().as_nanos()
        );
        let place = Self {
            folder: std::env::temp_dir().join(number),
        };
        fs::create_dir(&place.folder)
            .and_then(|()| fs::create_dir(place.tls()))
            .context("cannot make a folder for certificates")?;
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let made =
            rcgen::generate_simple_self_signed(names).context("cannot make a certificate")?;
        fs::write(place.certificate(), made.cert.pem())
            .and_then(|()| fs::write(place.key(), made.signing_key.serialize_pem()))
            .context("cannot write a certificate")?;
        Ok(place)
    }

    /// The folder itself, for whatever else start commands refer to.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where certificates lie and nothing else: a relay that watches the folder of its certificate, to load it again,
    /// would otherwise see each line of its own log as a change, and do little else.
    fn tls(&self) -> PathBuf {
        self.folder.join("tls")
    }

    fn certificate(&self) -> PathBuf {
        self.tls().join("certificate.pem")
    }

    fn key(&self) -> PathBuf {
        self.tls().join("key.pem")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("relay.log")
    }

    /// A command with its places filled in, `more` of them besides the usual ones.
    pub(crate) fn command(
        &self,
        words: &[String],
        core: Option<usize>,
        more: &[(&str, String)],
    ) -> anyhow::Result<Command> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let fill = |word: &String| {
            let word = more.iter().fold(word.clone(), |word, (place, value)| {
                word.replace(place, value)
            });
            word.replace("{weir}", &program.to_string_lossy())
                .replace("{cert}", &self.certificate().to_string_lossy())
                .replace("{key}", &self.key().to_string_lossy())
                .replace(
                    "{core}",
                    &core.map_or_else(String::new, |core| core.to_string()),
                )
        };
        let mut words = words.iter().map(fill);
        let mut command = Command::new(words.next().context("an empty command")?);
        command.args(words).stdin(Stdio::null());
        Ok(command)
    }

    /// The first line that the version command of a relay prints.
    pub(crate) fn version(&self, relay: &DescribedRelay) -> anyhow::Result<Option<String>> {
        if relay.version.is_empty() {
            return Ok(relay.version_text.clone());
        }
        self.first_line(&relay.version)
            .with_context(|| format!("{}: {:?} cannot be run", relay.name, relay.version[0]))
    }

    /// The first line that a command prints, cut to what fits a table.
    pub(crate) fn first_line(&self, words: &[String]) -> anyhow::Result<Option<String>> {
        let output = self.command(words, None, &[])?.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line: String = text
            .lines()
            .next()
            .unwrap_or("")
            .trim()
            .chars()
            .take(80)
            .collect();
        Ok((!line.is_empty()).then_some(line))
    }

    /// Starts a relay on its core and gives it the time it needs; none if `stop` was requested meanwhile.
    pub(crate) fn start(
        &self,
        relay: &DescribedRelay,
        stop: &Stop,
    ) -> anyhow::Result<Option<StartedRelay>> {
        let command = self.command(&relay.start, relay.core, &[])?;
        let mut started = self
            .launch(command, relay.core)
            .with_context(|| format!("{}: {:?} cannot be started", relay.name, relay.start[0]))?;
        if stop.wait(Duration::from_millis(relay.ready_ms)) {
            return Ok(None);
        }
        if let Some(end) = self.end_of(&mut started) {
            bail!("{}: ended at once {end}", relay.name);
        }
        Ok(Some(started))
    }

    /// Starts a command on its core.
    pub(crate) fn launch(
        &self,
        mut command: Command,
        core: Option<usize>,
    ) -> anyhow::Result<StartedRelay> {
        let log = File::create(self.log()).context("cannot write its log")?;
        command.stdout(Stdio::null()).stderr(log);
        // A group of its own: a signal from the terminal does not reach it, and what it starts ends with it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = spawn_on(command, core)?;
        let group = Registered::new(child.id());
        Ok(StartedRelay { child, group })
    }

    /// How the last one that was started has ended, with its last words; none if it runs.
    pub(crate) fn end_of(&self, started: &mut StartedRelay) -> Option<String> {
        let status = started.child.try_wait().ok()??;
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.map_or_else(String::new, |last| format!(": {last}"));
        Some(format!("({status}){last}"))
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // The system clears its folder for such files anyway.
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// A relay that runs. When dropped, it and all that it started are ended.
#[derive(Debug)]
pub(crate) struct StartedRelay {
    child: Child,
    group: Registered,
}

impl StartedRelay {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for StartedRelay {
    fn drop(&mut self) {
        self.group.terminate();
        let give_up = clock::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && clock::now() < give_up {
            drop(Stop::new().map(|stop| stop.wait(STEP)));
        }
        // What it has started may have stayed, although it is gone itself.
        self.group.kill();
        drop(self.child.wait());
    }
}

/// A child begins on the core of the thread that starts it, and the threads that it starts stay there.
fn spawn_on(mut command: Command, core: Option<usize>) -> anyhow::Result<Child> {
    let Some(core) = core else {
        return Ok(command.spawn()?);
    };
    let work = move || -> anyhow::Result<Child> {
        pin_to_core(core).with_context(|| format!("cannot run on core {core}"))?;
        Ok(command.spawn()?)
    };
    let thread = std::thread::Builder::new().spawn(work)?;
    thread
        .join()
        .map_err(|_| anyhow::anyhow!("the thread that starts it panicked"))?
}

/// More than a table is read for.
const RELAYS_MAX: usize = 32;
/// As many as the test of significance counts exactly.
const REPEATS_MAX: u32 = 50;
/// How long a relay may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        let parsed = toml::from_str::<Described>(text).map_err(anyhow::Error::from);
        let error = parsed.and_then(|file| file.check());
        format!("{:#}", error.unwrap_err())
    }

    const HEAD: &str = "profile = \"a.ini\"\nsubscribers = 10\n";
    const RELAY: &str = "[[relay]]\nname = \"a\"\nstart = [\"a\"]\nurl = \"moqt://127.0.0.1:1\"\n";

    #[test]
    fn files_that_are_wrong_are_named_with_the_place() {
        let text = format!("{HEAD}repeat = 3\n{RELAY}");
        let error = problem(&text);
        assert!(
            error.contains("line 3") && error.contains("repeat"),
            "{error}"
        );
        assert!(problem(&format!("{HEAD}relay = []\n")).contains("expected 1 to 32"));
        assert!(problem(&format!("{HEAD}repeats = 0\n{RELAY}")).contains("repeats: expected"));
        assert!(problem(&format!("{HEAD}{RELAY}{RELAY}")).contains("relay \"a\" stands twice"));
        let draft = format!("{HEAD}{RELAY}drafts = [\"moqt-99\"]\n");
        assert!(problem(&draft).contains("\"moqt-99\" is none that weir speaks"));
        let empty = format!("{HEAD}{RELAY}").replace("[\"a\"]", "[]");
        assert!(problem(&empty).contains("start: expected a program"));
    }

    #[test]
    fn seconds_at_the_limit_of_a_profile_and_past_it() {
        let check = |head: &str, search: &str| {
            let text = format!("{HEAD}{head}\n{RELAY}[find_max]\n{search}\n");
            let described: Described = toml::from_str(&text).unwrap();
            described.check().map_err(|error| error.to_string())
        };
        let most = DURATION_MAX.as_secs();
        let past = most + 1;
        for key in ["seconds", "warm_up_seconds"] {
            assert_eq!(check(&format!("{key} = {most}"), ""), Ok(()));
            for seconds in [past, i64::MAX.unsigned_abs()] {
                let error = format!("{key}: expected at most {most}, not {seconds}");
                assert_eq!(check(&format!("{key} = {seconds}"), ""), Err(error));
            }
        }
        let search = |seconds: u64| check("", &format!("steady_seconds = {seconds}"));
        assert_eq!(search(most), Ok(()));
        let error = format!("find_max.steady_seconds: expected at most {most}, not {past}");
        assert_eq!(search(past), Err(error));
    }

    #[test]
    fn the_examples_are_right() {
        let profiles = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles"));
        for (file, relays) in [("relays.toml", 3), ("wires.toml", 4)] {
            let described = Described::read(&profiles.join(file)).unwrap();
            assert_eq!(described.relay.len(), relays);
            assert!(profiles.join(described.profile).exists());
        }
    }

    #[test]
    fn a_relay_that_ends_at_once_is_reported_with_its_last_words() {
        let place = Workplace::new().unwrap();
        let mut relay: DescribedRelay = toml::from_str(
            "name = \"x\"\nstart = [\"sh\", \"-c\", \"echo no such key: {key} >&2; exit 3\"]\nurl = \"\"\n",
        )
        .unwrap();
        let stop = Stop::new().unwrap();
        // A busy machine needs longer to start it and to end it.
        let error = [300, 3_000, 30_000].into_iter().find_map(|ready_ms| {
            relay.ready_ms = ready_ms;
            place.start(&relay, &stop).err()
        });
        let error = format!("{:#}", error.unwrap());
        assert!(
            error.contains("ended at once") && error.contains("key.pem"),
            "{error}"
        );
        relay.start = vec!["no-such-program-here".to_owned()];
        let error = format!("{:#}", place.start(&relay, &stop).unwrap_err());
        assert!(
            error.contains("\"no-such-program-here\" cannot be started"),
            "{error}"
        );
        relay.start = ["sh", "-c", "sleep 60 & sleep 60"]
            .map(str::to_owned)
            .to_vec();
        let started = place.start(&relay, &stop).unwrap().unwrap();
        let pid = started.pid();
        drop(started);
        assert!(super::super::process::usage(pid).is_err());
    }
}
