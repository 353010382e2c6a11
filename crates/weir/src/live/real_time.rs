//! A lab run in real time, with real sockets: an origin, weir's relay, an emulated link and a player.

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use weir_client::target::Target;
use weir_live::packaging::Packaging;
use weir_live::playout::BufferChoice;
use weir_live::source::Source;
use weir_live::strategy::Strategy;
use weir_live::{
    Choice, Join, Origin, OriginConfig, OriginCounters, PublishFlow, Timebase, Viewer, ViewerConfig,
};
use weir_moqt::name::Namespace;
use weir_net::{Shaper, ShaperConfig, Stop, Waker, clock};
use weir_quic::Congestion;
use weir_report::lab::Figures;

use super::hosting;
use super::ingest_queue::{IngestQueue, ReadError};
use super::lab::{JOIN, Run, Task, trace_source};
use super::material::Material;
use crate::{
    harness::own_relay::ChildRelay,
    run::{RelayUrl, TrustChoice, client_target, protocols},
};

/// Makes a run in real time.
pub(crate) fn run(task: &Task) -> anyhow::Result<Run> {
    let profile = &task.profile;
    let (strategy, congestion) = task.delivery()?;
    let (relay, url) = relay(task)?;
    let target = client_target(&url, &TrustChoice::Anyone, &protocols())?;
    let stop = Stop::new().context("cannot create an eventfd")?;
    let at = clock::now();
    let (behind_link, shaper) = open_link(task, target.remote, Some(at), 1, &stop)?;

    let timebase = Timebase { at, us: 0 };
    let namespace = namespace()?;
    let viewer = Viewer::new(ViewerConfig {
        target: Target {
            remote: behind_link,
            ..target.clone()
        },
        namespace: namespace.clone(),
        // Other relays may drop the tags of frames, and the strategy may depend on the relay. A trace has no catalog.
        choice: match (&relay, &task.material) {
            (None, Material::Encoder) => Choice::Catalog,
            (Some(_), _) | (None, Material::Trace { .. }) => Choice::of(&*strategy),
        },
        join: Join::Next,
        buffer: BufferChoice::Strategy,
        rendezvous_timeout: JOIN,
        reconnect_timeout: Duration::ZERO,
        timebase,
    });
    let waker = Waker::new().context("cannot create an eventfd")?;
    let (mut encoder, frames) = frames(task, at, &waker, &stop)?;
    let origin = RunningOrigin {
        target,
        namespace,
        flow: if relay.is_some() {
            PublishFlow::Publish
        } else {
            PublishFlow::Namespace
        },
        strategy,
        fits_relay: task.target.is_none(),
        source: frames,
        timebase,
        congestion,
        waker,
    };
    let origin = origin.start(&stop)?;
    stop.wait((at + JOIN).saturating_duration_since(clock::now()));
    let asked = stop.clone();
    let viewer = start("weir-viewer", move || {
        let mut viewer = viewer;
        hosting::host_viewer(&mut viewer, behind_link, &asked)?;
        anyhow::Ok(viewer)
    })?;
    let encoded = wait(at + profile.duration, encoder.as_mut(), &stop);
    stop.request();
    drop(encoder);
    let viewer = join(viewer)??;
    let (counters, failure) = join(origin)??;
    join(shaper)?.context("the emulated link failed")?;
    if let Some(relay) = relay {
        relay.stop();
    }
    encoded?;
    if let Some(failure) = failure.as_deref().or_else(|| viewer.failure()) {
        bail!("the run failed: {failure}");
    }
    run_of(&viewer, counters.frames, task)
}

/// Returns the relay of a run, with its URL. A relay that runs already has no process here.
fn relay(task: &Task) -> anyhow::Result<(Option<ChildRelay>, RelayUrl)> {
    if let Some(running) = &task.relay {
        return Ok((None, running.url.clone()));
    }
    let relay = ChildRelay::of_streams("127.0.0.1:0", task.congestion)?;
    let url = RelayUrl::of_child(relay.address);
    Ok((Some(relay), url))
}

/// The source of the frames of a run.
type Frames = Box<dyn Source + Send>;

