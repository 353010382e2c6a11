//! Fetched ranges in virtual time: several subscribers fetch a whole track through the relay, as fast as their
//! connections accept it. [evens-00 §3.3]

use weir_bench::metrics::SentTotals;
use weir_report::relay::Status;

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
