//! Synthetic reports for tests, made from a seed and similar to real ones.

pub(super) mod hostile;
mod observed;

use std::collections::BTreeMap;

use self::observed::{generator, heat_map, relay};
use super::*;
use crate::latency::{Latency, LatencySecond};
use crate::statistics::{self, Bucket, Spread};

/// The size and story of a synthetic run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) seed: u64,
    pub(super) subscribers: u64,
    pub(super) seconds: u64,
    pub(super) video: bool,
    pub(super) story: Story,
}

/// The course of a synthetic run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Story {
    Fine,
    Overloaded,
    RelayDied,
    SlowGenerator,
    NotObserved,
    /// One in ten subscribers is a slow reader.
    SlowReaders,
}

impl Shape {
    pub(super) fn audio(subscribers: u64) -> Self {
        Self {
            seed: 1,
            subscribers,
            seconds: 30,
            video: false,
            story: Story::Fine,
        }
    }

    pub(super) fn story(self, story: Story) -> Self {
        Self { story, ..self }
    }
}

/// Returns the report of such a run.
pub(super) fn report(shape: Shape) -> Report {
    let mut random = Random(shape.seed);
    let mut tracks = vec![track(shape, audio(shape), &mut random)];
    if shape.video {
        tracks.push(track(shape, video(shape), &mut random));
    }
    let relay = relay(shape, &tracks, &mut random);
    let slo = service_level(&tracks, &relay);
    Report::new(run(shape), slo, tracks, relay, generator(shape))
}

/// Returns the report of a run that held, for tests of other modules.
pub(crate) fn example_report(subscribers: u64) -> Report {
    report(Shape::audio(subscribers))
}

/// Returns the report of a run without tracks.
pub(super) fn empty() -> Report {
    let shape = Shape::audio(0).story(Story::NotObserved);
    let relay = Relay {
        source: RelaySource::NotObserved,
        implementation: None,
        cost: None,
        per_second: Vec::new(),
        counters: BTreeMap::new(),
        metrics: Vec::new(),
    };
    let slo = JudgedLevel {
        text: String::new(),
        clauses: Vec::new(),
        first_broken: None,
        held: false,
        judged_from_ms: 0.0,
        lost_objects: 0,
        latency_p99_ms: None,
    };
    let generator = Generator {
        threads: Vec::new(),
        per_second: Vec::new(),
        ..generator(shape)
    };
    Report::new(
        Run {
            draft: None,
            ..run(shape)
        },
        slo,
        Vec::new(),
        relay,
        generator,
    )
}

/// `SplitMix64`: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number between 0 and 1.
    fn unit(&mut self) -> f64 {
        statistics::float(self.next() >> 11) / statistics::float(1 << 53)
    }

    /// Returns a number around `middle`, mostly near, sometimes far above.
    fn skewed(&mut self, middle: f64) -> f64 {
        let sum: f64 = (0..6).map(|_| self.unit()).sum();
        middle * ((sum - 3.0) * 0.55).exp()
    }
}

fn run(shape: Shape) -> Run {
    let died = shape.story == Story::RelayDied;
    Run {
        weir_version: "0.1.0".to_owned(),
        command_line: format!(
            "weir bench profiles/audio.ini --subscribers {}",
            shape.subscribers
        ),
        profile: Profile {
            name: if shape.video {
                "audio-video.ini"
            } else {
                "audio.ini"
            }
            .to_owned(),
            text: "[Audio Datagram]\nnamespace = perf/audio/{}\nname = 1\ntrack_mode = datagram\n\
                   priority = 2\nttl = 5000\ntime_interval = 20\nobjects_per_group = 1\n\
                   first_object_size = 120\nobject_size = 120\nstart_delay = 5000\n\
                   total_transmit_time = 35000\n"
                .to_owned(),
        },
        seed: shape.seed,
        run_id: "5f1c02ab".to_owned(),
        start_time: "2026-11-21T20:14:05Z".to_owned(),
        duration_ms: statistics::float(shape.seconds) * 1000.0 + 7_412.5,
        relay_url: "moqt://127.0.0.1:4443".to_owned(),
        draft: Some("moqt-18".to_owned()),
        transport: "quic".to_owned(),
        publish_flow: "publish".to_owned(),
        latency_clock: "one clock: publishers and subscribers share this host".to_owned(),
        clock_error_ms: Some(0.0),
        subscribers_requested: shape.subscribers,
        publishers_requested: 1,
        audience: Audience {
            sockets: 1,
            threads: 1,
            acknowledgements: "delayed".to_owned(),
            receive_pause_ms: 0.5,
            reply_spread_ms: 0.0,
            acknowledged: Some(Acknowledged {
                connections: shape.subscribers,
                connections_asked: 0,
                packets_received: shape.subscribers * 1_500,
                acknowledgements_sent: shape.subscribers * 760,
            }),
        },
        cores: Cores {
            relay: vec![0],
            publishers: vec![1],
            subscribers: vec![1],
        },
        kernel: "Linux 6.1.0-28-amd64".to_owned(),
        cpu_model: "AMD EPYC 9R14".to_owned(),
        interrupted: died.then(|| "the relay's process ended by signal 9 after 17.2 s".to_owned()),
        ended_early_by: Vec::new(),
        partial: died,
    }
}