/// Returns the source of a run's frames, and the encoder that makes them, if they are not a trace.
fn frames(
    task: &Task,
    at: Instant,
    waker: &Waker,
    stop: &Stop,
) -> anyhow::Result<(Option<Encoder>, Frames)> {
    let (profile, seed) = (&task.profile, task.seed);
    match &task.material {
        Material::Trace { trace, .. } => {
            let source = trace_source(profile, trace, at, seed)?;
            Ok((None, Box::new(source)))
        }
        Material::Encoder => {
            let (encoder, frames) = encode(profile.duration, seed, waker, stop)?;
            Ok((Some(encoder), frames))
        }
    }
}

/// Starts an encoder. Returns it with the source of its frames.
fn encode(
    duration: Duration,
    seed: u64,
    waker: &Waker,
    stop: &Stop,
) -> anyhow::Result<(Encoder, Frames)> {
    let queue = IngestQueue::new(waker.clone());
    let mut encoder = Encoder::start(duration, seed)?;
    encoder.feed(&queue, stop)?;
    Ok((encoder, Box::new(queue)))
}

/// Waits for the end of a run. Returns an error as soon as the encoder fails.
fn wait(end: Instant, mut encoder: Option<&mut Encoder>, stop: &Stop) -> anyhow::Result<()> {
    while clock::now() < end {
        let left = end.saturating_duration_since(clock::now());
        stop.wait(left.min(CHECK_INTERVAL));
        encoder.as_mut().map_or(Ok(()), |encoder| encoder.check())?;
    }
    Ok(())
}

/// Returns the result of a run in which the origin published so many frames.
fn run_of(viewer: &Viewer, frames: u64, task: &Task) -> anyhow::Result<Run> {
    let microseconds = |time: Duration| i64::try_from(time.as_micros());
    let (begin, end) = (microseconds(JOIN)?, microseconds(task.profile.duration)?);
    let mut records = viewer.records().to_vec();
    // Frames shown after the end of the run do not count.
    for record in &mut records {
        record.shown_us = record.shown_us.filter(|shown| *shown <= end);
    }
    let figures = Figures::judged(&records, frames, (begin, end), task.thresholds);
    Ok(Run { figures, records })
}

/// The thread of an origin. Its result holds the counters, and the failure if there is one.
type OriginThread = JoinHandle<anyhow::Result<(OriginCounters, Option<String>)>>;

/// The configuration of an origin that runs on a thread of its own.
pub(super) struct RunningOrigin {
    pub(super) target: Target,
    pub(super) namespace: Namespace,
    /// How the tracks reach the relay. Every relay takes PUBLISH_NAMESPACE, some refuse PUBLISH.
    pub(super) flow: PublishFlow,
    pub(super) strategy: Box<dyn Strategy>,
    /// As in [`OriginConfig`].
    pub(super) fits_relay: bool,
    pub(super) source: Box<dyn Source + Send>,
    pub(super) timebase: Timebase,
    pub(super) congestion: Congestion,
    /// Wakes the host when the source has an item.
    pub(super) waker: Waker,
}

impl RunningOrigin {
    /// Publishes on a thread of its own, until `stop` is requested.
    pub(super) fn start(self, stop: &Stop) -> anyhow::Result<OriginThread> {
        let asked = stop.clone();
        start("weir-origin", move || {
            let address = self.target.remote;
            let mut origin = Origin::new(OriginConfig {
                target: self.target,
                namespace: self.namespace,
                flow: self.flow,
                strategy: self.strategy,
                fits_relay: self.fits_relay,
                packaging: Packaging::Cmaf,
                timebase: self.timebase,
                source: self.source,
            });
            hosting::host_origin(&mut origin, address, self.congestion, self.waker, &asked)?;
            anyhow::Ok((origin.counters(), origin.failure().map(str::to_owned)))
        })
    }
}

/// Opens the emulated link of a run to `target`, on a thread of its own, for at most `clients_max` clients. Returns the
/// address on which the link listens. The network profile begins at `start`, or with the first packet.
pub(super) fn open_link(
    task: &Task,
    target: SocketAddr,
    start: Option<Instant>,
    clients_max: usize,
    stop: &Stop,
) -> anyhow::Result<(SocketAddr, JoinHandle<io::Result<()>>)> {
    let link = task.conditions.link()?;
    let mut shaper = Shaper::bind(ShaperConfig {
        listen: "127.0.0.1:0".parse()?,
        target,
        up: link.clone(),
        down: link,
        steps: task.profile.steps.clone(),
        start,
        seed: task.seed,
        clients_max,
    })
    .context("cannot bind the emulated link")?;
    let address = shaper.local_address()?;
    let asked = stop.clone();
    let thread = self::start("weir-link", move || shaper.run(&asked).map(drop))?;
    Ok((address, thread))
}

