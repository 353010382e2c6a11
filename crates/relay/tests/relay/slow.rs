//! Slow subscribers, which do not affect others.

use std::time::Instant;

use weir_link::{Bitrate, Queue, Rate};
use weir_moqt::{
    data::{SubgroupHeader, SubgroupId},
    error::{PublishDoneCode, ResetCode},
    parameter::{GroupOrder, Parameters},
    session::StreamEnd,
};

use crate::stage::{Asked, Setting, Stage, millis, payload, plain, secs, seed, story};

const RATE_KBIT: u32 = 1000;
const GROUP_BYTES: usize = 12_500;
const GROUPS: u64 = 20;
/// When the first group is sent: all subscriptions are established by then.
const START: std::time::Duration = secs(5);

fn setting() -> Setting {
    let mut setting = Setting::default();
    setting.relay.lag_bytes_max = 100_000;
    // The relay cannot drop data that the connection has accepted.
    setting.quic.send_bytes_max = 30_000;
    setting.quic.datagram_send_bytes_max = 4_000;
    setting
}

/// Gives a client a link with a tenth of the rate that is published.
pub(crate) fn slow_down(stage: &mut Stage, subscription: Asked, queue_bytes_max: u64) {
    let link = weir_link::Config {
        rate: Rate::Fixed(Bitrate::from_kilobits_per_second(RATE_KBIT / 10)),
        queue: Queue {
            bytes_max: queue_bytes_max,
            packets_max: 1000,
        },
        ..Setting::default().link
    };
    let relay = stage.relay;
    stage.sim.set_link(relay, subscription.node, link);
}

/// Returns the delay of each object at each subscriber, if it arrived.
fn latencies(stage: &Stage, subscription: Asked) -> Vec<std::time::Duration> {
    let start = stage.sim.instant(secs(0));
    let outcome = stage.outcome(subscription);
    let streams = outcome.streams.iter();
    streams
        .flat_map(|stream| stream.objects.iter().map(move |object| (stream, object)))
        .map(|(stream, object)| {
            let sent = start + START + millis(100 * stream.header.group);
            object.at - sent
        })
        .collect()
}

/// Sends a group of ten objects every 100 ms to a hundred subscribers, of which one may be slow.
fn broadcast(stage: &mut Stage, has_slow_one: bool) -> Vec<Asked> {
    let publisher = stage.client();
    let publication = stage.publish(publisher, "a--x");
    let nodes = stage.clients(100);
    let subscriptions: Vec<_> = nodes
        .iter()
        .map(|&node| stage.subscribe(node, "a--x"))
        .collect();
    stage.step("subscribe", millis(100));
    if has_slow_one {
        slow_down(stage, subscriptions[0], 10_000);
    }
    let left = START.checked_sub(stage.sim.elapsed());
    stage.wait(left.expect("there is time enough to subscribe"));
    for group in 0..GROUPS {
        stage.group(publication, group, 10, GROUP_BYTES / 10);
        stage.wait(millis(100));
        let gauges = stage.gauges();
        assert!(gauges.log_bytes <= 100_000 + 30_000, "{gauges:?}");
        assert!(gauges.subgroups <= 12, "{gauges:?}");
    }
    stage.step("all groups, one every 100 ms", millis(500));
    subscriptions
}

#[test]
fn a_slow_subscriber_costs_only_itself() {
    let mut stage = Stage::new(seed(), setting());
    let subscriptions = broadcast(&mut stage, false);
    let others = subscriptions[1..].iter();
    let alone: Vec<_> = others.map(|&other| latencies(&stage, other)).collect();
    story(&setting(), |stage| {
        let subscriptions = broadcast(stage, true);
        let groups: Vec<_> = (0..GROUPS).collect();
        for (place, &other) in subscriptions[1..].iter().enumerate() {
            stage.expect_objects(other, &groups, 10, GROUP_BYTES / 10);
            assert_eq!(latencies(stage, other), alone[place]);
        }
        let slow = stage.outcome(subscriptions[0]);
        let ends = slow.streams.iter().map(|stream| stream.end);
        let resets = ends
            .filter(|end| *end == Some(StreamEnd::Reset(ResetCode::TOO_FAR_BEHIND)))
            .count();
        let counters = stage.counters();
        assert!(resets >= 1, "{resets}");
        assert!(counters.groups_shed >= 3, "{counters:?}");
        assert!(slow.done.is_none(), "it keeps its subscription");
        stage.step("it catches up", secs(30));
        let slow = stage.outcome(subscriptions[0]);
        let last = slow
            .streams
            .iter()
            .find(|arrival| arrival.header.group == GROUPS - 1);
        assert_eq!(last.map(|last| last.end), Some(Some(StreamEnd::Fin)));
        assert_eq!(stage.gauges().log_bytes, 0);
        assert_eq!(stage.gauges().subgroups, 0);
    });
}

