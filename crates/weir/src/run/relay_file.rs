//! The file of `weir bench compare`: the relays to compare, and the load.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use weir_bench::limits::DURATION_MAX;

use super::{options::Flow, preset::Preset};
use crate::{
    file_kind::Kind,
    harness::contender::{self, Contender, Entry},
};

/// The content of the file.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct RelayFile {
    /// The benchmark profile, relative to the TOML file.
    pub(crate) profile: PathBuf,
    /// Subscribers of each run. Default: those of `arguments`.
    pub(crate) subscribers: Option<usize>,
    /// Measured runs of each relay, 1 to 50; fewer than four cannot show a difference.
    #[serde(default = "repeats")]
    pub(crate) repeats: u32,
    /// Seconds of the run before each of these, which is not measured; 0 for none.
    #[serde(default = "warm_up_seconds")]
    pub(crate) warm_up_seconds: u64,
    /// Seconds that a run sends. Default: those of the profile.
    pub(crate) seconds: Option<u64>,
    /// The service level. Default: that of `weir bench`.
    pub(crate) slo: Option<String>,
    /// More flags of `weir bench`, for all relays. Default: none.
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    /// The search of --find-max.
    #[serde(default)]
    pub(crate) find_max: SearchTable,
    /// The relays, 1 to 32.
    pub(crate) relay: Vec<RelayEntry>,
}

/// The search of --find-max.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SearchTable {
    /// Profiles of the searches, relative to the TOML file. Default: `profile`.
    pub(crate) profiles: Vec<PathBuf>,
    /// The service level. Default: `slo` of the comparison.
    pub(crate) slo: Option<String>,
    /// Subscribers of the first probe.
    pub(crate) from: u64,
    /// Largest number of subscribers to try.
    pub(crate) most: u64,
    /// Largest difference at the end between the load that held and the load that broke, in per cent.
    pub(crate) precision: u64,
    /// Probes of the load that held, and of the load that broke.
    pub(crate) repeats: u32,
    /// Number of `repeats` that must hold, so that the load counts as held.
    pub(crate) needed: u32,
    /// Seconds of a probe that the service level judges.
    pub(crate) steady_seconds: u64,
    /// Time limit of a search in seconds: no probe starts that would likely end later.
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct RelayEntry {
    /// Name of the relay in tables.
    pub(crate) name: String,
    /// The relay's make, for its known quirks: the default of `drafts` and `publish_flow`, and a note below the table.
    /// Default: none.
    pub(crate) preset: Option<Preset>,
    /// Program and arguments, with placeholders. Default: the relay runs already, on this machine or another one.
    pub(crate) start: Option<Vec<String>>,
    /// URL of the relay, as for `weir bench --relay`.
    pub(crate) url: String,
    /// Core of the relay. Default: any.
    pub(crate) core: Option<usize>,
    /// Drafts that clients offer, by their ALPN; a relay that speaks none of them fails its run. Default: all.
    #[serde(default)]
    pub(crate) drafts: Vec<String>,
    /// Value of `--publish-flow`. Default: that of `arguments`, otherwise `namespace`.
    pub(crate) publish_flow: Option<Flow>,
    /// Program and arguments whose first line of output is the version. Default: none.
    #[serde(default)]
    pub(crate) version: Vec<String>,
    /// The version, if no program prints it. Default: what the relay says in SETUP.
    pub(crate) version_text: Option<String>,
    /// Load of the first probe of a search. Default: that of `[find_max]`.
    pub(crate) from: Option<u64>,
    /// More flags of `weir bench`, for this relay. Default: none.
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    /// Time from the relay's start to the first connection, in milliseconds; before each run of one that runs already.
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
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, or a value is wrong; the error names the place.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let described: Self = contender::read(file, Kind::Relays)?;
        let checked = described.check();
        checked.with_context(|| file.display().to_string())?;
        Ok(described)
    }

    fn check(&self) -> anyhow::Result<()> {
        contender::check(&self.relay)?;
        contender::check_arguments(&self.arguments)?;
        for relay in &self.relay {
            let checked = contender::check_arguments(&relay.arguments);
            checked.with_context(|| format!("relay {:?}", relay.name))?;
        }
        if self.repeats == 0 || self.repeats > REPEATS_MAX {
            bail!("repeats: expected 1 to {REPEATS_MAX}, not {}", self.repeats);
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
                "[find_max]: expected steady_seconds of 1 or more, repeats of 1 or more, and needed of at most repeats"
            );
        }
        let known = super::protocols();
        for relay in &self.relay {
            let (name, mut drafts) = (&relay.name, relay.drafts.iter());
            if let Some(draft) = drafts.find(|draft| !known.contains(&draft.as_str())) {
                let known = known.join(", ");
                bail!("relay {name:?}: drafts: weir has no {draft:?}; expected one of {known}");
            }
        }
        Ok(())
    }
}

