//! Reports about servers that answer wrongly or not at all, on real sockets.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, thread::JoinHandle, time::Instant};

use bytes::Bytes;
use serde_json::Value;
use weir_h3::{
    Code,
    frame::{self, frame_type},
    settings::Settings,
};
use weir_net::{
    Host, HostConfig, SocketConfig, Stop, Telemetry, UdpSocket, certificate::Certificate, clock,
};
use weir_quic::{
    App, Connection, Endpoint, EndpointConfig, Event, Handle, Limits, Packets, tls::ServerTls,
};
use weir_transport::{Direction, Read, StreamId, Transport as _};

use crate::process::PATIENCE;

use super::stage::{Folder, bench, json, text};

/// The reaction of a server to a complete request. The argument is the number of the request on its connection, from 0.
type Answer = fn(&mut Connection<'_>, StreamId, u64);

/// Answers every request in the same wrong way.
struct Odd {
    answer: Answer,
    requests: BTreeMap<Handle, u64>,
    is_over: bool,
}

impl App for Odd {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Connected { handle } => {
                // On a busy machine, a connection may have timed out before its event is handled.
                let Some(mut connection) = endpoint.connection(now, handle) else {
                    return;
                };
                let stream = connection.open(Direction::Uni).expect("clients let it");
                let mut data = vec![0];
                Settings::default().encode(&mut data);
                write(&mut connection, stream, data.into());
            }
            Event::Readable { handle, stream } if stream.0 & 2 == 0 => {
                let Some(mut connection) = endpoint.connection(now, handle) else {
                    return;
                };
                loop {
                    match connection.read(stream) {
                        Read::Data(_) => {}
                        Read::Fin => break,
                        Read::Reset(_) | Read::Blocked => return,
                    }
                }
                let number = self.requests.entry(handle).or_default();
                (self.answer)(&mut connection, stream, *number);
                *number += 1;
            }
            Event::Readable { .. }
            | Event::Lost { .. }
            | Event::Opened { .. }
            | Event::Writable { .. }
            | Event::Stopped { .. }
            | Event::Finished { .. }
            | Event::StreamsAvailable { .. }
            | Event::Datagram { .. } => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant, _: &mut Endpoint) {}

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 0, b"");
        self.is_over = true;
    }

    fn is_finished(&self) -> bool {
        self.is_over
    }
}

