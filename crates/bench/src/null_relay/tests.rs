//! Publishers that offer the same track, or leave without PUBLISH_DONE, at the null relay.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;

use super::*;
use crate::clock::any_instant;
use crate::stories::world::{CLIENTS, RELAY, endpoints, turn};
use weir_client::clients::Clients;
use weir_client::turn::Turn;
use weir_moqt::draft::Draft;

/// A null relay and its clients.
struct Table {
    now: Instant,
    clients: Endpoint,
    server: Endpoint,
    relay: NullRelay,
    peers: Clients,
    /// The session events of each client.
    heard: Vec<Vec<SessionEvent>>,
}

impl Table {
    fn new(count: usize) -> Self {
        let now = any_instant();
        let (target, mut clients, server) = endpoints(Draft::ALL[0].alpn());
        let mut peers = Clients::new(target, count);
        let turn = &mut Turn {
            now,
            endpoint: &mut clients,
        };
        for one in 0..count {
            peers.connect(turn, one);
        }
        let mut table = Self {
            now,
            clients,
            server,
            relay: NullRelay::new(),
            peers,
            heard: vec![Vec::new(); count],
        };
        table.deliver_all();
        table
    }

    /// Runs for 100 ms, in which every message arrives.
    fn deliver_all(&mut self) {
        for _ in 0..100 {
            self.now += Duration::from_millis(1);
            self.clients.handle_timeout(self.now);
            while let Some(event) = self.clients.poll_event() {
                let number = self.peers.number_of(&event).unwrap();
                let turn = &mut Turn {
                    now: self.now,
                    endpoint: &mut self.clients,
                };
                self.peers[number].handle_event(turn, event);
            }
            for (number, heard) in self.heard.iter_mut().enumerate() {
                heard.extend(std::iter::from_fn(|| self.peers[number].poll_event()));
            }
            turn(self.now, &mut self.server, &mut self.relay);
            carry(self.now, &mut self.clients, (&mut self.server, CLIENTS));
            carry(self.now, &mut self.server, (&mut self.clients, RELAY));
        }
    }

    /// Lets one client act, and delivers the messages that follow.
    fn act<R>(
        &mut self,
        client: usize,
        action: impl FnOnce(&mut Session, &mut Connection<'_>) -> R,
    ) -> R {
        let turn = &mut Turn {
            now: self.now,
            endpoint: &mut self.clients,
        };
        let (session, mut connection) = self.peers[client].open(turn).unwrap();
        let done = action(session, &mut connection);
        self.deliver_all();
        done
    }

    fn publish(&mut self, client: usize) -> RequestId {
        let (parameters, properties) = (Parameters::default(), Properties::EMPTY);
        let published = self.act(client, |session, connection| {
            session.publish(connection, track(), 7, parameters, properties)
        });
        published.unwrap()
    }

    fn subscribe(&mut self, client: usize) -> RequestId {
        let subscribed = self.act(client, |session, connection| {
            session.subscribe(connection, track(), Parameters::default())
        });
        subscribed.unwrap()
    }

    /// Counts how often a client received an acceptance of its request, and an end of it.
    fn answers(&self, client: usize, id: RequestId) -> (usize, usize) {
        let (mut accepted, mut done) = (0, 0);
        for event in &self.heard[client] {
            if let SessionEvent::Accepted { id: one, .. } = event {
                accepted += usize::from(*one == id);
            }
            if let SessionEvent::Done { id: one, .. } = event {
                done += usize::from(*one == id);
            }
        }
        (accepted, done)
    }

    fn expect_nobody_lost(&self) {
        assert!(self.peers.iter().all(|peer| peer.failure().is_none()));
    }
}

fn carry(now: Instant, from: &mut Endpoint, (to, address): (&mut Endpoint, SocketAddr)) {
    while from.fill(now) | !from.outbox().is_empty() {
        for packet in from.outbox().iter() {
            to.handle_packet(now, 0, address, None, None, BytesMut::from(packet.data));
        }
        from.outbox().clear();
    }
}

fn track() -> FullTrackName {
    "perf-audio--1".parse().unwrap()
}

#[test]
fn whoever_waits_for_a_track_is_accepted_once_by_two_publishers() {
    let mut table = Table::new(5);
    let subscription = table.subscribe(0);
    let first = table.publish(1);
    assert_eq!(table.answers(0, subscription), (1, 0));
    let second = table.publish(2);
    assert_eq!(table.answers(0, subscription), (1, 0));
    assert_eq!(table.relay.upstream.len(), 2);
    // The second publisher has replaced the first, so the end of the first goes unnoticed.
    table.act(1, |session, connection| {
        session.cancel(connection, first, ResetCode::CANCELLED);
    });
    assert_eq!(table.answers(0, subscription), (1, 0));
    // The second publisher leaves without PUBLISH_DONE, and its state is removed.
    table.act(2, |session, connection| {
        session.cancel(connection, second, ResetCode::CANCELLED);
    });
    assert_eq!(table.answers(0, subscription), (1, 1));
    assert!(table.relay.upstream.is_empty());
    table.expect_nobody_lost();
    // A later subscriber waits for the next publisher.
    let again = table.subscribe(3);
    assert_eq!(table.answers(3, again), (0, 0));
    table.publish(4);
    assert_eq!(table.answers(3, again), (1, 0));
}

#[test]
fn an_answer_that_comes_after_a_publish_changes_nothing() {
    for is_accepted in [true, false] {
        let mut table = Table::new(3);
        let namespace = track().namespace;
        let offered = table.act(1, |session, connection| {
            session.publish_namespace(connection, namespace, Parameters::default())
        });
        assert!(offered.is_ok());
        let subscription = table.subscribe(0);
        let mut asked = None;
        for event in &table.heard[1] {
            if let SessionEvent::Request { id, request } = event {
                assert!(matches!(request, Request::Subscribe(_)), "{request:?}");
                asked = Some(*id);
            }
        }
        let asked = asked.expect("the namespace is announced");
        table.publish(2);
        assert_eq!(table.answers(0, subscription), (1, 0));
        table.act(1, |session, connection| {
            if is_accepted {
                let ok = SubscribeOk {
                    track_alias: 8,
                    parameters: Parameters::default(),
                    properties: Properties::EMPTY,
                };
                session.subscribe_ok(connection, asked, ok);
            } else {
                let error = RequestError::new(RequestErrorCode::UNAUTHORIZED, "too late");
                session.request_error(connection, asked, error);
            }
        });
        assert_eq!(table.answers(0, subscription), (1, 0), "{is_accepted}");
        table.expect_nobody_lost();
    }
}
