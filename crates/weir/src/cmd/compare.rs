//! `weir bench compare`: measures several relays in turns, and tabulates them.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use weir_report::comparison::relays::{html, markdown, terminal};

use crate::{
    cmd::comparison_files::ComparisonFiles,
    harness::contender,
    numbers::whole,
    output::{command_line, exit_code, print_out},
    run::{
        fleet_flags::AgentsArguments,
        limit_searches::LimitSearches,
        relay_file::{REPEATS_MAX, RelayFile},
        relay_rounds::RelayRounds,
    },
    signals,
};

/// Measure several relays in turns, and compare them in a table
///
/// A TOML file says how each relay is started and reached; profiles/relays.toml is an example. Each turn starts a
/// relay on its core, warms it up, measures it, and ends all its processes. Exit code 0: all runs were made; 1: a run is
/// missing, a relay did not start, or a calibration could not be made; 2: nothing was measured.
#[derive(Debug, Args)]
pub(super) struct CompareArguments {
    /// TOML file that describes the relays, such as profiles/relays.toml
    file: PathBuf,
    /// Runs of each relay, 1 to 50 [default: the file's `repeats`]
    #[arg(long, value_name = "COUNT", value_parser = whole(1..=REPEATS_MAX))]
    repeats: Option<u32>,
    /// Name of a relay in the file, to measure only that one; can be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Search for the largest number of subscribers that each relay carries, by the file's table `find_max`, instead of
    /// measuring all relays under one load
    #[arg(long, conflicts_with = "repeats")]
    find_max: bool,
    #[command(flatten)]
    agents: AgentsArguments,
    #[command(flatten)]
    files: ComparisonFiles,
}

pub(super) fn run(arguments: &CompareArguments) -> anyhow::Result<ExitCode> {
    let mut described = RelayFile::read(&arguments.file)?;
    if let Some(repeats) = arguments.repeats {
        described.repeats = repeats;
    }
    contender::keep_only(&mut described.relay, &arguments.only, &arguments.file)?;
    arguments.files.check()?;
    let folder = arguments.file.parent().unwrap_or_else(|| Path::new("."));
    let is_whole = if arguments.find_max {
        find_limits(arguments, described, folder)?
    } else {
        compare(arguments, described, folder)?
    };
    Ok(exit_code(is_whole))
}

/// Measures all relays under one load. Returns true if all runs were made, and calibrated where they are to be.
fn compare(
    arguments: &CompareArguments,
    described: RelayFile,
    folder: &Path,
) -> anyhow::Result<bool> {
    let stop = signals::stop_on_signals()?;
    let fleet = arguments.agents.claim(&stop)?;
    let mut rounds = RelayRounds::new(described, folder, fleet)?;
    let broken_off = rounds.run(&stop)?;
    let is_calibrated = rounds.is_calibrated();
    let comparison = rounds.comparison(broken_off);
    let (files, markdown) = (&arguments.files, markdown(&comparison));
    files.write(&comparison.to_json(), &html(&comparison), &markdown)?;
    let (name, heading) = arguments.section();
    files.write_section(name, &arguments.command(), heading, &markdown)?;
    print_out(&terminal(&comparison))?;
    Ok(comparison.broken_off.is_none() && is_calibrated)
}

/// Searches for the limit of each relay. Returns true if all limits were found and calibrated.
fn find_limits(
    arguments: &CompareArguments,
    described: RelayFile,
    folder: &Path,
) -> anyhow::Result<bool> {
    let stop = signals::stop_on_signals()?;
    let fleet = arguments.agents.claim(&stop)?;
    let searches = LimitSearches::new(described, folder, fleet)?;
    let limits = searches.run(&stop)?;
    let (files, markdown) = (&arguments.files, limits.markdown());
    files.write(&limits.to_json(), &limits.html(), &markdown)?;
    files.write_section(
        "relay-limits",
        &arguments.command(),
        "What relays carry",
        &markdown,
    )?;
    print_out(&limits.terminal())?;
    let mut searches = limits.searches.iter();
    Ok(limits.broken_off.is_none()
        && searches.all(|one| {
            one.record.answer.limit().is_some() && one.record.calibration_problem.is_none()
        }))
}

impl CompareArguments {
    /// Returns name and heading of the section of a comparison under one load.
    fn section(&self) -> (&'static str, &'static str) {
        match self.file.to_str() {
            Some("profiles/audiences.toml") => ("audiences", "What an audience costs the relay"),
            Some("profiles/drafts.toml") => ("drafts", "What drafts cost the relay"),
            _ => ("relays-compared", "Relays compared"),
        }
    }

    /// Returns the command that writes the section again.
    fn command(&self) -> String {
        let target = match self.file.to_str() {
            Some("profiles/relays.toml") if self.find_max => "make results-relays",
            Some("profiles/audiences.toml") if !self.find_max => "make results-audiences",
            Some("profiles/drafts.toml") if !self.find_max => "make results-drafts",
            Some("profiles/wires.toml") if !self.find_max => "make results-wires",
            _ => return command_line(),
        };
        target.to_owned()
    }
}
