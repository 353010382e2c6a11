//! The clients that withhold something do what their cases say, and only careless relays fail them.

use std::time::{Duration, Instant};

use weir_probe::{Case, Edition};
use weir_quic::{App, Endpoint, Event, Limits};
use weir_relay::{Config, Load, LoadLimits, Relay};

use crate::stage::{Shown, run_within, seed};

/// A relay that is told every 50 ms that its memory is used up.
struct Short {
    relay: Relay,
    told: Option<Instant>,
}

impl App for Short {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        self.relay.handle_event(now, endpoint, event);
        // The bystander's objects are events enough.
        if self.told.is_none_or(|at| now >= at + EVERY) {
            self.told = Some(now);
            self.relay.observe_load(now, endpoint, LOAD);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.relay.poll_timeout()
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

const EVERY: Duration = Duration::from_millis(50);
/// Ten times the limit is given out, so all who hold much may be closed.
const LOAD: Load = Load {
    queue_delay: Duration::ZERO,
    memory_bytes: 0,
    heap_bytes: 1_000_000_000,
};

/// Runs the case of this name on both transports, against relays with these limits of their connections.
fn runs<A: App + 'static>(name: &str, limits: &Limits, relay: impl Fn() -> A) -> [Shown; 2] {
    [false, true].map(|is_web_transport| {
        let edition = Edition::default();
        let is_meant = |case: &Case| case.name == name;
        let cases = weir_probe::cases(edition, None).into_iter();
        let cases: Vec<Case> = cases.filter(is_meant).collect();
        assert_eq!(cases.len(), 1, "{name}");
        run_within(
            limits.clone(),
            seed(),
            relay(),
            edition,
            cases,
            is_web_transport,
        )
    })
}

/// Runs a case against a relay whose memory is used up. Returns how many sessions it closed for that.
fn closed_for_memory(name: &str) -> [u64; 2] {
    let load = LoadLimits {
        memory_bytes_max: 100_000_000,
        ..LoadLimits::default()
    };
    let relay = || Short {
        relay: Relay::new(Config {
            load: load.clone(),
            ..Config::default()
        }),
        told: None,
    };
    runs(name, &Limits::default(), relay).map(|shown| {
        assert_eq!(shown.failed(), [""; 0]);
        assert_eq!(shown.bystander_lost().0, 0);
        shown.of_relay(|it: &Short| it.relay.counters().sessions_closed_memory)
    })
}

#[test]
fn who_grants_no_credit_is_closed_when_memory_is_used_up_and_the_bystander_is_not() {
    // The four, and the publisher of many tracks with large properties.
    assert_eq!(closed_for_memory("greedy.offers-not-read"), [5, 5]);
    assert_eq!(closed_for_memory("greedy.answers-not-read"), [4, 4]);
}

#[test]
fn a_relay_with_room_for_few_handshakes_fails_those_that_never_finish() {
    let relay = || Relay::new(Config::default());
    let limits = Limits {
        handshakes_max: 300,
        ..Limits::default()
    };
    for shown in runs("handshake.never-finished", &limits, relay) {
        assert_eq!(shown.failed().len(), 1);
    }
}

#[test]
fn a_relay_without_a_deadline_for_handshakes_fails_the_pings() {
    let relay = || Relay::new(Config::default());
    let limits = Limits {
        handshake_timeout: Duration::from_mins(1),
        ..Limits::default()
    };
    for shown in runs("handshake.pings-in-initials", &limits, relay) {
        let failed = shown.failed();
        let expected = "handshake.pings-in-initials: expected the end of the handshake";
        assert!(failed[0].starts_with(expected), "{failed:?}");
    }
}
