//! Scenes of a relay that is connected to another relay.

use std::time::Duration;

use weir_moqt::{error::ResetCode, message::GoAway, session::RequestId};
use weir_quic::{Handle, Limits, Shard};
use weir_relay::{Config, Relay, registry::Registry as _};
use weir_transport::Transport as _;

use super::{Scene, note, stage::Stage, words::space};

/// A relay that asks another one for what its clients want.
pub(crate) fn to_a_relay() -> Scene {
    let mut stage = Stage::new(Config::default());
    let clients = stage.clients(CLIENTS);
    for &client in &clients[..WATCHERS] {
        stage.watch(client, "m");
    }
    for (number, &client) in clients.iter().enumerate() {
        for track in 0..TRACKS {
            stage.subscribe(client, &format!("w-{number}--{track}"));
        }
    }
    stage.settle();
    stage.add_upstream();
    let ready = stage.overdue(Duration::from_millis(1));
    note("attempt-to-connect-to-a-relay", 1, ready)?;
    let upstream = stage.reach_upstream();
    let asked = stage.strike_with_answers();
    note("start-of-a-link-that-9600-wait-for", 1, asked)?;
    stage.settle();
    let subscriptions = stage.gauges().subscriptions;
    assert!(subscriptions >= 1000, "{subscriptions} subscriptions");

    let (handle, watched) = stage.crowd.app.watched[0];
    assert_eq!(handle, upstream);
    for number in 0..NAMESPACES {
        stage.act(upstream, |session, connection| {
            session.namespace(connection, watched, space(&format!("{number}")));
        });
    }
    note("namespaces-of-a-relay-that-10-watch", 1, stage.strike())?;
    stage.settle();
    stage.act(upstream, |_, connection| connection.close(0, b"leaving"));
    note("end-of-a-link-with-many-tracks", 1, stage.strike())?;
    let overdue = stage.overdue(Duration::from_secs(40));
    note("end-of-the-tracks-of-a-link", 1, overdue)
}

/// A relay with two others, to which it announces what its clients have. The first of them leaves.
pub(crate) fn to_two_relays() -> Scene {
    let mut stage = Stage::with(Relay::new(Config::default()), Shard::ALONE, &wide());
    let clients = stage.clients(CLIENTS);
    for (number, &client) in clients.iter().enumerate() {
        for track in 0..TRACKS / 2 {
            stage.subscribe(client, &format!("w-{number}--{track}"));
            stage.announce(client, &format!("a-{number}-{track}"));
        }
    }
    stage.settle();
    stage.add_upstream();
    let struck = stage.counted_pass(COUNTED);
    note("start-of-a-link-for-4800-namespaces", 1, struck)?;
    stage.settle();
    let first = *stage.crowd.app.peers.keys().last().ok_or("no link")?;
    assert!(stage.gauges().subscriptions >= 4800);
    stage.add_upstream();
    stage.settle();
    stage.act(first, |session, connection| {
        session.goaway(connection, GoAway::default());
    });
    let struck = stage.strike_and_pass(COUNTED);
    note("goaway-over-a-link-with-4800-tracks", 1, struck)
}

/// Prefixes that clients of a relay with an upstream relay watch, and one that covers them.
pub(crate) fn of_prefixes() -> Scene {
    let mut stage = Stage::with(Relay::new(Config::default()), Shard::ALONE, &wide());
    stage.add_upstream();
    stage.settle();
    for (number, client) in stage.clients(CLIENTS).into_iter().enumerate() {
        for prefix in 0..PREFIXES {
            stage.watch(client, &format!("p-{number}-{prefix}"));
        }
    }
    stage.settle();
    let watched = stage.crowd.app.watched.clone();
    assert_eq!(watched.len(), CLIENTS * PREFIXES);
    let (upstream, _) = watched[0];
    for (number, &(_, watched)) in watched.iter().take(ANNOUNCED).enumerate() {
        stage.act(upstream, |session, connection| {
            session.namespace(connection, watched, space(&format!("{number}")));
        });
    }
    stage.settle();
    let hostile = stage.client();
    let watched = stage.watch(hostile, "p");
    let struck = stage.strike_and_pass(COUNTED);
    stage.pass(Duration::from_secs(30));
    note("prefix-that-covers-4800-others", 1, struck)?;
    stage.answer_last();
    stage.act(hostile, |session, connection| {
        session.cancel(connection, watched, ResetCode::CANCELLED);
    });
    let struck = stage.strike_and_pass(COUNTED);
    stage.pass(Duration::from_secs(30));
    note("end-of-a-prefix-that-covers-4800-others", 1, struck)?;
    let hostile = stage.client();
    stage.watch(hostile, "q");
    stage.settle();
    let (upstream, watched) = stage.answer_last();
    stage.act(upstream, |session, connection| {
        session.cancel(connection, watched, ResetCode::CANCELLED);
    });
    let struck = stage.strike_and_pass(COUNTED);
    note("end-of-an-answer-with-3900-namespaces", 1, struck)
}

