//! Rounds of `weir bench compare`: each round starts each relay, warms it up, measures it, and ends it.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use weir_bench::profile::load;
use weir_net::Stop;
use weir_report::{
    comparison::relays::{Comparison, Entry},
    relay::{Report, live_view::Moment},
    search::{self, Probe},
};

use super::{
    Plan, RelayChoice, TrustArguments,
    options::RunOptions,
    relay_file::{RelayEntry, RelayFile},
    remote::Fleet,
};
use crate::{
    harness::{
        child::ChildGroup,
        contender::{Entry as _, refused_flag},
        machine::Machine,
        rounds::{Turn, take_turns},
        workplace::Workplace,
    },
    output::print_line,
    progress::Progress,
};

/// The relays of a file, with the flags of their runs.
pub(super) struct Relays {
    pub(super) file: RelayFile,
    /// The file's folder: profiles are relative to it.
    folder: PathBuf,
    pub(super) machine: Machine,
    place: Workplace,
    /// The flags of each relay's runs.
    options: Vec<RunOptions>,
    /// Agents on other hosts that make the load.
    fleet: Option<Fleet>,
    /// The version of each relay; empty if unknown.
    pub(super) versions: Vec<String>,
    /// Cores that two processes share, in words.
    core_problems: BTreeSet<String>,
}

impl Relays {
    /// Checks all runs of `profiles` before the first relay is started. `slo` and `subscribers` override the file's
    /// `arguments`.
    pub(super) fn new(
        file: RelayFile,
        folder: &Path,
        profiles: &[PathBuf],
        (slo, subscribers): (Option<&str>, Option<usize>),
        fleet: Option<Fleet>,
    ) -> anyhow::Result<Self> {
        let mut relays = Self {
            fleet,
            folder: folder.to_owned(),
            machine: Machine::this(),
            place: Workplace::new()?,
            options: Vec::new(),
            versions: Vec::new(),
            core_problems: BTreeSet::new(),
            file,
        };
        for (number, relay) in relays.file.relay.iter().enumerate() {
            let version = relays.place.version(&relay.contender());
            let version = version.with_context(|| relay.name.clone())?;
            relays.versions.push(version.unwrap_or_default());
            let options = options(&relays.file, relay, slo, subscribers);
            relays.options.push(options.with_context(|| named(relay))?);
            for profile in profiles {
                let plan = relays.plan(
                    number,
                    profile,
                    relay.start.is_some().then(std::process::id),
                )?;
                let problem = super::cores(&plan, &relays.machine).problem();
                let problem = problem.map(|problem| format!("{}: {problem}", relay.name));
                relays.core_problems.extend(problem);
            }
        }
        for problem in &relays.core_problems {
            print_line(&format!("weir: {problem}"));
        }
        Ok(relays)
    }

    /// Returns the plan of a run of relay `number`, whose process is `pid` if the comparison starts it.
    pub(super) fn plan(
        &self,
        number: usize,
        profile: &Path,
        pid: Option<u32>,
    ) -> anyhow::Result<Plan> {
        let relay = &self.file.relay[number];
        let mut options = self.options[number].clone();
        options.relay_pid = pid.or(options.relay_pid);
        let plan = || -> anyhow::Result<Plan> {
            let mut plan = options.plan(
                &self.folder.join(profile),
                &self.machine,
                self.fleet.as_ref(),
            )?;
            plan.check_both_sides()?;
            let offered = relay.offered_drafts();
            plan.drafts
                .retain(|draft| offered.is_empty() || offered.contains(draft));
            Ok(plan)
        };
        plan().with_context(|| named(relay))
    }

    /// Starts a relay that does not run yet, and waits until it is ready.
    pub(super) fn start(&self, number: usize, stop: &Stop) -> anyhow::Result<Started> {
        start(&self.place, &self.file.relay[number], stop)
    }

    /// Returns the notes below a table of these relays: the machine, `setting`, quirks of relays, and problems with cores.
    pub(super) fn notes(&self, setting: String) -> Vec<String> {
        let problems = self.core_problems.iter();
        let problems = problems.map(|problem| format!("{problem}."));
        let machine = self.machine.words();
        let quirks = self.file.relay.iter().filter_map(RelayEntry::note);
        let notes = [machine, setting].into_iter().chain(quirks);
        notes.chain(problems).collect()
    }
}

