//! Several servers in turns: each round starts each server, asks it for everything, and ends it.

use std::time::Duration;

use anyhow::Context as _;
use weir_bench::http3::{Comparison, Contender, Entry, RunFigures};
use weir_net::{Stop, clock};

use super::{
    contenders::{Described, DescribedServer, Files, Load, free_port},
    measuring::{self, Plan},
    processes::Processes,
};
use crate::run::{
    Machine,
    relays::{StartedRelay, Workplace},
};

/// All runs, round by round and server by server.
pub(crate) struct Turns {
    described: Described,
    loads: Vec<Load>,
    machine: Machine,
    place: Workplace,
    files: Files,
    servers: Vec<Contender>,
    /// By load and server.
    entries: Vec<Vec<Entry>>,
    /// Servers that cannot be started at all.
    absent: Vec<bool>,
}

/// Makes the plan of a run from what `weir h3 bench` would be told.
pub(crate) type MakePlan<'a> = &'a dyn Fn(&[String]) -> anyhow::Result<Plan>;

/// What the turns tell of themselves meanwhile.
pub(crate) enum News<'a> {
    /// A line about a run that goes on.
    Progress(&'a str),
    /// A run is over.
    Run(&'a str),
}

/// Why a server's turn gave nothing.
enum Trouble {
    /// Somebody asked to stop.
    Stopped,
    /// It is not there to be started.
    Absent(anyhow::Error),
    /// Something else, which may be different the next time.
    Failed(anyhow::Error),
}

impl Turns {
    pub(crate) fn new(described: Described, machine: Machine) -> anyhow::Result<Self> {
        let place = Workplace::new()?;
        let files = Files::make(place.folder())?;
        let loads = described.loads();
        let mut servers = Vec::new();
        let mut absent = Vec::new();
        for server in &described.server {
            let version = if server.version.is_empty() {
                Ok(server.version_text.clone())
            } else {
                place.first_line(&server.version)
            };
            absent.push(version.is_err());
            servers.push(Contender {
                name: server.name.clone(),
                version: version.ok().flatten().unwrap_or_default(),
                note: server.note.clone(),
            });
        }
        let entry = |server: &DescribedServer| Entry {
            server: server.name.clone(),
            ..Entry::default()
        };
        let mut entries: Vec<Vec<Entry>> = loads
            .iter()
            .map(|_| described.server.iter().map(entry).collect())
            .collect();
        for (number, server) in described.server.iter().enumerate() {
            if absent[number] {
                let problem = format!("not there: {:?} cannot be run", server.version[0]);
                for load in &mut entries {
                    load[number].problems.push(problem.clone());
                }
            }
        }
        Ok(Self {
            described,
            loads,
            machine,
            place,
            files,
            servers,
            entries,
            absent,
        })
    }

    /// Makes the runs; returns why not all, if so. The order rotates, so that no server is always first.
    pub(crate) fn go(
        &mut self,
        make: MakePlan<'_>,
        stop: &Stop,
        say: &mut dyn FnMut(News<'_>),
    ) -> Option<String> {
        let count = self.described.server.len();
        for round in 0..self.described.rounds {
            for turn in 0..count {
                let number = (turn + round as usize) % count;
                if self.absent[number] {
                    continue;
                }
                match self.turn(number, round, make, stop, say) {
                    Ok(()) => {}
                    Err(Trouble::Stopped) => return Some("it was interrupted".to_owned()),
                    Err(trouble) => self.note(number, trouble, say),
                }
            }
        }
        None
    }

    /// One server's turn: all loads.
    fn turn(
        &mut self,
        number: usize,
        round: u32,
        make: MakePlan<'_>,
        stop: &Stop,
        say: &mut dyn FnMut(News<'_>),
    ) -> Result<(), Trouble> {
        let server = self.described.server[number].clone();
        let port = free_port().map_err(Trouble::Failed)?;
        let mut started = self.start(&server, port).map_err(Trouble::Absent)?;
        self.wait_for(&server, port, &mut started, make, stop)?;
        let processes = Processes::of_group(started.pid());
        for place in 0..self.loads.len() {
            let load = self.loads[place].clone();
            let mut plan = make(&self.arguments(&server, &load, port)).map_err(Trouble::Failed)?;
            plan.server = Some(processes.clone());
            let label = format!(
                "{}, {}, round {} of {}",
                server.name,
                load.name,
                round + 1,
                self.described.rounds
            );
            let report = measuring::measure(&plan, &self.machine, stop, |line| {
                say(News::Progress(&format!("{label}: {line}")));
            });
            if stop.is_requested() {
                return Err(Trouble::Stopped);
            }
            let entry = &mut self.entries[place][number];
            match report {
                Ok(report) => {
                    say(News::Run(&format!("{label}: {}", report.verdict.sentence)));
                    entry.problems.extend(problems_of(&report));
                    entry.runs.push(RunFigures::of(&report));
                }
                Err(error) => entry.problems.push(format!("{error:#}")),
            }
            if let Some(end) = self.place.end_of(&mut started) {
                return Err(Trouble::Failed(anyhow::anyhow!(
                    "it ended in its turn {end}"
                )));
            }
        }
        Ok(())
    }

    fn start(&self, server: &DescribedServer, port: u16) -> anyhow::Result<StartedRelay> {
        let core = self.described.server_core;
        let more = [
            ("{port}", port.to_string()),
            ("{root}", self.files.root.display().to_string()),
            ("{folder}", self.place.folder().display().to_string()),
        ];
        let command = self.place.command(&server.start, core, &more)?;
        self.place
            .launch(command, core)
            .with_context(|| format!("{:?} cannot be started", server.start[0]))
    }

    /// Asks a server for one answer until it gives it.
    fn wait_for(
        &self,
        server: &DescribedServer,
        port: u16,
        started: &mut StartedRelay,
        make: MakePlan<'_>,
        stop: &Stop,
    ) -> Result<(), Trouble> {
        let Some(load) = self.loads.first() else {
            return Ok(());
        };
        let plan = make(&self.arguments(server, load, port)).map_err(Trouble::Failed)?;
        let probe = plan.probing();
        let give_up = clock::now() + server.ready_time();
        loop {
            if stop.wait(PAUSE) {
                return Err(Trouble::Stopped);
            }
            if let Some(end) = self.place.end_of(started) {
                return Err(Trouble::Failed(anyhow::anyhow!("it ended at once {end}")));
            }
            let report = measuring::measure(&probe, &self.machine, stop, |_| ());
            let report = report.map_err(Trouble::Failed)?;
            if report.requests.successes > 0 {
                return Ok(());
            }
            if clock::now() >= give_up {
                let seen = problems_of(&report).join("; ");
                return Err(Trouble::Failed(anyhow::anyhow!(
                    "no success within {} s of its start: {seen}",
                    server.ready_seconds
                )));
            }
        }
    }

    /// What `weir h3 bench` is told for a run.
    fn arguments(&self, server: &DescribedServer, load: &Load, port: u16) -> Vec<String> {
        let described = &self.described;
        let path = server.path.replace("{file}", load.file);
        let mut line = vec![
            format!("https://localhost:{port}{path}"),
            format!("--connect=127.0.0.1:{port}"),
            "--insecure".to_owned(),
            format!("--duration={}", described.seconds),
            format!("--warm-up={}", described.warm_up_seconds),
            format!("--expect-length={}", load.bytes),
            format!("--max-concurrent-conns={}", load.connections()),
        ];
        match load.short {
            None => line.push("--max-concurrent-requests=10".to_owned()),
            Some(handshake) => line.push(format!("--short={}", handshake.name())),
        }
        if let Some(core) = described.client_core {
            line.push(format!("--cores={core}"));
        }
        line.extend(described.arguments.iter().cloned());
        line
    }

    /// Remembers why a turn gave nothing.
    fn note(&mut self, number: usize, trouble: Trouble, say: &mut dyn FnMut(News<'_>)) {
        let name = &self.described.server[number].name;
        let problem = match trouble {
            Trouble::Stopped => return,
            Trouble::Absent(error) => {
                self.absent[number] = true;
                format!("{error:#}")
            }
            Trouble::Failed(error) => format!("{error:#}"),
        };
        say(News::Run(&format!("{name}: {problem}")));
        for load in &mut self.entries {
            load[number].problems.push(problem.clone());
        }
    }

    /// What came of it. `network` says what carried the packets.
    pub(crate) fn comparison(self, network: &str, broken_off: Option<String>) -> Comparison {
        let described = &self.described;
        let core = |core: Option<usize>| {
            core.map_or_else(|| "any core".to_owned(), |core| format!("core {core}"))
        };
        let more = if described.arguments.is_empty() {
            String::new()
        } else {
            format!(" Further arguments: {}.", described.arguments.join(" "))
        };
        let setting = vec![
            format!(
                "{}, Linux {}. Servers on {}, the client (weir h3 bench) on {}, one thread; loopback bills the receiving of a packet \
                 to its sender.",
                self.machine.cpu_model,
                self.machine.kernel,
                core(described.server_core),
                core(described.client_core),
            ),
            format!(
                "Interleaved rounds: {}, {} s for each server and load, {} s before each that do not count. Certificate: \
                 ECDSA P-256. max_udp_payload_size 1350. {network}{more}",
                described.rounds, described.seconds, described.warm_up_seconds,
            ),
        ];
        let scenarios = self
            .loads
            .iter()
            .zip(self.entries)
            .map(|(load, entries)| (load.name.clone(), load.words(), entries))
            .collect();
        Comparison::new(setting, self.servers, scenarios, broken_off)
    }
}

/// What went wrong in a run, in short.
fn problems_of(report: &weir_bench::http3::Report) -> Vec<String> {
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

/// Between two tries to reach a server.
const PAUSE: Duration = Duration::from_millis(50);
