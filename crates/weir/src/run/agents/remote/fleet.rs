//! The controller's side of remote agents.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    fmt,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::Value;
use weir_bench::{measured::TrackSent, profile::Audience};
use weir_net::{Stop, clock};
use weir_report::relay::Agent as AgentReport;

use super::{
    super::{AgentLink, Order, Said, Share},
    bus::Bus,
    clocks::{Clock, Offset},
    envelope::{self, SharedKey},
    members::{RemoteAgent, State, controller_subject},
    protocol::{AgentInfo, SentPlan, ToAgent},
};
use crate::event_loop;

/// The agents that work for this controller. Clones share them. They are free again when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Fleet(Rc<RefCell<State>>);

/// What a user asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// The number of agents.
    pub(crate) agents: usize,
    /// Names of the agents that publish; empty: the first one by name.
    pub(crate) publishers_at: Vec<String>,
}

/// What the report says of a remote agent.
#[derive(Clone, Debug)]
struct Facts {
    info: AgentInfo,
    publishes: bool,
    subscribes: bool,
    /// Its clock minus the controller's; `None` if it answered no ping.
    clock: Option<Offset>,
    round_trip: Option<Duration>,
}

/// The way to one remote agent.
struct RemoteLink {
    fleet: Fleet,
    number: usize,
    name: String,
}

impl Fleet {
    /// Finds free agents and claims them.
    ///
    /// # Errors
    /// There are too few, two have the same name, or one of them has another version or key. The error names them.
    pub(crate) fn claim(
        mut bus: Box<dyn Bus>,
        key: SharedKey,
        wanted: &Wanted,
        stop: &Stop,
    ) -> anyhow::Result<Self> {
        let id = envelope::digits(&event_loop::seed::<8>()?);
        bus.subscribe(&controller_subject(&id))?;
        let now = clock::now();
        let fleet = Self(Rc::new(RefCell::new(State {
            bus,
            key,
            id,
            clock: Clock::set_wrong_by(Duration::ZERO),
            agents: Vec::new(),
            answers: Vec::new(),
            strangers: BTreeMap::new(),
            next_ping: now,
            pings: VecDeque::new(),
            pings_sent: 0,
            is_running: false,
        })));
        fleet.0.borrow_mut().find(wanted, stop)?;
        fleet.wait(stop, |state| {
            let mut agents = state.agents.iter();
            agents.all(|one| one.is_claimed)
        })?;
        Ok(fleet)
    }

    /// Whether an agent watches the relay's process.
    pub(crate) fn watches(&self) -> bool {
        self.0.borrow().agents.iter().any(|one| one.info.watches)
    }

    /// Returns the shares of the agents, in their order.
    pub(in crate::run) fn shares(&self) -> Vec<Share> {
        self.0.borrow().agents.iter().map(|one| one.share).collect()
    }

    /// Measures the agents' clocks, and returns the ways to them for a run.
    ///
    /// # Errors
    /// An agent does not answer.
    pub(in crate::run) fn links(&self, stop: &Stop) -> anyhow::Result<Vec<Box<dyn AgentLink>>> {
        self.measure_before(stop)?;
        let mut state = self.0.borrow_mut();
        state.is_running = true;
        let links = state.agents.iter().enumerate().map(|(number, agent)| {
            let link = RemoteLink {
                fleet: self.clone(),
                number,
                name: agent.info.name.clone(),
            };
            Box::new(link) as Box<dyn AgentLink>
        });
        Ok(links.collect())
    }

    fn measure_before(&self, stop: &Stop) -> anyhow::Result<()> {
        self.0.borrow_mut().begin();
        for _ in 0..PINGS_BEFORE {
            self.0.borrow_mut().ping()?;
            self.wait(stop, |state| state.pings.is_empty())?;
        }
        Ok(())
    }

    /// Returns the agents, as they introduced themselves.
    pub(crate) fn infos(&self) -> Vec<AgentInfo> {
        let state = self.0.borrow();
        state.agents.iter().map(|one| one.info.clone()).collect()
    }

