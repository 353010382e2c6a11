//! `weir live play`: a player without a screen.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use weir_live::playout::BufferChoice;
use weir_live::strategy::{self, Strategy};
use weir_live::{Choice, Join, Plan, Timebase, Viewer, ViewerConfig};
use weir_moqt::name::Namespace;
use weir_net::Stop;
use weir_report::lab::{Figures, line, summary};

use super::{TrustArguments, namespace};
use crate::live::hosting::{host_viewer, timebase};
use crate::live::lab::{named_strategy, strategy_help};
use crate::output::print_out;
use crate::run::RelayUrl;
use crate::signals;
use crate::time::{long_time, time};

/// Play a live stream without a screen, and report what a viewer would have seen
///
/// What there is to play is read from the stream's catalog (MSF, or catalogformat-01), so streams of others are played as well: LOC, or
/// CMAF with H.264. Nothing is decoded: a frame counts as shown when its time has come and all that it needs has arrived.
/// Latencies are right if publisher and player have the same time of day; of others' streams, which do not say when a frame was
/// available, there are none. A new catalog is followed. Ends with the stream (or --patience-again after it), after --time, or at SIGINT.
#[derive(Debug, Args)]
pub(crate) struct PlayArguments {
    /// Relay, moqt://HOST:PORT[/PATH] or https://HOST:PORT[/PATH] for WebTransport
    relay: RelayUrl,
    /// Namespace of the tracks, with / between its parts
    #[arg(long, value_name = "NAME", default_value = "live", value_parser = namespace)]
    namespace: Namespace,
    #[arg(long, value_name = "NAME", conflicts_with = "patience_again", help = strategy_help(", for one of ours without a catalog") + " [default: what its catalog says]")]
    strategy: Option<String>,
    /// Where to begin
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = JoinChoice::Next)]
    join: JoinChoice,
    /// Buffer: `strategy` (as the strategy says), `adaptive` (as arrivals need, 40 to 400 ms), or milliseconds up to 99999
    #[arg(long, value_name = "TARGET", default_value_t = BufferChoice::default())]
    buffer: BufferChoice,
    /// How long to wait for a publisher
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = time)]
    patience: Duration,
    /// How long to wait for a publisher to come back after the stream has ended; not with --strategy
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = time)]
    patience_again: Duration,
    /// How long to play [default: to the end of the stream]
    #[arg(long, value_name = "TIME", value_parser = long_time)]
    time: Option<Duration>,
    /// Write the figures and every frame as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    trust: TrustArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum JoinChoice {
    /// With the next group of pictures: the lowest latency
    Next,
    /// With the current group, whose beginning is fetched: the quickest start
    Current,
}

pub(super) fn run(arguments: &PlayArguments) -> anyhow::Result<ExitCode> {
    let named = arguments.strategy.as_deref().map(named_strategy);
    let named = named.transpose()?;
    let timebase = timebase();
    let config = config(arguments, named.as_deref(), timebase)?;
    let remote = config.target.remote;
    let mut viewer = Viewer::new(config);
    let stop = signals::stop_on_signals()?;
    if let Some(time) = arguments.time {
        stop_after(time, stop.clone())?;
    }
    let strategy = named.unwrap_or_else(strategy::usual);
    host_viewer(&mut viewer, remote, &stop)?;
    let end_us = viewer.ended_us();
    let end_us = end_us.unwrap_or_else(|| timebase.microseconds(weir_net::clock::now()));
    let start_us = viewer.started_us().unwrap_or(timebase.us);
    let figures = Figures::of_received(viewer.records(), start_us, end_us);
    print_out(&text(&viewer, &figures))?;
    if let Some(path) = &arguments.json {
        let report = report(arguments, &viewer, &*strategy, (start_us, end_us), &figures);
        let text = serde_json::to_string(&report)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    match viewer.failure() {
        Some(failure) => bail!("{}: {failure}", arguments.relay),
        None if viewer.records().is_empty() => match viewer.complaint() {
            Some(complaint) => bail!(
                "{}: no frame came that could be understood: {complaint}",
                arguments.relay
            ),
            None => bail!("{}: no frame came", arguments.relay),
        },
        None => Ok(ExitCode::SUCCESS),
    }
}

fn config(
    arguments: &PlayArguments,
    strategy: Option<&dyn Strategy>,
    timebase: Timebase,
) -> anyhow::Result<ViewerConfig> {
    Ok(ViewerConfig {
        target: arguments.trust.target(&arguments.relay)?,
        namespace: arguments.namespace.clone(),
        choice: strategy.map_or(Choice::Catalog, Choice::of),
        join: match arguments.join {
            JoinChoice::Next => Join::Next,
            JoinChoice::Current => Join::Current,
        },
        buffer: arguments.buffer,
        rendezvous_timeout: arguments.patience,
        reconnect_timeout: arguments.patience_again,
        timebase,
    })
}

/// Requests the stop after `time`, unless it comes before.
fn stop_after(time: Duration, stop: Stop) -> anyhow::Result<()> {
    let wait = move || {
        if !stop.wait(time) {
            stop.request();
        }
    };
    std::thread::Builder::new()
        .name("weir-time".to_owned())
        .spawn(wait)
        .context("cannot start the thread that waits for the end")?;
    Ok(())
}

/// What is printed at the end.
fn text(viewer: &Viewer, figures: &Figures) -> String {
    let mut text = summary(figures);
    if viewer.publishers_followed() > 0 {
        let publishers = viewer.publishers_followed();
        text.push_str(&line("new publishers followed", &publishers));
        text.push_str(&line("frames of those before", &viewer.frames_of_former()));
    }
    if viewer.catalogs_followed() > 0 {
        text.push_str(&line("new catalogs followed", &viewer.catalogs_followed()));
    }
    if viewer.frames_not_recorded() > 0 {
        text.push_str(&line("frames not recorded", &viewer.frames_not_recorded()));
    }
    text
}

/// What `--json` holds.
fn report(
    arguments: &PlayArguments,
    viewer: &Viewer,
    strategy: &dyn Strategy,
    (start_us, end_us): (i64, i64),
    figures: &Figures,
) -> Value {
    let plan = viewer.plan();
    let usual = || Some(strategy.name());
    let name = plan.map_or_else(usual, |plan| plan.strategy.as_deref());
    json!({
        "schema": SCHEMA,
        "player": "weir live play",
        "relay": arguments.relay.to_string(),
        "strategy": name,
        "tracks": plan.map(tracks),
        "buffer": arguments.buffer.to_string(),
        "started_us": start_us,
        "ended_us": end_us,
        "figures": figures,
        "catalogs_followed": viewer.catalogs_followed(),
        "publishers_followed": viewer.publishers_followed(),
        "frames_of_former": viewer.frames_of_former(),
        "streams_refused": viewer.streams_refused(),
        "objects_unknown": viewer.objects_unknown(),
        "frames": viewer.records(),
    })
}

/// Version of the form of `--json`, which is that of the browser player's export (`vectors/live/report.json`); it grows whenever a
/// field comes, changes or goes.
const SCHEMA: u32 = 3;

/// What the catalog says of the tracks that were played.
fn tracks(plan: &Plan) -> Vec<Value> {
    let tracks = plan.video.iter().map(|track| {
        json!({ "name": track.name, "packaging": track.packaging().name(), "codec": track.codec })
    });
    tracks.collect()
}
