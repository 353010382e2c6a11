//! The load generator: its clients, its threads, and the phases of a run.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use weir_bench::{
    clock::RunClock,
    early_stop::EarlyStop,
    meeting::MeetingRole,
    metrics::{End, TrackPlan},
    profile::{Mode, Profile},
    publisher::{PublisherConfig, PublisherRole},
    scenario::{Roles, Scenario},
    subscriber::{Part, SubscribeRequest, SubscriberConfig, SubscriberRole, SubscriptionResult},
};
use weir_net::{Stop, clock};
use weir_report::{
    relay::{Conduct, Status, live_view::Moment},
    service_level::JudgedClause,
};

use crate::event_loop;

use super::{
    Plan, RelayUrl, target,
    threads::{Gate, Hosted, KEEP_ALIVE, Load, LoadHost, Seen, Setting, check_files},
    watch::Watch,
};

/// A running load generator, with its threads.
pub(super) struct Generator {
    plans: Arc<[TrackPlan]>,
    pub(super) threads: Vec<Hosted>,
    gate: Gate,
    /// Asks the threads to stop.
    stop: Stop,
    /// Roles without clients, in place of a side that another process makes.
    nobody: (PublisherRole, SubscriberRole),
}

/// Why a run was ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BrokenOff {
    /// A failure, or an interruption.
    Because(String),
    /// The service level is broken for certain.
    Hopeless,
}

/// The roles of a run that has ended.
pub(super) struct Finished {
    pub(super) plans: Arc<[TrackPlan]>,
    threads: Vec<LoadHost>,
    nobody: (PublisherRole, SubscriberRole),
}

impl Generator {
    pub(super) fn start(plan: &Plan, url: &RelayUrl, run_clock: RunClock) -> anyhow::Result<Self> {
        let configs = configs(plan, url, run_clock)?;
        let plans = Arc::clone(&configs.publishers.plans);
        let stop = Stop::new().context("cannot make an event descriptor")?;
        let gate = Gate::new(plan.no_wait);
        let now = run_clock.origin();
        let nobody = nobody(&configs, now);
        let (sockets, threads) = plan.sockets_and_threads();
        check_files(sockets, threads)?;
        let sockets = configs.subscribers.target.sockets;
        let (publishers, subscribers) = (configs.publishers, configs.subscribers);
        let mut loads = Vec::new();
        if plan.meetings.is_some() && plan.part() == Mode::Both {
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
                for mut part in subscribers.split(threads) {
                    part.target.sockets = socket_count(plan, part.subscribers.len());
                    let sockets = part.target.sockets;
                    let load = Load::Subscribers(Box::new(SubscriberRole::new(part)));
                    loads.push((load, plan.cores.subscribers, sockets));
                }
            }
        }
        // One part of the subscribers does not show what is certain of all.
        let early_stop = (plan.ends_early && threads == 1)
            .then(|| EarlyStop::new(plan.level.clone(), plan.unjudged));
        let setting = Setting {
            gate: &gate,
            stop: &stop,
            url,
            audience: &plan.profile.audience,
            origin: now,
            waste_percent: plan.waste_percent,
            early_stop: early_stop.as_ref(),
        };
        let start = |(load, core, sockets)| Hosted::start(load, &setting, core, sockets);
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

