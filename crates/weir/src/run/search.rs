//! The search for the largest load that a relay carries, on real sockets. [`weir_report::search`] decides which load is
//! probed next; this module makes the probes.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use weir_bench::{
    profile::{Profile, load},
    qperf::Wire,
};
use weir_net::{Stop, clock};
use weir_report::{
    relay::{Calibration, Report, live_view::Moment},
    search::{self, Dimension, FixedLoad, Probe, Record, RecordedSearch, Settings, Step},
};

use super::{Meetings, Plan, RelayChoice};
use crate::{
    harness::{
        child::ChildGroup,
        machine::{Machine, MachineTime},
    },
    numbers::whole,
};

// The flags of a search. No doc comment: clap would show it as the help of the command.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Method {
    /// What the search varies
    #[arg(long, value_enum, default_value_t = By::Subscribers, value_name = "DIMENSION")]
    pub(crate) by: By,
    /// Load of the first probe [default: 100 subscribers, 1 meeting, 1 publisher, 1 copy of each track, or the profile's kbit/s]
    #[arg(long, value_name = "LOAD", value_parser = whole(1..=u64::MAX))]
    pub(crate) from: Option<u64>,
    /// Smallest load to try [default: 1, or the smallest bit rate that the profile can have]
    #[arg(long, value_name = "LOAD", value_parser = whole(1..=u64::MAX))]
    pub(crate) least: Option<u64>,
    /// Largest load to try [default: 50000 subscribers, 5000 meetings or 1000000 kbit/s, or less if the profile requires it]
    #[arg(long, value_name = "LOAD", value_parser = whole(1..=u64::MAX))]
    pub(crate) most: Option<u64>,
    /// Largest difference at the end between the load that held and the load that broke, in per cent
    #[arg(long = "precision", value_name = "PER_CENT", default_value_t = 5, value_parser = whole(0..=u64::MAX))]
    pub(crate) precision_percent: u64,
    /// Probes of the load that held, and of the load that broke
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = whole(1..=u32::MAX))]
    pub(crate) repeats: u32,
    /// Number of --repeats that must hold, so that the load counts as held
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = whole(1..=u32::MAX))]
    pub(crate) needed: u32,
    /// Seconds from the last subscriber's join to the first object of a probe, 0 to 600
    #[arg(long = "settle", value_name = "SECONDS", default_value_t = 1, value_parser = whole(0..=STEADY_SECONDS_MAX))]
    pub(crate) settle_seconds: u64,
    /// Seconds of a probe that the service level judges, 1 to 600; one more second is sent before them
    #[arg(long = "steady", value_name = "SECONDS", default_value_t = 10, value_parser = whole(1..=STEADY_SECONDS_MAX))]
    pub(crate) steady_seconds: u64,
    /// Seconds between two probes of the same relay process
    #[arg(long = "cool-down", value_name = "SECONDS", default_value_t = 2, value_parser = whole(0..=u64::MAX))]
    pub(crate) cool_down_seconds: u64,
    /// Time limit of the search in seconds: no probe starts that would likely end later [default: none]
    #[arg(long = "max-time", value_name = "SECONDS", value_parser = whole(1..=u64::MAX))]
    pub(crate) seconds_max: Option<u64>,
    /// Largest number of probes
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = whole(1..=usize::MAX))]
    pub(crate) probes_max: usize,
    /// Run every probe to its end, also when its service level is broken for certain
    #[arg(long)]
    pub(crate) whole_probes: bool,
    /// Leave out the last step: the load that broke the relay, repeated on a null relay
    #[arg(long)]
    pub(crate) no_calibration: bool,
}

/// The quantity that a search varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Subscribers, which take turns among --publishers
    Subscribers,
    /// Meetings, each with --clients-per-meeting clients
    Meetings,
    /// Bit rate of the profile, in kbit/s
    Bitrate,
    /// Publishers, among which --subscribers take turns
    Publishers,
    /// Copies of each track of the profile
    Tracks,
}

impl By {
    fn dimension(self) -> Dimension {
        match self {
            Self::Subscribers => Dimension::Subscribers,
            Self::Meetings => Dimension::Meetings,
            Self::Bitrate => Dimension::BitRate,
            Self::Publishers => Dimension::Publishers,
            Self::Tracks => Dimension::Tracks,
        }
    }
}

