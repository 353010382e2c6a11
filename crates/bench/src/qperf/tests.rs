use bytes::BytesMut;

use super::*;
use crate::profile::Profile;
use crate::schedule::ItemKind;

/// One object as qperf sends it.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    at_us: u64,
    group: u64,
    object: u64,
    bytes: Vec<u8>,
}

/// A publisher of qperf: what `WriteThread`, `PublishObjectWithMetrics`, `MetricsSampled` and `PublishTestComplete` of its
/// source do, on a clock whose pauses take exactly as long as they should.
struct Model {
    now_us: u64,
    group: u64,
    object: u64,
    objects_per_group: u64,
    sent: Vec<Sent>,
    bytes: u64,
    first_us: u64,
    next_sample_us: u64,
    /// Bytes at the last sample.
    sampled: u64,
    rates: [u64; 5],
}

/// Places in [`Model::rates`].
const MOST: usize = 0;
const LEAST: usize = 1;
const AVERAGE: usize = 2;
const SAMPLES: usize = 3;
const SUM: usize = 4;

impl Model {
    fn run(
        times_ms: [u64; 2],
        interval_us: u64,
        objects_per_group: u64,
        sizes: [usize; 2],
    ) -> Vec<Sent> {
        let [start_delay_ms, total_transmit_ms] = times_ms;
        let mut model = Self {
            now_us: BEGIN_US,
            group: 0,
            object: 0,
            objects_per_group,
            sent: Vec::new(),
            bytes: 0,
            first_us: 0,
            next_sample_us: 0,
            sampled: 0,
            rates: [0; 5],
        };
        let test_time_ms = total_transmit_ms + start_delay_ms;
        let end_us = model.now_us + test_time_ms * 1000;
        if start_delay_ms > 0 {
            model.now_us += 33_000 + start_delay_ms * 1000;
        }
        loop {
            // The size is chosen before the number of the object begins again at zero.
            let size = sizes[usize::from(model.object != 0)];
            model.publish(size);
            if model.now_us >= end_us {
                model.now_us += 33_000;
                model.complete();
                return model.sent;
            }
            model.now_us += interval_us;
            model.object += 1;
        }
    }

    fn publish(&mut self, size: usize) {
        self.sample();
        if self.object.is_multiple_of(self.objects_per_group) {
            self.object = 0;
            self.group += 1;
        }
        if self.first_us == 0 {
            self.first_us = self.now_us;
            self.next_sample_us = self.now_us + 5_000_000;
        }
        let mut bytes: Vec<u8> = (0..size).map(|place| (place % 255) as u8).collect();
        bytes[..16].fill(0);
        bytes[0] = 2;
        bytes[8..16].copy_from_slice(&self.now_us.to_le_bytes());
        self.bytes += size as u64;
        self.push(bytes);
    }

    /// Samples every five seconds. The first sample has nothing before it.
    fn sample(&mut self) {
        while self.first_us > 0 && self.next_sample_us <= self.now_us {
            self.next_sample_us += 5_000_000;
            if self.sampled != 0 {
                let rate = (self.bytes - self.sampled) * 8 / 5;
                self.rates[SUM] += rate;
                self.rates[MOST] = self.rates[MOST].max(rate);
                self.rates[LEAST] = self.rates[LEAST].min(rate);
                self.rates[SAMPLES] += 1;
                self.rates[AVERAGE] = self.rates[SUM] / self.rates[SAMPLES];
            }
            self.sampled = self.bytes;
        }
    }

    /// The struct `ObjectTestComplete` as a compiler for 64-bit machines lays it out.
    fn complete(&mut self) {
        self.sample();
        let objects = self.sent.len() as u64 + 1;
        self.object += 1;
        let mut bytes = vec![3, 0, 0, 0, 0, 0, 0, 0];
        let fields = [
            self.now_us,
            self.first_us,
            self.now_us,
            objects,
            0,
            self.bytes + 96,
            self.rates[MOST],
            self.rates[LEAST],
            self.rates[AVERAGE],
            // 32 bits, and four bytes of padding.
            self.rates[SAMPLES],
            self.rates[SUM],
        ];
        bytes.extend(fields.into_iter().flat_map(u64::to_le_bytes));
        self.push(bytes);
    }

    fn push(&mut self, bytes: Vec<u8>) {
        self.sent.push(Sent {
            at_us: self.now_us,
            group: self.group,
            object: self.object,
            bytes,
        });
    }
}

/// Everything that a publisher of the profile's first track sends, each object at its planned time.
fn ours(profile: &str) -> Vec<Sent> {
    let profile = Profile::parse("qperf.ini", profile.as_bytes()).unwrap();
    let schedule = Schedule::new(&profile.tracks[0], 0).on(Wire::Qperf);
    let mut sent = Vec::new();
    let mut totals = Totals {
        rates: BitRates::of(&schedule),
        ..Totals::default()
    };
    for item in (0..).map_while(|index| schedule.item(index)) {
        let at_us = BEGIN_US + u64::try_from(item.at.as_micros()).unwrap();
        let mut object = BytesMut::new();
        match item.kind {
            ItemKind::Start => panic!("qperf has no START"),
            ItemKind::Data(data) => {
                if totals.objects == 0 {
                    totals.first_us = at_us;
                }
                totals.objects += 1;
                write_data(at_us, data.size.bytes(), &mut object);
            }
            ItemKind::Completion { .. } => {
                totals.bytes = schedule.bytes_of(totals.objects);
                write_complete(at_us, &totals, &mut object);
            }
        }
        sent.push(Sent {
            at_us,
            group: item.group,
            object: item.object,
            bytes: object.to_vec(),
        });
    }
    sent
}