#[test]
fn datagrams_to_a_slow_subscriber_make_room_for_newer_ones() {
    story(&setting(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let nodes = stage.clients(2);
        let subscriptions: Vec<_> = nodes
            .iter()
            .map(|&node| stage.subscribe(node, "a--x"))
            .collect();
        stage.wait(millis(100));
        slow_down(stage, subscriptions[0], 10_000);
        for group in 0..600 {
            stage.datagram(publication, group, 0, &payload(group, 0, 1000));
            stage.wait(millis(8));
        }
        stage.step("600 datagrams", secs(5));
        let all = stage.outcome(subscriptions[1]).datagram_places();
        assert_eq!(all.len(), 600);
        let slow = stage.outcome(subscriptions[0]).datagram_places();
        assert!((40..150).contains(&slow.len()), "{}", slow.len());
        assert!(slow.is_sorted(), "no datagram is turned round");
        assert_eq!(slow.last(), Some(&(599, 0)), "the newest is worth most");
        assert_eq!(stage.counters().datagrams_sent, 1200);
        assert_eq!(stage.gauges().subscriptions, 2);
    });
}

#[test]
fn a_peer_that_allows_few_streams_keeps_its_subscription() {
    let mut setting = setting();
    setting.client.uni_streams_max = 8;
    setting.relay.lag_bytes_max = 1 << 20;
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", millis(100));
        for group in 0..100 {
            stage.group(publication, group, 3, 200);
        }
        stage.step("a hundred groups at once", secs(5));
        let groups: Vec<_> = (0..100).collect();
        stage.expect_objects(subscription, &groups, 3, 200);
        stage.publish_done(publication, 100);
        stage.step("the end", secs(1));
        let done = stage.outcome(subscription).done.as_ref().unwrap();
        assert_eq!(done.stream_count, Some(100));
        assert_eq!(stage.gauges().subgroups, 0);
    });
}

#[test]
fn streams_that_stay_open_are_waited_for_until_the_lag_is_too_long() {
    let mut setting = setting();
    setting.client.uni_streams_max = 8;
    setting.relay.lag_bytes_max = 10_000;
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscriber = stage.client();
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.step("subscribe", millis(100));
        let mut streams: Vec<_> = (0..100)
            .map(|group| stage.open(publication, group))
            .collect();
        for stream in &mut streams {
            stage.object(publication, stream, 0, &[7; 500]);
        }
        stage.step("a hundred groups that stay open", secs(1));
        // One of the eight is the control stream.
        let received = &stage.outcome(subscription).streams;
        assert_eq!(received.len(), 7);
        assert!(stage.gauges().log_bytes <= 12_000);
        for stream in &streams {
            stage.finish(publication, stream);
        }
        stage.step("and end", secs(5));
        let outcome = stage.outcome(subscription);
        let skipped = stage.counters().subgroups_skipped;
        assert_eq!(outcome.streams.len() as u64 + skipped, 100);
        assert!((70..80).contains(&skipped), "{skipped}");
        let fins = outcome.streams.iter();
        assert!(
            fins.clone()
                .all(|stream| stream.end == Some(StreamEnd::Fin))
        );
        assert_eq!(stage.gauges().subgroups, 0);
        stage.group(publication, 200, 3, 200);
        stage.step("one more", secs(1));
        let outcome = stage.outcome(subscription);
        let last = outcome.streams.last().unwrap();
        assert_eq!(last.header.group, 200);
    });
}

#[test]
fn few_streams_are_shared_by_the_subscriptions_of_a_session() {
    let mut setting = setting();
    setting.client.uni_streams_max = 8;
    setting.relay.lag_bytes_max = 1 << 20;
    story(&setting, |stage| {
        let publisher = stage.client();
        let greedy = stage.publish(publisher, "a--greedy");
        let modest = stage.publish(publisher, "a--modest");
        let subscriber = stage.client();
        stage.subscribe(subscriber, "a--greedy");
        let subscription = stage.subscribe(subscriber, "a--modest");
        stage.step("subscribe to two tracks", millis(100));
        let streams: Vec<_> = (0..100)
            .map(|group| {
                let mut stream = stage.open(greedy, group);
                stage.object(greedy, &mut stream, 0, b"x");
                stream
            })
            .collect();
        stage.step("one opens a hundred streams", millis(100));
        stage.group(modest, 0, 1, 10);
        stage.step("the other opens one", millis(100));
        for stream in &streams[..8] {
            stage.finish(greedy, stream);
        }
        stage.step("some of the hundred end", millis(200));
        stage.expect_objects(subscription, &[0], 1, 10);
    });
}

