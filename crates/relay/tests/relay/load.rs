//! Limits of sessions and of requests per second, and load shedding.

use bytes::Bytes;
use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode, ResetCode, SessionError},
    message::Setup,
    parameter::Parameters,
    property::Properties,
};
use weir_quic::Lost;
use weir_relay::Load;
use weir_sim::NodeId;
use weir_transport::{Direction, Transport as _};

use crate::stage::{Setting, Stage, forward, millis, rendezvous, secs, space, story};

fn is_closed_with(stage: &Stage, node: NodeId, code: SessionError) -> bool {
    let lost = stage.actor(node).lost.as_ref();
    matches!(lost, Some(Lost::Application { code: found, .. }) if *found == code.0)
}

fn expect_no_room(stage: &mut Stage) -> NodeId {
    let node = stage.absent_client();
    stage.begin(node, Setup::default());
    stage.step("one past the limit", secs(1));
    assert!(is_closed_with(stage, node, SessionError::INTERNAL_ERROR));
    node
}

#[test]
fn sessions_are_bounded() {
    let mut setting = Setting::default();
    setting.relay.sessions_max = 3;
    story(&setting, |stage| {
        let nodes = stage.clients(3);
        expect_no_room(stage);
        assert_eq!(stage.counters().sessions_refused_total, 1);
        assert_eq!(stage.gauges().sessions, 3);
        stage.sim.shutdown(nodes[0]);
        stage.step("make room", millis(100));
        stage.client();
        assert_eq!(stage.counters().sessions_refused_total, 1);
    });
}

/// A client chooses the thread, by its first connection ID.
#[test]
fn sessions_from_one_address_are_bounded_over_all_threads() {
    let mut setting = Setting {
        threads: 4,
        ..Setting::default()
    };
    setting.relay.sessions_per_address_max = 1;
    story(&setting, |stage| {
        for again in stage.clients(8) {
            stage.sim.kill(again);
            stage.begin(again, Setup::default());
            stage.step("two from one address", secs(1));
            assert!(is_closed_with(stage, again, SessionError::INTERNAL_ERROR));
        }
        assert_eq!(stage.counters().sessions_refused_address, 8);
    });
}

#[test]
fn sessions_from_one_address_are_bounded() {
    let mut setting = Setting::default();
    setting.relay.sessions_per_address_max = 1;
    story(&setting, |stage| {
        let nodes = stage.clients(2);
        let again = nodes[0];
        // The relay does not notice at once that the first session is gone.
        stage.sim.kill(again);
        stage.begin(again, Setup::default());
        stage.step("two from one address", secs(1));
        assert!(is_closed_with(stage, again, SessionError::INTERNAL_ERROR));
        assert_eq!(stage.counters().sessions_refused_address, 1);
        stage.step("now it has", secs(40));
        stage.connect(again);
        assert_eq!(stage.counters().sessions_refused_address, 1);
    });
}

#[test]
fn updates_in_a_second_are_bounded() {
    let mut setting = Setting::default();
    setting.relay.updates_per_second_max = 4;
    story(&setting, |stage| {
        let [publisher, subscriber] = [stage.client(), stage.client()];
        stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.wait(millis(50));
        for round in 0..2 {
            for update in 0..4 {
                stage.update(subscription, forward(update % 2 == 0));
            }
            stage.step("as many as it may", secs(1));
            assert_eq!(
                stage.outcome(subscription).updates_answered,
                4 * (round + 1)
            );
            assert_eq!(stage.counters().updates_refused, 0);
        }
        for _ in 0..5 {
            stage.update(subscription, forward(true));
        }
        stage.step("one more", millis(100));
        assert_eq!(stage.counters().updates_refused, 1);
        let outcome = stage.outcome(subscription);
        let codes: Vec<_> = outcome
            .update_errors
            .iter()
            .map(|error| error.code)
            .collect();
        assert_eq!(codes, [RequestErrorCode::EXCESSIVE_LOAD]);
        let done = outcome.done.as_ref().map(|done| done.code);
        assert_eq!(done, Some(PublishDoneCode::UPDATE_FAILED));
    });
}

