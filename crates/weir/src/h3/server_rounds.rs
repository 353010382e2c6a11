//! Rounds of `weir h3 compare`: each round starts each server, measures it under every load, and ends it.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use weir_net::{Stop, clock};
use weir_report::{
    comparison::servers::{Comparison, Contender, Entry, RunFigures},
    http3::{BUSY_PERCENT, Limit, Report, Server},
};

use super::{
    concurrency::{Search, Step},
    link::Link,
    measurement,
    options::LoadOptions,
    plan::Plan,
    scenario::Load,
    server_file::{Files, ServerEntry, ServerFile, free_port},
};
use crate::{
    harness::{
        child::ChildGroup,
        contender::Entry as _,
        machine::Machine,
        processes::Processes,
        rounds::{Turn, take_turns},
        workplace::Workplace,
    },
    progress::Progress,
};

/// All runs of a comparison.
pub(crate) struct ServerRounds {
    described: ServerFile,
    loads: Vec<Load>,
    machine: Machine,
    place: Workplace,
    files: Files,
    servers: Vec<Contender>,
    /// Results by load and server.
    entries: Vec<Vec<Entry>>,
    /// Connections of all threads together, by load and server; `None` before the search for them.
    connections: Vec<Vec<Option<usize>>>,
    /// Why the searches found no limit, by load and server.
    searches: Vec<Vec<Option<String>>>,
    /// Servers whose program that prints the version cannot be run.
    is_absent: Vec<bool>,
    progress: Progress,
}

/// A run of a server under a load.
#[derive(Clone, Copy)]
struct Run<'a> {
    server: &'a ServerEntry,
    load: &'a Load,
    /// The server's port, which URLs name.
    port: u16,
    /// Where the client sends its packets: the server, or a link to it.
    address: SocketAddr,
    /// The run in words, in front of its progress.
    label: &'a str,
}

/// Why a server's turn has no results.
enum Trouble {
    /// The user interrupted the comparison.
    Stopped,
    /// The server cannot be started at all.
    Absent(anyhow::Error),
    /// The turn failed; the next one may succeed.
    Failed(anyhow::Error),
}

/// Checks all runs before a server is started. Returns the plan of the first.
pub(crate) fn check(described: &ServerFile, machine: &Machine) -> anyhow::Result<Plan> {
    let mut plan = None;
    for server in &described.server {
        for load in described.loads() {
            let made = described
                .options(&load, load.connections())
                .and_then(|options| options.plan(&[server.url(&load, ANY_PORT)?], machine));
            let made = made.with_context(|| {
                let (server, load) = (&server.name, &load.name);
                format!("arguments, or path of server {server:?}, in scenario {load:?}")
            })?;
            plan.get_or_insert(made);
        }
    }
    plan.context("expected a server and a scenario")
}

impl ServerRounds {
    pub(crate) fn new(described: ServerFile, machine: Machine) -> anyhow::Result<Self> {
        let place = Workplace::new()?;
        let files = Files::make(place.folder())?;
        let loads = described.loads();
        let known = |load: &Load| (!described.sweeps()).then(|| load.connections());
        let connections = loads
            .iter()
            .map(|load| vec![known(load); described.server.len()]);
        let connections = connections.collect();
        let entry = |server: &ServerEntry| Entry {
            server: server.name.clone(),
            ..Entry::default()
        };
        let entries = loads.iter();
        let entries = entries.map(|_| described.server.iter().map(entry).collect());
        let mut rounds = Self {
            entries: entries.collect(),
            searches: loads
                .iter()
                .map(|_| vec![None; described.server.len()])
                .collect(),
            connections,
            loads,
            machine,
            place,
            files,
            servers: Vec::new(),
            is_absent: Vec::new(),
            progress: Progress::new(),
            described,
        };
        for number in 0..rounds.described.server.len() {
            let server = &rounds.described.server[number];
            let version = rounds.place.version(&server.contender());
            rounds.servers.push(Contender {
                name: server.name.clone(),
                version: version.as_ref().ok().cloned().flatten().unwrap_or_default(),
                note: server.note.clone(),
            });
            rounds.is_absent.push(version.is_err());
            if let Err(error) = version {
                rounds.add_problem(number, &format!("not there: {error}"));
            }
        }
        Ok(rounds)
    }

