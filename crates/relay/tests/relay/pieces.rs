//! Requests that cost much are served in pieces: no turn of the relay does more than a fixed amount of work for them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use weir_moqt::{
    error::RequestErrorCode,
    location::Location,
    name::Namespace,
    parameter::{Filter, Parameters},
    property::Properties,
};
use weir_relay::Load;

use crate::{
    actor::{Heard, Manner},
    authorising::{Doorkeeper, client_with},
    stage::{Asked, Setting, Stage, millis, name, rendezvous, secs, space, story},
};

/// Just after the first packets that answer a request have arrived.
const FIRST: Duration = Duration::from_micros(20_500);

fn wide() -> Setting {
    let mut setting = Setting::default();
    setting.quic.bidi_streams_max = 1000;
    setting.client.bidi_streams_max = 1000;
    setting.session.requests_max = 1000;
    setting
}

#[test]
fn a_prefix_with_many_namespaces_is_answered_in_pieces() {
    story(&wide(), |stage| {
        let announcer = stage.client();
        for number in 0..300 {
            stage.announce(announcer, &format!("a-{number}"));
        }
        let [one, other, fickle] = [stage.client(), stage.client(), stage.client()];
        stage.step("three hundred namespaces", millis(200));
        assert_eq!(stage.gauges().namespaces, 300);
        let watches = [one, other].map(|node| stage.watch(node, space("a")));
        // Who cancels at once gets nothing more.
        let cancelled = stage.watch(fickle, Namespace::EMPTY);
        stage.cancel(cancelled);
        stage.step("the first piece", FIRST);
        for watch in watches {
            assert!(stage.is_accepted(watch));
            assert!(stage.heard(watch).len() <= 64);
        }
        assert!(!stage.heard(watches[0]).is_empty());
        // What comes meanwhile is reported once.
        stage.announce(announcer, "a-0-new");
        stage.announce(announcer, "a-99-new");
        stage.step("the others", millis(100));
        for watch in watches {
            let mut came = stage.heard(watch);
            assert_eq!(came.len(), 302);
            came.sort_by_key(|heard| format!("{heard:?}"));
            came.dedup();
            assert_eq!(came.len(), 302, "each once");
            assert!(came.iter().all(|heard| matches!(heard, Heard::Came(_))));
        }
        assert!(stage.heard(cancelled).len() <= 64);
    });
}

#[test]
fn tracks_under_a_prefix_are_offered_in_pieces() {
    let mut setting = wide();
    setting.client.keep_alive = Some(secs(5));
    story(&setting, |stage| {
        let publisher = stage.client();
        for number in 0..200 {
            stage.publish(publisher, &format!("a--{number}"));
        }
        let collector = stage.client();
        stage.step("two hundred tracks", millis(200));
        let asked = stage.collect(collector, space("a"), Parameters::default());
        stage.step("the first piece", FIRST);
        assert!(stage.is_accepted(asked));
        assert!((1..=64).contains(&stage.actor(collector).offered.len()));
        stage.step("the others", millis(200));
        let offered = &stage.actor(collector).offered;
        let mut names: Vec<_> = offered.iter().map(|(_, it)| it.track.clone()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 200);
    });
}

#[test]
fn who_announces_what_many_wait_for_is_asked_in_pieces() {
    story(&wide(), |stage| {
        let (viewer, announcer) = (stage.client(), stage.client());
        for number in 0..400 {
            stage.subscribe_with(viewer, &format!("a--{number}"), rendezvous(secs(20)));
        }
        stage.step("four hundred requests wait", millis(200));
        assert_eq!(stage.gauges().waiting, 400);
        stage.direct(announcer, |actor| actor.manner = Manner::Accept(42));
        stage.announce(announcer, "a");
        stage.step("the first piece", FIRST);
        assert!((1..=256).contains(&stage.actor(announcer).asked.len()));
        stage.step("the others", millis(500));
        let asked = &stage.actor(announcer).asked;
        assert_eq!(asked.len(), 400);
        let last = name("a--399");
        assert!(asked.iter().any(|(_, subscribe)| subscribe.track == last));
    });
}