#[test]
fn resets_in_a_second_are_bounded() {
    let mut setting = Setting::default();
    setting.relay.resets_per_second_max = 4;
    story(&setting, |stage| {
        let [publisher, vandal, other] = [stage.client(), stage.client(), stage.client()];
        let source = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let unbothered = stage.subscribe(other, "a--x");
        for _ in 0..2 {
            for _ in 0..4 {
                let asked = stage.subscribe_with(vandal, "a--y", rendezvous(secs(9)));
                stage.wait(millis(20));
                stage.cancel(asked);
            }
            stage.step("as many as it may", secs(1));
            assert!(stage.actor(vandal).lost.is_none());
        }
        for _ in 0..5 {
            let asked = stage.subscribe_with(vandal, "a--y", rendezvous(secs(9)));
            stage.wait(millis(20));
            stage.cancel(asked);
        }
        stage.step("one more", millis(200));
        assert!(is_closed_with(stage, vandal, SessionError::INTERNAL_ERROR));
        assert_eq!(stage.counters().sessions_closed_resets, 1);
        for group in 0..5 {
            let outgoing = stage.open(source, group);
            stage.wait(millis(20));
            stage.reset(source, &outgoing, ResetCode::INTERNAL_ERROR);
        }
        stage.step("a publisher that resets its streams", millis(200));
        assert!(is_closed_with(
            stage,
            publisher,
            SessionError::INTERNAL_ERROR
        ));
        assert_eq!(stage.counters().sessions_closed_resets, 2);
        assert!(stage.is_accepted(unbothered));
        assert_eq!(stage.gauges().sessions, 1);
    });
}

#[test]
fn streams_reset_before_they_say_what_they_are_count_too() {
    // Nothing; parts of a header; a header with an unknown alias, which waits for a message that assigns it, or may
    // not.
    let cases: [(&[u8], usize); 5] = [
        (&[], 64),
        (&[0x14], 64),
        (&[0x14, 9, 1, 0], 64),
        (&[0x14, 9, 1, 0, 0], 64),
        (&[0x14, 9, 1, 0, 0], 0),
    ];
    for (begun, streams_unknown_max) in cases {
        let mut setting = Setting::default();
        setting.relay.resets_per_second_max = 4;
        setting.session.streams_unknown_max = streams_unknown_max;
        story(&setting, |stage| {
            let vandal = stage.client();
            for (round, count) in [4, 5].into_iter().enumerate() {
                for _ in 0..count {
                    let stream = stage.act(vandal, |_, connection| {
                        let stream = connection.open(Direction::Uni).expect("there is room");
                        let _is_all = connection.write(stream, &mut Bytes::from_static(begun));
                        stream
                    });
                    stage.wait(millis(15));
                    stage.act(vandal, |_, connection| connection.reset(stream, 0));
                }
                stage.step("streams that come to nothing", secs(2));
                let is_past = round == 1;
                assert_eq!(stage.counters().sessions_closed_resets, u64::from(is_past));
                assert_eq!(stage.actor(vandal).lost.is_some(), is_past, "{begun:?}");
            }
        });
    }
}

/// An attack that idles: what it makes the relay keep would otherwise lock out everybody else for as long as it stays.
#[test]
fn memory_is_freed_in_the_cache_and_then_where_most_is_held() {
    let mut setting = Setting::default();
    setting.client.keep_alive = Some(secs(10));
    story(&setting, |stage| {
        let [publisher, subscriber, hostile] = [stage.client(), stage.client(), stage.client()];
        let source = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let subscription = stage.subscribe(subscriber, "a--x");
        for number in 0..3 {
            let bulk = Bytes::from(vec![7; 50_000]);
            let properties = Properties::builder().bytes(0x3ff1, bulk).build();
            let track = format!("b--{number}");
            stage.publish_with(hostile, &track, Parameters::default(), properties);
        }
        for group in 1..=4 {
            stage.group(source, group, 2, 500);
        }
        stage.step("who holds most is idle", secs(1));
        assert_eq!(stage.gauges().tracks, 4);
        let cached = stage.gauges().cache_objects;
        assert_eq!(cached, 8);
        let load = |heap_bytes| Load {
            heap_bytes,
            ..Load::default()
        };
        stage.load(load(900));
        assert_eq!(stage.gauges().cache_objects, 8, "at nine tenths");
        stage.load(load(901));
        assert_eq!(
            stage.gauges().cache_objects,
            6,
            "past it, the oldest group goes"
        );
        assert_eq!(stage.counters().sessions_closed_memory, 0);
        stage.load(load(100_000));
        stage.step("the cache is not enough", millis(100));
        assert_eq!(stage.gauges().cache_objects, 0);
        assert_eq!(stage.counters().sessions_closed_memory, 1);
        let lost = stage.actor(hostile).lost.as_ref();
        let Some(Lost::Application { code, reason }) = lost else {
            panic!("{lost:?}");
        };
        assert_eq!(*code, SessionError::INTERNAL_ERROR.0);
        assert!(reason.contains("out of memory"), "{reason:?}");
        // The others hold next to nothing, and go on.
        stage.load(load(100_000));
        stage.group(source, 5, 2, 500);
        stage.step("the honest go on", millis(200));
        assert_eq!(stage.counters().sessions_closed_memory, 1);
        assert_eq!(stage.gauges().sessions, 2);
        stage.expect_objects(subscription, &[1, 2, 3, 4, 5], 2, 500);
    });
}

