//! All agents of a run, as its controller sees them.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use weir_bench::measured::{Measured, PublishersMeasured, SubscribersMeasured};
use weir_histogram::Histogram;
use weir_net::clock;
use weir_report::{latency, service_level::MeasuredSoFar};

use super::{AgentLink, Order, Said, Sample, SecondSeen, Seen, State};

/// The agents of a run.
pub(in crate::run) struct Agents {
    members: Vec<Member>,
    /// Samples ordered so far.
    samples_ordered: u32,
}

/// An agent, and what it has said.
struct Member {
    link: Box<dyn AgentLink>,
    /// Empty until the agent has said its state.
    state: Option<State>,
    second: Box<SecondSeen>,
    /// Samples that nobody has taken yet, by number.
    samples: BTreeMap<u32, Sample>,
    published: Option<Box<PublishersMeasured>>,
    received: Option<Box<SubscribersMeasured>>,
    /// Why the agent is lost, if it is.
    lost: Option<String>,
}

impl Agents {
    /// Returns agents that have no orders yet.
    pub(in crate::run) fn new(links: impl IntoIterator<Item = Box<dyn AgentLink>>) -> Self {
        let member = |link| Member {
            link,
            state: None,
            second: Box::default(),
            samples: BTreeMap::new(),
            published: None,
            received: None,
            lost: None,
        };
        Self {
            members: links.into_iter().map(member).collect(),
            samples_ordered: 0,
        }
    }

    /// Returns the name of remote agent `number`; `None` for the one in this process.
    pub(in crate::run) fn name(&self, number: usize) -> Option<&str> {
        self.members.get(number)?.link.name()
    }

    /// Gives agent `number` an order.
    pub(in crate::run) fn order(&mut self, number: usize, order: Order) -> anyhow::Result<()> {
        self.members[number].order(order)
    }

    /// Gives all agents an order. Those that cannot be reached are lost, which the next [`Self::poll`] returns.
    pub(in crate::run) fn order_all(&mut self, order: &Order) {
        for member in self.members.iter_mut().filter(|one| one.lost.is_none()) {
            if let Err(problem) = member.order(order.clone()) {
                member.lost = Some(format!("{problem:#}"));
            }
        }
    }

    /// Reads what agents have said. Does not wait.
    ///
    /// # Errors
    /// An agent is lost, or cannot carry out its orders. The error names it.
    pub(in crate::run) fn poll(&mut self, now: Instant) -> anyhow::Result<()> {
        for member in &mut self.members {
            if member.lost.is_none()
                && let Err(problem) = member.poll(now)
            {
                member.lost = Some(format!("{problem:#}"));
            }
        }
        match self.members.iter().find_map(|one| one.lost.as_deref()) {
            Some(problem) => bail!("{problem}"),
            None => Ok(()),
        }
    }

    /// Returns why agents are lost.
    pub(in crate::run) fn losses(&self) -> Vec<String> {
        let members = self.members.iter();
        members.filter_map(|one| one.lost.clone()).collect()
    }

    /// Returns the progress of all threads. An agent that has said nothing yet counts as a thread that has done nothing, so
    /// that no step of the run begins without it.
    pub(in crate::run) fn seen(&self) -> Vec<Seen> {
        let mut seen = Vec::new();
        for member in &self.members {
            match &member.state {
                Some(state) => seen.extend(state.threads.iter().map(|thread| thread.seen)),
                None => seen.push(Seen::default()),
            }
        }
        seen
    }

    /// Whether all clients are done, or the publishers are done and failed: then no more objects can arrive.
    pub(in crate::run) fn is_over(&self) -> bool {
        let states = || self.members.iter().flat_map(|one| &one.state);
        let threads = || states().flat_map(|state| &state.threads);
        let failed = threads().any(|thread| thread.seen.publishers.failed > 0);
        threads().next().is_some()
            && threads().all(|thread| {
                let publishes = thread.seen.publishers.publishers > 0;
                thread.is_done || (failed && !publishes)
            })
    }

    /// Returns the number of packets that all agents have received.
    pub(in crate::run) fn packets_received(&self) -> u64 {
        let states = self.members.iter().flat_map(|one| &one.state);
        states.map(|state| state.packets_received).sum()
    }

    /// Returns median and 99th percentile of latency in the last second that agents have said, in milliseconds.
    pub(in crate::run) fn latency_ms(&self) -> Option<(f64, f64)> {
        let seconds = || self.members.iter().map(|one| &one.second);
        let last = seconds().map(|one| one.second).max()?;
        let mut total = Histogram::new();
        for one in seconds().filter(|one| one.second == last) {
            total.merge(&one.latency);
        }
        latency::distribution(&total).map(|one| (one.p50_ms, one.p99_ms))
    }

    /// Returns what could make a clause certain to fail, over all agents.
    pub(in crate::run) fn so_far(&self) -> Option<MeasuredSoFar> {
        let mut total: Option<MeasuredSoFar> = None;
        for so_far in self
            .members
            .iter()
            .filter_map(|one| one.second.so_far.as_ref())
        {
            total.get_or_insert_default().add(so_far);
        }
        total
    }

    /// Orders a sample of all agents. Returns its number.
    pub(in crate::run) fn order_sample(&mut self) -> u32 {
        self.samples_ordered = self.samples_ordered.wrapping_add(1);
        let number = self.samples_ordered;
        self.order_all(&Order::Sample(number));
        number
    }