    /// Makes all runs. Returns why runs are missing, if any are.
    pub(crate) fn run(&mut self, stop: &Stop) -> anyhow::Result<Option<String>> {
        let (servers, rounds) = (self.described.server.len(), self.described.rounds);
        let broken_off = take_turns(servers, rounds, |round, number| {
            if self.is_absent[number] {
                return Ok(Turn::Absent);
            }
            let (problem, turn) = match self.turn(number, round, stop) {
                Ok(()) => return Ok(Turn::Made),
                Err(Trouble::Stopped) => return Ok(Turn::Interrupted),
                Err(Trouble::Absent(error)) => (error, Turn::Absent),
                Err(Trouble::Failed(error)) => (error, Turn::Made),
            };
            let problem = format!("{problem:#}");
            let name = &self.described.server[number].name;
            self.progress.keep(&format!("{name}: {problem}"));
            self.add_problem(number, &problem);
            Ok(turn)
        });
        self.progress.end();
        broken_off
    }

    /// Starts a server, and measures it under all loads.
    fn turn(&mut self, number: usize, round: u32, stop: &Stop) -> Result<(), Trouble> {
        let server = self.described.server[number].clone();
        let port = server.port.map_or_else(free_port, Ok);
        let port = port.map_err(Trouble::Failed)?;
        let mut started = self.start(&server, port).map_err(Trouble::Absent)?;
        self.wait_for(&server, port, &mut started, stop)?;
        for place in 0..self.loads.len() {
            self.measure(number, place, round, port, &mut started, stop)?;
        }
        Ok(())
    }

    /// Measures a server that runs, under the load at `place`.
    fn measure(
        &mut self,
        number: usize,
        place: usize,
        round: u32,
        port: u16,
        started: &mut ChildGroup,
        stop: &Stop,
    ) -> Result<(), Trouble> {
        let server = self.described.server[number].clone();
        let load = self.loads[place].clone();
        let (name, rounds) = (&load.name, self.described.rounds);
        let label = format!("{}, {name}, round {} of {rounds}", server.name, round + 1);
        let link_core = self.described.client_cores.last().copied();
        let link = load.link.map(|link| Link::start(link, port, link_core));
        let link = link.transpose().map_err(Trouble::Failed)?;
        let address = link
            .as_ref()
            .map_or_else(|| (Ipv4Addr::LOCALHOST, port).into(), |link| link.address);
        let run = Run {
            server: &server,
            load: &load,
            port,
            address,
            label: &label,
        };
        let connections = if let Some(known) = self.connections[place][number] {
            known
        } else {
            let search = self.search(&run, started, stop)?;
            let found = search.connections();
            self.connections[place][number] = Some(found);
            self.searches[place][number] = search.why_neither();
            found
        };
        let options = self.described.options(&load, connections);
        let report = self.run_once(&run, options, started, stop)?;
        let entry = &mut self.entries[place][number];
        match report {
            Ok(report) => {
                self.progress.keep(&format!("{label}: {}", report.facts()));
                entry.problems.extend(problems_of(&report));
                if !report.has_lost_server() {
                    entry.runs.push(RunFigures::of(&report));
                }
            }
            Err(error) => entry.problems.push(format!("{error:#}")),
        }
        Ok(())
    }

    /// Searches for the number of connections, of all threads together, at which the server or the client is the limit.
    fn search(
        &mut self,
        run: &Run<'_>,
        started: &mut ChildGroup,
        stop: &Stop,
    ) -> Result<Search, Trouble> {
        let mut search = Search::new(run.load.connections());
        while let Some(connections) = search.next() {
            let options = self.described.options(run.load, connections);
            let options = options.map(|options| LoadOptions {
                duration: options.duration.min(STEP),
                warm_up: options.warm_up.min(STEP_WARM_UP),
                ..options
            });
            let label = format!("{}, {connections} connections", run.label);
            let step = Run {
                label: &label,
                ..*run
            };
            // If the step fails, the run that follows says why.
            let Ok(report) = self.run_once(&step, options, started, stop)? else {
                break;
            };
            search.add(Step {
                connections,
                limit: report.verdict.limit,
                server_percent: report
                    .server
                    .as_ref()
                    .map_or(0.0, Server::utilisation_percent),
                requests_per_second: report.requests.per_second,
                has_failures: report.requests.failed + report.connections.refused > 0
                    || report.requests.successes == 0,
            });
        }
        Ok(search)
    }

