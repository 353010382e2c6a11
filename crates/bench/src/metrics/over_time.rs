//! The draft's Table 2 over time: what the subscribers of a plan measured in each second, in fixed memory.
//! [evens-00 §5.5.1]

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{milliseconds, nanoseconds};
use crate::limits::PROGRESS_WINDOWS_MAX;
use weir_report::relay::ProgressSecond;

/// Arrivals in consecutive windows, over all subscriptions of a plan. A window is a second. After
/// [`PROGRESS_WINDOWS_MAX`] windows, pairs are merged and windows become twice as long. Times are counted from the origin
/// of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Windows")]
pub struct OverTime {
    window_ns: u64,
    windows: Vec<Window>,
}

/// The serialized form, whose figures may be forged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Windows {
    window_ns: u64,
    windows: Vec<Window>,
}

impl TryFrom<Windows> for OverTime {
    type Error = &'static str;

    fn try_from(read: Windows) -> Result<Self, Self::Error> {
        if read.windows.len() > PROGRESS_WINDOWS_MAX {
            return Err("figures over time have too many windows");
        }
        if !(SECOND_NS..=WINDOW_NS_MAX).contains(&read.window_ns) {
            return Err("figures over time have windows that are too short or too long");
        }
        Ok(Self {
            window_ns: read.window_ns,
            windows: read.windows,
        })
    }
}

/// An arrival, compared with the one before it and with the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time since the arrival before it at the same subscription (decision 22); `None` for the first one.
    pub delta_ns: Option<u64>,
    /// Receive variance (decision 20).
    pub receive_variance_ns: i64,
    /// Publisher variance (decision 19).
    pub publisher_variance_ns: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Window {
    objects: u64,
    bytes: u64,
    /// Subscriptions that received an object. A merged window has the larger number of the two.
    subscriptions: u64,
    delta: Extent,
    receive_variance: Extent,
    publisher_variance: Extent,
}

/// Sum, largest value and count of absolute durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Extent {
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl OverTime {
    /// Returns windows of a second.
    pub fn new() -> Self {
        Self {
            window_ns: SECOND_NS,
            windows: Vec::new(),
        }
    }

    /// Records an object of `bytes` bytes that arrives at the time `at` of the run.
    #[inline]
    pub fn record(&mut self, at: Duration, bytes: u64, timing: &Timing) {
        let at_ns = nanoseconds(at);
        while at_ns / self.window_ns >= PROGRESS_WINDOWS_MAX as u64 {
            self.coarsen();
        }
        let number = at_ns / self.window_ns;
        let begin_ns = number * self.window_ns;
        let index = usize::try_from(number).expect("below PROGRESS_WINDOWS_MAX");
        if index >= self.windows.len() {
            if self.windows.capacity() == 0 {
                self.windows.reserve_exact(PROGRESS_WINDOWS_MAX);
            }
            self.windows.resize(index + 1, Window::default());
        }
        let window = &mut self.windows[index];
        window.objects += 1;
        window.bytes += bytes;
        let is_first = |delta_ns| at_ns.saturating_sub(delta_ns) < begin_ns;
        window.subscriptions += u64::from(timing.delta_ns.is_none_or(is_first));
        if let Some(delta_ns) = timing.delta_ns {
            window.delta.record(delta_ns);
        }
        let variance_ns = timing.receive_variance_ns.unsigned_abs();
        window.receive_variance.record(variance_ns);
        let variance_ns = timing.publisher_variance_ns.unsigned_abs();
        window.publisher_variance.record(variance_ns);
    }

    /// Adds what other subscriptions of the same plan received.
    pub(crate) fn merge(&mut self, other: &Self) {
        let mut other = other.clone();
        while self.window_ns < other.window_ns {
            self.coarsen();
        }
        while other.window_ns < self.window_ns {
            other.coarsen();
        }
        if self.windows.len() < other.windows.len() {
            self.windows.resize(other.windows.len(), Window::default());
        }
        for (own, other) in self.windows.iter_mut().zip(&other.windows) {
            let subscriptions = own.subscriptions.saturating_add(other.subscriptions);
            *own = Window {
                subscriptions,
                ..own.merged(other)
            };
        }
    }

    /// Returns the windows in which something arrived, ascending.
    pub fn seconds(&self) -> Vec<ProgressSecond> {
        let window_ns = self.window_ns;
        let windows = (0_u64..).zip(&self.windows);
        let windows = windows.filter(|(_, window)| window.objects > 0);
        windows
            .map(|(number, window)| ProgressSecond {
                second: Duration::from_nanos(number * window_ns).as_secs(),
                objects: window.objects,
                subscriptions: window.subscriptions,
                receive_delta_mean_ms: window.delta.mean_ms(),
                receive_delta_max_ms: window.delta.max_ms(),
                receive_variance_mean_ms: window.receive_variance.mean_ms().unwrap_or(0.0),
                receive_variance_max_ms: window.receive_variance.max_ms().unwrap_or(0.0),
                publisher_variance_mean_ms: window.publisher_variance.mean_ms().unwrap_or(0.0),
                publisher_variance_max_ms: window.publisher_variance.max_ms().unwrap_or(0.0),
                bits_per_second: window.bits_per_second(window_ns),
            })
            .collect()
    }

    fn coarsen(&mut self) {
        self.window_ns = self.window_ns.saturating_mul(2);
        let halved = self.windows.len().div_ceil(2);
        for index in 0..halved {
            let right = self.windows.get(2 * index + 1).copied();
            self.windows[index] = self.windows[2 * index].merged(&right.unwrap_or_default());
        }
        self.windows.truncate(halved);
    }
}