/// A subscriber that reads nothing fills its connection's send buffer, up to its limit of lag.
#[test]
fn who_does_not_read_holds_memory_too() {
    let mut setting = Setting::default();
    setting.relay.cache_track_bytes_max = 0;
    setting.client.keep_alive = Some(secs(10));
    story(&setting, |stage| {
        let [publisher, subscriber, deaf] = [stage.client(), stage.client(), stage.client()];
        let source = stage.publish(publisher, "a--x");
        stage.wait(millis(50));
        let subscription = stage.subscribe(subscriber, "a--x");
        stage.subscribe(deaf, "a--x");
        stage.wait(millis(50));
        stage.sim.kill(deaf);
        stage.group(source, 1, 10, 20_000);
        stage.step("objects", secs(1));
        // What it holds lies scattered: the process needs more than is given out.
        stage.load(Load {
            memory_bytes: 1_000_000,
            heap_bytes: 800,
            ..Load::default()
        });
        stage.step("memory runs out", millis(100));
        assert_eq!(stage.counters().sessions_closed_memory, 1);
        assert_eq!(stage.gauges().sessions, 2);
        stage.expect_objects(subscription, &[1], 10, 20_000);
    });
}

/// 24 names of 4000 bytes: 96 KiB, of which an estimate for each request would find a quarter. They count for the session
/// that chose them, not for an announcer that is asked for them.
#[test]
fn names_hold_memory_too() {
    let mut setting = Setting::default();
    setting.client.keep_alive = Some(secs(10));
    story(&setting, |stage| {
        let [honest, announcer, publisher] = [stage.client(), stage.client(), stage.client()];
        let subscriber = stage.client();
        stage.announce(honest, "a");
        let long = "n".repeat(3_990);
        for number in 10..34 {
            stage.announce(announcer, &format!("{number}{long}"));
            stage.publish(publisher, &format!("{number}--{long}"));
            stage.subscribe(subscriber, &format!("a--{number}{long}"));
        }
        stage.step("long names", secs(1));
        stage.load(Load {
            heap_bytes: 1_000_000,
            ..Load::default()
        });
        stage.step("memory runs out", millis(100));
        assert_eq!(stage.counters().sessions_closed_memory, 3);
        assert!(stage.actor(honest).lost.is_none());
    });
}

/// The relay remembers of what it has notified a session with a wide prefix.
#[test]
fn who_watches_much_holds_memory_too() {
    let mut setting = Setting::default();
    setting.client.keep_alive = Some(secs(10));
    setting.quic.bidi_streams_max = 1000;
    setting.client.bidi_streams_max = 1000;
    setting.session.requests_max = 1000;
    story(&setting, |stage| {
        let watcher = stage.client();
        let announcers = stage.clients(2);
        for (place, &node) in announcers.iter().enumerate() {
            for number in 0..600 {
                stage.announce(node, &format!("a-{place}-{number}"));
            }
        }
        stage.step("twelve hundred namespaces", millis(500));
        stage.watch(watcher, space("a"));
        stage.step("one watches all of them", millis(500));
        stage.load(Load {
            heap_bytes: 1 << 30,
            ..Load::default()
        });
        stage.step("memory runs out", millis(100));
        assert_eq!(stage.counters().sessions_closed_memory, 3);
    });
}

