//! What a file is that was given in place of another one, for the error about it.

use std::{
    fmt,
    fs::File,
    io::{BufReader, Read as _},
    path::Path,
};

use flate2::bufread::MultiGzDecoder;
use serde_json::Value;

/// A kind of file, as far as its content tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tar,
    Zip,
    Gzip,
    Image,
    Program,
    Mp4,
    /// Video in another form than MP4, with its name.
    Video(&'static str),
    Html,
    Pem,
    Json,
    /// What `weir bench --archive` writes, packed or not.
    Archive,
    /// A report, as `--json` writes it.
    Report,
    /// The record of `weir bench find-max`.
    Search,
    /// A comparison, as `--json` writes it.
    Comparison,
    /// What `weir probe --json` writes.
    Probed,
    /// The input of `weir bench compare`.
    Relays,
    /// The input of `weir h3 compare`.
    Servers,
    Profile,
    /// The file of `weir relay --config`.
    Settings,
    /// A trace of a link in Mahimahi's form.
    LinkTrace,
    /// A trace of frames.
    FrameTrace,
    /// Rates of a link, each with a time.
    Rates,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tar => "a tar archive",
            Self::Zip => "a ZIP archive",
            Self::Gzip => "a file that gzip compressed",
            Self::Image => "an image",
            Self::Program => "a program",
            Self::Mp4 => "an MP4 file",
            Self::Video(name) => {
                return write!(
                    formatter,
                    "{name}; `ffmpeg -i FILE -c:v libx264 -g 24 -f mp4 -movflags cmaf+frag_every_frame+empty_moov clip.mp4` \
                     makes MP4 of it"
                );
            }
            Self::Html => "an HTML page",
            Self::Pem => "a certificate or key (PEM)",
            Self::Json => "a JSON file that is not weir's",
            Self::Archive => "the archive of a run (`weir bench --archive FILE` writes it, `weir bench report` reads it)",
            Self::Report => "the report of a run (--json)",
            Self::Search => "the record of a search (`weir bench find-max --json FILE`)",
            Self::Comparison => "the result of a comparison (--json)",
            Self::Probed => "a report of `weir probe --json FILE`",
            Self::Relays => "a file of relays for `weir bench compare`, such as profiles/relays.toml",
            Self::Servers => "a file of servers for `weir h3 compare`, such as profiles/contenders.toml",
            Self::Profile => "a benchmark profile (INI), such as profiles/audio.ini",
            Self::Settings => "a file of settings for `weir relay --config`",
            Self::LinkTrace => "a trace of a link in Mahimahi's form (--trace): a time in ms in each line",
            Self::FrameTrace => "a trace of frames (--source)",
            Self::Rates => "a network profile (--profiles): a rate and a time in each line, such as 1200k 30s",
        })
    }
}

/// Returns an error that names what the file is, if that is known and is not `expected`; otherwise `error`.
pub(crate) fn explained(file: &Path, expected: Kind, error: anyhow::Error) -> anyhow::Error {
    other(file, expected).map_or(error, anyhow::Error::msg)
}

/// Returns that the file is not `expected`, if it is of another known kind.
pub(crate) fn other(file: &Path, expected: Kind) -> Option<String> {
    let found = of_file(file).filter(|found| *found != expected)?;
    let name = file.display();
    Some(format!("{name}: expected {expected}; this is {found}"))
}

fn of_file(file: &Path) -> Option<Kind> {
    let mut bytes = Vec::new();
    let opened = File::open(file).ok()?;
    opened.take(LOOKED_AT_MAX).read_to_end(&mut bytes).ok()?;
    if !bytes.starts_with(GZIP) {
        return of(&bytes);
    }
    let mut unpacked = Vec::new();
    let packed = MultiGzDecoder::new(BufReader::new(&*bytes));
    // What is cut off at the end does not matter.
    let _cut = packed.take(LOOKED_AT_MAX).read_to_end(&mut unpacked);
    of(&unpacked)
        .filter(|kind| *kind == Kind::Archive)
        .or(Some(Kind::Gzip))
}

