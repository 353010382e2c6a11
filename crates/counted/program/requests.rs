//! Requests over HTTP/3.
//!
//! A load client requests 15 KB repeatedly, on ten connections, in virtual time, so every run executes the same code.
//! Counted is [`ask`], all that the client does, or [`serve`], all that the server does: from the arrival of packets to
//! the sealed packets that answer them. Handshakes and the path between the two are excluded.
//!
//! Prints how many requests were answered. Fails if one was not.

use std::{
    error::Error,
    hint::black_box,
    io::{self, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

use weir_http3::{
    Limits,
    client::{Client, Greeting, Load, Target, transport_limits},
    server::{self, Server, Site, SiteLimits},
};
use weir_quic::{App, EndpointConfig};
use weir_sim::{
    SERVER_NAME, Sim,
    driven::{self, Driven},
};

/// Runs the requests.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
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
fn ask(now: Instant, client: &mut Driven<Client>) -> bool {
    let has_more = client.turn(now);
    black_box(has_more)
}

/// A turn of the server, counted in the same way.
#[inline(never)]
fn serve(now: Instant, server: &mut Driven<Server>) -> bool {
    let has_more = server.turn(now);
    black_box(has_more)
}

/// A turn of either, not counted.
fn warm_up<A: App>(now: Instant, side: &mut Driven<A>) -> bool {
    side.turn(now)
}

/// Runs a turn of `from`, and delivers its packets to the other side.
fn exchange<A: App, B: App>(
    now: Instant,
    from: &mut Driven<A>,
    to: &mut Driven<B>,
    turn: fn(Instant, &mut Driven<A>) -> bool,
) {
    let mut has_more = true;
    while has_more {
        has_more = turn(now, from);
        from.send(&mut to.arrived);
    }
}

fn client_side(sim: &Sim) -> Result<Driven<Client>, Box<dyn Error>> {
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
    let client = Client::new(load, config, Limits::default(), sim.now())?;
    let endpoint = EndpointConfig {
        limits: transport_limits(DURATION),
        ..endpoint(2)
    };
    Ok(Driven::new(client, CLIENT.into(), endpoint)?)
}

fn server_side(sim: &Sim) -> Result<Driven<Server>, Box<dyn Error>> {
    let site = Arc::new(Site::new(SiteLimits::default()));
    let server = Server::new(server::Config::default(), site);
    let endpoint = EndpointConfig {
        server: Some(sim.server_tls(&[weir_h3::ALPN])),
        ..endpoint(3)
    };
    Ok(Driven::new(server, SERVER.into(), endpoint)?)
}

/// Returns the configuration of a client's endpoint.
fn endpoint(seed: u8) -> EndpointConfig {
    let mut config = driven::endpoint(seed, PACKET_BYTES);
    config.packets.receive_bytes_max = PACKET_BYTES;
    config
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