    /// Measures the agents' clocks, and gives all agents the order of a job. Returns when the jobs begin: after `lead`.
    ///
    /// # Errors
    /// An agent does not answer.
    pub(crate) fn start_jobs(
        &self,
        order: &Value,
        lead: Duration,
        stop: &Stop,
    ) -> anyhow::Result<Instant> {
        self.measure_before(stop)?;
        let state = &mut *self.0.borrow_mut();
        let begin = clock::now() + lead;
        for agent in &mut state.agents {
            let offset = agent.offsets.result().context("its clock is unknown")?;
            let start = ToAgent::StartJob {
                order: order.clone(),
                begin_agent_ns: state.clock.ns(begin).saturating_add(offset.ns),
            };
            agent.send(&mut *state.bus, &start)?;
        }
        Ok(begin)
    }

    /// Asks all agents to end their jobs early.
    ///
    /// # Errors
    /// The connection to the message system is lost.
    pub(crate) fn end_jobs(&self) -> anyhow::Result<()> {
        let state = &mut *self.0.borrow_mut();
        let mut agents = state.agents.iter_mut();
        agents.try_for_each(|agent| agent.send(&mut *state.bus, &ToAgent::EndJob))
    }

    /// Returns what jobs have said since the last call, with the number of the agent, oldest first. Waits a moment for it.
    ///
    /// # Errors
    /// An agent has failed, or nothing came from it for too long; the error has its name.
    pub(crate) fn poll_jobs(&self) -> anyhow::Result<Vec<(usize, Value)>> {
        let state = &mut *self.0.borrow_mut();
        state.read(WAIT_STEP)?;
        let now = clock::now();
        if state.next_ping <= now {
            state.ping()?;
        }
        let mut said = Vec::new();
        for (number, agent) in state.agents.iter_mut().enumerate() {
            said.extend(agent.of_job.drain(..).map(|value| (number, value)));
            if let Some(problem) = agent.loss(now) {
                bail!("agent {}: {problem}", agent.info.name);
            }
        }
        Ok(said)
    }

    /// Waits until all agents have prepared their clients.
    ///
    /// # Errors
    /// An agent refuses its plan, or does not answer.
    pub(crate) fn await_prepared(&self, stop: &Stop) -> anyhow::Result<()> {
        self.wait(stop, |state| state.agents.iter().all(|one| one.is_prepared))
    }

    /// Measures the agents' clocks after a run. Agents that are lost are left out.
    pub(crate) fn measure_after(&self, stop: &Stop) {
        for _ in 0..PINGS_AFTER {
            let pinged = self.0.borrow_mut().ping();
            let answered = pinged.and_then(|()| self.wait(stop, |state| state.pings.is_empty()));
            if answered.is_err() {
                break;
            }
        }
        let mut state = self.0.borrow_mut();
        state.is_running = false;
        for agent in &mut state.agents {
            agent.offsets.end_group();
        }
    }

    /// Returns the agents, for the report.
    fn facts(&self) -> Vec<Facts> {
        let state = self.0.borrow();
        let facts = |agent: &RemoteAgent| Facts {
            info: agent.info.clone(),
            publishes: agent.share.publishers.is_some(),
            subscribes: agent.share.subscribers.is_some(),
            clock: agent.offsets.result(),
            round_trip: agent.offsets.round_trip(),
        };
        state.agents.iter().map(facts).collect()
    }

    /// Returns the threads that `subscribers` subscribers are spread over, on all agents together.
    pub(crate) fn subscriber_threads(&self, audience: &Audience, subscribers: usize) -> usize {
        let state = self.0.borrow();
        let threads = state.agents.iter().filter_map(|agent| {
            let slice = agent.share.subscribers?;
            let share = subscribers.div_ceil(slice.of);
            Some(audience.threads_of(share, agent.info.cores.len()))
        });
        threads.sum()
    }

