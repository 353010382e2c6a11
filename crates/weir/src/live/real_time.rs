//! One run in real time: an origin, our relay, a link that is too slow and a player, with real sockets.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use weir_live::figures::Figures;
use weir_live::packaging::Packaging;
use weir_live::playout::BufferChoice;
use weir_live::source::Source;
use weir_live::{Choice, Join, Origin, OriginConfig, PublishFlow, Timebase, Viewer, ViewerConfig};
use weir_moqt::name::Namespace;
use weir_net::{Bell, Shaper, ShaperConfig, Stop, clock};
use weir_quic::Congestion;

use super::hosting;
use super::ingest_queue::{Inbox, ReadError};
use super::lab::{JOIN, Run, named_strategy, trace_source, wanted_congestion};
use super::link_conditions::Conditions;
use super::network_profile::NetworkProfile;
use crate::run::{ChildRelay, RelayUrl, TrustChoice, client_target};

/// Where the frames of a run in real time come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SourceChoice {
    /// The committed trace of a real encode: kinds, sizes and times of its frames, with zeros in them
    Trace,
    /// ffmpeg, which encodes what its generator `life` makes of the seed, with the options of the trace
    Ffmpeg,
}

/// Streams by a strategy over a profile.
pub(crate) fn run(
    strategy: &str,
    profile: &NetworkProfile,
    conditions: &Conditions,
    congestion: Option<Congestion>,
    source: SourceChoice,
    seed: u64,
) -> anyhow::Result<Run> {
    let strategy = named_strategy(strategy)?;
    let congestion = congestion.unwrap_or_else(|| wanted_congestion(&*strategy));
    let relay = ChildRelay::of_streams("127.0.0.1:0", congestion)?;
    let stop = Stop::new().context("cannot make an event descriptor")?;
    let link = conditions.link()?;
    let at = clock::now();
    let mut shaper = Shaper::bind(ShaperConfig {
        listen: "127.0.0.1:0".parse()?,
        target: relay.address,
        up: link.clone(),
        down: link,
        steps: profile.steps.clone(),
        start: Some(at),
        seed,
        clients_max: 1,
    })
    .context("cannot bind the link")?;
    let behind_link = shaper.local_address()?;
    let asked = stop.clone();
    let shaper = start("weir-link", move || shaper.run(&asked).map(drop))?;

    let timebase = Timebase { at, us: 0 };
    let namespace = Namespace::new(["live"])?;
    let target = |address| client_target(&RelayUrl::of_child(address), &TrustChoice::Anyone);
    let tracks = strategy.tracks().iter().map(|terms| terms.name.to_owned());
    let viewer = Viewer::new(ViewerConfig {
        target: target(behind_link)?,
        namespace: namespace.clone(),
        choice: Choice::Known {
            tracks: tracks.collect(),
            settings: strategy.player(),
        },
        join: Join::Next,
        buffer: BufferChoice::Strategy,
        patience: JOIN,
        patience_again: Duration::ZERO,
        timebase,
    });
    let bell = Bell::new().context("cannot make an event descriptor")?;
    let mut encoder = None;
    let frames: Box<dyn Source + Send> = match source {
        SourceChoice::Trace => Box::new(trace_source(profile, at, seed)?),
        SourceChoice::Ffmpeg => {
            let inbox = Inbox::new(bell.clone());
            let running = encoder.insert(Encoder::start(profile.duration, seed)?);
            running.feed(&inbox, &stop)?;
            Box::new(inbox)
        }
    };
    let origin_target = target(relay.address)?;
    let (address, asked) = (relay.address, stop.clone());
    let origin = start("weir-origin", move || {
        let mut origin = Origin::new(OriginConfig {
            target: origin_target,
            namespace,
            flow: PublishFlow::Publish,
            strategy,
            packaging: Packaging::Cmaf,
            timebase,
            source: frames,
        });
        hosting::host(&mut origin, address, congestion, Some(bell), &asked)?;
        anyhow::Ok((origin.counters(), origin.failure().map(str::to_owned)))
    })?;
    stop.wait((at + JOIN).saturating_duration_since(clock::now()));
    let asked = stop.clone();
    let viewer = start("weir-viewer", move || {
        let mut viewer = viewer;
        hosting::host(&mut viewer, behind_link, congestion, None, &asked)?;
        anyhow::Ok(viewer)
    })?;
    let mut encoded = Ok(());
    while encoded.is_ok() && clock::now() < at + profile.duration {
        let left = (at + profile.duration).saturating_duration_since(clock::now());
        stop.wait(left.min(LOOK));
        encoded = encoder.as_mut().map_or(Ok(()), Encoder::check);
    }
    stop.request();
    drop(encoder);
    let viewer = join(viewer)??;
    let (counters, failure) = join(origin)??;
    join(shaper)?.context("the link failed")?;
    relay.stop();
    encoded?;
    if let Some(failure) = failure.as_deref().or_else(|| viewer.failure()) {
        bail!("the run failed: {failure}");
    }
    let microseconds = |time: Duration| i64::try_from(time.as_micros());
    let (begin, end) = (microseconds(JOIN)?, microseconds(profile.duration)?);
    let mut records = viewer.records().to_vec();
    // What came while everybody took leave is not part of the run.
    for record in &mut records {
        record.shown_us = record.shown_us.filter(|shown| *shown <= end);
    }
    let figures = Figures::new(&records, counters.frames, begin, end);
    Ok(Run { figures, records })
}

/// ffmpeg at work; ended when dropped.
pub(super) struct Encoder {
    child: Child,
    /// What it says about errors.
    words: Option<JoinHandle<String>>,
    /// Reads what it encodes.
    reader: Option<JoinHandle<Result<(), ReadError>>>,
}

impl Encoder {
    /// Lets an inbox have what it encodes; once.
    pub(super) fn feed(&mut self, inbox: &Inbox, stop: &Stop) -> anyhow::Result<()> {
        let output = self.child.stdout.take().context("ffmpeg has no output")?;
        self.reader = Some(inbox.fill(output, false, stop.clone())?);
        Ok(())
    }

    /// Fails, with its words, if it has ended before all was encoded, or if that cannot be read.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        let ended = self.child.try_wait().context("ffmpeg is out of reach")?;
        if let Some(status) = ended.filter(|status| !status.success()) {
            let words = self.words.take().map(join).transpose()?;
            let words = words.unwrap_or_default();
            bail!(
                "ffmpeg ended in the middle of the run ({status}): {}",
                words.trim()
            );
        }
        match self.reader.take_if(|reader| reader.is_finished()) {
            Some(reader) => join(reader)?.context("what ffmpeg encodes"),
            None => Ok(()),
        }
    }

    /// Encodes what was the source of the committed trace, with another seed.
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
            .context("ffmpeg cannot be started")?;
        let errors = child.stderr.take().context("ffmpeg has no errors")?;
        let words = start("weir-encoder", move || {
            let (mut words, mut errors) = (Vec::new(), errors);
            // Of more than that the end is read, so that it does not wait, and forgotten.
            let kept = errors
                .by_ref()
                .take(WORDS_BYTES_MAX)
                .read_to_end(&mut words);
            drop(kept.and_then(|_| std::io::copy(&mut errors, &mut std::io::sink())));
            String::from_utf8_lossy(&words).into_owned()
        })?;
        Ok(Self {
            child,
            words: Some(words),
            reader: None,
        })
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // Fails only if it is gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// How often the encoder is looked after.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes of its words that are kept.
const WORDS_BYTES_MAX: u64 = 16 << 10;

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
