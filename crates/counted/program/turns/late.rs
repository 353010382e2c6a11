//! Scenes of a packet that came late, and completes all that the packets after it have brought.

use bytes::{Bytes, BytesMut};
use weir_moqt::draft::Draft;
use weir_quic::Handle;
use weir_relay::Config;

use super::{
    Scene, note,
    stage::Stage,
    words::{object, plain},
};

/// A packet with the start of streams whose other packets have come.
pub(crate) fn packets() -> Scene {
    one_stream("object-headers-behind-a-late-packet", 0)?;
    one_stream("objects-behind-a-late-packet", SUBSCRIBERS)?;
    many_streams()
}

/// A stream of tiny objects.
fn one_stream(name: &str, subscribers: usize) -> Scene {
    let (mut stage, publisher) = stage_with(subscribers);
    let stream = stage.begin(publisher, 0, 0, 1);
    stage.lose_packet();
    stage.write(publisher, stream, tiny_objects(STREAM_BYTES));
    note(name, 1, stage.strike_again())?;
    let objects = stage.counters().stream_objects_received;
    assert!(objects > 100_000, "{objects} objects have come");
    Ok(())
}

/// As many streams of tiny objects as start in one packet.
fn many_streams() -> Scene {
    let (mut stage, publisher) = stage_with(SUBSCRIBERS);
    let streams: Vec<_> = (0..STREAMS)
        .map(|group| stage.begin(publisher, 0, group, 1))
        .collect();
    stage.lose_packet();
    for stream in streams {
        stage.write(publisher, stream, tiny_objects(STREAM_BYTES / 60));
    }
    note("streams-behind-a-late-packet", 1, stage.strike_again())?;
    let objects = stage.counters().stream_objects_received;
    assert!(objects > 100_000, "{objects} objects have come");
    Ok(())
}

/// Returns a stage with a track, whose publisher may send much at once.
fn stage_with(subscribers: usize) -> (Stage, Handle) {
    let mut stage = Stage::new(Config::default());
    let publisher = stage.client();
    stage.warm_up(publisher);
    stage.publish(publisher, "a--x", 0);
    stage.settle();
    for client in stage.clients(subscribers) {
        stage.subscribe(client, "a--x");
    }
    stage.settle();
    assert_eq!(stage.gauges().subscriptions, subscribers as u64);
    (stage, publisher)
}

/// Returns the payload of the first object of a group, and further objects of one byte.
fn tiny_objects(bytes: usize) -> Bytes {
    let header = plain(0);
    let mut data = BytesMut::from(&b"a"[..]);
    let mut id = 0;
    while data.len() < bytes {
        let next = object(id + 1, 1);
        next.encode_in_subgroup(Some(id), header.has_properties, Draft::KEPT, &mut data);
        data.extend_from_slice(b"a");
        id += 1;
    }
    data.freeze()
}

/// Less than the relay accepts on one stream.
const STREAM_BYTES: usize = 900 << 10;
const STREAMS: u64 = 60;
const SUBSCRIBERS: usize = 4;
