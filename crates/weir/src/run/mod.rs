//! One benchmark run on real sockets: who runs where, in which order, and what is watched meanwhile.

mod child;
mod hosting;
mod machine;
pub(crate) mod process;
pub(crate) mod relays;
pub(crate) mod scrape;
mod target;
mod watch;

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use weir_bench::{
    archive::Archive,
    clock::RunClock,
    meeting::MeetingRole,
    metrics::TrackPlan,
    outcome::{self, Surroundings},
    profile::{Mode, Profile, TrackProfile},
    publisher::{PublishFlow, PublisherConfig, PublisherRole},
    qperf::Wire,
    report::{Cores, Run},
    scenario::{Roles, Scenario},
    service_level::ServiceLevel,
    subscriber::{SubscribeFlow, SubscribeRequest, SubscriberConfig, SubscriberRole},
};
use weir_moqt::{draft::Draft, token::Token};
use weir_net::{Stop, clock};

pub(crate) use self::{
    child::ChildRelay,
    machine::Machine,
    target::{RelayUrl, TrustChoice, target as client_target},
};
use self::{
    hosting::{Gate, Hosted, Load, LoadHost, Seen},
    watch::{Watch, Window},
};

/// Everything that a run is made from, checked.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) profile_name: String,
    pub(crate) profile: Profile,
    pub(crate) relay: RelayChoice,
    /// Subscribers of a fan-out.
    pub(crate) subscribers: usize,
    /// Meetings instead of a fan-out.
    pub(crate) meetings: Option<Meetings>,
    /// What is done here of a fan-out, whatever the profile says; the rest is another process's to do.
    pub(crate) role: Option<Mode>,
    /// How the benchmark's messages look.
    pub(crate) wire: Wire,
    /// Clients started per second; all at once if zero.
    pub(crate) ramp_per_second: u32,
    pub(crate) flow: PublishFlow,
    pub(crate) subscribe_flow: SubscribeFlow,
    /// What every client shows in its SETUP and with its requests.
    pub(crate) tokens: Vec<Token>,
    pub(crate) level: ServiceLevel,
    pub(crate) seed: u64,
    pub(crate) cores: CoreChoice,
    /// One socket for each subscriber instead of one for all.
    pub(crate) socket_per_subscriber: bool,
    pub(crate) no_wait: bool,
    pub(crate) trust: TrustChoice,
    /// Where the relay's own metrics are.
    pub(crate) metrics_url: Option<String>,
    pub(crate) command_line: String,
}

/// Groups of clients that each publish, and subscribe to all others of their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meetings {
    pub(crate) meetings: usize,
    pub(crate) clients_per_meeting: usize,
}

impl Plan {
    /// Subscribers in all, wherever they are.
    pub(crate) fn subscribers_total(&self) -> usize {
        self.meetings.map_or(self.subscribers, |meetings| {
            meetings
                .meetings
                .saturating_mul(meetings.clients_per_meeting)
        })
    }
}

/// Which relay is measured.
#[derive(Clone, Debug)]
pub(crate) enum RelayChoice {
    /// Ours, started for the run.
    Own,
    /// One that runs already; its process may be watched if it is on this machine.
    At { url: RelayUrl, pid: Option<u32> },
}

/// Which thread runs on which core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoreChoice {
    pub(crate) relay: Option<usize>,
    pub(crate) publishers: Option<usize>,
    pub(crate) subscribers: Option<usize>,
}

