//! The draft's scenario 3 in virtual time: meetings, in which every client publishes and subscribes on one connection,
//! through the real relay.

use weir_bench::{
    publisher::PublishFlow,
    subscriber::{SubscribeFlow, SubscriptionResult},
};
use weir_report::relay::Status;

use crate::world::{self, Crowd, Setting, World};

const MEETING: &str = include_str!("../../../../profiles/meeting-short.ini");

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
    // SUBSCRIBE_NAMESPACE finds what was announced, SUBSCRIBE_TRACKS what was published.
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
    // One connection per client, and no client is left out.
    assert_eq!(outcome.connections, (meetings * clients) as u64, "{flows}");
    let subscriptions = meetings * clients * (clients - 1) * 2;
    assert_eq!(outcome.results.len(), subscriptions, "{flows}");
    for result in &outcome.results {
        assert_eq!(
            (result.track.status, &result.failure),
            (Status::Good, &None),
            "{flows}: {result:?}"
        );
        // Three seconds of an object every 20 ms, or every 33.33 ms.
        let objects = if result.plan == 0 { 150 } else { 91 };
        let completion = result.track.completion;
        assert_eq!(
            (completion.objects_received, completion.lost_objects),
            (objects, 0),
            "{flows}: {result:?}"
        );
        let delivery = result.track.delivery;
        assert_eq!((delivery.corrupt, delivery.misplaced), (0, 0));
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

/// The outcome of a simulated run.
struct Outcome {
    results: Vec<SubscriptionResult>,
    connections: u64,
    trace: u64,
}

fn run(meetings: usize, clients: usize, publish: PublishFlow, subscribe: SubscribeFlow) -> Outcome {
    let setting = Setting {
        publish,
        subscribe,
        ..Setting::new(MEETING, 3, Crowd::Meetings(meetings, clients))
    };
    let mut world = World::new(&setting, world::relay());
    world.join();
    let connections = world.publishers().progress().ready;
    world.release();
    world.finish();
    Outcome {
        results: world.results(),
        connections,
        trace: world.sim.trace_hash(),
    }
}
