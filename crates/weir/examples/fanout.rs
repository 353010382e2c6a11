//! The relay's fan-out, for callgrind to count its instructions (`make instructions`).
//!
//! A publisher sends a speech as datagrams through our relay to 64 subscribers, over virtual links
//! and in virtual time, so that every run does the same. What is counted is [`Counted::fan_out`]
//! alone: from the arrival of a datagram's frame at the relay to the sealed packets for all
//! subscribers. Handshakes, acknowledgements, the clients and the simulation itself are not.
//!
//! It prints how many datagrams the relay took and gave, and fails if a subscriber missed one.

use std::{
    error::Error,
    io::{self, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

use weir_bench::{
    clock::RunClock,
    metrics::TrackPlan,
    profile::Profile,
    publisher::{PublishFlow, PublisherConfig, PublisherRole},
    scenario::Scenario,
    subscriber::{SubscribeRequest, SubscriberConfig, SubscriberRole},
    target::Target,
};
use weir_link::{Config, Delay};
use weir_moqt::{draft::Draft, limits::Limits, message::Setup};
use weir_quic::{App, Endpoint, Event};
use weir_relay::Relay;
use weir_sim::{End, NodeConfig, NodeId, SERVER_NAME, Sim};

fn main() -> Result<(), Box<dyn Error>> {
    let mut sim = Sim::new(SEED);
    sim.set_default_link(Config {
        delay: Delay::fixed(Duration::from_millis(5))?,
        ..Config::default()
    });
    let server = Some(sim.server_tls(&[Draft::Draft18.alpn()]));
    let relay = sim.add_node(NodeConfig {
        server,
        ..NodeConfig::default()
    });
    sim.start(relay, Counted::new());
    let (publisher, subscribers) = add_clients(&mut sim, relay)?;

    wait(&mut sim, |sim| {
        sim.app::<PublisherRole>(publisher).has_announced()
    })?;
    sim.with_app(subscribers, |now, role: &mut SubscriberRole, _| {
        role.start(now);
    });
    wait(&mut sim, |sim| {
        sim.app::<SubscriberRole>(subscribers).is_subscribed()
            && sim.app::<PublisherRole>(publisher).is_served()
    })?;
    sim.with_app(publisher, |now, role: &mut PublisherRole, endpoint| {
        role.release(now, endpoint)
    })?;
    wait(&mut sim, |sim| {
        !sim.is_busy(publisher) && !sim.is_busy(subscribers)
    })?;

    let counters = sim.app::<Counted>(relay).relay.counters();
    let (received, sent) = (counters.datagrams_received, counters.datagrams_sent);
    writeln!(
        io::stdout(),
        r#"{{"datagrams_received":{received},"datagrams_sent":{sent}}}"#
    )?;
    let due = received * SUBSCRIBERS as u64;
    if received == 0 || sent != due {
        return Err(format!("{due} datagrams should have been sent").into());
    }
    Ok(())
}

/// Adds a publisher and all subscribers, on two nodes.
fn add_clients(sim: &mut Sim, relay: NodeId) -> Result<(NodeId, NodeId), Box<dyn Error>> {
    let profile = Profile::parse("fanout", PROFILE.as_bytes())?;
    let scenario = Scenario::fan_out(&profile, SUBSCRIBERS, SEED)?;
    let clock = RunClock::new(sim.now(), 0);
    let plans: Arc<[TrackPlan]> = (0..)
        .zip(&profile.tracks)
        .map(|(number, track)| TrackPlan::new(track, number, SEED, clock))
        .collect();
    let target = Target {
        remote: sim.address(relay),
        server_name: SERVER_NAME.to_owned(),
        client: sim.client_config(&[Draft::Draft18.alpn()]),
        setup: Setup::default(),
        sockets: 1,
    };
    let publisher = PublisherConfig {
        target: target.clone(),
        plans: Arc::clone(&plans),
        publishers: scenario.publishers,
        flow: PublishFlow::PublishNamespace,
        ramp_per_second: 0,
        tokens: Vec::new(),
        session_limits: Limits::default(),
    };
    let subscribers = SubscriberConfig {
        target,
        plans,
        subscribers: scenario.subscribers,
        flow: weir_bench::subscriber::SubscribeFlow::Subscribe,
        request: SubscribeRequest::default(),
        ramp_per_second: 100,
        start_timeout: TIME_MAX,
        verify_content: true,
        session_limits: Limits::default(),
    };
    let nodes = (
        sim.add_node(NodeConfig::default()),
        sim.add_node(NodeConfig::default()),
    );
    sim.start(nodes.0, PublisherRole::new(publisher, sim.now()));
    sim.start(nodes.1, SubscriberRole::new(subscribers));
    Ok(nodes)
}

fn wait(sim: &mut Sim, is_done: impl FnMut(&Sim) -> bool) -> Result<(), Box<dyn Error>> {
    match sim.run_until(TIME_MAX, is_done) {
        End::Finished => Ok(()),
        end @ (End::Deadline | End::Idle) => Err(format!("the run did not finish: {end:?}").into()),
    }
}

/// The relay, with its work for a datagram in a function of its own.
struct Counted {
    relay: Relay,
    fan_outs: u64,
}

impl Counted {
    fn new() -> Self {
        Self {
            relay: Relay::new(weir_relay::Config::default()),
            fan_outs: 0,
        }
    }

    /// Callgrind counts while this runs, so it must not be inlined; and the call in it must not be
    /// the last thing that it does, or it would become a jump.
    #[inline(never)]
    fn fan_out(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        self.relay.handle_event(now, endpoint, event);
        self.fan_outs += 1;
    }
}

impl App for Counted {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if matches!(event, Event::Datagram { .. }) {
            self.fan_out(now, endpoint, event);
        } else {
            self.relay.handle_event(now, endpoint, event);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.relay.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.relay.handle_timeout(now, endpoint);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.relay.handle_shutdown(now, endpoint);
    }

    fn is_finished(&self) -> bool {
        self.relay.is_finished()
    }
}

/// 200 objects of the audio profile.
const PROFILE: &str = "
[Audio]
namespace = perf/audio
name = 1
track_mode = datagram
priority = 2
ttl = 5000
time_interval = 20
objects_per_group = 1
first_object_size = 120
object_size = 120
start_delay = 1000
total_transmit_time = 5000
";
const SUBSCRIBERS: usize = 64;
const SEED: u64 = 1;
/// Virtual time after which something has gone wrong.
const TIME_MAX: Duration = Duration::from_mins(1);
