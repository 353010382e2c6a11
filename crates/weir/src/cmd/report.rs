//! `weir bench report`: the forms of a run that was archived.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;
use weir_report::relay::{Report, csv, html, json, prometheus, sanitize};

use super::{archive_file, bench};
use crate::output::{exit_code, write_named};

/// Show a run that was kept with --archive
///
/// Exit code as that of the run: 0 if the service level held, 1 if not.
#[derive(Debug, Args)]
pub(super) struct ReportArguments {
    /// File that `weir bench --archive` wrote
    archive: PathBuf,
    /// Write the report as JSON, as docs/report.schema.json describes it
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a table with a row for each subscription
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a table with a row for each track and second
    #[arg(long, value_name = "FILE")]
    seconds_csv: Option<PathBuf>,
    /// Write figures as Prometheus text
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
    /// Judge latency from this second of the run on
    #[arg(long, value_name = "SECOND")]
    from: Option<u64>,
    /// Judge latency up to this second of the run
    #[arg(long, value_name = "SECOND")]
    to: Option<u64>,
    /// Leave out hosts, addresses, namespaces and tokens
    #[arg(long)]
    sanitize: bool,
}

pub(super) fn run(arguments: &ReportArguments) -> anyhow::Result<ExitCode> {
    let archive = archive_file::read(&arguments.archive)?;
    let mut report = match (arguments.from, arguments.to) {
        (None, None) => archive.report,
        (from, to) => {
            let (from, to) = (from.unwrap_or(0), to.unwrap_or(u64::MAX));
            if from >= to {
                bail!("--from, --to: second {from} is not before second {to}");
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

/// Renders a report.
type Form = fn(&Report) -> String;