#[test]
fn a_fetch_of_many_small_objects_is_served_in_pieces() {
    story(&Setting::default(), |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        stage.group(publication, 1, 1000, 2);
        stage.step("a thousand objects", millis(200));
        let viewer = stage.client();
        let fetch = stage.fetch(viewer, "a--x", (1, 0), (1, 999));
        stage.step("the first piece", Duration::from_micros(20_100));
        assert!((1..=256).contains(&stage.fetched(fetch).objects().len()));
        stage.step("the others", millis(200));
        assert_eq!(stage.fetched(fetch).objects().len(), 1000);
        stage.expect_complete(fetch);
    });
}

/// Returns by how much a figure of the relay falls in each turn until it is 0. The relay waits a millisecond between two
/// turns of such work, so no more than one is within half a millisecond.
fn falls(stage: &mut Stage, figure: impl Fn(&Stage) -> u64) -> Vec<u64> {
    let deadline = stage.sim.elapsed() + secs(20);
    let mut falls = Vec::new();
    let mut last = figure(stage);
    while last > 0 {
        assert!(stage.sim.elapsed() < deadline, "{last} are left: {falls:?}");
        stage.wait(Duration::from_micros(500));
        let left = figure(stage);
        falls.extend((left < last).then(|| last - left));
        last = left;
    }
    falls
}

/// Publishes groups of one object each.
fn small_groups(stage: &mut Stage, count: u64) -> Asked {
    let publisher = stage.client();
    let publication = stage.publish(publisher, "a--x");
    stage.wait(millis(50));
    for group in 0..count {
        stage.datagram(publication, group, 0, b"object");
        if group % 100 == 99 {
            stage.wait(millis(5));
        }
    }
    stage.step("many small groups", millis(100));
    assert_eq!(stage.gauges().cache_objects, count);
    publication
}

#[test]
fn groups_of_the_cache_expire_in_pieces() {
    let mut setting = wide();
    setting.relay.cache_age_max = secs(3);
    setting.client.keep_alive = Some(secs(1));
    story(&setting, |stage| {
        small_groups(stage, 3000);
        let falls = falls(stage, |stage| stage.gauges().cache_objects);
        assert!(falls.iter().all(|&count| count <= 1024), "{falls:?}");
        assert_eq!(falls.iter().sum::<u64>(), 3000);
        assert_eq!(stage.counters().cache_groups_expired, 3000);
    });
}

#[test]
fn groups_of_the_cache_are_evicted_for_memory_in_pieces() {
    story(&wide(), |stage| {
        small_groups(stage, 3000);
        stage.load(Load {
            heap_bytes: 1 << 30,
            ..Load::default()
        });
        assert_eq!(stage.gauges().cache_objects, 3000 - 1024, "the first piece");
        let falls = falls(stage, |stage| stage.gauges().cache_objects);
        assert!(falls.iter().all(|&count| count <= 1024), "{falls:?}");
        let counters = stage.counters();
        // The last group is evicted by its objects.
        let evicted = counters.cache_groups_evicted + counters.cache_objects_evicted;
        assert_eq!(evicted, 3000);
    });
}

#[test]
fn groups_of_a_track_make_room_for_a_large_object_in_pieces() {
    let mut setting = wide();
    setting.relay.cache_track_bytes_max = 4_000_000;
    story(&setting, |stage| {
        let publication = small_groups(stage, 3000);
        let mut outgoing = stage.open(publication, 3000);
        stage.object(publication, &mut outgoing, 0, &vec![7; 4_100_000]);
        let falls = falls(stage, |stage| {
            stage.gauges().cache_objects.saturating_sub(1)
        });
        // The first ones go with the object, which is counted as it comes.
        assert!(falls[0] <= 64, "{falls:?}");
        assert!(falls.iter().all(|&count| count <= 1024), "{falls:?}");
    });
}

