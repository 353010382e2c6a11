//! A role with sessions to two servers reconnects to one that restarts. The other session stays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_client::backoff::Backoff;
use weir_client::client::Client;
use weir_client::peer::Peer;
use weir_client::target::Target;
use weir_client::turn::Turn;
use weir_moqt::draft::Draft;
use weir_moqt::error::SessionError;
use weir_moqt::limits::Limits;
use weir_moqt::message::Setup;
use weir_moqt::session::{Event as SessionEvent, Side};
use weir_quic::{App, Endpoint, Event, Handle};
use weir_sim::{NodeConfig, NodeId, SERVER_NAME, Sim};

/// A server that accepts every session and does nothing else.
#[derive(Debug, Default)]
struct Server {
    peers: BTreeMap<Handle, Peer>,
}

impl App for Server {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let turn = &mut Turn { now, endpoint };
        let handle = event.handle();
        if let Event::Connected { .. } = event {
            let mut connection = endpoint.connection(now, handle).expect("it is connected");
            let setup = Setup {
                implementation: Some("server".to_owned()),
                ..Setup::default()
            };
            let peer = Peer::start(now, &mut connection, Side::Server, setup, Limits::default());
            self.peers.insert(handle, peer.expect("a known draft"));
        } else if let Some(peer) = self.peers.get_mut(&handle) {
            assert!(peer.handle_event(turn, event).is_none());
            while peer.poll_event().is_some() {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        for peer in self.peers.values_mut() {
            peer.close(turn, SessionError::NO_ERROR, "the server restarts");
        }
    }

    fn is_finished(&self) -> bool {
        false
    }
}

/// A role that keeps one session with each of its servers.
#[derive(Debug)]
struct Upstreams {
    links: Vec<Link>,
}

#[derive(Debug)]
struct Link {
    client: Client,
    backoff: Backoff,
    /// When to connect, while there is no connection.
    connect_at: Option<Instant>,
    /// Sessions established.
    sessions: u64,
    failures: Vec<String>,
}

impl Link {
    fn take_session_events(&mut self, now: Instant) {
        while let Some(event) = self.client.poll_event() {
            if let SessionEvent::Ready { .. } = event {
                self.sessions += 1;
                self.backoff.reset();
            }
        }
        if let Some(failure) = self.client.failure()
            && self.connect_at.is_none()
        {
            self.failures.push(failure.to_owned());
            self.connect_at = Some(now + self.backoff.pause());
        }
    }
}

impl App for Upstreams {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let turn = &mut Turn { now, endpoint };
        let handle = Some(event.handle());
        let mut links = self.links.iter_mut();
        if let Some(link) = links.find(|link| link.client.handle() == handle) {
            assert!(link.client.handle_event(turn, event).is_none());
            link.take_session_events(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let links = self.links.iter();
        let times = links.flat_map(|link| [link.connect_at, link.client.poll_timeout()]);
        times.flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        for link in &mut self.links {
            if link.connect_at.take_if(|at| *at <= now).is_some() {
                link.client.connect(turn, 0);
            }
            link.client.handle_timeout(turn);
            link.take_session_events(now);
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        for link in &mut self.links {
            link.client.close(turn, "the role stops");
        }
    }

    fn is_finished(&self) -> bool {
        self.links.iter().all(|link| link.client.is_closed())
    }
}

fn server(sim: &mut Sim) -> NodeId {
    let tls = Some(sim.server_tls(&Draft::alpns()));
    let node = sim.add_node(NodeConfig {
        server: tls,
        ..NodeConfig::default()
    });
    sim.start(node, Server::default());
    node
}

/// Returns two servers, and a role that keeps a session with each.
fn stage() -> (Sim, [NodeId; 2], NodeId) {
    let mut sim = Sim::new(11);
    let servers = [server(&mut sim), server(&mut sim)];
    // Pings keep idle sessions alive.
    let limits = weir_quic::Limits {
        keep_alive: Some(Duration::from_secs(5)),
        ..weir_quic::Limits::default()
    };
    let role = sim.add_node(NodeConfig {
        limits,
        ..NodeConfig::default()
    });
    let links = servers.map(|server| {
        let config = sim.client_config(&Draft::alpns());
        let target = Target::new(sim.address(server), SERVER_NAME, config);
        Link {
            client: Client::new(Arc::new(target)),
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(10), 3),
            connect_at: Some(sim.now()),
            sessions: 0,
            failures: Vec::new(),
        }
    });
    sim.start(
        role,
        Upstreams {
            links: links.into(),
        },
    );
    (sim, servers, role)
}

fn sessions(sim: &Sim, role: NodeId) -> Vec<(u64, bool)> {
    let links = sim.app::<Upstreams>(role).links.iter();
    let sessions = links.map(|link| (link.sessions, link.client.is_ready()));
    sessions.collect()
}

#[test]
fn a_server_that_restarts_gets_its_session_back_and_the_other_keeps_its_own() {
    let (mut sim, servers, role) = stage();
    sim.run_until(Duration::from_secs(1), |_| false);
    assert_eq!(sessions(&sim, role), [(1, true), (1, true)]);
    let links = &sim.app::<Upstreams>(role).links;
    assert_eq!(links[0].client.implementation(), Some("server"));
    assert!(links[0].client.handshake_time().is_some() && links[0].client.setup_time().is_some());

    sim.shutdown(servers[0]);
    sim.run_until(Duration::from_secs(3), |_| false);
    assert_eq!(sessions(&sim, role), [(2, true), (1, true)]);
    let links = &sim.app::<Upstreams>(role).links;
    let expected = "the peer closed the session with code 0x0: \"the server restarts\"";
    assert_eq!(links[0].failures, [expected]);
}

#[test]
fn a_server_that_is_gone_for_long_gets_its_session_back_too() {
    let (mut sim, servers, role) = stage();
    sim.run_until(Duration::from_secs(1), |_| false);
    sim.kill(servers[0]);
    sim.run_until(Duration::from_mins(10), |_| false);
    let links = &sim.app::<Upstreams>(role).links;
    assert_eq!(links[0].sessions, 1);
    let gone = "timed out: the peer did not answer";
    assert!(links[0].failures.len() > 3);
    assert!(links[0].failures.iter().all(|failure| failure == gone));

    sim.start(servers[0], Server::default());
    sim.run_until(Duration::from_mins(12), |_| false);
    assert_eq!(sessions(&sim, role), [(2, true), (1, true)]);
}
