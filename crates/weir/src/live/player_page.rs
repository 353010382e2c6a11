//! The server of the browser player's page.
//!
//! The modules of `web/` are part of the program, without a build step: browsers load them as they are.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::relay::http::{HttpLimits, Page, serve};

/// One file of the page.
struct File {
    path: &'static str,
    content_type: &'static str,
    body: &'static [u8],
}

/// Serves the page at `address`, with `config` (the location of the stream) as `/config.json`. `hosts` are the names by which
/// the page may be reached, beside localhost and IP addresses. The page may post a report to `report_port` of this machine.
/// Returns the bound address.
pub(crate) fn serve_page(
    address: SocketAddr,
    hosts: Vec<String>,
    config: &Value,
    report_port: Option<u16>,
) -> io::Result<SocketAddr> {
    let config = config.to_string();
    let pages = move |path: &str| match path {
        "/config.json" => Page {
            status: 200,
            content_type: "application/json",
            body: Cow::Owned(config.clone().into_bytes()),
            report_port: None,
        },
        _ => Page {
            report_port,
            ..page(path)
        },
    };
    serve(address, LIMITS, hosts, Arc::new(pages))
}

fn page(path: &str) -> Page {
    let path = path.trim_start_matches('/');
    let path = if path.is_empty() { "index.html" } else { path };
    match FILES.iter().find(|file| file.path == path) {
        Some(file) => Page {
            status: 200,
            content_type: file.content_type,
            body: Cow::Borrowed(file.body),
            report_port: None,
        },
        None => Page::text(404, "not found"),
    }
}

/// Limits for a browser, which opens several connections at once to load the files of the page.
const LIMITS: HttpLimits = HttpLimits {
    connections_max: 64,
    connections_per_address_max: 32,
    header_bytes_max: 16 << 10,
    timeout: Duration::from_secs(10),
};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! files {
    ($($content_type:ident: $($path:literal),+;)+) => {
        &[$($(File {
            path: $path,
            content_type: $content_type,
            body: include_bytes!(concat!("../../../../web/", $path)),
        },)+)+]
    };
}

const FILES: &[File] = files! {
    HTML: "index.html", "publish.html";
    CSS: "ui/style.css";
    SVG: "ui/icon.svg";
    SCRIPT:
        "moqt/cursor.js", "moqt/data-streams.js", "moqt/draft.js", "moqt/error.js", "moqt/message.js",
        "moqt/message/ending.js", "moqt/message/fetch.js", "moqt/message/setup.js", "moqt/name.js", "moqt/object.js", "moqt/offers.js",
        "moqt/parameter.js", "moqt/property.js", "moqt/publication.js", "moqt/session.js", "moqt/streams.js",
        "moqt/subscription.js", "moqt/timeout.js", "moqt/varint.js",
        "playout/clock.js", "playout/decodable.js", "playout/figures.js", "playout/freshness.js", "playout/jitter.js",
        "playout/player.js", "playout/reorder.js", "playout/sequence.js", "playout/strategy.js",
        "playout/succession.js",
        "player/audio-worklet.js", "player/audio.js", "player/boxes.js", "player/catalog.js", "player/h264.js",
        "player/mp4.js", "player/now.js", "player/packaging.js", "player/publisher.js", "player/receiver.js",
        "player/reception.js", "player/records.js", "player/relays.js", "player/roaming.js", "player/tag.js", "player/video.js",
        "player/viewer.js",
        "ui/config.js", "ui/dropped.js", "ui/format.js", "ui/plot.js", "ui/publish.js", "ui/watch.js", "ui/words.js";
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn every_file_of_the_page_is_served() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
        let mut found = BTreeSet::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(root.join(&folder)).expect("a folder") {
                let entry = entry.expect("an entry");
                let path = folder.join(entry.file_name());
                let name = path.to_str().expect("a plain name").to_owned();
                if ["test", "browser", "node_modules"].contains(&&*name) {
                    continue;
                }
                if entry.file_type().expect("a type").is_dir() {
                    folders.push(path);
                } else if [".js", ".html", ".css", ".svg"]
                    .iter()
                    .any(|ending| name.ends_with(ending))
                {
                    found.insert(name);
                }
            }
        }
        let served: BTreeSet<String> = FILES.iter().map(|file| file.path.to_owned()).collect();
        assert_eq!(served, found);
    }

    #[test]
    fn the_page_is_at_the_root_and_nothing_else_is_served() {
        assert_eq!(page("/").content_type, HTML);
        assert_eq!(page("/ui/watch.js").content_type, SCRIPT);
        for path in [
            "/package.json",
            "/../Cargo.toml",
            "/ui",
            "/test/vectors.test.js",
        ] {
            assert_eq!(page(path).status, 404, "{path}");
        }
    }
}
