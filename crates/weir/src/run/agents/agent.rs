//! An agent: the threads of a share, and what they measure.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use weir_bench::{
    early_stop::EarlyStop,
    measured::{Measured, PublishersMeasured},
    metrics::SentTotals,
};
use weir_moqt::name::FullTrackName;
use weir_net::{Stop, clock};

use super::{
    AgentLink, Assignment, Order, Said, Sample, State, ThreadSample, ThreadState,
    load::{self, track_plans},
    threads::{Gate, Hosted, LoadHost, SecondSeen, Setting, check_files},
};
use crate::harness::process;

/// An agent in this process: it carries out orders on threads of its own.
#[derive(Default)]
pub(in crate::run) struct Agent {
    running: Option<Running>,
    /// The roles of a run that has ended.
    ended: Option<Ended>,
    /// Process of the relay, if the agent watches it.
    watched: Option<u32>,
    /// What the controller has not read yet.
    said: VecDeque<Said>,
}

/// The threads of a run.
struct Running {
    /// Figures without a measurement, to which those of the threads are added.
    empty: Measured,
    threads: Vec<Hosted>,
    gate: Gate,
    /// Asks the threads to stop.
    stop: Stop,
    /// The origin of the run's seconds.
    origin: Instant,
    /// The second of the run that is said next.
    next_second: u64,
}

struct Ended {
    empty: Measured,
    hosts: Vec<LoadHost>,
}

impl Agent {
    /// Returns an agent that reports what process `watched` uses, if it is given.
    pub(in crate::run) fn watching(watched: Option<u32>) -> Self {
        Self {
            watched,
            ..Self::default()
        }
    }

    fn prepare(&mut self, assignment: &Assignment) -> anyhow::Result<()> {
        if self.running.is_some() {
            bail!("a run is under way");
        }
        self.ended = None;
        let plan = &assignment.plan;
        let origin = assignment.clock.origin();
        let loads = load::loads(assignment, clock::now())?;
        let sockets = loads.iter().map(|(.., sockets)| *sockets as usize).sum();
        check_files(sockets, loads.len())?;
        let plans = track_plans(plan, assignment.clock);
        let stop = Stop::new().context("cannot make an event descriptor")?;
        let gate = Gate::new(plan.no_wait);
        let early_stop = plan.ends_early.then(|| EarlyStop::new(plan.unjudged));
        let setting = Setting {
            gate: &gate,
            stop: &stop,
            url: &assignment.url,
            audience: &plan.profile.audience,
            origin,
            waste_percent: plan.waste_percent,
            early_stop: early_stop.as_ref(),
        };
        let start = |(load, core, sockets)| Hosted::start(load, &setting, core, sockets);
        let started = loads.into_iter().map(start).collect::<anyhow::Result<_>>();
        // Threads that run already must not outlive a failure.
        let threads = started.inspect_err(|_| stop.request())?;
        self.running = Some(Running {
            empty: Measured::empty(&plans, plan.subscribers_measured()),
            threads,
            gate,
            stop,
            origin,
            next_second: 0,
        });
        Ok(())
    }

    /// Waits for the threads to end; those that are not done are stopped.
    fn end(&mut self) -> anyhow::Result<()> {
        let mut running = self.running.take().context("no run is under way")?;
        if !running.threads.iter().all(Hosted::is_done) {
            running.stop.request();
        }
        let joined = running.threads.drain(..).map(Hosted::join);
        let hosts = joined.collect::<anyhow::Result<Vec<_>>>()?;
        if let Some(problem) = hosts.iter().find_map(LoadHost::refused_release) {
            bail!("{problem}");
        }
        let ended = Ended {
            empty: running.empty.clone(),
            hosts,
        };
        self.said
            .push_back(Said::Published(Box::new(ended.published()?)));
        self.ended = Some(ended);
        Ok(())
    }

    fn running(&mut self) -> anyhow::Result<&mut Running> {
        self.running.as_mut().context("no run is under way")
    }
}

impl AgentLink for Agent {
    fn name(&self) -> Option<&str> {
        None
    }