/// Runs a benchmark and returns all that was measured; a part of it if it was broken off.
pub(crate) fn run(
    plan: &Plan,
    machine: &Machine,
    stop: &Stop,
    mut say: impl FnMut(&str),
) -> anyhow::Result<Archive> {
    let started = clock::now();
    let wall = clock::since_epoch();
    let own = match plan.relay {
        RelayChoice::Own => Some(ChildRelay::start(plan.cores.relay)?),
        RelayChoice::At { .. } => None,
    };
    let (url, pid) = match (&plan.relay, &own) {
        (RelayChoice::At { url, pid }, _) => (url.clone(), *pid),
        (RelayChoice::Own, Some(child)) => (RelayUrl::of_child(child.address), Some(child.pid())),
        (RelayChoice::Own, None) => bail!("the relay did not start"),
    };
    let origin_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
    let generator = Generator::start(plan, &url, RunClock::new(started, origin_ns))?;
    let views = generator.threads.iter().map(Hosted::view).collect();
    let before = plan.metrics_url.as_deref().map(scrape::counters);
    let before = before.transpose().context("--relay-metrics")?;
    let mut watch = Watch::new(started, pid, own, views);
    let interrupted = generator.conduct(plan, stop, &mut watch, &mut say);
    let finished = generator.end(interrupted.is_some())?;
    finished.check(&url, interrupted.as_deref())?;
    let subscribers = finished.subscribers();
    let implementation = subscribers
        .relay()
        .and_then(|(_, name)| name.map(str::to_owned));
    let (mut relay, seen) = watch.finish(plan, implementation);
    // A relay that died has nothing to say any more; what was measured stays.
    if let (Some(before), Some(url)) = (&before, &plan.metrics_url)
        && let Ok(after) = scrape::counters(url)
    {
        relay.counters.extend(scrape::growth(before, &after));
    }
    let run = Run {
        start_time: humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + wall).to_string(),
        duration_ms: (clock::now() - started).as_secs_f64() * 1e3,
        partial: interrupted.is_some(),
        interrupted,
        ..describe(plan, machine, &url)
    };
    let surroundings = Surroundings {
        run,
        relay,
        generator: seen,
    };
    Ok(outcome::archive(
        &plan.profile,
        &finished.plans,
        finished.publishers(),
        subscribers,
        &plan.level,
        surroundings,
    ))
}

/// What is known of a run before it begins.
fn describe(plan: &Plan, machine: &Machine, url: &RelayUrl) -> Run {
    Run {
        weir_version: env!("CARGO_PKG_VERSION").to_owned(),
        command_line: plan.command_line.clone(),
        profile: weir_bench::report::Profile {
            name: plan.profile_name.clone(),
            text: plan.profile.to_ini(),
        },
        seed: plan.seed,
        run_id: format!("{:016x}", plan.seed),
        start_time: String::new(),
        duration_ms: 0.0,
        relay_url: url.to_string(),
        draft: None,
        transport: url.scheme.transport().to_owned(),
        publish_flow: flow_name(plan).to_owned(),
        latency_clock: latency_clock(plan).to_owned(),
        subscribers_requested: if plan.role == Some(Mode::Publisher) {
            0
        } else {
            plan.subscribers_total() as u64
        },
        publishers_requested: plan.meetings.map_or(1, |_| plan.subscribers_total() as u64),
        cores: cores(&plan.cores, machine, matches!(plan.relay, RelayChoice::Own)),
        kernel: machine.kernel.clone(),
        cpu_model: machine.cpu_model.clone(),
        interrupted: None,
        partial: false,
    }
}

/// The load generator at work, on threads of its own.
struct Generator {
    plans: Arc<[TrackPlan]>,
    threads: Vec<Hosted>,
    gate: Gate,
    /// Asks the threads to stop.
    stop: Stop,
    /// Roles without a client, for what is not done here.
    nobody: (PublisherRole, SubscriberRole),
}

/// The roles of a run that is over.
struct Finished {
    plans: Arc<[TrackPlan]>,
    threads: Vec<LoadHost>,
    nobody: (PublisherRole, SubscriberRole),
}