/// A running ffmpeg. Dropping it ends the process.
pub(super) struct Encoder {
    child: Child,
    /// Reads ffmpeg's error output.
    messages: Option<JoinHandle<String>>,
    /// Reads the encoded stream.
    reader: Option<JoinHandle<Result<(), ReadError>>>,
}

impl Encoder {
    /// Starts to read the encoded stream into `queue`. Works once.
    pub(super) fn feed(&mut self, queue: &IngestQueue, stop: &Stop) -> anyhow::Result<()> {
        let output = self
            .child
            .stdout
            .take()
            .context("the output of ffmpeg is read already")?;
        self.reader = Some(queue.fill(output, false, stop.clone())?);
        Ok(())
    }

    /// Returns an error if ffmpeg has failed, with ffmpeg's messages, or if its stream cannot be read.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        let ended = self
            .child
            .try_wait()
            .context("the state of ffmpeg cannot be read")?;
        if let Some(status) = ended.filter(|status| !status.success()) {
            let messages = self.messages.take().map(join).transpose()?;
            let messages = messages.unwrap_or_default();
            bail!(
                "ffmpeg failed during the run ({status}): {}",
                messages.trim()
            );
        }
        match self.reader.take_if(|reader| reader.is_finished()) {
            Some(reader) => join(reader)?.context("the stream of ffmpeg"),
            None => Ok(()),
        }
    }

    /// Starts ffmpeg with the generator and options of the trace `life`, and with `seed`.
    pub(super) fn start(duration: Duration, seed: u64) -> anyhow::Result<Self> {
        let graph = format!(
            "life=s=320x180:r=24:mold=10:ratio=0.1:seed={seed}:death_color=#C83232:life_color=#00ff00,scale=1280:720"
        );
        let seconds = duration.as_secs().to_string();
        let mut child = Command::new("ffmpeg")
            .args(["-hide_banner", "-loglevel", "error", "-re", "-f", "lavfi"])
            .args(["-i", &graph, "-t", &seconds, "-an", "-pix_fmt", "yuv420p"])
            .args(["-c:v", "libx264", "-b:v", "700k", "-bufsize", "200K"])
            .args(["-g:v", "15", "-keyint_min:v", "15", "-sc_threshold:v", "0"])
            .args(["-bf", "3", "-x264-params", "b-pyramid=none", "-f", "mp4"])
            .args([
                "-movflags",
                "cmaf+frag_every_frame+empty_moov+default_base_moof",
            ])
            .arg("pipe:1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start ffmpeg: install it, or put it on the PATH")?;
        let errors = child.stderr.take().context("ffmpeg has no error output")?;
        let messages = start("weir-encoder", move || {
            let (mut messages, mut errors) = (Vec::new(), errors);
            // The rest is read and discarded, so that ffmpeg is not blocked.
            let kept = errors
                .by_ref()
                .take(MESSAGE_BYTES_MAX)
                .read_to_end(&mut messages);
            drop(kept.and_then(|_| io::copy(&mut errors, &mut io::sink())));
            String::from_utf8_lossy(&messages).into_owned()
        })?;
        Ok(Self {
            child,
            messages: Some(messages),
            reader: None,
        })
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns a namespace that no other run uses: a relay that runs already may still have the streams of earlier runs.
fn namespace() -> anyhow::Result<Namespace> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let begun = clock::since_epoch().as_micros();
    Ok(Namespace::new([NAMESPACE, &format!("{begun:x}-{run}")])?)
}

/// The namespace of a stream, or its first field.
pub(super) const NAMESPACE: &str = "live";
/// Interval at which the encoder is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Most bytes of ffmpeg's messages that are kept.
const MESSAGE_BYTES_MAX: u64 = 16 << 10;

pub(super) fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<JoinHandle<T>> {
    let thread = Builder::new().name(name.to_owned()).spawn(work);
    thread.with_context(|| format!("cannot start the thread {name}"))
}

pub(super) fn join<T>(thread: JoinHandle<T>) -> anyhow::Result<T> {
    let name = thread.thread().name().unwrap_or_default().to_owned();
    thread
        .join()
        .map_err(|_| anyhow!("the thread {name} panicked"))
}
