//! The agent's side: it waits for a controller, and carries out its orders.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::Value;
use weir_net::{Stop, clock};

use super::{
    super::{Agent, AgentLink, Order, Said},
    bus::{Bus, Message},
    clocks::{Clock, Pong},
    envelope::{self, Header, Offers, Opener, Refused, Sealer, SharedKey},
    job::{Job, StartJob, Surroundings},
    members::{HELLO, agent_subject, controller_subject, publish},
    protocol::{AgentInfo, FromAgent, Limits, ToAgent},
};
use crate::event_loop;

/// An agent that waits for orders, or works.
pub(crate) struct AgentServer {
    bus: Box<dyn Bus>,
    key: SharedKey,
    info: AgentInfo,
    limits: Limits,
    watched: Option<u32>,
    start_job: StartJob,
    clock: Clock,
    offers: Offers,
    /// The controller that it works for.
    work: Option<Work>,
    /// Messages that were not obeyed.
    refused: u64,
}

struct Work {
    controller: String,
    session: String,
    opener: Opener,
    sealer: Sealer,
    agent: Agent,
    job: Option<Box<dyn Job>>,
    is_running: bool,
    heard_at: Instant,
    next_state: Instant,
}

impl AgentServer {
    /// Makes the agent known to controllers. Its clock is set wrong by `clock_offset`. `start_job` starts what is no relay
    /// benchmark.
    ///
    /// # Errors
    /// The message system does not answer.
    pub(crate) fn new(
        mut bus: Box<dyn Bus>,
        key: SharedKey,
        mut info: AgentInfo,
        (limits, watched, clock_offset): (Limits, Option<u32>, Duration),
        start_job: StartJob,
    ) -> anyhow::Result<Self> {
        info.id = envelope::digits(&event_loop::seed::<8>()?);
        info.watches = watched.is_some();
        bus.subscribe(&agent_subject(&info.id))?;
        bus.subscribe(HELLO)?;
        Ok(Self {
            bus,
            key,
            info,
            limits,
            watched,
            start_job,
            clock: Clock::set_wrong_by(clock_offset),
            offers: Offers::default(),
            work: None,
            refused: 0,
        })
    }

    /// Serves controllers until `stop`.
    ///
    /// # Errors
    /// The connection to the message system is lost.
    pub(crate) fn serve(&mut self, stop: &Stop, mut say: impl FnMut(&str)) -> anyhow::Result<()> {
        while !stop.is_requested() {
            if let Some(message) = self.bus.receive(STEP)? {
                self.on_message(&message, &mut say);
            }
            self.look(clock::now(), &mut say);
        }
        if self.work.is_some() {
            self.fail("it was stopped");
        }
        Ok(())
    }

    /// Says what has happened in the run, and ends it if the controller is gone.
    fn look(&mut self, now: Instant, say: &mut impl FnMut(&str)) {
        let Some(work) = &mut self.work else {
            return;
        };
        if now.saturating_duration_since(work.heard_at) > CONTROLLER_SILENCE_MAX {
            say(&format!(
                "nothing comes from controller {} any more",
                work.controller
            ));
            self.work = None;
            return;
        }
        let job = work
            .job
            .as_mut()
            .map_or_else(|| Ok(Vec::new()), |job| job.poll());
        let (mut said, of_job) = match work.agent.poll(now).and_then(|said| Ok((said, job?))) {
            Ok(said) => said,
            Err(problem) => return self.fail(&format!("{problem:#}")),
        };
        let is_due = work.next_state <= now;
        said.retain(|one| is_due || !matches!(one, Said::State(_)));
        if is_due {
            work.next_state = now + STATE_PERIOD;
        }
        for said in said {
            let message = match said {
                Said::State(state) => FromAgent::State(state),
                Said::Second(second) => FromAgent::Second(second),
                Said::Sample(number, sample) => FromAgent::Sample(number, sample),
                Said::Published(published) => FromAgent::Published(published),
                Said::Received(received) => FromAgent::Received(received),
            };
            self.send(&message);
        }
        for value in of_job {
            self.send(&FromAgent::Job(value));
        }
    }