#[test]
fn sessions_that_hold_too_much_are_closed_in_pieces() {
    let mut setting = wide();
    setting.client.keep_alive = Some(secs(10));
    story(&setting, |stage| {
        let honest = stage.client();
        stage.publish(honest, "a--x");
        let hostile = stage.clients(9);
        for (place, &node) in hostile.iter().enumerate() {
            for number in 0..2 {
                let bulk = Bytes::from(vec![7; 50_000]);
                let properties = Properties::builder().bytes(0x3ff1, bulk).build();
                let track = format!("b-{place}--{number}");
                stage.publish_with(node, &track, Parameters::default(), properties);
            }
        }
        stage.step("nine sessions hold much", secs(2));
        assert_eq!(stage.gauges().tracks, 19);
        stage.load(Load {
            heap_bytes: 1 << 30,
            ..Load::default()
        });
        assert_eq!(
            stage.counters().sessions_closed_memory,
            2,
            "the first piece"
        );
        let falls = falls(stage, |stage| stage.gauges().sessions - 1);
        assert_eq!(falls, [2, 2, 2, 1]);
        assert_eq!(stage.counters().sessions_closed_memory, 9);
        assert!(stage.actor(honest).lost.is_none());
    });
}

#[test]
fn requests_of_a_session_that_is_gone_end_in_pieces() {
    story(&wide(), |stage| {
        let (viewer, other) = (stage.client(), stage.client());
        for number in 0..900 {
            stage.subscribe_with(viewer, &format!("a--{number}"), rendezvous(secs(20)));
        }
        stage.subscribe_with(other, "a--0", rendezvous(secs(20)));
        stage.step("nine hundred requests wait", millis(300));
        assert_eq!(stage.gauges().waiting, 901);
        stage.sim.shutdown(viewer);
        let falls = falls(stage, |stage| stage.gauges().waiting - 1);
        assert_eq!(falls, [512, 388]);
    });
}

#[test]
fn tracks_of_a_publisher_that_is_gone_end_in_pieces() {
    let mut setting = wide();
    setting.relay.done_linger = secs(3);
    story(&setting, |stage| {
        let publisher = stage.client();
        let published: Vec<_> = (0..40)
            .map(|number| stage.publish(publisher, &format!("a--{number}")))
            .collect();
        stage.wait(millis(50));
        let audience = stage.clients(40);
        for &viewer in &audience {
            for number in 0..40 {
                stage.subscribe(viewer, &format!("a--{number}"));
            }
        }
        stage.step("forty viewers of forty tracks", millis(200));
        assert_eq!(stage.gauges().subscriptions, 1600);
        for &publication in &published {
            // The relay waits for a stream that never comes.
            stage.publish_done(publication, 1);
        }
        stage.wait(millis(50));
        assert_eq!(stage.gauges().subscriptions, 1600);
        stage.sim.shutdown(publisher);
        let falls = falls(stage, |stage| stage.gauges().subscriptions);
        assert!(falls.iter().all(|&count| count <= 600), "{falls:?}");
    });
}

#[test]
fn namespaces_of_a_link_that_is_lost_are_withdrawn_in_pieces() {
    story(&wide(), |stage| {
        let announcer = stage.client();
        for number in 0..300 {
            stage.announce(announcer, &format!("a-{number}"));
        }
        let edge = stage.edge(&[stage.relay]);
        stage.await_links(edge);
        let viewer = stage.client_at(edge);
        let watch = stage.watch(viewer, space("a"));
        stage.step("three hundred namespaces over a link", millis(500));
        assert_eq!(stage.heard(watch).len(), 300);
        stage.sim.kill(stage.relay);
        let (mut heard, mut most) = (300, 0);
        while heard < 600 {
            assert!(stage.sim.elapsed() < secs(60), "{heard} were heard");
            stage.wait(millis(5));
            let now = stage.heard(watch).len();
            most = most.max(now - heard);
            heard = now;
        }
        // Sixteen in a millisecond.
        assert!(most <= 96, "{most} in five milliseconds");
    });
}

