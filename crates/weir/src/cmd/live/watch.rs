//! `weir live watch`: serves the browser player, with a relay and a test picture unless another relay is named.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use serde_json::{Value, json};
use weir_live::packaging::Packaging;
use weir_live::{Origin, OriginConfig, PublishFlow};
use weir_moqt::name::Namespace;
use weir_moqt::token::Token;
use weir_net::{Stop, Waker};
use weir_quic::Congestion;

use super::{StrategyArguments, TokenArgument, namespace, relay_url};
use crate::live::{
    hosting::{host_origin, timebase},
    ingest_queue::IngestQueue,
    lab::wanted_congestion,
    player_page::serve_page,
};
use crate::numbers::address;
use crate::output::{print_line, print_out};
use crate::signals;
use crate::{
    harness::own_relay::ChildRelay,
    run::{DraftArguments, RelayUrl, TrustChoice, client_target, hash_of, token},
    urls::Redacted,
};

/// Watch a live stream in a browser
///
/// The command serves the player page, and prints a line of JSON with its address. Without --relay, the command starts a
/// relay and publishes a test picture with sound, which ffmpeg makes, or the stream of --input.
#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    /// Relay with a stream to watch, https://HOST:PORT[/PATH], instead of a relay of weir's own; several with commas between:
    /// the page uses the next one when it loses one
    #[arg(long, value_name = "URL")]
    relay: Option<String>,
    /// SHA-256 hash of the relay's certificate, 64 hexadecimal digits, for a certificate that browsers do not trust
    #[arg(long, value_name = "HASH", requires = "relay")]
    certificate_hash: Option<String>,
    #[command(flatten)]
    token: TokenArgument,
    #[command(flatten)]
    draft: DraftArguments,
    /// Namespace of the tracks, with / between its fields
    #[arg(long, value_name = "NAME", default_value = "live", value_parser = namespace_text)]
    namespace: String,
    /// Address of the player page
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8787", value_parser = address)]
    page: SocketAddr,
    /// Host name by which the page is reached, such as that of a proxy; IP addresses and localhost always work
    #[arg(long, value_name = "NAME")]
    page_host: Vec<String>,
    #[command(flatten)]
    delivery: StrategyArguments,
    /// Content of an object: cmaf (a fragment of the input) or loc (the coded frame alone)
    #[arg(long, value_name = "NAME", default_value = "cmaf", value_parser = packaging)]
    packaging: Packaging,
    /// Fragmented MP4 to publish instead of the test picture; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "relay")]
    input: Option<PathBuf>,
    /// Publish nothing: the page publishes a camera
    #[arg(long, conflicts_with_all = ["relay", "input", "target"])]
    no_source: bool,
    /// Address of the relay that this command starts; port 0: a free port
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:0",
        value_parser = address,
        conflicts_with = "relay"
    )]
    listen: SocketAddr,
}

pub(super) fn run(arguments: &WatchArguments) -> anyhow::Result<ExitCode> {
    if let Some(hash) = &arguments.certificate_hash {
        hash_of(hash).context("--certificate-hash")?;
    }
    let stop = signals::stop_on_signals()?;
    match &arguments.relay {
        Some(url) => {
            let relays = relay_url("--relay", url)?.for_browsers();
            let shown = json!({
                "relay": relays.iter().map(|one| Redacted(one).to_string()).collect::<Vec<_>>().join(","),
                "certificate_sha256": arguments.certificate_hash,
                "namespace": arguments.namespace,
                "strategy": arguments.delivery.name(&arguments.draft),
                "drafts": arguments.draft.protocols(),
            });
            let mut config = shown.clone();
            config["relay"] = relays.join(",").into();
            if let Some(given) = &arguments.token.token {
                config["token"] = text_of(&token(given)?)?.into();
            }
            announce(arguments, &config, &shown)?;
            while !stop.wait(LOOK) {}
            Ok(ExitCode::SUCCESS)
        }
        None => watch_own(arguments, &stop),
    }
}

