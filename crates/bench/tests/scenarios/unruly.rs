//! Audiences that burden a relay, each by a shipped profile: subscribers that behave well must not notice.

use std::{collections::BTreeMap, time::Duration};

use weir_link::{Bitrate, Queue, Rate};
use weir_report::{
    relay::{Conduct, Outcome, Report},
    service_level::ServiceLevel,
};

use crate::world::{self, Crowd, Setting, World, seed};

const SLOW_READERS: &str = include_str!("../../../../profiles/slow-readers.ini");
const CHURN: &str = include_str!("../../../../profiles/reconnect-churn.ini");
const JOIN_STORM: &str = include_str!("../../../../profiles/join-storm.ini");
const BURSTS: &str = include_str!("../../../../profiles/gop-bursts.ini");
const INTERACTIVE: &str = include_str!("../../../../profiles/interactive.ini");

/// Runs a profile against the relay with `subscribers` subscribers.
fn run(profile: &str, subscribers: usize) -> (World, Report) {
    let setting = Setting::new(profile, seed(11), Crowd::Subscribers(subscribers));
    let mut world = World::new(&setting, world::relay());
    world.run();
    let report = world.report(&ServiceLevel::default(), Duration::ZERO, BTreeMap::new());
    (world, report)
}

#[test]
fn slow_readers_are_the_only_ones_who_miss_something() {
    // A third of few subscribers, instead of a tenth of many.
    let profile = SLOW_READERS.replace("slow_subscribers    = 10", "slow_subscribers = 34");
    // QUIC lets the relay send 4 MiB that are not read. Beyond that, the relay queues 1 MiB.
    let mut config = weir_relay::Config::default();
    config.limits.lag_bytes_max = 1 << 20;
    let relay = weir_relay::Relay::new(config);
    let setting = Setting::new(&profile, seed(11), Crowd::Subscribers(6));
    let mut world = World::new(&setting, relay);
    world.run();
    let report = world.report(&ServiceLevel::default(), Duration::ZERO, BTreeMap::new());
    assert_eq!(
        report.verdict.outcome,
        Outcome::Held,
        "{:?}",
        report.verdict
    );
    let track = &report.tracks[0];
    assert_eq!((track.set_apart.slow_readers, track.status.good), (2, 4));
    // 25 s of video with 30 frames a second, and one more, since 33.33 ms is slightly less than a thirtieth.
    assert_eq!(
        (
            track.completion.lost_objects.sum,
            track.completion.objects_received.min
        ),
        (0, 751)
    );
    // For slow readers, the relay queues what it may and drops the rest.
    assert!(track.set_apart.lost_objects > 100, "{:?}", track.set_apart);
    let counters = world.sim.app::<weir_relay::Relay>(world.relay).counters();
    assert!(counters.streams_reset_lag > 0, "{counters:?}");
}

#[test]
fn those_who_stay_do_not_notice_those_who_come_and_go() {
    let (world, report) = run(CHURN, 30);
    assert_eq!(
        report.verdict.outcome,
        Outcome::Held,
        "{:?}",
        report.verdict
    );
    for track in &report.tracks {
        assert_eq!((track.set_apart.churning, track.status.good), (9, 21));
        assert_eq!(track.completion.lost_objects.sum, 0);
        // Nine subscribers leave, together twenty times a second, for most of 15 s.
        assert!(track.set_apart.sessions > 200, "{:?}", track.set_apart);
        let churning = track
            .subscribers
            .iter()
            .filter(|one| one.conduct == Conduct::Churning);
        for one in churning {
            assert!(one.sessions > 10, "{} sessions", one.sessions);
            assert!(one.completion.objects_received > 0);
        }
    }
    let progress = world.subscribers().progress();
    let first_sessions = 30;
    assert_eq!(progress.ready, first_sessions);
    assert!(progress.rejoined > 200, "{progress:?}");
    // The relay has released all of their state.
    let relay = world.sim.app::<weir_relay::Relay>(world.relay);
    let accepted = relay
        .counters()
        .iter()
        .find(|(name, _)| *name == "sessions");
    assert!(accepted.is_some_and(|(_, sessions)| sessions >= progress.rejoined + first_sessions));
}

