mod content;
mod model;
mod repeats;

use std::time::{Duration, Instant};

use bytes::BytesMut;

use super::*;
use crate::clock::{RunClock, any_instant};
use crate::limits::MALFORMED_MAX;
use crate::message::{Completion, Start};
use crate::payload::HEAD_BYTES;
use crate::profile::{Interval, ObjectSize, ObjectsPerGroup, Profile, TrackProfile};
use crate::schedule::{Item, ItemKind};
use weir_report::relay::{ObjectPosition, Status};

const RUN: u64 = 7;
const MS: Duration = Duration::from_millis(1);

/// A track of `groups` groups of `per_group` objects, one every 20 ms, after a start delay of 200 ms.
fn profile(groups: u32, per_group: u32) -> TrackProfile {
    let text = include_bytes!("../../../../profiles/audio.ini");
    TrackProfile {
        objects_per_group: ObjectsPerGroup::new(per_group).unwrap(),
        interval: Interval::new(20 * MS).unwrap(),
        first_object_size: ObjectSize::new(300).unwrap(),
        object_size: ObjectSize::new(120).unwrap(),
        start_delay: 200 * MS,
        duration: 20 * MS * groups * per_group,
        ttl: 3_000 * MS,
        ..Profile::parse("audio.ini", text).unwrap().tracks.remove(0)
    }
}

/// A publisher and a subscriber without a relay between them.
struct Bench {
    origin: Instant,
    plan: TrackPlan,
    sender: TrackSender,
    receiver: TrackReceiver,
}

impl Bench {
    fn new(track: &TrackProfile) -> Self {
        let origin = any_instant();
        let plan = TrackPlan::new(track, 0, RUN, RunClock::new(origin, 1_000_000_000_000));
        Self {
            origin,
            plan,
            sender: TrackSender::default(),
            receiver: TrackReceiver::new(),
        }
    }

    /// Item `index`, sent when it is due.
    fn send(&mut self, index: u64) -> Sent {
        let item = self
            .plan
            .schedule()
            .item(index)
            .expect("an item of the plan");
        let now = self.origin + item.at;
        let mut bytes = BytesMut::new();
        match item.kind {
            ItemKind::Start => {
                bytes.extend_from_slice(&self.plan.schedule().start_message().encode());
                self.sender.on_start();
            }
            ItemKind::Data(data) => {
                let header = self.sender.header(now, &data);
                let tag = TrackSender::tag(now, now, &data, RUN, self.plan.clock());
                self.plan.content().write_object(&header, &tag, &mut bytes);
                self.sender.on_sent(now, now, &data);
            }
            ItemKind::Completion { .. } => {
                bytes.extend_from_slice(&self.sender.completion().encode());
            }
        }
        Sent {
            item,
            bytes: bytes.to_vec(),
        }
    }

    /// The whole track, in order.
    fn send_all(&mut self) -> Vec<Sent> {
        (0..self.plan.schedule().items())
            .map(|index| self.send(index))
            .collect()
    }

    fn receive(&mut self, sent: &Sent, at: Duration) -> Received {
        self.receive_as(sent, at, sent.item.group, sent.item.object)
    }

    fn receive_as(&mut self, sent: &Sent, at: Duration, group: u64, object: u64) -> Received {
        self.receive_delivered(
            at,
            &Delivered {
                group,
                object,
                ..sent.delivered()
            },
        )
    }

    fn receive_delivered(&mut self, at: Duration, delivered: &Delivered<'_>) -> Received {
        self.receiver
            .handle_object(self.origin + at, &self.plan, delivered)
    }

    fn receive_bytes(&mut self, bytes: &[u8]) -> Received {
        let delivered = Delivered {
            group: 0,
            object: 0,
            head: bytes,
            bytes: bytes.len() as u64,
            intact: true,
        };
        self.receiver
            .handle_object(self.origin, &self.plan, &delivered)
    }