fn audio(shape: Shape) -> TrackDefinition {
    TrackDefinition {
        section: "Audio Datagram".to_owned(),
        namespace: "perf/audio/{}".to_owned(),
        name: "1".to_owned(),
        track_mode: "datagram".to_owned(),
        stream_mapping: None,
        priority: 2,
        ttl_ms: 5000,
        time_interval_ms: 20.0,
        objects_per_group: 1,
        first_object_size_bytes: 120,
        object_size_bytes: 120,
        start_delay_ms: 5000,
        total_transmit_time_ms: 5000 + shape.seconds * 1000,
        duration_ms: shape.seconds * 1000,
    }
}

fn video(shape: Shape) -> TrackDefinition {
    TrackDefinition {
        section: "360p Video".to_owned(),
        namespace: "perf/video/{}".to_owned(),
        track_mode: "stream".to_owned(),
        stream_mapping: Some("subgroup_per_group".to_owned()),
        priority: 3,
        time_interval_ms: 33.33,
        objects_per_group: 150,
        first_object_size_bytes: 21_333,
        object_size_bytes: 2_666,
        ..audio(shape)
    }
}

/// Returns the number of objects in `seconds`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small and positive"
)]
fn objects_in(definition: &TrackDefinition, seconds: u64) -> u64 {
    (statistics::float(seconds) * 1000.0 / definition.time_interval_ms).round() as u64
}

const SET_UP_SECONDS: u64 = 6;

fn track(shape: Shape, definition: TrackDefinition, random: &mut Random) -> TrackReport {
    let seconds = if shape.story == Story::RelayDied {
        17.min(shape.seconds)
    } else {
        shape.seconds
    };
    let objects = objects_in(&definition, seconds);
    let scale = if definition.track_mode == "stream" {
        2.4
    } else {
        1.0
    };
    let base = scale * (0.45 + statistics::float(shape.subscribers) * 0.000_9);
    let subscribers: Vec<SubscriberReport> = (0..shape.subscribers)
        .map(|index| subscriber(shape, &definition, index, objects, base, random))
        .collect();
    let latency = latency(
        latency_seconds(shape, &definition, seconds, base, random),
        random,
    );
    let published = Published {
        publishers: 1,
        objects,
        groups: objects / definition.objects_per_group,
        expired_objects: 0,
        crowded_out_objects: 0,
        lateness: Some(lateness(shape, objects)),
    };
    let variance = Distribution {
        count: objects * shape.subscribers,
        mean_ms: 0.31,
        p50_ms: 0.22,
        p90_ms: 0.74,
        p99_ms: 1.62,
        max_ms: 6.05,
    };
    let heat = heat_map(shape, &subscribers, objects, random);
    let bits = bits_per_second(&definition);
    let progress = over_time::example(&latency.per_second, (bits, shape.subscribers));
    TrackReport::new(
        definition,
        published,
        Some(variance),
        latency,
        progress,
        heat,
        subscribers,
    )
}

/// Returns the latency of each second: around `base`, growing if the relay is overloaded.
fn latency_seconds(
    shape: Shape,
    definition: &TrackDefinition,
    seconds: u64,
    base: f64,
    random: &mut Random,
) -> Vec<LatencySecond> {
    let overloaded = shape.story == Story::Overloaded;
    (0..seconds)
        .map(|second| {
            let strain = if overloaded && second > seconds / 2 {
                1.0 + statistics::float(second - seconds / 2) * 3.0
            } else {
                1.0
            };
            let p50_ms = random.skewed(base) * 0.2 + base * 0.8 * strain;
            let p99_ms = p50_ms * (2.2 + random.unit());
            LatencySecond {
                second: SET_UP_SECONDS + second,
                objects: objects_in(definition, 1) * shape.subscribers,
                p50_ms,
                p99_ms,
                max_ms: p99_ms * (1.2 + random.unit() * random.unit() * 4.0),
            }
        })
        .collect()
}

/// Returns the publisher lateness of `objects`.
fn lateness(shape: Shape, objects: u64) -> Distribution {
    let (p99_ms, max_ms) = if shape.story == Story::SlowGenerator {
        (63.4, 148.9)
    } else {
        (0.21, 1.72)
    };
    Distribution {
        count: objects,
        mean_ms: 0.04,
        p50_ms: 0.031,
        p90_ms: 0.082,
        p99_ms,
        max_ms,
    }
}

