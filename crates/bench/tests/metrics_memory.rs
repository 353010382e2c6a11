//! A subscriber's metrics need no more memory after ten times as many objects. This test is a process of its own, so
//! that only the metrics are counted.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, time::Duration};

use weir_bench::{
    clock::RunClock,
    message::DataHeader,
    metrics::{Delivered, Heat, Received, TrackPlan, TrackReceiver},
    payload::{HEAD_BYTES, Tag},
    profile::Profile,
};
use weir_histogram::Series;
use weir_net::clock;

/// A track of an object every millisecond for 2 h 45 min.
const TRACK: &str = "[audio]
namespace = perf/audio
name = 1
track_mode = datagram
priority = 2
ttl = 2000
time_interval = 1
objects_per_group = 1
first_object_size = 120
object_size = 120
start_delay = 1000
duration = 10000000
";

#[test]
fn memory_stays_the_same_from_a_hundred_thousand_objects_to_a_million() {
    expect_flat(100_000, 1_000_000);
}

#[test]
#[ignore = "takes a minute in a debug build"]
fn memory_stays_the_same_from_a_million_objects_to_ten_million() {
    expect_flat(1_000_000, 10_000_000);
}

fn expect_flat(early: u64, late: u64) {
    let profile = Profile::parse("test.ini", TRACK.as_bytes()).unwrap();
    let start = clock::now();
    let plan = TrackPlan::new(&profile.tracks[0], 0, 7, RunClock::new(start, 0));
    let mut receiver = TrackReceiver::new();
    let mut series = Series::new(Duration::from_secs(1));
    let heat = Heat::new(plan.schedule(), 1);
    let begun = plan.schedule().start_message().encode();
    receiver.handle_object(start, &plan, &delivered(&plan, 0, &begun));
    let mut resident_early = 0;
    for number in 0..late {
        let planned_ns = plan.schedule().planned_ns(number);
        let (group, object) = plan.schedule().position_of(number);
        let header = DataHeader {
            group_number: group,
            object_number: object,
            milliseconds_since_first_object: u32::try_from(planned_ns / 1_000_000).unwrap(),
            data_length: plan.schedule().size_of(number).data_length(),
        };
        let tag = Tag {
            run_id: plan.run_id(),
            sequence: number,
            planned_ns,
            sent_ns: planned_ns,
        };
        let mut head = [0; HEAD_BYTES];
        let (front, rest) = head.split_at_mut(HEAD_BYTES - tag.encode().len());
        front.copy_from_slice(&header.encode());
        rest.copy_from_slice(&tag.encode());
        let at = Duration::from_nanos(planned_ns) + Duration::from_micros(number % 977);
        let offset = plan.schedule().data_group_offset();
        let object = Delivered {
            group: group + offset,
            object,
            head: &head,
            bytes: 120,
            intact: true,
        };
        let received = receiver.handle_object(start + at, &plan, &object);
        let Received::Data { latency_ns, .. } = received else {
            panic!("object {number}: {received:?}");
        };
        series.record_ns(at, latency_ns.unwrap());
        if number + 1 == early {
            resident_early = resident();
        }
    }
    let grown = resident().saturating_sub(resident_early);
    assert_eq!(receiver.objects(), late);
    assert_eq!(heat.rows().count(), 1);
    // A series doubles the length of its windows instead of their number, and may not have reached half of them.
    assert!(
        grown < 6 << 20,
        "{grown} bytes more after {late} objects than after {early}"
    );
}

fn delivered<'a>(plan: &TrackPlan, group: u64, head: &'a [u8]) -> Delivered<'a> {
    Delivered {
        group: plan.schedule().item(group).unwrap().group,
        object: 0,
        head,
        bytes: head.len() as u64,
        intact: true,
    }
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kilobytes * 1024
}
