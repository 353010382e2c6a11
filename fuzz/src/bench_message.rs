//! Fuzzing of benchmark messages, at a subscriber that measures a track.

use std::time::{Duration, Instant};

use weir_bench::clock::RunClock;
use weir_bench::message::Message;
use weir_bench::metrics::{Delivered, Received, TrackPlan, TrackReceiver};
use weir_bench::payload::{HEAD_BYTES, Tag};
use weir_bench::profile::Profile;

const PROFILE: &str = "[track]
namespace = fuzz
name = 1
track_mode = stream
priority = 1
ttl = 100
time_interval = 33.33
objects_per_group = 7
first_object_size = 90
object_size = 61
start_delay = 0
total_transmit_time = 2000
";

/// Splits `input` into objects that a subscriber receives. The first byte of each is its length; the second one
/// determines its location and the time before it. Checks that what decodes encodes to the same bytes, and that the
/// figures of the track are always consistent.
///
/// # Panics
/// If a check fails.
#[expect(clippy::disallowed_methods, reason = "any instant serves as an origin")]
pub fn run(input: &[u8]) {
    let profile = Profile::parse("fuzz.ini", PROFILE.as_bytes()).expect("it is a profile");
    let mut now = Instant::now();
    let plan = TrackPlan::new(&profile.tracks[0], 0, 1, RunClock::new(now, 0));
    let mut receiver = TrackReceiver::new();
    let mut received = 0;
    let mut rest = input;
    while let [length, place, after @ ..] = rest {
        let (object, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        now += Duration::from_millis(u64::from(*place));
        check_encoding(object);
        if *place == 255 {
            receiver.handle_publish_done(now, &plan);
        } else if *place == 254 {
            let number = u64::from(*length);
            receiver.handle_reset(&plan, number, number % 2, number);
        }
        receiver.handle_timeout(now, &plan);
        let delivered = Delivered {
            group: u64::from(*place >> 3),
            object: u64::from(*place & 7),
            head: &object[..object.len().min(HEAD_BYTES)],
            bytes: object.len() as u64,
            intact: place % 2 == 0,
        };
        if let Received::Data { .. } = receiver.handle_object(now, &plan, &delivered) {
            received += 1;
        }
        check_figures(&receiver, &plan, received);
    }
}

fn check_encoding(object: &[u8]) {
    let encoded = match Message::decode(object, object.len() as u64) {
        Ok(Message::Start(start)) => start.encode().to_vec(),
        Ok(Message::Data(header)) => header.encode().to_vec(),
        Ok(Message::Completion(completion)) => completion.encode().to_vec(),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert!(
        object.starts_with(&encoded),
        "a message is encoded as it was decoded"
    );
    if let Some(tag) = Tag::decode(object) {
        assert!(
            object.starts_with(&tag.encode()),
            "a tag is encoded as it was decoded"
        );
    }
}

fn check_figures(receiver: &TrackReceiver, plan: &TrackPlan, received: u64) {
    let result = receiver.result(plan, None);
    let (completion, delivery) = (result.completion, result.delivery);
    assert_eq!(
        completion.objects_received, received,
        "every object is counted once"
    );
    assert!(
        received <= plan.schedule().objects(),
        "no more objects than there are"
    );
    let parts = delivery.lost_join + delivery.lost_middle + delivery.lost_tail;
    assert_eq!(parts, completion.lost_objects, "every loss has a place");
    assert_eq!(delivery.first_lost.is_some(), completion.lost_objects > 0);
    assert!(delivery.groups_complete <= completion.groups_received);
    assert!(completion.groups_received <= received);
    assert!(result.variance.max_ms >= result.variance.p50_ms);
}
