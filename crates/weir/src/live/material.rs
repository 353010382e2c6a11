//! What a lab run streams: a committed trace, the frames of a file, or what ffmpeg encodes meanwhile.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read, Seek as _},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};
use weir_live::{
    Ingest, Item,
    source::{FrameTrace, TRACES, TraceFrame},
};

use crate::file_kind::{Kind, explained};

/// The frames of a run.
#[derive(Clone, Debug)]
pub(crate) enum Material {
    /// Kinds, sizes and times of frames, with zeros in them.
    Trace {
        /// Name of the committed trace, or of the file.
        name: String,
        trace: FrameTrace,
    },
    /// Frames that ffmpeg encodes during the run with the options of the trace `life`; its generator draws them from the seed.
    Encoder,
}

impl Material {
    /// Returns the material of this name: a committed trace, `ffmpeg`, or a file with H.264 video or a trace.
    ///
    /// # Errors
    /// The file cannot be read, or holds neither; the error names it.
    pub(crate) fn find(name: &str) -> anyhow::Result<Self> {
        if name == ENCODER {
            return Ok(Self::Encoder);
        }
        let committed = TRACES.iter().find(|(known, _)| *known == name);
        let trace = match committed {
            Some((_, text)) => {
                FrameTrace::parse(text).context("the committed trace cannot be read")?
            }
            None => load(Path::new(name)).with_context(|| format!("--source {name}"))?,
        };
        Ok(Self::Trace {
            name: name.to_owned(),
            trace,
        })
    }

    /// Returns its name in tables; `None` for the usual one.
    pub(crate) fn label(&self) -> Option<&str> {
        match self {
            Self::Trace { name, .. } => {
                let file = Path::new(name).file_name().and_then(|name| name.to_str());
                Some(file.unwrap_or(name)).filter(|name| *name != USUAL)
            }
            Self::Encoder => None,
        }
    }
}

/// Returns the frames of a file.
fn load(path: &Path) -> anyhow::Result<FrameTrace> {
    let known = TRACES.map(|(name, _)| name).join(", ");
    let file = File::open(path)
        .with_context(|| format!("neither a file nor one of {known}, {ENCODER}"))?;
    let mut reader = BufReader::new(file);
    let is_text = reader
        .fill_buf()?
        .first()
        .is_some_and(|first| b"#I".contains(first));
    if is_text {
        let mut text = String::new();
        reader.take(TRACE_BYTES_MAX).read_to_string(&mut text)?;
        let trace = FrameTrace::parse(&text);
        return trace.map_err(|error| explained(path, Kind::FrameTrace, error.into()));
    }
    let fragmented = match frames_of(&mut reader) {
        Ok(frames) => return Ok(FrameTrace::of(frames)?),
        Err(error) => error,
    };
    reader.rewind()?;
    // Other files than those with a frame in each fragment: ffmpeg repacks them, without another encoding.
    let repacked = repack(path)
        .with_context(|| format!("not MP4 with a frame in each fragment ({fragmented:#})"));
    let trace = repacked.and_then(|frames| Ok(FrameTrace::of(frames)?));
    trace.map_err(|error| explained(path, Kind::Mp4, error))
}

/// Returns the video frames of fragmented MP4.
fn frames_of(stream: &mut impl Read) -> anyhow::Result<Vec<TraceFrame>> {
    let (mut ingest, mut frames) = (Ingest::new(), Vec::new());
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = stream.read(&mut piece).context("cannot be read")?;
        if read == 0 {
            ingest.finish()?;
            return Ok(frames);
        }
        ingest.push(&piece[..read]);
        while let Some(item) = ingest.poll()? {
            if let Item::Frame(frame) = item {
                frames.push(TraceFrame::from(&frame));
                ensure!(
                    frames.len() <= FRAMES_MAX,
                    "expected at most {FRAMES_MAX} frames"
                );
            }
        }
    }
}

/// Has ffmpeg repack the video of a file, and returns its frames.
fn repack(path: &Path) -> anyhow::Result<Vec<TraceFrame>> {
    let mut child = Command::new("ffmpeg")
        .args(["-nostdin", "-hide_banner", "-loglevel", "error", "-i"])
        .arg(path)
        .args(["-map", "0:v:0", "-c", "copy", "-f", "mp4"])
        .args(["-movflags", "cmaf+frag_every_frame+empty_moov", "pipe:1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("ffmpeg cannot be started to repack it: install it, or put it on the PATH")?;
    let mut output = child.stdout.take().context("ffmpeg has no output")?;
    let frames = frames_of(&mut output);
    drop(output);
    let ended = child.wait_with_output().context("ffmpeg")?;
    if !ended.status.success() && frames.as_ref().is_ok_and(Vec::is_empty) || frames.is_err() {
        let messages = String::from_utf8_lossy(&ended.stderr);
        let last = messages
            .lines()
            .next_back()
            .unwrap_or("its video is not H.264");
        let error = frames
            .err()
            .map_or_else(String::new, |error| format!(" ({error:#})"));
        bail!("ffmpeg cannot repack it: {last}{error}");
    }
    frames
}

/// The trace that runs have without --source.
const USUAL: &str = "life";
/// The name of [`Material::Encoder`].
const ENCODER: &str = "ffmpeg";
/// About nine hours at 30 frames per second.
const FRAMES_MAX: usize = 1_000_000;
/// A trace of that many frames.
const TRACE_BYTES_MAX: u64 = 64 << 20;
