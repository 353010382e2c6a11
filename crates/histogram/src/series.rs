//! Histograms in consecutive windows of time, in bounded memory for a run of any length.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Histogram;

/// Latency over time: one [`Histogram`] per window. After [`SERIES_WINDOWS_MAX`] windows, pairs of windows are merged
/// and windows become twice as long, so no count is lost. Times are counted from an origin that the caller chooses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Windows")]
pub struct Series {
    window_ns: u64,
    windows: Vec<Histogram>,
}

/// The serialized form, whose figures may be forged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Windows {
    window_ns: u64,
    windows: Vec<Histogram>,
}

impl TryFrom<Windows> for Series {
    type Error = &'static str;

    fn try_from(read: Windows) -> Result<Self, Self::Error> {
        if read.windows.len() > SERIES_WINDOWS_MAX {
            return Err("a series has too many windows");
        }
        if !(WINDOW_NS_MIN..=WINDOW_NS_MAX).contains(&read.window_ns) {
            return Err("a series has windows that are too short or too long");
        }
        Ok(Self {
            window_ns: read.window_ns,
            windows: read.windows,
        })
    }
}

impl Series {
    /// Returns a series whose first window begins at the origin and lasts `window`, a millisecond to a year.
    pub fn new(window: Duration) -> Self {
        Self {
            window_ns: nanoseconds(window).clamp(WINDOW_NS_MIN, WINDOW_NS_MAX),
            windows: Vec::new(),
        }
    }

    /// Counts a duration in the window that contains the time `at` after the origin.
    pub fn record_ns(&mut self, at: Duration, duration_ns: u64) {
        self.window_mut(nanoseconds(at)).record_ns(duration_ns);
    }

    /// Adds the windows of `other`, which must have the same origin and the same initial window length.
    pub fn merge(&mut self, other: &Self) {
        while self.window_ns < other.window_ns {
            self.coarsen();
        }
        for (index, histogram) in other.windows.iter().enumerate() {
            let middle_ns = other.window_ns * index as u64 + other.window_ns / 2;
            self.window_mut(middle_ns).merge(histogram);
        }
    }

    /// Returns the current length of a window.
    pub fn window(&self) -> Duration {
        Duration::from_nanos(self.window_ns)
    }

    /// Returns the windows from the origin on, including empty ones.
    pub fn windows(&self) -> &[Histogram] {
        &self.windows
    }

    /// Returns the sum of the whole windows that begin between two offsets from the origin.
    pub fn total_between(&self, from: Duration, to: Duration) -> Histogram {
        let mut total = Histogram::new();
        for (index, histogram) in self.windows.iter().enumerate() {
            let begin_ns = self.window_ns * index as u64;
            if begin_ns >= nanoseconds(from) && begin_ns < nanoseconds(to) {
                total.merge(histogram);
            }
        }
        total
    }

    /// Returns the sum of all windows.
    pub fn total(&self) -> Histogram {
        self.total_between(Duration::ZERO, Duration::MAX)
    }

    fn window_mut(&mut self, offset_ns: u64) -> &mut Histogram {
        while offset_ns / self.window_ns >= SERIES_WINDOWS_MAX as u64 {
            self.coarsen();
        }
        let index = usize::try_from(offset_ns / self.window_ns)
            .expect("below SERIES_WINDOWS_MAX by the loop above");
        if index >= self.windows.len() {
            if self.windows.capacity() == 0 {
                // Reserves the final capacity at once. Only used memory becomes resident, and growing step by step
                // would copy the windows and leave holes in the heap.
                self.windows.reserve_exact(SERIES_WINDOWS_MAX);
            }
            self.windows.resize_with(index + 1, Histogram::new);
        }
        &mut self.windows[index]
    }