impl Generator {
    fn start(plan: &Plan, url: &RelayUrl, run_clock: RunClock) -> anyhow::Result<Self> {
        let configs = configs(plan, url, run_clock)?;
        let plans = Arc::clone(&configs.publishers.plans);
        let stop = Stop::new().context("cannot make an event descriptor")?;
        let gate = Gate::new(plan.no_wait);
        let now = run_clock.origin();
        let nobody = (
            PublisherRole::new(
                PublisherConfig {
                    publishers: Vec::new(),
                    ..configs.publishers.clone()
                },
                now,
            ),
            SubscriberRole::new(SubscriberConfig {
                subscribers: Vec::new(),
                ..configs.subscribers.clone()
            }),
        );
        let sockets = configs.subscribers.target.sockets;
        let (publishers, subscribers) = (configs.publishers, configs.subscribers);
        let mut loads = Vec::new();
        if plan.meetings.is_some() {
            let role = MeetingRole::new(publishers, subscribers, now);
            loads.push((
                Load::Meetings(Box::new(role)),
                plan.cores.subscribers,
                sockets,
            ));
        } else {
            if !publishers.publishers.is_empty() {
                let role = PublisherRole::new(publishers, now);
                loads.push((Load::Publishers(Box::new(role)), plan.cores.publishers, 1));
            }
            if !subscribers.subscribers.is_empty() {
                let role = SubscriberRole::new(subscribers);
                loads.push((
                    Load::Subscribers(Box::new(role)),
                    plan.cores.subscribers,
                    sockets,
                ));
            }
        }
        let start = |(load, core, sockets)| Hosted::start(load, &gate, core, &stop, url, sockets);
        let threads = loads
            .into_iter()
            .map(start)
            .collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self {
            plans,
            threads,
            gate,
            stop,
            nobody,
        })
    }

    /// Leads the run to its end; returns why it was broken off, if it was.
    fn conduct(
        &self,
        plan: &Plan,
        stop: &Stop,
        watch: &mut Watch,
        say: &mut impl FnMut(&str),
    ) -> Option<String> {
        let started = clock::now();
        let patience = patience(plan);
        let length = longest(&plan.profile) + END_TIMEOUT + wait_for_others(plan);
        let mut released = None;
        loop {
            if stop.wait(STEP) {
                return Some("interrupted".to_owned());
            }
            let now = clock::now();
            if let Some(line) = watch.look(now) {
                say(&line);
            }
            if let Some(death) = watch.relay_death() {
                return Some(death);
            }
            let seen: Vec<Seen> = self.threads.iter().map(Hosted::seen).collect();
            if self.is_over(&seen) {
                return None;
            }
            let has_met = |one: &Seen| {
                let (publishers, subscribers) = (one.publishers, one.subscribers);
                publishers.ready + publishers.failed + subscribers.ready + subscribers.failed > 0
            };
            if now - started > START_TIMEOUT && !seen.iter().any(has_met) {
                return Some(format!("no answer within {} s", START_TIMEOUT.as_secs()));
            }
            let is_late = now - started > patience;
            if seen.iter().all(|one| one.has_announced) || is_late {
                self.gate.admit_subscribers();
            }
            let is_ready = seen.iter().all(|one| one.is_subscribed && one.is_served);
            if released.is_none() && (is_ready || is_late) {
                watch.on_connected();
                self.gate.release();
                released = Some(now);
                watch.set_window(window(&plan.profile, now));
            }
            if released.is_some_and(|released| now - released > length) {
                return Some("the run did not end in time".to_owned());
            }
        }
    }

    /// Whether all threads are done, or the publishers are and failed, so that nothing more can come.
    fn is_over(&self, seen: &[Seen]) -> bool {
        let of_publishers = |one: &Seen| one.publishers.publishers > 0;
        let failed = seen.iter().any(|one| one.publishers.failed > 0);
        let mut threads = self.threads.iter().zip(seen);
        threads.all(|(thread, seen)| thread.is_done() || (failed && !of_publishers(seen)))
    }

    /// Waits for the threads, after asking them to stop if the run was broken off.
    fn end(self, is_broken_off: bool) -> anyhow::Result<Finished> {
        if is_broken_off || !self.threads.iter().all(Hosted::is_done) {
            self.stop.request();
        }
        let threads = self.threads.into_iter().map(Hosted::join);
        Ok(Finished {
            plans: self.plans,
            threads: threads.collect::<anyhow::Result<_>>()?,
            nobody: self.nobody,
        })
    }
}

impl Finished {
    fn publishers(&self) -> &PublisherRole {
        let mut roles = self
            .threads
            .iter()
            .filter_map(|one| one.load().publishers());
        roles.next().unwrap_or(&self.nobody.0)
    }

    fn subscribers(&self) -> &SubscriberRole {
        let mut roles = self
            .threads
            .iter()
            .filter_map(|one| one.load().subscribers());
        roles.next().unwrap_or(&self.nobody.1)
    }

