//! A source that is too fast for its link: how queue and rate develop.

use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_link::{Bitrate, Config, Delay, Queue, Rate};
use weir_quic::{App, ClientConfig, Congestion, ConnectionStats, Endpoint, Event, Handle, Limits};
use weir_sim::{NodeConfig, NodeId, SERVER_NAME, Sim};
use weir_transport::{Direction, StreamId, Transport as _};

use crate::echo::PROTOCOL;
use crate::{millis, secs};

/// Writes a kilobyte every 0.8 ms, which is 10 Mbit/s, to one stream.
struct Pump {
    config: ClientConfig,
    remote: std::net::SocketAddr,
    handle: Option<Handle>,
    stream: Option<StreamId>,
    next: Instant,
    /// The end of sending.
    until: Instant,
    round_trips: Vec<(Instant, Duration)>,
    stats: ConnectionStats,
}

impl Pump {
    fn new(sim: &Sim, server: NodeId, until: u64) -> Self {
        Self {
            config: sim.client_config(&[PROTOCOL]),
            remote: sim.address(server),
            handle: None,
            stream: None,
            next: sim.now(),
            until: sim.instant(secs(until.min(1 << 20))),
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
        (self.next < self.until).then_some(self.next)
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
            // A full connection refuses what does not fit, and a live source drops it.
            let _is_taken = connection
                .write(stream, &mut Bytes::from_static(&[7; 1000]))
                .is_ok();
            self.stats = connection.stats();
            self.round_trips.push((now, self.stats.round_trip));
        }
    }

    fn handle_shutdown(&mut self, _now: Instant, _endpoint: &mut Endpoint) {}

    fn is_finished(&self) -> bool {
        false
    }
}

/// Receives everything, counts it and sends no response.
#[derive(Default)]
struct Drain {
    bytes: u64,
}

