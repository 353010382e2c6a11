//! A fetched range in virtual time: several subscribers fetch a whole track through the relay that runs on real
//! sockets, as fast as their connections take it. [evens-00 §3.3]

use std::{sync::Arc, time::Duration};

use weir_bench::{
    clock::RunClock,
    metrics::TrackPlan,
    profile::Profile,
    publisher::{PublishFlow, PublisherConfig, PublisherRole},
    report::Status,
    scenario::Scenario,
    subscriber::{SubscribeFlow, SubscribeRequest, SubscriberConfig, SubscriberRole},
    target::Target,
};
use weir_link::{Config as LinkConfig, Delay};
use weir_moqt::{limits::Limits, message::Setup};
use weir_sim::{NodeConfig, SERVER_NAME, Sim};

/// Thirty seconds of video in 30 groups.
const FILE: &str = "[file]
namespace = perf/file
name = 1
track_mode = stream
priority = 3
ttl = 5000
time_interval = 100
objects_per_group = 10
first_object_size = 21333
object_size = 2666
start_delay = 0
total_transmit_time = 30000
extension_headers = 3
pattern = fetch
";

#[test]
fn everybody_fetches_all_of_it_faster_than_it_plays() {
    let profile = Profile::parse("fetch.ini", FILE.as_bytes()).unwrap();
    let mut sim = Sim::new(5);
    sim.set_default_link(LinkConfig {
        delay: Delay::fixed(Duration::from_millis(10)).unwrap(),
        ..LinkConfig::default()
    });
    let server = Some(sim.server_tls(&["moqt-18"]));
    let relay = sim.add_node(NodeConfig {
        server,
        ..NodeConfig::default()
    });
    let (source, sink) = (
        sim.add_node(NodeConfig::default()),
        sim.add_node(NodeConfig::default()),
    );
    sim.start(relay, weir_relay::Relay::new(weir_relay::Config::default()));
    let clock = RunClock::new(sim.now(), 0);
    let plans: Arc<[TrackPlan]> = [TrackPlan::new(&profile.tracks[0], 0, 5, clock)].into();
    let scenario = Scenario::fan_out(&profile, 4, 5).unwrap();
    let target = Target {
        remote: sim.address(relay),
        server_name: SERVER_NAME.to_owned(),
        client: sim.client_config(&["moqt-18"]),
        setup: Setup::default(),
        sockets: 1,
    };
    let publishers = PublisherConfig {
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
        flow: SubscribeFlow::Subscribe,
        request: SubscribeRequest::default(),
        ramp_per_second: 0,
        start_timeout: Duration::from_secs(30),
        verify_content: true,
        session_limits: Limits::default(),
    };
    sim.start(source, PublisherRole::new(publishers, sim.now()));
    sim.start(sink, SubscriberRole::new(subscribers));
    sim.run_until(END, |sim| sim.app::<PublisherRole>(source).has_announced());
    sim.with_app(sink, |now, role: &mut SubscriberRole, _| role.start(now));
    sim.run_until(END, |sim| sim.app::<SubscriberRole>(sink).is_subscribed());
    sim.with_app(source, |now, role: &mut PublisherRole, endpoint| {
        role.release(now, endpoint).unwrap();
    });
    sim.with_app(sink, |now, role: &mut SubscriberRole, endpoint| {
        role.release(now, endpoint);
    });
    sim.run_until(END, |sim| !sim.is_busy(sink));
    let results = sim.app::<SubscriberRole>(sink).results(|_| None);
    assert_eq!(results.len(), 4);
    for result in results {
        assert_eq!(
            (result.track.status, &result.failure),
            (Status::Good, &None),
            "{result:?}"
        );
        let completion = result.track.completion;
        assert_eq!(
            (completion.objects_received, completion.lost_objects),
            (300, 0)
        );
        assert_eq!((result.track.corrupt, result.track.misplaced), (0, 0));
        assert!(result.track.latency.is_none());
        // Thirty seconds of media in less than three.
        assert!(completion.actual_duration_ms < 3_000.0, "{completion:?}");
        assert!(
            completion.average_bits_per_second > 10.0 * completion.expected_bits_per_second,
            "{completion:?}"
        );
    }
}

/// No run takes longer than this in virtual time.
const END: Duration = Duration::from_mins(1);
