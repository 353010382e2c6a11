//! Stories of the data patterns: how objects map to streams, what they carry, and when they arrive.

use super::world::{Options, World};
use super::{AUDIO, VIDEO};
use crate::limits::MALFORMED_MAX;
use crate::metrics::End;
use crate::null_relay::Faults;
use crate::qperf::Wire;
use weir_report::relay::Status;

/// Runs a profile and checks that every subscriber receives every object.
fn expect_whole(profile: &str, objects: u64) -> World {
    let mut world = World::new(profile, Options::default());
    world.run();
    assert_eq!(world.load.failure(), None);
    let results = world.load.results();
    assert_eq!(results.len(), 3);
    for result in &results {
        assert_eq!(result.track.status, Status::Good, "{result:?}");
        assert_eq!(result.track.completion.objects_received, objects);
        assert_eq!(result.track.completion.lost_objects, 0);
        let delivery = result.track.delivery;
        assert_eq!((delivery.misplaced, delivery.corrupt), (0, 0));
        let groups = result.track.completion.groups_received;
        assert_eq!(result.track.delivery.groups_complete, groups);
    }
    world
}

#[test]
fn every_mapping_of_objects_to_streams_arrives_whole() {
    for (mapping, streams) in [
        ("subgroup_per_group", 4),
        ("subgroup_per_object", 31),
        ("two_subgroups", 7),
    ] {
        let profile = format!("{VIDEO}stream_mapping = {mapping}\n");
        let world = expect_whole(&profile, 31);
        // The five START messages and COMPLETION have streams of their own.
        assert_eq!(world.streams_forwarded(), streams + 6, "{mapping}");
    }
}

#[test]
fn a_reset_costs_what_was_left_of_its_subgroup() {
    // Object 4 of the second group, which has ten objects: the stream of the even numbers is cut.
    let faults = Faults {
        reset_at: Some((6, 4)),
        ..Faults::default()
    };
    let options = Options {
        faults,
        ..Options::default()
    };
    let mut world = World::new(&format!("{VIDEO}stream_mapping = two_subgroups\n"), options);
    world.run();
    for result in world.load.results() {
        let delivery = result.track.delivery;
        assert_eq!((delivery.cut_by_reset, delivery.lost_middle), (3, 3));
    }
}

#[test]
fn extension_headers_travel_with_every_object() {
    let headers = "extension_headers = 3\nextension_header_size = 16\n";
    expect_whole(&format!("{VIDEO}{headers}"), 31);
    expect_whole(&format!("{AUDIO}{headers}"), 50);
}

#[test]
fn extension_headers_that_a_relay_drops_are_missed() {
    for profile in [AUDIO, VIDEO] {
        let faults = Faults {
            drop_properties: true,
            ..Faults::default()
        };
        let options = Options {
            faults,
            ..Options::default()
        };
        let mut world = World::new(&format!("{profile}extension_headers = 1\n"), options);
        world.run();
        for result in world.load.results() {
            let corrupt = result.track.delivery.corrupt;
            assert_eq!(corrupt, result.track.completion.objects_received);
            assert!(corrupt > 0);
        }
    }
}

#[test]
fn extension_headers_count_for_the_size_of_a_datagram() {
    let profile = format!("{AUDIO}extension_headers = 2\nextension_header_size = 700\n");
    let mut world = World::new(&profile, Options::default());
    world.run();
    let failure = world.load.failure().unwrap();
    assert!(failure.contains("objects of 120 bytes"), "{failure}");
}

#[test]
fn interactive_data_arrives_when_the_seed_says() {
    let world = expect_whole(&format!("{AUDIO}pattern = random\n"), 50);
    for result in world.load.results() {
        // Latency and variance count from the planned time, however irregular.
        assert!(result.track.latency.unwrap().max_ms < 2.1);
        assert!(result.track.completion.average_receive_variance_ms < 0.1);
        assert!(result.track.progress.max_delta_ms.unwrap() > 21.0);
    }
    let world = expect_whole(
        &format!("{AUDIO}pattern = bursts\nburst_objects = 10\n"),
        50,
    );
    for result in world.load.results() {
        assert!(result.track.progress.max_delta_ms.unwrap() > 199.0);
    }
}

