//! `weir h3 compare`: several HTTP/3 servers in turns, and a table of them.

use std::{net::Ipv4Addr, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;
use weir_report::comparison::servers::{markdown, page, table};

use crate::{
    cmd::comparison_files::ComparisonFiles,
    h3::{
        server_file::ServerFile,
        server_rounds::{self, ServerRounds},
    },
    harness::{contender, machine::Machine, namespace, udp::mtu_to},
    output::{exit_code, print_line, print_out},
    signals,
};

/// Measure several HTTP/3 servers in turns and put them in a table
///
/// A TOML file says how each server is started; profiles/contenders.toml is an example. Each round starts each server on
/// its core, asks it for everything, and ends it with all that it started. Where the rights allow, all of this happens in
/// a network namespace whose packets have 1500 bytes. Exit code 0: all runs were made; 1: not; 2: nothing was measured.
#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    /// Description of the servers, TOML
    file: PathBuf,
    /// Rounds, instead of what the file says
    #[arg(long, value_name = "COUNT")]
    rounds: Option<u32>,
    /// Seconds of each run, instead of what the file says
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Measure only the server of this name; can be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Measure only this scenario, such as 15k, 2m or 1k-short; can be repeated
    #[arg(long, value_name = "NAME")]
    scenario: Vec<String>,
    /// Use the machine's own loopback interface, whatever its packet size
    #[arg(long)]
    no_namespace: bool,
    /// Set where this program runs itself again in a namespace
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
    // Everything that can be wrong is found before the namespace is entered, where this begins anew.
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
    }
    print_out(&table(&comparison))?;
    if !comparison.is_measured() {
        let kept = files.results.as_ref().map_or_else(String::new, |file| {
            format!("; {} is left as it is", file.display())
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
    described.check()?;
    let default = |place: usize| {
        machine
            .cores
            .get(place)
            .or_else(|| machine.cores.last())
            .copied()
    };
    described.server_core = described.server_core.or_else(|| default(0));
    described.client_core = described.client_core.or_else(|| default(1));
    let cores = [
        ("server_core".to_owned(), described.server_core),
        ("client_core".to_owned(), described.client_core),
    ];
    let servers = described.server.iter();
    let own = servers.map(|server| (format!("server {:?}: core", server.name), server.core));
    for (what, core) in cores.into_iter().chain(own) {
        if let Some(core) = core.filter(|core| !machine.cores.contains(core)) {
            bail!(
                "{file}: {what}: there is no core {core} here; there are {:?}",
                machine.cores
            );
        }
    }
    Ok(described)
}

/// Enters a namespace if that is wanted and possible; says what carries the packets.
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
         which favours who looks for large packets."
    ))
}

/// The section of the results, and the command that makes it.
const SECTION: &str = "http3-servers";
const COMMAND: &str = "make results-h3";