    fn on_message(&mut self, message: &Message, say: &mut impl FnMut(&str)) {
        let (header, piece) = match envelope::header_of(&message.payload) {
            Ok(read) => read,
            Err(refused) => return self.refuse(message, &refused),
        };
        if message.subject == HELLO {
            return self.on_hello(message, &header, piece);
        }
        if let Some(work) = self
            .work
            .as_mut()
            .filter(|work| work.session == header.session)
        {
            let opened = work
                .opener
                .open::<ToAgent>(&message.subject, &header, piece);
            match opened {
                Ok(Some(order)) => {
                    work.heard_at = message.at;
                    self.on_order(message.at, order, say);
                }
                Ok(None) => work.heard_at = message.at,
                Err(Refused::Key) => self.refused += 1,
                Err(refused) => self.fail(&refused.to_string()),
            }
            return;
        }
        let is_free = self.work.is_none();
        let Some(opener) = self.offers.of_mut(&header.session) else {
            self.refused += 1;
            return;
        };
        let opened = opener.open::<ToAgent>(&message.subject, &header, piece);
        if !matches!(opened, Ok(Some(ToAgent::Claim))) {
            self.refused += 1;
            return;
        }
        let opener = opener.clone();
        let mut sealer = Sealer::new(self.key.clone(), &self.info.id, &header.session);
        if !is_free {
            let busy = FromAgent::Failed("it works for another controller".to_owned());
            self.send_to(&header.from, &mut sealer, &busy);
            return;
        }
        say(&format!("works for controller {}", header.from));
        self.work = Some(Work {
            controller: header.from,
            session: header.session,
            opener,
            sealer,
            agent: Agent::watching(self.watched),
            job: None,
            is_running: false,
            heard_at: message.at,
            next_state: message.at,
        });
        self.send(&FromAgent::Claimed);
    }

    /// Answers the question who is there, and offers a session that nobody could have recorded.
    fn on_hello(&mut self, message: &Message, header: &Header, piece: &[u8]) {
        let mut opener = Opener::new(self.key.clone());
        match opener.open::<ToAgent>(&message.subject, header, piece) {
            Ok(Some(ToAgent::Hello)) if is_id(&header.from) => {}
            Ok(_) => return,
            Err(refused) => return self.refuse(message, &refused),
        }
        let Ok(nonce) = event_loop::seed::<16>() else {
            return;
        };
        let session = format!("{}.{}", header.from, envelope::digits(&nonce));
        self.offers
            .add(session.clone(), Opener::new(self.key.clone()));
        let mut sealer = Sealer::new(self.key.clone(), &self.info.id, &session);
        let info = AgentInfo {
            is_busy: self.work.is_some(),
            ..self.info.clone()
        };
        self.send_to(&header.from, &mut sealer, &FromAgent::Here(info));
    }

    /// Tells the sender of a question that it is not obeyed, without proof: the keys or the versions differ.
    fn refuse(&mut self, message: &Message, refused: &Refused) {
        self.refused += 1;
        tracing::debug!(%refused, subject = message.subject, "a message was ignored");
        if message.subject != HELLO || !matches!(refused, Refused::Key | Refused::Version { .. }) {
            return;
        }
        let Some(from) = sender_of(&message.payload) else {
            return;
        };
        let notice = envelope::notice(&self.info.name, &from);
        if let Err(error) = self.bus.publish(&controller_subject(&from), notice) {
            tracing::debug!(%error, "a controller was not told that it is refused");
        }
    }

