//! A source that is too fast for its link: what the queue and the rate come to.

use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_link::{Bitrate, Config, Delay, Queue, Rate};
use weir_moqt::transport::{Direction, StreamId, Transport as _};
use weir_quic::{App, ClientConfig, Congestion, ConnectionStats, Endpoint, Event, Handle, Limits};
use weir_sim::{NodeConfig, NodeId, SERVER_NAME, Sim};

use crate::echo::PROTOCOL;
use crate::{millis, secs};

/// Writes a kilobyte every 0.8 ms, which are 10 Mbit/s, to one stream.
struct Pump {
    config: ClientConfig,
    remote: std::net::SocketAddr,
    handle: Option<Handle>,
    stream: Option<StreamId>,
    next: Instant,
    round_trips: Vec<Duration>,
    stats: ConnectionStats,
}

impl Pump {
    fn new(sim: &Sim, server: NodeId) -> Self {
        Self {
            config: sim.client_config(&[PROTOCOL]),
            remote: sim.address(server),
            handle: None,
            stream: None,
            next: sim.now(),
            round_trips: Vec::new(),
            stats: ConnectionStats::default(),
        }
    }
}

impl App for Pump {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if let Event::Connected { handle } = event {
            let mut connection = endpoint.connection(now, handle).expect("it is there");
            self.stream = connection.open(Direction::Uni);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let handle = *self.handle.get_or_insert_with(|| {
            let connected = endpoint.connect(now, &self.config, self.remote, SERVER_NAME, 0);
            connected.expect("a good address")
        });
        while self.next <= now {
            self.next += Duration::from_micros(800);
            let Some(stream) = self.stream else { continue };
            let mut connection = endpoint.connection(now, handle).expect("it stays");
            // A full connection refuses what no longer fits, as a live source drops it.
            let _is_taken = connection
                .write(stream, &mut Bytes::from_static(&[7; 1000]))
                .is_ok();
            self.stats = connection.stats();
            self.round_trips.push(self.stats.round_trip);
        }
    }

    fn handle_shutdown(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn is_finished(&self) -> bool {
        false
    }
}

/// Takes everything and answers nothing.
struct Drain;

impl App for Drain {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        use weir_moqt::transport::Read;
        if let Event::Readable { handle, stream } = event
            && let Some(mut connection) = endpoint.connection(now, handle)
        {
            while let Read::Data(_) = connection.read(stream) {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn handle_shutdown(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn is_finished(&self) -> bool {
        false
    }
}

/// Megabits per second that a pump got through a link of 5 Mbit/s in the last 10 of 15 seconds, with a queue
/// of 500 ms and 100 ms there and back without it; and its median round trip.
fn pumped(congestion: Congestion) -> (f64, Duration) {
    let mut sim = Sim::new(7);
    let delay = Delay::fixed(millis(50)).expect("short");
    sim.set_default_link(Config {
        delay,
        ..Config::default()
    });
    let server = Some(sim.server_tls(&[PROTOCOL]));
    let drain = sim.add_node(NodeConfig {
        server,
        ..NodeConfig::default()
    });
    sim.start(drain, Drain);
    let limits = Limits {
        congestion,
        ..Limits::default()
    };
    let source = sim.add_node(NodeConfig {
        limits,
        ..NodeConfig::default()
    });
    let link = Config {
        rate: Rate::Fixed(Bitrate::from_megabits_per_second(5)),
        queue: Queue {
            bytes_max: 5_000_000 / 8 / 2,
            packets_max: 1_000_000,
        },
        delay,
        ..Config::default()
    };
    sim.set_link(source, drain, link);
    let pump = Pump::new(&sim, drain);
    sim.start(source, pump);
    sim.run_until(secs(5), |_| false);
    let before = sim.link_stats(source, drain).delivered_bytes;
    sim.run_until(secs(15), |_| false);
    let bytes = sim.link_stats(source, drain).delivered_bytes - before;
    let rate = f64::from(u32::try_from(bytes).expect("it was slow")) * 8.0 / 10.0 / 1e6;
    let mut round_trips = sim.app::<Pump>(source).round_trips.clone();
    round_trips.sort_unstable();
    (rate, round_trips[round_trips.len() / 2])
}

#[test]
fn a_controller_that_listens_to_delay_keeps_the_rate_and_not_the_queue() {
    let (rate, round_trip) = pumped(Congestion::LOW_LATENCY);
    println!("{rate} Mbit/s, {round_trip:?}");
    assert!(rate >= 4.5, "{rate}");
    assert!(round_trip < millis(165), "{round_trip:?}");
}

#[test]
fn cubic_fills_the_queue() {
    let (rate, round_trip) = pumped(Congestion::Cubic);
    println!("{rate} Mbit/s, {round_trip:?}");
    assert!(rate >= 4.5, "{rate}");
    assert!(round_trip > millis(300), "{round_trip:?}");
}
