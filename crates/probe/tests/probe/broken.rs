//! The suite can fail: relays with a fault fail the cases of that fault.

use std::time::Instant;

use weir_probe::{Case, Edition};
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
    let edition = Edition::default();
    let cases = weir_probe::cases(edition, None)
        .into_iter()
        .filter(is_meant)
        .collect();
    let shown = run(seed(), Broken::new(fault), edition, cases, false);
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

/// Runs cases of one edition in sessions of another, against a relay without a fault. Returns those that passed.
fn passed_elsewhere(of: Edition, session: Edition, names: &[&str]) -> Vec<String> {
    let cases = weir_probe::cases(of, None).into_iter();
    let cases: Vec<Case> = cases
        .filter(|case| names.contains(&case.name.as_str()))
        .collect();
    assert_eq!(cases.len(), names.len());
    let shown = run(seed(), Relay::new(Config::default()), session, cases, false);
    let passed = shown.passed().into_iter().map(str::to_owned);
    passed.collect()
}

#[test]
fn a_relay_of_one_draft_fails_the_cases_of_the_other() {
    let (old, new) = (Edition::Eighteen, Edition::TwentyTwo);
    let of_old = [
        "subscribe.duplicate",
        "publish.duplicate",
        "filter.range-in-the-past",
        "goaway.request-id-parity",
        "parameter.group-order-in-publish",
        "parameter.subscriber-priority-in-publish",
        "fetch-stream.timed-out-range",
    ];
    assert_eq!(passed_elsewhere(old, new, &of_old), [""; 0]);
    let of_new = [
        "filter.valid-range-in-the-past",
        "publish.with-subscription-parameters",
        "answer.forward-in-publish-ok",
        "state-notify.of-publisher",
        "fetch.fill-timeout-0",
        "fill.current-group",
        "fill.by-update",
        "range-filter.repeated",
        "subscribe.include-properties-0",
    ];
    assert_eq!(passed_elsewhere(new, old, &of_new), [""; 0]);
}