    fn on_order(&mut self, at: Instant, order: ToAgent, say: &mut impl FnMut(&str)) {
        let order = match order {
            ToAgent::Hello | ToAgent::Claim => return,
            ToAgent::Ping(number) => {
                let pong = Pong {
                    number,
                    received_ns: self.clock.ns(at),
                    sent_ns: self.clock.ns(clock::now()),
                };
                return self.send(&FromAgent::Pong(pong));
            }
            ToAgent::Leave => {
                say("is free again");
                self.work = None;
                return;
            }
            ToAgent::Prepare(plan) => {
                let cores = self.info.cores.clone();
                match plan.assignment(&self.clock, cores, &self.limits) {
                    Ok(assignment) => {
                        let (url, seed) = (&assignment.url, assignment.plan.seed);
                        say(&format!("loads {url}, run {seed:016x}"));
                        Order::Prepare(Box::new(assignment))
                    }
                    Err(problem) => return self.fail(&format!("{problem:#}")),
                }
            }
            ToAgent::StartJob {
                order,
                begin_agent_ns,
            } => return self.start_job(order, begin_agent_ns, say),
            ToAgent::EndJob => {
                let job = self.work.as_mut().and_then(|work| work.job.as_mut());
                if let Some(job) = job {
                    job.end();
                }
                return;
            }
            ToAgent::AdmitSubscribers => Order::AdmitSubscribers,
            ToAgent::Release => Order::Release,
            ToAgent::Sample(number) => Order::Sample(number),
            ToAgent::End => Order::End,
            ToAgent::Compare(sent) => {
                Order::Compare(sent.into_iter().map(|one| (one.name, one.totals)).collect())
            }
        };
        let is_prepare = matches!(order, Order::Prepare(_));
        let Some(work) = &mut self.work else {
            return;
        };
        work.is_running |= is_prepare;
        match work.agent.order(order) {
            Ok(()) if is_prepare => self.send(&FromAgent::Prepared),
            Ok(()) => {}
            Err(problem) => self.fail(&format!("{problem:#}")),
        }
    }

    /// Starts a job, instead of an earlier one.
    fn start_job(&mut self, order: Value, begin_agent_ns: i64, say: &mut impl FnMut(&str)) {
        let begin = self.clock.instant(begin_agent_ns);
        let started = begin.context("a clock that cannot be represented");
        let started = started.and_then(|begin| {
            let surroundings = Surroundings {
                cores: &self.info.cores,
                limits: self.limits,
                watched: self.watched,
                begin,
            };
            (self.start_job)(order, surroundings)
        });
        match (started, &mut self.work) {
            (Ok(job), Some(work)) => {
                say(&job.words());
                work.job = Some(job);
            }
            (Ok(_), None) => {}
            (Err(problem), _) => self.fail(&format!("{problem:#}")),
        }
    }

    /// Tells the controller why it cannot go on, and ends the work.
    fn fail(&mut self, problem: &str) {
        self.send(&FromAgent::Failed(problem.to_owned()));
        self.work = None;
    }

    fn send(&mut self, message: &FromAgent) {
        if let Some(mut work) = self.work.take() {
            let controller = work.controller.clone();
            self.send_to(&controller, &mut work.sealer, message);
            self.work = Some(work);
        }
    }

    fn send_to(&mut self, controller: &str, sealer: &mut Sealer, message: &FromAgent) {
        let subject = controller_subject(controller);
        if let Err(error) = publish(&mut *self.bus, sealer, &subject, message) {
            tracing::warn!(%error, "a message to the controller could not be sent");
        }
    }
}

/// Returns the sender of a frame of any version.
fn sender_of(frame: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct From {
        from: String,
    }
    let line = frame.split(|byte| *byte == b'\n').next()?;
    let line = (line.len() <= LINE_BYTES_MAX).then_some(line)?;
    let read: From = serde_json::from_slice(line).ok()?;
    is_id(&read.from).then_some(read.from)
}

/// Whether it is the name of a controller, which becomes a part of a subject.
fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Checks the name of an agent: it stands in reports and flags.
pub(crate) fn check_name(name: &str) -> anyhow::Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_good = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain);
    is_good.then_some(()).with_context(|| {
        format!(
            "--name: expected 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`, not {name:?}"
        )
    })
}

/// Time between two looks, if nothing comes.
const STEP: Duration = Duration::from_millis(10);
/// Time between two states that the agent says.
const STATE_PERIOD: Duration = Duration::from_millis(100);
/// Longest silence of a controller, which pings twice in a second during runs, and may pause between them.
const CONTROLLER_SILENCE_MAX: Duration = Duration::from_secs(30);
const NAME_BYTES_MAX: usize = 64;
const LINE_BYTES_MAX: usize = 4096;