/// Returns the parameters for a subscription's priority and group order.
pub(crate) fn parameters(priority: u8, order: GroupOrder) -> Parameters {
    Parameters {
        subscriber_priority: Some(priority),
        group_order: Some(order),
        ..Parameters::default()
    }
}

/// Returns settings in which the connection, or the relay, orders the waiting data.
pub(crate) fn windows() -> [Setting; 2] {
    [1 << 20, 8000].map(|send_bytes_max| {
        let mut setting = setting();
        setting.quic.send_bytes_max = send_bytes_max;
        setting
    })
}

/// Subscribes to each of two tracks over one slow link.
fn two_tracks(stage: &mut Stage, asked: [Parameters; 2]) -> [(Asked, Asked); 2] {
    let publisher = stage.client();
    let subscriber = stage.client();
    let mut tracks = ["a--1", "a--2"].into_iter().zip(asked);
    let mut next = || {
        let (track, parameters) = tracks.next().expect("there are two");
        let publication = stage.publish(publisher, track);
        stage.wait(millis(50));
        let subscription = stage.subscribe_with(subscriber, track, parameters);
        stage.wait(millis(50));
        (publication, subscription)
    };
    let pairs = [next(), next()];
    // Nothing is lost: the queue is as large as the congestion window.
    slow_down(stage, pairs[0].1, 60_000);
    pairs
}

/// Returns when the first object of a group began and was complete.
pub(crate) fn times(stage: &Stage, subscription: Asked, group: u64) -> (Instant, Instant) {
    let streams = &stage.outcome(subscription).streams;
    let stream = streams.iter().find(|stream| stream.header.group == group);
    let object = &stream.expect("the group came").objects[0];
    (object.at, object.complete_at.expect("it is complete"))
}

#[test]
fn what_is_urgent_goes_first() {
    for setting in windows() {
        story(&setting, |stage| {
            let patient = parameters(200, GroupOrder::Descending);
            let urgent = parameters(10, GroupOrder::Ascending);
            let [(bulk, to_bulk), (urgent, to_urgent)] = two_tracks(stage, [patient, urgent]);
            for group in 0..4 {
                stage.group(bulk, group, 1, 8000);
            }
            stage.step("bulk", millis(100));
            stage.group(urgent, 0, 1, 2000);
            stage.step("and something urgent", secs(15));
            assert_eq!(stage.outcome(to_bulk).objects().len(), 4);
            let (_, complete) = times(stage, to_urgent, 0);
            let [_, _, second, third] = [0, 1, 2, 3].map(|group| times(stage, to_bulk, group));
            assert!(complete <= second.0);
            assert!(third.1 <= second.0, "the newest first");
        });
    }
}

#[test]
fn what_waited_first_keeps_its_rank() {
    for setting in windows() {
        story(&setting, |stage| {
            let urgent = parameters(10, GroupOrder::Ascending);
            let patient = parameters(200, GroupOrder::Ascending);
            let [(urgent, to_urgent), (bulk, to_bulk)] = two_tracks(stage, [urgent, patient]);
            stage.group(urgent, 0, 1, 25_000);
            stage.wait(millis(20));
            stage.group(bulk, 0, 1, 10_000);
            stage.step("much that is urgent, then bulk", secs(15));
            let (_, complete) = times(stage, to_urgent, 0);
            assert!(complete <= times(stage, to_bulk, 0).0);
        });
    }
}

#[test]
fn a_change_of_priority_takes_effect_on_open_streams() {
    // Data that the connection has accepted keeps its order there.
    let [_, narrow] = windows();
    story(&narrow, |stage| {
        let plain = || parameters(100, GroupOrder::Ascending);
        let [(one, to_one), (other, to_other)] = two_tracks(stage, [plain(), plain()]);
        // Blocked streams get room in turn, so the smaller one would be complete first.
        stage.group(other, 0, 1, 25_000);
        stage.wait(millis(20));
        stage.group(one, 0, 1, 8000);
        stage.step("two objects, side by side", millis(500));
        let urgent = Parameters {
            subscriber_priority: Some(1),
            ..Parameters::default()
        };
        stage.update(to_other, urgent);
        stage.step("the other is urgent now", secs(15));
        assert!(times(stage, to_other, 0).1 < times(stage, to_one, 0).1);
    });
}

