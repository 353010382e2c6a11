//! Searches for the limits of several relays, one after the other. Each probe starts its relay, unless it runs already.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::bail;
use weir_net::{Stop, clock};
use weir_report::{
    comparison::limits::{Limits, RelayLimit},
    relay::live_view::Moment,
    search::{Dimension, Probe, Record, heading, row},
};

use super::{
    Plan,
    relay_file::{RelayEntry, RelayFile},
    relay_rounds::{Relays, Started, watch},
    remote::Fleet,
    search::{By, Method, Observer, Search},
};
use crate::{
    harness::{child::ChildGroup, machine::Machine, rounds::INTERRUPTED},
    output::print_line,
    progress::Progress,
};

/// The searches of a file: one for each profile and relay.
pub(crate) struct LimitSearches {
    relays: Relays,
    profiles: Vec<PathBuf>,
}

impl LimitSearches {
    /// `folder` is that of the file.
    pub(crate) fn new(
        file: RelayFile,
        folder: &Path,
        fleet: Option<Fleet>,
    ) -> anyhow::Result<Self> {
        let mut profiles = file.find_max.profiles.clone();
        if profiles.is_empty() {
            profiles.push(file.profile.clone());
        }
        let slo = service_level(&file).map(str::to_owned);
        let relays = Relays::new(file, folder, &profiles, (slo.as_deref(), None), fleet)?;
        let searches = Self { relays, profiles };
        // All searches are checked before the first one starts.
        for profile in &searches.profiles {
            for number in 0..searches.relays.file.relay.len() {
                searches.plan(number, profile)?;
            }
        }
        Ok(searches)
    }

    /// Makes the searches.
    pub(crate) fn run(self, stop: &Stop) -> anyhow::Result<Limits> {
        let started = clock::now();
        let mut limits = Vec::new();
        let count = self.relays.file.relay.len();
        let all = self.profiles.iter();
        let mut all = all.flat_map(|profile| (0..count).map(move |number| (profile, number)));
        let broken_off = loop {
            let Some((profile, number)) = all.next() else {
                break None;
            };
            if stop.is_requested() {
                break Some(INTERRUPTED.to_owned());
            }
            limits.push(self.search(profile, number, stop)?);
        };
        let file = &self.relays.file;
        let setting = setting(file, &self.relays.machine, clock::now() - started);
        Ok(Limits::new(self.relays.notes(setting), limits, broken_off))
    }

    /// Searches the limit of one relay.
    fn search(&self, profile: &Path, number: usize, stop: &Stop) -> anyhow::Result<RelayLimit> {
        let file = &self.relays.file;
        let relay = &file.relay[number];
        print_line(&format!("{}, {}:", profile.display(), relay.name));
        print_line(&heading(Dimension::Subscribers.unit()));
        let plan = self.plan(number, profile)?;
        let method = Method {
            no_calibration: plan.fleet.is_some(),
            ..method(file, relay)
        };
        let mut search = Search::new(method, plan, self.relays.machine.clone(), relay.url.clone())?;
        let mut watcher = Watcher {
            relays: &self.relays,
            number,
            progress: Progress::new(),
        };
        let ended = search.go(stop, &mut watcher);
        drop(watcher);
        let record = match ended {
            Ok(reason) => search.record(reason),
            // The other relays are measured nevertheless.
            Err(error) => search.record(Some(format!("{error:#}").as_str())),
        };
        print_line(&format!("  {}", record.sentence));
        let best = search.best();
        let best = best.as_ref().map(|(_, report)| report);
        let implementation = best.and_then(|best| best.relay.implementation.clone());
        Ok(RelayLimit {
            profile: profile.display().to_string(),
            relay: relay.name.clone(),
            version: match self.relays.versions[number].as_str() {
                "" => implementation.unwrap_or_default(),
                version => version.to_owned(),
            },
            draft: best.and_then(|best| best.run.draft.clone()),
            record,
        })
    }

    fn plan(&self, number: usize, profile: &Path) -> anyhow::Result<Plan> {
        let is_started = self.relays.file.relay[number].start.is_some();
        let pid = is_started.then(std::process::id);
        let plan = self.relays.plan(number, profile, pid)?;
        if plan.meetings.is_some() {
            bail!(
                "relay {:?}: arguments: --meetings: --find-max searches subscribers",
                self.relays.file.relay[number].name
            );
        }
        match plan.calibration_problem() {
            // The answer has no calibration then.
            Some(_) if plan.fleet.is_some() => Ok(plan),
            Some(problem) => bail!("--find-max: {}: {problem}", profile.display()),
            None => Ok(plan),
        }
    }
}

/// Returns the service level of the searches; `None` for the default.
fn service_level(file: &RelayFile) -> Option<&str> {
    let slo = file.find_max.slo.as_ref().or(file.slo.as_ref());
    slo.map(String::as_str)
}

fn method(file: &RelayFile, relay: &RelayEntry) -> Method {
    let search = &file.find_max;
    Method {
        by: By::Subscribers,
        from: Some(relay.from.unwrap_or(search.from)),
        least: None,
        most: Some(search.most),
        precision_percent: search.precision,
        repeats: search.repeats,
        needed: search.needed,
        settle_seconds: 1,
        steady_seconds: search.steady_seconds,
        // Each probe has a new relay, unless it runs already.
        cool_down_seconds: if relay.start.is_some() {
            0
        } else {
            COOL_DOWN_SECONDS
        },
        seconds_max: Some(search.search_seconds),
        probes_max: PROBES_MAX,
        whole_probes: false,
        no_calibration: false,
    }
}

fn setting(file: &RelayFile, machine: &Machine, took: Duration) -> String {
    let search = &file.find_max;
    let is_apart = machine.cores.len() > 1 && file.relay.iter().all(|one| one.core.is_some());
    format!(
        "Service level: {}. Each probe starts a relay, waits 1 s, and judges {} s; the loads on both sides of the limit \
         have {} probes each.{} The search took {} minutes.",
        service_level(file).unwrap_or("of the program"),
        search.steady_seconds,
        search.repeats,
        if is_apart {
            " Relays ran on one core, publishers and subscribers on another."
        } else {
            ""
        },
        took.as_secs().div_ceil(60),
    )
}

/// Starts a relay for each probe, unless it runs already, and prints the probes.
struct Watcher<'a> {
    relays: &'a Relays,
    number: usize,
    progress: Progress,
}

impl Observer for Watcher<'_> {
    fn prepare(&mut self, plan: &mut Plan, stop: &Stop) -> anyhow::Result<Option<ChildGroup>> {
        let started = self.relays.start(self.number, stop)?;
        watch(plan, &started);
        Ok(match started {
            Started::Here(child) => Some(child),
            Started::Elsewhere | Started::Interrupted => None,
        })
    }

    fn see(&mut self, moment: &Moment) {
        let name = &self.relays.file.relay[self.number].name;
        self.progress.show(&Moment {
            label: format!("{name}: {}", moment.label),
            ..moment.clone()
        });
    }

    fn note(&mut self, probe: &Probe, _record: &Record) -> anyhow::Result<()> {
        self.progress.keep(&row(probe));
        Ok(())
    }
}

/// More probes than a search of this precision needs.
const PROBES_MAX: usize = 40;
/// Time in which a relay that runs on ends the sessions of a probe.
const COOL_DOWN_SECONDS: u64 = 2;
