//! The file of `weir bench compare`: which relays are compared, and under which load.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use weir_bench::limits::DURATION_MAX;

use super::options::Flow;
use crate::harness::contender::{self, Contender, Entry};

/// What is compared, as the file says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RelayFile {
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
    pub(crate) find_max: SearchTable,
    /// The relays.
    pub(crate) relay: Vec<RelayEntry>,
}

/// How the limits of the relays are searched.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SearchTable {
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

impl Default for SearchTable {
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
pub(crate) struct RelayEntry {
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
    pub(crate) publish_flow: Option<Flow>,
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

impl RelayFile {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or something in it is wrong; the error says where.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let described: Self = contender::read(file)?;
        let checked = described.check();
        checked.with_context(|| file.display().to_string())?;
        Ok(described)
    }

    fn check(&self) -> anyhow::Result<()> {
        contender::check(&self.relay)?;
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
        let known = super::protocols();
        for RelayEntry { name, drafts, .. } in &self.relay {
            if let Some(draft) = drafts.iter().find(|draft| !known.contains(&draft.as_str())) {
                let known = known.join(", ");
                bail!("relay {name:?}: drafts: {draft:?} is none that weir speaks ({known})");
            }
        }
        Ok(())
    }
}

impl RelayEntry {
    /// From the start of the relay to the first connection.
    pub(crate) fn ready_time(&self) -> Duration {
        Duration::from_millis(self.ready_ms)
    }
}

impl Entry for RelayEntry {
    const KIND: &'static str = "relay";

    fn contender(&self) -> Contender {
        Contender {
            name: self.name.clone(),
            start: self.start.clone(),
            core: self.core,
            version: self.version.clone(),
            version_text: self.version_text.clone(),
            certificate: None,
        }
    }
}

/// As many as the test of significance counts exactly.
pub(crate) const REPEATS_MAX: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        let parsed = toml::from_str::<RelayFile>(text).map_err(anyhow::Error::from);
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
            let described: RelayFile = toml::from_str(&text).unwrap();
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
            let described = RelayFile::read(&profiles.join(file)).unwrap();
            assert_eq!(described.relay.len(), relays);
            assert!(profiles.join(described.profile).exists());
        }
    }
}