impl App for Drain {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        use weir_transport::Read;
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

/// The plan of a source: its controller, and the seconds in which it has data to send.
#[derive(Clone, Copy)]
struct SourcePlan {
    congestion: Congestion,
    from: u64,
    until: u64,
}

/// Returns a source that begins at this second and does not end.
fn from(from: u64, congestion: Congestion) -> SourcePlan {
    SourcePlan {
        congestion,
        from,
        until: u64::MAX,
    }
}

/// Sources that share a link of 5 Mbit/s with a queue of 500 ms, on a path with a round trip of 100 ms.
struct Meeting {
    sim: Sim,
    sources: Vec<NodeId>,
    drains: Vec<NodeId>,
}

impl Meeting {
    /// The seed sets when within its second each source begins, and the random choices of QUIC.
    fn new(seed: u64, plans: &[SourcePlan]) -> Self {
        let mut sim = Sim::new(seed);
        let delay = Delay::fixed(millis(50)).expect("short");
        sim.set_default_link(Config {
            delay,
            ..Config::default()
        });
        let (mut sources, mut drains) = (Vec::new(), Vec::new());
        for plan in plans {
            let server = Some(sim.server_tls(&[PROTOCOL]));
            drains.push(sim.add_node(NodeConfig {
                server,
                ..NodeConfig::default()
            }));
            let limits = Limits {
                congestion: plan.congestion,
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
        for (place, (plan, (source, drain))) in (1..).zip(plans.iter().zip(pairs)) {
            sim.start(drain, Drain::default());
            let plan = *plan;
            let begin = secs(plan.from) + millis((seed * 131 + place * 57) % 1000);
            sim.at(begin, move |sim| {
                let pump = Pump::new(sim, drain, plan.until);
                sim.start(source, pump);
            });
        }
        Self {
            sim,
            sources,
            drains,
        }
    }

    /// Returns the megabits per second of each source between two seconds.
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

    /// Returns the median round trip of the first source between two seconds.
    fn round_trip(&self, from: u64, until: u64) -> Duration {
        let pump = self.sim.app::<Pump>(self.sources[0]);
        let between = self.sim.instant(secs(from))..self.sim.instant(secs(until));
        let of_that_time = |(at, _): &&(Instant, Duration)| between.contains(at);
        let mut round_trips: Vec<_> = pump
            .round_trips
            .iter()
            .filter(of_that_time)
            .map(|(_, one)| *one)
            .collect();
        round_trips.sort_unstable();
        round_trips[round_trips.len() / 2]
    }
}

/// Seeds of the stories with random choices.
const SEEDS: std::ops::Range<u64> = 1..4;
/// A third of the fair share of one of two sources, in Mbit/s.
const THIRD_OF_SHARE: f64 = 5.0 / 2.0 / 3.0;

#[test]
fn a_controller_that_listens_to_delay_keeps_the_rate_and_not_the_queue() {
    for seed in SEEDS {
        let mut meeting = Meeting::new(seed, &[from(0, Congestion::LOW_LATENCY)]);
        let (rate, round_trip) = (meeting.rates(5, 45)[0], meeting.round_trip(5, 45));
        println!("seed {seed}: {rate} Mbit/s, {round_trip:?}");
        assert!(rate >= 4.5, "seed {seed}: {rate}");
        // 100 ms of the path, 40 ms that the controller aims at, and a margin.
        assert!(round_trip < millis(150), "seed {seed}: {round_trip:?}");
        // The controller still knows the empty queue, although the queue never became empty again.
        let late = meeting.round_trip(40, 45);
        assert!(late < millis(150), "seed {seed}: {late:?}");
    }
}

#[test]
fn cubic_fills_the_queue() {
    let mut meeting = Meeting::new(1, &[from(0, Congestion::Cubic)]);
    let (rate, round_trip) = (meeting.rates(5, 15)[0], meeting.round_trip(5, 15));
    println!("{rate} Mbit/s, {round_trip:?}");
    assert!(rate >= 4.5, "{rate}");
    assert!(round_trip > millis(300), "{round_trip:?}");
}

#[test]
fn two_that_listen_to_delay_keep_the_queue_short_together_and_share() {
    for seed in SEEDS {
        let ours = Congestion::LOW_LATENCY;
        let mut meeting = Meeting::new(seed, &[from(0, ours), from(4, ours)]);
        let (rates, round_trip) = (meeting.rates(25, 50), meeting.round_trip(25, 50));
        println!("seed {seed}: {rates:?} Mbit/s, {round_trip:?}");
        assert!(rates[0] + rates[1] >= 4.5, "seed {seed}: {rates:?}");
        assert!(rates[0].min(rates[1]) >= 0.6, "seed {seed}: {rates:?}");
        assert!(round_trip < millis(160), "seed {seed}: {round_trip:?}");
    }
}

/// A controller that would keep the queue at 60 ms finds it at 500 ms, where the other source keeps it. If it yielded,
/// it would never recover.
#[test]
fn one_that_listens_to_delay_holds_its_own_beside_one_that_fills_the_queue() {
    for seed in SEEDS {
        let mut cubic = from(5, Congestion::Cubic);
        cubic.until = 50;
        let mut meeting = Meeting::new(seed, &[from(0, Congestion::LOW_LATENCY), cubic]);
        let rates = meeting.rates(10, 50);
        println!("seed {seed}: {rates:?} Mbit/s");
        assert!(rates[0] >= THIRD_OF_SHARE, "seed {seed}: {rates:?}");
        assert!(rates[0] + rates[1] >= 4.5, "seed {seed}: {rates:?}");
        // The other source has left, and so has its share of the queue.
        let (rate, round_trip) = (meeting.rates(65, 75)[0], meeting.round_trip(65, 75));
        println!("seed {seed}: then {rate} Mbit/s, {round_trip:?}");
        assert!(rate >= 4.5, "seed {seed}: {rate}");
        assert!(round_trip < millis(160), "seed {seed}: {round_trip:?}");
    }
}

/// The controller never saw an empty queue. It takes the minima of the other source's sawtooth for that, and yields.
#[test]
fn one_that_listens_to_delay_goes_on_beside_one_that_filled_the_queue_before() {
    let ours = from(5, Congestion::LOW_LATENCY);
    let mut meeting = Meeting::new(1, &[ours, from(0, Congestion::Cubic)]);
    let rates = meeting.rates(15, 45);
    println!("{rates:?} Mbit/s");
    assert!(rates[0] >= 0.03, "{rates:?}");
    assert!(rates[0] + rates[1] >= 4.5, "{rates:?}");
}
