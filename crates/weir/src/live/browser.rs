//! A lab run in real time with a browser as the player: the page of `weir live watch` in headless Chromium, behind an
//! emulated link.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use weir_live::PublishFlow;
use weir_moqt::name::Namespace;
use weir_net::{Stop, Waker};
use weir_report::lab::{Figures, FrameRecord};

use super::hosting;
use super::ingest_queue::IngestQueue;
use super::lab::{Run, Task};
use super::player_page::serve_page;
use super::real_time::{Encoder, NAMESPACE, RunningOrigin, join, open_link, start};
use crate::{
    harness::own_relay::ChildRelay,
    run::{RelayUrl, TrustChoice, client_target, protocols},
};

/// Makes a run with a browser as the player.
///
/// The network profile begins with the browser's first packet. Frames come from ffmpeg, because the browser decodes them.
/// Latency is the time from a frame's availability to its drawing on the canvas, on the clock of this machine.
pub(crate) fn run(task: &Task) -> anyhow::Result<Run> {
    let (profile, seed) = (&task.profile, task.seed);
    let (strategy, congestion) = task.delivery()?;
    let relay = ChildRelay::of_streams("127.0.0.1:0", congestion)?;
    let stop = Stop::new().context("cannot create an eventfd")?;
    let (behind_link, shaper) = open_link(task, relay.address, None, CLIENTS_MAX, &stop)?;

    let config = json!({
        "relay": format!("https://{behind_link}/"),
        "certificate_sha256": relay.ready["certificate_sha256"],
        "namespace": NAMESPACE,
        "strategy": strategy.name(),
    });
    let mailbox = Mailbox::open()?;
    let page = serve_page(LOOPBACK, Vec::new(), &config, Some(mailbox.port));
    let page = page.context("cannot serve the player page")?;
    let waker = Waker::new().context("cannot create an eventfd")?;
    let queue = IngestQueue::new(waker.clone());
    let mut encoder = Encoder::start(profile.duration + START_TIMEOUT, seed)?;
    encoder.feed(&queue, &stop)?;
    let origin = RunningOrigin {
        target: client_target(
            &RelayUrl::of_child(relay.address),
            &TrustChoice::Anyone,
            &protocols(),
        )?,
        namespace: Namespace::new([NAMESPACE])?,
        flow: PublishFlow::Publish,
        strategy,
        fits_relay: false,
        source: Box::new(queue),
        timebase: hosting::timebase(),
        congestion,
        waker,
    };
    let origin = origin.start(&stop)?;
    let seconds = profile.duration.as_secs();
    let url = format!(
        "http://localhost:{}/?buffer=strategy&time={seconds}&report=http://127.0.0.1:{}/",
        page.port(),
        mailbox.port
    );
    let browser = Browser::start(&url)?;
    let report = mailbox.wait(profile.duration + START_TIMEOUT);
    let encoded = encoder.check();
    stop.request();
    drop(browser);
    drop(encoder);
    let (_, failure) = join(origin)??;
    join(shaper)?.context("the emulated link failed")?;
    relay.stop();
    encoded?;
    let report = match (report, failure) {
        (Ok(report), _) => report,
        (Err(_), Some(failure)) => bail!("the run failed: {failure}"),
        (Err(error), None) => return Err(error),
    };
    read_report(&report).context("the report of the page cannot be read")
}

/// Returns the run of the page's report. Its times are relative to the start of the report.
fn read_report(report: &Value) -> anyhow::Result<Run> {
    let begin = report["started_us"].as_i64().context("no started_us")?;
    let end = report["ended_us"].as_i64().context("no ended_us")?;
    let frames = report["frames"].as_array().context("no frames")?;
    let records = frames.iter().map(|frame| {
        let time = |name: &str| frame[name].as_i64();
        let since = |name: &str| Some(time(name)? - begin);
        Some(FrameRecord {
            number: frame["number"].as_u64()?,
            group: frame["group"].as_u64()?,
            kind: frame["kind"].as_str()?.chars().next()?,
            bytes: frame["bytes"].as_u64()?,
            presentation_us: time("presentation_us")?,
            available_us: since("available_us"),
            arrived_us: since("arrived_us")?,
            shown_us: since("shown_us"),
        })
    });
    let records: Option<Vec<FrameRecord>> = records.collect();
    let records = records.context("a frame lacks a field")?;
    let figures = Figures::of_received(&records, 0, end - begin);
    Ok(Run { figures, records })
}