/// A track of qperf's own example, with these times in milliseconds.
fn track(video: bool, times: &str) -> String {
    let (mode, interval, objects, first, other) = match video {
        true => ("stream", "33.33", 150, 21_333, 2_666),
        false => ("datagram", "20", 1, 120, 120),
    };
    format!(
        "[Track]\nnamespace = perf/{{}}\nname = 1\ntrack_mode = {mode}\npriority = 2\nttl = 5000\n\
         time_interval = {interval} ; ms\nobjects_per_group = {objects}\nfirst_object_size = {first}\n\
         object_size = {other}\n{times}\n"
    )
}

#[test]
fn every_byte_is_that_of_qperf() {
    for [start_delay, total] in [[5000, 30_000], [0, 12_345], [1000, 4000]] {
        let times = format!("start_delay = {start_delay}\ntotal_transmit_time = {total}");
        let audio = Model::run([start_delay, total], 20_000, 1, [120, 120]);
        assert_same(&ours(&track(false, &times)), &audio);
        let video = Model::run([start_delay, total], 33_330, 150, [21_333, 2_666]);
        assert_same(&ours(&track(true, &times)), &video);
    }
}

fn assert_same(ours: &[Sent], model: &[Sent]) {
    let place = |sent: &Sent| {
        (
            sent.at_us - BEGIN_US,
            sent.group,
            sent.object,
            sent.bytes.len(),
        )
    };
    for (number, (one, other)) in ours.iter().zip(model).enumerate() {
        assert_eq!(place(one), place(other), "object {number}");
        assert_eq!(one.bytes, other.bytes, "object {number}");
    }
    assert_eq!(ours.len(), model.len());
}

#[test]
fn a_run_takes_as_long_as_that_of_qperf() {
    // In qperf, the data phase of its example has 30 s less a pause, not 25 s.
    let times = "start_delay = 5000\ntotal_transmit_time = 30000";
    let sent = ours(&track(false, times));
    assert_eq!(sent.len(), 1_500 + 1);
    let rate_fields = &sent.last().unwrap().bytes[56..96];
    // Five samples of 48 kbit/s, up to the 30th second: the first moment has nothing before it.
    let numbers: Vec<u64> = rate_fields
        .chunks(8)
        .map(|field| u64::from_le_bytes(field.try_into().unwrap()))
        .collect();
    assert_eq!(numbers, [48_000, 0, 48_000, 5, 240_000]);
    // In older templates, the total includes the start delay, in qperf too.
    let older = "start_delay = 5000\ntotal_test_time = 30000";
    assert_eq!(ours(&track(false, older)).len(), 1_250 + 1);
}

#[test]
fn an_older_template_is_read() {
    let older = "[TRACK 1]\nnamespace             = perf/1         ; track namespace\nname                  = 1\n\
        track_mode            = datagram\npriority              = 1\nttl                   = 5000\n\
        time_interval         = 20.00\nobjs_per_group        = 1\nbytes_per_group_start = 60\n\
        bytes_per_group       = 60\nstart_delay           = 10000\ntotal_test_time       = 35000\n";
    let profile = Profile::parse("older.ini", older.as_bytes()).unwrap();
    let track = &profile.tracks[0];
    assert_eq!(
        (track.first_object_size.bytes(), track.object_size.bytes()),
        (60, 60)
    );
    assert_eq!(track.duration, Duration::from_secs(25));
    let again = Profile::parse("again.ini", profile.to_ini().as_bytes()).unwrap();
    assert_eq!(again, profile);
    let both = format!("{older}total_transmit_time = 25000\n");
    let error = Profile::parse("both.ini", both.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("remove one"), "{error}");
}

#[test]
fn data_and_completion_come_back() {
    let mut object = BytesMut::new();
    write_data(0x0102, 18, &mut object);
    let mut expected = vec![2, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0];
    expected.extend([16, 17]);
    assert_eq!(object[..], expected);
    assert_eq!(
        QperfObject::decode(&object, 18),
        Some(QperfObject::Data { sent_us: 0x0102 })
    );
    let totals = Totals {
        first_us: 10_000_000,
        objects: 1500,
        bytes: 180_000,
        ..Totals::default()
    };
    object.clear();
    write_complete(40_000_000, &totals, &mut object);
    assert_eq!(object.len(), COMPLETE_BYTES);
    let completion = Completion {
        objects_sent: 1500,
        groups_sent: 0,
        total_duration_ms: 30_000,
    };
    assert_eq!(
        QperfObject::decode(&object, 96),
        Some(QperfObject::Complete(completion))
    );
}

#[test]
fn what_is_neither_is_refused() {
    for (head, bytes) in [
        (&[][..], 0),
        (&[1; 96], 96),
        (&[2; 15], 15),
        (&[3; 96], 95),
        (&[3; 39], 96),
        (&[3, 0, 0], 96),
    ] {
        assert_eq!(QperfObject::decode(head, bytes), None, "{head:?}");
    }
}

const BEGIN_US: u64 = 1_700_000_000_000_000;
