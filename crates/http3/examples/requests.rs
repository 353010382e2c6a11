//! Requests over HTTP/3 under callgrind, which counts their instructions (`make instructions`).
//!
//! A load client requests 15 KB repeatedly, on ten connections, in virtual time, so every run executes the same code.
//! Counted is [`ask`], all that the client does, or [`serve`], all that the server does: from the arrival of packets to
//! the sealed packets that answer them. Handshakes and the path between the two are excluded.
//!
//! Prints how many requests were answered. Fails if one was not.

use std::{
    error::Error,
    io::{self, Write as _},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use weir_http3::{
    Limits,
    client::{Client, Greeting, Load, Target, transport_limits},
    server::{self, Server, Site, SiteLimits},
};
use weir_quic::{App, EcnCodepoint, Endpoint, EndpointConfig, Packets, TimeSource};
use weir_sim::{SERVER_NAME, Sim};

fn main() -> Result<(), Box<dyn Error>> {
    let sim = Sim::new(1);
    let mut time = Duration::ZERO;
    let mut client = client_side(&sim)?;
    let mut server = server_side(&sim)?;
    while !client.app.is_finished() {
        time += HALF_ROUND_TRIP;
        let now = sim.instant(time);
        let is_warm = client.app.figures().successes >= WARM_UP;
        exchange(
            now,
            &mut client,
            &mut server,
            if is_warm { ask } else { warm_up },
        );
        time += HALF_ROUND_TRIP;
        let now = sim.instant(time);
        exchange(
            now,
            &mut server,
            &mut client,
            if is_warm { serve } else { warm_up },
        );
        if time > DURATION {
            break;
        }
    }
    let figures = client.app.figures();
    let (successes, counted) = (figures.successes, figures.successes - WARM_UP);
    writeln!(io::stdout(), r#"{{"requests":{counted}}}"#)?;
    if successes != REQUESTS || figures.failed() > 0 {
        return Err(format!("{successes} of {REQUESTS} requests succeeded").into());
    }
    Ok(())
}

/// A turn of the load client. Callgrind counts while this function runs, so it must not be inlined, and its call must
/// not become a jump.
#[inline(never)]
fn ask(now: Instant, client: &mut Side<Client>) -> bool {
    let has_more = client.turn(now);
    client.turns += 1;
    has_more
}

/// A turn of the server, counted in the same way.
#[inline(never)]
fn serve(now: Instant, server: &mut Side<Server>) -> bool {
    let has_more = server.turn(now);
    server.turns += 1;
    has_more
}

/// A turn of either, not counted.
fn warm_up<A: App>(now: Instant, side: &mut Side<A>) -> bool {
    side.turn(now)
}

/// Runs a turn of `from`, and delivers its packets to the other side.
fn exchange<A: App, B>(
    now: Instant,
    from: &mut Side<A>,
    to: &mut Side<B>,
    turn: fn(Instant, &mut Side<A>) -> bool,
) {
    let mut has_more = true;
    while has_more {
        has_more = turn(now, from);
        for packet in from.endpoint.outbox().iter() {
            let size = packet.segment_size.unwrap_or(packet.data.len()).max(1);
            // The packets of a train are contiguous, as in a host.
            let mut train = BytesMut::from(packet.data);
            while !train.is_empty() {
                let data = train.split_to(size.min(train.len()));
                to.arrived.push(Arrived {
                    remote: from.address,
                    ecn: packet.ecn,
                    data,
                });
            }
        }
        from.endpoint.outbox().clear();
    }
}

/// The client or the server, with the packets that have arrived for it.
struct Side<A> {
    app: A,
    endpoint: Endpoint,
    address: SocketAddr,
    arrived: Vec<Arrived>,
    turns: u64,
}

struct Arrived {
    remote: SocketAddr,
    ecn: Option<EcnCodepoint>,
    data: BytesMut,
}

impl<A: App> Side<A> {
    /// Runs a turn as a host does: packets, timers, events, packets. Returns whether more packets are to be sent.
    #[inline]
    fn turn(&mut self, now: Instant) -> bool {
        for Arrived { remote, ecn, data } in self.arrived.drain(..) {
            self.endpoint.handle_packet(now, 0, remote, None, ecn, data);
        }
        self.tell(now);
        self.endpoint.handle_timeout(now);
        self.tell(now);
        if self.app.poll_timeout().is_some_and(|due| due <= now) {
            self.app.handle_timeout(now, &mut self.endpoint);
        }
        self.endpoint.fill(now)
    }

    fn tell(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            self.app.handle_event(now, &mut self.endpoint, event);
        }
    }
}

fn client_side(sim: &Sim) -> Result<Side<Client>, Box<dyn Error>> {
    let load = Load {
        target: Target {
            address: SERVER.into(),
            server_name: SERVER_NAME.to_owned(),
            authority: SERVER_NAME.to_owned(),
            paths: vec!["/15k".to_owned()],
        },
        connections: CONNECTIONS,
        requests_per_connection: None,
        requests_at_once: 1,
        requests_max: Some(REQUESTS),
        rate_per_second: None,
        duration: DURATION,
        handshake_timeout: DURATION,
        expected_bytes: None,
        greeting: Greeting::Patient,
        sockets: 1,
    };
    let config = sim.client_config(&[weir_h3::ALPN]);
    Ok(Side {
        app: Client::new(load, config, Limits::default(), sim.now())?,
        endpoint: Endpoint::new(EndpointConfig {
            limits: transport_limits(DURATION),
            ..endpoint(2)
        })?,
        address: CLIENT.into(),
        arrived: Vec::new(),
        turns: 0,
    })
}

fn server_side(sim: &Sim) -> Result<Side<Server>, Box<dyn Error>> {
    let site = Arc::new(Site::new(SiteLimits::default()));
    Ok(Side {
        app: Server::new(server::Config::default(), site),
        endpoint: Endpoint::new(EndpointConfig {
            server: Some(sim.server_tls(&[weir_h3::ALPN])),
            ..endpoint(3)
        })?,
        address: SERVER.into(),
        arrived: Vec::new(),
        turns: 0,
    })
}

fn endpoint(seed: u8) -> EndpointConfig {
    EndpointConfig {
        limits: weir_quic::Limits::default(),
        packets: Packets {
            send_bytes_fixed: Some(PACKET_BYTES),
            receive_bytes_max: PACKET_BYTES,
            ..Packets::default()
        },
        server: None,
        seed: [seed; 32],
        time_source: Arc::new(Epoch),
        qlog: None,
        segmentation_offload: true,
        handshake_counts: weir_quic::OriginCounts::default(),
    }
}

/// The time of day, which only address tokens need.
struct Epoch;

impl TimeSource for Epoch {
    fn now(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH
    }
}

const SERVER: ([u8; 4], u16) = ([10, 0, 0, 1], 4433);
const CLIENT: ([u8; 4], u16) = ([10, 0, 0, 2], 4433);
const HALF_ROUND_TRIP: Duration = Duration::from_micros(100);
const DURATION: Duration = Duration::from_mins(1);
const PACKET_BYTES: u16 = 1350;
const CONNECTIONS: usize = 10;
/// Requests before counting, so that the congestion windows have grown.
const WARM_UP: u64 = 1000;
const REQUESTS: u64 = 3000;