    /// Adds what is known of each agent to its entry in the report.
    pub(crate) fn describe(&self, agents: &mut [AgentReport]) {
        let facts = self.facts();
        for agent in agents {
            let Some(one) = facts.iter().find(|one| one.info.name == agent.name) else {
                continue;
            };
            agent.kernel.clone_from(&one.info.kernel);
            agent.cpu_model.clone_from(&one.info.cpu_model);
            let cores = one.info.cores.iter();
            agent.cores = cores.filter_map(|core| u32::try_from(*core).ok()).collect();
            (agent.publishes, agent.subscribes) = (one.publishes, one.subscribes);
            agent.clock_offset_ms = one.clock.map(|clock| milliseconds(clock.ns));
            agent.clock_error_ms = one.clock.map(|clock| milliseconds(clock.error_ns));
            let round_trip = one.round_trip;
            agent.round_trip_ms = round_trip.map(|time| time.as_secs_f64() * 1e3);
        }
    }

    /// Returns the largest error of a latency between two agents; `None` if it is unknown.
    pub(crate) fn clock_error(&self) -> Option<Duration> {
        let facts = self.facts();
        let mut error_ns = 0;
        for (one, publisher) in facts
            .iter()
            .enumerate()
            .filter(|(_, agent)| agent.publishes)
        {
            let subscribers = facts.iter().enumerate();
            for (_, subscriber) in
                subscribers.filter(|(two, agent)| *two != one && agent.subscribes)
            {
                let both = [publisher.clock?.error_ns, subscriber.clock?.error_ns];
                error_ns = error_ns.max(both[0].saturating_add(both[1]));
            }
        }
        Some(Duration::from_nanos(error_ns.unsigned_abs()))
    }

    /// Reads messages until `is_done`.
    fn wait(&self, stop: &Stop, is_done: impl Fn(&State) -> bool) -> anyhow::Result<()> {
        let until = clock::now() + ANSWER_TIMEOUT;
        loop {
            let mut state = self.0.borrow_mut();
            state.read(WAIT_STEP)?;
            if let Some(failed) = state.agents.iter().find_map(RemoteAgent::failure) {
                bail!("{failed}");
            }
            if is_done(&state) {
                return Ok(());
            }
            if stop.is_requested() {
                bail!("interrupted");
            }
            if clock::now() > until {
                let silent = state.agents.iter().min_by_key(|one| one.heard_at);
                let name = silent.map_or("?", |one| &one.info.name);
                bail!("agent {name} does not answer");
            }
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Fleet").finish_non_exhaustive()
    }
}

impl AgentLink for RemoteLink {
    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn order(&mut self, order: Order) -> anyhow::Result<()> {
        let state = &mut *self.fleet.0.borrow_mut();
        let agent = &mut state.agents[self.number];
        let message = match order {
            Order::Prepare(assignment) => {
                let offset = agent.offsets.result().context("its clock is unknown")?;
                let plan = SentPlan::of(&assignment, &state.clock, offset.ns)?;
                ToAgent::Prepare(Box::new(plan))
            }
            Order::AdmitSubscribers => ToAgent::AdmitSubscribers,
            Order::Release => ToAgent::Release,
            Order::Sample(number) => ToAgent::Sample(number),
            Order::End => ToAgent::End,
            Order::Compare(sent) => {
                let sent = sent
                    .into_iter()
                    .map(|(name, totals)| TrackSent { name, totals });
                ToAgent::Compare(sent.collect())
            }
        };
        agent.send(&mut *state.bus, &message)
    }

    fn poll(&mut self, now: Instant) -> anyhow::Result<Vec<Said>> {
        let state = &mut *self.fleet.0.borrow_mut();
        state.read(Duration::ZERO)?;
        if state.next_ping <= now {
            state.ping()?;
        }
        let agent = &mut state.agents[self.number];
        let said: Vec<Said> = agent.said.drain(..).collect();
        match agent.loss(now) {
            Some(problem) if said.is_empty() || agent.failed.is_some() => bail!("{problem}"),
            Some(_) | None => Ok(said),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a printed figure")]
fn milliseconds(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// How long an agent may take to answer an order.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const WAIT_STEP: Duration = Duration::from_millis(10);
/// Pings before a run, of which the best counts.
const PINGS_BEFORE: u32 = 16;
/// Pings after it: a whole group.
const PINGS_AFTER: u32 = 8;