/// Such a server on its own thread.
struct Server {
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(answer: Answer) -> Self {
        let made = Certificate::self_made(&["localhost".to_owned()]).unwrap();
        let tls = ServerTls::new(made.chain, made.key, &[weir_h3::ALPN]).unwrap();
        let endpoint = EndpointConfig {
            limits: Limits::default(),
            server: Some(tls),
            seed: [7; 32],
            time_source: Arc::new(clock::SystemClock),
            qlog: None,
            packets: Packets::default(),
            segmentation_offload: false,
            handshake_counts: weir_quic::OriginCounts::default(),
        };
        let endpoint = Endpoint::new(endpoint).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), SocketConfig::default());
        let socket = socket.unwrap();
        let address = socket.local_address().unwrap();
        let stop = Stop::new().unwrap();
        let asked = stop.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "a peer of the program under test"
        )]
        let thread = std::thread::spawn(move || {
            let (config, telemetry) = (HostConfig::default(), Arc::new(Telemetry::default()));
            let mut host = Host::new(config, vec![socket], endpoint, telemetry, asked).unwrap();
            let mut odd = Odd {
                answer,
                requests: BTreeMap::new(),
                is_over: false,
            };
            host.run(&mut odd).unwrap();
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }

    /// Runs the program against the server. Returns the report; asserts the exit code, and that the run ends in time.
    fn report(&self, name: &str, code: i32, arguments: &[&str]) -> Value {
        let folder = Folder::new(name);
        let file = folder.file("report.json");
        let mut all = vec!["--handshake-timeout=60", "--json", file.to_str().unwrap()];
        all.extend(arguments);
        let begin = clock::now();
        let output = bench(&format!("https://{}/1k", self.address), &all);
        // Threads without CPU time may be late; a run that waits for answers would never end.
        assert!(clock::now() - begin < PATIENCE);
        let shown = text(&output.stdout);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{shown}{}",
            text(&output.stderr)
        );
        let report = json(&file);
        for failure in report["requests"]["failures"].as_array().unwrap() {
            let kind = failure["kind"].as_str().unwrap();
            assert!(shown.contains(kind), "{kind}: {shown}");
        }
        report
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn write(connection: &mut Connection<'_>, stream: StreamId, mut data: Bytes) {
    let written = connection.write(stream, &mut data);
    written.expect("what is little fits");
}

/// An answer whose `content-length` differs from its number of bytes.
fn answer(connection: &mut Connection<'_>, stream: StreamId, announced: usize, body: usize) {
    let length = announced.to_string();
    let mut out = Vec::new();
    frame::encode_headers(&[(":status", "200"), ("content-length", &length)], &mut out);
    frame::encode_head(frame_type::DATA, body, &mut out);
    out.resize(out.len() + body, 7);
    write(connection, stream, out.into());
    connection.finish(stream);
}

/// A run that ends after this number of answers, whatever time they take.
const REQUESTS: [&str; 2] = ["--duration=600", "--max-requests-per-thread=200"];

/// Returns how often requests failed with this kind, and asserts that there is no other kind.
#[track_caller]
fn only(report: &Value, kind: &str) -> u64 {
    let failures = report["requests"]["failures"].as_array().unwrap();
    let [failure] = &failures[..] else {
        panic!("{failures:?}")
    };
    assert_eq!(failure["kind"], kind);
    assert_eq!(failure["count"], report["requests"]["failed"]);
    assert_eq!(report["connections"]["refused"], 0);
    failure["count"].as_u64().unwrap()
}

#[test]
fn a_body_that_is_not_as_long_as_announced() {
    let stories: [(&str, &str, Answer); 2] = [
        ("short", "body_short", |connection, stream, _| {
            answer(connection, stream, 1000, 999);
        }),
        ("long", "body_long", |connection, stream, _| {
            answer(connection, stream, 1000, 1001);
        }),
    ];
    for (name, kind, by) in stories {
        let report = Server::start(by).report(name, 1, &REQUESTS);
        assert_eq!(only(&report, kind), 200);
        assert_eq!(report["requests"]["successes"], 0);
        assert_eq!(report["connections"]["begun"], 10, "connections survive it");
    }
}

#[test]
fn some_answers_are_right_and_some_are_not() {
    let server = Server::start(|connection, stream, number| match number % 4 {
        0 => connection.reset(stream, Code::INTERNAL_ERROR.0),
        1 => answer(connection, stream, 1024, 1023),
        _ => answer(connection, stream, 1024, 1024),
    });
    let report = server.report("some", 0, &REQUESTS);
    let failures = report["requests"]["failures"].as_array().unwrap();
    let count = |kind: &str| {
        let found = failures.iter().find(|one| one["kind"] == kind);
        found.unwrap()["count"].as_u64().unwrap()
    };
    let requests = |field: &str| report["requests"][field].as_u64().unwrap();
    assert_eq!(
        count("stream_reset") + count("body_short"),
        requests("failed")
    );
    // Two of the four requests on each of ten connections.
    assert!(requests("successes").abs_diff(requests("failed")) <= 2 * 10);
    assert_eq!(requests("successes") + requests("failed"), 200);
    assert_eq!((requests("sent"), requests("unfinished")), (200, 0));
}

#[test]
fn a_server_that_is_silent_after_the_handshake() {
    let server = Server::start(|_, _, _| ());
    // A busy machine may need longer for a handshake and a second attempt.
    let patience = [("300ms", "2"), ("3s", "15"), ("20s", "100")];
    let report = patience.into_iter().find_map(|(idle_timeout, duration)| {
        let (idle, time) = (
            format!("--idle-timeout={idle_timeout}"),
            format!("--duration={duration}"),
        );
        let report = server.report("silent", 1, &[&time, &idle]);
        let connections = &report["connections"];
        let is_tried_again = connections["begun"].as_u64() > Some(10);
        (is_tried_again && connections["refused"] == 0).then_some(report)
    });
    let report = report.expect("it is tried again");
    assert!(only(&report, "timed_out") >= 10);
    // No timeout ends before the run, so these requests neither succeed nor fail.
    let report = ["2", "15", "50"].into_iter().find_map(|duration| {
        let time = format!("--duration={duration}");
        let report = server.report("patient", 1, &[&time, "--idle-timeout=60"]);
        (report["requests"]["sent"].as_u64() > Some(0)).then_some(report)
    });
    let report = report.expect("a handshake that was done in time");
    assert_eq!(report["requests"]["unfinished"], report["requests"]["sent"]);
    assert_eq!(report["requests"]["failed"], 0);
}