    /// Conducts the run through its phases. Returns why the run was ended early, if it was.
    pub(super) fn conduct(
        &self,
        (plan, url): (&Plan, &RelayUrl),
        stop: &Stop,
        watch: &mut Watch,
        say: &mut impl FnMut(&Moment),
    ) -> Option<BrokenOff> {
        let because = |reason: &str| Some(BrokenOff::Because(reason.to_owned()));
        let started = clock::now();
        let patience = patience(plan);
        let length = longest(&plan.profile) + END_TIMEOUT + wait_for_others(plan);
        let mut released = None;
        loop {
            if stop.wait(STEP) {
                return because("interrupted");
            }
            let now = clock::now();
            if let Some(moment) = watch.look(now) {
                say(&moment);
            }
            if let Some(death) = watch.relay_death() {
                return because(&death);
            }
            let seen: Vec<Seen> = self.threads.iter().map(Hosted::seen).collect();
            if self.is_over(&seen) {
                return None;
            }
            if seen.iter().any(|one| one.is_hopeless) {
                return Some(BrokenOff::Hopeless);
            }
            let has_met = |one: &Seen| {
                let (publishers, subscribers) = (one.publishers, one.subscribers);
                publishers.ready + publishers.failed + subscribers.ready + subscribers.failed > 0
            };
            if now - started > START_TIMEOUT && !seen.iter().any(has_met) {
                return because(&format!("no answer within {} s", START_TIMEOUT.as_secs()));
            }
            let last_packet_at = watch.last_packet_at(now);
            let is_open = |one: &Seen| one.publishers.ready + one.subscribers.ready > 0;
            if now - last_packet_at > SILENCE_MAX && seen.iter().any(is_open) {
                return because(&format!(
                    "no packet came from the relay at {url} for {} s, also no answer to a ping; the last packet came {}",
                    (now - last_packet_at).as_secs(),
                    watch.time_in_words(last_packet_at)
                ));
            }
            let is_late = now - started > patience;
            if seen.iter().all(|one| one.has_announced) || is_late {
                self.gate.admit_subscribers();
            }
            let is_ready = seen.iter().all(|one| one.is_subscribed && one.is_served);
            if released.is_none()
                && is_late
                && let Some(reason) = nobody_came(plan, &seen, patience)
            {
                return Some(BrokenOff::Because(reason));
            }
            if released.is_none() && (is_ready || is_late) {
                watch.on_released(now, &plan.profile);
                self.gate.release();
                released = Some(now);
            }
            if released.is_some_and(|released| now - released > length) {
                return because("the run did not end in time");
            }
        }
    }

    /// Whether all threads are done, or the publishers are done and failed: then no more objects can arrive.
    fn is_over(&self, seen: &[Seen]) -> bool {
        let of_publishers = |one: &Seen| one.publishers.publishers > 0;
        let failed = seen.iter().any(|one| one.publishers.failed > 0);
        let mut threads = self.threads.iter().zip(seen);
        threads.all(|(thread, seen)| thread.is_done() || (failed && !of_publishers(seen)))
    }

    /// Waits for the threads to end; a run that was ended early stops them.
    pub(super) fn end(self, is_broken_off: bool) -> anyhow::Result<Finished> {
        if is_broken_off || !self.threads.iter().all(Hosted::is_done) {
            self.stop.request();
        }
        let joined = self.threads.into_iter().map(Hosted::join);
        let mut threads: Vec<LoadHost> = Vec::new();
        for host in joined.collect::<anyhow::Result<Vec<_>>>()? {
            let mut kept = threads.iter_mut();
            let apart = kept.try_fold(host, |host, one| one.absorb(host));
            threads.extend(apart);
        }
        Ok(Finished {
            plans: self.plans,
            threads,
            nobody: self.nobody,
        })
    }
}

impl Finished {
    pub(super) fn publishers(&self) -> &PublisherRole {
        let mut roles = self
            .threads
            .iter()
            .filter_map(|one| one.load().publishers());
        roles.next().unwrap_or(&self.nobody.0)
    }

    pub(super) fn subscribers(&self) -> &SubscriberRole {
        let mut roles = self
            .threads
            .iter()
            .filter_map(|one| one.load().subscribers());
        roles.next().unwrap_or(&self.nobody.1)
    }

    /// Returns the clauses of the service level that were broken for certain.
    pub(super) fn hopeless(&self) -> Vec<JudgedClause> {
        let threads = self.threads.iter();
        threads.flat_map(|one| one.hopeless().to_vec()).collect()
    }

    /// Returns why the run is incomplete although it was not ended early: all sessions were lost, the publisher failed, or
    /// the relay stopped answering. `None` for a complete run, whatever objects were lost.
    pub(super) fn cut_short(
        &self,
        url: &RelayUrl,
        watch: &mut Watch,
        now: Instant,
    ) -> Option<String> {
        let last_packet_at = watch.last_packet_at(now);
        let last_packet = format!(
            "the last packet came {}",
            watch.time_in_words(last_packet_at)
        );
        let results = self.subscribers().results(|_| None);
        let steady = || results.iter().filter(|one| one.conduct == Conduct::Steady);
        // Whether every subscription ended early, in a way that `is_meant` accepts.
        let all_ended = |is_meant: fn(End) -> bool| {
            let cut = |one: &SubscriptionResult| {
                one.track.status != Status::Good && one.track.end.is_some_and(is_meant)
            };
            !results.is_empty() && steady().all(cut)
        };
        let has_received = || steady().any(|one| one.track.completion.objects_received > 0);
        let progress = self.subscribers().progress();
        if progress.failed == progress.subscribers
            && all_ended(|end| end == End::Disconnected)
            && has_received()
        {
            let reason = results.iter().rev().find_map(|one| one.failure.as_deref());
            return Some(format!(
                "all sessions with the relay at {url} were lost ({last_packet}): {}",
                reason.unwrap_or("the reason is not known")
            ));
        }
        let publishers = self.publishers();
        let published = publishers.progress();
        if published.failed > 0
            && published.failed == published.publishers
            && let Some((_, reason)) = publishers.cut_off().last()
        {
            return Some(format!(
                "the publisher at the relay {url} failed before the end of its tracks: {reason}"
            ));
        }
        let is_silent = now - last_packet_at > KEEP_ALIVE + PING_PATIENCE;
        (is_silent
            && all_ended(|end| matches!(end, End::Idle | End::Disconnected))
            && has_received())
        .then(|| format!("the relay at {url} stopped answering, also to pings; {last_packet}"))
    }