fn named(relay: &RelayEntry) -> String {
    format!("relay {:?}", relay.name)
}

/// A relay that a run can begin with.
pub(super) enum Started {
    /// The comparison has started its process.
    Here(ChildGroup),
    /// It ran already.
    Elsewhere,
    /// The user has stopped the comparison meanwhile.
    Interrupted,
}

impl Started {
    /// Returns the relay's process, if the comparison has started it.
    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            Self::Here(child) => Some(child.pid()),
            Self::Elsewhere | Self::Interrupted => None,
        }
    }
}

fn start(place: &Workplace, relay: &RelayEntry, stop: &Stop) -> anyhow::Result<Started> {
    if relay.start.is_none() {
        let is_stopped = stop.wait(relay.ready_time());
        return Ok(if is_stopped {
            Started::Interrupted
        } else {
            Started::Elsewhere
        });
    }
    let started = place.start(&relay.contender(), &[]);
    let mut started = started.with_context(|| relay.name.clone())?;
    if stop.wait(relay.ready_time()) {
        return Ok(Started::Interrupted);
    }
    if let Some(end) = place.end_of(&mut started) {
        bail!("{}: the relay ended at once {end}", relay.name);
    }
    Ok(Started::Here(started))
}

/// Returns the flags of every run of a relay.
fn options(
    file: &RelayFile,
    relay: &RelayEntry,
    slo: Option<&str>,
    subscribers: Option<usize>,
) -> anyhow::Result<RunOptions> {
    let mut refused = OWN_FLAGS.to_vec();
    for (is_given, flags) in [
        (relay.start.is_some(), &STARTED_FLAGS[..]),
        (relay.flow().is_some(), &FLOW_FLAGS),
        (relay.core.is_some(), &CORE_FLAGS),
        (slo.is_some(), &SLO_FLAGS),
        (subscribers.is_some(), &SUBSCRIBERS_FLAGS),
    ] {
        refused.extend(flags.iter().filter(|_| is_given));
    }
    for (arguments, whose) in [(&file.arguments, " of all relays"), (&relay.arguments, "")] {
        if let Some((flag, instead)) = refused_flag(arguments, &refused) {
            bail!("arguments{whose}: {flag} is not allowed here; {instead}");
        }
    }
    let arguments = [&file.arguments[..], &relay.arguments].concat();
    let given = RunOptions::from_arguments(&arguments)?;
    Ok(RunOptions {
        relay: Some(relay.url.clone()),
        trust: TrustArguments {
            // The certificate of a relay that the comparison starts is made for it.
            insecure: given.trust.insecure || (relay.start.is_some() && !given.trust.is_given()),
            ..given.trust.clone()
        },
        publish_flow: relay.flow().or(given.publish_flow),
        relay_cores: relay
            .core
            .map_or_else(|| given.relay_cores.clone(), |core| vec![core]),
        slo: slo.map(str::to_owned).or_else(|| given.slo.clone()),
        subscribers: subscribers.unwrap_or(given.subscribers),
        ..given
    })
}

/// All runs of a comparison under one load.
pub(crate) struct RelayRounds {
    relays: Relays,
    /// The results of each relay.
    entries: Vec<Entry>,
    progress: Progress,
    /// Why a relay could not be started.
    not_started: Option<String>,
    /// The first run whose calibration failed, and why.
    not_calibrated: Option<String>,
}

impl RelayRounds {
    /// Checks all runs; `folder` is the folder of the file.
    pub(crate) fn new(
        file: RelayFile,
        folder: &Path,
        fleet: Option<Fleet>,
    ) -> anyhow::Result<Self> {
        let (slo, subscribers) = (file.slo.clone(), file.subscribers);
        let profiles = [file.profile.clone()];
        let relays = Relays::new(
            file,
            folder,
            &profiles,
            (slo.as_deref(), subscribers),
            fleet,
        )?;
        let both = relays.file.relay.iter().zip(&relays.versions);
        let entries = both.map(|(relay, version)| Entry {
            name: relay.name.clone(),
            version: version.clone(),
            draft: None,
            audience: None,
            runs: Vec::new(),
        });
        Ok(Self {
            entries: entries.collect(),
            relays,
            progress: Progress::new(),
            not_started: None,
            not_calibrated: None,
        })
    }