/// Returns a histogram that fits the seconds, with its figures.
fn latency(per_second: Vec<LatencySecond>, random: &mut Random) -> Latency {
    let mut values: Vec<f64> = Vec::new();
    for second in &per_second {
        values.extend((0..400).map(|_| random.skewed(second.p50_ms)));
        values.push(second.max_ms);
    }
    let mut buckets: BTreeMap<i64, u64> = BTreeMap::new();
    for value in &values {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a logarithm of a latency is small"
        )]
        let bucket = (value.ln() * 24.0).floor() as i64;
        *buckets.entry(bucket).or_default() += 1;
    }
    let objects: u64 = per_second.iter().map(|one| one.objects).sum();
    let weight = objects / (values.len() as u64).max(1);
    #[expect(clippy::cast_precision_loss, reason = "a bucket's number is small")]
    let edge = |bucket: i64| (bucket as f64 / 24.0).exp();
    let histogram = buckets
        .iter()
        .map(|(bucket, count)| Bucket {
            from_ms: edge(*bucket),
            to_ms: edge(bucket + 1),
            count: count * weight.max(1),
        })
        .collect();
    let overall = Distribution::of(values).map(|overall| Distribution {
        count: objects,
        ..overall
    });
    Latency {
        overall: overall.filter(|_| objects > 0),
        histogram,
        per_second,
    }
}

fn conduct(shape: Shape, index: u64) -> Conduct {
    if shape.story == Story::SlowReaders && index % 10 == 9 {
        Conduct::SlowReader
    } else {
        Conduct::Steady
    }
}

fn subscriber(
    shape: Shape,
    definition: &TrackDefinition,
    index: u64,
    objects: u64,
    base: f64,
    random: &mut Random,
) -> SubscriberReport {
    let reception = Reception::draw(shape, index, objects, random);
    let latency = reception.latency(shape, base, random);
    SubscriberReport {
        index,
        track_name: format!("perf-audio-0--{}", definition.name),
        conduct: conduct(shape, index),
        sessions: 1,
        status: match (reception.failed, reception.died) {
            (true, _) => Status::Failed,
            (false, true) => Status::Incomplete,
            (false, false) => Status::Good,
        },
        reason: match (reception.failed, reception.died) {
            (true, _) => Some("no START was received before the time-out".to_owned()),
            (false, true) => Some("the session was lost: timed out".to_owned()),
            (false, false) => None,
        },
        completion: reception.completion(definition, random),
        progress: reception.progress(definition, random),
        delivery: reception.delivery(index, definition.objects_per_group, random),
        variance: Variance {
            signed_drift_ms: random.unit() * 0.2 - 0.1,
            p50_ms: random.skewed(0.22),
            p99_ms: random.skewed(1.6),
            max_ms: random.skewed(5.0),
            jitter_rfc3550_ms: random.skewed(0.12),
        },
        latency: (reception.received() > 0).then_some(latency),
        handshake_ms: Some(random.skewed(9.0)),
        setup_ms: Some(random.skewed(1.4)),
        first_object_ms: (!reception.failed).then(|| random.skewed(31.0)),
        joining_fetch_ms: None,
    }
}

/// The objects that one subscriber received and lost.
struct Reception {
    sent: u64,
    lost_join: u64,
    lost_middle: u64,
    lost_tail: u64,
    /// Whether the subscriber loses or reorders objects.
    loses: bool,
    /// Whether the subscription failed.
    failed: bool,
    /// Whether the relay's process ended.
    died: bool,
}

impl Reception {
    fn draw(shape: Shape, index: u64, sent: u64, random: &mut Random) -> Self {
        let failed = shape.story == Story::Overloaded && index % 29 == 28;
        let is_slow = conduct(shape, index) == Conduct::SlowReader;
        let loses = is_slow || shape.story == Story::Overloaded && random.unit() < 0.6;
        let (lost_join, lost_middle, lost_tail) = match (failed, loses) {
            (true, _) => (0, 0, sent),
            (false, true) => (
                random.next() % 3,
                random.next() % (sent / 6).max(1),
                random.next() % 9,
            ),
            (false, false) => (0, 0, 0),
        };
        Self {
            sent,
            lost_join,
            lost_middle,
            lost_tail,
            loses,
            failed,
            died: shape.story == Story::RelayDied,
        }
    }

    fn lost(&self) -> u64 {
        (self.lost_join + self.lost_middle + self.lost_tail).min(self.sent)
    }

    fn received(&self) -> u64 {
        self.sent - self.lost()
    }

