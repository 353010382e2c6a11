//! A client with several relays moves on when it cannot connect, has lost its connection, or its relay sends GOAWAY.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_client::client::Client;
use weir_client::peer::Peer;
use weir_client::roaming::Resolver;
use weir_client::target::Target;
use weir_client::turn::Turn;
use weir_moqt::draft::Draft;
use weir_moqt::limits::Limits;
use weir_moqt::message::{GoAway, Setup};
use weir_moqt::session::{Event as SessionEvent, Side};
use weir_quic::{App, Endpoint, Event, Handle};
use weir_sim::{NodeConfig, NodeId, SERVER_NAME, Sim};

/// A server that accepts every session, and sends GOAWAY when it is stopped.
#[derive(Debug, Default)]
struct Server {
    /// The URI of its GOAWAY.
    successor: String,
    peers: BTreeMap<Handle, Peer>,
    /// Paths of the sessions' SETUP.
    paths: Vec<String>,
}

impl App for Server {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let turn = &mut Turn { now, endpoint };
        let handle = event.handle();
        if let Event::Connected { .. } = event {
            let mut connection = endpoint.connection(now, handle).expect("it is connected");
            let (setup, limits) = (Setup::default(), Limits::default());
            let peer = Peer::start(now, &mut connection, Side::Server, setup, limits);
            self.peers.insert(handle, peer.expect("a known draft"));
        } else if let Some(peer) = self.peers.get_mut(&handle) {
            assert!(peer.handle_event(turn, event).is_none());
            while let Some(event) = peer.poll_event() {
                if let SessionEvent::Ready { .. } = event {
                    let setup = peer.session().peer_setup();
                    let path = setup.and_then(|setup| setup.path.clone());
                    self.paths.extend(path);
                }
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        for peer in self.peers.values_mut() {
            if let Some((session, mut connection)) = peer.open(turn) {
                let goaway = GoAway {
                    new_session_uri: self.successor.clone(),
                    ..GoAway::default()
                };
                session.goaway(&mut connection, goaway);
            }
        }
    }

    fn is_finished(&self) -> bool {
        false
    }
}

/// A role with one client.
#[derive(Debug)]
struct Roamer {
    client: Client,
    /// When sessions began.
    sessions: Vec<Instant>,
    /// Why the client moved on, and when.
    moves: Vec<(Instant, String)>,
    is_deaf: bool,
}

impl Roamer {
    fn take_events(&mut self, turn: &mut Turn<'_>) {
        while let Some(event) = self.client.poll_event() {
            if let SessionEvent::Ready { .. } = event {
                self.sessions.push(turn.now);
            } else if let SessionEvent::GoAway(goaway) = event {
                self.is_deaf = !self.client.follow(turn, &goaway);
            }
        }
        let reason = self.client.take_move();
        self.moves.extend(reason.map(|reason| (turn.now, reason)));
    }
}

impl App for Roamer {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let turn = &mut Turn { now, endpoint };
        assert!(self.client.handle_event(turn, event).is_none());
        self.take_events(turn);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        self.client.handle_timeout(turn);
        self.take_events(turn);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.client.close(&mut Turn { now, endpoint }, "over");
    }

    fn is_finished(&self) -> bool {
        self.client.is_closed()
    }
}

/// Servers, and a node for a client that may use them.
struct Stage {
    sim: Sim,
    servers: Vec<NodeId>,
    node: NodeId,
}

impl Stage {
    fn new(count: usize) -> Self {
        let mut sim = Sim::new(5);
        let servers = (0..count).map(|_| {
            let server = Some(sim.server_tls(&Draft::alpns()));
            sim.add_node(NodeConfig {
                server,
                ..NodeConfig::default()
            })
        });
        let servers = servers.collect();
        let node = sim.add_node(NodeConfig::default());
        Self { sim, servers, node }
    }

    /// Starts a server.
    fn serve(&mut self, server: usize) {
        self.sim.start(self.servers[server], Server::default());
    }

    fn target(&self, server: usize) -> Target {
        let config = self.sim.client_config(&Draft::alpns());
        let mut target = Target::new(self.sim.address(self.servers[server]), SERVER_NAME, config);
        target.setup.path = Some(format!("/{server}"));
        target
    }

    /// Starts the client with these servers, in this order.
    fn roam(&mut self, servers: &[usize], resolver: Option<Resolver>) {
        let others = servers[1..].iter();
        let target = Target {
            alternatives: others.map(|&other| Arc::new(self.target(other))).collect(),
            resolver,
            ..self.target(servers[0])
        };
        let roamer = Roamer {
            client: Client::new(Arc::new(target)),
            sessions: Vec::new(),
            moves: Vec::new(),
            is_deaf: false,
        };
        self.sim.start(self.node, roamer);
        self.sim
            .with_app(self.node, |now, roamer: &mut Roamer, endpoint| {
                roamer.client.connect(&mut Turn { now, endpoint }, 0);
                roamer.take_events(&mut Turn { now, endpoint });
            });
    }

