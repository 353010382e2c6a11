//! `weir probe`: tests the conformance and robustness of a relay.

use std::{fs, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use weir_moqt::draft::Draft;
use weir_probe::{Case, Edition};
use weir_report::probe::{Report, html, json, page, tap};

use crate::{
    file_kind::{Kind, explained},
    harness::machine::Machine,
    numbers::whole,
    output::{check_writable, exit_code, print_line, print_out, write_named},
    probe::{self, Plan, level},
    results::{self, Section},
    run::{RelayUrl, TrustArguments},
    signals,
    time::{time, time_limit},
};

/// Test the conformance and robustness of a MOQT relay
///
/// Each case names a section of draft-ietf-moq-transport-22 or -18; further cases are hostile. A bystander publishes and subscribes
/// beside them, and what it loses is part of the result. The output is TAP 14: a failed case that the draft does not require with
/// MUST is marked `todo`. Exit code 0: all required cases passed and the bystander lost nothing; 1: not so; 2: nothing was tested.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct ProbeArguments {
    #[command(subcommand)]
    question: Option<Question>,
    /// The relay: moqt://HOST:PORT for raw QUIC, https://HOST:PORT for WebTransport
    #[arg(required_unless_present = "list")]
    url: Option<String>,
    /// Draft of MOQT whose cases are run, 22 or 18 [default: the newer one that the relay offers; for --list, 22]
    #[arg(long, value_name = "DRAFT", value_parser = edition)]
    draft: Option<Edition>,
    /// Print the cases, and run none
    #[arg(long)]
    list: bool,
    /// Run only cases whose name contains this text, or one of several texts with commas between
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    only: Vec<String>,
    /// Send this many hostile messages after the cases, about 20,000 in a second
    #[arg(long, value_name = "COUNT", value_parser = whole(1..=100_000_000_u64))]
    messages: Option<u64>,
    /// Seed of what is random: the same seed gives the same messages
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = whole(0..=u64::MAX))]
    seed: u64,
    /// How long a case waits for what the relay has to do
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time_limit)]
    patience: Duration,
    /// Pause before the first case and after the last, in which the bystander alone uses the relay
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    settle: Duration,
    /// Process of the relay on this machine, whose memory is reported
    #[arg(long, value_name = "PID")]
    relay_pid: Option<u32>,
    /// Name of the relay in reports [default: the one that it sends in SETUP]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    trust: TrustArguments,
    /// Allow a relay outside this machine and private networks
    #[arg(long)]
    allow_public: bool,
    /// Write the report to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report to FILE, as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Question {
    Compare(CompareArguments),
}