/// Starts a relay, publishes the source to it, and serves the page.
fn watch_own(arguments: &WatchArguments, stop: &Stop) -> anyhow::Result<ExitCode> {
    let strategy = arguments.delivery.strategy(&arguments.draft)?;
    let congestion = wanted_congestion(&*strategy);
    // First, since it fails if ffmpeg is missing.
    let source = if arguments.no_source {
        None
    } else {
        Some(Source::open(arguments.input.as_deref())?)
    };
    let mut relay = ChildRelay::of_streams(&arguments.listen.to_string(), congestion)?;
    let address = relay.reachable();
    let config = json!({
        "relay": format!("https://{address}/"),
        "certificate_sha256": relay.ready["certificate_sha256"],
        "namespace": arguments.namespace,
        "strategy": arguments.delivery.name(&arguments.draft),
        "drafts": arguments.draft.protocols(),
    });
    announce(arguments, &config, &config)?;
    let publishing = source.map(|source| publish(arguments, source, address, congestion, stop));
    let mut publishing = publishing.transpose()?;
    let failure = loop {
        if stop.wait(LOOK) {
            break None;
        }
        if let Some(reason) = relay.has_died() {
            break Some(anyhow!(reason));
        }
        if publishing
            .as_ref()
            .is_some_and(|one| one.thread.is_finished())
            && let Some(ended) = publishing.take()
        {
            match ended.end() {
                Ok(()) => print_line("weir: the stream has ended; the page stays until Ctrl-C"),
                Err(error) => break Some(error),
            }
        }
    };
    stop.request();
    let ended = publishing.map(Publishing::end);
    relay.stop();
    match (failure, ended) {
        (Some(error), _) | (None, Some(Err(error))) => Err(error),
        (None, Some(Ok(())) | None) => Ok(ExitCode::SUCCESS),
    }
}

/// Serves the page with `config`, and prints its address with `shown`, the part of `config` that is not secret.
fn announce(arguments: &WatchArguments, config: &Value, shown: &Value) -> anyhow::Result<()> {
    let address = serve_page(arguments.page, arguments.page_host.clone(), config, None)
        .with_context(|| format!("--page: cannot serve the page at {}", arguments.page))?;
    // Browsers allow WebTransport on localhost without https.
    let page = if address.ip().is_loopback() {
        format!("http://localhost:{}/", address.port())
    } else {
        format!("http://{address}/")
    };
    print_line(&format!("open {page} in a browser"));
    let mut line = json!({ "page": page });
    if let (Some(line), Some(shown)) = (line.as_object_mut(), shown.as_object()) {
        line.extend(shown.clone());
    }
    print_out(&format!("{line}\n"))
}

/// The stream to publish, and the process that makes it.
struct Source {
    input: Box<dyn Read + Send>,
    is_paced: bool,
    encoder: Option<Encoder>,
}

impl Source {
    fn open(input: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = input else {
            return Self::test_picture();
        };
        let is_standard = path == Path::new("-");
        let input: Box<dyn Read + Send> = if is_standard {
            Box::new(std::io::stdin())
        } else {
            let file = File::open(path);
            Box::new(
                file.with_context(|| format!("--input: {}: cannot be opened", path.display()))?,
            )
        };
        Ok(Self {
            input,
            is_paced: !is_standard,
            encoder: None,
        })
    }

    /// Starts ffmpeg, which encodes a test picture with sound.
    fn test_picture() -> anyhow::Result<Self> {
        let mut command = Command::new("ffmpeg");
        command
            .args(TEST_PICTURE)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        weir_net::end_with_parent(&mut command);
        let mut child = command
            .spawn()
            .context("ffmpeg cannot be started, which makes the test picture. Install ffmpeg, or name a stream with --input or --relay")?;
        let out = child.stdout.take();
        let encoder = Encoder(child);
        let out = out.context("ffmpeg has no standard output")?;
        Ok(Self {
            input: Box::new(out),
            is_paced: false,
            encoder: Some(encoder),
        })
    }
}

/// An encoder's process, which is killed on drop.
struct Encoder(Child);