/// A search, and what its probes need.
pub(crate) struct Search {
    pub(crate) recorded: RecordedSearch,
    pub(crate) probes: Vec<Probe>,
    /// The largest load that held in this process, and its report.
    best: Option<(u64, Report)>,
    method: Method,
    plan: Plan,
    machine: Machine,
    /// The profile with the times of a probe, at its own bit rate.
    profile: Profile,
    /// The size of meetings, if the load consists of meetings.
    meetings: Meetings,
    calibration: Option<Calibration>,
    /// Why there is no calibration, although one is due.
    calibration_problem: Option<String>,
}

/// Observer of a search.
pub(crate) trait Observer {
    /// Starts the relay for the next probe, if the observer starts relays. The search ends this relay after the probe.
    fn prepare(&mut self, plan: &mut Plan, stop: &Stop) -> anyhow::Result<Option<ChildGroup>>;
    /// Shows the progress of a probe, once a second.
    fn see(&mut self, moment: &Moment);
    /// Records a probe that has ended.
    fn note(&mut self, probe: &Probe, record: &Record) -> anyhow::Result<()>;
}

impl Search {
    pub(crate) fn new(
        method: Method,
        mut plan: Plan,
        machine: Machine,
        relay: String,
    ) -> anyhow::Result<Self> {
        let settle = Duration::from_secs(method.settle_seconds);
        let steady = Duration::from_secs(method.steady_seconds);
        let profile = load::with_windows(&plan.profile, settle, WARM_UP + steady);
        let meetings = plan.meetings.unwrap_or(Meetings {
            first: 0,
            count: 1,
            clients_per_meeting: 1,
        });
        let settings = settings(&method, &profile, &plan, meetings)?;
        plan.profile = profile.clone();
        plan.unjudged = WARM_UP;
        plan.ends_early = !method.whole_probes;
        // Only the answer is calibrated, not each probe.
        plan.calibrate = false;
        let recorded = RecordedSearch {
            dimension: method.by.dimension(),
            settings,
            profile: profile.to_ini(),
            slo: plan.level.to_string(),
            relay,
            fixed: fixed(method.by.dimension(), &plan),
            flow: super::flow_name(&plan).to_owned(),
            wire: match plan.wire {
                Wire::Draft => "draft".to_owned(),
                Wire::Qperf => "qperf".to_owned(),
            },
        };
        Ok(Self {
            recorded,
            probes: Vec::new(),
            best: None,
            method,
            plan,
            machine,
            profile,
            meetings,
            calibration: None,
            calibration_problem: None,
        })
    }

