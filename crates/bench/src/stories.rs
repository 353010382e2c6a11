//! Whole runs of the roles between two real QUIC endpoints in virtual time, with a null relay in the middle.

mod altered;
mod load;
mod patterns;
pub(crate) mod world;

use std::time::Duration;

use weir_link::Bitrate;
use weir_quic::App as _;

use self::load::{Load, StartRule};
use self::world::{Options, World};
use crate::metrics::End;
use crate::null_relay::Faults;
use crate::publisher::PublishFlow;
use weir_report::relay::Status;

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
total_transmit_time = 1500
";

const VIDEO: &str = "[video]
namespace = perf/video/{}
name = 1
track_mode = stream
priority = 3
ttl = 2000
time_interval = 33.33
objects_per_group = 10
first_object_size = 21333
object_size = 2666
start_delay = 500
total_transmit_time = 1500
";

#[test]
fn audio_is_measured_by_every_subscriber() {
    for flow in [PublishFlow::PublishNamespace, PublishFlow::Publish] {
        let mut world = World::new(
            AUDIO,
            Options {
                flow,
                ..Options::default()
            },
        );
        world.run();
        assert_eq!(world.load.failure(), None);
        let sent = world.load.publishers().results().remove(0);
        assert_eq!(
            (sent.sender.objects_sent, sent.sender.refusals.total()),
            (50, 0)
        );
        assert_eq!(sent.sender.starts_sent, 5);
        let results = world.load.results();
        assert_eq!(results.len(), 3);
        for result in &results {
            assert_eq!(
                (result.track.status, &result.failure),
                (Status::Good, &None)
            );
            assert_eq!(result.track.completion.objects_received, 50);
            assert_eq!(
                result.track.delivery.lost_tail + result.track.delivery.lost_join,
                0
            );
            let delivery = result.track.delivery;
            assert_eq!((delivery.misplaced, delivery.corrupt), (0, 0));
            // The path takes 1 ms to the relay, and 1 ms to the subscriber.
            let latency = result.track.latency.unwrap();
            assert!((latency.max_ms - 2.0).abs() < 1e-6, "{latency:?}");
            assert!(result.handshake.is_some() && result.setup.is_some());
            assert!(
                result
                    .first_object
                    .is_some_and(|time| time > Duration::ZERO)
            );
            assert_eq!(result.to_report(7).index, 7 + result.subscriber as u64);
        }
        let progress = world.load.subscribers().progress();
        assert_eq!(
            (progress.accepted, progress.ended, progress.objects),
            (3, 3, 150)
        );
        assert_eq!(world.load.subscribers().latency(0).total().count(), 150);
        let (_, implementation) = world.load.subscribers().relay().unwrap();
        assert_eq!(implementation, Some("null relay"));
    }
}

#[test]
fn audio_and_video_together() {
    let mut world = World::new(&format!("{AUDIO}{VIDEO}"), Options::default());
    world.run();
    let results = world.load.results();
    assert_eq!(results.len(), 6);
    for result in &results {
        assert_eq!(result.track.status, Status::Good, "{result:?}");
        assert_eq!(result.track.completion.lost_objects, 0);
        assert_eq!(result.track.delivery.corrupt, 0);
        let expected = if result.plan == 0 { (50, 50) } else { (31, 4) };
        let completion = result.track.completion;
        assert_eq!(
            (completion.objects_received, completion.groups_received),
            expected
        );
        let complete = result.track.delivery.groups_complete;
        assert_eq!(complete, completion.groups_received);
    }
}

#[test]
fn what_the_relay_loses_is_missed() {
    // The fifth START has group 4, so these groups hold audio objects 10 to 14.
    let faults = Faults {
        lose_groups: Some((15, 19)),
        ..Faults::default()
    };
    let mut world = World::new(
        AUDIO,
        Options {
            faults,
            ..Options::default()
        },
    );
    world.run();
    for result in world.load.results() {
        assert_eq!(result.track.status, Status::Good);
        assert_eq!(result.track.completion.lost_objects, 5);
        assert_eq!(result.track.delivery.lost_middle, 5);
        assert_eq!(result.track.delivery.first_lost.unwrap().group, 10);
    }
}

