//! What a viewer saw, in numbers.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts and microseconds of a run lie far below 2^52"
)]

use serde::Serialize;

use crate::FrameKind;

/// What became of one frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FrameRecord {
    /// How many frames of the track the origin had before it.
    pub number: u64,
    /// The group of pictures.
    pub group: u64,
    /// `I`, `P` or `B`.
    pub kind: char,
    /// Bytes of the coded frame with its container.
    pub bytes: u64,
    /// When it is shown, in microseconds of media time.
    pub presentation_us: i64,
    /// When the origin had it, in microseconds since the start of the run.
    pub available_us: i64,
    /// When its last byte arrived.
    pub arrived_us: i64,
    /// When it was shown, if it was.
    pub shown_us: Option<i64>,
}

/// Figures of a run. Times are in seconds.
///
/// The mean latency of what was shown rewards starvation, for a hole costs it nothing: the age of
/// what is on the screen does not, and stands beside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Frames that the origin had.
    pub frames: u64,
    /// Share of them that was shown.
    pub shown: f64,
    /// Share of them that was shown within [`DEADLINE_US`] of being available.
    pub on_time: f64,
    /// Mean time from availability to rendering.
    pub latency_mean: f64,
    /// The 95th percentile of it.
    pub latency_p95: f64,
    /// The longest.
    pub latency_max: f64,
    /// Mean age of what was on the screen, over time, from the first frame shown to the end.
    pub age_mean: f64,
    /// The greatest age.
    pub age_max: f64,
    /// How often the picture stood still for longer than [`FREEZE_US`].
    pub freezes: u64,
    /// How long it stood still in these, together.
    pub freeze_total: f64,
    /// The longest time between two pictures.
    pub freeze_longest: f64,
    /// From the start of the player to the first picture.
    pub time_to_first_frame: Option<f64>,
    /// Mean time that frames arrived later than the quickest one, from availability.
    pub queueing_mean: f64,
    /// Received bits per second of I-, P- and B-frames.
    pub bit_rates: [f64; 3],
}

impl Figures {
    /// Adds up what became of the frames of a run that lasted from `start_us` to `end_us`, of which the
    /// origin had `frames`.
    pub fn new(records: &[FrameRecord], frames: u64, start_us: i64, end_us: i64) -> Self {
        let mut shown: Vec<(i64, i64)> = records
            .iter()
            .filter_map(|record| Some((record.shown_us?, record.available_us)))
            .collect();
        shown.sort_unstable();
        let mut latencies: Vec<i64> = shown
            .iter()
            .map(|(shown, available)| shown - available)
            .collect();
        latencies.sort_unstable();
        let share = |count: usize| count as f64 / frames.max(1) as f64;
        let on_time = latencies.iter().filter(|latency| **latency <= DEADLINE_US);
        let mut figures = Self {
            frames,
            shown: share(shown.len()),
            on_time: share(on_time.count()),
            latency_mean: mean(latencies.iter().copied()),
            latency_p95: seconds(percentile(&latencies, 95)),
            latency_max: seconds(latencies.last().copied().unwrap_or(0)),
            time_to_first_frame: shown.first().map(|(first, _)| seconds(first - start_us)),
            queueing_mean: queueing(records),
            bit_rates: bit_rates(records, end_us - start_us),
            ..Self::default()
        };
        figures.look_at_screen(&shown, end_us);
        figures
    }

    /// The same for a player that knows of the origin only what it received: the origin had the frames from the
    /// first to the last of these.
    pub fn of_received(records: &[FrameRecord], start_us: i64, end_us: i64) -> Self {
        let numbers = records.iter().map(|record| record.number);
        let (first, last) = (numbers.clone().min(), numbers.max());
        let frames = first.zip(last).map_or(0, |(first, last)| last - first + 1);
        Self::new(records, frames, start_us, end_us)
    }

    /// Age and freezes: what was on the screen until the next frame or the end.
    fn look_at_screen(&mut self, shown: &[(i64, i64)], end_us: i64) {
        let ends = shown.iter().skip(1).map(|(next, _)| *next).chain([end_us]);
        let (mut area, mut time) = (0.0, 0.0);
        for ((from, available), until) in shown.iter().zip(ends) {
            let (young, old) = (seconds(from - available), seconds(until - available));
            let stood = (old - young).max(0.0);
            area += stood * f64::midpoint(young, old);
            time += stood;
            self.age_max = self.age_max.max(old);
            self.freeze_longest = self.freeze_longest.max(stood);
            if stood > seconds(FREEZE_US) {
                self.freezes += 1;
                self.freeze_total += stood;
            }
        }
        self.age_mean = if time > 0.0 { area / time } else { 0.0 };
    }
}

fn queueing(records: &[FrameRecord]) -> f64 {
    let transits = records
        .iter()
        .map(|record| record.arrived_us - record.available_us);
    let quickest = transits.clone().min().unwrap_or(0);
    mean(transits.map(|transit| transit - quickest))
}

fn bit_rates(records: &[FrameRecord], duration_us: i64) -> [f64; 3] {
    FrameKind::ALL.map(|kind| {
        let of_kind = records.iter().filter(|record| record.kind == kind.letter());
        let bytes: u64 = of_kind.map(|record| record.bytes).sum();
        bytes as f64 * 8.0 / seconds(duration_us).max(f64::MIN_POSITIVE)
    })
}

fn mean(values: impl Iterator<Item = i64>) -> f64 {
    let (mut sum, mut count) = (0_i64, 0_u64);
    for value in values {
        sum += value;
        count += 1;
    }
    seconds(sum) / count.max(1) as f64
}

fn percentile(sorted: &[i64], percent: usize) -> i64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

fn seconds(microseconds: i64) -> f64 {
    microseconds as f64 / 1e6
}

/// A frame shown later than this after it was available does not count as on time.
pub const DEADLINE_US: i64 = 500_000;
/// A picture that stands still for longer than this is a freeze.
pub const FREEZE_US: i64 = 500_000;

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
            available_us,
            arrived_us: available_us + 10_000,
            shown_us,
        }
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
        near(figures.latency_mean, 0.1);
        near(figures.latency_p95, 0.1);
        near(figures.shown, 0.5);
        near(figures.on_time, 0.5);
        // 2 s at an age of 0.1 to 2.1, 0.9 s at an age of 0.1 to 1.
        near(figures.age_mean, (2.0 * 1.1 + 0.9 * 0.55) / 2.9);
        near(figures.age_max, 2.1);
        near(figures.freeze_longest, 2.0);
        near(figures.freeze_total, 2.9);
        assert_eq!(figures.freezes, 2);
        near(figures.queueing_mean, 0.0);
        near(figures.bit_rates[0], 2000.0 / 3.0);
        near(figures.bit_rates[2], 0.0);
        assert_eq!(figures.time_to_first_frame, Some(0.1));
    }

    #[test]
    fn a_run_without_a_picture_has_figures() {
        let figures = Figures::new(&[], 10, 0, 1_000_000);
        let nothing = Figures {
            frames: 10,
            ..Figures::default()
        };
        assert_eq!(figures, nothing);
    }
}
