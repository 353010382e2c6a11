//! The figures of one run, computed from the arrival and playout of each frame.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts and microseconds of a run lie far below 2^52"
)]

use serde::Serialize;

/// A received frame: its place in the stream, and when it arrived and was shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FrameRecord {
    /// Number of frames of the track before this one.
    pub number: u64,
    /// The group of pictures.
    pub group: u64,
    /// `I`, `P` or `B`.
    pub kind: char,
    /// Size in bytes, with the container.
    pub bytes: u64,
    /// Presentation time, in microseconds of media time.
    pub presentation_us: i64,
    /// Time at which the origin had the frame, in microseconds since the start of the run; unknown if the publisher does not send it.
    pub available_us: Option<i64>,
    /// Time at which its last byte arrived, on the same clock.
    pub arrived_us: i64,
    /// Time at which it was shown, if it was.
    pub shown_us: Option<i64>,
}

/// Figures of a run. Times are in seconds.
///
/// The mean latency of shown frames improves if fewer frames are shown. The mean age of the picture does not; compare by age.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// What counts as a freeze, and as on time.
    pub thresholds: Thresholds,
    /// Number of frames that the origin had.
    pub frames: u64,
    /// Share of these frames that was shown, from 0 to 1.
    pub shown: f64,
    /// Number of freezes: pauses between two pictures of more than [`Thresholds::freeze`].
    pub freezes: u64,
    /// Sum of their durations.
    pub freeze_total: f64,
    /// The longest time between two pictures.
    pub freeze_longest: f64,
    /// Time from the start of the player to the first picture.
    pub time_to_first_frame: Option<f64>,
    /// Received bits per second of I-, P- and B-frames.
    pub bit_rates: [f64; 3],
    /// Delays since the origin had each frame; absent if that time is unknown for all frames.
    #[serde(flatten)]
    pub delays: Option<Delays>,
}

/// What counts as a freeze, and as on time. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Thresholds {
    /// A longer pause between two pictures is a freeze.
    pub freeze: f64,
    /// A frame shown later than this after it was available is not on time.
    pub deadline: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            freeze: 0.5,
            deadline: 0.5,
        }
    }
}

/// Delays since the origin had a frame, over the frames for which that time is known. Times are in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Delays {
    /// Share of the origin's frames that was shown within [`Thresholds::deadline`].
    pub on_time: f64,
    /// Mean latency: from the origin to the screen.
    pub latency_mean: f64,
    /// 95th percentile of the latency.
    pub latency_p95: f64,
    /// Largest latency.
    pub latency_max: f64,
    /// Mean age of the picture on the screen over time, from the first picture to the end.
    pub age_mean: f64,
    /// Largest age.
    pub age_max: f64,
    /// Mean delay of frames beyond the quickest one.
    pub queueing_mean: f64,
}

impl Figures {
    /// Returns the figures of a run from `start_us` to `end_us`. The origin had `frames` frames.
    pub fn new(records: &[FrameRecord], frames: u64, start_us: i64, end_us: i64) -> Self {
        Self::judged(records, frames, (start_us, end_us), Thresholds::default())
    }

    /// Does the same as [`new`](Self::new), with these thresholds.
    pub fn judged(
        records: &[FrameRecord],
        frames: u64,
        (start_us, end_us): (i64, i64),
        thresholds: Thresholds,
    ) -> Self {
        let shown = stays(records, end_us);
        let has_capture_time = |record: &FrameRecord| record.available_us.is_some();
        let has_delays = records.is_empty() || records.iter().any(has_capture_time);
        let mut figures = Self {
            thresholds,
            frames,
            shown: share(shown.len(), frames),
            time_to_first_frame: shown.first().map(|stay| seconds(stay.from_us - start_us)),
            bit_rates: bit_rates(records, end_us - start_us),
            delays: has_delays.then(|| Delays::new(records, &shown, frames, thresholds.deadline)),
            ..Self::default()
        };
        for stood in shown.iter().map(Stay::seconds) {
            figures.freeze_longest = figures.freeze_longest.max(stood);
            if stood > thresholds.freeze {
                figures.freezes += 1;
                figures.freeze_total += stood;
            }
        }
        figures
    }

