//! `weir live play`: plays a live stream without a screen, and reports what a viewer would have seen.

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

use super::{TokenArgument, TrustArguments, namespace, relay_url, target};
use crate::live::connecting::{Connecting, NO_GROUP};
use crate::live::hosting::{host_viewer, timebase};
use crate::live::lab::{named_strategy, strategy_help};
use crate::output::{check_writable, print_line, print_out};
use crate::run::{DraftArguments, RelayUrl};
use crate::signals;
use crate::time::{long_time, time};

/// Play a live stream without a screen, and report what a viewer would have seen
///
/// The stream's catalog (MSF, or catalogformat-01) names the tracks, so streams of other publishers play too: LOC, or CMAF
/// with H.264. Nothing is decoded: a frame counts as shown if it and all frames that it needs arrive before its playout
/// time. Latencies need publisher and player on the same clock; streams without capture times have none. The player
/// follows a changed catalog. It ends with the stream (or --patience-again later), after --time, or at SIGINT. Exit code
/// 2: no frame was received, or the player failed, such as when its token expired.
#[derive(Debug, Args)]
pub(crate) struct PlayArguments {
    /// Relay with the stream: moqt://HOST:PORT[/PATH] for raw QUIC, https://HOST:PORT[/PATH] for WebTransport; several with
    /// commas between: the player uses the next one when it loses one
    relay: String,
    /// Namespace of the tracks, with / between its fields
    #[arg(long, value_name = "NAME", default_value = "live", value_parser = namespace)]
    namespace: Namespace,
    #[arg(long, value_name = "NAME", conflicts_with = "patience_again", help = strategy_help("Strategy that the publisher uses, for a stream without a catalog") + " [default: that of the catalog]")]
    strategy: Option<String>,
    /// Where in the stream to begin
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = JoinChoice::Next)]
    join: JoinChoice,
    /// Playout buffer: strategy (that of the strategy), adaptive (follows the jitter, 40 to 400 ms), or milliseconds, 0 to 99999
    #[arg(long, value_name = "TARGET", default_value_t = BufferChoice::default())]
    buffer: BufferChoice,
    /// Time to wait for a publisher, up to 1day
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = time)]
    patience: Duration,
    /// Time to wait for another publisher after the stream has ended, up to 1day; not with --strategy
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = time)]
    patience_again: Duration,
    /// Time to play, up to 7days [default: to the end of the stream]
    #[arg(long, value_name = "TIME", value_parser = long_time)]
    time: Option<Duration>,
    /// Write the figures and every frame to FILE, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    trust: TrustArguments,
    #[command(flatten)]
    token: TokenArgument,
    #[command(flatten)]
    draft: DraftArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum JoinChoice {
    /// At the next group of pictures: the lowest latency
    Next,
    /// At the start of the current group, which the player fetches: the quickest start
    Current,
}

pub(super) fn run(arguments: &PlayArguments) -> anyhow::Result<ExitCode> {
    if let Some(file) = &arguments.json {
        check_writable(file)?;
    }
    let named = arguments.strategy.as_deref().map(named_strategy);
    let named = named.transpose().context("--strategy")?;
    let timebase = timebase();
    let relay = relay_url("RELAY", &arguments.relay)?;
    let config = config(arguments, &relay, named.as_deref(), timebase)?;
    let remote = config.target.remote;
    let mut connecting = Connecting::new(Viewer::new(config), print_line);
    let stop = signals::stop_on_signals()?;
    if let Some(time) = arguments.time {
        stop_after(time, stop.clone())?;
    }
    let strategy = named.unwrap_or_else(strategy::usual);
    host_viewer(&mut connecting, remote, &stop)?;
    let mut viewer = connecting.role;
    let has_frames = !viewer.records().is_empty();
    let cut = viewer.remove_waiting_frames();
    let end_us = viewer.ended_us();
    let end_us = end_us.unwrap_or_else(|| timebase.microseconds(weir_net::clock::now()));
    let start_us = viewer.started_us().unwrap_or(timebase.us);
    let figures = Figures::of_received(viewer.records(), start_us, end_us);
    if has_frames {
        print_out(&text(&viewer, &figures, cut))?;
    }
    if let Some(path) = &arguments.json {
        let mut report = report(arguments, &viewer, &*strategy, (start_us, end_us), &figures);
        report["relay"] = relay.to_string().into();
        let text = serde_json::to_string(&report)?;
        std::fs::write(path, text)
            .with_context(|| format!("--json: {}: cannot be written", path.display()))?;
    }
    match viewer.failure() {
        Some(failure) if viewer.relays_left() > 0 => {
            bail!("{}: {failure}", viewer.client().remote())
        }
        Some(failure) => bail!("{relay}: {failure}"),
        None if !has_frames => match viewer.complaint() {
            Some(complaint) => bail!("{relay}: no frame could be read: {complaint}"),
            None if !viewer.had_session() => {
                let seconds = Duration::from_micros((end_us - start_us).unsigned_abs());
                bail!("{relay}: no answer within {:.1} s", seconds.as_secs_f64())
            }
            None if viewer.plan().is_some() => bail!("{relay}: {NO_GROUP}"),
            None => bail!(
                "{relay}: no frame arrived; does a publisher send to the namespace of --namespace?"
            ),
        },
        None => Ok(ExitCode::SUCCESS),
    }
}

fn config(
    arguments: &PlayArguments,
    relay: &RelayUrl,
    strategy: Option<&dyn Strategy>,
    timebase: Timebase,
) -> anyhow::Result<ViewerConfig> {
    Ok(ViewerConfig {
        target: target(relay, &arguments.trust, &arguments.token, &arguments.draft)?,
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

/// Requests `stop` after `time`.
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

/// Returns the text that the command prints at its end.
fn text(viewer: &Viewer, figures: &Figures, cut: usize) -> String {
    let mut text = summary(figures);
    if cut > 0 {
        text.push_str(&line("frames cut by the end", &cut));
    }
    if viewer.relays_left() > 0 {
        text.push_str(&line("relays left", &viewer.relays_left()));
    }
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

/// Returns the content of `--json`.
fn report(
    arguments: &PlayArguments,
    viewer: &Viewer,
    strategy: &dyn Strategy,
    (start_us, end_us): (i64, i64),
    figures: &Figures,
) -> Value {
    let plan = viewer.plan();
    let without_plan = || Some(strategy.name());
    let name = plan.map_or_else(without_plan, |plan| plan.strategy.as_deref());
    json!({
        "schema": SCHEMA,
        "player": "weir live play",
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

/// Version of the format of `--json`, which the browser player exports too (`vectors/live/report.json`). Every change of a
/// field raises it.
const SCHEMA: u32 = 3;

/// Returns the catalog's description of the played tracks.
fn tracks(plan: &Plan) -> Vec<Value> {
    let tracks = plan.video.iter().map(|track| {
        json!({ "name": track.name, "packaging": track.packaging().name(), "codec": track.codec })
    });
    tracks.collect()
}