    /// Returns a sample that was ordered, once all agents that are not lost have answered: one of each agent.
    pub(in crate::run) fn take_sample(&mut self, number: u32) -> Option<Vec<Sample>> {
        let has_answered = |one: &Member| one.lost.is_some() || one.samples.contains_key(&number);
        if !self.members.iter().all(has_answered) {
            return None;
        }
        let members = self.members.iter_mut();
        Some(
            members
                .map(|one| one.samples.remove(&number).unwrap_or_default())
                .collect(),
        )
    }

    /// Ends the run, and adds what the agents have measured to `measured`. Agents that are lost are left out, also those
    /// that do not answer in time.
    ///
    /// # Errors
    /// The agent in this process failed, or an agent has measured another run.
    pub(in crate::run) fn end(&mut self, mut measured: Measured) -> anyhow::Result<Measured> {
        self.order_all(&Order::End);
        self.wait(|one| one.published.is_some());
        self.check_own()?;
        for member in &mut self.members {
            if let Some(published) = member.published.take() {
                let absorbed = measured.publishers.absorb(*published);
                absorbed.with_context(|| member.named())?;
            }
        }
        self.order_all(&Order::Compare(measured.publishers.sent()));
        self.wait(|one| one.received.is_some());
        self.check_own()?;
        for member in &mut self.members {
            if let Some(received) = member.received.take() {
                let absorbed = measured.subscribers.absorb(*received);
                absorbed.with_context(|| member.named())?;
            }
        }
        Ok(measured)
    }

    /// Waits until all agents that are not lost have answered. Those that do not answer in time are lost.
    fn wait(&mut self, has_answered: fn(&Member) -> bool) {
        let until = clock::now() + ANSWER_TIMEOUT;
        loop {
            let now = clock::now();
            // Who is lost is remembered.
            let _losses = self.poll(now).is_err();
            let missing = |one: &&mut Member| one.lost.is_none() && !has_answered(one);
            let mut missing = self.members.iter_mut().filter(missing).peekable();
            if missing.peek().is_none() {
                return;
            }
            if now >= until {
                for member in missing {
                    let seconds = ANSWER_TIMEOUT.as_secs();
                    let named = member.named();
                    member.lost = Some(format!(
                        "{named} did not send its results within {seconds} s"
                    ));
                }
                return;
            }
            std::thread::park_timeout(STEP);
        }
    }

    /// Returns the failure of the agent in this process. It is a failure of the run.
    fn check_own(&self) -> anyhow::Result<()> {
        let mut own = self.members.iter().filter(|one| one.link.name().is_none());
        match own.find_map(|one| one.lost.as_deref()) {
            Some(problem) => bail!("{problem}"),
            None => Ok(()),
        }
    }
}

impl Member {
    fn named(&self) -> String {
        match self.link.name() {
            Some(name) => format!("agent {name}"),
            None => "the agent in this process".to_owned(),
        }
    }

    /// Returns an error with the name of a remote agent in front.
    fn by_name<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        match self.link.name() {
            Some(name) => result.with_context(|| format!("agent {name}")),
            None => result,
        }
    }

    fn order(&mut self, order: Order) -> anyhow::Result<()> {
        let ordered = self.link.order(order);
        self.by_name(ordered)
    }

    fn poll(&mut self, now: Instant) -> anyhow::Result<()> {
        let said = self.link.poll(now);
        for said in self.by_name(said)? {
            match said {
                Said::State(state) => self.state = Some(state),
                Said::Second(second) => self.second = second,
                Said::Sample(number, sample) => {
                    self.samples.insert(number, sample);
                    if self.samples.len() > SAMPLES_MAX {
                        self.samples.pop_first();
                    }
                }
                Said::Published(published) => self.published = Some(published),
                Said::Received(received) => self.received = Some(received),
            }
        }
        Ok(())
    }
}

/// How long agents may take to send their results.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two looks at agents that are waited for.
const STEP: Duration = Duration::from_millis(5);
/// Samples of one agent that wait for the others'.
const SAMPLES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use super::{super::ThreadState, *};

    /// A link to an agent that says what the test has put into it.
    struct Link(Rc<RefCell<Vec<Said>>>);

    impl AgentLink for Link {
        fn name(&self) -> Option<&str> {
            Some("far")
        }

        fn order(&mut self, _: Order) -> anyhow::Result<()> {
            Ok(())
        }

        fn poll(&mut self, _: Instant) -> anyhow::Result<Vec<Said>> {
            Ok(self.0.take())
        }
    }

    fn ready() -> Said {
        let seen = Seen {
            has_announced: true,
            is_subscribed: true,
            is_served: true,
            ..Seen::default()
        };
        Said::State(State {
            threads: vec![ThreadState {
                seen,
                ..ThreadState::default()
            }],
            ..State::default()
        })
    }

    #[test]
    fn no_step_begins_before_every_agent_has_said_its_state() {
        let said = [(); 2].map(|()| Rc::new(RefCell::new(Vec::new())));
        let links = said.each_ref().map(|one| {
            let link: Box<dyn AgentLink> = Box::new(Link(Rc::clone(one)));
            link
        });
        let mut agents = Agents::new(links);
        let all_are_ready = |agents: &mut Agents| {
            agents.poll(clock::now()).unwrap();
            let seen = agents.seen();
            let is_ready = |one: &Seen| one.has_announced && one.is_subscribed && one.is_served;
            seen.iter().all(is_ready)
        };
        assert!(!all_are_ready(&mut agents), "nobody has said anything");
        said[0].borrow_mut().push(ready());
        assert!(!all_are_ready(&mut agents), "one agent has said nothing");
        assert!(!agents.is_over());
        // An agent without a part in the load has no threads.
        said[1].borrow_mut().push(Said::State(State::default()));
        assert!(all_are_ready(&mut agents));
    }
}