impl RelayEntry {
    /// Returns the drafts that clients offer; empty: all.
    pub(crate) fn offered_drafts(&self) -> Vec<&str> {
        if let (true, Some(preset)) = (self.drafts.is_empty(), self.preset) {
            return preset.quirks().drafts.to_vec();
        }
        self.drafts.iter().map(String::as_str).collect()
    }

    /// Returns how publishers offer their tracks, if the entry or its preset says so.
    pub(crate) fn flow(&self) -> Option<Flow> {
        let of_preset = || self.preset.and_then(|preset| preset.quirks().publish_flow);
        self.publish_flow.or_else(of_preset)
    }

    /// Returns what a reader of the table has to know of the relay.
    pub(crate) fn note(&self) -> Option<String> {
        let preset = self.preset.map(|preset| preset.quirks().note);
        let preset = preset.filter(|note| !note.is_empty());
        let running = self
            .start
            .is_none()
            .then_some("ran already; weir did not start it");
        let notes: Vec<&str> = preset.into_iter().chain(running).collect();
        (!notes.is_empty()).then(|| format!("{}: {}.", self.name, notes.join("; ")))
    }

    /// Returns the time from the relay's start to the first connection.
    pub(crate) fn ready_time(&self) -> Duration {
        Duration::from_millis(self.ready_ms)
    }
}

impl Entry for RelayEntry {
    const KIND: &'static str = "relay";
    const PLACEHOLDERS: &'static [&'static str] = &["{weir}", "{cert}", "{key}", "{core}"];

    fn contender(&self) -> Contender {
        Contender {
            name: self.name.clone(),
            start: self.start.clone().unwrap_or_default(),
            core: self.core,
            version: self.version.clone(),
            version_text: self.version_text.clone(),
            certificate: None,
        }
    }

    fn runs_already(&self) -> bool {
        self.start.is_none()
    }
}

/// The test of significance is exact up to this number.
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
        assert!(problem(&format!("{HEAD}{RELAY}{RELAY}")).contains("relay \"a\" is listed twice"));
        let draft = format!("{HEAD}{RELAY}drafts = [\"moqt-99\"]\n");
        assert!(problem(&draft).contains("weir has no \"moqt-99\""));
        let joined = format!("{HEAD}{RELAY}arguments = [\"--wire qperf\"]\n");
        let expected = "relay \"a\": arguments: expected a flag and its value as two elements";
        assert!(problem(&joined).contains(expected));
        let unknown = format!("{HEAD}{RELAY}").replace("[\"a\"]", "[\"a\", \"{port}\"]");
        let expected = "relay \"a\": start: there is no placeholder {port}; expected one of {weir}, {cert}, {key}, {core}";
        assert!(problem(&unknown).contains(expected));
        let empty = format!("{HEAD}{RELAY}").replace("[\"a\"]", "[]");
        assert!(problem(&empty).contains("start: expected a program"));
        let preset = format!("{HEAD}{RELAY}preset = \"lapse\"\n");
        assert!(problem(&preset).contains("unknown variant `lapse`"));
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
    fn a_preset_says_what_the_entry_does_not() {
        let text = |more: &str| format!("{HEAD}{RELAY}preset = \"moq-relay-ietf\"\n{more}");
        let relay = |more: &str| {
            let described: RelayFile = toml::from_str(&text(more)).unwrap();
            described.check().unwrap();
            described.relay[0].clone()
        };
        let preset = relay("");
        assert_eq!(preset.offered_drafts(), ["moqt-18"]);
        assert_eq!(preset.flow(), Some(Flow::Namespace));
        assert!(preset.note().unwrap().starts_with("a: keeps only"));
        assert_eq!(
            relay("publish_flow = \"publish\"\n").flow(),
            Some(Flow::Publish)
        );
        let running = text("").replace("start = [\"a\"]\n", "");
        let running: RelayFile = toml::from_str(&running).unwrap();
        running.check().unwrap();
        assert!(
            running.relay[0]
                .note()
                .unwrap()
                .ends_with("ran already; weir did not start it.")
        );
    }

    #[test]
    fn the_examples_are_right() {
        let profiles = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles"));
        for (file, relays) in [
            ("relays.toml", 3),
            ("wires.toml", 4),
            ("audiences.toml", 10),
            ("drafts.toml", 2),
            ("laps.toml", 2),
        ] {
            let described = RelayFile::read(&profiles.join(file)).unwrap();
            assert_eq!(described.relay.len(), relays);
            assert!(profiles.join(described.profile).exists());
        }
    }
}