    fn coarsen(&mut self) {
        self.window_ns = self.window_ns.saturating_mul(2);
        let halved = self.windows.len().div_ceil(2);
        for index in 0..halved {
            let mut merged = self.windows[2 * index].clone();
            if let Some(right) = self.windows.get(2 * index + 1) {
                merged.merge(right);
            }
            self.windows[index] = merged;
        }
        self.windows.truncate(halved);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The most windows of a [`Series`]. Beyond this, pairs of windows are merged.
pub const SERIES_WINDOWS_MAX: usize = 512;
/// The shortest window: a millisecond.
const WINDOW_NS_MIN: u64 = 1_000_000;
/// The longest window: about a year, so that the sum of all windows fits 64 bits.
const WINDOW_NS_MAX: u64 = 1 << 55;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn series() -> Series {
        Series::new(SECOND)
    }

    #[test]
    fn keeps_windows_apart() {
        let mut series = series();
        series.record_ns(Duration::ZERO, 2_000);
        series.record_ns(SECOND * 3, 9_000);
        series.record_ns(SECOND * 3 + SECOND / 2, 9_000);
        let counts: Vec<u64> = series.windows().iter().map(Histogram::count).collect();
        assert_eq!(counts, [1, 0, 0, 2]);
        assert_eq!(series.total_between(SECOND, SECOND * 4).count(), 2);
        assert_eq!(series.total_between(SECOND, SECOND * 3).count(), 0);
    }

    #[test]
    fn merges_neighbours_one_past_its_limit() {
        let mut series = series();
        let limit = u32::try_from(SERIES_WINDOWS_MAX).unwrap();
        for second in 0..limit {
            series.record_ns(SECOND * second, 2_000);
        }
        assert_eq!(
            (series.windows().len(), series.window()),
            (SERIES_WINDOWS_MAX, SECOND)
        );

        series.record_ns(SECOND * limit, 2_000);
        assert_eq!(series.windows().len(), SERIES_WINDOWS_MAX / 2 + 1);
        assert_eq!(series.window(), SECOND * 2);
        assert!(
            series.windows()[..SERIES_WINDOWS_MAX / 2]
                .iter()
                .all(|w| w.count() == 2)
        );
        assert_eq!(series.total().count(), u64::from(limit) + 1);
    }

    #[test]
    fn has_its_room_from_the_first_count_on() {
        let mut series = series();
        assert_eq!(series.windows.capacity(), 0);
        series.record_ns(Duration::ZERO, 2_000);
        let room = (series.windows.as_ptr(), series.windows.capacity());
        for second in 0..2000 {
            series.record_ns(SECOND * second, 2_000);
        }
        assert_eq!((series.windows.as_ptr(), series.windows.capacity()), room);
    }

    #[test]
    fn a_far_future_stays_within_the_limit() {
        let mut series = series();
        series.record_ns(Duration::ZERO, 2_000);
        series.record_ns(Duration::from_hours(100_000), 2_000);
        assert!(series.windows().len() <= SERIES_WINDOWS_MAX);
        assert_eq!(series.total().count(), 2);
    }

    #[test]
    fn adds_series_of_different_coarseness() {
        let mut fine = series();
        let mut coarse = fine.clone();
        fine.record_ns(SECOND, 2_000);
        coarse.record_ns(Duration::ZERO, 3_000);
        coarse.record_ns(SECOND * 700, 3_000);

        let mut sum = fine.clone();
        sum.merge(&coarse);
        assert_eq!(sum.window(), SECOND * 2);
        assert_eq!(sum.total().count(), 3);
        coarse.merge(&fine);
        assert_eq!(coarse.total(), sum.total());
        assert_eq!(coarse.windows(), sum.windows());
    }

    #[test]
    fn survives_serialisation_and_a_forged_one_is_refused() {
        let mut one = series();
        one.record_ns(SECOND * 2, 9_000);
        let text = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<Series>(&text).unwrap(), one);
        let parse = |text: &str| serde_json::from_str::<Series>(text);
        for window_ns in ["0", "18446744073709551615"] {
            assert!(parse(&format!(r#"{{"window_ns":{window_ns},"windows":[]}}"#)).is_err());
        }
        let empty = serde_json::to_string(&Histogram::new()).unwrap();
        let windows = |count| vec![&*empty; count].join(",");
        let of = |count| {
            format!(
                r#"{{"window_ns":1000000000,"windows":[{}]}}"#,
                windows(count)
            )
        };
        assert!(parse(&of(SERIES_WINDOWS_MAX)).is_ok());
        assert!(parse(&of(SERIES_WINDOWS_MAX + 1)).is_err());
    }
}
