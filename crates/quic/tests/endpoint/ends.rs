//! How connections end, and which events their roles get.

use std::time::Duration;

use bytes::Bytes;
use weir_quic::{Event, Limits, Lost};
use weir_transport::{Direction, Transport as _};

use crate::pair::{DELAY, Pair, Setup, Side, losses};

#[test]
fn a_peer_that_closes_says_why() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    pair.at_server(server).close(0x17, b"enough");
    assert!(pair.server.connection(pair.now, server).is_none());
    pair.pass(DELAY * 2);
    let lost = Lost::Application {
        code: 0x17,
        reason: "enough".to_owned(),
    };
    assert_eq!(losses(&pair.take_client()), [lost]);
    assert!(pair.client.connection(pair.now, client).is_none());
    pair.pass(Duration::from_secs(3));
    assert!(
        pair.take_server().is_empty(),
        "who closes hears nothing more"
    );
    assert_eq!(
        (pair.client.connections(), pair.server.connections()),
        (0, 0)
    );
}

#[test]
fn all_can_be_closed_at_once() {
    let mut pair = Pair::new();
    for _ in 0..5 {
        pair.connect();
    }
    pair.start();
    pair.server.close_all(pair.now, 3, b"bye");
    pair.client.close_all(pair.now, 4, b"bye");
    // The server keeps a new connection whose first packet was a close until the idle timeout.
    pair.pass(Duration::from_secs(40));
    assert_eq!(
        (pair.client.connections(), pair.server.connections()),
        (0, 0)
    );
    assert!(pair.take_client().is_empty());
}

#[test]
fn a_close_during_the_handshake_frees_everything() {
    // Closed by the client before it received anything, and by the server in the middle.
    let mut pair = Pair::with(Setup {
        server: Limits {
            handshakes_max: 1,
            ..Limits::default()
        },
        ..Setup::default()
    });
    let client = pair.start();
    pair.pass(Duration::ZERO);
    pair.at_client(client).close(1, b"changed my mind");
    pair.pass(Duration::from_secs(40));
    assert_eq!(
        (pair.client.connections(), pair.server.connections()),
        (0, 0)
    );

    pair.start();
    pair.pass(DELAY);
    assert_eq!(pair.server.connections(), 1);
    pair.server.close_all(pair.now, 1, b"not you");
    pair.pass(DELAY);
    assert!(matches!(
        &losses(&pair.take_client())[..],
        [Lost::Transport(_)]
    ));
    pair.pass(Duration::from_secs(40));
    assert_eq!(
        (pair.client.connections(), pair.server.connections()),
        (0, 0)
    );
    pair.take_server();
    pair.connect();
    assert_eq!(pair.server.counters().refused_connections, 0);
}

#[test]
fn a_loss_is_told_even_if_the_connection_is_used_before() {
    let mut pair = Pair::new();
    let (_, server) = pair.connect();
    pair.wire = Box::new(|_| false);
    pair.pass(Duration::from_secs(25));
    assert!(pair.take_server().is_empty());
    // The timeout and a fan-out happen in the same turn.
    pair.now += Duration::from_secs(10);
    while pair.server.connections() == 1
        && pair.server.poll_timeout().is_some_and(|at| at <= pair.now)
    {
        pair.server.handle_timeout(pair.now);
        if let Some(mut connection) = pair.server.connection(pair.now, server) {
            let _sent = connection.send_datagram(Bytes::from_static(b"x"), None);
        }
        pair.server.fill_from(pair.now, server);
    }
    assert_eq!(pair.server.connections(), 0);
    let event = pair.server.poll_event();
    assert!(
        matches!(event, Some(Event::Lost { handle, reason: Lost::TimedOut }) if handle == server),
        "{event:?}"
    );
}

#[test]
fn handles_are_never_used_again() {
    let mut pair = Pair::new();
    let (client, server) = pair.connect();
    pair.at_client(client).close(0, b"");
    pair.pass(Duration::from_secs(3));
    let (next_client, next_server) = pair.connect();
    assert_eq!(
        (next_client.index(), next_server.index()),
        (client.index(), server.index())
    );
    assert!(next_client != client && next_server != server);
    assert!(pair.client.connection(pair.now, client).is_none());
    // Late calls with an old handle do nothing.
    pair.client.fill_from(pair.now, client);
    pair.at_client(next_client).open(Direction::Uni).unwrap();
}

#[test]
fn a_peer_that_lost_its_state_resets() {
    let mut pair = Pair::new();
    let (client, _) = pair.connect();
    let fresh = Pair::new();
    pair.server = fresh.server;
    pair.at_client(client)
        .send_datagram(Bytes::from(vec![0; 100]), None)
        .unwrap();
    pair.pass(DELAY * 4);
    assert_eq!(losses(&pair.take_client()), [Lost::Reset]);
    assert_eq!(pair.client.connections(), 0);
}

#[test]
fn no_shared_protocol_is_told_to_both() {
    let mut pair = Pair::with(Setup {
        server_protocol: "other",
        ..Setup::default()
    });
    pair.start();
    pair.pass(Duration::from_secs(5));
    assert_eq!(losses(&pair.take_client()), [Lost::NoApplicationProtocol]);
    // The server refuses in its first answer, before there is a connection.
    assert_eq!(pair.server.connections(), 0);
    assert_eq!(pair.server.counters().handshakes_failed, 1);
}

#[test]
fn a_refused_certificate_is_told_to_both() {
    let mut pair = Pair::new();
    let remote = pair.server_address;
    pair.client
        .connect(pair.now, &pair.config, remote, "elsewhere", 0)
        .unwrap();
    pair.pass(Duration::from_secs(5));
    let client = losses(&pair.take_client());
    let server = losses(&pair.take_server());
    let [client] = &client[..] else {
        panic!("{client:?}")
    };
    let [server] = &server[..] else {
        panic!("{server:?}")
    };
    assert_eq!(
        client.to_string(),
        "TLS handshake failed: this side reports: bad certificate: the certificate is not valid for the name elsewhere, only for localhost; use that name"
    );
    assert!(server.to_string().starts_with(
        "TLS handshake failed: the peer reports: bad certificate: \"invalid peer certificate: certificate not valid"
    ));
}

#[test]
fn a_peer_that_is_not_there_times_out() {
    let mut pair = Pair::with(Setup {
        client: Limits {
            idle_timeout: Duration::from_secs(4),
            ..Limits::default()
        },
        ..Setup::default()
    });
    pair.wire = Box::new(|flight| flight.to == Side::Client);
    pair.start();
    pair.pass(Duration::from_secs(30));
    assert_eq!(losses(&pair.take_client()), [Lost::TimedOut]);
    assert_eq!(pair.client.connections(), 0);
    assert_eq!(pair.client.counters().handshakes_failed, 1);
}