/// Returns the kind of a file with this content.
fn of(bytes: &[u8]) -> Option<Kind> {
    let begins = |magics: &[&[u8]]| magics.iter().any(|magic| bytes.starts_with(magic));
    let at = |place: usize, magics: &[&[u8]]| {
        let rest = bytes.get(place..).unwrap_or_default();
        magics.iter().any(|magic| rest.starts_with(magic))
    };
    if at(257, &[b"ustar"]) {
        Some(Kind::Tar)
    } else if begins(&[b"PK\x03\x04"]) {
        Some(Kind::Zip)
    } else if begins(&[b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"<svg"]) {
        Some(Kind::Image)
    } else if begins(&[b"\x7fELF", b"#!"]) {
        Some(Kind::Program)
    } else if at(4, &[b"ftyp", b"moov", b"moof", b"styp"]) {
        Some(Kind::Mp4)
    } else if begins(&[b"RIFF"]) && at(8, &[b"AVI "]) {
        Some(Kind::Video("an AVI file"))
    } else if begins(&[b"FLV\x01"]) {
        Some(Kind::Video("an FLV file"))
    } else if begins(&[b"\x1a\x45\xdf\xa3"]) {
        Some(Kind::Video("a Matroska or WebM file"))
    } else if begins(&[b"\x47"]) && at(188, &[b"\x47"]) {
        Some(Kind::Video("an MPEG transport stream"))
    } else if begins(&[b"\0\0\0\x01\x67", b"\0\0\0\x01\x09", b"\0\0\x01\x67"]) {
        Some(Kind::Video("H.264 without a container"))
    } else {
        of_text(std::str::from_utf8(bytes).ok()?)
    }
}

fn of_text(text: &str) -> Option<Kind> {
    let begin = text.trim_start();
    if ["<!DOCTYPE html", "<!doctype html", "<html"]
        .iter()
        .any(|tag| begin.starts_with(tag))
    {
        return Some(Kind::Html);
    }
    if begin.starts_with("-----BEGIN ") {
        return Some(Kind::Pem);
    }
    if begin.starts_with("{\"weir_archive\"") {
        return Some(Kind::Archive);
    }
    if begin.starts_with(['{', '['])
        && let Ok(json) = serde_json::from_str(text)
    {
        return Some(of_json(&json));
    }
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let has_line = |known: &[&str]| lines().any(|line| known.contains(&line));
    let has_key = |known: &[&str]| {
        let mut keys = lines().filter_map(|line| Some(line.split_once('=')?.0.trim()));
        keys.any(|key| known.contains(&key))
    };
    if has_line(&["[[relay]]"]) {
        return Some(Kind::Relays);
    }
    if has_line(&["[[server]]"]) {
        return Some(Kind::Servers);
    }
    if has_line(&["[tls]", "[admin]", "[drain]"]) {
        return Some(Kind::Settings);
    }
    if has_key(&["time_interval", "objects_per_group", "object_size"]) {
        return Some(Kind::Profile);
    }
    let first = lines().find(|line| !line.starts_with('#'))?;
    let words: Vec<&str> = first.split_whitespace().collect();
    match &words[..] {
        [time] if time.parse::<u64>().is_ok() => Some(Kind::LinkTrace),
        ["I", _, _, _, _, _] => Some(Kind::FrameTrace),
        [rate, lasts] => {
            let is_one = crate::numbers::rate(rate).is_ok() && crate::time::time(lasts).is_ok();
            is_one.then_some(Kind::Rates)
        }
        _ => None,
    }
}

