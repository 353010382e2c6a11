//! What the relay counts for its cache and its tracks, beside what the allocator gave out. This test is a process of its
//! own, so that nothing else is counted.

#![expect(clippy::print_stdout, reason = "stories print their seed and steps")]

#[path = "relay/actor.rs"]
#[expect(dead_code, reason = "the stories use the rest")]
mod actor;
#[path = "relay/archive.rs"]
#[expect(dead_code, reason = "the stories use the rest")]
mod archive;
#[path = "relay/setting.rs"]
mod setting;
#[path = "relay/stage.rs"]
#[expect(dead_code, unused_imports, reason = "the stories use the rest")]
mod stage;
#[path = "relay/words.rs"]
mod words;

use std::alloc::System;

use cap::Cap;

use crate::stage::{Asked, Setting, Stage, millis, seed};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Both parts are one test, since what runs beside it would be counted.
#[test]
fn the_cache_counts_what_the_allocator_gives_and_the_rest_of_a_track_is_small() {
    tiny_objects_count_what_they_cost();
    tracks_without_a_cache_stop_to_grow();
}

/// Publishes objects of one byte, in groups of 1 to 20 objects, as datagrams and on streams.
fn tiny_objects_count_what_they_cost() {
    for (objects, are_datagrams) in [(1, true), (1, false), (2, true), (7, false), (20, true)] {
        let mut setting = Setting::default();
        setting.relay.cache_track_bytes_max = 1 << 30;
        let [before, after] = seen(setting, |stage, publication, group| {
            if are_datagrams {
                for object in 0..objects {
                    stage.datagram(publication, group, object, b"x");
                }
            } else {
                stage.group(publication, group, objects, 1);
            }
        });
        let published = GROUPS * objects;
        assert_eq!(after.cache_objects - before.cache_objects, published);
        let given = after.allocated - before.allocated;
        let counted = after.cache_bytes - before.cache_bytes;
        println!(
            "groups of {objects}, datagrams {are_datagrams}: given {given}, counted {counted}"
        );
        assert!(given <= counted, "the cache counts less than it costs");
        assert!(
            counted <= 3 * given,
            "the cache counts far more than it costs"
        );
    }
}

/// Publishes a track full of gaps, of which the relay keeps no object.
fn tracks_without_a_cache_stop_to_grow() {
    let mut setting = Setting::default();
    setting.relay.cache_track_bytes_max = 0;
    let [before, after] = seen(setting, |stage, publication, group| {
        stage.datagram(publication, 3 * group, 1, b"x");
        stage.datagram(publication, 3 * group, 5, b"x");
        stage.group(publication, 3 * group + 1, 1, 1);
    });
    assert_eq!(after.cache_bytes, 0);
    println!("a track: {} then {}", before.allocated, after.allocated);
    let grown = after.allocated.saturating_sub(before.allocated);
    assert!(grown < GROUPS, "less than a byte for each group");
}

/// What is in use at one moment.
struct Seen {
    allocated: u64,
    cache_bytes: u64,
    cache_objects: u64,
}

/// Publishes [`GROUPS`] groups of a track twice, each with `publish`. Returns what is in use after each round.
fn seen(setting: Setting, publish: impl Fn(&mut Stage, Asked, u64)) -> [Seen; 2] {
    let mut stage = Stage::new(seed(), setting);
    let publisher = stage.client();
    let publication = stage.publish(publisher, "a--x");
    stage.wait(millis(50));
    [0, GROUPS].map(|first| {
        for group in first..first + GROUPS {
            publish(&mut stage, publication, group);
            if group % 20 == 0 {
                stage.wait(millis(30));
            }
        }
        stage.wait(millis(5_000));
        let gauges = stage.gauges();
        Seen {
            allocated: ALLOCATOR.allocated() as u64,
            cache_bytes: gauges.cache_bytes,
            cache_objects: gauges.cache_objects,
        }
    })
}

const GROUPS: u64 = 1000;
