//! Archives of runs as files, compressed with gzip.

use std::{
    fs::File,
    io::{BufReader, BufWriter, Read as _, Write as _},
    path::Path,
};

use anyhow::{Context as _, bail};
use flate2::{Compression, bufread::MultiGzDecoder, write::GzEncoder};
use weir_report::relay::archive::Archive;

use crate::file_kind::{GZIP, Kind, explained};

/// Writes `archive` to `file`.
pub(super) fn write(file: &Path, archive: &Archive) -> anyhow::Result<()> {
    let out = File::create(file).map(BufWriter::new);
    let written = out.and_then(|out| {
        let mut out = GzEncoder::new(out, Compression::default());
        out.write_all(archive.to_text().as_bytes())?;
        out.finish()?.flush()
    });
    written.with_context(|| format!("{}: cannot be written", file.display()))
}

/// Reads an archive that [`write()`] wrote, also one that is unpacked.
///
/// # Errors
/// The file cannot be read, or is no archive; the error names what the file is, if that is known.
pub(super) fn read(file: &Path) -> anyhow::Result<Archive> {
    let archive = text(file)
        .and_then(|text| Archive::parse(&text).with_context(|| file.display().to_string()));
    archive.map_err(|error| explained(file, Kind::Archive, error))
}

/// Reads a JSON file of weir's, if `file` is one: a report, or the record of a search, a comparison or the lab.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read_record(file: &Path) -> anyhow::Result<Option<String>> {
    let text = text(file)?;
    let json = serde_json::from_str::<serde_json::Value>(&text);
    // The runs of the lab are a list.
    let is_record = json.is_ok_and(|json| {
        let one = json.get(0).unwrap_or(&json);
        RECORDS.iter().any(|key| one.get(key).is_some())
    });
    Ok(is_record.then_some(text))
}

/// Returns the text of a file, unpacked.
fn text(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let mut input = File::open(file)
        .map(BufReader::new)
        .with_context(|| format!("{name}: cannot be opened"))?;
    let mut head = Vec::new();
    input
        .by_ref()
        .take(GZIP.len() as u64)
        .read_to_end(&mut head)
        .with_context(|| format!("{name}: cannot be read"))?;
    let whole = head.as_slice().chain(input);
    let mut bytes = Vec::new();
    let limit = UNPACKED_BYTES_MAX + 1;
    let unpacked = if head == GZIP {
        let unpacked = MultiGzDecoder::new(BufReader::new(whole));
        unpacked.take(limit).read_to_end(&mut bytes)
    } else {
        whole.take(limit).read_to_end(&mut bytes)
    };
    unpacked.with_context(|| format!("{name}: cannot be unpacked after {} bytes", bytes.len()))?;
    if bytes.len() as u64 > UNPACKED_BYTES_MAX {
        bail!("{name}: has more than {UNPACKED_BYTES_MAX} bytes unpacked, and is no archive");
    }
    String::from_utf8(bytes)
        .with_context(|| format!("{name}: line 1: not an archive of weir bench"))
}

/// Keys that tell weir's JSON files: of searches and comparisons, reports, and the lab.
const RECORDS: [&str; 5] = ["find_max", "limits", "comparison", "run", "figures"];
/// Far above an archive of 50,000 subscribers on several tracks.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_archives_are_named() {
        let folder = std::env::temp_dir().join(format!("weir-archive-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let error = |name: &str, bytes: &[u8]| {
            let file = folder.join(name);
            std::fs::write(&file, bytes).unwrap();
            let error = format!("{:#}", read(&file).unwrap_err());
            assert!(error.contains(name), "{error}");
            error
        };
        assert!(error("empty", b"").ends_with("line 1: not an archive of weir bench"));
        assert!(error("bytes", b"\xff\r\n").contains("not an archive of weir bench"));
        let image = error("png", b"\x89PNG\r\n");
        assert!(image.ends_with("; this is an image"), "{image}");
        assert!(
            error("half", &[0x1f, 0x8b, 8, 0]).ends_with("this is a file that gzip compressed")
        );
        let search = br#"{"find_max": 1, "probes": []}"#;
        let search = error("search.json", search);
        assert!(
            search.contains("this is the record of a search"),
            "{search}"
        );
        let missing = format!("{:#}", read(&folder.join("none")).unwrap_err());
        assert!(missing.contains("none: cannot be opened"), "{missing}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