/// A relay of a fleet, whose clients wait for what another relay registers.
pub(crate) fn of_a_fleet() -> Scene {
    let mut stage = Stage::with(Relay::new(Config::default()), Shard::ALONE, &wide());
    let mut other = stage.join_fleet();
    let clients = stage.clients(CLIENTS);
    for (number, &client) in clients.iter().enumerate() {
        for track in 0..TRACKS {
            stage.subscribe(client, &format!("w-{number}--{track}"));
        }
    }
    stage.settle();
    let fetching = stage.clients(CLIENTS);
    other.register(stage.now(), &space("w"));
    while other.poll(stage.now()).is_some() {}
    let struck = stage.overdue(Duration::from_millis(300));
    note("registration-that-9600-wait-for", 1, struck)?;
    for (number, &client) in fetching.iter().enumerate() {
        for track in 0..FETCHES {
            stage.fetch(client, &format!("w-f-{number}--{track}"));
        }
    }
    stage.send_now();
    let struck = stage.overdue(Duration::from_millis(1));
    note("fetches-that-wait-for-a-link", 1, struck)?;
    let struck = stage.counted_pass(COUNTED);
    note("start-of-a-link-of-a-fleet", 1, struck)?;
    stage.pass(Duration::from_secs(1));
    let subscriptions = stage.gauges().subscriptions;
    assert!(subscriptions >= 9600, "{subscriptions} subscriptions");
    let fetches = stage.counters().fetches_upstream;
    assert_eq!(fetches, CLIENTS as u64 * FETCHES);
    let crowd = &stage.crowd.app;
    let mut links = crowd.peers.keys().filter(|it| !crowd.opened.contains(it));
    let link = *links.next_back().ok_or("no link")?;
    stage.act(link, |session, connection| {
        session.goaway(connection, GoAway::default());
    });
    let struck = stage.strike_and_pass(COUNTED);
    note("goaway-of-a-relay-of-a-fleet", 1, struck)
}

/// Returns the limits of relays that permit as many streams as another one needs.
fn wide() -> Limits {
    Limits {
        bidi_streams_max: 1 << 16,
        ..Limits::default()
    }
}

impl Stage {
    /// Has the other relay answer the relay's last subscription to a prefix with many namespaces.
    fn answer_last(&mut self) -> (Handle, RequestId) {
        let (upstream, watched) = *self.crowd.app.watched.last().expect("something is watched");
        for number in 0..ANNOUNCED {
            self.act(upstream, |session, connection| {
                session.namespace(connection, watched, space(&format!("{number}")));
            });
        }
        self.settle();
        (upstream, watched)
    }

    /// Completes the handshake of the relay's connection to another relay. Returns that relay's end.
    fn reach_upstream(&mut self) -> Handle {
        loop {
            let opened = &self.crowd.app.opened;
            let peers = &mut self.crowd.app.peers.keys();
            if let Some(&handle) = peers.find(|handle| !opened.contains(handle)) {
                return handle;
            }
            self.round();
        }
    }
}

const CLIENTS: usize = 80;
const TRACKS: u64 = 120;
/// Clients that subscribe to a prefix.
const WATCHERS: usize = 10;
/// Namespaces that the other relay announces in one packet.
const NAMESPACES: usize = 150;
/// Prefixes that one client watches.
const PREFIXES: usize = 60;
/// Fetches of one client.
const FETCHES: u64 = 20;
/// Namespaces that the other relay announces for one subscription.
const ANNOUNCED: usize = 3900;
/// How long turns are counted after something that takes many.
const COUNTED: Duration = Duration::from_millis(30);