    /// Checks that something was measured.
    ///
    /// # Errors
    /// No session was established, or the publisher failed at once; the error names the reason.
    pub(super) fn check(&self, url: &RelayUrl, interrupted: Option<&str>) -> anyhow::Result<()> {
        if let Some(problem) = self.threads.iter().find_map(LoadHost::refused_release) {
            bail!("{problem}");
        }
        let (publishers, subscribers) = (self.publishers(), self.subscribers());
        let failure = publishers
            .failures()
            .next()
            .map(|(_, reason)| reason.to_owned());
        // Without subscribers, a failed publisher is all there is to report.
        let is_silent = subscribers.progress().subscribers == 0 && failure.is_some();
        // Publishers that are done have closed their sessions.
        let has_met = publishers.progress().established > 0;
        if (has_met && !is_silent) || subscribers.relay().is_some() {
            return Ok(());
        }
        let of_subscribers = || {
            let results = subscribers.results(|_| None);
            results.into_iter().find_map(|result| result.failure)
        };
        let failure = failure
            .or_else(|| interrupted.map(str::to_owned))
            .or_else(of_subscribers);
        let failure = failure.unwrap_or_else(|| "no session was established".to_owned());
        bail!("{url}: {failure}")
    }
}

/// Returns why publishers cannot begin when their patience is over: the subscribers of other processes did not come.
fn nobody_came(plan: &Plan, seen: &[Seen], patience: Duration) -> Option<String> {
    if plan.part() != Mode::Publisher || plan.no_wait {
        return None;
    }
    let sum = |pick: fn(&Seen) -> u64| seen.iter().map(pick).sum::<u64>();
    let (served, present) = (
        sum(|one| one.publishers.served),
        sum(|one| one.publishers.present),
    );
    let seconds = patience.as_secs();
    if let Some(awaited) = plan.await_subscribers.filter(|awaited| present < *awaited) {
        let ignored = sum(|one| one.publishers.ignored_announcements);
        return Some(format!(
            "{present} of {awaited} subscribers (--await-subscribers) had subscribed after {seconds} s, \
             and {ignored} announcements could not be counted; start them with the same --seed"
        ));
    }
    (served == 0).then(|| {
        format!(
            "no subscriber came within {seconds} s; start --role subscribe with the same --seed, or say --no-wait"
        )
    })
}

/// The configuration of both kinds of clients.
struct Configs {
    publishers: PublisherConfig,
    subscribers: SubscriberConfig,
}