    /// Makes probes until the search is over, and calibrates the answer. Returns why the search was broken off, if it was.
    pub(crate) fn go(
        &mut self,
        stop: &Stop,
        observer: &mut dyn Observer,
    ) -> anyhow::Result<Option<&'static str>> {
        let started = clock::now();
        // The longest probe: the next one may take as long.
        let mut longest = Duration::ZERO;
        while let Step::Probe(load) = search::next(&self.recorded.settings, &self.probes) {
            let begun = clock::now();
            // The calibration takes as long as a probe.
            let rest = longest * if self.method.no_calibration { 1 } else { 2 };
            if let Some(limit) = self.method.seconds_max.map(Duration::from_secs)
                && begun - started + rest > limit
            {
                self.calibrate(stop, observer);
                return Ok(Some("the time limit was reached"));
            }
            let (probe, stolen) = MachineTime::stolen_during(|| self.probe(load, stop, observer));
            let Some(mut probe) = probe? else {
                return Ok(Some("it was interrupted"));
            };
            probe.figures.stolen_percent = stolen;
            self.probes.push(probe.clone());
            observer.note(&probe, &self.record(None))?;
            longest = longest.max(clock::now() - begun);
            let is_own = matches!(self.plan.relay, RelayChoice::Own(_));
            let cool_down = Duration::from_secs(self.method.cool_down_seconds);
            let disturbed = probe.is_disturbed();
            let least = if disturbed {
                DISTURBED_PAUSE
            } else {
                Duration::ZERO
            };
            let pause = if is_own { least } else { least.max(cool_down) };
            if stop.wait(pause) {
                return Ok(Some("it was interrupted"));
            }
        }
        self.calibrate(stop, observer);
        Ok(stop.is_requested().then_some("it was interrupted"))
    }

    /// Makes one probe; `None` if it was interrupted.
    fn probe(
        &mut self,
        load: u64,
        stop: &Stop,
        observer: &mut dyn Observer,
    ) -> anyhow::Result<Option<Probe>> {
        self.fit(load)?;
        let started = observer.prepare(&mut self.plan, stop)?;
        if stop.is_requested() {
            return Ok(None);
        }
        let label = format!("{load} {}", self.recorded.dimension.unit());
        let outcome = super::run(&self.plan, &self.machine, stop, |moment| {
            observer.see(&labelled(moment, &label));
        });
        // A relay process reuses the memory of an earlier probe's sessions, so its growth says nothing of the next ones.
        let is_fresh = started.is_some() || matches!(self.plan.relay, RelayChoice::Own(_));
        let has_served = !is_fresh && !self.probes.is_empty();
        drop(started);
        if stop.is_requested() {
            return Ok(None);
        }
        match outcome {
            Ok(ran) => {
                let mut report = ran.archive.report;
                if let Some(cost) = report.relay.cost.as_mut().filter(|_| has_served) {
                    cost.bytes_per_session = None;
                }
                let probe = Probe::of(load, &report);
                let best = self.best.as_ref().map(|(best, _)| *best);
                if report.verdict.outcome.is_held() && best.is_none_or(|best| load >= best) {
                    self.best = Some((load, report));
                }
                Ok(Some(probe))
            }
            // A relay that never accepted a client is not at its limit.
            Err(error) if self.probes.is_empty() => Err(error),
            Err(error) => Ok(Some(Probe::failed(load, &format!("{error:#}")))),
        }
    }

    /// Repeats the load that broke the relay on a null relay. If the level breaks there too, the generator was the limit.
    /// A failure is recorded beside the answer.
    fn calibrate(&mut self, stop: &Stop, observer: &mut dyn Observer) {
        let load = self.record(None).answer.load_to_calibrate();
        let Some(load) = load.filter(|_| !self.method.no_calibration) else {
            return;
        };
        let label = format!("{load} {}, null relay", self.recorded.dimension.unit());
        let made = self.fit(load).and_then(|()| {
            super::calibrate(&self.plan, &self.machine, stop, |moment| {
                observer.see(&labelled(moment, &label));
            })
        });
        match made {
            _ if stop.is_requested() => {
                self.calibration_problem = Some("it was interrupted".to_owned());
            }
            Ok(calibration) => self.calibration = Some(calibration),
            Err(error) => self.calibration_problem = Some(format!("{error:#}")),
        }
    }

    /// Changes the plan to `load`. Each probe has its own seed, so objects that a relay cached in an earlier probe do not
    /// count.
    fn fit(&mut self, load: u64) -> anyhow::Result<()> {
        self.plan.seed = self.plan.seed.wrapping_add(1);
        match self.recorded.dimension {
            Dimension::Subscribers => {
                self.plan.subscribers = usize::try_from(load).unwrap_or(usize::MAX);
            }
            Dimension::Meetings => {
                self.plan.meetings = Some(Meetings {
                    count: usize::try_from(load).unwrap_or(usize::MAX),
                    ..self.meetings
                });
            }
            Dimension::BitRate => {
                let bits = Duration::from_millis(load).as_secs_f64() * 1e6;
                self.plan.profile = load::with_bits_per_second(&self.profile, bits)
                    .with_context(|| format!("the profile cannot be scaled to {load} kbit/s"))?;
            }
            Dimension::Publishers => {
                self.plan.publishers = usize::try_from(load).unwrap_or(usize::MAX);
            }
            Dimension::Tracks => {
                self.plan.profile = load::with_copies(&self.profile, load).with_context(|| {
                    format!("the profile cannot have {load} copies of each track")
                })?;
            }
        }
        Ok(())
    }

    /// Returns the record of all probes so far.
    pub(crate) fn record(&self, broken_off: Option<&str>) -> Record {
        let record = Record::new(
            self.recorded.clone(),
            self.probes.clone(),
            self.calibration.clone(),
            broken_off,
        );
        match &self.calibration_problem {
            Some(problem) => record.uncalibrated(problem),
            None => record,
        }
    }

    /// Returns the largest load that held in this process, and its report with the calibration of the search.
    pub(crate) fn best(&self) -> Option<(u64, Report)> {
        let (load, mut report) = self.best.clone()?;
        let calibration = self.calibration.clone();
        report.generator.calibration = calibration.filter(|calibration| calibration.held);
        Some((load, report))
    }
}

