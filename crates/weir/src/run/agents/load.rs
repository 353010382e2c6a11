//! The load of a share: which clients it has, on which threads, and how they reach the relay.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use weir_bench::{
    clock::RunClock,
    meeting::MeetingRole,
    metrics::TrackPlan,
    part::Part,
    profile::{Mode, Profile},
    publisher::{PublisherConfig, PublisherRole},
    scenario::{Roles, Scenario},
    subscriber::{SubscribeRequest, SubscriberConfig, SubscriberRole},
};

use super::threads::Load;
use crate::{
    event_loop,
    run::{Plan, RelayUrl, controller, target},
};

/// An agent's part of a run.
#[derive(Clone, Debug)]
pub(in crate::run) struct Assignment {
    /// The whole run. Its cores are those of the agent's machine.
    pub(in crate::run) plan: Plan,
    pub(in crate::run) url: RelayUrl,
    /// The clients that the agent has.
    pub(in crate::run) share: Share,
    /// The clock of the run, on the agent's machine.
    pub(in crate::run) clock: RunClock,
}

/// The clients of one agent, as parts of those of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::run) struct Share {
    /// `None`: it has no publishers.
    pub(in crate::run) publishers: Option<Slice>,
    /// `None`: it has no subscribers.
    pub(in crate::run) subscribers: Option<Slice>,
}

/// One of several equal parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::run) struct Slice {
    /// Its number, from zero.
    pub(in crate::run) number: usize,
    /// The number of parts, at least one.
    pub(in crate::run) of: usize,
}

impl Share {
    /// The share that has all clients.
    pub(in crate::run) const WHOLE: Self = Self {
        publishers: Some(Slice { number: 0, of: 1 }),
        subscribers: Some(Slice { number: 0, of: 1 }),
    };
}

/// A role of a thread, with its core and the number of its sockets.
pub(super) type PlacedLoad = (Load, Option<usize>, u32);

/// Returns the tracks of the profile, as all clients of a run see them.
pub(in crate::run) fn track_plans(plan: &Plan, clock: RunClock) -> Arc<[TrackPlan]> {
    let tracks = (0_u64..).zip(&plan.profile.tracks);
    tracks
        .map(|(number, track)| TrackPlan::new(track, number, plan.seed, clock).on(plan.wire))
        .collect()
}

/// Returns the roles of a share, each for a thread of its own.
pub(super) fn loads(assignment: &Assignment, now: Instant) -> anyhow::Result<Vec<PlacedLoad>> {
    let Assignment { plan, share, .. } = assignment;
    let (publishers, subscribers) = configs(assignment)?;
    let cores = &plan.cores;
    let part_of = |whole: Part, slice: Option<Slice>| {
        let part = slice.and_then(|slice| whole.split(slice.of).nth(slice.number));
        part.filter(|part| !part.is_empty())
    };
    let mut loads = Vec::new();
    let subscribing = part_of(subscribers.part, share.subscribers);
    let publishing = part_of(publishers.part, share.publishers);
    if plan.meetings.is_some() && plan.part() == Mode::Both {
        let Some(whole) = subscribing else {
            return Ok(loads);
        };
        let meetings = whole.len() / whole.block();
        let threads = plan
            .profile
            .audience
            .threads_of(meetings, cores.subscribers.len());
        for (number, part) in whole.split(threads).enumerate() {
            let subscribers = with_sockets(plan, subscribers.of(part));
            let sockets = subscribers.target.sockets;
            let publishers = PublisherConfig {
                target: subscribers.target.clone(),
                ..publishers.of(part)
            };
            let role = MeetingRole::new(publishers, subscribers, now);
            let core = core_of(&cores.subscribers, number);
            loads.push((Load::Meetings(Box::new(role)), core, sockets));
        }
        return Ok(loads);
    }
    if let Some(whole) = publishing {
        let threads = cores.publishers.len().min(whole.len()).max(1);
        for (number, part) in whole.split(threads).enumerate() {
            let role = PublisherRole::new(publishers.of(part), now);
            let core = core_of(&cores.publishers, number);
            loads.push((Load::Publishers(Box::new(role)), core, 1));
        }
    }
    if let Some(whole) = subscribing {
        let threads = plan
            .profile
            .audience
            .threads_of(whole.len(), cores.subscribers.len());
        for (number, part) in whole.split(threads).enumerate() {
            let part = with_sockets(plan, subscribers.of(part));
            let sockets = part.target.sockets;
            let load = Load::Subscribers(Box::new(SubscriberRole::new(part)));
            loads.push((load, core_of(&cores.subscribers, number), sockets));
        }
    }
    Ok(loads)
}

