//! Several servers in turns: each round starts each server, asks it for everything, and ends it.

use std::time::Duration;

use anyhow::Context as _;
use weir_net::{Stop, clock};
use weir_report::http3::{Comparison, Contender, Entry, RunFigures};

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
        for (round, number) in order(self.described.server.len(), self.described.rounds) {
            if self.absent[number] {
                continue;
            }
            match self.turn(number, round, make, stop, say) {
                Ok(()) => {}
                Err(Trouble::Stopped) => return Some("it was interrupted".to_owned()),
                Err(trouble) => self.note(number, trouble, say),
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
        let port = server.port.map_or_else(free_port, Ok);
        let port = port.map_err(Trouble::Failed)?;
        let mut started = self.start(&server, port).map_err(Trouble::Absent)?;
        self.wait_for(&server, port, &mut started, make, stop)?;
        let processes = Processes::of_group(started.pid());
        for place in 0..self.loads.len() {
            let load = self.loads[place].clone();
            let mut plan =
                make(&self.described.line(&server, &load, port)).map_err(Trouble::Failed)?;
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
            // What a server answered until it fell is no run.
            if let Some(end) = self.place.end_of(&mut started) {
                return Err(Trouble::Failed(anyhow::anyhow!(
                    "it ended in scenario {} of its turn {end}",
                    load.name
                )));
            }
            let entry = &mut self.entries[place][number];
            match report {
                Ok(report) => {
                    say(News::Run(&format!("{label}: {}", report.verdict.sentence)));
                    entry.problems.extend(problems_of(&report));
                    let server = report.server.as_ref();
                    if server.is_none_or(|server| server.died.is_none()) {
                        entry.runs.push(RunFigures::of(&report));
                    }
                }
                Err(error) => entry.problems.push(format!("{error:#}")),
            }
        }
        Ok(())
    }

    fn start(&self, server: &DescribedServer, port: u16) -> anyhow::Result<StartedRelay> {
        let core = server.core.or(self.described.server_core);
        let mut more = vec![
            ("{port}", port.to_string()),
            ("{root}", self.files.root.display().to_string()),
            ("{folder}", self.place.folder().display().to_string()),
        ];
        for (place, file) in [("{cert}", &server.cert), ("{key}", &server.key)] {
            more.extend(file.iter().map(|file| (place, file.display().to_string())));
        }
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
        let plan = make(&self.described.line(server, load, port)).map_err(Trouble::Failed)?;
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

    /// What came of it. `client` is the plan of any run, and `network` says what carried the packets.
    pub(crate) fn comparison(
        self,
        client: &Plan,
        network: &str,
        broken_off: Option<String>,
    ) -> Comparison {
        let setting = setting(&self.described, &self.machine, client, network);
        let scenarios = self
            .loads
            .iter()
            .zip(self.entries)
            .map(|(load, entries)| (load.name.clone(), load.words(), entries))
            .collect();
        Comparison::new(setting, self.servers, scenarios, broken_off)
    }
}

/// What was compared, in sentences.
fn setting(described: &Described, machine: &Machine, client: &Plan, network: &str) -> Vec<String> {
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
    let more = if described.arguments.is_empty() {
        String::new()
    } else {
        format!(" Further arguments: {}.", described.arguments.join(" "))
    };
    vec![
        format!(
            "{}, Linux {}. Servers on {}{}, the client (weir h3 bench) on {}, {threads}; loopback bills the receiving of a \
             packet to its sender.",
            machine.cpu_model,
            machine.kernel,
            core(described.server_core),
            elsewhere.concat(),
            core(described.client_core),
        ),
        format!(
            "Interleaved rounds: {}, {} s for each server and load, {} s before each that do not count. Certificate: ECDSA \
             P-256{own}. The client takes UDP payloads of up to {} bytes (max_udp_payload_size) and sends up to {}. \
             {network}{more}",
            described.rounds,
            described.seconds,
            described.warm_up_seconds,
            client.recv_udp_payload_size,
            client.send_udp_payload_size,
        ),
    ]
}

/// Who has its turn when, as round and server: every server in each round, and who was first is last in the next one.
fn order(servers: usize, rounds: u32) -> impl Iterator<Item = (u32, usize)> {
    (0..rounds).flat_map(move |round| {
        (0..servers).map(move |turn| (round, (turn + round as usize) % servers))
    })
}

/// What went wrong in a run, in short.
fn problems_of(report: &weir_report::http3::Report) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_interleaved_and_nobody_is_always_first() {
        let order: Vec<_> = order(3, 4).collect();
        let expected: [[usize; 3]; 4] = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]];
        let expected: Vec<_> = (0..)
            .zip(expected)
            .flat_map(|(round, turns)| turns.map(|server| (round, server)))
            .collect();
        assert_eq!(order, expected);
    }
}