    fn result(&self) -> TrackResult {
        self.receiver.result(&self.plan, Some(self.sender.totals()))
    }

    fn wait_until(&mut self, at: Duration) {
        self.receiver.handle_timeout(self.origin + at, &self.plan);
    }
}

struct Sent {
    item: Item,
    bytes: Vec<u8>,
}

impl Sent {
    fn number(&self) -> Option<u64> {
        match self.item.kind {
            ItemKind::Data(data) => Some(data.number),
            ItemKind::Start | ItemKind::Completion { .. } => None,
        }
    }

    /// The object as an undisturbed path delivers it.
    fn delivered(&self) -> Delivered<'_> {
        Delivered {
            group: self.item.group,
            object: self.item.object,
            head: &self.bytes[..self.bytes.len().min(HEAD_BYTES)],
            bytes: self.bytes.len() as u64,
            intact: true,
        }
    }
}

#[test]
fn a_track_without_loss_is_good() {
    let mut bench = Bench::new(&profile(3, 4));
    for sent in bench.send_all() {
        bench.receive(&sent, sent.item.at + 5 * MS);
    }
    assert!(
        bench.receiver.has_ended(),
        "nobody waits when everything is there"
    );
    let result = bench.result();
    assert_eq!((result.status, result.failure), (Status::Good, None));
    assert_eq!(result.end, Some(End::Completion));
    let figures = result.completion;
    assert_eq!(
        (figures.objects_sent, figures.groups_sent),
        (Some(12), Some(3))
    );
    assert_eq!((figures.objects_received, figures.groups_received), (12, 3));
    assert_eq!(
        (figures.lost_objects, result.delivery.groups_complete),
        (0, 3)
    );
    assert_eq!(
        (figures.total_duration_ms, figures.actual_duration_ms),
        (Some(220.0), 220.0)
    );
    // 3 groups of 300 + 3 · 120 bytes in 240 ms. Without loss the three rates are equal (decision 27).
    let rates = (
        figures.expected_bits_per_second,
        figures.average_bits_per_second,
    );
    assert_eq!(rates, (66_000.0, 66_000.0));
    assert!(figures.average_receive_variance_ms.abs() < f64::EPSILON);
    let latency = result.latency.unwrap();
    assert_eq!((latency.count, latency.max_ms), (12, 5.0));
    assert_eq!(result.delivery.first_lost, None);
}

#[test]
fn latency_counts_from_the_planned_time() {
    let mut bench = Bench::new(&profile(4, 1));
    for index in 0..2 {
        let start = bench.send(index);
        bench.receive(&start, start.item.at);
    }
    let item = bench.plan.schedule().item(2).unwrap();
    let ItemKind::Data(data) = item.kind else {
        panic!("the first object")
    };
    // The publisher sends 30 ms late; the path takes 2 ms.
    let (planned, now) = (bench.origin + item.at, bench.origin + item.at + 30 * MS);
    let tag = TrackSender::tag(now, planned, &data, RUN, bench.plan.clock());
    let mut bytes = BytesMut::new();
    bench
        .plan
        .content()
        .write_object(&bench.sender.header(now, &data), &tag, &mut bytes);
    let sent = Sent {
        item,
        bytes: bytes.to_vec(),
    };
    let received = bench.receive(&sent, item.at + 32 * MS);
    assert_eq!(
        received,
        Received::Data {
            number: 0,
            latency_ns: Some(32_000_000),
            timing: Timing {
                delta_ns: None,
                receive_variance_ns: 0,
                publisher_variance_ns: 0,
            },
        }
    );
    assert_eq!(bench.receive(&sent, item.at), Received::Repeated);
}

#[test]
fn objects_without_room_for_a_tag_are_measured_all_the_same() {
    let size = ObjectSize::new(60).unwrap();
    let track = TrackProfile {
        first_object_size: size,
        object_size: size,
        ..profile(3, 2)
    };
    let mut bench = Bench::new(&track);
    for sent in bench.send_all() {
        bench.receive(&sent, sent.item.at + 5 * MS);
    }
    let result = bench.result();
    assert_eq!((result.status, result.latency), (Status::Good, None));
    assert_eq!(result.completion.objects_received, 6);
}

