//! A whole load generator needs no more memory after ten times as many objects: publisher, subscribers, sessions and
//! QUIC, in virtual time, with every allocation counted. This test is a process of its own, so that nothing else is
//! counted.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "the scenarios need more of it")]
#[path = "scenarios/world.rs"]
mod world;

use std::{alloc::System, time::Duration};

use cap::Cap;
use weir_bench::{null_relay::NullRelay, subscriber::SubscriberRole};
use weir_link::{Loss, Probability};
use weir_sim::End;

use crate::world::{Clients, Crowd, Setting, World, seed};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Both kinds of tracks. The streams last as long as the run, since the engine keeps the receive buffers of up to 256
/// ended streams for reuse.
const PROFILE: &str = "[audio]
namespace = perf/audio
name = 1
track_mode = datagram
priority = 2
ttl = 2000
time_interval = 20
objects_per_group = 1
first_object_size = 120
object_size = 120
start_delay = 500
duration = DURATION

[video]
namespace = perf/video
name = 1
track_mode = stream
priority = 3
ttl = 2000
time_interval = 40
objects_per_group = 100000
first_object_size = 200
object_size = 200
start_delay = 500
duration = DURATION
";

/// Objects of both tracks in a second, at one subscriber.
const OBJECTS_PER_SECOND: u64 = 75;
const SUBSCRIBERS: u64 = 200;

#[test]
fn a_generator_is_as_large_after_two_hundred_thousand_objects_as_after_twenty_thousand() {
    expect_flat(20_000, 200_000);
}

#[test]
#[ignore = "takes minutes; run it in a release build"]
fn a_generator_is_as_large_after_ten_million_objects_as_after_one_million() {
    expect_flat(1_000_000, 10_000_000);
}

fn expect_flat(early: u64, late: u64) {
    let seed = seed(12);
    // A quarter more time than needed, since some objects are lost.
    let milliseconds = late * 1250 / (OBJECTS_PER_SECOND * SUBSCRIBERS);
    let profile = PROFILE.replace("DURATION", &milliseconds.to_string());
    let crowd = Crowd::Subscribers(usize::try_from(SUBSCRIBERS).unwrap());
    let mut setting = Setting::new(&profile, seed, crowd);
    setting.link.loss = Loss::Independent(Probability::new(0.001).unwrap());
    let mut world = World::new(&setting, NullRelay::new());
    world.join();
    world.release();
    let [first, last] = [early, late].map(|objects| allocated_after(&mut world, objects));
    let grown = last.saturating_sub(first);
    assert!(
        grown < GROWTH_BYTES_MAX,
        "WEIR_SEED={seed}: {first} bytes after {early} objects, {last} after {late}"
    );
}

/// Returns the largest number of bytes in use within [`LOOK`], after `objects` objects have arrived.
fn allocated_after(world: &mut World, objects: u64) -> usize {
    let Clients::Apart { sink, .. } = world.clients() else {
        panic!("a fan-out has its clients apart");
    };
    let end = world.sim.run_until(DAY, |sim| {
        sim.app::<SubscriberRole>(sink).progress().objects >= objects
    });
    assert_eq!(end, End::Finished);
    let until = world.sim.elapsed() + LOOK;
    let mut most = 0;
    world.sim.run_until(until, |_| {
        most = most.max(ALLOCATOR.allocated());
        false
    });
    most
}

/// Longer than any run.
const DAY: Duration = Duration::from_hours(24);
/// How long the use of memory is observed, since it varies with what is in flight.
const LOOK: Duration = Duration::from_millis(500);
/// Growth that varying load can explain.
const GROWTH_BYTES_MAX: usize = 256 << 10;