    /// Whether there is anything to report; if not, why.
    fn check(&self, url: &RelayUrl, interrupted: Option<&str>) -> anyhow::Result<()> {
        if let Some(problem) = self.threads.iter().find_map(LoadHost::refused_release) {
            bail!("{problem}");
        }
        let (publishers, subscribers) = (self.publishers(), self.subscribers());
        let failure = publishers
            .failures()
            .next()
            .map(|(_, reason)| reason.to_owned());
        // Where nobody subscribes, a publisher that failed is all there is to say.
        let is_silent = subscribers.progress().subscribers == 0 && failure.is_some();
        let progress = publishers.progress();
        // Those that are through have closed their sessions.
        let has_published = progress.ready + progress.objects_sent > 0;
        if (has_published && !is_silent) || subscribers.relay().is_some() {
            return Ok(());
        }
        let of_subscribers = || {
            let results = subscribers.results(|_| None);
            results.into_iter().find_map(|result| result.failure)
        };
        let failure = failure
            .or_else(|| interrupted.map(str::to_owned))
            .or_else(of_subscribers);
        let failure = failure.unwrap_or_else(|| "no session could be set up".to_owned());
        bail!("{url}: {failure}")
    }
}

/// What both kinds of clients are made from.
struct Configs {
    publishers: PublisherConfig,
    subscribers: SubscriberConfig,
}

fn configs(plan: &Plan, url: &RelayUrl, run_clock: RunClock) -> anyhow::Result<Configs> {
    let wait = wait_for_others(plan);
    let mut target = target::target(url, &plan.trust, socket_count(plan))?;
    target.setup.authorization_tokens.clone_from(&plan.tokens);
    let plans: Arc<[TrackPlan]> = (0_u64..)
        .zip(&plan.profile.tracks)
        .map(|(number, track)| TrackPlan::new(track, number, plan.seed, run_clock).on(plan.wire))
        .collect();
    let (profile, seed) = (&plan.profile, plan.seed);
    let scenario = if let Some(groups) = plan.meetings {
        Scenario::meetings(profile, groups.meetings, groups.clients_per_meeting, seed)
    } else {
        let roles = Roles { given: plan.role };
        Scenario::fan_out_of(profile, plan.subscribers, seed, roles)
    };
    let scenario = scenario.with_context(|| plan.profile_name.clone())?;
    let mut session_limits = weir_moqt::limits::Limits::default();
    let requests = scenario.subscribers.iter().map(|wanted| wanted.len()).max();
    session_limits.requests_local_max = session_limits
        .requests_local_max
        .max(requests.unwrap_or(0) + REQUESTS_BESIDE);
    let publishers = PublisherConfig {
        target: target::Target {
            sockets: if plan.meetings.is_some() {
                target.sockets
            } else {
                1
            },
            ..target.clone()
        },
        plans: Arc::clone(&plans),
        publishers: scenario.publishers,
        flow: plan.flow,
        ramp_per_second: plan.ramp_per_second,
        tokens: plan.tokens.clone(),
        session_limits: session_limits.clone(),
    };
    let subscribers = SubscriberConfig {
        target,
        plans,
        subscribers: scenario.subscribers,
        flow: plan.subscribe_flow,
        request: SubscribeRequest {
            tokens: plan.tokens.clone(),
            // The publisher of another process may be the later one.
            rendezvous_timeout: (!wait.is_zero()).then_some(wait),
            ..SubscribeRequest::default()
        },
        ramp_per_second: plan.ramp_per_second,
        start_timeout: longest(&plan.profile).max(START_TIMEOUT) + wait,
        verify_content: true,
        session_limits,
    };
    Ok(Configs {
        publishers,
        subscribers,
    })
}

/// How long those who only subscribe wait for the process that publishes.
fn wait_for_others(plan: &Plan) -> Duration {
    if plan.role == Some(Mode::Subscriber) {
        AUDIENCE_TIMEOUT
    } else {
        Duration::ZERO
    }
}