    /// Makes one run. The outer error ends the server's turn.
    fn run_once(
        &mut self,
        run: &Run<'_>,
        options: anyhow::Result<LoadOptions>,
        started: &mut ChildGroup,
        stop: &Stop,
    ) -> Result<anyhow::Result<Report>, Trouble> {
        let plan = options.and_then(|options| self.plan(run, options));
        let mut plan = plan.map_err(Trouble::Failed)?;
        plan.server = Some(Processes::of_group(started.pid()));
        let report = measurement::measure(&plan, &self.machine, stop, |line| {
            self.progress.say(&format!("{}: {line}", run.label));
        });
        if stop.is_requested() {
            return Err(Trouble::Stopped);
        }
        // A run in which the server ended does not count.
        if let Some(end) = self.place.end_of(started) {
            let load = &run.load.name;
            return Err(Trouble::Failed(anyhow!(
                "it ended in scenario {load} of its turn {end}"
            )));
        }
        Ok(report)
    }

    /// Returns the plan of a run.
    fn plan(&self, run: &Run<'_>, options: LoadOptions) -> anyhow::Result<Plan> {
        let options = LoadOptions {
            connect: Some(run.address),
            ..options
        };
        options.plan(&[run.server.url(run.load, run.port)?], &self.machine)
    }

    fn start(&self, server: &ServerEntry, port: u16) -> anyhow::Result<ChildGroup> {
        let mut contender = server.contender();
        contender.core = contender.core.or(self.described.server_core);
        let more = [
            ("{port}", port.to_string()),
            ("{root}", self.files.root.display().to_string()),
            ("{folder}", self.place.folder().display().to_string()),
        ];
        self.place.start(&contender, &more)
    }

    /// Waits until a server responds to a request.
    fn wait_for(
        &self,
        server: &ServerEntry,
        port: u16,
        started: &mut ChildGroup,
        stop: &Stop,
    ) -> Result<(), Trouble> {
        let load = &self.loads[0];
        let run = Run {
            server,
            load,
            port,
            address: (Ipv4Addr::LOCALHOST, port).into(),
            label: "",
        };
        let options = self.described.options(load, load.connections());
        let plan = options.and_then(|options| self.plan(&run, options));
        let plan = plan.map_err(Trouble::Failed)?;
        // A busy machine may need long for a handshake, so each try lasts twice as long as the one before.
        let mut patience = PROBE_MIN;
        let give_up = clock::now() + server.ready_time();
        loop {
            if stop.wait(PAUSE) {
                return Err(Trouble::Stopped);
            }
            if let Some(end) = self.place.end_of(started) {
                return Err(Trouble::Failed(anyhow!("it ended at once {end}")));
            }
            let probe = plan.probing(patience);
            patience = (2 * patience).min(server.ready_time().max(PROBE_MIN));
            let report = measurement::measure(&probe, &self.machine, stop, |_| ());
            let report = report.map_err(Trouble::Failed)?;
            if report.requests.successes > 0 {
                return Ok(());
            }
            if clock::now() >= give_up {
                let seen = problems_of(&report).join("; ");
                return Err(Trouble::Failed(anyhow!(
                    "no successful response to GET /{} within {} s of its start: {seen}",
                    run.load.file,
                    server.ready_seconds
                )));
            }
        }
    }

    /// Stores why a turn has no results.
    fn add_problem(&mut self, number: usize, problem: &str) {
        for load in &mut self.entries {
            load[number].problems.push(problem.to_owned());
        }
    }

    /// Returns the comparison. `client` is the plan of any run; `network` is a sentence about what carried the packets.
    pub(crate) fn comparison(
        self,
        client: &Plan,
        network: &str,
        broken_off: Option<String>,
    ) -> Comparison {
        let setting = setting(&self.described, &self.machine, client, network);
        let testbed = self.machine.testbed(self.place.folder());
        let searches = self.searches.iter().map(Vec::as_slice);
        let loads = self.loads.iter().zip(self.entries).zip(searches);
        let scenarios = loads.map(|((load, mut entries), searches)| {
            let is_searched = self.described.sweeps();
            for (entry, why) in entries.iter_mut().zip(searches).filter(|_| is_searched) {
                entry.problems.extend(why_neither(entry, why.as_deref()));
            }
            (load.name.clone(), load.words(), entries)
        });
        Comparison::new(
            setting,
            testbed,
            self.servers,
            scenarios.collect(),
            broken_off,
        )
    }
}

/// Returns a note on runs in which neither side was the limit although the number of connections was searched for. `why` is
/// what ended the search, if no step of it had another limit.
fn why_neither(entry: &Entry, why: Option<&str>) -> Option<String> {
    let is_neither = |run: &&RunFigures| run.limit == Limit::Neither;
    let count = entry.runs.iter().filter(is_neither).count();
    (count > 0).then(|| {
        let (words, all) = (Limit::Neither.words(), entry.runs.len());
        let why = why.unwrap_or(
            "one side was busier in the short runs that chose the connections; repeat it, or set the connections \
             (--max-concurrent-conns in arguments)",
        );
        format!("{words} was the limit in {count} of {all} runs: {why}")
    })
}