    fn latency(&self, shape: Shape, base: f64, random: &mut Random) -> Distribution {
        let strain = if shape.story == Story::Overloaded {
            20.0
        } else {
            1.0
        };
        let p50_ms = random.skewed(base) * 0.3 + base * 0.7 * strain;
        let p99_ms = p50_ms * (2.0 + random.unit() * 1.5);
        Distribution {
            count: self.received(),
            mean_ms: p50_ms * 1.1,
            p50_ms,
            p90_ms: p50_ms * 1.7,
            p99_ms,
            max_ms: p99_ms * (1.2 + random.unit() * random.unit() * 4.0),
        }
    }

    fn completion(&self, definition: &TrackDefinition, random: &mut Random) -> Completion {
        let per_group = definition.objects_per_group;
        let bits = bits_per_second(definition);
        let seen = !self.failed && !self.died;
        let received = self.received();
        Completion {
            objects_sent: seen.then_some(self.sent),
            groups_sent: seen.then_some(self.sent / per_group),
            objects_received: received,
            groups_received: received / per_group,
            lost_objects: self.lost(),
            total_duration_ms: seen
                .then_some(statistics::float(self.sent) * definition.time_interval_ms),
            actual_duration_ms: statistics::float(received) * definition.time_interval_ms,
            average_receive_variance_ms: random.skewed(0.31),
            average_publisher_variance_ms: 0.042,
            average_bits_per_second: bits * statistics::ratio(received, self.sent).unwrap_or(0.0),
            expected_bits_per_second: bits,
        }
    }

    fn progress(&self, definition: &TrackDefinition, random: &mut Random) -> Progress {
        let received = self.received();
        Progress {
            received_objects: received,
            received_groups: received / definition.objects_per_group,
            receive_delta_ms: Some(definition.time_interval_ms + random.unit() - 0.5),
            average_delta_ms: Some(definition.time_interval_ms),
            max_delta_ms: Some(definition.time_interval_ms + random.skewed(3.0)),
            publisher_variance_ms: 0.02,
            receive_variance_ms: random.unit() - 0.5,
            average_bits_per_second: bits_per_second(definition),
        }
    }

    fn delivery(&self, index: u64, per_group: u64, random: &mut Random) -> Delivery {
        let lost = self.lost();
        Delivery {
            groups_complete: self.received() / per_group,
            reordered: if self.loses { random.next() % 5 } else { 0 },
            lost_join: self.lost_join,
            lost_middle: self.lost_middle,
            lost_tail: self.lost_tail,
            dropped: lost,
            first_lost: (lost > 0).then(|| ObjectPosition {
                group: index % 7 * 11,
                object: 0,
            }),
            ..Delivery::default()
        }
    }
}

/// Returns the bit rate of a track, without the first objects of groups.
fn bits_per_second(definition: &TrackDefinition) -> f64 {
    statistics::float(definition.object_size_bytes * 8) * 1000.0 / definition.time_interval_ms
}

fn service_level(tracks: &[TrackReport], relay: &Relay) -> JudgedLevel {
    let lost: u64 = tracks
        .iter()
        .map(|track| track.completion.lost_objects.sum)
        .sum();
    let p99 = Spread::over(
        tracks
            .iter()
            .filter_map(|one| Some(one.latency.overall?.p99_ms)),
    );
    let clause = |text: &str, metric: &str, limit: f64, measured: Option<f64>, unit: &str, held| {
        JudgedClause {
            text: text.to_owned(),
            metric: metric.to_owned(),
            limit,
            measured,
            unit: unit.to_owned(),
            held: Some(held),
        }
    };
    let cpu = relay.cost.as_ref().map(|cost| cost.cpu_percent);
    let p99 = p99.map(|p99| p99.max);
    let mut clauses = vec![
        clause(
            "loss=0",
            "loss",
            0.0,
            Some(statistics::float(lost)),
            "",
            lost == 0,
        ),
        clause(
            "p99<100ms",
            "p99",
            100.0,
            p99,
            "ms",
            p99.is_some_and(|p99| p99 < 100.0),
        ),
    ];
    let mut text = "loss=0,p99<100ms".to_owned();
    if cpu.is_some() {
        let held = cpu.is_some_and(|cpu| cpu < 95.0);
        clauses.push(clause("cpu<95%", "cpu", 95.0, cpu, "%", held));
        text += ",cpu<95%";
    }
    let first = clauses.iter().find(|clause| clause.is_broken());
    JudgedLevel {
        text,
        first_broken: first.map(|clause| clause.text.clone()),
        held: first.is_none(),
        judged_from_ms: 0.0,
        lost_objects: lost,
        latency_p99_ms: p99,
        clauses,
    }
}