#[test]
fn loss_is_split_by_its_place() {
    let mut bench = Bench::new(&profile(5, 2));
    let sent = bench.send_all();
    for sent in &sent {
        match sent.number() {
            Some(0 | 1 | 4 | 9) => {}
            Some(_) | None => {
                bench.receive(sent, sent.item.at);
            }
        }
    }
    let result = bench.result();
    assert_eq!(result.completion.lost_objects, 4);
    let delivery = result.delivery;
    assert_eq!(
        (delivery.lost_join, delivery.lost_middle, delivery.lost_tail),
        (2, 1, 1)
    );
    assert_eq!(
        delivery.first_lost,
        Some(ObjectPosition {
            group: 0,
            object: 0
        })
    );
    assert_eq!(
        (result.completion.groups_received, delivery.groups_complete),
        (4, 2)
    );
    assert!(result.completion.average_bits_per_second < result.completion.expected_bits_per_second);
}

#[test]
fn stragglers_have_the_drain_to_arrive() {
    let mut bench = Bench::new(&profile(4, 1));
    let sent = bench.send_all();
    let (last, rest) = sent[..sent.len() - 4].split_last().unwrap();
    for sent in rest.iter().filter(|sent| sent.number() != Some(1)) {
        bench.receive(sent, sent.item.at);
    }
    bench.receive(last, last.item.at);
    assert!(!bench.receiver.has_ended());
    // The ttl is 3 s, longer than the shortest drain of 2 s.
    bench.wait_until(last.item.at + 2_999 * MS);
    assert!(!bench.receiver.has_ended());
    let mut punctual = bench;
    let straggler = sent.iter().find(|sent| sent.number() == Some(1)).unwrap();
    let at = last.item.at + 2_999 * MS;
    assert!(matches!(
        punctual.receive(straggler, at),
        Received::Data { .. }
    ));
    assert!(punctual.receiver.has_ended());
    let result = punctual.result();
    assert_eq!(
        (result.completion.lost_objects, result.delivery.reordered),
        (0, 1)
    );
    assert_eq!(result.delivery.late, 1, "it is older than its time to live");
}

#[test]
fn the_drain_ends() {
    let mut bench = Bench::new(&profile(4, 1));
    let sent = bench.send_all();
    for sent in sent.iter().filter(|sent| sent.number() != Some(1)) {
        bench.receive(sent, sent.item.at);
    }
    bench.wait_until(280 * MS + 3_000 * MS);
    assert!(bench.receiver.has_ended());
    assert_eq!(bench.receive(&sent[3], 4_000 * MS), Received::Ignored);
    assert_eq!(bench.result().completion.lost_objects, 1);
    assert_eq!(bench.result().status, Status::Good);
}

#[test]
fn a_lost_completion_is_incomplete() {
    let mut bench = Bench::new(&profile(4, 1));
    for sent in bench.send_all() {
        if !matches!(sent.item.kind, ItemKind::Completion { .. }) {
            bench.receive(&sent, sent.item.at);
        }
    }
    let mut done = bench.receiver.clone();
    done.handle_publish_done(bench.origin + 300 * MS, &bench.plan);
    done.handle_timeout(bench.origin + 3_300 * MS, &bench.plan);
    let result = done.result(&bench.plan, Some(bench.sender.totals()));
    assert_eq!(
        (result.status, result.end),
        (Status::Incomplete, Some(End::PublishDone))
    );
    assert_eq!(
        (
            result.completion.objects_sent,
            result.completion.lost_objects
        ),
        (None, 0)
    );

    let idle = bench.plan.idle_timeout();
    bench.wait_until(259 * MS + idle);
    assert!(!bench.receiver.has_ended());
    bench.wait_until(260 * MS + idle);
    assert_eq!(bench.result().end, Some(End::Idle));
    assert_eq!(bench.result().status, Status::Incomplete);
}