#[test]
fn who_leaves_with_a_backlog_leaves_nothing_behind() {
    story(&setting(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let subscribers = stage.clients(2);
        let subscriptions: Vec<_> = subscribers
            .iter()
            .map(|&node| stage.subscribe(node, "a--x"))
            .collect();
        stage.wait(millis(100));
        for &subscription in &subscriptions {
            slow_down(stage, subscription, 10_000);
        }
        for group in 0..4 {
            stage.group(publication, group, 1, 20_000);
        }
        stage.step("a backlog for both", millis(100));
        assert!(stage.gauges().log_bytes > 40_000);
        stage.cancel(subscriptions[0]);
        stage.step("one cancels", millis(500));
        assert!(stage.gauges().log_bytes > 0);
        stage.sim.shutdown(subscriptions[1].node);
        stage.step("the other's session ends", millis(500));
        assert_eq!(stage.gauges().log_bytes, 0);
        assert_eq!(stage.gauges().subgroups, 0);
    });
}

/// A subscriber whose link carries almost nothing.
fn stalled(stage: &mut Stage) -> (Asked, Asked) {
    let [publisher, subscriber] = [stage.client(), stage.client()];
    let publication = stage.publish(publisher, "a--x");
    stage.wait(millis(50));
    let subscription = stage.subscribe(subscriber, "a--x");
    stage.step("subscribe", millis(100));
    slow_down(stage, subscription, 10_000);
    (publication, subscription)
}

#[test]
fn whole_groups_are_shed_and_the_newest_is_kept() {
    let mut setting = setting();
    setting.relay.lag_bytes_max = 40_000;
    story(&setting, |stage| {
        let (publication, subscription) = stalled(stage);
        for group in 0..10 {
            // Two subgroups each; the second continues after the group was dropped for this subscriber.
            let mut even = stage.open(publication, group);
            let header = SubgroupHeader {
                subgroup: SubgroupId::Explicit(1),
                ..plain(group)
            };
            let mut odd = stage.open_with(publication, header);
            for object in 0..10 {
                let to = if object % 2 == 0 { &mut even } else { &mut odd };
                stage.object(publication, to, object, &payload(group, object, 1500));
                stage.wait(millis(5));
            }
            stage.finish(publication, &even);
            stage.finish(publication, &odd);
        }
        stage.step("ten groups in half a second", secs(1));
        let counters = stage.counters();
        assert!(counters.groups_shed >= 4, "{counters:?}");
        assert!(stage.gauges().lag_bytes <= 40_000);
        stage.step("it catches up", secs(20));
        let outcome = stage.outcome(subscription);
        assert!(outcome.done.is_none());
        let mut whole = 0;
        for group in 0..10 {
            let streams = outcome.streams.iter();
            let of_group: Vec<_> = streams.filter(|s| s.header.group == group).collect();
            let fins = of_group
                .iter()
                .filter(|s| s.end == Some(StreamEnd::Fin))
                .count();
            let objects: usize = of_group.iter().map(|stream| stream.objects.len()).sum();
            // Data that the connection had accepted when the group was dropped is under way; no stream of it stays
            // open.
            assert!(
                of_group.iter().all(|stream| stream.end.is_some()),
                "group {group}"
            );
            assert!(
                fins < 2 || objects == 10,
                "group {group}: {objects} objects"
            );
            whole += fins / 2;
        }
        assert!(whole >= 2, "{whole}");
        assert!(
            outcome.streams.iter().any(|s| s.header.group == 9),
            "the newest"
        );
        assert_eq!((stage.gauges().lag_bytes, stage.gauges().log_bytes), (0, 0));
    });
}

