//! `weir h3 bench`: measures an HTTP/3 server.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;
use weir_report::http3::{Report, html, json, terminal};

use crate::{
    h3::{agents, measurement, options::LoadOptions, url::Url},
    harness::machine::Machine,
    hints::{UNREACHABLE, hint},
    output::{check_writable, exit_code, print_line, print_out, screen, write_named},
    progress::Progress,
    run::fleet_flags::LoadAgents,
    signals,
};

/// Measure an HTTP/3 server under load
///
/// A request succeeds if the response has status 200 and the exact length; all others are counted by the kind of failure.
/// With --server-pid or --server-process, the report has the server's CPU time per request, and says whether the server
/// was the limit. With --agents, agents on other hosts make the load, each with --threads threads and an equal part of
/// --rate. Exit code 0: requests succeeded; 1: none did, or the server
/// stopped answering during the run; 2: nothing was measured.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// URL of the requests, `https://HOST[:PORT][/PATH]`; several URLs on one server are requested in turns, up to 64
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
    #[command(flatten)]
    options: LoadOptions,
    #[command(flatten)]
    agents: LoadAgents,
    /// Write a log of each connection into FOLDER, in the qlog format, up to 64 MiB each and 1 GiB together
    #[arg(long, value_name = "FOLDER")]
    qlog: Option<PathBuf>,
    /// Write the report to FILE, as JSON (docs/h3-report.schema.json)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report to FILE, as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(arguments: &BenchArguments) -> anyhow::Result<ExitCode> {
    let machine = Machine::this();
    let urls = arguments.urls.iter().map(|url| url.parse());
    let urls = urls.collect::<Result<Vec<Url>, _>>().context("URL")?;
    let has_agents = arguments.agents.are_given();
    if has_agents && !(arguments.options.cores.is_empty() && arguments.qlog.is_none()) {
        bail!(
            "--agents: leave --cores and --qlog out: they are of this host, and agents make the load"
        );
    }
    let mut plan = arguments.options.plan(&urls, &machine)?;
    plan.qlog.clone_from(&arguments.qlog);
    if let Some(folder) = &plan.qlog {
        fs::create_dir_all(folder)
            .with_context(|| format!("--qlog: cannot make the folder {}", folder.display()))?;
    }
    for file in [&arguments.json, &arguments.html].into_iter().flatten() {
        check_writable(file)?;
    }
    let stop = signals::stop_on_signals()?;
    let mut progress = Progress::new();
    let fleet = arguments.agents.claim("weir h3 bench", &stop)?;
    let say = |line: &str| progress.say(line);
    let report = match &fleet {
        None => measurement::measure(&plan, &machine, &stop, say),
        Some(fleet) => agents::measure(fleet, &plan, &machine, &stop, say),
    };
    progress.end();
    let report = report?;
    write_named(arguments.json.as_deref(), || json::render(&report))?;
    write_named(arguments.html.as_deref(), || html::render(&report))?;
    let (width, colour) = screen();
    print_out(&terminal::render(&report, width, colour))?;
    if let Some(hint) = connection_hint(&report) {
        print_line(hint);
    }
    Ok(exit_code(
        report.requests.successes > 0 && !report.has_fallen_silent(),
    ))
}

/// Returns what to do if no connection was made.
fn connection_hint(report: &Report) -> Option<&'static str> {
    let connections = &report.connections;
    if connections.handshakes > 0 {
        return None;
    }
    let mut refusals = connections.refusals.iter();
    let of_refusal = refusals.find_map(|one| hint(one.words.as_deref()?));
    let is_silent = connections.refusals.is_empty() && connections.unfinished > 0;
    of_refusal.or_else(|| is_silent.then_some(UNREACHABLE))
}
