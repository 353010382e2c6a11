//! A run whose publishers and subscribers are in different processes, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use weir_bench::{
    clock::RunClock,
    metrics::{SentTotals, TrackPlan},
    part::Part,
    profile::{Mode, Profile},
    publisher::{PublishFlow, PublisherConfig, PublisherRole},
    scenario::{Roles, Scenario},
    subscriber::{
        SubscribeFlow, SubscribeRequest, SubscriberConfig, SubscriberRole, SubscriptionResult,
    },
};
use weir_client::target::Target;
use weir_moqt::draft::Draft;
use weir_report::relay::Status;
use weir_sim::{End, NodeConfig, NodeId, SERVER_NAME, Sim};

use crate::world::{self, delay};

const AUDIO: &str = "[audio]
namespace = perf/audio/{}
name = 1
track_mode = datagram
priority = 2
ttl = 2000
time_interval = 20
objects_per_group = 1
first_object_size = 120
object_size = 120
start_delay = 500
total_transmit_time = 2500
";

/// One process that publishes, and two that subscribe.
struct World {
    sim: Sim,
    source: NodeId,
    sinks: [NodeId; 2],
    seed: u64,
}

impl World {
    /// Two publishers, which wait for `awaited` subscribers, and 20 and 10 subscribers. Ten join per second in each
    /// process, so that joining takes longer than the start delay.
    fn new(awaited: Option<u64>) -> Self {
        let seed = world::seed(11);
        let profile = Profile::parse("audio.ini", AUDIO.as_bytes()).expect("a valid profile");
        let mut sim = Sim::new(seed);
        sim.set_default_link(delay(10));
        let server = Some(sim.server_tls(&Draft::alpns()));
        let relay = sim.add_node(NodeConfig {
            server,
            ..NodeConfig::default()
        });
        sim.start(relay, world::relay());
        let client = sim.client_config(&Draft::alpns());
        let target = Target::new(sim.address(relay), SERVER_NAME, client);
        let clock = RunClock::new(sim.now(), 0);
        let plans: Arc<[TrackPlan]> =
            Arc::new([TrackPlan::new(&profile.tracks[0], 0, seed, clock)]);
        let part = |subscribers, mode| {
            let roles = Roles { given: Some(mode) };
            Scenario::fan_out_of(&profile, 4..6, subscribers, seed, roles).expect("no clash")
        };
        let source = sim.add_node(NodeConfig::default());
        let publishers = PublisherConfig {
            target: target.clone(),
            plans: Arc::clone(&plans),
            part: Part::whole(1),
            publishers: part(0, Mode::Publisher).publishers,
            flow: PublishFlow::PublishNamespace,
            ramp_per_second: 0,
            await_subscribers: awaited,
        };
        sim.start(source, PublisherRole::new(publishers, sim.now()));
        let sinks = [(1, 20), (2, 10)].map(|(process, subscribers)| {
            let config = SubscriberConfig {
                target: target.clone(),
                plans: Arc::clone(&plans),
                part: Part::whole(subscribers),
                subscribers: part(subscribers, Mode::Subscriber).subscribers,
                flow: SubscribeFlow::Subscribe,
                request: SubscribeRequest::default(),
                ramp_per_second: 10,
                audience: profile.audience,
                start_timeout: Duration::from_secs(30),
                verify_content: true,
                announce_as: Some(process),
            };
            let sink = sim.add_node(NodeConfig::default());
            sim.start(sink, SubscriberRole::new(config));
            sink
        });
        Self {
            sim,
            source,
            sinks,
            seed,
        }
    }

    fn publishers(&self) -> &PublisherRole {
        self.sim.app(self.source)
    }

    fn wait(&mut self, is_so: impl FnMut(&Sim) -> bool) {
        let end = self.sim.run_until(Duration::from_mins(2), is_so);
        assert_eq!(end, End::Finished, "seed {}", self.seed);
    }

    /// Runs to the end. Returns how long the publishers waited, and what was measured of each subscription.
    fn run(&mut self) -> (Duration, Vec<SubscriptionResult>) {
        let (source, sinks) = (self.source, self.sinks);
        self.wait(|sim| sim.app::<PublisherRole>(source).has_announced());
        let announced = self.sim.elapsed();
        for sink in sinks {
            self.sim
                .with_app(sink, |now, role: &mut SubscriberRole, _| role.start(now));
        }
        self.wait(|sim| sim.app::<PublisherRole>(source).is_served());
        let waited = self.sim.elapsed().saturating_sub(announced);
        let released = self
            .sim
            .with_app(source, |now, role: &mut PublisherRole, endpoint| {
                role.release(now, endpoint)
            });
        released.expect("the objects fit into datagrams");
        self.wait(|sim| sinks.iter().all(|sink| !sim.is_busy(*sink)));
        let results = sinks.iter().flat_map(|sink| {
            let role: &SubscriberRole = self.sim.app(*sink);
            role.results(|_| None::<SentTotals>)
        });
        (waited, results.collect())
    }
}

#[test]
fn publishers_wait_for_the_subscribers_of_other_processes() {
    let mut world = World::new(Some(30));
    let (waited, results) = world.run();
    // The twentieth subscriber of the first process starts after 1.9 s.
    assert!(waited > Duration::from_millis(1_900), "{waited:?}");
    let progress = world.publishers().progress();
    assert_eq!((progress.present, progress.ignored_announcements), (30, 0));
    assert_eq!(results.len(), 30);
    for result in results {
        let completion = result.track.completion;
        assert_eq!(
            (result.track.status, completion.objects_received),
            (Status::Good, 100),
            "seed {}: {result:?}",
            world.seed
        );
    }
}

#[test]
fn a_subscriber_that_joins_after_start_says_so() {
    let mut world = World::new(None);
    let (waited, results) = world.run();
    assert!(waited < Duration::from_millis(500), "{waited:?}");
    let is_good = |one: &&SubscriptionResult| one.track.status == Status::Good;
    let good = results.iter().filter(is_good).count();
    assert!((2..30).contains(&good), "{good}");
    for late in results.iter().filter(|one| !is_good(one)) {
        let reason = late.to_report(0).reason.unwrap_or_default();
        assert!(
            reason.starts_with("it joined after START") && reason.contains("--await-subscribers"),
            "seed {}: {reason}",
            world.seed
        );
    }
}