#[test]
fn a_lost_completion_leaves_the_track_incomplete() {
    let faults = Faults {
        lose_groups: Some((55, 55)),
        ..Faults::default()
    };
    let mut world = World::new(
        AUDIO,
        Options {
            faults,
            ..Options::default()
        },
    );
    world.run();
    for result in world.load.results() {
        assert_eq!(result.track.status, Status::Incomplete);
        assert_eq!(result.track.end, Some(End::PublishDone));
        assert_eq!(result.track.completion.lost_objects, 0);
        let reason = result.to_report(0).reason;
        assert_eq!(
            reason.as_deref(),
            Some("the track ended without COMPLETION")
        );
    }
}

#[test]
fn a_reset_stream_is_told_from_other_loss() {
    // The second group of the video, after five START groups.
    let faults = Faults {
        reset_at: Some((6, 4)),
        ..Faults::default()
    };
    let mut world = World::new(
        VIDEO,
        Options {
            faults,
            ..Options::default()
        },
    );
    world.run();
    for result in world.load.results() {
        let delivery = result.track.delivery;
        assert_eq!((delivery.cut_by_reset, delivery.lost_middle), (6, 6));
        assert_eq!(
            (
                result.track.completion.groups_received,
                delivery.groups_complete
            ),
            (4, 3)
        );
    }
}

#[test]
fn what_expires_behind_a_path_that_is_cut_is_counted() {
    let profile = AUDIO
        .replace("ttl = 2000", "ttl = 200")
        .replace("size = 120", "size = 1000")
        .replace("time_interval = 20", "time_interval = 5")
        .replace("total_transmit_time = 1500", "total_transmit_time = 2500");
    let mut world = World::new(&profile, Options::default());
    let sent = |load: &Load| load.publishers().progress().objects_sent;
    world.run_while(|load| sent(load) < 100);
    world.cut = true;
    world.run_while(|load| sent(load) < 300);
    world.cut = false;
    world.run();
    let publication = world.load.publishers().results().remove(0);
    // The connection accepted them all, and COMPLETION counts them.
    assert_eq!(publication.totals.objects, 400);
    let expired = publication.sender.dropped.expired;
    assert!(expired > 50, "{:?}", publication.sender);
    let report = world.report();
    assert_eq!(report.tracks[0].published.expired_objects, expired);
    let lost = report.objects_lost() / 3;
    assert!(expired <= lost, "{expired} of {lost}");
}

#[test]
fn a_publisher_that_is_cut_off_says_so() {
    let mut world = World::new(AUDIO, Options::default());
    world.run_while(|load| load.publishers().progress().objects_sent < 20);
    assert_eq!(world.load.publishers().cut_off().count(), 0);
    world.kill_relay();
    world.run();
    let publishers = world.load.publishers();
    let reasons: Vec<_> = publishers.cut_off().collect();
    assert!(matches!(reasons[..], [(0, _)]), "{reasons:?}");
    // Its track was not published to the end.
    let progress = publishers.progress();
    assert_eq!((progress.failed, progress.tracks, progress.done), (1, 1, 0));
}

#[test]
fn a_refused_subscription_says_so() {
    let faults = Faults {
        refuse: true,
        ..Faults::default()
    };
    let mut world = World::new(
        AUDIO,
        Options {
            faults,
            ..Options::default()
        },
    );
    world.run();
    for result in world.load.results() {
        assert_eq!(result.track.status, Status::Failed);
        let reason = result.to_report(0).reason.unwrap();
        assert_eq!(
            reason,
            "the relay refused the subscription: UNAUTHORIZED \"not you\""
        );
    }
    assert!(
        world.now < world.start + Duration::from_secs(5),
        "nobody waits for nothing"
    );
}

#[test]
fn a_wrong_alpn_is_one_clear_line() {
    for (protocol, expected) in [
        ("moqt-99", "no common protocol"),
        ("other", "the relay chose the unknown protocol \"other\""),
    ] {
        let mut world = World::new(
            AUDIO,
            Options {
                protocol,
                ..Options::default()
            },
        );
        world.run();
        let failure = world.load.failure().unwrap();
        assert!(failure.contains(expected), "{failure}");
    }
}

#[test]
fn an_unreachable_relay_is_given_up() {
    let mut world = World::new(AUDIO, Options::default());
    world.cut = true;
    world.run();
    let reason = "the relay did not answer the publisher's offer in time";
    assert_eq!(world.load.failure(), Some(reason));
}