    /// Returns the figures for a player that knows only the frames that it received: it takes the origin's frames to be those
    /// from the first keyframe received to the last frame received. Frames before that keyframe belong to a group that the
    /// player did not join, and cannot be decoded.
    pub fn of_received(records: &[FrameRecord], start_us: i64, end_us: i64) -> Self {
        let numbers = records.iter().map(|record| record.number);
        let keyframes = records.iter().filter(|record| record.kind == 'I');
        let first_keyframe = keyframes.map(|record| record.number).min();
        let first = first_keyframe.or_else(|| numbers.clone().min());
        let last = numbers.max();
        let frames = first.zip(last);
        let frames = frames.map_or(0, |(first, last)| (last - first).saturating_add(1));
        // A publisher may number its frames wrongly: there were at least as many as were shown.
        let shown = records.iter().filter(|record| record.shown_us.is_some());
        let frames = frames.max(shown.count() as u64);
        Self::new(records, frames, start_us, end_us)
    }
}

impl Delays {
    fn new(records: &[FrameRecord], shown: &[Stay], frames: u64, deadline: f64) -> Self {
        let latencies = shown.iter();
        let latencies = latencies.filter_map(|stay| Some(stay.from_us - stay.available_us?));
        let mut latencies: Vec<i64> = latencies.collect();
        latencies.sort_unstable();
        let on_time = latencies
            .iter()
            .filter(|latency| seconds(**latency) <= deadline);
        let mut delays = Self {
            on_time: share(on_time.count(), frames),
            latency_mean: mean(latencies.iter().copied()),
            latency_p95: seconds(percentile(&latencies, 95)),
            latency_max: seconds(latencies.last().copied().unwrap_or(0)),
            queueing_mean: queueing(records),
            ..Self::default()
        };
        let (mut area, mut time) = (0.0, 0.0);
        for stay in shown {
            let Some(available_us) = stay.available_us else {
                continue;
            };
            let young = seconds(stay.from_us - available_us);
            let old = seconds(stay.until_us - available_us);
            area += stay.seconds() * f64::midpoint(young, old);
            time += stay.seconds();
            delays.age_max = delays.age_max.max(old);
        }
        delays.age_mean = if time > 0.0 { area / time } else { 0.0 };
        delays
    }
}

/// The time that a frame is on the screen: until the next one, or the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::struct_field_names, reason = "the unit belongs to the name")]
struct Stay {
    from_us: i64,
    available_us: Option<i64>,
    until_us: i64,
}

impl Stay {
    fn seconds(&self) -> f64 {
        seconds(self.until_us - self.from_us).max(0.0)
    }
}

/// Returns the frames shown, in the order in which they were.
fn stays(records: &[FrameRecord], end_us: i64) -> Vec<Stay> {
    let shown = records.iter().filter_map(|record| {
        Some(Stay {
            from_us: record.shown_us?,
            available_us: record.available_us,
            until_us: end_us,
        })
    });
    let mut shown: Vec<Stay> = shown.collect();
    shown.sort_unstable();
    for place in 1..shown.len() {
        shown[place - 1].until_us = shown[place].from_us;
    }
    shown
}

fn share(count: usize, frames: u64) -> f64 {
    count as f64 / frames.max(1) as f64
}

fn queueing(records: &[FrameRecord]) -> f64 {
    let transits = records
        .iter()
        .filter_map(|record| Some(record.arrived_us - record.available_us?));
    let quickest = transits.clone().min().unwrap_or(0);
    mean(transits.map(|transit| transit - quickest))
}

fn bit_rates(records: &[FrameRecord], duration_us: i64) -> [f64; 3] {
    ['I', 'P', 'B'].map(|kind| {
        let of_kind = records.iter().filter(|record| record.kind == kind);
        let bytes: u64 = of_kind.map(|record| record.bytes).sum();
        bytes as f64 * 8.0 / seconds(duration_us).max(f64::MIN_POSITIVE)
    })
}

fn mean(values: impl Iterator<Item = i64>) -> f64 {
    let (mut sum, mut count) = (0_i128, 0_u64);
    for value in values {
        sum += i128::from(value);
        count += 1;
    }
    sum as f64 / 1e6 / count.max(1) as f64
}

fn percentile(sorted: &[i64], percent: usize) -> i64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

