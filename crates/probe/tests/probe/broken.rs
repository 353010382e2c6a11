//! The suite can fail: relays with a fault fail the cases of that fault.

use std::time::Instant;

use weir_probe::Case;
use weir_quic::{App, Endpoint, Event};
use weir_relay::{Config, Relay};
use weir_transport::StreamId;

use crate::stage::{run, seed};

/// A fault that is put between the network and a relay.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// The relay never sees datagrams.
    LosesDatagrams,
    /// The relay never sees the end of streams that it cannot answer: it does not forward FIN, and keeps sessions whose
    /// control stream has ended.
    IgnoresUniStreams,
    /// The relay never wakes up: its timeouts do not expire.
    SleepsForEver,
}

/// A relay with a fault.
struct Broken {
    relay: Relay,
    fault: Fault,
    /// Unidirectional streams of clients, without the first of each connection, which is its control stream.
    ignored: Vec<(usize, StreamId)>,
    controls: Vec<usize>,
}

impl Broken {
    fn new(fault: Fault) -> Self {
        Self {
            relay: Relay::new(Config::default()),
            fault,
            ignored: Vec::new(),
            controls: Vec::new(),
        }
    }

    /// Whether the relay does not see an event.
    fn swallows(&mut self, event: &Event) -> bool {
        match (self.fault, event) {
            (Fault::LosesDatagrams, Event::Datagram { .. }) => true,
            (Fault::IgnoresUniStreams, Event::Connected { handle }) => {
                self.controls.retain(|one| *one != handle.index());
                false
            }
            (
                Fault::IgnoresUniStreams,
                Event::Opened {
                    handle,
                    stream,
                    direction: weir_transport::Direction::Uni,
                },
            ) => {
                if !self.controls.contains(&handle.index()) {
                    self.controls.push(handle.index());
                    return false;
                }
                self.ignored.push((handle.index(), *stream));
                true
            }
            (Fault::IgnoresUniStreams, Event::Readable { handle, stream }) => {
                self.ignored.contains(&(handle.index(), *stream))
            }
            _ => false,
        }
    }
}

impl App for Broken {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if !self.swallows(&event) {
            self.relay.handle_event(now, endpoint, event);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.relay
            .poll_timeout()
            .filter(|_| self.fault != Fault::SleepsForEver)
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.relay.handle_timeout(now, endpoint);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.relay.handle_shutdown(now, endpoint);
    }

    fn is_finished(&self) -> bool {
        self.relay.is_finished()
    }
}

/// Runs the cases whose names begin with one of `groups` against a relay with a fault. Returns those that failed, and the
/// number that passed.
fn failures(fault: Fault, groups: &[&str]) -> (Vec<String>, Vec<String>) {
    let is_meant = |case: &Case| groups.iter().any(|group| case.name.starts_with(group));
    let cases = weir_probe::cases(None)
        .into_iter()
        .filter(is_meant)
        .collect();
    let shown = run(seed(), Broken::new(fault), cases, false);
    let name = |text: String| text.split(':').next().unwrap_or_default().to_owned();
    let failed = shown.failed().into_iter().map(name).collect();
    let passed = shown.passed().into_iter().map(str::to_owned).collect();
    (failed, passed)
}

#[test]
fn a_relay_that_loses_datagrams_fails_their_cases_only() {
    let groups = [
        "datagram.stays",
        "datagram.payload",
        "datagram.properties",
        "object.payload-1-",
    ];
    let (failed, passed) = failures(Fault::LosesDatagrams, &groups);
    assert_eq!(failed.len(), 5, "{failed:?}");
    assert!(
        failed.iter().all(|name| name.starts_with("datagram.")),
        "{failed:?}"
    );
    assert_eq!(passed, ["object.payload-1-bytes"]);
}

#[test]
fn a_relay_that_ignores_streams_fails_their_cases_only() {
    let groups = [
        "stream.unknown-type-0x40",
        "stream.order",
        "request-id.parity-subscribe",
    ];
    let (failed, passed) = failures(Fault::IgnoresUniStreams, &groups);
    assert_eq!(
        failed,
        ["stream.order", "stream.unknown-type-0x40"]
            .map(str::to_owned)
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
    );
    assert!(
        passed.iter().all(|name| name.starts_with("request-id.")),
        "{passed:?}"
    );
}

#[test]
fn a_relay_whose_timeouts_never_expire_fails_the_rendezvous() {
    let groups = ["subscribe.rendezvous-expires", "subscribe.published-track"];
    let (failed, passed) = failures(Fault::SleepsForEver, &groups);
    assert_eq!(failed, ["subscribe.rendezvous-expires"]);
    assert_eq!(passed, ["subscribe.published-track"]);
}