    /// Lets time pass until this second.
    fn until(&mut self, seconds: u64) {
        self.sim.run_until(Duration::from_secs(seconds), |_| false);
    }

    fn roamer(&self) -> &Roamer {
        self.sim.app(self.node)
    }

    /// Returns how many sessions each of the running servers has had.
    fn sessions_at(&self, servers: &[usize]) -> Vec<usize> {
        let all = servers.iter().map(|&server| {
            let app = self.sim.app::<Server>(self.servers[server]);
            let own = format!("/{server}");
            assert!(app.paths.iter().all(|path| *path == own), "{:?}", app.paths);
            app.paths.len()
        });
        all.collect()
    }
}

#[test]
fn a_relay_that_is_not_there_is_passed_over() {
    let mut stage = Stage::new(3);
    stage.serve(2);
    stage.roam(&[0, 1, 2], None);
    stage.until(8);
    let roamer = stage.roamer();
    assert!(roamer.client.is_ready());
    assert_eq!(roamer.sessions.len(), 1);
    // Its first and only reason is that of the first relay.
    assert_eq!(roamer.moves.len(), 2);
    assert_eq!(stage.sessions_at(&[2]), [1]);
}

#[test]
fn a_client_without_any_relay_fails_and_says_so() {
    let mut stage = Stage::new(2);
    stage.roam(&[0, 1], None);
    stage.until(60);
    let failure = stage.roamer().client.failure().expect("nobody is there");
    assert!(
        failure.starts_with("none of 2 relays serves: timed out"),
        "{failure}"
    );
}

#[test]
fn a_relay_that_dies_is_left_within_two_seconds() {
    let mut stage = Stage::new(2);
    for server in [0, 1] {
        stage.serve(server);
    }
    stage.roam(&[0, 1], None);
    stage.until(20);
    let killed_at = stage.sim.now();
    stage.sim.kill(stage.servers[0]);
    stage.until(24);
    let roamer = stage.roamer();
    let gap = roamer.sessions[1] - killed_at;
    assert!(gap < Duration::from_secs(2), "{gap:?}");
    assert_eq!(roamer.moves.len(), 1);
    // That one dies too, and the first has come back meanwhile.
    stage.serve(0);
    stage.sim.kill(stage.servers[1]);
    stage.until(28);
    assert!(stage.roamer().client.is_ready());
    assert_eq!(stage.sessions_at(&[0]), [1]);
}

#[test]
fn a_client_looks_for_a_relay_for_a_minute() {
    for (back_at, is_found) in [(40, true), (80, false)] {
        let mut stage = Stage::new(2);
        stage.serve(0);
        stage.roam(&[0, 1], None);
        stage.until(20);
        stage.sim.kill(stage.servers[0]);
        stage.until(20 + back_at);
        stage.serve(1);
        stage.until(40 + back_at);
        let roamer = stage.roamer();
        assert_eq!(roamer.client.is_ready(), is_found);
        assert_eq!(roamer.client.failure().is_some(), !is_found);
    }
}

#[test]
fn goaway_leads_to_the_next_relay_or_to_the_one_that_it_names() {
    let uri = "moqt://third";
    for (successor, list, found_at) in [
        ("", &[0, 1][..], 1),
        (uri, &[0, 1], 2),
        ("moqt://unknown", &[0, 1], 1),
        (uri, &[0], 2),
    ] {
        let mut stage = Stage::new(3);
        for server in 0..3 {
            stage.serve(server);
        }
        let third = stage.target(2);
        let resolver = Resolver::new(move |named| (named == uri).then(|| third.clone()));
        stage.roam(list, Some(resolver));
        stage.until(5);
        let first = stage.servers[0];
        stage.sim.with_app(first, |_, server: &mut Server, _| {
            server.successor = successor.to_owned();
        });
        stage.sim.shutdown(first);
        stage.until(6);
        let roamer = stage.roamer();
        assert!(roamer.client.is_ready(), "{successor} {list:?}");
        let [(_, reason)] = &roamer.moves[..] else {
            panic!("{:?}", roamer.moves);
        };
        assert_eq!(reason, "the relay is going away");
        let mut expected = [1, 0, 0];
        expected[found_at] = 1;
        assert_eq!(stage.sessions_at(&[0, 1, 2]), expected);
    }
}

#[test]
fn a_client_with_one_relay_does_not_follow_a_goaway_without_a_name() {
    let mut stage = Stage::new(1);
    stage.serve(0);
    stage.roam(&[0], Some(Resolver::new(|_| None)));
    stage.until(5);
    stage.sim.shutdown(stage.servers[0]);
    stage.until(6);
    let roamer = stage.roamer();
    assert!(roamer.is_deaf && roamer.moves.is_empty());
    assert!(roamer.client.is_ready(), "the session stays open");
}