#[test]
fn the_cache_makes_room_before_anybody_is_refused_or_closed() {
    story(&Setting::default(), |stage| {
        let [publisher, deaf] = [stage.client(), stage.client()];
        let source = stage.publish(publisher, "a--x");
        stage.subscribe(deaf, "a--x");
        stage.wait(millis(50));
        stage.sim.kill(deaf);
        stage.group(source, 1, 10, 20_000);
        stage.group(source, 2, 10, 20_000);
        stage.step("objects", secs(1));
        let load = Load {
            memory_bytes: 901,
            heap_bytes: 800,
            ..Load::default()
        };
        let cached = stage.gauges().cache_objects;
        stage.load(load);
        stage.step("nine tenths", millis(100));
        assert!(stage.gauges().cache_objects < cached);
        let memory_bytes = 5000;
        // A peak is over: the process keeps its pages, and little is given out.
        stage.load(Load {
            memory_bytes,
            heap_bytes: 400,
            ..load
        });
        let newcomer = stage.client();
        stage.publish(newcomer, "a--y");
        stage.step("the peak is over", secs(3));
        let counters = stage.counters();
        assert_eq!(
            (counters.load_sheddings, counters.sessions_closed_memory),
            (0, 0)
        );
        assert_eq!(stage.gauges().tracks, 2);
    });
}

/// A publisher whose stream lacks its first packet: the rest waits in the relay.
#[test]
fn who_sends_out_of_order_holds_memory_too() {
    story(&Setting::default(), |stage| {
        let [publisher, subscriber, hostile] = [stage.client(), stage.client(), stage.client()];
        let source = stage.publish(publisher, "a--x");
        let other = stage.publish(hostile, "b--x");
        stage.wait(millis(50));
        let subscription = stage.subscribe(subscriber, "a--x");
        for group in 1..=4 {
            stage.group(source, group, 10, 50_000);
            stage.group(other, group, 10, 50_000);
            stage.step("both publish as much", secs(1));
        }
        stage.load(Load {
            heap_bytes: 100_000_000,
            ..Load::default()
        });
        assert_eq!(stage.counters().sessions_closed_memory, 0, "it was read");
        let (relay, now) = (stage.relay, stage.sim.elapsed());
        stage.sim.blackhole(hostile, relay, now, now + millis(3));
        stage.sim.blackhole(relay, hostile, now, now + secs(9));
        stage.wait(millis(1));
        let mut outgoing = stage.open(other, 5);
        stage.wait(millis(3));
        stage.object(other, &mut outgoing, 0, &vec![7; 300_000]);
        stage.step("all but the first packet", millis(15));
        stage.sim.kill(hostile);
        stage.step("arrives", secs(1));
        stage.load(Load {
            heap_bytes: 100_000_000,
            ..Load::default()
        });
        stage.step("memory runs out", millis(100));
        assert_eq!(stage.counters().sessions_closed_memory, 1);
        assert_eq!(stage.gauges().sessions, 2);
        stage.group(source, 5, 2, 500);
        stage.step("the honest go on", millis(200));
        assert_eq!(stage.outcome(subscription).objects().len(), 42);
    });
}

#[test]
fn under_load_nothing_new_is_taken_on_and_what_runs_goes_on() {
    let calm = Load {
        queue_delay: millis(10),
        memory_bytes: 800,
        heap_bytes: 600,
    };
    let busy = [
        Load {
            queue_delay: millis(101),
            ..calm
        },
        Load {
            memory_bytes: 1001,
            ..calm
        },
    ];
    for busy in busy {
        story(&Setting::default(), |stage| {
            let [publisher, subscriber] = [stage.client(), stage.client()];
            let source = stage.publish(publisher, "a--x");
            stage.wait(millis(50));
            let subscription = stage.subscribe(subscriber, "a--x");
            stage.wait(millis(50));
            // A single observation is not enough to shed load: the host may have been paused.
            stage.load(busy);
            stage.wait(weir_relay::STANDING);
            stage.load(busy);
            let refused = stage.subscribe(subscriber, "a--y");
            let late = stage.absent_client();
            stage.begin(late, Setup::default());
            stage.group(source, 1, 3, 100);
            stage.step("the host is busy", secs(1));
            stage.expect_objects(subscription, &[1], 3, 100);
            assert_eq!(
                stage.refusal(refused),
                Some(RequestErrorCode::EXCESSIVE_LOAD)
            );
            let error = stage.outcome(refused).error.as_ref();
            assert!(error.is_some_and(|error| error.retry_after.is_some()));
            assert!(!stage.actor(late).is_ready() && stage.actor(late).lost.is_some());
            let counters = stage.counters();
            assert_eq!((counters.load_sheddings, counters.refused_shedding), (1, 1));
            stage.load(calm);
            stage.connect(late);
            let accepted = stage.publish(late, "a--y");
            stage.step("it has calmed down", millis(100));
            assert!(stage.is_accepted(accepted));
        });
    }
}