#[test]
fn pauses_and_heavy_tails_arrive_whole() {
    let world = expect_whole(
        &format!("{AUDIO}pattern = pauses\nactive_time = 100\npause_time = 300\n"),
        // In a second: 100 ms of activity at 0, 400 and 800 ms.
        15,
    );
    for result in world.load.results() {
        assert!(result.track.latency.unwrap().max_ms < 2.1);
        assert!((319.0..322.0).contains(&result.track.progress.max_delta_ms.unwrap()));
        let completion = result.track.completion;
        // 15 objects of 120 bytes in a second; the last pause is still to come when the last object arrives.
        assert!(
            (completion.expected_bits_per_second - 14_400.0).abs() < 1.0,
            "{completion:?}"
        );
        let gap = completion.average_bits_per_second - completion.expected_bits_per_second;
        assert!(
            gap.abs() < 0.01 * completion.expected_bits_per_second,
            "{completion:?}"
        );
    }
    let world = expect_whole(&format!("{AUDIO}pattern = heavy_tail\n"), 50);
    for result in world.load.results() {
        assert!(result.track.latency.unwrap().max_ms < 2.1);
        let progress = result.track.progress;
        assert!(progress.max_delta_ms.unwrap() > 2.0 * progress.average_delta_ms.unwrap());
    }
    let sizes = format!("{VIDEO}object_size_max = 20000\nextension_headers = 3\n");
    let world = expect_whole(&sizes, 31);
    let sent = world.load.publishers().results().remove(0).sender;
    // Four large objects, and 27 of sizes between.
    let others = sent.bytes_sent - 4 * 21_333;
    assert!(
        (27 * 2_666 + 1_000..27 * 20_000).contains(&others),
        "{others}"
    );
}

#[test]
fn the_older_tools_messages_are_understood() {
    for (profile, objects, bytes) in [
        // qperf does not subtract the start delay of 500 ms.
        (AUDIO, 75, 75 * 120),
        // One large object in the whole run, not one in each of the five groups.
        (VIDEO, 46, 21_333 + 45 * 2_666),
    ] {
        let options = Options {
            wire: Wire::Qperf,
            ..Options::default()
        };
        let mut world = World::new(profile, options);
        world.run();
        assert_eq!(world.load.failure(), None);
        let sent = world.load.publishers().results().remove(0).sender;
        assert_eq!((sent.starts_sent, sent.objects_sent), (0, objects));
        assert_eq!(sent.bytes_sent, bytes);
        for result in world.load.results() {
            assert_eq!(result.track.status, Status::Good, "{result:?}");
            let completion = result.track.completion;
            assert_eq!(completion.objects_sent, Some(objects));
            assert_eq!(
                (completion.objects_received, completion.lost_objects),
                (objects, 0)
            );
            assert_eq!(
                completion.groups_received,
                result.track.delivery.groups_complete
            );
            let delivery = result.track.delivery;
            assert_eq!((delivery.misplaced, delivery.corrupt), (0, 0));
            assert!(completion.average_publisher_variance_ms < 1.1);
            // qperf's times are in microseconds.
            let latency = result.track.latency.unwrap();
            assert!((latency.p50_ms - 2.0).abs() < 0.3, "{latency:?}");
        }
    }
}

#[test]
fn a_relay_that_sends_nonsense_fails_the_track_at_the_hundredth_message() {
    let faults = Faults {
        garble: true,
        ..Faults::default()
    };
    let options = Options {
        faults,
        ..Options::default()
    };
    let profile = AUDIO.replace("time_interval = 20", "time_interval = 5");
    let mut world = World::new(&profile, options);
    world.run();
    for result in world.load.results() {
        assert_eq!(result.track.status, Status::Failed);
        assert_eq!(result.track.delivery.malformed, 100);
        let reason = result.to_report(0).reason;
        assert_eq!(reason.as_deref(), Some("too many messages were malformed"));
    }
}

#[test]
fn a_relay_that_sends_nothing_but_nonsense_is_given_up_like_one_that_sends_nothing() {
    let faults = Faults {
        garble: true,
        ..Faults::default()
    };
    let options = Options {
        faults,
        ..Options::default()
    };
    // Fewer malformed messages than fail a track, over more time than subscribers wait for the first message.
    let profile = AUDIO
        .replace("time_interval = 20", "time_interval = 1000")
        .replace("total_transmit_time = 1500", "total_transmit_time = 40000");
    let mut world = World::new(&profile, options);
    world.run();
    for result in world.load.results() {
        assert_eq!(result.track.end, Some(End::Idle), "{result:?}");
        assert!((1..MALFORMED_MAX).contains(&result.track.delivery.malformed));
        assert_eq!(result.first_object, None);
    }
}
