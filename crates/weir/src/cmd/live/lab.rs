//! `weir live lab`: compare strategies over links that are too slow.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde_json::json;
use weir_live::{figures::Figures, strategy};
use weir_quic::Congestion;

use super::congestion;
use crate::cmd::print_line;
use crate::live::{
    conditions::Conditions,
    lab::run as run_once,
    page::{COLUMNS, Cell, page, row},
    profile::NetworkProfile,
};

/// Compare strategies over links that are too slow, in virtual time
///
/// Each strategy streams a real encode's frames (720p, 24 frames per second, 622 kbit/s) over each profile, through our
/// relay, with real QUIC. Equal seeds give equal runs; the table shows medians over all seeds.
#[derive(Debug, Args)]
pub(crate) struct LabArguments {
    /// Strategies, with commas between [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    strategies: Vec<String>,
    /// Profiles of the link, with commas between [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    profiles: Vec<String>,
    /// A recorded link in Mahimahi's form, as one more profile; can be repeated
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,
    /// How long a recorded link is used
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = humantime::parse_duration)]
    trace_time: Duration,
    /// How many seeds, from 1
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    #[command(flatten)]
    conditions: Conditions,
    /// Congestion controller of the relay: `cubic` or `delay` [default: what the strategy asks for]
    #[arg(long, value_name = "NAME", value_parser = congestion)]
    congestion: Option<Congestion>,
    /// Where to write the report with all figures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Where to write the figures of each run
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(super) fn run(arguments: &LabArguments) -> anyhow::Result<ExitCode> {
    let strategies: Vec<String> = if arguments.strategies.is_empty() {
        strategy::NAMES.map(str::to_owned).into()
    } else {
        arguments.strategies.clone()
    };
    let mut cells = Vec::new();
    let mut runs = Vec::new();
    for profile in profiles(arguments)? {
        for strategy in &strategies {
            print_line(&format!("{} over {}", strategy, profile.name));
            let mut figures = Vec::new();
            let mut records = Vec::new();
            for seed in 1..=arguments.seeds {
                let run = run_once(
                    strategy,
                    &profile,
                    &arguments.conditions,
                    arguments.congestion,
                    seed,
                )?;
                runs.push(json!({
                    "profile": profile.name, "strategy": strategy, "seed": seed, "figures": run.figures,
                }));
                figures.push(run.figures);
                if seed == 1 {
                    records = run.records;
                }
            }
            cells.push(Cell {
                profile: profile.name.clone(),
                strategy: strategy.clone(),
                median: medians(&figures),
                records,
                duration_s: profile.duration.as_secs_f64(),
            });
        }
    }
    std::io::stdout().write_all(table(&cells).as_bytes())?;
    if let Some(path) = &arguments.html {
        let command: Vec<String> = std::env::args().skip(1).collect();
        let text = page(&cells, &format!("weir {}", command.join(" ")));
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&runs)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn profiles(arguments: &LabArguments) -> anyhow::Result<Vec<NetworkProfile>> {
    let mut profiles = Vec::new();
    let all = arguments.profiles.is_empty() && arguments.trace.is_empty();
    let names: Vec<&str> = if all {
        NetworkProfile::names().collect()
    } else {
        arguments.profiles.iter().map(|name| &**name).collect()
    };
    for name in names {
        profiles.push(NetworkProfile::find(name)?);
    }
    for path in &arguments.trace {
        profiles.push(NetworkProfile::load(path, arguments.trace_time)?);
    }
    Ok(profiles)
}

/// The medians of the figures that the table shows.
fn medians(runs: &[Figures]) -> Figures {
    let median = |value: fn(&Figures) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let mut freezes: Vec<u64> = runs.iter().map(|run| run.freezes).collect();
    freezes.sort_unstable();
    Figures {
        shown: median(|run| run.shown),
        on_time: median(|run| run.on_time),
        latency_mean: median(|run| run.latency_mean),
        latency_p95: median(|run| run.latency_p95),
        age_mean: median(|run| run.age_mean),
        freeze_longest: median(|run| run.freeze_longest),
        queueing_mean: median(|run| run.queueing_mean),
        freezes: freezes.get(freezes.len() / 2).copied().unwrap_or(0),
        ..Figures::default()
    }
}

fn table(cells: &[Cell]) -> String {
    let mut out = format!("{:<15} {:<15}", "profile", "strategy");
    let mut put = |text: std::fmt::Arguments<'_>| out.write_fmt(text).expect("a String takes all");
    for column in COLUMNS {
        put(format_args!(" {column:>8}"));
    }
    for cell in cells {
        put(format_args!("\n{:<15} {:<15}", cell.profile, cell.strategy));
        for value in row(&cell.median) {
            put(format_args!(" {value:>8}"));
        }
    }
    out.push('\n');
    out
}