#[test]
fn completion_after_publish_done_still_counts() {
    let mut bench = Bench::new(&profile(2, 1));
    let sent = bench.send_all();
    for sent in &sent[..4] {
        bench.receive(sent, sent.item.at);
    }
    bench
        .receiver
        .handle_publish_done(bench.origin + 250 * MS, &bench.plan);
    bench.receive(&sent[4], 260 * MS);
    assert_eq!(
        (bench.result().status, bench.result().end),
        (Status::Good, Some(End::Completion))
    );
}

#[test]
fn a_lost_session_is_a_failure_unless_the_verdict_was_out() {
    let mut bench = Bench::new(&profile(2, 1));
    let sent = bench.send_all();
    bench.receive(&sent[0], Duration::ZERO);
    bench.receive(&sent[2], 200 * MS);
    let mut lost = bench.receiver.clone();
    lost.end(End::Disconnected);
    assert_eq!(lost.result(&bench.plan, None).status, Status::Failed);

    bench.receive(&sent[4], 240 * MS);
    bench.receiver.end(End::Disconnected);
    assert_eq!(
        (bench.result().status, bench.result().end),
        (Status::Good, Some(End::Completion))
    );
    assert_eq!(bench.result().completion.lost_objects, 1);

    let mut interrupted = TrackReceiver::new();
    interrupted.end(End::Interrupted);
    assert_eq!(
        interrupted.result(&bench.plan, None).status,
        Status::Incomplete
    );
}

#[test]
fn without_start_the_track_is_failed() {
    for (late_join, failure) in [(false, Some(Failure::NoStart)), (true, None)] {
        let mut bench = Bench::new(&TrackProfile {
            late_join,
            ..profile(2, 1)
        });
        for sent in bench.send_all().iter().skip(2) {
            bench.receive(sent, sent.item.at);
        }
        let result = bench.result();
        assert_eq!(result.failure, failure);
        assert_eq!(result.status == Status::Good, late_join);
        assert_eq!(
            result.completion.objects_received, 2,
            "the figures are there all the same"
        );
    }
}

#[test]
fn start_has_to_describe_the_profile() {
    let mut bench = Bench::new(&profile(2, 1));
    let start = Start {
        interval_ms: 21,
        ..bench.plan.schedule().start_message()
    };
    assert_eq!(bench.receive_bytes(&start.encode()), Received::Start);
    assert_eq!(bench.result().failure, Some(Failure::OtherProfile));
}

#[test]
fn a_repeated_start_is_ignored() {
    let mut bench = Bench::new(&profile(2, 1));
    let sent = bench.send_all();
    let start = bench.plan.schedule().start_message();
    let other = Start {
        interval_ms: 21,
        ..start
    };
    for start in [start, start, other] {
        assert_eq!(bench.receive_bytes(&start.encode()), Received::Start);
    }
    for sent in sent.iter().skip(2) {
        bench.receive(sent, sent.item.at);
    }
    let result = bench.result();
    assert_eq!((result.failure, result.status), (None, Status::Good));
}

#[test]
fn completion_without_start_fails_the_track() {
    let mut bench = Bench::new(&profile(2, 1));
    let sent = bench.send_all();
    let completion = sent.last().unwrap();
    bench.receive(completion, completion.item.at);
    let result = bench.result();
    assert_eq!(result.failure, Some(Failure::NoStart));
    assert_eq!(result.status, Status::Failed);
    assert_eq!(result.completion.objects_sent, Some(2));
}