impl Window {
    fn merged(&self, other: &Self) -> Self {
        Self {
            objects: self.objects.saturating_add(other.objects),
            bytes: self.bytes.saturating_add(other.bytes),
            subscriptions: self.subscriptions.max(other.subscriptions),
            delta: self.delta.merged(other.delta),
            receive_variance: self.receive_variance.merged(other.receive_variance),
            publisher_variance: self.publisher_variance.merged(other.publisher_variance),
        }
    }

    /// Returns the mean bit rate of the subscriptions that received an object.
    #[expect(clippy::cast_precision_loss, reason = "a printed figure")]
    fn bits_per_second(&self, window_ns: u64) -> f64 {
        self.bytes as f64 * 8e9 / (window_ns as f64 * self.subscriptions.max(1) as f64)
    }
}

impl Extent {
    #[inline]
    fn record(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    fn merged(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            sum_ns: self.sum_ns.saturating_add(other.sum_ns),
            max_ns: self.max_ns.max(other.max_ns),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a printed figure")]
    fn mean_ms(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64 / 1e6)
    }

    fn max_ms(self) -> Option<f64> {
        let max_ns = i64::try_from(self.max_ns).unwrap_or(i64::MAX);
        (self.count > 0).then(|| milliseconds(max_ns))
    }
}

impl Default for OverTime {
    fn default() -> Self {
        Self::new()
    }
}

const SECOND_NS: u64 = 1_000_000_000;
/// The longest window: about a year, so that the sum of all windows fits 64 bits.
const WINDOW_NS_MAX: u64 = 1 << 55;

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(delta_ms: Option<u64>, receive_ms: i64, publisher_ms: i64) -> Timing {
        Timing {
            delta_ns: delta_ms.map(|ms| ms * 1_000_000),
            receive_variance_ns: receive_ms * 1_000_000,
            publisher_variance_ns: publisher_ms * 1_000_000,
        }
    }

    #[test]
    fn every_second_has_its_figures() {
        let mut over_time = OverTime::new();
        // Two subscriptions; the second one receives nothing in the third second.
        for (ms, timing) in [
            (100, timing(None, 0, 0)),
            (150, timing(None, 0, -1)),
            (900, timing(Some(800), -10, 3)),
            (2_500, timing(Some(1_600), 30, 0)),
        ] {
            over_time.record(Duration::from_millis(ms), 1_000, &timing);
        }
        let seconds = over_time.seconds();
        let numbers: Vec<_> = seconds.iter().map(|one| one.second).collect();
        assert_eq!(numbers, [0, 2], "seconds without an arrival are left out");
        let first = seconds[0];
        assert_eq!((first.objects, first.subscriptions), (3, 2));
        assert_eq!(first.receive_delta_mean_ms, Some(800.0));
        assert!((first.receive_variance_mean_ms - 10.0 / 3.0).abs() < 1e-9);
        assert!((first.publisher_variance_max_ms - 3.0).abs() < 1e-9);
        assert!((first.bits_per_second - 12_000.0).abs() < 1e-9);
        let third = seconds[1];
        assert_eq!((third.objects, third.subscriptions), (1, 1));
        assert_eq!(third.receive_delta_max_ms, Some(1_600.0));
        assert!((third.receive_variance_max_ms - 30.0).abs() < 1e-9);
        assert!((third.bits_per_second - 8_000.0).abs() < 1e-9);
    }

    #[test]
    fn long_runs_have_longer_windows() {
        let mut over_time = OverTime::new();
        let most = PROGRESS_WINDOWS_MAX as u64;
        for second in 0..=most {
            let delta = (second > 0).then_some(1_000);
            over_time.record(Duration::from_secs(second), 125, &timing(delta, 0, 0));
        }
        let seconds = over_time.seconds();
        assert_eq!(seconds.len() as u64, most / 2 + 1);
        assert_eq!((seconds[1].second, seconds[1].objects), (2, 2));
        assert!((seconds[1].bits_per_second - 1_000.0).abs() < 1e-9);
        let all: u64 = seconds.iter().map(|one| one.objects).sum();
        assert_eq!(all, most + 1);
    }
}
