//! `weir agent`: makes a part of a benchmark's load, on this host.

use std::{process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::Args;

use crate::{
    h3,
    harness::{
        machine::{Machine, check_cores},
        process,
    },
    numbers::{core, whole},
    output::print_line,
    run::{
        fleet_flags::FleetArguments,
        remote::{AgentInfo, AgentServer, Limits, check_name},
    },
    signals,
};

/// Make a part of the load of `weir bench --agents` or `weir h3 bench --agents`, on this host
///
/// The agent waits for a controller that has the same key, makes its share of each run, and sends what it measured. It runs
/// until it is stopped. Relays and servers outside private networks are refused without --allow-public.
#[derive(Debug, Args)]
pub(super) struct AgentArguments {
    #[command(flatten)]
    fleet: FleetArguments,
    /// Name of this agent in flags and reports: letters, digits, `-`, `_` and `.`
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Process of the relay or HTTP/3 server on this host: the report then has its CPU and memory, and the agent avoids its
    /// cores
    #[arg(long, value_name = "PID", value_parser = whole(1..=u32::MAX))]
    watch: Option<u32>,
    /// Cores of the load, with commas between [default: all but those of the process in --watch]
    #[arg(long, value_name = "CORES", value_delimiter = ',', value_parser = core)]
    cores: Vec<usize>,
    /// Clients, or connections to an HTTP/3 server, that this agent runs at once, at most
    #[arg(long, value_name = "COUNT", default_value_t = 50_000, value_parser = whole(1..=usize::MAX))]
    clients_max: usize,
    /// Allow relays and servers outside this machine and private networks
    #[arg(long)]
    allow_public: bool,
    /// Milliseconds by which the agent's clock is set wrong: shows that reports correct it
    #[arg(long, value_name = "MS", default_value_t = 0, hide = true)]
    clock_offset: u64,
}

pub(super) fn run(arguments: &AgentArguments) -> anyhow::Result<ExitCode> {
    check_name(&arguments.name)?;
    let machine = Machine::this();
    let info = AgentInfo {
        name: arguments.name.clone(),
        id: String::new(),
        kernel: machine.kernel.clone(),
        cpu_model: machine.cpu_model.clone(),
        cores: cores(arguments, &machine)?,
        is_busy: false,
        watches: false,
    };
    let limits = Limits {
        allows_public: arguments.allow_public,
        clients_max: arguments.clients_max,
    };
    let key = arguments.fleet.key()?;
    let bus = arguments
        .fleet
        .connect(&format!("weir agent {}", arguments.name))?;
    let offset = Duration::from_millis(arguments.clock_offset);
    let mut server = AgentServer::new(
        bus,
        key,
        info,
        (limits, arguments.watch, offset),
        h3::agent::start,
    )?;
    let stop = signals::stop_on_signals()?;
    let say = |text: &str| print_line(&format!("weir agent {}: {text}", arguments.name));
    say("waits for a controller");
    server.serve(&stop, say)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the cores of the load: those of the flag, or all that the watched process does not use.
fn cores(arguments: &AgentArguments, machine: &Machine) -> anyhow::Result<Vec<usize>> {
    check_cores("--cores", &arguments.cores, &machine.cores)?;
    if !arguments.cores.is_empty() {
        return Ok(arguments.cores.clone());
    }
    let Some(pid) = arguments.watch else {
        return Ok(machine.cores.clone());
    };
    process::usage(pid).with_context(|| format!("--watch: there is no process {pid}"))?;
    let relay = process::bound_cores(pid, &machine.cores);
    let free = machine
        .cores
        .iter()
        .copied()
        .filter(|core| !relay.contains(core));
    let free: Vec<usize> = free.collect();
    Ok(if free.is_empty() {
        machine.cores.clone()
    } else {
        free
    })
}
