//! A measurement whose load agents on other hosts make.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use weir_net::{Stop, clock};
use weir_report::http3::{Agent, Report};

use super::{
    agent::Said,
    measured::{Measured, Seen},
    measurement::measure_by,
    observation::Observation,
    order::Order,
    plan::Plan,
};
use crate::{
    harness::machine::Machine,
    run::remote::{AgentInfo, Fleet},
};

/// Measures a server with the load of all agents. A stop ends the measurement early, with a report.
///
/// # Errors
/// An agent refuses its order, fails, or falls silent: the error has its name.
pub(crate) fn measure(
    fleet: &Fleet,
    plan: &Plan,
    machine: &Machine,
    stop: &Stop,
    mut say: impl FnMut(&str),
) -> anyhow::Result<Report> {
    let mut agents = Vec::new();
    let mut run = |plan: &Plan, say: &mut dyn FnMut(&Seen)| {
        let run = Run::start(fleet, plan, stop)?;
        let (measured, of_agents) = run.finish(fleet, stop, say)?;
        agents = of_agents;
        Ok(measured)
    };
    let report = measure_by(plan, machine, stop, &mut say, &mut run)?;
    Ok(report.with_agents(agents))
}

/// A measurement under way.
struct Run<'a> {
    plan: &'a Plan,
    begin: Instant,
    agents: Vec<Progress>,
    /// Observation of processes on this host.
    server: Option<Observation<'a>>,
    /// Loads of these processes in each second.
    loads: Vec<Option<f64>>,
}

/// What an agent has said so far.
struct Progress {
    info: AgentInfo,
    seen: Seen,
    measured: Option<Box<Measured>>,
}

impl<'a> Run<'a> {
    fn start(fleet: &Fleet, plan: &'a Plan, stop: &Stop) -> anyhow::Result<Self> {
        let agents: Vec<_> = fleet
            .infos()
            .into_iter()
            .map(|info| Progress {
                info,
                seen: Seen::default(),
                measured: None,
            })
            .collect();
        let order = Order::of(plan, agents.len());
        let order = serde_json::to_value(order).context("an order cannot be written")?;
        let begin = fleet.start_jobs(&order, LEAD, stop)?;
        Ok(Self {
            plan,
            begin,
            agents,
            server: None,
            loads: Vec::new(),
        })
    }

    fn finish(
        mut self,
        fleet: &Fleet,
        stop: &Stop,
        say: &mut dyn FnMut(&Seen),
    ) -> anyhow::Result<(Measured, Vec<Agent>)> {
        let end = self.begin + self.plan.duration;
        let mut until = end + GRACE;
        let mut is_ended = false;
        let mut next = self.begin;
        while self.agents.iter().any(|agent| agent.measured.is_none()) {
            self.read(fleet)?;
            let now = clock::now();
            if now >= next && next <= end {
                self.look(next == self.begin);
                if next > self.begin {
                    say(&self.seen(now));
                }
                next = if next < end {
                    end.min(next + SECOND)
                } else {
                    end + SECOND
                };
            }
            if stop.is_requested() && !is_ended {
                is_ended = true;
                until = now + GRACE;
                fleet.end_jobs()?;
            }
            if now > until {
                bail!("{}", self.late());
            }
        }
        if next <= end {
            self.look(false);
        }
        self.results()
    }

    /// Reads what the agents say.
    fn read(&mut self, fleet: &Fleet) -> anyhow::Result<()> {
        for (number, value) in fleet.poll_jobs()? {
            let agent = &mut self.agents[number];
            let said = serde_json::from_value(value);
            let said = said.with_context(|| format!("agent {}", agent.info.name))?;
            match said {
                Said::Seen(seen) => agent.seen = seen,
                Said::Measured(measured) => agent.measured = Some(measured),
            }
        }
        Ok(())
    }

    /// Observes the server's processes on this host.
    fn look(&mut self, is_first: bool) {
        if is_first {
            self.server = self.plan.server.as_ref().map(Observation::begin);
        } else if let Some(server) = &mut self.server {
            self.loads.push(server.look());
        }
    }

    /// Returns the progress of all agents together.
    fn seen(&self, now: Instant) -> Seen {
        let mut sum = Seen::default();
        for agent in &self.agents {
            sum.add(&agent.seen);
        }
        sum.elapsed = now.saturating_duration_since(self.begin);
        if let Some(server) = self.loads.last() {
            sum.loads.server = *server;
        }
        sum
    }

    fn late(&self) -> String {
        let mut late = self.agents.iter();
        let late = late.find(|agent| agent.measured.is_none());
        format!(
            "agent {} has no results {} s after the end of the run",
            late.map_or("?", |agent| &agent.info.name),
            GRACE.as_secs()
        )
    }

    fn results(self) -> anyhow::Result<(Measured, Vec<Agent>)> {
        let mut agents = Vec::new();
        let mut sum: Option<Measured> = None;
        for agent in self.agents {
            let name = agent.info.name.clone();
            let measured = *agent.measured.context("an agent without results")?;
            agents.push(measured.agent(agent.info));
            match &mut sum {
                None => sum = Some(measured),
                Some(sum) => sum
                    .merge(measured)
                    .with_context(|| format!("agent {name}"))?,
            }
        }
        let mut sum = sum.context("a run without agents")?;
        if let Some(server) = self.server {
            sum.server = Some(server.end());
            for (ours, load) in sum.loads.iter_mut().zip(self.loads) {
                ours.server = load;
            }
        }
        Ok((sum, agents))
    }
}

/// Time from the order to the first connection, so that all agents begin together.
const LEAD: Duration = Duration::from_millis(500);
/// Time after the end in which the results of all agents arrive.
const GRACE: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);
