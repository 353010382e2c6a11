use weir_moqt::name::{Namespace, TrackName};

use super::*;
use crate::clock::{RunClock, any_instant};
use crate::profile::Profile;
use crate::test_transport::TestTransport;

/// START, two groups of four objects with a stream each, and COMPLETION.
const VIDEO: &str = "[video]
namespace = perf/video
name = 1
track_mode = stream
priority = 3
ttl = 2000
time_interval = 100
objects_per_group = 4
first_object_size = 200
object_size = 100
start_delay = 100
total_transmit_time = 900
";

struct Bench {
    released: Instant,
    plan: TrackPlan,
    publication: Publication,
    transport: TestTransport,
    buffer: BytesMut,
}

impl Bench {
    fn new() -> Self {
        let profile = Profile::parse("video.ini", VIDEO.as_bytes()).unwrap();
        let released = any_instant();
        let plan = TrackPlan::new(&profile.tracks[0], 0, 7, RunClock::new(released, 0));
        let namespace = Namespace::new(["perf", "video"]).unwrap();
        let name = FullTrackName::new(namespace, TrackName::new("1").unwrap()).unwrap();
        let mut publication = Publication::new(0, name, 0, false);
        publication.on_subscribed(RequestId(1), true);
        Self {
            released,
            plan,
            publication,
            transport: TestTransport::default(),
            buffer: BytesMut::new(),
        }
    }

    /// Sends the next `items` when they are due, unless the relay has paused the track.
    fn send(&mut self, items: u64) {
        let schedule = self.plan.schedule();
        for _ in 0..items {
            let cursor = &mut self.publication.cursor;
            let item = cursor.take_due(schedule, schedule.end()).unwrap();
            let planned = self.released + item.at;
            let at = Turn {
                now: planned,
                planned,
                draft: Draft::KEPT,
            };
            if self.publication.is_served() {
                let (transport, buffer) = (&mut self.transport, &mut self.buffer);
                self.publication
                    .send_on_stream(at, &self.plan, transport, buffer, &item);
            }
        }
    }

    fn forward(&mut self, forward: bool) -> bool {
        self.publication.on_forward(&mut self.transport, forward)
    }

    /// Returns whether the end can be announced, and how many streams were opened, finished and reset.
    fn outcome(&self) -> (bool, u64, usize, usize) {
        assert!(
            self.transport
                .resets
                .iter()
                .all(|code| *code == ResetCode::CANCELLED.0)
        );
        let is_ready = self.publication.is_ready_to_end(&self.plan);
        let (finished, resets) = (self.transport.finished, self.transport.resets.len());
        (is_ready, self.transport.opened, finished, resets)
    }
}

#[test]
fn a_track_whose_relay_wants_nothing_more_ends_in_the_middle_of_a_group() {
    let mut bench = Bench::new();
    bench.send(3);
    assert_eq!(bench.outcome(), (false, 2, 1, 0));
    assert!(bench.forward(false));
    assert!(!bench.forward(false), "it said so before");
    bench.send(7);
    assert_eq!(bench.outcome(), (true, 2, 1, 1));
}

#[test]
fn what_is_wanted_again_goes_on_within_the_group() {
    let mut bench = Bench::new();
    bench.send(3);
    assert!(bench.forward(false));
    bench.send(1);
    assert!(bench.forward(true));
    // The last object of the group, the second group, and COMPLETION.
    bench.send(6);
    assert_eq!(bench.outcome(), (true, 5, 4, 1));
    assert_eq!(bench.publication.sender.totals().objects, 7);
}
