//! The draft's scenario 3 in virtual time: meetings, in which every client publishes and subscribes on one
//! connection, through the relay that runs on real sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use weir_bench::{
    clock::RunClock,
    meeting::MeetingRole,
    metrics::{SentTotals, TrackPlan},
    profile::Profile,
    publisher::{PublishFlow, PublisherConfig},
    report::Status,
    scenario::Scenario,
    subscriber::{SubscribeFlow, SubscribeRequest, SubscriberConfig, SubscriptionResult},
    target::Target,
};
use weir_link::{Config as LinkConfig, Delay};
use weir_moqt::{limits::Limits, message::Setup};
use weir_sim::{NodeConfig, SERVER_NAME, Sim};

const MEETING: &[u8] = include_bytes!("../../../profiles/meeting-short.ini");

#[test]
fn ten_meetings_of_five_lose_nothing() {
    expect_whole(
        (10, 5),
        PublishFlow::PublishNamespace,
        SubscribeFlow::Subscribe,
    );
}

#[test]
fn every_way_to_meet_loses_nothing() {
    // SUBSCRIBE_NAMESPACE hears of what was announced, SUBSCRIBE_TRACKS of what was published.
    for (publish, subscribe) in [
        (PublishFlow::PublishNamespace, SubscribeFlow::Subscribe),
        (
            PublishFlow::PublishNamespace,
            SubscribeFlow::SubscribeNamespace,
        ),
        (PublishFlow::Publish, SubscribeFlow::Subscribe),
        (PublishFlow::Publish, SubscribeFlow::SubscribeTracks),
    ] {
        expect_whole((2, 3), publish, subscribe);
    }
}

fn expect_whole(
    (meetings, clients): (usize, usize),
    publish: PublishFlow,
    subscribe: SubscribeFlow,
) {
    let outcome = run(meetings, clients, publish, subscribe);
    let flows = format!("{publish:?} {subscribe:?}");
    // One connection for each client, and nobody left out.
    assert_eq!(outcome.connections, (meetings * clients) as u64, "{flows}");
    let subscriptions = meetings * clients * (clients - 1) * 2;
    assert_eq!(outcome.results.len(), subscriptions, "{flows}");
    for result in &outcome.results {
        assert_eq!(
            (result.track.status, &result.failure),
            (Status::Good, &None),
            "{flows}: {result:?}"
        );
        // Three seconds of an object each 20 ms, or each 33.33 ms.
        let objects = if result.plan == 0 { 150 } else { 91 };
        let completion = result.track.completion;
        assert_eq!(
            (completion.objects_received, completion.lost_objects),
            (objects, 0),
            "{flows}: {result:?}"
        );
        assert_eq!((result.track.corrupt, result.track.misplaced), (0, 0));
    }
}

#[test]
fn a_meeting_repeats_itself() {
    let run = || {
        let outcome = run(2, 3, PublishFlow::Publish, SubscribeFlow::SubscribeTracks);
        outcome.trace
    };
    assert_eq!(run(), run());
}

/// What a simulated run gave.
struct Outcome {
    results: Vec<SubscriptionResult>,
    connections: u64,
    trace: u64,
}

fn run(meetings: usize, clients: usize, publish: PublishFlow, subscribe: SubscribeFlow) -> Outcome {
    let profile = Profile::parse("meeting-short.ini", MEETING).unwrap();
    let mut sim = Sim::new(3);
    sim.set_default_link(LinkConfig {
        delay: Delay::fixed(Duration::from_millis(10)).unwrap(),
        ..LinkConfig::default()
    });
    let server = Some(sim.server_tls(&["moqt-18"]));
    let relay = sim.add_node(NodeConfig {
        server,
        ..NodeConfig::default()
    });
    let node = sim.add_node(NodeConfig::default());
    sim.start(relay, weir_relay::Relay::new(weir_relay::Config::default()));
    let clock = RunClock::new(sim.now(), 0);
    let plans: Arc<[TrackPlan]> = (0_u64..)
        .zip(&profile.tracks)
        .map(|(number, track)| TrackPlan::new(track, number, 3, clock))
        .collect();
    let scenario = Scenario::meetings(&profile, meetings, clients, 3).unwrap();
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
        flow: publish,
        ramp_per_second: 200,
        tokens: Vec::new(),
        session_limits: Limits::default(),
    };
    let subscribers = SubscriberConfig {
        target,
        plans,
        subscribers: scenario.subscribers,
        flow: subscribe,
        request: SubscribeRequest::default(),
        ramp_per_second: 200,
        start_timeout: Duration::from_secs(10),
        verify_content: true,
        session_limits: Limits::default(),
    };
    sim.start(node, MeetingRole::new(publishers, subscribers, sim.now()));
    let role = |sim: &Sim| -> bool { sim.app::<MeetingRole>(node).publishers().has_announced() };
    sim.run_until(END, role);
    sim.with_app(node, |now, role: &mut MeetingRole, _| role.start(now));
    sim.run_until(END, |sim| {
        let role = sim.app::<MeetingRole>(node);
        role.subscribers().is_subscribed() && role.publishers().is_served()
    });
    let connections = sim.app::<MeetingRole>(node).publishers().progress().ready;
    sim.with_app(node, |now, role: &mut MeetingRole, endpoint| {
        role.release(now, endpoint).unwrap();
    });
    sim.run_until(END, |sim| !sim.is_busy(node));
    let role = sim.app::<MeetingRole>(node);
    let sent: BTreeMap<_, SentTotals> = role
        .publishers()
        .results()
        .into_iter()
        .map(|result| (result.name, result.totals))
        .collect();
    Outcome {
        results: role.subscribers().results(|name| sent.get(name).copied()),
        connections,
        trace: sim.trace_hash(),
    }
}

/// No run takes longer than this in virtual time.
const END: Duration = Duration::from_mins(1);