fn seconds(microseconds: i64) -> f64 {
    microseconds as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: char, available_us: i64, shown_us: Option<i64>) -> FrameRecord {
        FrameRecord {
            number: 0,
            group: 0,
            kind,
            bytes: 125,
            presentation_us: available_us,
            available_us: Some(available_us),
            arrived_us: available_us + 10_000,
            shown_us,
        }
    }

    #[test]
    fn a_publisher_may_claim_any_time_that_a_tag_can_tell() {
        let records: Vec<FrameRecord> = (0..40)
            .map(|number| record('I', (number % 2) * (1 << 60), Some(number)))
            .collect();
        let figures = Figures::of_received(&records, 0, 1_000_000);
        let delays = figures.delays.expect("availability is claimed");
        assert!(delays.queueing_mean.is_finite() && delays.latency_mean < 0.0);
    }

    #[test]
    fn freezes_and_lateness_are_what_the_thresholds_say() {
        let shown = [0, 400_000, 800_000].map(|at| record('I', at - 300_000, Some(at)));
        let figures = |freeze, deadline| {
            Figures::judged(&shown, 3, (0, 1_000_000), Thresholds { freeze, deadline })
        };
        let usual = Figures::new(&shown, 3, 0, 1_000_000);
        assert_eq!(figures(0.5, 0.5), usual);
        assert_eq!((usual.freezes, usual.delays.unwrap().on_time), (0, 1.0));
        let strict = figures(0.3, 0.2);
        assert_eq!((strict.freezes, strict.delays.unwrap().on_time), (2, 0.0));
        assert!((strict.freeze_total - 0.8).abs() < 1e-9, "{strict:?}");
    }

    #[test]
    fn a_publisher_may_number_its_frames_as_it_likes() {
        let numbered = |number| FrameRecord {
            number,
            ..record('I', 0, None)
        };
        let records = [0, u64::MAX].map(numbered);
        assert_eq!(Figures::of_received(&records, 0, 1).frames, u64::MAX);
        assert_eq!(Figures::of_received(&records[1..], 0, 1).frames, 1);
    }

    #[test]
    fn no_more_is_shown_than_there_was() {
        let records = [1, 2, 3].map(|at| record('I', at, Some(at)));
        let figures = Figures::of_received(&records, 0, 10);
        let on_time = figures.delays.map(|delays| delays.on_time);
        assert_eq!(
            (figures.frames, figures.shown, on_time),
            (3, 1.0, Some(1.0))
        );
    }

    #[test]
    fn a_hole_shows_in_the_age_and_not_in_the_latency() {
        let records = [
            record('I', 0, Some(100_000)),
            record('P', 1_000_000, None),
            record('I', 2_000_000, Some(2_100_000)),
        ];
        let figures = Figures::new(&records, 4, 0, 3_000_000);
        let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} {other}");
        let delays = figures.delays.expect("availability is known");
        near(delays.latency_mean, 0.1);
        near(delays.latency_p95, 0.1);
        near(figures.shown, 0.5);
        near(delays.on_time, 0.5);
        // 2 s at an age of 0.1 to 2.1, 0.9 s at an age of 0.1 to 1.
        near(delays.age_mean, (2.0 * 1.1 + 0.9 * 0.55) / 2.9);
        near(delays.age_max, 2.1);
        near(figures.freeze_longest, 2.0);
        near(figures.freeze_total, 2.9);
        assert_eq!(figures.freezes, 2);
        near(delays.queueing_mean, 0.0);
        near(figures.bit_rates[0], 2000.0 / 3.0);
        near(figures.bit_rates[2], 0.0);
        assert_eq!(figures.time_to_first_frame, Some(0.1));
    }

    #[test]
    fn what_is_left_of_a_group_that_was_not_joined_is_not_missed() {
        let numbered = |number, kind| FrameRecord {
            number,
            ..record(kind, 0, None)
        };
        let mut records = vec![numbered(3, 'B'), numbered(7, 'B')];
        assert_eq!(Figures::of_received(&records, 0, 1).frames, 5);
        records.extend([numbered(14, 'I'), numbered(16, 'P'), numbered(28, 'I')]);
        assert_eq!(Figures::of_received(&records, 0, 1).frames, 15);
    }

    #[test]
    fn a_run_without_a_picture_has_figures() {
        let figures = Figures::new(&[], 10, 0, 1_000_000);
        let nothing = Figures {
            frames: 10,
            delays: Some(Delays::default()),
            ..Figures::default()
        };
        assert_eq!(figures, nothing);
    }

    #[test]
    fn what_counts_from_availability_is_absent_where_that_is_unknown() {
        let records = [(0, Some(100_000)), (1_000_000, Some(1_900_000))];
        let records = records.map(|(at, shown)| FrameRecord {
            available_us: None,
            ..record('P', at, shown)
        });
        let figures = Figures::new(&records, 2, 0, 2_000_000);
        assert_eq!(figures.delays, None);
        assert_eq!((figures.shown, figures.freezes), (1.0, 1));
        let json = serde_json::to_value(&figures).expect("plain numbers");
        assert!(json.get("latency_mean").is_none() && json.get("age_mean").is_none());
        assert_eq!(json["freeze_longest"], 1.8);
    }
}