fn of_json(json: &Value) -> Kind {
    // The runs of the lab are a list.
    let one = json.get(0).unwrap_or(json);
    let has = |key: &str| one.get(key).is_some();
    if has("weir_archive") {
        Kind::Archive
    } else if has("find_max") {
        Kind::Search
    } else if has("verdict") && has("run") || has("figures") {
        Kind::Report
    } else if ["comparison", "limits", "entries", "scenarios", "searches"]
        .iter()
        .any(|key| has(key))
    {
        Kind::Comparison
    } else if has("cases") {
        Kind::Probed
    } else {
        Kind::Json
    }
}

/// First bytes of a file that gzip compressed (RFC 1952 §2.3.1).
pub(crate) const GZIP: &[u8] = &[0x1f, 0x8b];
/// As much of a file as is looked at: a report of many subscribers.
const LOOKED_AT_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    /// A tar archive with one empty file.
    fn tar() -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        bytes[..5].copy_from_slice(b"a.txt");
        bytes[257..262].copy_from_slice(b"ustar");
        bytes
    }

    #[test]
    fn files_are_told_by_their_content() {
        let life = weir_live::source::TRACES[0].1;
        let tar = tar();
        let known: [(&[u8], Option<Kind>); 22] = [
            (&tar, Some(Kind::Tar)),
            (b"PK\x03\x04rest", Some(Kind::Zip)),
            (b"\0\0\0\x18ftypiso6", Some(Kind::Mp4)),
            (b"RIFF\0\0\0\0AVI LIST", Some(Kind::Video("an AVI file"))),
            (b"RIFF\0\0\0\0WAVE", None),
            (
                b"\0\0\0\x01\x67\x64",
                Some(Kind::Video("H.264 without a container")),
            ),
            (b"<!doctype html><title>a", Some(Kind::Html)),
            (b"-----BEGIN CERTIFICATE-----\n", Some(Kind::Pem)),
            (
                b"{\"weir_archive\":{\"version\":2}}\n{}",
                Some(Kind::Archive),
            ),
            (b"{\"find_max\": 1}", Some(Kind::Search)),
            (b"{\"run\": {}, \"verdict\": {}}", Some(Kind::Report)),
            (b"{\"a\": 1}", Some(Kind::Json)),
            (b"{\"a\":", None),
            (
                include_bytes!("../../../profiles/relays.toml"),
                Some(Kind::Relays),
            ),
            (
                include_bytes!("../../../profiles/contenders.toml"),
                Some(Kind::Servers),
            ),
            (
                include_bytes!("../../../profiles/audio.ini"),
                Some(Kind::Profile),
            ),
            (
                include_bytes!("../../../packaging/relay.toml"),
                Some(Kind::Settings),
            ),
            (b"17\n34\n", Some(Kind::LinkTrace)),
            (life.as_bytes(), Some(Kind::FrameTrace)),
            (b"# dark\n200k 30s\n", Some(Kind::Rates)),
            (b"dear diary\n", None),
            (b"", None),
        ];
        for (content, kind) in known {
            let shown = String::from_utf8_lossy(&content[..content.len().min(40)]);
            assert_eq!(of(content), kind, "{shown:?}");
        }
    }

    #[test]
    fn an_error_stays_unless_the_file_is_known_to_be_of_another_kind() {
        let folder = std::env::temp_dir().join(format!("weir-kinds-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let error = |name: &str, content: &[u8]| {
            let file = folder.join(name);
            std::fs::write(&file, content).unwrap();
            format!("{:#}", explained(&file, Kind::Profile, anyhow!("line 7")))
        };
        assert_eq!(error("broken.ini", b"[a]\nobject_size = x\n"), "line 7");
        assert_eq!(error("text", b"dear diary"), "line 7");
        let tar = error("run.tar", &tar());
        assert!(
            tar.ends_with("run.tar: expected a benchmark profile (INI), such as profiles/audio.ini; this is a tar archive"),
            "{tar}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
        let error = explained(&folder.join("none"), Kind::Profile, anyhow!("line 7"));
        assert_eq!(error.to_string(), "line 7");
    }
}