/// A listener that receives the report that a page posts.
struct Mailbox {
    port: u16,
    report: Receiver<Value>,
}

impl Mailbox {
    fn open() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(LOOPBACK).context("cannot listen for the report")?;
        let port = listener.local_addr()?.port();
        let (sender, report) = channel();
        // Without a report, the thread waits for a connection until the process ends.
        drop(start("weir-report", move || {
            for stream in listener.incoming().flatten() {
                if let Ok(value) = receive(stream)
                    && sender.send(value).is_err()
                {
                    return;
                }
            }
        })?);
        Ok(Self { port, report })
    }

    fn wait(&self, time: Duration) -> anyhow::Result<Value> {
        let report = self.report.recv_timeout(time);
        report.context(
            "the browser sent no report: check that `chromium --headless` runs on this machine",
        )
    }
}

/// Reads one POST request with a JSON body, and answers it.
fn receive(stream: TcpStream) -> anyhow::Result<Value> {
    stream.set_read_timeout(Some(REPORT_TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.by_ref().take(HEAD_LINE_MAX).read_line(&mut line)? == 0 {
            bail!("the request ends before its body");
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse::<u64>()?;
        }
    }
    if length == 0 || length > REPORT_BYTES_MAX {
        bail!("expected a report of 1 to {REPORT_BYTES_MAX} bytes, not {length}");
    }
    let mut body = Vec::new();
    reader.by_ref().take(length).read_to_end(&mut body)?;
    let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
    reader.get_mut().write_all(answer)?;
    Ok(serde_json::from_slice(&body)?)
}

/// Headless Chromium with its own profile folder. Dropping it ends the process and removes the folder.
struct Browser {
    child: Child,
    folder: PathBuf,
}

impl Browser {
    fn start(url: &str) -> anyhow::Result<Self> {
        let port = url.rsplit(':').next().unwrap_or_default();
        let port = port.trim_end_matches('/');
        let folder = std::env::temp_dir().join(format!("weir-browser-{port}"));
        let mut command = Command::new("chromium");
        command
            .args([
                "--headless",
                "--disable-gpu",
                "--no-first-run",
                "--mute-audio",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
            ])
            .arg(format!("--user-data-dir={}", folder.display()));
        // Chromium's sandbox does not work for root.
        if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
            command.arg("--no-sandbox");
        }
        weir_net::end_with_parent(&mut command);
        let child = command
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start chromium: install it, or put it on the PATH")?;
        Ok(Self { child, folder })
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Time for the start of the browser, the page and the first picture.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// A browser may use several UDP ports.
const CLIENTS_MAX: usize = 8;
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
const REPORT_BYTES_MAX: u64 = 64 << 20;
const HEAD_LINE_MAX: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_received_and_read() {
        let mailbox = Mailbox::open().expect("loopback");
        let address = (Ipv4Addr::LOCALHOST, mailbox.port);
        let frame = |number: u64, shown: Option<i64>| {
            json!({
                "number": number, "group": 0, "kind": "I", "bytes": 10, "presentation_us": 0,
                "available_us": 5_000_000, "arrived_us": 5_020_000, "shown_us": shown,
            })
        };
        let body = json!({
            "started_us": 4_000_000, "ended_us": 6_000_000,
            "frames": [frame(3, Some(5_100_000)), frame(4, None)],
        })
        .to_string();
        // A request that is not a report does not stop the listener.
        for text in ["GET / HTTP/1.1\r\n\r\n".to_owned(), {
            let length = body.len();
            format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}")
        }] {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.write_all(text.as_bytes()).expect("it reads");
            let mut answer = Vec::new();
            drop(stream.read_to_end(&mut answer));
        }
        let report = mailbox.wait(Duration::from_mins(5)).expect("a report");
        let run = read_report(&report).expect("a good one");
        assert_eq!(run.figures.frames, 2);
        assert_eq!(run.records[0].available_us, Some(1_000_000));
        assert_eq!(run.records[0].shown_us, Some(1_100_000));
        assert_eq!(run.records[1].shown_us, None);
        assert!(read_report(&json!({"started_us": 1, "ended_us": 2})).is_err());
    }
}
