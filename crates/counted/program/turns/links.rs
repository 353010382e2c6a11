//! Scenes of a relay that is connected to another relay.

use std::time::Duration;

use weir_quic::Handle;
use weir_relay::Config;
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
    let units = NAMESPACES * WATCHERS;
    note("namespaces-of-a-relay-that-10-watch", units, stage.strike())?;
    stage.settle();
    stage.act(upstream, |_, connection| connection.close(0, b"leaving"));
    note("end-of-a-link-with-many-tracks", 1, stage.strike())?;
    let overdue = stage.overdue(Duration::from_secs(40));
    note("end-of-the-tracks-of-a-link", 1, overdue)
}

impl Stage {
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