    /// Makes all runs. Returns why runs are missing, if any are.
    pub(crate) fn run(&mut self, stop: &Stop) -> anyhow::Result<Option<String>> {
        let file = &self.relays.file;
        let (count, rounds) = (file.relay.len(), file.repeats);
        let broken_off = take_turns(count, rounds, |round, number| {
            self.turn(number, round, stop)
        })?;
        Ok(broken_off.or_else(|| self.not_started.clone()))
    }

    /// Whether no calibration failed.
    pub(crate) fn is_calibrated(&self) -> bool {
        self.not_calibrated.is_none()
    }

    /// Starts, warms up and measures one relay.
    fn turn(&mut self, number: usize, round: u32, stop: &Stop) -> anyhow::Result<Turn> {
        let file = &self.relays.file;
        let label = format!(
            "{}, run {} of {}",
            file.relay[number].name,
            round + 1,
            file.repeats
        );
        let started = match self.relays.start(number, stop) {
            Ok(Started::Interrupted) => return Ok(Turn::Interrupted),
            Ok(started) => started,
            // Nothing was measured yet, so the user can correct the file first.
            Err(error) if self.entries.iter().all(|entry| entry.runs.is_empty()) => {
                return Err(error);
            }
            Err(error) => {
                let reason = format!("{error:#}");
                let pid = Some(std::process::id());
                let subscribers = self.plan(number, pid)?.subscribers_total();
                self.note(number, &label, Probe::failed(subscribers as u64, &reason));
                self.not_started.get_or_insert(reason);
                return Ok(Turn::Made);
            }
        };
        let pid = started.pid();
        let plan = self.plan(number, pid)?;
        let has_warm_up = self.relays.file.warm_up_seconds > 0;
        let warmed_up = has_warm_up.then(|| self.warm_up(number, pid, stop));
        // A relay that runs on reuses the memory of earlier sessions.
        let is_fresh = pid.is_some() || round == 0;
        let warmed_up = warmed_up
            .transpose()?
            .map(|bytes| bytes.filter(|_| is_fresh));
        if stop.is_requested() {
            return Ok(Turn::Interrupted);
        }
        let outcome = self.measure(&plan, &label, stop);
        drop(started);
        if stop.is_requested() {
            return Ok(Turn::Interrupted);
        }
        let subscribers = plan.subscribers_total() as u64;
        let mut probe = match outcome {
            Ok((report, not_calibrated)) => {
                self.describe(number, &report);
                if let Some(problem) = not_calibrated {
                    let problem = format!("{label}: the calibration failed: {problem}");
                    self.progress.keep(&problem);
                    self.not_calibrated.get_or_insert(problem);
                }
                Probe::of(subscribers, &report)
            }
            Err(error) => Probe::failed(subscribers, &format!("{error:#}")),
        };
        if let Some(bytes_per_session) = warmed_up {
            probe.figures.bytes_per_session = bytes_per_session;
        }
        self.note(number, &label, probe);
        Ok(Turn::Made)
    }

    /// Stores the relay's draft and version from a report.
    fn describe(&mut self, number: usize, report: &Report) {
        let entry = &mut self.entries[number];
        entry.draft.clone_from(&report.run.draft);
        entry.audience = Some(report.run.audience.clone());
        if entry.version.is_empty() {
            entry.version = report.relay.implementation.clone().unwrap_or_default();
        }
    }

    /// Makes a run that is not measured. Returns the growth of the relay's memory per session, in bytes: later sessions reuse
    /// this memory.
    fn warm_up(
        &mut self,
        number: usize,
        pid: Option<u32>,
        stop: &Stop,
    ) -> anyhow::Result<Option<f64>> {
        let mut plan = self.plan(number, pid)?;
        let file = &self.relays.file;
        let seconds = Duration::from_secs(file.warm_up_seconds);
        plan.profile = load::with_windows(&plan.profile, SETTLE, seconds);
        plan.calibrate = false;
        let label = format!("{}, warming up", file.relay[number].name);
        let outcome = self.measure(&plan, &label, stop);
        // A relay that fails here fails in the measured run too, which reports it.
        let cost = outcome.ok().and_then(|(report, _)| report.relay.cost);
        Ok(cost.and_then(|cost| cost.bytes_per_session))
    }

