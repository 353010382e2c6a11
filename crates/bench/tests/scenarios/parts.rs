//! A run whose clients are divided into parts, as a generator divides them over threads and hosts, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};
use weir_bench::{
    clock::RunClock,
    measured::Measured,
    metrics::TrackPlan,
    part::Part,
    profile::Profile,
    publisher::{PublishFlow, PublisherConfig, PublisherRole},
    scenario::{Roles, Scenario},
    subscriber::{SubscribeFlow, SubscribeRequest, SubscriberConfig, SubscriberRole},
};
use weir_client::target::Target;
use weir_moqt::draft::Draft;
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
const PUBLISHERS: usize = 2;
const SUBSCRIBERS: usize = 7;
const OBJECTS: u64 = 100;

/// Returns two publishers and seven subscribers, of which ten join per second.
fn configs(sim: &Sim, target: &Target, seed: u64) -> (PublisherConfig, SubscriberConfig) {
    let profile = Profile::parse("audio.ini", AUDIO.as_bytes()).expect("a valid profile");
    let clock = RunClock::new(sim.now(), 0);
    let plans: Arc<[TrackPlan]> = Arc::new([TrackPlan::new(&profile.tracks[0], 0, seed, clock)]);
    let numbers = 0..PUBLISHERS as u64;
    let scenario = Scenario::fan_out_of(&profile, numbers, SUBSCRIBERS, seed, Roles::default());
    let scenario = scenario.expect("no clash");
    let publishers = PublisherConfig {
        target: target.clone(),
        plans: Arc::clone(&plans),
        part: Part::whole(scenario.publishers.len()),
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

/// Runs publishers and subscribers in `parts` parts each. Returns what all parts measured, and how long it took until all
/// were subscribed. Each part's figures travel as text, as they do between processes.
fn run(parts: usize, acknowledgements: Acknowledgements) -> (Measured, Duration) {
    let seed = world::seed(23);
    let mut sim = Sim::new(seed);
    sim.set_default_link(delay(10));
    let server = Some(sim.server_tls(&Draft::alpns()));
    let relay = sim.add_node(NodeConfig {
        server,
        ..NodeConfig::default()
    });
    sim.start(relay, world::relay());
    let mut client = sim.client_config(&Draft::alpns());
    client.tls = client.tls.acknowledging(acknowledgements);
    let target = Target::new(sim.address(relay), SERVER_NAME, client);
    let (publishers, subscribers) = configs(&sim, &target, seed);
    let mut sources = Vec::new();
    for part in publishers.part.split(parts).filter(|part| !part.is_empty()) {
        let source = sim.add_node(NodeConfig::default());
        sim.start(source, PublisherRole::new(publishers.of(part), sim.now()));
        sources.push(source);
    }
    let mut sinks = Vec::new();
    for part in subscribers.part.split(parts) {
        let sink = sim.add_node(NodeConfig::default());
        sim.start(sink, SubscriberRole::new(subscribers.of(part)));
        sinks.push(sink);
    }
    let wait = |sim: &mut Sim, is_so: &mut dyn FnMut(&Sim) -> bool| {
        let end = sim.run_until(Duration::from_mins(2), is_so);
        assert_eq!(end, End::Finished, "seed {seed}");
    };
    let all = |sim: &Sim, is_so: fn(&PublisherRole) -> bool| {
        sources.iter().all(|source| is_so(sim.app(*source)))
    };
    wait(&mut sim, &mut |sim| all(sim, PublisherRole::has_announced));
    let began = sim.elapsed();
    for sink in &sinks {
        sim.with_app(*sink, |now, role: &mut SubscriberRole, _| role.start(now));
    }
    wait(&mut sim, &mut |sim| {
        let mut sinks = sinks.iter();
        sinks.all(|sink| sim.app::<SubscriberRole>(*sink).is_subscribed())
            && all(sim, PublisherRole::is_served)
    });
    let joined = sim.elapsed().saturating_sub(began);
    for source in &sources {
        let released = sim.with_app(*source, |now, role: &mut PublisherRole, endpoint| {
            role.release(now, endpoint)
        });
        released.expect("the objects fit into datagrams");
    }
    wait(&mut sim, &mut |sim| {
        let mut all = sinks.iter().chain(&sources);
        all.all(|node| !sim.is_busy(*node))
    });
    let mut measured = Measured::empty(&subscribers.plans, SUBSCRIBERS);
    for source in &sources {
        let part = sim.app::<PublisherRole>(*source).measured();
        let absorbed = measured.publishers.absorb(sent_as_text(&part));
        absorbed.expect("parts of one run");
    }
    let sent = measured.publishers.sent();
    for sink in sinks.iter().rev() {
        let part = sim.app::<SubscriberRole>(*sink).measured(&sent);
        let absorbed = measured.subscribers.absorb(sent_as_text(&part));
        absorbed.expect("parts of one run");
    }
    (measured, joined)
}

fn sent_as_text<T: Serialize + DeserializeOwned>(part: &T) -> T {
    let text = serde_json::to_string(part).expect("plain data");
    serde_json::from_str(&text).expect("the same data")
}

#[test]
fn parts_join_as_the_whole_and_add_up_to_it() {
    for parts in [1, 3, SUBSCRIBERS] {
        let (measured, joined) = run(parts, Acknowledgements::Delayed);
        // The seventh starts after 0.6 s.
        let expected = Duration::from_millis(600)..Duration::from_millis(900);
        assert!(expected.contains(&joined), "{parts}: {joined:?}");
        let Measured {
            publishers,
            subscribers: all,
        } = &measured;
        let sent = publishers.progress;
        let whole = PUBLISHERS as u64;
        assert_eq!(
            (sent.publishers, sent.done, sent.objects_sent),
            (whole, whole, whole * OBJECTS)
        );
        assert_eq!(publishers.lateness[0].count(), whole * OBJECTS);
        let results = &all.results;
        let numbers = results.iter().map(|result| result.subscriber);
        assert!(numbers.eq(0..SUBSCRIBERS), "{parts}");
        for result in results {
            let completion = result.track.completion;
            let found = (result.track.status, completion.objects_received);
            assert_eq!(found, (Status::Good, OBJECTS), "{parts}: {result:?}");
            assert_eq!(completion.lost_objects, 0);
        }
        // Subscribers take turns among publishers, in whatever part they are.
        let of_first = results.iter().filter(|one| one.name == results[0].name);
        let of_first: Vec<_> = of_first.map(|one| one.subscriber).collect();
        assert_eq!(of_first, [0, 2, 4, 6]);
        let whole = SUBSCRIBERS as u64;
        let progress = all.progress;
        assert_eq!(
            (
                progress.subscribers,
                progress.ready,
                progress.ended,
                progress.objects
            ),
            (whole, whole, whole, whole * OBJECTS)
        );
        assert_eq!(all.latency[0].total().count(), whole * OBJECTS);
        let heat: Vec<_> = all.heat[0].rows().collect();
        assert_eq!(heat.len(), SUBSCRIBERS);
        assert!(heat.iter().all(|row| row.received == [50, 50]), "{heat:?}");
        let seconds = all.over_time[0].seconds();
        let most = seconds.iter().map(|one| one.subscriptions).max();
        assert_eq!(most, Some(whole));
        let acknowledged = all.acknowledged.expect("all have closed their connections");
        assert_eq!(
            (acknowledged.connections, acknowledged.connections_asked),
            (whole, 0)
        );
    }
}

#[test]
fn an_audience_that_acknowledges_at_once_sends_twice_as_much() {
    let per_packet = |kind| {
        let (measured, _) = run(2, kind);
        let acknowledged = measured.subscribers.acknowledged;
        acknowledged.expect("connections were closed").per_packet()
    };
    let (delayed, immediate) = (
        per_packet(Acknowledgements::Delayed),
        per_packet(Acknowledgements::Immediate),
    );
    assert!((0.45..0.65).contains(&delayed), "{delayed}");
    assert!((0.9..1.05).contains(&immediate), "{immediate}");
}
