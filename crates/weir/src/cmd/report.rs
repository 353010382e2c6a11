//! `weir bench report`: shows an archived run, and writes its report in several formats.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;
use weir_report::relay::{Report, csv, html, json, prometheus, sanitize, sanitize_record};

use super::{archive_file, bench};
use crate::{
    numbers::whole,
    output::{exit_code, write_named},
};

/// Show a run that `weir bench --archive` wrote, and convert its report
///
/// Exit code 0: the service level held; 1: the level broke; 2: the archive cannot be read.
#[derive(Debug, Args)]
pub(super) struct ReportArguments {
    /// File that `weir bench --archive` wrote; with --sanitize and --json also the --json file of any
    /// command
    archive: PathBuf,
    /// Write the report to FILE, as JSON (docs/report.schema.json)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report to FILE, as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a row for each subscription to FILE, as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a row for each track and second to FILE, as CSV
    #[arg(long, value_name = "FILE")]
    seconds_csv: Option<PathBuf>,
    /// Write the figures to FILE, as Prometheus text
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
    /// First second of the run whose latency counts, from 0 [default: 0]
    #[arg(long, value_name = "SECOND", value_parser = whole(0..=u64::MAX))]
    from: Option<u64>,
    /// Second of the run before which latency counts [default: the end of the run]
    #[arg(long, value_name = "SECOND", value_parser = whole(0..=u64::MAX))]
    to: Option<u64>,
    /// Leave hosts, addresses, namespaces and tokens out of all output
    #[arg(long)]
    sanitize: bool,
}

pub(super) fn run(arguments: &ReportArguments) -> anyhow::Result<ExitCode> {
    if arguments.sanitize
        && let Some(record) = archive_file::read_record(&arguments.archive)?
    {
        return sanitize_kept(arguments, &record);
    }
    let archive = archive_file::read(&arguments.archive)?;
    let mut report = match (arguments.from, arguments.to) {
        (None, None) => archive.report,
        (from, to) => {
            let (from, to) = (from.unwrap_or(0), to.unwrap_or(u64::MAX));
            if from >= to {
                bail!("--from, --to: expected a --from below --to, not {from} and {to}");
            }
            archive.between(from, to).context("--from, --to")?
        }
    };
    if arguments.sanitize {
        report = sanitize(&report).context("--sanitize")?;
    }
    let forms: [(&Option<PathBuf>, Form); 5] = [
        (&arguments.json, json::render),
        (&arguments.html, html::render),
        (&arguments.csv, csv::subscriptions),
        (&arguments.seconds_csv, csv::seconds),
        (&arguments.prometheus, prometheus::render),
    ];
    for (file, render) in forms {
        write_named(file.as_deref(), || render(&report))?;
    }
    bench::print_report(&report)?;
    Ok(exit_code(report.verdict.outcome.is_held()))
}

/// Writes a JSON file of weir's without names.
fn sanitize_kept(arguments: &ReportArguments, record: &str) -> anyhow::Result<ExitCode> {
    let name = arguments.archive.display();
    let others = [
        (arguments.html.is_some(), "--html"),
        (arguments.csv.is_some(), "--csv"),
        (arguments.seconds_csv.is_some(), "--seconds-csv"),
        (arguments.prometheus.is_some(), "--prometheus"),
        (arguments.from.is_some(), "--from"),
        (arguments.to.is_some(), "--to"),
    ];
    if let Some((_, flag)) = others.into_iter().find(|(is_given, _)| *is_given) {
        bail!("{flag}: {name} is a JSON file, not an archive; expected --json FILE only");
    }
    let Some(file) = arguments.json.as_deref() else {
        bail!("--sanitize: {name} is a JSON file, not an archive; add --json FILE");
    };
    let clean = sanitize_record(record).context("--sanitize")?;
    write_named(Some(file), || clean)?;
    Ok(ExitCode::SUCCESS)
}

/// A function that renders a report.
type Form = fn(&Report) -> String;
