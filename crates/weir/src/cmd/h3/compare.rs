//! `weir h3 compare`: measures several HTTP/3 servers in turns, and tabulates them.

use std::{net::Ipv4Addr, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;
use weir_report::comparison::servers::{markdown, page, summary, table};

use crate::{
    cmd::comparison_files::ComparisonFiles,
    h3::{
        server_file::{ROUNDS_MAX, ServerFile},
        server_rounds::{self, ServerRounds},
    },
    harness::{
        contender,
        machine::{Machine, check_cores},
        namespace,
        udp::mtu_to,
    },
    numbers::{positive, whole},
    output::{exit_code, print_line, print_out},
    signals,
};

/// Measure several HTTP/3 servers in turns, and compare them in a table
///
/// A TOML file says how each server is started; profiles/contenders.toml is an example. Each round starts each server on
/// its core, measures it in every scenario, and ends all its processes. If the process has the rights, all of this happens
/// in a network namespace whose packets have at most 1500 bytes. Exit code 0: all runs were made; 1: runs are missing; 2:
/// nothing was measured.
#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// TOML file that describes the servers, such as profiles/contenders.toml
    file: PathBuf,
    /// Runs of each server in each scenario, 1 to 50 [default: the file's `rounds`]
    #[arg(long, value_name = "COUNT", value_parser = whole(1..=ROUNDS_MAX))]
    rounds: Option<u32>,
    /// Seconds of each run, 0.1 to 600 [default: the file's `seconds`]
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    seconds: Option<f64>,
    /// Requests per second that every server is sent, instead of as many as it answers; the CPU time of a request compares
    /// only at equal rates [default: `--rate` in the file's `arguments`]
    #[arg(long, value_name = "PER_SECOND", value_parser = positive)]
    rate: Option<f64>,
    /// Name of a server in the file, to measure only that one; can be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Scenario to measure, instead of the file's: 1k, 5k, 15k, 50k or 2m, with -short, -resumed or -0rtt behind it for
    /// one request per connection; can be repeated
    #[arg(long, value_name = "NAME")]
    scenario: Vec<String>,
    /// Use the machine's own loopback interface, whose packets may have 64 KiB
    #[arg(long)]
    no_namespace: bool,
    /// Set by the program itself, when it runs again in a namespace
    #[arg(long, hide = true)]
    inside_namespace: bool,
    #[command(flatten)]
    files: ComparisonFiles,
}

pub(crate) fn run(arguments: &CompareArguments) -> anyhow::Result<ExitCode> {
    let machine = Machine::this();
    let described = described(arguments, &machine)?;
    let checked = server_rounds::check(&described, &machine);
    let client = checked.with_context(|| arguments.file.display().to_string())?;
    arguments.files.check()?;
    // The program starts again in the namespace, so all checks precede that.
    let network = network(arguments)?;
    let stop = signals::stop_on_signals()?;
    let rounds = described.rounds;
    let mut turns = ServerRounds::new(described, machine)?;
    let broken_off = turns.run(&stop)?;
    let comparison = turns.comparison(&client, &network, broken_off);
    let (files, markdown) = (&arguments.files, markdown(&comparison));
    files.write(&comparison.to_json(), &page(&comparison), &markdown)?;
    if comparison.is_measured() {
        let heading = "HTTP/3 servers side by side";
        files.write_section(SECTION, COMMAND, heading, &markdown)?;
        files.write_summary(SECTION, COMMAND, &summary(&comparison))?;
    }
    print_out(&table(&comparison))?;
    if !comparison.is_measured() {
        let kept = files.results.as_ref().map_or_else(String::new, |file| {
            format!("; {} is unchanged", file.display())
        });
        bail!("nothing was measured{kept}");
    }
    Ok(exit_code(comparison.has_all_runs(rounds)))
}

fn described(arguments: &CompareArguments, machine: &Machine) -> anyhow::Result<ServerFile> {
    let mut described = ServerFile::read(&arguments.file)?;
    contender::keep_only(&mut described.server, &arguments.only, &arguments.file)?;
    let file = arguments.file.display();
    if !arguments.scenario.is_empty() {
        described.scenarios.clone_from(&arguments.scenario);
    }
    described.rounds = arguments.rounds.unwrap_or(described.rounds);
    described.seconds = arguments.seconds.unwrap_or(described.seconds);
    if let Some(rate) = arguments.rate {
        described.set_rate(rate);
    }
    described.check()?;
    let first = machine.cores.first().copied();
    described.server_core = described.server_core.or(first);
    if described.client_cores.is_empty() {
        described.client_cores = other_cores(&described, machine);
    }
    let clients = described.client_cores.iter();
    let clients = clients.map(|core| ("client_cores".to_owned(), Some(*core)));
    let cores = [("server_core".to_owned(), described.server_core)];
    let cores = cores.into_iter().chain(clients);
    let servers = described.server.iter();
    let own = servers.map(|server| (format!("server {:?}: core", server.name), server.core));
    for (what, core) in cores.chain(own) {
        check_cores(&format!("{file}: {what}"), core.as_slice(), &machine.cores)?;
    }
    Ok(described)
}

/// Returns the cores on which no server runs, for the client; the last core if servers run on all.
fn other_cores(described: &ServerFile, machine: &Machine) -> Vec<usize> {
    let servers = described.server.iter().map(|server| server.core);
    let taken: Vec<Option<usize>> = servers.chain([described.server_core]).collect();
    let cores = machine.cores.iter().copied();
    let free: Vec<usize> = cores.filter(|core| !taken.contains(&Some(*core))).collect();
    if free.is_empty() {
        machine.cores.last().copied().into_iter().collect()
    } else {
        free
    }
}

/// Enters a network namespace, unless --no-namespace is given. Returns what carries the packets, as a sentence.
fn network(arguments: &CompareArguments) -> anyhow::Result<String> {
    let found = mtu_to((Ipv4Addr::LOCALHOST, 443).into());
    let mtu = found.map_or_else(|| "unknown".to_owned(), |mtu| mtu.to_string());
    if arguments.inside_namespace && found == Some(namespace::MTU_BYTES) {
        return Ok(format!(
            "A network namespace of its own with an MTU of {mtu} bytes."
        ));
    }
    if arguments.no_namespace || arguments.inside_namespace {
        return Ok(format!(
            "The machine's own loopback interface with an MTU of {mtu} bytes."
        ));
    }
    let problem = namespace::enter("--inside-namespace")?;
    print_line(&format!("weir: no network namespace: {problem}"));
    Ok(format!(
        "No network namespace could be made ({problem}): the machine's own loopback interface with an MTU of {mtu} bytes, \
         which favours servers that look for large packets."
    ))
}

/// The section of the results, and the command that writes it.
const SECTION: &str = "http3-servers";
const COMMAND: &str = "make results-h3";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_has_all_cores_without_a_server() {
        let machine = |cores: &[usize]| Machine {
            cores: cores.to_vec(),
            ..Machine::this()
        };
        let file = |head: &str, server: &str| {
            let text = format!("{head}\n[[server]]\nname = \"a\"\nstart = [\"a\"]\n{server}\n");
            toml::from_str::<ServerFile>(&text).unwrap()
        };
        let one = file("server_core = 0", "");
        assert_eq!(other_cores(&one, &machine(&[0, 1, 2, 3])), [1, 2, 3]);
        assert_eq!(other_cores(&one, &machine(&[0])), [0], "there is no other");
        let own = file("server_core = 0", "core = 2");
        assert_eq!(other_cores(&own, &machine(&[0, 1, 2, 3])), [1, 3]);
    }
}