/// Returns how the comparison was made, in sentences.
fn setting(described: &ServerFile, machine: &Machine, client: &Plan, network: &str) -> Vec<String> {
    let core = |core: Option<usize>| {
        core.map_or_else(|| "any core".to_owned(), |core| format!("core {core}"))
    };
    let servers = described.server.iter();
    let elsewhere = servers
        .clone()
        .filter(|server| server.core.is_some())
        .map(|server| format!(", {} on {}", server.name, core(server.core)));
    let elsewhere: Vec<String> = elsewhere.collect();
    let own = servers.filter(|server| server.cert.is_some());
    let own: Vec<&str> = own.map(|server| server.name.as_str()).collect();
    let own = if own.is_empty() {
        String::new()
    } else {
        format!(", but one of its own for {}", own.join(", "))
    };
    let threads = match client.threads {
        1 => "one thread".to_owned(),
        count => format!("{count} threads"),
    };
    let sweep = if described.sweeps() {
        format!(
            " The number of connections is doubled from its smallest value (10, or 100 with one request each) until the \
             server or a thread of the client uses {BUSY_PERCENT:.0} % of its core, requests fail or the rate falls by 30 %."
        )
    } else {
        String::new()
    };
    let more = if described.arguments.is_empty() {
        String::new()
    } else {
        format!(" Further arguments: {}.", described.arguments.join(" "))
    };
    vec![
        machine.words(),
        format!(
            "Servers on {}{}, the client (weir h3 bench) on {}, {threads}. On loopback, the sender of a packet pays for its \
             reception.",
            core(described.server_core),
            elsewhere.concat(),
            match described.client_cores[..] {
                [] => core(None),
                [one] => core(Some(one)),
                _ => format!("cores {}", list(&described.client_cores)),
            },
        ),
        format!(
            "Interleaved rounds: {}, {} s for each server and load after a warm-up of {} s. Certificate: ECDSA \
             P-256{own}. The client takes UDP payloads of up to {} bytes (max_udp_payload_size) and sends up to {}. \
             {network}{sweep}{more}",
            described.rounds,
            described.seconds,
            described.warm_up_seconds,
            client.recv_udp_payload_size,
            client.send_udp_payload_size,
        ),
    ]
}

fn list(cores: &[usize]) -> String {
    let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
    cores.join(", ")
}

/// Returns the failures of a run, in short.
fn problems_of(report: &Report) -> Vec<String> {
    let kinds = report
        .requests
        .failures
        .iter()
        .map(|kind| ("requests", kind));
    let refusals = report.connections.refusals.iter();
    let kinds = kinds.chain(refusals.map(|kind| ("connections", kind)));
    let mut problems: Vec<String> = kinds
        .map(|(what, kind)| {
            let words = kind
                .words
                .as_deref()
                .map_or_else(String::new, |words| format!(" ({words})"));
            format!("{what}: {}{words}", kind.kind)
        })
        .collect();
    problems.extend(
        report
            .server
            .iter()
            .filter_map(|server| server.died.clone()),
    );
    problems
}

/// The port in plans that are only checked.
const ANY_PORT: u16 = 4433;
/// Time between two attempts to reach a server.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest step of the search for the number of connections, and its warm-up.
const STEP: Duration = Duration::from_secs(1);
const STEP_WARM_UP: Duration = Duration::from_millis(300);
/// Duration of the first try to reach a server.
const PROBE_MIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_why_neither_side_was_the_limit_of_runs_that_count() {
        let run = |limit| RunFigures {
            limit,
            ..RunFigures::default()
        };
        let entry = |limits: &[Limit]| Entry {
            runs: limits.iter().copied().map(run).collect(),
            ..Entry::default()
        };
        let found = why_neither(&entry(&[Limit::Server; 3]), Some("the rate fell"));
        assert_eq!(found, None, "the runs had a limit");
        let mixed = entry(&[Limit::Server, Limit::Neither, Limit::Neither]);
        let found = why_neither(&mixed, Some("the rate fell")).unwrap();
        assert_eq!(
            found,
            "neither side was the limit in 2 of 3 runs: the rate fell"
        );
        let found = why_neither(&mixed, None).unwrap();
        assert!(found.contains("busier in the short runs that chose the connections; repeat it"));
    }
}
