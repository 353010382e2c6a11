//! Misbehaving servers: each failure is counted by its kind, and the run ends in time.

use std::time::Instant;

use bytes::Bytes;
use weir_h3::{
    Code,
    frame::{self, frame_type},
    settings::Settings,
};
use weir_http3::client::{Failure, Figures, Refusal};
use weir_quic::{App, Connection, Endpoint, Event, tls::Sessions};
use weir_transport::{Direction, Read, StreamId, Transport as _};

use crate::stage::{Stage, distrustful, millis, secs};

/// Answers every request in the same wrong way.
struct Odd {
    answer: fn(&mut Connection<'_>, StreamId),
    /// Sent on the control stream with SETTINGS.
    greeting: &'static [u8],
    /// Sent on the control stream after the first request.
    control: &'static [u8],
    control_stream: Option<StreamId>,
}

impl Odd {
    fn new(answer: fn(&mut Connection<'_>, StreamId)) -> Self {
        Self {
            answer,
            greeting: &[],
            control: &[],
            control_stream: None,
        }
    }
}

impl App for Odd {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Connected { handle } => {
                let mut connection = endpoint.connection(now, handle).expect("it has just come");
                let stream = connection.open(Direction::Uni).expect("clients let it");
                let mut data = vec![0];
                Settings::default().encode(&mut data);
                data.extend(self.greeting);
                write(&mut connection, stream, data.into());
                self.control_stream = Some(stream);
            }
            Event::Readable { handle, stream } if stream.0 & 2 == 0 => {
                let Some(mut connection) = endpoint.connection(now, handle) else {
                    return;
                };
                loop {
                    match connection.read(stream) {
                        Read::Data(_) => {}
                        Read::Fin => {
                            (self.answer)(&mut connection, stream);
                            let data = Bytes::from_static(self.control);
                            if let Some(control) = self.control_stream.filter(|_| !data.is_empty())
                            {
                                write(&mut connection, control, data);
                            }
                            return;
                        }
                        Read::Reset(_) | Read::Blocked => return,
                    }
                }
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

    fn handle_shutdown(&mut self, _: Instant, _: &mut Endpoint) {}

    fn is_finished(&self) -> bool {
        false
    }
}

/// Returns a head with this status and length, and a body of `body` bytes.
fn answer(status: &str, announced: usize, body: usize) -> Bytes {
    let length = announced.to_string();
    let mut out = Vec::new();
    frame::encode_headers(
        &[(":status", status), ("content-length", &length)],
        &mut out,
    );
    frame::encode_head(frame_type::DATA, body, &mut out);
    out.resize(out.len() + body, 7);
    out.into()
}

fn write(connection: &mut Connection<'_>, stream: StreamId, mut data: Bytes) {
    let written = connection.write(stream, &mut data);
    written.expect("what is little fits");
}

fn send(connection: &mut Connection<'_>, stream: StreamId, data: Bytes) {
    write(connection, stream, data);
    connection.finish(stream);
}

fn run(odd: Odd) -> Figures {
    Stage::with(1, odd, &[weir_h3::ALPN]).run()
}

/// Checks that all requests failed in this way, and that there were enough.
#[track_caller]
fn assert_only(figures: &Figures, kind: Failure, at_least: u64) {
    assert_eq!(figures.successes, 0);
    assert!(figures.failures(kind) >= at_least, "{figures:?}");
    assert_eq!(figures.failed(), figures.failures(kind), "{figures:?}");
}

#[test]
fn a_body_shorter_than_announced() {
    let figures = run(Odd::new(|connection, stream| {
        send(connection, stream, answer("200", 1000, 999));
    }));
    assert_only(&figures, Failure::BodyShort, 225);
    assert_eq!(figures.refused(), 0);
}

#[test]
fn a_body_longer_than_announced() {
    let figures = run(Odd::new(|connection, stream| {
        send(connection, stream, answer("200", 1000, 1001));
    }));
    assert_only(&figures, Failure::BodyLong, 225);
}

#[test]
fn statuses_by_their_class() {
    let figures = run(Odd::new(|connection, stream| {
        let status = ["204", "301", "404", "503"][usize::try_from(stream.0 / 4 % 4).unwrap()];
        send(connection, stream, answer(status, 0, 0));
    }));
    for kind in [
        Failure::Status2xx,
        Failure::Status3xx,
        Failure::Status4xx,
        Failure::Status5xx,
    ] {
        assert!(figures.failures(kind) > 50, "{kind:?}");
    }
}

#[test]
fn streams_that_are_reset() {
    let figures = run(Odd::new(|connection, stream| {
        connection.reset(stream, Code::INTERNAL_ERROR.0);
    }));
    assert_only(&figures, Failure::StreamReset, 225);
    let words = figures.failure_words(Failure::StreamReset);
    assert_eq!(words, Some("H3_INTERNAL_ERROR"));
}

#[test]
fn streams_that_end_within_an_answer() {
    let figures = run(Odd::new(|connection, stream| {
        let whole = answer("200", 1000, 1000);
        send(connection, stream, whole.slice(..500));
    }));
    assert_only(&figures, Failure::Incomplete, 225);
}

#[test]
fn heads_that_are_none() {
    let figures = run(Odd::new(|connection, stream| {
        // A field section with only its prefix, without a status.
        send(connection, stream, Bytes::from_static(&[1, 2, 0, 0]));
    }));
    assert_only(&figures, Failure::Malformed, 225);
}

#[test]
fn rules_that_end_the_connection() {
    let figures = run(Odd::new(|connection, stream| {
        send(connection, stream, Bytes::from_static(&[4, 0]));
    }));
    assert_only(&figures, Failure::Violation, 5);
    let words = figures.failure_words(Failure::Violation).unwrap();
    assert!(words.contains("H3_FRAME_UNEXPECTED"), "{words}");
    // Attempts to connect to such a server are paused.
    assert!(
        figures.connections_begun < 30,
        "{}",
        figures.connections_begun
    );
}

#[test]
fn connections_that_the_server_closes() {
    let figures = run(Odd::new(|connection, _| {
        connection.close(Code::EXCESSIVE_LOAD.0, b"go away\x1b[2J");
    }));
    assert_only(&figures, Failure::ConnectionClosed, 5);
    let words = figures.failure_words(Failure::ConnectionClosed).unwrap();
    assert!(words.contains("go away[2J"), "{words}");
    assert!(figures.connections_begun < 30);
}

#[test]
fn goaway_ends_what_it_names_and_moves_the_rest() {
    let mut odd = Odd::new(|connection, stream| {
        if stream.0 == 0 {
            send(connection, stream, answer("200", 10, 10));
        }
    });
    // Rejects requests from stream 4 on.
    odd.control = &[7, 1, 4];
    let figures = run(odd);
    assert!(figures.successes > 25, "{figures:?}");
    assert!(figures.goaways > 25);
    assert_eq!(figures.failed(), figures.failures(Failure::GoAway));
    assert!(figures.failures(Failure::GoAway) > 25);
    assert!(figures.connections_begun >= figures.goaways);
}

#[test]
fn a_silent_server_after_the_handshake() {
    let figures = run(Odd::new(|_, _| ()));
    assert_only(&figures, Failure::TimedOut, 6);
    assert_eq!(figures.refused(), 0);
    assert!(figures.connections_begun >= 4, "it is tried again");
}

#[test]
fn a_server_that_lets_no_request_be_sent() {
    let mut stage = Stage::stingy(Odd::new(|_, _| ()), millis(400));
    stage.load.duration = secs(2);
    let figures = stage.run();
    let sent = (figures.requests_sent, figures.unfinished, figures.failed());
    assert_eq!(sent, (0, 0, 0));
    assert!(figures.handshakes >= 4, "it is tried again");
    assert!(figures.refusals(Refusal::Unusable) >= 4, "{figures:?}");
    assert_eq!(figures.refused(), figures.refusals(Refusal::Unusable));
    let words = figures.refusal_words(Refusal::Unusable);
    assert_eq!(words, Some("timed out: the peer did not answer"));

    // A request with a connection of its own fails with it.
    let mut stage = Stage::stingy(Odd::new(|_, _| ()), millis(400)).short(Sessions::Forgotten);
    stage.load.duration = secs(2);
    let figures = stage.run();
    assert!(figures.refusals(Refusal::Unusable) >= 4, "{figures:?}");
    assert_only(
        &figures,
        Failure::NoConnection,
        figures.refusals(Refusal::Unusable),
    );

    // The run does not wait for its full time.
    let mut stage = Stage::stingy(Odd::new(|_, _| ()), secs(5));
    stage.load.duration = millis(1500);
    let figures = stage.run();
    assert_eq!(figures.refusals(Refusal::Unusable), 2, "{figures:?}");
    let words = figures.refusal_words(Refusal::Unusable);
    assert_eq!(words, Some("no request could be sent"));
}

#[test]
fn a_rule_broken_while_there_is_no_request() {
    for short in [false, true] {
        let mut odd = Odd::new(|_, _| ());
        // SETTINGS a second time.
        odd.greeting = &[4, 0];
        let mut stage = Stage::stingy(odd, secs(5));
        if short {
            stage = stage.short(Sessions::Forgotten);
        }
        let figures = stage.run();
        let refused = figures.refused();
        assert!(refused >= 5, "{figures:?}");
        assert_eq!(refused, figures.refusals(Refusal::Violation));
        let words = figures.refusal_words(Refusal::Violation).unwrap();
        assert!(words.contains("H3_FRAME_UNEXPECTED"), "{words}");
        let failed = if short { refused } else { 0 };
        assert_eq!(figures.failed(), failed);
        assert_eq!(figures.failures(Failure::NoConnection), failed);
    }
}

#[test]
fn connections_that_an_open_loop_does_not_need_are_no_failures() {
    let mut stage = Stage::new(1);
    stage.load.rate_per_second = Some(1.0);
    stage.load.duration = secs(3);
    let figures = stage.run();
    assert!(figures.handshakes > 2, "they were silent for too long");
    assert_eq!((figures.failed(), figures.refused()), (0, 0), "{figures:?}");
}

#[test]
fn a_silent_server_without_a_handshake() {
    let mut stage = Stage::silent(1, &[weir_h3::ALPN]);
    let figures = stage.run();
    assert_eq!((figures.successes, figures.requests_sent), (0, 0));
    assert!(figures.refusals(Refusal::TimedOut) >= 4, "{figures:?}");
    assert_eq!(figures.refused(), figures.refusals(Refusal::TimedOut));
    assert_eq!(
        figures.handshakes_unfinished, 2,
        "the last ones were cut off"
    );
    let words = figures.refusal_words(Refusal::TimedOut);
    assert_eq!(words, Some("no handshake within 0.3 s"));
    let mut stage = Stage::silent(1, &[weir_h3::ALPN]).short(Sessions::Forgotten);
    let figures = stage.run();
    let failed = figures.failures(Failure::NoConnection);
    assert_eq!(failed, figures.refusals(Refusal::TimedOut));
    assert!(failed >= 4);
}

#[test]
fn a_certificate_that_is_not_trusted() {
    for short in [false, true] {
        let mut stage = Stage::new(1);
        if short {
            stage = stage.short(Sessions::Forgotten);
        }
        stage.config = distrustful();
        let figures = stage.run();
        assert_eq!((figures.successes, figures.handshakes), (0, 0));
        assert!(figures.refusals(Refusal::Tls) >= 10, "{figures:?}");
        assert_eq!(figures.refused(), figures.refusals(Refusal::Tls));
        let words = figures.refusal_words(Refusal::Tls).unwrap();
        assert!(words.contains("TLS handshake failed"), "{words}");
        // Twenty attempts a second: two places with a pause of 100 ms each.
        assert!(
            figures.connections_begun < 22,
            "{}",
            figures.connections_begun
        );
    }
}

#[test]
fn a_server_of_another_protocol() {
    let figures = Stage::with(1, Odd::new(|_, _| ()), &["other"]).run();
    assert!(figures.refusals(Refusal::Protocol) >= 10, "{figures:?}");
}

#[test]
fn a_server_that_dies_in_mid_run() {
    let mut stage = Stage::new(1);
    stage.load.duration = secs(2);
    let server = stage.server;
    stage.sim.at(millis(500), move |sim| sim.kill(server));
    let figures = stage.run();
    assert!(figures.successes > 100, "{}", figures.successes);
    assert_eq!(
        figures.failures(Failure::TimedOut),
        6,
        "what was on its way"
    );
    assert!(
        figures.refusals(Refusal::TimedOut) >= 2,
        "it is tried again"
    );
    assert_eq!(figures.seconds[1].latency.count(), 0);
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    let mut stage = Stage::new(2);
    stage.load.duration = secs(3);
    stage.start();
    stage.sim.run_until(secs(1), |_| false);
    let before = stage.figures();
    stage.restart_server();
    let node = stage.client;
    stage.sim.run_until(secs(5), |sim| !sim.is_busy(node));
    let figures = stage.figures();
    // The restarted server does not know its old connections, and sends stateless resets.
    let lost = figures.failures(Failure::ConnectionReset) + figures.failures(Failure::TimedOut);
    assert!((1..=6).contains(&lost), "{figures:?}");
    assert!(
        figures.successes > before.successes + 300,
        "{}",
        figures.successes
    );
}

#[test]
fn a_flood_of_streams_from_the_server() {
    struct Flood;
    impl App for Flood {
        fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
            if let Event::Connected { handle } = event
                && let Some(mut connection) = endpoint.connection(now, handle)
            {
                // A control stream, and as many reserved streams as can be opened.
                let mut first = true;
                while let Some(stream) = connection.open(Direction::Uni) {
                    let mut data: &[u8] = &[0x21, 9, 9];
                    if std::mem::take(&mut first) {
                        data = &[0, 4, 0];
                    }
                    connection
                        .write(stream, &mut Bytes::copy_from_slice(data))
                        .unwrap();
                }
                assert!(connection.open(Direction::Bi).is_none(), "none may be");
            }
        }
        fn poll_timeout(&self) -> Option<Instant> {
            None
        }
        fn handle_timeout(&mut self, _: Instant, _: &mut Endpoint) {}
        fn handle_shutdown(&mut self, _: Instant, _: &mut Endpoint) {}
        fn is_finished(&self) -> bool {
            false
        }
    }
    let figures = Stage::with(1, Flood, &[weir_h3::ALPN]).run();
    assert_only(&figures, Failure::TimedOut, 6);
    assert!(figures.handshake_time.max().unwrap() < millis(100));
}