/// Returns the settings of the search, within the loads that the profile allows.
fn settings(
    method: &Method,
    profile: &Profile,
    plan: &Plan,
    meetings: Meetings,
) -> anyhow::Result<Settings> {
    // A publisher without a subscriber would wait for one.
    let (publishers, subscribers) = (plan.publishers as u64, plan.subscribers as u64);
    let clients = meetings.clients_per_meeting as u64;
    // All loads that the profile allows, the first to try, and the largest to try.
    let (possible, from, most) = match method.by.dimension() {
        Dimension::Subscribers => (publishers..=SUBSCRIBERS_MAX, 100, SUBSCRIBERS_MAX),
        Dimension::Meetings => {
            let most = (SUBSCRIBERS_MAX / clients).max(1);
            (1..=most, 1, most.min(MEETINGS_MAX))
        }
        Dimension::BitRate => {
            let rates = load::kilobits_per_second(profile);
            let from = kilobits(load::bits_per_second(profile));
            (rates.clone(), from, KILOBITS_MAX.min(*rates.end()))
        }
        Dimension::Publishers => (1..=subscribers, 1, subscribers),
        Dimension::Tracks => {
            let most = load::copies_max(profile);
            (1..=most, 1, most)
        }
    };
    for (flag, given) in [("--least", method.least), ("--most", method.most)] {
        if given.is_some_and(|given| !possible.contains(&given)) {
            bail!(
                "{flag}: expected {} to {} {} for this profile",
                possible.start(),
                possible.end(),
                method.by.dimension().unit(),
            );
        }
    }
    let (least, most) = (
        method.least.unwrap_or_else(|| *possible.start()),
        method.most.unwrap_or(most),
    );
    if most < least {
        bail!("--most: expected --least or more, {least}, not {most}");
    }
    if method.needed > method.repeats {
        let (needed, repeats) = (method.needed, method.repeats);
        bail!("--needed: expected 1 to {repeats}, the number of --repeats, not {needed}");
    }
    if let Some(from) = method.from.filter(|from| !(least..=most).contains(from)) {
        bail!("--from: expected {least} to {most}, between --least and --most, not {from}");
    }
    let from = method.from.unwrap_or(from);
    let settings = Settings {
        from: from.clamp(least, most),
        least,
        most,
        precision_percent: method.precision_percent,
        repeats: method.repeats,
        needed: method.needed,
        probes_max: method.probes_max,
    };
    if let Some(problem) = settings.problem() {
        bail!("{problem}");
    }
    Ok(settings)
}

/// Returns the parts of the load that are the same in every probe.
fn fixed(dimension: Dimension, plan: &Plan) -> FixedLoad {
    let meetings = plan.meetings;
    let is_by = |one| dimension == one;
    let fan_out = Some(plan.subscribers as u64);
    FixedLoad {
        publishers: (meetings.is_none() && !is_by(Dimension::Publishers))
            .then_some(plan.publishers as u64),
        subscribers: fan_out.filter(|_| meetings.is_none() && !is_by(Dimension::Subscribers)),
        meetings: meetings
            .filter(|_| !is_by(Dimension::Meetings))
            .map(|one| one.count as u64),
        clients_per_meeting: meetings.map(|one| one.clients_per_meeting as u64),
    }
}

fn labelled(moment: &Moment, label: &str) -> Moment {
    Moment {
        label: label.to_owned(),
        ..moment.clone()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate of a profile is far from the ends"
)]
fn kilobits(bits: f64) -> u64 {
    (bits / 1e3).round() as u64
}

/// The beginning of a probe's data phase, which is not judged: caches fill, and congestion windows open.
const WARM_UP: Duration = Duration::from_secs(1);
/// Pause before a probe is repeated because the hypervisor took too much of a core.
const DISTURBED_PAUSE: Duration = Duration::from_secs(10);
/// Largest bit rate to try, in kbit/s, without --most.
const KILOBITS_MAX: u64 = 1_000_000;
/// Largest number of meetings to try, without --most.
const MEETINGS_MAX: u64 = 5000;
/// One process has about so many UDP ports per address.
const SUBSCRIBERS_MAX: u64 = 50_000;
/// Ten minutes: a longer probe is better made as a run of `weir bench`.
const STEADY_SECONDS_MAX: u64 = 600;
