//! Fetched ranges in virtual time: several subscribers fetch a whole track through the relay, as fast as their
//! connections accept it. [evens-00 §3.3]

use weir_bench::metrics::SentTotals;
use weir_moqt::draft::Draft;
use weir_relay::Relay;
use weir_report::relay::{Conduct, Status};

use crate::world::{self, Crowd, Setting, World};

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
    let setting = Setting {
        joins_per_second: 0,
        ..Setting::new(FILE, 5, Crowd::Subscribers(4))
    };
    let mut world = World::new(&setting, world::relay());
    world.join();
    world.release();
    world.finish();
    let results = world.subscribers().results(|_| None);
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
        let delivery = result.track.delivery;
        assert_eq!((delivery.corrupt, delivery.misplaced), (0, 0));
        assert!(result.track.latency.is_none());
        // Thirty seconds of media in less than three seconds.
        assert!(completion.actual_duration_ms < 3_000.0, "{completion:?}");
        assert!(
            completion.average_bits_per_second > 10.0 * completion.expected_bits_per_second,
            "{completion:?}"
        );
    }
}

#[test]
fn a_track_is_fetched_range_by_range() {
    // Ranges of seven groups: the last is shorter, and the groups of START and COMPLETION are in the first and the last.
    for (groups, ranges) in [(1, 32), (7, 5), (31, 2), (32, 1), (10_000_000, 1)] {
        let profile = format!("{FILE}fetch_groups = {groups}\n");
        let setting = Setting {
            joins_per_second: 0,
            ..Setting::new(&profile, 8, Crowd::Subscribers(3))
        };
        let mut world = World::new(&setting, world::relay());
        world.join();
        world.release();
        world.finish();
        for result in world.subscribers().results(|_| None) {
            let completion = result.track.completion;
            assert_eq!(
                (
                    result.track.status,
                    completion.objects_received,
                    completion.lost_objects
                ),
                (Status::Good, 300, 0),
                "{groups}: {result:?}"
            );
            let delivery = result.track.delivery;
            assert_eq!(
                (delivery.duplicates, delivery.corrupt, delivery.misplaced),
                (0, 0, 0)
            );
        }
        let relay: &Relay = world.sim.app(world.relay);
        assert_eq!(relay.counters().fetches_served, 3 * ranges, "{groups}");
    }
}

const LATE: &str = include_str!("../../../../profiles/late-joiners.ini");

#[test]
fn who_joins_late_fetches_what_came_before() {
    // With a FETCH of its own in drafts 18 and 19, and with a fill of its subscription later.
    for draft in Draft::ALL {
        join_late(draft);
    }
}

fn join_late(draft: Draft) {
    let without = LATE.replace("joining_fetch ", "; joining_fetch ");
    let received = [LATE, &without].map(|profile| {
        let setting = Setting {
            drafts: vec![draft.alpn()],
            ..Setting::new(profile, 9, Crowd::Subscribers(6))
        };
        let mut world = World::new(&setting, world::relay());
        world.run();
        let results = world.subscribers().results(|_| None);
        let mut received = 0;
        for result in &results {
            assert_eq!(result.failure, None, "{result:?}");
            let churns = result.conduct == Conduct::Churning;
            let fetches = churns && profile == LATE;
            // Who is away when COMPLETION comes gets it by a joining FETCH only.
            if fetches || !churns {
                assert_eq!(result.track.status, Status::Good, "{result:?}");
            }
            assert_eq!(result.joining_fetch.is_some(), fetches, "{result:?}");
            // Fetched objects are older than the links' delay, and count for no latency and no order.
            let latency = result.track.latency.expect("objects have a send time");
            assert!(latency.max_ms < 100.0, "{latency:?}");
            assert_eq!(result.track.delivery.reordered, 0);
            assert_eq!(
                (
                    result.track.delivery.corrupt,
                    result.track.delivery.misplaced
                ),
                (0, 0)
            );
            if churns {
                received += result.track.completion.objects_received;
                assert!(result.sessions > 2, "{result:?}");
            } else {
                assert_eq!(result.track.completion.objects_received, 120);
            }
        }
        received
    });
    // With the two groups before, nothing is missed while somebody is away for a moment.
    assert_eq!(received[0], 3 * 120);
    assert!(received[1] < 3 * 120, "{received:?}");
}

#[test]
fn nobody_misses_what_was_sent_to_the_others() {
    let setting = Setting::new(FILE, 6, Crowd::Subscribers(4));
    let mut world = World::new(&setting, world::relay());
    world.join();
    // The count of a publisher from which all four fetched, none to the end.
    let sent = SentTotals {
        objects: 1_100,
        groups: 110,
    };
    let results = world.subscribers().results(|_| Some(sent));
    assert_eq!(results.len(), 4);
    for result in results {
        let completion = result.track.completion;
        let missed = (completion.objects_received, completion.lost_objects);
        assert_eq!(missed, (0, 300), "{completion:?}");
    }
}