    fn order(&mut self, order: Order) -> anyhow::Result<()> {
        match order {
            Order::Prepare(assignment) => self.prepare(&assignment)?,
            Order::AdmitSubscribers => self.running()?.gate.admit_subscribers(),
            Order::Release => self.running()?.gate.release(),
            Order::Sample(number) => {
                let watched = self.watched;
                let sample = self.running()?.sample(watched);
                self.said.push_back(Said::Sample(number, sample));
            }
            Order::End => self.end()?,
            Order::Compare(sent) => {
                let ended = self.ended.take().context("no run has ended")?;
                self.said
                    .push_back(Said::Received(Box::new(ended.received(&sent)?)));
            }
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant) -> anyhow::Result<Vec<Said>> {
        let mut said: Vec<Said> = self.said.drain(..).collect();
        if let Some(running) = &mut self.running {
            said.extend(running.poll_second(now).map(Box::new).map(Said::Second));
            said.push(Said::State(running.state()));
        }
        Ok(said)
    }
}

impl Drop for Running {
    /// Stops the threads of a run that its controller has left.
    fn drop(&mut self) {
        self.stop.request();
    }
}

impl Running {
    fn state(&self) -> State {
        let state = |thread: &Hosted| ThreadState {
            seen: thread.view().seen(),
            is_done: thread.is_done(),
        };
        let threads = || self.threads.iter();
        let received = |thread: &Hosted| thread.view().telemetry.packets_received();
        State {
            threads: threads().map(state).collect(),
            packets_received: threads().map(received).sum(),
        }
    }

    /// Returns the figures of the last whole second, once for each second.
    fn poll_second(&mut self, now: Instant) -> Option<SecondSeen> {
        let elapsed = now.saturating_duration_since(self.origin + SECOND_DELAY);
        let second = elapsed.as_secs().checked_sub(1)?;
        if second < self.next_second {
            return None;
        }
        self.next_second = second + 1;
        let mut total = SecondSeen {
            second,
            ..SecondSeen::default()
        };
        for thread in &self.threads {
            let seen = thread.view().second();
            // A thread without subscribers has no seconds. Those of a thread that lags are said with the next second.
            if seen.second == second {
                total.latency.merge(&seen.latency);
            }
            if let Some(so_far) = &seen.so_far {
                total.so_far.get_or_insert_default().add(so_far);
            }
        }
        Some(total)
    }

    fn sample(&self, watched: Option<u32>) -> Sample {
        let used = |thread: &Hosted| {
            let view = thread.view();
            let telemetry = view.telemetry.snapshot();
            ThreadSample {
                name: view.name.to_owned(),
                core: view.core,
                cpu: telemetry.cpu,
                lag: telemetry.lag,
                receive_dropped: telemetry.receive_dropped,
            }
        };
        let threads = || self.threads.iter();
        let objects = |thread: &Hosted| thread.view().seen().subscribers.objects;
        Sample {
            process: process::usage(std::process::id()).ok(),
            relay: watched.and_then(|pid| process::usage(pid).ok()),
            objects: threads().map(objects).sum(),
            threads: threads().map(used).collect(),
        }
    }
}

impl Ended {
    fn published(&self) -> anyhow::Result<PublishersMeasured> {
        let mut total = self.empty.publishers.clone();
        let roles = self.hosts.iter();
        for role in roles.filter_map(|host| host.load().publishers()) {
            total.absorb(role.measured())?;
        }
        Ok(total)
    }

    fn received(
        self,
        sent: &BTreeMap<FullTrackName, SentTotals>,
    ) -> anyhow::Result<weir_bench::measured::SubscribersMeasured> {
        let mut total = self.empty.subscribers;
        let roles = self.hosts.iter();
        for role in roles.filter_map(|host| host.load().subscribers()) {
            total.absorb(role.measured(sent))?;
        }
        Ok(total)
    }
}

/// Time after the end of a second until all threads have noted it: they look every 10 ms.
const SECOND_DELAY: Duration = Duration::from_millis(20);