#[test]
fn a_relay_that_dies_leaves_a_partial_result() {
    let mut world = World::new(AUDIO, Options::default());
    world.run_while(|load| load.subscribers().progress().objects < 60);
    world.kill_relay();
    world.run();
    for result in world.load.results() {
        assert_eq!(result.track.status, Status::Failed);
        assert!(result.track.completion.objects_received >= 20);
        let reason = result.to_report(0).reason.unwrap();
        assert!(
            reason.starts_with("the peer closed the session"),
            "{reason}"
        );
    }
    assert!(world.now < world.start + Duration::from_secs(10));
}

#[test]
fn ctrl_c_leaves_a_partial_result() {
    let mut world = World::new(AUDIO, Options::default());
    world.run_while(|load| load.subscribers().progress().objects < 60);
    world.interrupt();
    assert!(world.load.is_finished());
    for result in world.load.results() {
        assert_eq!(result.track.status, Status::Incomplete);
        assert_eq!(result.track.end, Some(End::Interrupted));
        assert!(result.track.completion.objects_received >= 20);
    }
}

#[test]
fn without_waiting_the_first_subscribers_join_late() {
    let start = StartRule::AtOnce;
    let flow = PublishFlow::Publish;
    let mut world = World::new(
        AUDIO,
        Options {
            start,
            flow,
            subscribers: 80,
            ..Options::default()
        },
    );
    world.run();
    let results = world.load.results();
    // Subscribers join over 800 ms; START is sent for 500 ms.
    assert_eq!(results[0].track.status, Status::Good);
    assert_eq!(results[79].track.status, Status::Failed);
    assert!(results[79].track.delivery.lost_join > 0);
    let reason = results[79].to_report(0).reason.unwrap();
    assert!(reason.starts_with("it joined after START, "), "{reason}");
    assert!(reason.contains("--await-subscribers"), "{reason}");
}

#[test]
fn an_object_too_large_for_a_datagram_is_an_error_before_the_run() {
    let large = AUDIO.replace("object_size = 120", "object_size = 1500");
    let mut world = World::new(&large, Options::default());
    world.run();
    let failure = world.load.failure().unwrap();
    assert!(
        failure.contains("perf-audio-0--1: objects of 1500 bytes"),
        "{failure}"
    );
    assert!(
        failure.contains("the path to the relay carries 1"),
        "{failure}"
    );
}

#[test]
fn a_link_that_is_too_slow_shows_in_the_bit_rate() {
    // 789 kbit/s of payload on a link of 300 kbit/s, and time enough to deliver all of it.
    let profile = VIDEO
        .replace("ttl = 2000", "ttl = 60000")
        .replace("objects_per_group = 10", "objects_per_group = 30")
        .replace("total_transmit_time = 1500", "total_transmit_time = 6499.4");
    let rate = Some(Bitrate::from_kilobits_per_second(300));
    let options = Options {
        rate,
        subscribers: 1,
        ..Options::default()
    };
    let mut world = World::new(&profile, options);
    world.run();
    let results = world.load.results();
    let completion = results[0].track.completion;
    assert_eq!(
        (completion.objects_received, completion.lost_objects),
        (180, 0)
    );
    let received = completion.average_bits_per_second;
    // The actual duration begins when the first object has arrived, so its 21,333 bytes took no time.
    let first = 21_333.0 * 8e3 / completion.actual_duration_ms;
    assert!((270e3..300e3 + first).contains(&received), "{received}");
    assert!(completion.expected_bits_per_second > 700e3);
    assert!(completion.actual_duration_ms > 12_000.0, "{completion:?}");
    let progress = results[0].track.progress.average_bits_per_second;
    assert!((progress - received).abs() < 1.0, "{progress}");

    // The same load on a fast link: nothing is lost or delayed, so both rates are equal (decision 27).
    let mut world = World::new(&profile, Options::default());
    world.run();
    for result in world.load.results() {
        let completion = result.track.completion;
        let gap = completion.average_bits_per_second - completion.expected_bits_per_second;
        assert!(
            gap.abs() < 0.01 * completion.expected_bits_per_second,
            "{completion:?}"
        );
    }
}

#[test]
fn the_same_run_twice_is_the_same() {
    let figures = || {
        let mut world = World::new(&format!("{AUDIO}{VIDEO}"), Options::default());
        world.run();
        let results = world.load.results();
        let rows: Vec<_> = results.iter().map(|result| result.to_report(0)).collect();
        serde_json::to_string(&rows).unwrap()
    };
    assert_eq!(figures(), figures());
}