#[test]
fn a_group_that_is_too_much_by_itself_ends_the_subscription() {
    let mut setting = setting();
    setting.relay.lag_bytes_max = 40_000;
    story(&setting, |stage| {
        let (publication, subscription) = stalled(stage);
        let other = stage.client();
        let unbothered = stage.subscribe(other, "a--x");
        stage.wait(millis(100));
        let mut group = stage.open(publication, 0);
        for object in 0..100 {
            stage.object(publication, &mut group, object, &payload(0, object, 1500));
            stage.wait(millis(10));
        }
        stage.finish(publication, &group);
        stage.step("one group of 150 kB in a second", secs(20));
        stage.expect_objects(unbothered, &[0], 100, 1500);
        let outcome = stage.outcome(subscription);
        let done = outcome
            .done
            .as_ref()
            .map(|done| (done.code, done.stream_count));
        assert_eq!(done, Some((PublishDoneCode::TOO_FAR_BEHIND, Some(1))));
        let reset = Some(StreamEnd::Reset(ResetCode::TOO_FAR_BEHIND));
        assert_eq!(
            outcome.streams.first().map(|stream| stream.end),
            Some(reset)
        );
        assert_eq!(stage.counters().subscriptions_too_far_behind, 1);
        let gauges = stage.gauges();
        assert_eq!((gauges.subscriptions, gauges.lag_bytes), (1, 0));
        let again = stage.subscribe(subscription.node, "a--x");
        stage.step("it may try again", secs(2));
        assert!(stage.is_accepted(again));
    });
}

#[test]
fn what_a_session_is_behind_in_all_is_bounded() {
    let mut setting = setting();
    setting.relay.lag_bytes_max = 100_000;
    setting.relay.lag_bytes_per_session_max = 120_000;
    story(&setting, |stage| {
        let (publication, subscription) = stalled(stage);
        let second = stage.publish(publication.node, "a--y");
        stage.wait(millis(50));
        let other = stage.subscribe(subscription.node, "a--y");
        stage.step("two subscriptions", secs(1));
        for group in 0..4 {
            stage.group(publication, group, 10, 2000);
            stage.wait(millis(50));
        }
        stage.step("within the limit", millis(500));
        assert_eq!(stage.counters().groups_shed, 0);
        let first = stage.gauges().lag_bytes;
        assert!(first > 30_000, "{first}");
        for group in 0..5 {
            stage.group(second, group, 10, 2000);
            stage.wait(millis(50));
            assert!(stage.gauges().lag_bytes <= 120_000);
        }
        stage.step("past it", millis(500));
        let shed = stage.counters().groups_shed;
        assert!(shed > 0);
        stage.step("it catches up", secs(30));
        stage.expect_objects(subscription, &[0, 1, 2, 3], 10, 2000);
        let last = &stage.outcome(other).objects();
        assert!(last.iter().filter(|(group, ..)| *group == 4).count() == 10);
        assert_eq!(stage.gauges().lag_bytes, 0);
    });
}

#[test]
fn what_a_connection_does_not_take_waits_and_is_counted() {
    let mut setting = Setting::default();
    setting.quic.send_bytes_max = 30_000;
    for (bytes, waits) in [(20_000, false), (60_000, true)] {
        story(&setting, |stage| {
            let [publisher, subscriber] = [stage.client(), stage.client()];
            let publication = stage.publish(publisher, "a--x");
            stage.wait(millis(50));
            let subscription = stage.subscribe(subscriber, "a--x");
            slow_down(stage, subscription, 10_000);
            stage.wait(millis(50));
            stage.group(publication, 0, 1, bytes);
            stage.step("an object at once", secs(10));
            stage.expect_objects(subscription, &[0], 1, bytes);
            assert_eq!(stage.counters().streams_waited > 0, waits);
        });
    }
}

#[test]
fn a_stream_that_waits_is_counted_once_however_often_its_priority_changes() {
    let mut setting = Setting::default();
    setting.quic.send_bytes_max = 30_000;
    story(&setting, |stage| {
        let [publisher, subscriber] = [stage.client(), stage.client()];
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(50));
        let (now, relay) = (stage.sim.elapsed(), stage.relay);
        stage.sim.blackhole(relay, subscriber, now, now + secs(2));
        stage.group(publication, 0, 1, 60_000);
        stage.step("an object that does not get through", millis(500));
        assert_eq!(stage.counters().streams_waited, 1);
        let fetch = stage.fetch(subscriber, "a--x", (0, 0), (0, 0));
        stage.step("nor when it is fetched", millis(100));
        assert_eq!(stage.counters().streams_waited, 2);
        for priority in 0..5 {
            for asked in [subscription, fetch] {
                let changed = Parameters {
                    subscriber_priority: Some(priority),
                    ..Parameters::default()
                };
                stage.update(asked, changed);
            }
            stage.wait(millis(20));
        }
        assert_eq!(stage.counters().streams_waited, 2);
        stage.step("it does now", secs(10));
        stage.expect_objects(subscription, &[0], 1, 60_000);
        stage.expect_complete(fetch);
    });
}
