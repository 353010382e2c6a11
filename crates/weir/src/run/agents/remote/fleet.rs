//! The controller's side of remote agents.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    fmt,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use weir_bench::{measured::TrackSent, profile::Audience};
use weir_net::{Stop, clock};
use weir_report::relay::Agent as AgentReport;

use super::{
    super::{AgentLink, Order, Said, Share, Slice},
    bus::{Bus, Message},
    clocks::{Clock, Offset, Offsets},
    envelope::{self, Opener, Refused, Sealer, SharedKey},
    protocol::{AGENTS_MAX, AgentInfo, FromAgent, SentPlan, ToAgent},
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

struct State {
    bus: Box<dyn Bus>,
    key: SharedKey,
    /// The name of this controller in the message system.
    id: String,
    clock: Clock,
    agents: Vec<RemoteAgent>,
    /// Agents that have answered the first question, and why others were not understood.
    answers: Vec<(AgentInfo, Header)>,
    strangers: BTreeMap<String, Refused>,
    next_ping: Instant,
    /// Pings that were not answered yet: number, agent, and when each was sent.
    pings: VecDeque<(u64, usize, i64)>,
    pings_sent: u64,
    /// Whether a run is under way, so that pings count for its clocks.
    is_running: bool,
}

type Header = envelope::Header;

struct RemoteAgent {
    info: AgentInfo,
    share: Share,
    sealer: Sealer,
    opener: Opener,
    said: VecDeque<Said>,
    is_claimed: bool,
    is_prepared: bool,
    /// Why it cannot go on, by its own words.
    failed: Option<String>,
    heard_at: Instant,
    offsets: Offsets,
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
        self.0.borrow_mut().begin();
        for _ in 0..PINGS_BEFORE {
            self.0.borrow_mut().ping()?;
            self.wait(stop, |state| state.pings.is_empty())?;
        }
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

impl State {
    /// Asks who is there, and claims the first free agents by name.
    fn find(&mut self, wanted: &Wanted, stop: &Stop) -> anyhow::Result<()> {
        let mut sealer = Sealer::new(self.key.clone(), &self.id, &self.id);
        let (mut until, mut next_hello) = (clock::now() + FIND_TIMEOUT, clock::now());
        loop {
            let now = clock::now();
            if next_hello <= now {
                next_hello = now + HELLO_PERIOD;
                publish(&mut *self.bus, &mut sealer, HELLO, &ToAgent::Hello)?;
            }
            self.read(WAIT_STEP)?;
            let free = self.answers.iter().filter(|(info, _)| !info.is_busy);
            if free.count() >= wanted.agents {
                // Others may be about to answer; the first by name are the same in each run.
                until = until.min(now + SETTLE);
            }
            if now >= until || stop.is_requested() {
                break;
            }
        }
        let mut answers = std::mem::take(&mut self.answers);
        answers.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        if let Some(pair) = answers
            .windows(2)
            .find(|pair| pair[0].0.name == pair[1].0.name)
        {
            bail!(
                "--fleet: two agents are called {:?}; give each another --name",
                pair[0].0.name
            );
        }
        let found = answers.len();
        let (busy, free): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|(info, _)| info.is_busy);
        if free.len() < wanted.agents {
            bail!(
                "--agents: {}",
                self.missing(wanted.agents, found, &free, &busy)
            );
        }
        let chosen: Vec<_> = free.into_iter().take(wanted.agents).collect();
        let names: Vec<&str> = chosen.iter().map(|(info, _)| &*info.name).collect();
        let shares = shares(&names, &wanted.publishers_at)?;
        for ((info, header), share) in chosen.into_iter().zip(shares) {
            let mut agent = RemoteAgent {
                sealer: Sealer::new(self.key.clone(), &self.id, &header.session),
                opener: Opener::new(self.key.clone()),
                info,
                share,
                said: VecDeque::new(),
                is_claimed: false,
                is_prepared: false,
                failed: None,
                heard_at: clock::now(),
                offsets: Offsets::default(),
            };
            agent.send(&mut *self.bus, &ToAgent::Claim)?;
            self.agents.push(agent);
        }
        Ok(())
    }

    /// Says which agents are missing.
    fn missing(
        &self,
        wanted: usize,
        found: usize,
        free: &[(AgentInfo, Header)],
        busy: &[(AgentInfo, Header)],
    ) -> String {
        let names = |agents: &[(AgentInfo, Header)]| {
            let names: Vec<&str> = agents.iter().map(|(info, _)| &*info.name).collect();
            names.join(", ")
        };
        let mut text = format!("{wanted} wanted, and {} free", free.len());
        if !free.is_empty() {
            text = format!("{text} ({})", names(free));
        }
        if !busy.is_empty() {
            text = format!("{text}; busy for another controller: {}", names(busy));
        }
        for (name, refused) in &self.strangers {
            text = format!("{text}; agent {name}: {refused}");
        }
        if found == 0 && self.strangers.is_empty() {
            text.push_str(
                "; start `weir agent` on each host with the same --fleet and --fleet-key",
            );
        }
        text
    }

    fn begin(&mut self) {
        self.pings.clear();
        let now = clock::now();
        for agent in &mut self.agents {
            agent.said.clear();
            agent.is_prepared = false;
            agent.heard_at = now;
            agent.offsets.begin();
        }
    }

    /// Pings all agents.
    fn ping(&mut self) -> anyhow::Result<()> {
        self.next_ping = clock::now() + PING_PERIOD;
        for number in 0..self.agents.len() {
            self.pings_sent += 1;
            if self.pings.len() >= PINGS_MAX {
                self.pings.pop_front();
            }
            let agent = &mut self.agents[number];
            let sent_ns = self.clock.ns(clock::now());
            self.pings.push_back((self.pings_sent, number, sent_ns));
            agent.send(&mut *self.bus, &ToAgent::Ping(self.pings_sent))?;
        }
        Ok(())
    }

    /// Reads what has come, and waits for it at most `patience`.
    fn read(&mut self, patience: Duration) -> anyhow::Result<()> {
        let mut patience = patience;
        while let Some(message) = self.bus.receive(patience)? {
            patience = Duration::ZERO;
            self.on_message(&message);
        }
        Ok(())
    }

    fn on_message(&mut self, message: &Message) {
        let (header, piece) = match envelope::header_of(&message.payload) {
            Ok(read) => read,
            Err(refused @ Refused::Version { .. }) => {
                self.note_stranger("of another version", refused);
                return;
            }
            Err(_) => return,
        };
        let known = self
            .agents
            .iter_mut()
            .position(|one| one.info.id == header.from);
        let Some(number) = known else {
            return self.on_answer(message, header, piece);
        };
        let agent = &mut self.agents[number];
        let opened = agent
            .opener
            .open::<FromAgent>(&message.subject, &header, piece);
        let said = match opened {
            Ok(Some(said)) => said,
            Ok(None) => return,
            // Nobody else has the key, so this is the agent's own.
            Err(refused @ (Refused::TooLarge | Refused::Content(_) | Refused::Order(_))) => {
                agent.failed.get_or_insert_with(|| refused.to_string());
                return;
            }
            Err(refused) => {
                tracing::debug!(agent = agent.info.name, %refused, "a message was ignored");
                return;
            }
        };
        agent.heard_at = message.at;
        match said {
            FromAgent::Here(_) => {}
            FromAgent::Claimed => agent.is_claimed = true,
            FromAgent::Prepared => agent.is_prepared = true,
            FromAgent::State(state) => agent.say(Said::State(state)),
            FromAgent::Second(second) => agent.say(Said::Second(second)),
            FromAgent::Sample(number, sample) => agent.say(Said::Sample(number, sample)),
            FromAgent::Published(published) => agent.say(Said::Published(published)),
            FromAgent::Received(received) => agent.say(Said::Received(received)),
            FromAgent::Failed(problem) => {
                let problem: String = problem.chars().take(PROBLEM_CHARS_MAX).collect();
                agent.failed.get_or_insert(problem);
            }
            FromAgent::Pong(pong) => {
                let asked = self
                    .pings
                    .iter()
                    .position(|(one, of, _)| (*one, *of) == (pong.number, number));
                let Some((_, _, sent_ns)) = asked.and_then(|place| self.pings.remove(place)) else {
                    return;
                };
                if let Some(offset) = Offset::of(sent_ns, &pong, self.clock.ns(message.at)) {
                    let offsets = &mut self.agents[number].offsets;
                    if self.is_running {
                        offsets.add_during(offset);
                    } else {
                        offsets.add_before(offset);
                    }
                }
            }
        }
    }

    /// Handles the answer of an agent that was asked who it is.
    fn on_answer(&mut self, message: &Message, header: Header, piece: &[u8]) {
        // A session that answers this controller's question begins with its name.
        if !header.session.starts_with(&self.id) {
            return;
        }
        let mut opener = Opener::new(self.key.clone());
        match opener.open::<FromAgent>(&message.subject, &header, piece) {
            Ok(Some(FromAgent::Here(info)))
                if info.id == header.from && self.answers.len() < AGENTS_MAX =>
            {
                // It answers each question; the session of the newest answer counts.
                self.answers.retain(|(one, _)| one.id != info.id);
                self.answers.push((info, header));
            }
            Ok(_) => {}
            Err(refused) => self.note_stranger(&header.from, refused),
        }
    }

    fn note_stranger(&mut self, name: &str, refused: Refused) {
        if self.strangers.len() < AGENTS_MAX {
            let plain = |one: &char| one.is_ascii_alphanumeric() || " -._".contains(*one);
            let name = name.chars().filter(plain).take(64).collect();
            self.strangers.insert(name, refused);
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            if let Err(error) = agent.send(&mut *self.bus, &ToAgent::Leave) {
                tracing::debug!(%error, "an agent was not told that it is free");
            }
        }
    }
}

impl RemoteAgent {
    fn send(&mut self, bus: &mut dyn Bus, message: &ToAgent) -> anyhow::Result<()> {
        publish(
            bus,
            &mut self.sealer,
            &agent_subject(&self.info.id),
            message,
        )
    }

    fn say(&mut self, said: Said) {
        if self.said.len() >= SAID_MAX {
            self.said.pop_front();
        }
        self.said.push_back(said);
    }

    fn failure(&self) -> Option<String> {
        let problem = self.failed.as_ref()?;
        Some(format!("agent {}: {problem}", self.info.name))
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
        if let Some(problem) = &agent.failed {
            bail!("{problem}");
        }
        let silent = now.saturating_duration_since(agent.heard_at);
        if said.is_empty() && silent > SILENCE_MAX {
            bail!(
                "nothing came from it for {} s: it ended, or its network did",
                silent.as_secs()
            );
        }
        Ok(said)
    }
}

/// Returns the shares of agents with these names. Those in `publishers_at` publish, or the first one; the others subscribe. If
/// there are no others, all subscribe.
fn shares(names: &[&str], publishers_at: &[String]) -> anyhow::Result<Vec<Share>> {
    if let Some(unknown) = publishers_at
        .iter()
        .find(|one| !names.contains(&one.as_str()))
    {
        bail!(
            "--publishers-at: no agent {unknown:?} was chosen; there are {}",
            names.join(", ")
        );
    }
    let publishes = |number: usize| match publishers_at {
        [] => number == 0,
        named => named.iter().any(|one| one == names[number]),
    };
    let publishing = (0..names.len()).filter(|number| publishes(*number)).count();
    let others = names.len() - publishing;
    let mut turns = (0, 0);
    let share = |number: usize| {
        let is_publishing = publishes(number);
        let subscribes = !is_publishing || others == 0;
        let slice = |turn: &mut usize, of: usize| {
            *turn += 1;
            Slice {
                number: *turn - 1,
                of,
            }
        };
        Share {
            publishers: is_publishing.then(|| slice(&mut turns.0, publishing)),
            subscribers: subscribes
                .then(|| slice(&mut turns.1, if others == 0 { names.len() } else { others })),
        }
    };
    Ok((0..names.len()).map(share).collect())
}

#[expect(clippy::cast_precision_loss, reason = "a printed figure")]
fn milliseconds(ns: i64) -> f64 {
    ns as f64 / 1e6
}

pub(super) fn publish<T: serde::Serialize>(
    bus: &mut dyn Bus,
    sealer: &mut Sealer,
    subject: &str,
    message: &T,
) -> anyhow::Result<()> {
    for frame in sealer.seal(subject, message, bus.payload_bytes_max())? {
        bus.publish(subject, frame)?;
    }
    Ok(())
}

pub(super) fn controller_subject(id: &str) -> String {
    format!("weir.agents.controller.{id}")
}

pub(super) fn agent_subject(id: &str) -> String {
    format!("weir.agents.agent.{id}")
}

/// The subject of the question who is there.
pub(super) const HELLO: &str = "weir.agents.hello";
/// How long agents may take to answer that question.
const FIND_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is asked.
const HELLO_PERIOD: Duration = Duration::from_secs(1);
/// How long the controller waits for more answers when it has enough.
const SETTLE: Duration = Duration::from_millis(300);
/// How long an agent may take to answer an order.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest silence of an agent during a run; it says its state ten times in a second.
const SILENCE_MAX: Duration = Duration::from_secs(5);
const WAIT_STEP: Duration = Duration::from_millis(10);
/// Pings before a run, of which the best counts.
const PINGS_BEFORE: u32 = 16;
/// Pings after it: a whole group.
const PINGS_AFTER: u32 = 8;
/// How often agents are pinged during a run.
const PING_PERIOD: Duration = Duration::from_millis(500);
/// Pings without an answer.
const PINGS_MAX: usize = 4 * AGENTS_MAX;
/// Messages of one agent that wait to be read.
const SAID_MAX: usize = 1024;
/// Characters of an agent's problem that are shown.
const PROBLEM_CHARS_MAX: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_publishes_and_who_subscribes() {
        let of = |names: &[&str], at: &[&str]| {
            let at: Vec<String> = at.iter().map(|one| (*one).to_owned()).collect();
            let shares = shares(names, &at)?;
            let shown = |slice: Option<Slice>| {
                slice.map_or_else(String::new, |one| format!("{}/{}", one.number, one.of))
            };
            Ok::<_, anyhow::Error>(
                shares
                    .iter()
                    .map(|one| format!("{}-{}", shown(one.publishers), shown(one.subscribers)))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(of(&["a"], &[]).unwrap(), ["0/1-0/1"]);
        assert_eq!(of(&["a", "b", "c"], &[]).unwrap(), ["0/1-", "-0/2", "-1/2"]);
        assert_eq!(
            of(&["a", "b", "c"], &["b"]).unwrap(),
            ["-0/2", "0/1-", "-1/2"]
        );
        assert_eq!(
            of(&["a", "b"], &["a", "b"]).unwrap(),
            ["0/2-0/2", "1/2-1/2"]
        );
        let error = of(&["a", "b"], &["c"]).unwrap_err().to_string();
        assert!(
            error.contains("no agent \"c\" was chosen; there are a, b"),
            "{error}"
        );
    }
}