    /// Prints and stores a run that has ended.
    fn note(&mut self, number: usize, label: &str, probe: Probe) {
        let row = search::row(&probe);
        self.progress
            .keep(&format!("{label}: {}", row.trim_start()));
        self.entries[number].runs.push(probe);
    }

    /// Makes a run. Returns its report, and why its calibration failed, if it did.
    fn measure(
        &mut self,
        plan: &Plan,
        label: &str,
        stop: &Stop,
    ) -> anyhow::Result<(Report, Option<String>)> {
        let ran = super::run(plan, &self.relays.machine, stop, |moment| {
            self.progress.show(&Moment {
                label: label.to_owned(),
                ..moment.clone()
            });
        })?;
        Ok((ran.archive.report, ran.calibration_problem))
    }

    fn plan(&self, number: usize, pid: Option<u32>) -> anyhow::Result<Plan> {
        let file = &self.relays.file;
        let mut plan = self.relays.plan(number, &file.profile, pid)?;
        if let Some(seconds) = file.seconds {
            let seconds = Duration::from_secs(seconds.max(1));
            plan.profile = load::with_windows(&plan.profile, SETTLE, seconds);
        }
        Ok(plan)
    }

    /// Returns the comparison of all runs.
    pub(crate) fn comparison(self, broken_off: Option<String>) -> Comparison {
        let file = &self.relays.file;
        let subscribers = file.subscribers.map_or_else(String::new, |subscribers| {
            format!("{subscribers} subscribers, ")
        });
        let setting = format!(
            "{}: {subscribers}interleaved runs of each relay: {}.",
            file.profile.display(),
            file.repeats,
        );
        let mut notes = self.relays.notes(setting);
        notes.extend(self.not_calibrated.map(|problem| format!("{problem}.")));
        Comparison::new(notes, self.entries, broken_off)
    }
}

/// Sets the relay's process in a plan that was made before the relay was started.
pub(super) fn watch(plan: &mut Plan, started: &Started) {
    if let (RelayChoice::At { pid, .. }, Some(started)) = (&mut plan.relay, started.pid()) {
        *pid = Some(started);
    }
}

/// Flags of `weir bench` that a comparison sets itself, and what to use instead.
const OWN_FLAGS: [(&str, &str); 6] = [
    ("--relay", "set `url` of the relay"),
    ("--preset", "set `preset` of the relay"),
    ("--relay-threads", "add it to `start` of the relay"),
    ("--archive", MANY_RUNS),
    ("--html", MANY_RUNS),
    ("--json", MANY_RUNS),
];
const STARTED: &str = "leave it out: the processes that `start` begins are watched";
const MANY_RUNS: &str =
    "there are many runs, which the flag --json of `weir bench compare` records";
