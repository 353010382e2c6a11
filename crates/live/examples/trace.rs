//! Writes the frame trace of a fragmented MP4 stream: `cargo run -p weir-live --example trace < clip.mp4`.

use std::error::Error;
use std::io::{Read as _, Write as _};

use weir_live::{Ingest, Item, source::TraceFrame};

fn main() -> Result<(), Box<dyn Error>> {
    let mut stream = Vec::new();
    std::io::stdin().read_to_end(&mut stream)?;
    let mut ingest = Ingest::new();
    ingest.push(&stream);
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "# kind, disposable, bytes, decode, presentation and duration in microseconds"
    )?;
    while let Some(item) = ingest.poll()? {
        if let Item::Frame(frame) = item {
            writeln!(out, "{}", TraceFrame::from(&frame))?;
        }
    }
    Ok(())
}