/// How long the clients may take to get ready.
fn patience(plan: &Plan) -> Duration {
    if plan.role == Some(Mode::Publisher) {
        return AUDIENCE_TIMEOUT;
    }
    let rate = u64::from(plan.ramp_per_second);
    let ramp = (plan.subscribers_total() as u64)
        .checked_div(rate)
        .unwrap_or(0);
    START_TIMEOUT + Duration::from_secs(ramp) * 2
}

/// The longest that a track of the profile takes, drain included.
fn longest(profile: &Profile) -> Duration {
    let lengths = profile
        .tracks
        .iter()
        .map(|track| track.total_transmit_time() + track.ttl.max(Duration::from_secs(2)));
    lengths.max().unwrap_or_default()
}

/// The steady part of the data phase, in which all tracks send: a second or a tenth of it after the last has
/// begun, until the first ends.
fn window(profile: &Profile, released: std::time::Instant) -> Window {
    let begin = profile
        .tracks
        .iter()
        .map(|track| track.start_delay)
        .max()
        .unwrap_or_default();
    let ends = profile.tracks.iter().map(TrackProfile::total_transmit_time);
    let end = ends.min().unwrap_or_default();
    let settle = (end.saturating_sub(begin) / 10).min(Duration::from_secs(1));
    Window {
        from: released + begin + settle,
        to: released + end.max(begin + settle),
    }
}

fn socket_count(plan: &Plan) -> u32 {
    if plan.socket_per_subscriber {
        u32::try_from(plan.subscribers_total())
            .unwrap_or(u32::MAX)
            .max(1)
    } else {
        1
    }
}

fn flow_name(plan: &Plan) -> &'static str {
    match (plan.flow, plan.subscribe_flow) {
        (PublishFlow::Publish, SubscribeFlow::Subscribe) => "PUBLISH",
        (PublishFlow::Publish, SubscribeFlow::SubscribeNamespace) => "PUBLISH, SUBSCRIBE_NAMESPACE",
        (PublishFlow::Publish, SubscribeFlow::SubscribeTracks) => "PUBLISH, SUBSCRIBE_TRACKS",
        (PublishFlow::PublishNamespace, SubscribeFlow::Subscribe) => "PUBLISH_NAMESPACE",
        (PublishFlow::PublishNamespace, SubscribeFlow::SubscribeNamespace) => {
            "PUBLISH_NAMESPACE, SUBSCRIBE_NAMESPACE"
        }
        (PublishFlow::PublishNamespace, SubscribeFlow::SubscribeTracks) => {
            "PUBLISH_NAMESPACE, SUBSCRIBE_TRACKS"
        }
    }
}

/// Where one-way latency takes its time from (decision 34).
fn latency_clock(plan: &Plan) -> &'static str {
    let roles = Roles { given: plan.role };
    let modes = || plan.profile.tracks.iter().map(|track| track.mode);
    let is_whole = modes().all(|mode| roles.publishes(mode) == roles.subscribes(mode));
    if is_whole {
        "one clock: publishers and subscribers in one process"
    } else {
        "wall clock: publishers in another process, exact only if that is on the same host"
    }
}

fn cores(choice: &CoreChoice, machine: &Machine, is_own: bool) -> Cores {
    let numbers = |core: Option<usize>| {
        let cores = core.map_or_else(|| machine.cores.clone(), |core| vec![core]);
        cores
            .into_iter()
            .filter_map(|core| u32::try_from(core).ok())
            .collect()
    };
    Cores {
        relay: if is_own {
            numbers(choice.relay)
        } else {
            Vec::new()
        },
        publishers: numbers(choice.publishers),
        subscribers: numbers(choice.subscribers),
    }
}

/// The drafts that clients offer, as ALPN names.
pub(crate) fn protocols() -> Vec<&'static str> {
    Draft::ALL.iter().map(|draft| draft.alpn()).collect()
}

/// How often the run is looked at.
const STEP: Duration = Duration::from_millis(20);
/// How long publishers and subscribers of different processes wait for each other.
const AUDIENCE_TIMEOUT: Duration = Duration::from_mins(1);
/// Requests of a session beside its subscriptions: offers, and questions for namespaces.
const REQUESTS_BESIDE: usize = 128;
/// How long a relay may take to let clients in, after the last has started.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How much longer than its profile says a run may take.
const END_TIMEOUT: Duration = Duration::from_secs(20);
