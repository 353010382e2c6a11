//! The draft's scenario 1 in virtual time: the relay, the publisher and the subscribers that run on real
//! sockets, with real QUIC packets over emulated links, give the same report to the byte each time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use weir_bench::{
    clock::RunClock,
    metrics::TrackPlan,
    outcome::{self, Surroundings},
    profile::Profile,
    publisher::{PublishFlow, PublisherConfig, PublisherRole},
    report::{Cores, Generator, Outcome, Relay, RelaySource, Report, Run, json},
    scenario::Scenario,
    service_level::ServiceLevel,
    subscriber::{SubscribeFlow, SubscribeRequest, SubscriberConfig, SubscriberRole},
    target::Target,
};
use weir_link::{Config as LinkConfig, Delay, Loss, Probability};
use weir_moqt::{limits::Limits, message::Setup};
use weir_sim::{NodeConfig, NodeId, SERVER_NAME, Sim};

/// The draft's own profile.
const AUDIO: &[u8] = include_bytes!("../../../profiles/audio.ini");
const AUDIO_SHORT: &[u8] = include_bytes!("../../../profiles/audio-short.ini");

#[test]
fn two_hundred_subscribers_get_every_object_and_the_report_repeats() {
    let seed = seed(1);
    let first = run(AUDIO, 200, PublishFlow::PublishNamespace, clean(), seed);
    let again = run(AUDIO, 200, PublishFlow::PublishNamespace, clean(), seed);
    assert_eq!(
        json::render(&first.report),
        json::render(&again.report),
        "WEIR_SEED={seed}"
    );
    assert_eq!(first.trace, again.trace, "WEIR_SEED={seed}");
    let report = first.report;
    assert_eq!(
        report.verdict.outcome,
        Outcome::Held,
        "{:?}",
        report.verdict
    );
    // 30 s of an object each 20 ms, to 200 subscribers, of whom nobody missed one.
    assert_eq!(report.objects_delivered(), 1500 * 200);
    assert_eq!(report.objects_lost(), 0);
    let latency = report.tracks[0].latency.overall.unwrap();
    // Two links of 10 ms, and no more than the ticks of timers beside.
    assert!(
        latency.p50_ms >= 20.0 && latency.max_ms < 22.0,
        "{latency:?}"
    );
    assert_eq!(report.relay.counters["datagrams_sent"] % 200, 0);
}

#[test]
fn another_seed_gives_another_run() {
    let report = |seed| run(AUDIO_SHORT, 5, PublishFlow::Publish, lossy(), seed).report;
    assert_ne!(
        json::render(&report(seed(1))),
        json::render(&report(seed(1) + 1))
    );
}

#[test]
fn a_published_track_reaches_everybody_too() {
    let seed = seed(2);
    let report = run(AUDIO_SHORT, 20, PublishFlow::Publish, clean(), seed).report;
    assert_eq!(
        report.verdict.outcome,
        Outcome::Held,
        "WEIR_SEED={seed} {:?}",
        report.verdict
    );
    assert_eq!(report.objects_delivered(), 150 * 20);
}

#[test]
fn losses_are_counted_and_break_the_service_level() {
    let seed = seed(3);
    let report = run(
        AUDIO_SHORT,
        20,
        PublishFlow::PublishNamespace,
        lossy(),
        seed,
    )
    .report;
    assert_eq!(
        report.verdict.outcome,
        Outcome::Broken,
        "WEIR_SEED={seed} {:?}",
        report.verdict
    );
    let (lost, due) = (report.objects_lost(), 150 * 20);
    assert_eq!(report.objects_delivered() + lost, due, "WEIR_SEED={seed}");
    // 2 % on each of two links.
    assert!(
        (due / 50..due / 12).contains(&lost),
        "WEIR_SEED={seed}: {lost} of {due} lost"
    );
    let delivery = report.tracks[0].delivery;
    assert_eq!(
        delivery.lost_join + delivery.lost_middle + delivery.lost_tail,
        lost
    );
}

/// What a simulated run gave.
struct Outcomes {
    report: Report,
    trace: u64,
}