impl Drop for Encoder {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A stream that is being published.
struct Publishing {
    thread: JoinHandle<anyhow::Result<()>>,
    encoder: Option<Encoder>,
}

impl Publishing {
    /// Stops the encoder, and waits for the publisher's thread.
    fn end(self) -> anyhow::Result<()> {
        drop(self.encoder);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the thread that publishes panicked"))?
    }
}

/// Publishes `source` on a new thread.
fn publish(
    arguments: &WatchArguments,
    source: Source,
    relay: SocketAddr,
    congestion: Congestion,
    stop: &Stop,
) -> anyhow::Result<Publishing> {
    let Source {
        input,
        is_paced,
        encoder,
    } = source;
    let waker = Waker::new().context("cannot make an event descriptor")?;
    let queue = IngestQueue::new(waker.clone());
    let url = RelayUrl::of_child(relay);
    let target = client_target(&url, &TrustChoice::Anyone, &arguments.draft.protocols())?;
    let namespace = named(&arguments.namespace)?;
    let (delivery, draft) = (arguments.delivery.clone(), arguments.draft.clone());
    let packaging = arguments.packaging;
    let reader = queue.fill(input, is_paced, stop.clone())?;
    let stop = stop.clone();
    let work = move || {
        let mut origin = Origin::new(OriginConfig {
            target,
            namespace,
            flow: PublishFlow::Publish,
            strategy: delivery.strategy(&draft)?,
            fits_relay: false,
            packaging,
            timebase: timebase(),
            source: Box::new(queue.clone()),
        });
        let hosted = host_origin(&mut origin, relay, congestion, waker, &stop);
        queue.close();
        hosted?;
        if reader.is_finished() {
            let read = reader.join();
            let read = read.map_err(|_| anyhow!("the thread that reads the stream panicked"))?;
            read.context("the stream")?;
        }
        match origin.failure() {
            Some(failure) if !stop.is_requested() => bail!("{relay}: {failure}"),
            Some(_) | None => Ok(()),
        }
    };
    let thread = std::thread::Builder::new()
        .name("weir-publish".to_owned())
        .spawn(work)
        .context("cannot start the thread that publishes")?;
    Ok(Publishing { thread, encoder })
}

/// Returns a token for the page, whose configuration is text.
fn text_of(token: &Token) -> anyhow::Result<String> {
    let Token::UseValue { value, .. } = token else {
        bail!("--token: expected a token with a value");
    };
    let text = std::str::from_utf8(value).context("--token: expected text (UTF-8)")?;
    Ok(text.to_owned())
}

fn namespace_text(text: &str) -> Result<String, String> {
    namespace(text).map(|_| text.to_owned())
}

fn named(text: &str) -> anyhow::Result<Namespace> {
    namespace(text).map_err(|reason| anyhow!("--namespace: {reason}"))
}

fn packaging(name: &str) -> Result<Packaging, String> {
    Packaging::by_name(name).ok_or_else(|| "expected cmaf or loc".to_owned())
}

/// Time between two checks of the children.
const LOOK: Duration = Duration::from_millis(200);

/// Arguments of ffmpeg: one second per group of pictures, three B-frames in a row, one frame per fragment, and a beep each
/// second.
const TEST_PICTURE: [&str; 40] = [
    "-hide_banner",
    "-loglevel",
    "error",
    "-re",
    "-f",
    "lavfi",
    "-i",
    "testsrc2=size=1280x720:rate=24",
    "-re",
    "-f",
    "lavfi",
    "-i",
    "sine=frequency=220:beep_factor=4:sample_rate=48000",
    "-pix_fmt",
    "yuv420p",
    "-c:v",
    "libx264",
    "-preset",
    "veryfast",
    "-b:v",
    "1500k",
    "-g",
    "24",
    "-bf",
    "3",
    "-sc_threshold",
    "0",
    "-x264-params",
    "b-pyramid=none:rc-lookahead=8:sync-lookahead=0",
    "-c:a",
    "aac",
    "-b:a",
    "96k",
    "-ac",
    "2",
    "-f",
    "mp4",
    "-movflags",
    "cmaf+frag_every_frame+empty_moov+default_base_moof",
    "pipe:1",
];
