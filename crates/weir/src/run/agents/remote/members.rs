//! The agents of a controller, and what has come from them.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use anyhow::bail;
use serde_json::Value;
use weir_net::{Stop, clock};

use super::{
    super::{Said, Share},
    bus::{Bus, Message},
    clocks::{Clock, Offset, Offsets, Pong},
    envelope::{self, Header, Opener, Refused, Sealer, SharedKey},
    fleet::Wanted,
    protocol::{AGENTS_MAX, AgentInfo, FromAgent, ToAgent},
    shares::shares,
};

/// All that a controller knows of its agents.
pub(super) struct State {
    pub(super) bus: Box<dyn Bus>,
    pub(super) key: SharedKey,
    /// The name of this controller in the message system.
    pub(super) id: String,
    pub(super) clock: Clock,
    pub(super) agents: Vec<RemoteAgent>,
    /// Agents that have answered the first question, and why others were not understood.
    pub(super) answers: Vec<(AgentInfo, Header)>,
    pub(super) strangers: BTreeMap<String, Refused>,
    pub(super) next_ping: Instant,
    /// Pings that were not answered yet: number, agent, and when each was sent.
    pub(super) pings: VecDeque<(u64, usize, i64)>,
    pub(super) pings_sent: u64,
    /// Whether a run is under way, so that pings count for its clocks.
    pub(super) is_running: bool,
}

/// An agent that works for the controller.
pub(super) struct RemoteAgent {
    pub(super) info: AgentInfo,
    pub(super) share: Share,
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
    pub(super) said: VecDeque<Said>,
    /// What its job has said.
    pub(super) of_job: VecDeque<Value>,
    pub(super) is_claimed: bool,
    pub(super) is_prepared: bool,
    /// Why it cannot go on, by its own words.
    pub(super) failed: Option<String>,
    pub(super) heard_at: Instant,
    pub(super) offsets: Offsets,
}

impl State {
    /// Asks who is there, and claims the first free agents by name.
    pub(super) fn find(&mut self, wanted: &Wanted, stop: &Stop) -> anyhow::Result<()> {
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
                of_job: VecDeque::new(),
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

    pub(super) fn begin(&mut self) {
        self.pings.clear();
        let now = clock::now();
        for agent in &mut self.agents {
            agent.said.clear();
            agent.of_job.clear();
            agent.is_prepared = false;
            agent.heard_at = now;
            agent.offsets.begin();
        }
    }

    /// Pings all agents.
    pub(super) fn ping(&mut self) -> anyhow::Result<()> {
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
    pub(super) fn read(&mut self, patience: Duration) -> anyhow::Result<()> {
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
        self.on_said(number, said, message.at);
    }

    fn on_said(&mut self, number: usize, said: FromAgent, at: Instant) {
        let agent = &mut self.agents[number];
        match said {
            FromAgent::Here(_) => {}
            FromAgent::Claimed => agent.is_claimed = true,
            FromAgent::Prepared => agent.is_prepared = true,
            FromAgent::State(state) => agent.say(Said::State(state)),
            FromAgent::Second(second) => agent.say(Said::Second(second)),
            FromAgent::Sample(number, sample) => agent.say(Said::Sample(number, sample)),
            FromAgent::Published(published) => agent.say(Said::Published(published)),
            FromAgent::Received(received) => agent.say(Said::Received(received)),
            FromAgent::Job(value) => keep(&mut agent.of_job, value),
            FromAgent::Failed(problem) => {
                let problem: String = problem.chars().take(PROBLEM_CHARS_MAX).collect();
                agent.failed.get_or_insert(problem);
            }
            FromAgent::Pong(pong) => self.on_pong(number, &pong, at),
        }
    }

    fn on_pong(&mut self, number: usize, pong: &Pong, at: Instant) {
        let asked = self
            .pings
            .iter()
            .position(|(one, of, _)| (*one, *of) == (pong.number, number));
        let Some((_, _, sent_ns)) = asked.and_then(|place| self.pings.remove(place)) else {
            return;
        };
        if let Some(offset) = Offset::of(sent_ns, pong, self.clock.ns(at)) {
            let offsets = &mut self.agents[number].offsets;
            if self.is_running {
                offsets.add_during(offset);
            } else {
                offsets.add_before(offset);
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
    pub(super) fn send(&mut self, bus: &mut dyn Bus, message: &ToAgent) -> anyhow::Result<()> {
        publish(
            bus,
            &mut self.sealer,
            &agent_subject(&self.info.id),
            message,
        )
    }

    fn say(&mut self, said: Said) {
        keep(&mut self.said, said);
    }

    /// Returns why the controller can expect nothing more from it; `None` if it can.
    pub(super) fn loss(&self, now: Instant) -> Option<String> {
        if let Some(problem) = &self.failed {
            return Some(problem.clone());
        }
        let silent = now.saturating_duration_since(self.heard_at);
        (silent > SILENCE_MAX).then(|| {
            format!(
                "nothing came from it for {} s: it ended, or its network did",
                silent.as_secs()
            )
        })
    }

    pub(super) fn failure(&self) -> Option<String> {
        let problem = self.failed.as_ref()?;
        Some(format!("agent {}: {problem}", self.info.name))
    }
}

/// Keeps the newest messages.
fn keep<T>(messages: &mut VecDeque<T>, message: T) {
    if messages.len() >= SAID_MAX {
        messages.pop_front();
    }
    messages.push_back(message);
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
/// How often agents are pinged during a run.
const PING_PERIOD: Duration = Duration::from_millis(500);
/// Pings without an answer.
const PINGS_MAX: usize = 4 * AGENTS_MAX;
/// Longest silence of an agent during a run; it says its state ten times in a second.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Messages of one agent that wait to be read.
const SAID_MAX: usize = 1024;
/// Characters of an agent's problem that are shown.
const PROBLEM_CHARS_MAX: usize = 500;
const WAIT_STEP: Duration = Duration::from_millis(10);