#[test]
fn matches_that_are_counted_for_a_session_in_a_second_are_bounded() {
    const SPACES: u64 = 600;
    let mut setting = wide();
    setting.relay.resets_per_second_max = 10_000;
    story(&setting, |stage| {
        let announcer = stage.client();
        for number in 0..SPACES {
            stage.announce(announcer, &format!("a-{number}"));
        }
        let [greedy, modest] = [stage.client(), stage.client()];
        stage.step("six hundred namespaces", millis(300));
        // All but the first overlap with it, which is found after their matches were counted.
        let asked: Vec<_> = (0..130).map(|_| stage.watch(greedy, space("a"))).collect();
        stage.step("each asks for all of them", millis(400));
        assert!(stage.is_accepted(asked[0]));
        let refused = |stage: &Stage, code| {
            let codes = asked.iter().filter_map(|&asked| stage.refusal(asked));
            codes.filter(|found| *found == code).count() as u64
        };
        let counted = (1_u64 << 16).div_ceil(SPACES);
        let overlaps = refused(stage, RequestErrorCode::PREFIX_OVERLAP);
        assert_eq!(overlaps, counted - 1);
        let busy = refused(stage, RequestErrorCode::EXCESSIVE_LOAD);
        assert_eq!(busy, 130 - counted);
        let watch = stage.watch(modest, space("a"));
        stage.step("another session may ask", millis(700));
        assert!(stage.is_accepted(watch));
        let again = stage.watch(greedy, space("a"));
        stage.step("and the first one a second later", millis(100));
        let overlap = Some(RequestErrorCode::PREFIX_OVERLAP);
        assert_eq!(stage.refusal(again), overlap);
    });
}

#[test]
fn requests_that_expire_together_end_in_pieces() {
    let mut setting = wide();
    setting.authority = Arc::new(Doorkeeper);
    setting.client.keep_alive = Some(secs(1));
    story(&setting, |stage| {
        let viewer = client_with(stage, &["subscribe:a:5"]);
        for number in 0..900 {
            stage.subscribe_with(viewer, &format!("a--{number}"), rendezvous(secs(20)));
        }
        stage.step("nine hundred requests wait", millis(300));
        assert_eq!(stage.gauges().waiting, 900);
        let falls = falls(stage, |stage| stage.gauges().waiting);
        assert!(falls.iter().all(|&count| count <= 128), "{falls:?}");
        assert_eq!(stage.counters().requests_expired, 900);
    });
}

/// Returns the parameters of a subscription to so many groups.
fn groups(first: u64, count: u64) -> Parameters {
    let start = Location::new(first, 0);
    let end = Location::new(first + count - 1, u64::MAX);
    Parameters {
        filter: Some(Filter::AbsoluteRange { start, end }),
        ..Parameters::default()
    }
}

/// Publishes groups of one object each, on streams.
fn small_streams(stage: &mut Stage, publication: Asked, count: u64) {
    for group in 0..count {
        stage.group(publication, group, 1, 1);
        stage.wait(Duration::from_micros(200));
    }
    stage.wait(millis(50));
}

#[test]
fn subgroups_that_sessions_held_are_removed_in_pieces() {
    let mut setting = wide();
    setting.client.uni_streams_max = 1;
    story(&setting, |stage| {
        let publisher = stage.client();
        let publication = stage.publish(publisher, "a--x");
        let others = stage.clients(200);
        for other in others {
            stage.subscribe_with(other, "a--x", groups(1000, 1));
        }
        let slow = stage.clients(3);
        for (place, &node) in (0..).zip(&slow) {
            stage.subscribe_with(node, "a--x", groups(100 * place, 100));
        }
        stage.step("subscribe", millis(100));
        small_streams(stage, publication, 300);
        assert_eq!(stage.gauges().subgroups, 300);
        for &node in &slow {
            stage.sim.shutdown(node);
        }
        let falls = falls(stage, |stage| stage.gauges().subgroups);
        // Each of them concerns two hundred subscriptions.
        assert!(falls.iter().all(|&count| count <= 40), "{falls:?}");
    });
}

#[test]
fn subscriptions_that_hold_many_subgroups_end_in_pieces() {
    let mut setting = wide();
    setting.client.uni_streams_max = 1;
    story(&setting, |stage| {
        let (publisher, slow) = (stage.client(), stage.client());
        let publications: Vec<_> = (0..48)
            .map(|number| stage.publish(publisher, &format!("a--{number}")))
            .collect();
        stage.wait(millis(50));
        for number in 0..48 {
            stage.subscribe(slow, &format!("a--{number}"));
        }
        stage.step("subscribe", millis(100));
        for publication in publications {
            small_streams(stage, publication, 100);
        }
        assert_eq!(stage.gauges().subgroups, 4800);
        stage.sim.shutdown(slow);
        let falls = falls(stage, |stage| stage.gauges().subscriptions);
        assert!(falls.iter().all(|&count| count <= 40), "{falls:?}");
    });
}
