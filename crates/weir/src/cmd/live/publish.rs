//! `weir live publish`: publishes a live stream from standard input or a file.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use clap::{ArgGroup, Args};
use serde_json::json;
use weir_client::target::Target;
use weir_live::packaging::Packaging;
use weir_live::strategy::Strategy;
use weir_live::{Origin, OriginConfig, PublishFlow};
use weir_moqt::name::Namespace;
use weir_net::{Stop, Waker};
use weir_quic::Congestion;

use super::{StrategyArguments, TokenArgument, TrustArguments, namespace, relay_url, target};
use crate::file_kind::{Kind, explained};
use crate::live::{
    connecting::Connecting,
    hosting::{host_origin, timebase},
    ingest_queue::IngestQueue,
    lab::wanted_congestion,
};
use crate::numbers::address;
use crate::output::{print_line, print_out};
use crate::signals;
use crate::{
    harness::own_relay::ChildRelay,
    run::{DraftArguments, RelayUrl, TrustChoice, client_target, options::Flow},
};

/// Publish a live stream from ffmpeg, as fragmented MP4
///
/// The input is H.264 with one frame per fragment; audio is forwarded unchanged. At the end a line of JSON says what was
/// sent. Exit code 2: the input is broken, the relay cannot be reached, or the session with it was lost.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("destination").required(true)))]
pub(crate) struct PublishArguments {
    /// Relay to publish to: moqt://HOST:PORT[/PATH] for raw QUIC, https://HOST:PORT[/PATH] for WebTransport; several with
    /// commas between: the publisher uses the next one when it loses one
    #[arg(group = "destination")]
    relay: Option<String>,
    /// Start a relay at this address and publish to it, instead of to RELAY
    #[arg(long, group = "destination", value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,
    /// File with the stream; - for standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    input: PathBuf,
    /// Send frames at the times of the stream, instead of as fast as they can be read: for files
    #[arg(long)]
    realtime: bool,
    #[command(flatten)]
    delivery: StrategyArguments,
    /// Content of an object: cmaf (a fragment of the input) or loc (the coded frame alone)
    #[arg(long, value_name = "NAME", default_value = "cmaf", value_parser = packaging)]
    packaging: Packaging,
    /// Namespace of the tracks, with / between its fields
    #[arg(long, value_name = "NAME", default_value = "live", value_parser = namespace)]
    namespace: Namespace,
    /// How the publisher offers its tracks; a relay without PUBLISH is offered the namespace in any case [default: that of
    /// --preset, or publish]
    #[arg(long, value_enum, value_name = "FLOW")]
    publish_flow: Option<Flow>,
    /// Congestion controller: cubic or delay [default: that of the strategy]
    #[arg(long, value_name = "NAME", value_parser = super::congestion)]
    congestion: Option<Congestion>,
    #[command(flatten)]
    trust: TrustArguments,
    #[command(flatten)]
    token: TokenArgument,
    #[command(flatten)]
    draft: DraftArguments,
}

pub(super) fn run(arguments: &PublishArguments) -> anyhow::Result<ExitCode> {
    let strategy = arguments.delivery.strategy(&arguments.draft)?;
    let congestion = arguments.congestion;
    let congestion = congestion.unwrap_or_else(|| wanted_congestion(&*strategy));
    let input = open(&arguments.input)?;
    let stop = signals::stop_on_signals()?;
    let own = arguments.listen.map(|address| address.to_string());
    let own = own.map(|address| ChildRelay::of_streams(&address, congestion));
    let own = own.transpose()?;
    if let Some(own) = &own {
        print_line(&own.ready.to_string());
    }
    let target = match (&own, &arguments.relay) {
        (Some(own), _) => {
            let url = RelayUrl::of_child(own.reachable());
            client_target(&url, &TrustChoice::Anyone, &arguments.draft.protocols())?
        }
        (None, Some(url)) => {
            let url = relay_url("RELAY", url)?;
            target(&url, &arguments.trust, &arguments.token, &arguments.draft)?
        }
        (None, None) => bail!(
            "RELAY is missing: expected moqt://HOST:PORT, https://HOST:PORT, or --listen ADDRESS"
        ),
    };
    let outcome = publish(arguments, strategy, congestion, target, input, &stop);
    if let Some(own) = own {
        own.stop();
    }
    outcome
}

fn publish(
    arguments: &PublishArguments,
    strategy: Box<dyn Strategy>,
    congestion: Congestion,
    target: Target,
    input: Box<dyn Read + Send>,
    stop: &Stop,
) -> anyhow::Result<ExitCode> {
    let waker = Waker::new().context("cannot make an event descriptor")?;
    let queue = IngestQueue::new(waker.clone());
    let remote = target.remote;
    let origin = Origin::new(OriginConfig {
        target,
        namespace: arguments.namespace.clone(),
        flow: match (arguments.publish_flow).or_else(|| arguments.draft.publish_flow()) {
            None | Some(Flow::Publish) => PublishFlow::Publish,
            Some(Flow::Namespace) => PublishFlow::Namespace,
        },
        strategy,
        fits_relay: arguments.delivery.is_left_open(&arguments.draft),
        packaging: arguments.packaging,
        timebase: timebase(),
        source: Box::new(queue.clone()),
    });
    let reader = queue.fill(input, arguments.realtime, stop.clone())?;
    let mut connecting = Connecting::new(origin, print_line);
    let hosted = host_origin(&mut connecting, remote, congestion, waker, stop);
    let origin = connecting.role;
    queue.close();
    hosted?;
    let counters = origin.counters();
    print_out(&format!(
        "{}\n",
        json!({ "published": {
            "frames": counters.frames,
            "frames_written": counters.frames_written,
            "audio_objects": counters.audio_objects,
            "streams_reset": counters.streams_reset,
            "streams_overflowed": counters.streams_overflowed,
            "fetches_answered": counters.fetches_answered,
            "early_over_limit": counters.early_over_limit,
            "relays_left": counters.relays_left,
            "frames_skipped": counters.frames_skipped,
        }})
    ))?;
    // A reader that still waits for input did not end the stream.
    if reader.is_finished() {
        let read = reader.join();
        let read = read.map_err(|_| anyhow!("the thread that reads the stream panicked"))?;
        read.with_context(|| name(&arguments.input))
            .map_err(|error| explained(&arguments.input, Kind::Mp4, error))?;
    }
    match origin.failure() {
        // The relay may have named another.
        Some(failure) => bail!("{}: {failure}", origin.client().remote()),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn open(path: &Path) -> anyhow::Result<Box<dyn Read + Send>> {
    if path == Path::new("-") {
        return Ok(Box::new(std::io::stdin()));
    }
    let file = File::open(path)
        .with_context(|| format!("--input: {}: cannot be opened", path.display()))?;
    Ok(Box::new(file))
}

fn name(path: &Path) -> String {
    if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

fn packaging(name: &str) -> Result<Packaging, String> {
    Packaging::by_name(name).ok_or_else(|| "expected cmaf or loc".to_owned())
}