#[test]
fn malformed_messages_fail_the_track_at_their_limit() {
    let mut bench = Bench::new(&profile(2, 1));
    let sent = bench.send_all();
    bench.receive(&sent[0], Duration::ZERO);
    for _ in 1..MALFORMED_MAX {
        assert_eq!(bench.receive_bytes(b"?"), Received::Malformed);
    }
    assert_eq!(bench.result().failure, None);
    assert!(matches!(
        bench.receive(&sent[2], 200 * MS),
        Received::Data { .. }
    ));
    assert_eq!(bench.receive_bytes(b""), Received::Malformed);
    assert_eq!(bench.result().failure, Some(Failure::Malformed));
    assert_eq!(bench.receive(&sent[3], 220 * MS), Received::Ignored);
    assert_eq!(bench.result().delivery.malformed, MALFORMED_MAX);
}

#[test]
fn impossible_messages_are_malformed() {
    let mut bench = Bench::new(&profile(2, 3));
    let sent = bench.send_all();
    bench.receive(&sent[0], Duration::ZERO);
    let first = &sent[2].bytes;
    let changed = |position: usize, value: u8| {
        let mut bytes = first.clone();
        bytes[position] = value;
        bytes
    };
    let schedule = bench.plan.schedule().clone();
    let totals = Completion {
        objects_sent: 6,
        groups_sent: 2,
        total_duration_ms: 0,
    };
    let more_objects = Completion {
        objects_sent: schedule.objects() + 1,
        ..totals
    };
    let more_groups = Completion {
        groups_sent: schedule.groups() + 1,
        ..totals
    };
    for bytes in [
        changed(8, 2),                 // a group beyond the plan
        changed(16, 3),                // an object beyond its group
        changed(16, 1),                // another number than its tag, and another size
        sent[3].bytes[..119].to_vec(), // shorter than it says
        more_objects.encode().to_vec(),
        more_groups.encode().to_vec(),
    ] {
        assert_eq!(
            bench.receive_bytes(&bytes),
            Received::Malformed,
            "{bytes:?}"
        );
    }
    assert_eq!(bench.receive_bytes(&totals.encode()), Received::Completion);
    let other = Completion {
        objects_sent: 5,
        ..totals
    };
    assert_eq!(bench.receive_bytes(&other.encode()), Received::Malformed);
}

#[test]
fn a_reset_accounts_for_the_rest_of_its_group() {
    let mut bench = Bench::new(&profile(2, 4));
    let sent = bench.send_all();
    for sent in &sent[..4] {
        bench.receive(sent, sent.item.at);
    }
    let group = sent[2].item.group;
    bench.receiver.handle_reset(&bench.plan, group, 0, 2);
    bench
        .receiver
        .handle_reset(&bench.plan, sent[0].item.group, 0, 0);
    for sent in &sent[6..] {
        bench.receive(sent, sent.item.at);
    }
    let delivery = bench.result().delivery;
    assert_eq!((delivery.cut_by_reset, delivery.lost_middle), (2, 2));
    assert_eq!(
        delivery.first_lost,
        Some(ObjectPosition {
            group: 0,
            object: 2
        })
    );
}

#[test]
fn a_publisher_that_stops_early_is_taken_at_its_word() {
    let mut bench = Bench::new(&profile(3, 4));
    for index in 0..8 {
        let sent = bench.send(index);
        bench.receive(&sent, sent.item.at);
    }
    let completion = bench.sender.completion().encode();
    assert_eq!(bench.receive_bytes(&completion), Received::Completion);
    let result = bench.result();
    assert_eq!(
        (result.status, result.completion.lost_objects),
        (Status::Good, 0)
    );
    assert_eq!(
        (
            result.completion.groups_received,
            result.delivery.groups_complete
        ),
        (2, 2)
    );
}

#[test]
fn results_are_plain_data_under_the_drafts_names() {
    let mut bench = Bench::new(&profile(3, 4));
    for sent in bench.send_all() {
        if sent.number() != Some(5) {
            bench.receive(&sent, sent.item.at + 5 * MS);
        }
    }
    let text = serde_json::to_string_pretty(&bench.result()).unwrap();
    insta::assert_snapshot!(text);
}
