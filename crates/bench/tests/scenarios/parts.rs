//! A run whose subscribers are divided into parts, as a generator divides them over threads, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use weir_bench::{
    clock::RunClock,
    metrics::{SentTotals, TrackPlan},
    profile::Profile,
    publisher::{PublishFlow, PublisherConfig, PublisherRole},
    scenario::Scenario,
    subscriber::{Part, SubscribeFlow, SubscribeRequest, SubscriberConfig, SubscriberRole},
};
use weir_client::target::Target;
use weir_quic::tls::Acknowledgements;
use weir_report::relay::Status;
use weir_sim::{End, NodeConfig, SERVER_NAME, Sim};

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
const SUBSCRIBERS: usize = 7;
const OBJECTS: u64 = 100;

/// Returns a publisher and its seven subscribers, of which ten join per second.
fn configs(sim: &Sim, target: &Target, seed: u64) -> (PublisherConfig, SubscriberConfig) {
    let profile = Profile::parse("audio.ini", AUDIO.as_bytes()).expect("a valid profile");
    let clock = RunClock::new(sim.now(), 0);
    let plans: Arc<[TrackPlan]> = Arc::new([TrackPlan::new(&profile.tracks[0], 0, seed, clock)]);
    let scenario = Scenario::fan_out(&profile, SUBSCRIBERS, seed).expect("no clash");
    let publishers = PublisherConfig {
        target: target.clone(),
        plans: Arc::clone(&plans),
        publishers: scenario.publishers,
        flow: PublishFlow::PublishNamespace,
        ramp_per_second: 0,
        await_subscribers: None,
    };
    let subscribers = SubscriberConfig {
        target: target.clone(),
        plans,
        part: Part::whole(SUBSCRIBERS),
        subscribers: scenario.subscribers,
        flow: SubscribeFlow::Subscribe,
        request: SubscribeRequest::default(),
        ramp_per_second: 10,
        audience: profile.audience,
        start_timeout: Duration::from_secs(30),
        verify_content: true,
        announce_as: None,
    };
    (publishers, subscribers)
}

/// Runs the subscribers in `parts` parts. Returns the subscribers of all parts together, and how long it took until all were
/// subscribed.
fn run(parts: usize, acknowledgements: Acknowledgements) -> (SubscriberRole, Duration) {
    let seed = world::seed(23);
    let mut sim = Sim::new(seed);
    sim.set_default_link(delay(10));
    let server = Some(sim.server_tls(&["moqt-18"]));
    let relay = sim.add_node(NodeConfig {
        server,
        ..NodeConfig::default()
    });
    sim.start(relay, world::relay());
    let mut client = sim.client_config(&["moqt-18"]);
    client.tls = client.tls.acknowledging(acknowledgements);
    let target = Target::new(sim.address(relay), SERVER_NAME, client);
    let (publishers, subscribers) = configs(&sim, &target, seed);
    let nobody = || {
        SubscriberRole::new(SubscriberConfig {
            subscribers: Vec::new(),
            part: Part::whole(0),
            ..subscribers.clone()
        })
    };
    let source = sim.add_node(NodeConfig::default());
    sim.start(source, PublisherRole::new(publishers, sim.now()));
    let sinks: Vec<_> = (0..parts)
        .map(|_| sim.add_node(NodeConfig::default()))
        .collect();
    for (sink, part) in sinks.iter().zip(subscribers.clone().split(parts)) {
        sim.start(*sink, SubscriberRole::new(part));
    }
    let wait = |sim: &mut Sim, is_so: &mut dyn FnMut(&Sim) -> bool| {
        let end = sim.run_until(Duration::from_mins(2), is_so);
        assert_eq!(end, End::Finished, "seed {seed}");
    };
    wait(&mut sim, &mut |sim| {
        sim.app::<PublisherRole>(source).has_announced()
    });
    let began = sim.elapsed();
    for sink in &sinks {
        sim.with_app(*sink, |now, role: &mut SubscriberRole, _| role.start(now));
    }
    wait(&mut sim, &mut |sim| {
        let mut sinks = sinks.iter();
        sinks.all(|sink| sim.app::<SubscriberRole>(*sink).is_subscribed())
            && sim.app::<PublisherRole>(source).is_served()
    });
    let joined = sim.elapsed().saturating_sub(began);
    let released = sim.with_app(source, |now, role: &mut PublisherRole, endpoint| {
        role.release(now, endpoint)
    });
    released.expect("the objects fit into datagrams");
    wait(&mut sim, &mut |sim| {
        sinks.iter().all(|sink| !sim.is_busy(*sink))
    });
    let taken = sinks.iter().rev().map(|sink| {
        sim.with_app(*sink, |_, role: &mut SubscriberRole, _| {
            std::mem::replace(role, nobody())
        })
    });
    let all = taken.reduce(|mut all, part| {
        all.absorb(part);
        all
    });
    (all.expect("at least one part"), joined)
}

#[test]
fn parts_join_as_the_whole_and_add_up_to_it() {
    for parts in [1, 3, SUBSCRIBERS] {
        let (all, joined) = run(parts, Acknowledgements::Delayed);
        // The seventh starts after 0.6 s.
        let expected = Duration::from_millis(600)..Duration::from_millis(900);
        assert!(expected.contains(&joined), "{parts}: {joined:?}");
        let results = all.results(|_| None::<SentTotals>);
        let numbers = results.iter().map(|result| result.subscriber);
        assert!(numbers.eq(0..SUBSCRIBERS), "{parts}");
        for result in &results {
            let completion = result.track.completion;
            let found = (result.track.status, completion.objects_received);
            assert_eq!(found, (Status::Good, OBJECTS), "{parts}: {result:?}");
        }
        let progress = all.progress();
        let whole = SUBSCRIBERS as u64;
        assert_eq!(
            (
                progress.subscribers,
                progress.ready,
                progress.ended,
                progress.objects
            ),
            (whole, whole, whole, whole * OBJECTS)
        );
        assert_eq!(all.latency(0).total().count(), whole * OBJECTS);
        let heat: Vec<_> = all.heat(0).rows().collect();
        assert_eq!(heat.len(), SUBSCRIBERS);
        assert!(heat.iter().all(|row| row.received == [50, 50]), "{heat:?}");
        let most = all
            .over_time(0)
            .seconds()
            .iter()
            .map(|one| one.subscriptions)
            .max();
        assert_eq!(most, Some(whole));
        let acknowledged = all
            .acknowledged()
            .expect("all have closed their connections");
        assert_eq!(
            (acknowledged.connections, acknowledged.connections_asked),
            (whole, 0)
        );
    }
}

#[test]
fn an_audience_that_acknowledges_at_once_sends_twice_as_much() {
    let per_packet = |kind| {
        let (all, _) = run(2, kind);
        all.acknowledged()
            .expect("connections were closed")
            .per_packet()
    };
    let (delayed, immediate) = (
        per_packet(Acknowledgements::Delayed),
        per_packet(Acknowledgements::Immediate),
    );
    assert!((0.45..0.65).contains(&delayed), "{delayed}");
    assert!((0.9..1.05).contains(&immediate), "{immediate}");
}