/// Show the reports of several runs side by side, as Markdown
///
/// The table has the cases that one of the relays did not pass.
#[derive(Debug, Args)]
struct CompareArguments {
    /// Reports that `weir probe --json` wrote
    #[arg(required = true)]
    reports: Vec<PathBuf>,
    /// Write the tables into the section `probe` of this Markdown file, instead of standard output
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

pub(super) fn run(arguments: &ProbeArguments) -> anyhow::Result<ExitCode> {
    if let Some(Question::Compare(arguments)) = &arguments.question {
        return compare(arguments);
    }
    check_only(arguments)?;
    if arguments.list {
        return list(&chosen(arguments, arguments.draft.unwrap_or_default())?);
    }
    let plan = plan(arguments)?;
    for file in [&arguments.json, &arguments.html].into_iter().flatten() {
        check_writable(file)?;
    }
    let stop = signals::stop_on_signals()?;
    let edition = match arguments.draft {
        Some(edition) => edition,
        None => probe::preferred_edition(&plan, &stop)?,
    };
    let cases = chosen(arguments, edition)?;
    print_out(&tap::head(cases.len(), edition.alpn()))?;
    let ran = probe::run(&plan, edition, cases, &stop, |number, case| {
        // A reader that has gone ends nothing: the reports are still written.
        drop(print_out(&tap::case(number, case)));
    });
    let report = ran.inspect_err(|error| drop(print_out(&format!("Bail out! {error:#}\n"))))?;
    print_out(&tap::bystander(&report))?;
    write_named(arguments.json.as_deref(), || json::render(&report))?;
    write_named(arguments.html.as_deref(), || html::render(&report))?;
    if let Some(memory) = report.memory {
        let (before, peak, after) = (memory.before_bytes, memory.peak_bytes, memory.after_bytes);
        print_line(&format!(
            "weir: memory of the relay: {before} bytes before, {peak} at most, {after} after the cases"
        ));
    }
    Ok(exit_code(report.holds()))
}

/// Parses the name of a draft that has cases: its ALPN or its number.
fn edition(name: &str) -> Result<Edition, String> {
    let draft = Draft::by_name(name);
    let edition = draft.and_then(|draft| Edition::from_alpn(draft.alpn()));
    let names = || Edition::alpns().join(" or ");
    edition.ok_or_else(|| format!("expected {}, or its number", names()))
}

/// Refuses an `--only` that chooses no case of any draft, before a relay is asked for its draft.
fn check_only(arguments: &ProbeArguments) -> anyhow::Result<()> {
    let refusals = Edition::ALL.map(|edition| chosen(arguments, edition).err());
    if let [Some(refusal), Some(_)] = refusals {
        return Err(refusal);
    }
    Ok(())
}

/// Returns the cases of an edition that the flags choose.
fn chosen(arguments: &ProbeArguments, edition: Edition) -> anyhow::Result<Vec<Case>> {
    let only = &arguments.only;
    let is_meant =
        |case: &Case| only.is_empty() || only.iter().any(|text| case.name.contains(text.as_str()));
    let cases = weir_probe::cases(edition, arguments.messages).into_iter();
    let cases: Vec<Case> = cases.filter(is_meant).collect();
    if cases.is_empty() {
        bail!(
            "--only: no case of {} has a name with {:?}; see `weir probe --list`",
            edition.alpn(),
            only.join(",")
        );
    }
    Ok(cases)
}

fn list(cases: &[Case]) -> anyhow::Result<ExitCode> {
    let lines = cases.iter().map(|case| {
        let section = match case.section {
            "" => "robustness".to_owned(),
            section => format!("§{section} {}", level(case.level).words()),
        };
        format!("{}\t{section}\t{}\n", case.name, case.requirement)
    });
    print_out(&lines.collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

fn plan(arguments: &ProbeArguments) -> anyhow::Result<Plan> {
    let url = arguments.url.as_deref().context("URL is missing")?;
    let url: RelayUrl = url.parse().context("URL")?;
    if !url.is_isolated() && !arguments.allow_public {
        bail!(
            "URL: {url} is outside this machine and private networks. The cases are hostile; if the relay is yours, add \
             --allow-public"
        );
    }
    Ok(Plan {
        url,
        trust: arguments.trust.choice()?,
        name: arguments.name.clone(),
        seed: arguments.seed,
        patience: arguments.patience,
        settle: arguments.settle,
        relay_pid: arguments.relay_pid,
    })
}

fn compare(arguments: &CompareArguments) -> anyhow::Result<ExitCode> {
    let read = |file: &PathBuf| -> anyhow::Result<Report> {
        let text =
            fs::read_to_string(file).with_context(|| format!("{}: cannot be read", file.display()));
        text.and_then(|text| json::parse(&text).with_context(|| file.display().to_string()))
            .map_err(|error| explained(file, Kind::Probed, error))
    };
    let reports: Vec<Report> = arguments
        .reports
        .iter()
        .map(read)
        .collect::<Result<_, _>>()?;
    let body = page::render(&reports);
    let Some(file) = &arguments.results else {
        print_out(&body)?;
        return Ok(ExitCode::SUCCESS);
    };
    let section = Section {
        name: "probe",
        heading: "Conformance and robustness",
        place: &format!("on {}", Machine::this().words()),
        command: "make results-probe",
        body: &body,
    };
    results::write_section(file, &section)?;
    Ok(ExitCode::SUCCESS)
}
