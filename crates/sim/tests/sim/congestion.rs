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

/// Takes everything, counts it and answers nothing.
#[derive(Default)]
struct Drain {
    bytes: u64,
}

impl App for Drain {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        use weir_moqt::transport::Read;
        if let Event::Readable { handle, stream } = event
            && let Some(mut connection) = endpoint.connection(now, handle)
        {
            while let Read::Data(data) = connection.read(stream) {
                self.bytes += data.len() as u64;
            }
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

/// Sources that share a link of 5 Mbit/s with a queue of 500 ms, on a way of 100 ms there and back.
struct Meeting {
    sim: Sim,
    sources: Vec<NodeId>,
    drains: Vec<NodeId>,
}

impl Meeting {
    fn new(controllers: &[Congestion]) -> Self {
        let mut sim = Sim::new(7);
        let delay = Delay::fixed(millis(50)).expect("short");
        sim.set_default_link(Config {
            delay,
            ..Config::default()
        });
        let (mut sources, mut drains) = (Vec::new(), Vec::new());
        for congestion in controllers {
            let server = Some(sim.server_tls(&[PROTOCOL]));
            drains.push(sim.add_node(NodeConfig {
                server,
                ..NodeConfig::default()
            }));
            let limits = Limits {
                congestion: *congestion,
                ..Limits::default()
            };
            sources.push(sim.add_node(NodeConfig {
                limits,
                ..NodeConfig::default()
            }));
        }
        let pairs: Vec<_> = sources
            .iter()
            .copied()
            .zip(drains.iter().copied())
            .collect();
        let link = Config {
            rate: Rate::Fixed(Bitrate::from_megabits_per_second(5)),
            queue: Queue {
                bytes_max: 5_000_000 / 8 / 2,
                packets_max: 1_000_000,
            },
            delay,
            ..Config::default()
        };
        sim.share_link(&pairs, link);
        for (source, drain) in pairs {
            sim.start(drain, Drain::default());
            let pump = Pump::new(&sim, drain);
            sim.start(source, pump);
        }
        Self {
            sim,
            sources,
            drains,
        }
    }

    /// Megabits per second that each source got through from one second to another.
    fn rates(&mut self, from: u64, until: u64) -> Vec<f64> {
        let bytes = |meeting: &Self| -> Vec<u64> {
            let drains = meeting.drains.iter();
            let bytes = drains.map(|drain| meeting.sim.app::<Drain>(*drain).bytes);
            bytes.collect()
        };
        self.sim.run_until(secs(from), |_| false);
        let before = bytes(self);
        self.sim.run_until(secs(until), |_| false);
        let after = bytes(self);
        let rate = |(before, after): (u64, u64)| {
            let bits = u32::try_from((after - before) * 8 / (until - from)).expect("it was slow");
            f64::from(bits) / 1e6
        };
        before.into_iter().zip(after).map(rate).collect()
    }

    /// The median of the round trips of the first source.
    fn round_trip(&self) -> Duration {
        let pump = self.sim.app::<Pump>(self.sources[0]);
        let mut round_trips = pump.round_trips.clone();
        round_trips.sort_unstable();
        round_trips[round_trips.len() / 2]
    }
}

#[test]
fn a_controller_that_listens_to_delay_keeps_the_rate_and_not_the_queue() {
    let mut meeting = Meeting::new(&[Congestion::LOW_LATENCY]);
    let (rate, round_trip) = (meeting.rates(5, 15)[0], meeting.round_trip());
    println!("{rate} Mbit/s, {round_trip:?}");
    assert!(rate >= 4.5, "{rate}");
    // 100 ms, the 60 ms that it aims at, and a little.
    assert!(round_trip < millis(165), "{round_trip:?}");
}

#[test]
fn cubic_fills_the_queue() {
    let mut meeting = Meeting::new(&[Congestion::Cubic]);
    let (rate, round_trip) = (meeting.rates(5, 15)[0], meeting.round_trip());
    println!("{rate} Mbit/s, {round_trip:?}");
    assert!(rate >= 4.5, "{rate}");
    assert!(round_trip > millis(300), "{round_trip:?}");
}

/// They keep the queue short together, but nothing makes their shares equal: each takes the shortest round trip that it
/// has seen for that of an empty queue, and who has seen a longer one yields less.
#[test]
fn two_that_listen_to_delay_keep_the_queue_short_together() {
    let mut meeting = Meeting::new(&[Congestion::LOW_LATENCY; 2]);
    let (rates, round_trip) = (meeting.rates(10, 40), meeting.round_trip());
    println!("{rates:?} Mbit/s, {round_trip:?}");
    assert!(rates[0] + rates[1] >= 4.5, "{rates:?}");
    assert!(rates[0].min(rates[1]) >= 0.2, "{rates:?}");
    assert!(round_trip < millis(200), "{round_trip:?}");
}

/// Whoever keeps the queue at 60 ms finds it at 500 ms, where the other keeps it, and yields for ever.
#[test]
fn one_that_listens_to_delay_yields_to_one_that_fills_the_queue() {
    let mut meeting = Meeting::new(&[Congestion::LOW_LATENCY, Congestion::Cubic]);
    let rates = meeting.rates(10, 40);
    println!("{rates:?} Mbit/s, {:?}", meeting.round_trip());
    assert!(rates[0] + rates[1] >= 4.5, "{rates:?}");
    assert!(rates[1] > rates[0], "{rates:?}");
    assert!(rates[0] >= 0.05, "it goes on: {rates:?}");
}