fn run(
    profile: &[u8],
    subscribers: usize,
    flow: PublishFlow,
    link: LinkConfig,
    seed: u64,
) -> Outcomes {
    let profile = Profile::parse("profile.ini", profile).unwrap();
    let mut sim = Sim::new(seed);
    sim.set_default_link(link);
    let server = Some(sim.server_tls(&["moqt-18"]));
    let relay = sim.add_node(NodeConfig {
        server,
        ..NodeConfig::default()
    });
    let source = sim.add_node(NodeConfig::default());
    let sink = sim.add_node(NodeConfig::default());
    sim.start(relay, weir_relay::Relay::new(weir_relay::Config::default()));

    let clock = RunClock::new(sim.now(), 0);
    let plans: Arc<[TrackPlan]> = (0_u64..)
        .zip(&profile.tracks)
        .map(|(number, track)| TrackPlan::new(track, number, seed, clock))
        .collect();
    let scenario = Scenario::fan_out(&profile, subscribers, seed).unwrap();
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
        flow,
        ramp_per_second: 0,
        tokens: Vec::new(),
        session_limits: Limits::default(),
    };
    sim.start(source, PublisherRole::new(publishers, sim.now()));
    let subscribers = SubscriberConfig {
        target,
        plans: Arc::clone(&plans),
        subscribers: scenario.subscribers,
        flow: SubscribeFlow::Subscribe,
        request: SubscribeRequest::default(),
        ramp_per_second: 200,
        start_timeout: Duration::from_secs(10),
        verify_content: true,
        session_limits: Limits::default(),
    };
    sim.start(sink, SubscriberRole::new(subscribers));

    sim.run_until(END, |sim| sim.app::<PublisherRole>(source).has_announced());
    sim.with_app(sink, |now, role: &mut SubscriberRole, _| role.start(now));
    sim.run_until(END, |sim| {
        sim.app::<SubscriberRole>(sink).is_subscribed()
            && sim.app::<PublisherRole>(source).is_served()
    });
    sim.with_app(source, |now, role: &mut PublisherRole, endpoint| {
        role.release(now, endpoint).unwrap();
    });
    sim.run_until(END, |sim| !sim.is_busy(source) && !sim.is_busy(sink));
    Outcomes {
        report: report(&sim, &profile, &plans, [relay, source, sink], seed),
        trace: sim.trace_hash(),
    }
}

fn report(
    sim: &Sim,
    profile: &Profile,
    plans: &[TrackPlan],
    [relay, source, sink]: [NodeId; 3],
    seed: u64,
) -> Report {
    let counters = sim.app::<weir_relay::Relay>(relay).counters();
    let surroundings = Surroundings {
        run: Run {
            weir_version: String::new(),
            command_line: String::new(),
            profile: weir_bench::report::Profile {
                name: "profile.ini".to_owned(),
                text: profile.to_ini(),
            },
            seed,
            run_id: format!("{seed:016x}"),
            start_time: "2026-01-01T00:00:00Z".to_owned(),
            duration_ms: sim.elapsed().as_secs_f64() * 1e3,
            relay_url: "sim".to_owned(),
            draft: None,
            transport: "raw QUIC".to_owned(),
            publish_flow: String::new(),
            latency_clock: "virtual".to_owned(),
            subscribers_requested: 0,
            publishers_requested: 1,
            cores: Cores::default(),
            kernel: String::new(),
            cpu_model: String::new(),
            interrupted: None,
            partial: false,
        },
        relay: Relay {
            source: RelaySource::Simulated,
            implementation: None,
            cost: None,
            per_second: Vec::new(),
            counters: counters
                .iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        },
        generator: Generator {
            healthy: true,
            reasons: Vec::new(),
            cores: Vec::new(),
            threads: Vec::new(),
            socket_receive_buffer_drops: 0,
            publisher_lateness: None,
        },
    };
    outcome::report(
        profile,
        plans,
        sim.app::<PublisherRole>(source),
        sim.app::<SubscriberRole>(sink),
        &ServiceLevel::default(),
        surroundings,
    )
}

fn clean() -> LinkConfig {
    let delay = Delay::fixed(Duration::from_millis(10)).unwrap();
    LinkConfig {
        delay,
        ..LinkConfig::default()
    }
}

fn lossy() -> LinkConfig {
    let loss = Loss::Independent(Probability::new(0.02).unwrap());
    LinkConfig { loss, ..clean() }
}

/// The seed of a story; `WEIR_SEED` chooses another one.
fn seed(default: u64) -> u64 {
    std::env::var("WEIR_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(default)
}

/// No run takes longer than this in virtual time.
const END: Duration = Duration::from_mins(2);