#[test]
fn a_storm_of_joins_is_weathered() {
    let (_, report) = run(JOIN_STORM, 300);
    assert_eq!(
        report.verdict.outcome,
        Outcome::Held,
        "{:?}",
        report.verdict
    );
    let set_up = report.set_up.handshake.unwrap();
    assert_eq!(set_up.count, 300);
    // Two round trips of 20 ms, and one tick of the relay's timers.
    assert!(set_up.max_ms < 1_000.0, "{set_up:?}");
    assert_eq!(report.objects_delivered(), 250 * 300);
}

/// Returns how many of 200 clients that connect at once are refused by a relay whose host was late by these
/// milliseconds in successive checks.
fn refused_in_a_storm(looks: &[u64]) -> u64 {
    let setting = Setting::new(JOIN_STORM, seed(11), Crowd::Subscribers(200));
    let mut world = World::new(&setting, world::relay());
    let relay = world.relay;
    for (number, millis) in (0..).zip(looks) {
        let load = weir_relay::Load {
            queue_delay: Duration::from_millis(*millis),
            memory_bytes: 0,
            heap_bytes: 0,
        };
        // By then the publisher has announced its track, and most subscribers are not yet admitted.
        world
            .sim
            .at(Duration::from_millis(75 + number), move |sim| {
                sim.with_app(relay, |now, relay: &mut weir_relay::Relay, endpoint| {
                    relay.observe_load(now, endpoint, load);
                });
            });
    }
    world.run();
    let report = world.report(&ServiceLevel::default(), Duration::ZERO, BTreeMap::new());
    let refused = report.tracks[0].status.failed;
    assert_eq!(report.verdict.outcome.is_held(), refused == 0);
    refused
}

#[test]
fn in_a_storm_nobody_is_refused_for_turns_that_took_long() {
    assert_eq!(refused_in_a_storm(&[]), 0);
    // The handshakes of a crowd delay the relay for a while. Only a delay that lasts a second is overload.
    assert_eq!(refused_in_a_storm(&[900]), 0);
    assert_eq!(refused_in_a_storm(&[900, 900, 900]), 0);
}

#[test]
fn whole_groups_at_once_get_through_a_link_that_carries_their_average() {
    let mut setting = Setting::new(BURSTS, seed(11), Crowd::Subscribers(5));
    // Four cameras of 788 kbit/s for each of five subscribers, plus half of that.
    setting.link.rate = Rate::Fixed(Bitrate::from_megabits_per_second(24));
    setting.link.queue = Queue {
        bytes_max: 4_000_000,
        ..Queue::default()
    };
    let mut world = World::new(&setting, world::relay());
    world.run();
    let report = world.report(&ServiceLevel::default(), Duration::ZERO, BTreeMap::new());
    assert_eq!(report.objects_lost(), 0, "{:?}", report.verdict);
    for track in &report.tracks {
        assert_eq!(track.status.good, 5, "{:?}", track.status);
        // A burst is 394 kB for five subscribers: it takes a while to send, and none is still queued at the next.
        let latency = track.latency.overall.unwrap();
        assert!(
            latency.p99_ms > 100.0 && latency.max_ms < 1_000.0,
            "{latency:?}"
        );
    }
}

#[test]
fn an_unruly_audience_repeats_itself() {
    let trace = |profile| run(profile, 12).0.sim.trace_hash();
    assert_eq!(trace(SLOW_READERS), trace(SLOW_READERS));
    assert_eq!(trace(CHURN), trace(CHURN));
}

#[test]
fn interactive_traffic_with_pauses_and_outliers_arrives_in_time() {
    let (_, report) = run(INTERACTIVE, 5);
    assert_eq!(
        report.verdict.outcome,
        Outcome::Held,
        "{:?}",
        report.verdict
    );
    let [speech, events] = &report.tracks[..] else {
        panic!("two tracks")
    };
    // Fifteen seconds hold four turns of 1.5 s, the last of them whole.
    assert_eq!(speech.completion.objects_received.min, 4 * 75);
    let gap = speech.progress.max_delta_ms.expect("objects arrived").max;
    assert!((2_500.0..2_600.0).contains(&gap), "{gap}");
    let deltas = &events.progress;
    let (mean, most) = (deltas.average_delta_ms.zip(deltas.max_delta_ms)).expect("objects arrived");
    assert!(most.max > 3.0 * mean.mean, "{deltas:?}");
    for track in &report.tracks {
        let delivery = &track.delivery;
        assert_eq!((delivery.corrupt, delivery.late), (0, 0));
    }
}