const STARTED_FLAGS: [(&str, &str); 2] = [("--relay-pid", STARTED), ("--relay-process", STARTED)];
const FLOW_FLAGS: [(&str, &str); 1] = [("--publish-flow", "the relay sets `publish_flow`")];
const CORE_FLAGS: [(&str, &str); 2] = [
    ("--relay-cores", "the relay sets `core`"),
    ("--relay-core", "the relay sets `core`"),
];
const SLO_FLAGS: [(&str, &str); 1] = [("--slo", "the file sets `slo`")];
const SUBSCRIBERS_FLAGS: [(&str, &str); 2] = [
    ("--subscribers", "the file sets `subscribers`"),
    ("--meetings", "the file sets `subscribers`"),
];
/// Time from the last subscriber's join to the first object.
const SETTLE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "profile = \"audio-short.ini\"\n\
        [[relay]]\nname = \"one\"\nstart = [\"one\"]\nurl = \"moqt://127.0.0.1:4443\"\n";

    /// Returns the plan of a run of the file's first relay.
    fn planned(text: &str, cores: usize) -> anyhow::Result<Plan> {
        let file: RelayFile = toml::from_str(text)?;
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles"));
        let options = options(&file, &file.relay[0], None, None);
        let options = options.with_context(|| named(&file.relay[0]))?;
        let relays = Relays {
            folder: folder.to_owned(),
            machine: Machine {
                kernel: String::new(),
                cpu_model: String::new(),
                cores: (0..cores).collect(),
                online: (0..cores).collect(),
            },
            place: Workplace::new()?,
            options: vec![options],
            fleet: None,
            versions: Vec::new(),
            core_problems: BTreeSet::new(),
            file,
        };
        relays.plan(0, &relays.file.profile, Some(std::process::id()))
    }

    #[test]
    fn a_relay_has_the_core_and_the_drafts_of_the_file() {
        let plan = planned(&format!("{FILE}core = 1\ndrafts = [\"moqt-18\"]\n"), 3).unwrap();
        assert_eq!(plan.cores.relay, [1]);
        assert_eq!(
            (plan.cores.publishers, plan.cores.subscribers),
            (vec![0, 2], vec![0, 2])
        );
        assert_eq!(plan.drafts, ["moqt-18"]);
        // `check` of the file refuses drafts that weir does not speak; here it shows that no other one is offered.
        let plan = planned(&format!("{FILE}drafts = [\"moqt-99\"]\n"), 3).unwrap();
        assert!(plan.drafts.is_empty());
        assert_eq!(planned(FILE, 3).unwrap().drafts, crate::run::protocols());
        let error = planned(&format!("{FILE}core = 7\n"), 3).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("relay \"one\": --relay-cores: there is no core 7"),
            "{error}"
        );
    }

    #[test]
    fn flags_that_a_comparison_has_no_use_for_are_refused_with_their_place() {
        for (flag, instead) in OWN_FLAGS {
            let own = format!("{FILE}arguments = [\"{flag}\", \"file\"]\n");
            let error = format!("{:#}", planned(&own, 2).unwrap_err());
            let expected =
                format!("relay \"one\": arguments: {flag} is not allowed here; {instead}");
            assert_eq!(error, expected);
            let shared = format!("arguments = [\"{flag}=file\"]\n{FILE}");
            let error = format!("{:#}", planned(&shared, 2).unwrap_err());
            assert!(
                error.contains(&format!("arguments of all relays: {flag}")),
                "{error}"
            );
        }
        let core = format!("{FILE}core = 1\narguments = [\"--relay-cores=0\"]\n");
        let error = format!("{:#}", planned(&core, 2).unwrap_err());
        assert!(error.ends_with("the relay sets `core`"), "{error}");
    }

    #[test]
    fn arguments_of_a_file_are_those_of_a_run() {
        let text = format!("arguments = [\"--ramp\", \"7\", \"--ca=a.pem\"]\n{FILE}");
        let plan = planned(&text, 2).unwrap();
        assert_eq!(plan.ramp_per_second, 7);
        let roots = crate::run::TrustChoice::Roots(Some("a.pem".into()));
        assert_eq!(plan.trust, roots);
        assert_eq!(
            planned(FILE, 2).unwrap().trust,
            crate::run::TrustChoice::Anyone
        );
        let unknown = format!("arguments = [\"--rump\"]\n{FILE}");
        let error = format!("{:#}", planned(&unknown, 2).unwrap_err());
        assert!(error.contains("unexpected argument '--rump'"), "{error}");
    }

    #[test]
    fn a_relay_that_ends_at_once_is_reported_with_its_last_words() {
        let place = Workplace::new().unwrap();
        let entry = "name = \"x\"\nstart = [\"sh\", \"-c\", \"echo no such key: {key} >&2; exit 3\"]\nurl = \"\"\n";
        let stop = Stop::new().unwrap();
        // A busy machine needs longer to start it and to end it.
        let error = [300, 3_000, 30_000].into_iter().find_map(|ready_ms| {
            let entry = format!("{entry}ready_ms = {ready_ms}\n");
            let relay: RelayEntry = toml::from_str(&entry).unwrap();
            start(&place, &relay, &stop).err()
        });
        let error = format!("{:#}", error.unwrap());
        assert!(
            error.contains("ended at once") && error.contains("key.pem"),
            "{error}"
        );
    }
}