/// Returns the core of thread `number`; `None` if threads are not bound to cores.
fn core_of(cores: &[usize], number: usize) -> Option<usize> {
    cores.get(number % cores.len().max(1)).copied()
}

/// Returns subscribers with the sockets that they need.
fn with_sockets(plan: &Plan, mut subscribers: SubscriberConfig) -> SubscriberConfig {
    subscribers.target.sockets = if plan.profile.audience.has_own_sockets {
        u32::try_from(subscribers.subscribers.len())
            .unwrap_or(u32::MAX)
            .max(1)
    } else {
        1
    };
    subscribers
}

/// Returns the configuration of all publishers and of all subscribers of the run.
fn configs(assignment: &Assignment) -> anyhow::Result<(PublisherConfig, SubscriberConfig)> {
    let Assignment {
        plan, url, clock, ..
    } = assignment;
    let wait = controller::wait_for_others(plan);
    let mut target = target::target(url, &plan.trust, &plan.drafts)?;
    target.tokens = plan.tokens.of_publishers.clone();
    let plans = track_plans(plan, *clock);
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
    let block = plan
        .meetings
        .map_or(1, |meetings| meetings.clients_per_meeting);
    let publishers = PublisherConfig {
        target: if plan.meetings.is_some() {
            of_audience.clone()
        } else {
            target
        },
        plans: Arc::clone(&plans),
        part: Part::whole_of_blocks(scenario.publishers.len(), block),
        publishers: scenario.publishers,
        flow: plan.flow,
        ramp_per_second: plan.ramp_per_second,
        await_subscribers: plan.await_subscribers,
    };
    let subscribers = SubscriberConfig {
        target: of_audience,
        plans,
        part: Part::whole_of_blocks(scenario.subscribers.len(), block),
        subscribers: scenario.subscribers,
        flow: plan.subscribe_flow,
        request: SubscribeRequest {
            // The publisher's process may start later.
            rendezvous_timeout: (!wait.is_zero()).then_some(wait),
            ..SubscribeRequest::default()
        },
        ramp_per_second: plan.ramp_per_second,
        audience: plan.profile.audience,
        start_timeout: longest(&plan.profile).max(controller::START_TIMEOUT) + wait,
        verify_content: true,
        announce_as: process_number(plan)?,
    };
    Ok((publishers, subscribers))
}

/// Returns the number under which the subscribers of this process announce themselves to publishers of other processes.
fn process_number(plan: &Plan) -> anyhow::Result<Option<u64>> {
    let is_apart = plan.part() == Mode::Subscriber;
    let number = || event_loop::seed().map(u64::from_le_bytes);
    is_apart.then(number).transpose()
}

/// Returns the time of the profile's longest track, with the time for late objects.
pub(in crate::run) fn longest(profile: &Profile) -> Duration {
    let lengths = profile
        .tracks
        .iter()
        .map(|track| track.total_transmit_time() + track.ttl.max(Duration::from_secs(2)));
    lengths.max().unwrap_or_default()
}

/// Requests of a session beside its subscriptions: offers, and `SUBSCRIBE_NAMESPACE`.
const REQUESTS_BESIDE: usize = 128;
