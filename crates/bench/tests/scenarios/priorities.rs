//! Two tracks that compete for one link: the profile's `priority` is MOQT's. [moqt-18 §7]

use std::{collections::BTreeMap, time::Duration};

use weir_link::{Bitrate, Config as LinkConfig, Rate};
use weir_report::service_level::ServiceLevel;

use crate::world::{self, Clients, Crowd, Setting, World, seed};

/// Two equal tracks whose objects are due at the same time.
fn profile(priorities: [u8; 2]) -> String {
    let track = |(number, priority)| {
        format!(
            "[track {number}]\nnamespace = perf/tracks\nname = {number}\ntrack_mode = stream\npriority = {priority}\n\
             ttl = 5000\ntime_interval = 100\nobjects_per_group = 1\nfirst_object_size = 20000\nobject_size = 20000\n\
             start_delay = 1000\ntotal_transmit_time = 6000\n"
        )
    };
    (1..).zip(priorities).map(track).collect()
}

/// Returns the median latency of both tracks. What is due every 100 ms takes 80 ms on the link to the subscriber.
fn latencies(priorities: [u8; 2]) -> Vec<f64> {
    let profile = profile(priorities);
    let setting = Setting::new(&profile, seed(31), Crowd::Subscribers(1));
    let mut world = World::new(&setting, world::relay());
    if let Clients::Apart { sink, .. } = world.clients() {
        let narrow = LinkConfig {
            rate: Rate::Fixed(Bitrate::from_bits_per_second(4_000_000)),
            ..world::delay(10)
        };
        world.sim.set_link(world.relay, sink, narrow);
    }
    world.run();
    let report = world.report(&ServiceLevel::default(), Duration::ZERO, BTreeMap::new());
    let tracks = report.tracks.iter();
    let overall = tracks.filter_map(|track| track.latency.overall);
    overall.map(|latency| latency.p50_ms).collect()
}

#[test]
fn the_track_with_the_lower_priority_number_comes_first() {
    for priorities in [[200, 1], [1, 200]] {
        let seen = latencies(priorities);
        let [one, other] = seen[..] else {
            panic!("{seen:?}");
        };
        let (urgent, patient) = if priorities[0] < priorities[1] {
            (one, other)
        } else {
            (other, one)
        };
        // The latencies differ by half of what both take together, apart from what is already on its way.
        assert!(urgent + 10.0 < patient, "{priorities:?}: {seen:?}");
    }
}