fn configs(plan: &Plan, url: &RelayUrl, run_clock: RunClock) -> anyhow::Result<Configs> {
    let wait = wait_for_others(plan);
    let sockets = socket_count(plan, plan.subscribers_total());
    let mut target = target::target_with(url, &plan.trust, sockets, &plan.drafts)?;
    target.tokens = plan.tokens.of_publishers.clone();
    let plans: Arc<[TrackPlan]> = (0_u64..)
        .zip(&plan.profile.tracks)
        .map(|(number, track)| TrackPlan::new(track, number, plan.seed, run_clock).on(plan.wire))
        .collect();
    let (profile, seed) = (&plan.profile, plan.seed);
    let roles = Roles { given: plan.role };
    let scenario = if let Some(groups) = plan.meetings {
        let meetings = groups.first..groups.first + groups.count as u64;
        Scenario::meetings(profile, meetings, groups.clients_per_meeting, seed, roles)
    } else {
        let publishers = plan.first_publisher..plan.first_publisher + plan.publishers as u64;
        Scenario::fan_out_of(profile, publishers, plan.subscribers, seed, roles)
    };
    let scenario = scenario.with_context(|| plan.profile_name.clone())?;
    let requests = scenario.subscribers.iter().map(|wanted| wanted.len()).max();
    let requests_max = &mut target.limits.requests_local_max;
    *requests_max = (*requests_max).max(requests.unwrap_or(0) + REQUESTS_BESIDE);
    let mut of_audience = target.clone();
    let tls = of_audience.client.tls;
    of_audience.client.tls = tls.acknowledging(profile.audience.acknowledgements);
    of_audience.tokens = plan.tokens.of_subscribers.clone();
    let publishers = PublisherConfig {
        target: if plan.meetings.is_some() {
            of_audience.clone()
        } else {
            target.sockets = 1;
            target
        },
        plans: Arc::clone(&plans),
        publishers: scenario.publishers,
        flow: plan.flow,
        ramp_per_second: plan.ramp_per_second,
        await_subscribers: plan.await_subscribers,
    };
    let subscribers = SubscriberConfig {
        target: of_audience,
        plans,
        part: Part::whole(scenario.subscribers.len()),
        subscribers: scenario.subscribers,
        flow: plan.subscribe_flow,
        request: SubscribeRequest {
            // The publisher's process may start later.
            rendezvous_timeout: (!wait.is_zero()).then_some(wait),
            ..SubscribeRequest::default()
        },
        ramp_per_second: plan.ramp_per_second,
        audience: plan.profile.audience,
        start_timeout: longest(&plan.profile).max(START_TIMEOUT) + wait,
        verify_content: true,
        announce_as: process_number(plan)?,
    };
    Ok(Configs {
        publishers,
        subscribers,
    })
}

/// Returns roles without clients.
fn nobody(configs: &Configs, now: Instant) -> (PublisherRole, SubscriberRole) {
    let publishers = PublisherConfig {
        publishers: Vec::new(),
        ..configs.publishers.clone()
    };
    let subscribers = SubscriberConfig {
        subscribers: Vec::new(),
        part: Part::whole(0),
        ..configs.subscribers.clone()
    };
    (
        PublisherRole::new(publishers, now),
        SubscriberRole::new(subscribers),
    )
}

/// Returns the number under which the subscribers of this process announce themselves to publishers of other processes.
fn process_number(plan: &Plan) -> anyhow::Result<Option<u64>> {
    let is_apart = plan.part() == Mode::Subscriber;
    let number = || event_loop::seed().map(u64::from_le_bytes);
    is_apart.then(number).transpose()
}

/// Returns how long subscribers wait for the process that publishes.
fn wait_for_others(plan: &Plan) -> Duration {
    if plan.part() == Mode::Subscriber {
        AUDIENCE_TIMEOUT
    } else {
        Duration::ZERO
    }
}

/// Returns how long the clients may take to get ready.
fn patience(plan: &Plan) -> Duration {
    let rate = u64::from(plan.ramp_per_second);
    let ramp = |subscribers: u64| {
        let seconds = subscribers.checked_div(rate).unwrap_or(0);
        Duration::from_secs(seconds) * 2
    };
    if plan.part() == Mode::Publisher {
        return AUDIENCE_TIMEOUT + ramp(plan.await_subscribers.unwrap_or(0));
    }
    START_TIMEOUT + ramp(plan.subscribers_total() as u64)
}

/// Returns the time of the profile's longest track, with the time for late objects.
fn longest(profile: &Profile) -> Duration {
    let lengths = profile
        .tracks
        .iter()
        .map(|track| track.total_transmit_time() + track.ttl.max(Duration::from_secs(2)));
    lengths.max().unwrap_or_default()
}

/// Returns the sockets of a thread with `subscribers` subscribers.
fn socket_count(plan: &Plan, subscribers: usize) -> u32 {
    if plan.profile.audience.has_own_sockets {
        u32::try_from(subscribers).unwrap_or(u32::MAX).max(1)
    } else {
        1
    }
}

/// Time between two looks at the threads.
const STEP: Duration = Duration::from_millis(20);
/// How long publishers and subscribers of different processes wait for each other.
const AUDIENCE_TIMEOUT: Duration = Duration::from_mins(1);
/// Requests of a session beside its subscriptions: offers, and `SUBSCRIBE_NAMESPACE`.
const REQUESTS_BESIDE: usize = 128;
/// Time that a relay may take to accept clients, after the last one has started.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time without a packet from the relay; clients ping earlier.
const SILENCE_MAX: Duration = Duration::from_secs(8);
/// Time that the answer to a ping may take.
const PING_PATIENCE: Duration = Duration::from_millis(200);
/// Time that a run may take beyond its profile.
const END_TIMEOUT: Duration = Duration::from_secs(20);
