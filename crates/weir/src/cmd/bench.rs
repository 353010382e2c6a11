//! `weir bench`: measures a relay.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use weir_report::relay::{Report, TrackReport, html, json, terminal};

use crate::{
    cmd::archive_file,
    harness::machine::Machine,
    hints::hint,
    output::{check_writable, exit_code, print_line, print_out, screen, write_named},
    progress::Progress,
    run::{self, Ran, fleet_flags::AgentsArguments, options::RunOptions},
    signals,
};

// The files that a run writes. No doc comment: clap would show it as the help of the command.
#[derive(Clone, Debug, Args)]
pub(super) struct Outputs {
    /// Write the report to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write the report to FILE, as one HTML page
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write the whole measurement to FILE, for `weir bench report`
    #[arg(long, value_name = "FILE")]
    pub(super) archive: Option<PathBuf>,
}

pub(super) fn run(
    profile: &Path,
    options: &RunOptions,
    agents: &AgentsArguments,
    outputs: &Outputs,
) -> anyhow::Result<ExitCode> {
    let machine = Machine::this();
    let stop = signals::stop_on_signals()?;
    let fleet = agents.claim(&stop)?;
    let plan = options.plan(profile, &machine, fleet.as_ref())?;
    let files = [&outputs.json, &outputs.html, &outputs.archive];
    for file in files.into_iter().flatten() {
        check_writable(file)?;
    }
    if let Some(one_sided) = plan.one_sided() {
        let (named, seed) = (one_sided.named, plan.seed);
        print_line(&format!(
            "weir: {named}: this process makes one side of the run; start the other side with --seed {seed}"
        ));
    }
    let mut progress = Progress::new();
    let ran = run::run(&plan, &machine, &stop, |moment| progress.show(moment));
    drop(progress);
    let Ran {
        archive,
        calibration_problem,
    } = ran?;
    if let Some(file) = &outputs.archive {
        archive_file::write(file, &archive)?;
    }
    let report = archive.report;
    write_named(outputs.json.as_deref(), || json::render(&report))?;
    write_named(outputs.html.as_deref(), || html::render(&report))?;
    print_report(&report)?;
    if let Some(hint) = hint(&report.verdict.sentence) {
        print_line(hint);
    }
    if has_only_other_runs(&report) {
        print_line(&format!(
            "weir: all objects are of another run: the publisher runs with another --seed than {}",
            report.run.seed
        ));
    }
    if let Some(problem) = &calibration_problem {
        print_line(&format!("weir: the calibration failed: {problem}"));
    }
    let held = report.verdict.outcome.is_held();
    Ok(exit_code(held && calibration_problem.is_none()))
}

/// Whether objects arrived, and all of them were of other runs.
fn has_only_other_runs(report: &Report) -> bool {
    let delivered = |track: &TrackReport| track.completion.objects_received.sum;
    let foreign = report.tracks.iter().map(|track| track.delivery.foreign);
    foreign.sum::<u64>() > 0 && report.tracks.iter().all(|track| delivered(track) == 0)
}

/// Prints a report on standard output, in colour on a terminal.
pub(super) fn print_report(report: &Report) -> anyhow::Result<()> {
    let (width, colour) = screen();
    print_out(&terminal::render(report, width, colour))
}
