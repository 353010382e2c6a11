//! Scenes of a full cache.

use std::time::Duration;

use bytes::Bytes;
use weir_moqt::{
    parameter::Parameters,
    property::{self, Properties},
};
use weir_quic::Handle;
use weir_relay::Config;
use weir_transport::Transport as _;

use super::{Scene, note, stage::Stage};

/// A track of tiny groups, as many as its cache holds.
pub(crate) fn of_small_objects() -> Scene {
    let mut stage = Stage::new(Config::default());
    let publisher = stage.client();
    stage.publish(publisher, "a--x", 0);
    stage.settle();
    send_groups(&mut stage, publisher, 21_500);
    let client = stage.client();
    for _ in 0..FETCHES {
        stage.fetch(client, "a--x");
    }
    note("fetches-of-20000-objects", 1, stage.strike())?;
    let counters = stage.counters();
    assert!(counters.fetch_objects_sent > 1000, "{counters:?}");
    stage.leave(client);
    stage.settle();
    let stream = stage.begin(publisher, 0, 1 << 20, LARGE as u64);
    let payload = Bytes::from(vec![7; LARGE]);
    stage.write(publisher, stream, payload.slice(1..));
    stage.settle();
    stage.act(publisher, |_, connection| {
        let _written = connection.write(stream, &mut payload.slice(..1));
        connection.finish(stream);
    });
    note("object-of-8-mib-that-displaces-10000", 1, stage.strike())?;
    assert!(stage.counters().cache_groups_evicted > 10_000);
    stage.settle();
    let overdue = stage.overdue(Duration::from_secs(65));
    note("end-of-the-age-of-10000-objects", 1, overdue)
}

/// A track whose objects may no longer be served.
pub(crate) fn of_stale_objects() -> Scene {
    let mut stage = Stage::new(Config::default());
    let publisher = stage.client();
    let properties = Properties::builder().int(property::MAX_CACHE_DURATION, 1);
    stage.publish_with(publisher, "a--x", 0, properties.build());
    stage.settle();
    send_groups(&mut stage, publisher, 10_000);
    let client = stage.client();
    for _ in 0..FETCHES {
        stage.fetch(client, "a--x");
    }
    note("fetches-of-10000-stale-objects", 1, stage.strike())
}

/// A track with one large group, whose objects may no longer be served, with gaps between them.
pub(crate) fn of_stale_objects_with_gaps() -> Scene {
    let mut stage = Stage::new(Config::default());
    let publisher = stage.client();
    let properties = Properties::builder().int(property::MAX_CACHE_DURATION, 1);
    stage.publish_with(publisher, "a--x", 0, properties.build());
    stage.settle();
    for first in (0..OBJECTS).step_by(25) {
        stage.objects(publisher, 0, first..first + 20);
        stage.object_after_gap(publisher, 0, first + 24, 3);
        if first % 1000 == 0 {
            stage.settle();
        }
    }
    stage.settle();
    let held = stage.gauges().cache_objects;
    assert!(held >= OBJECTS * 4 / 5, "{held} objects are cached");
    let client = stage.client();
    let parameters = Parameters {
        fill_timeout: Some(Duration::ZERO),
        ..Parameters::default()
    };
    for _ in 0..FETCHES / 2 {
        stage.fetch_with(client, "a--x", parameters.clone());
    }
    note(
        "fetches-of-16000-stale-objects-with-800-gaps",
        1,
        stage.strike(),
    )
}

/// Tracks with one large group each, which expire together.
pub(crate) fn of_large_groups() -> Scene {
    let mut stage = Stage::new(Config::default());
    let publisher = stage.client();
    for track in 0..4 {
        stage.publish(publisher, &format!("a--{track}"), track);
        stage.settle();
        for first in (0..OBJECTS).step_by(2000) {
            stage.objects(publisher, track, first..first + 2000);
            stage.settle();
        }
    }
    let held = stage.gauges().cache_objects;
    assert!(held >= 4 * OBJECTS, "{held} objects are cached");
    let overdue = stage.overdue(Duration::from_secs(65));
    note("end-of-the-age-of-80000-objects-in-4-groups", 1, overdue)?;
    assert_eq!(stage.gauges().cache_objects, 0, "all have expired");
    Ok(())
}

/// A track with one large group, whose publisher sends more objects of it, each with a gap before it.
pub(crate) fn with_gaps() -> Scene {
    let mut stage = Stage::new(Config::default());
    let publisher = stage.client();
    stage.publish(publisher, "a--x", 0);
    stage.settle();
    for first in (0..OBJECTS).step_by(2000) {
        stage.objects(publisher, 0, first..first + 2000);
        stage.settle();
    }
    let held = stage.gauges().cache_objects;
    assert!(held >= OBJECTS, "{held} objects are cached");
    for object in 0..40 {
        stage.object_after_gap(publisher, 0, OBJECTS + 1000 * (object + 1), 900);
    }
    note("gaps-in-a-group-of-20000-objects", 1, stage.strike())?;
    let objects = stage.gauges().cache_objects - held;
    assert_eq!(objects, 40, "objects after a gap");
    Ok(())
}

fn send_groups(stage: &mut Stage, publisher: Handle, count: u64) {
    for group in 0..count {
        stage.datagram(publisher, 0, group);
        if group % 200 == 199 {
            stage.settle();
        }
    }
    stage.settle();
    let held = stage.gauges().cache_objects;
    assert!(held >= count.min(20_000), "{held} objects are cached");
}

/// Objects of the large group.
const OBJECTS: u64 = 20_000;
/// Fetches in one packet.
const FETCHES: usize = 60;
/// The largest object that the cache keeps.
const LARGE: usize = 8 << 20;
