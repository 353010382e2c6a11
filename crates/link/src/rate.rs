//! The rate at which packets leave the queue: a bit rate, or a recorded trace of opportunities.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The bytes one opportunity of a [`Trace`] carries: Mahimahi's packet size.
pub const OPPORTUNITY_BYTES: u64 = 1504;
/// The most opportunities one [`Trace`] may hold.
pub const OPPORTUNITIES_MAX: usize = 1 << 24;

/// Bits per second. At zero no packet moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bitrate(u64);

impl Bitrate {
    /// Zero bits per second.
    pub const ZERO: Self = Self(0);

    /// Returns a rate in bits per second.
    pub const fn from_bits_per_second(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns a rate in kilobits (1000 bits) per second.
    pub const fn from_kilobits_per_second(kilobits: u32) -> Self {
        Self(kilobits as u64 * 1_000)
    }

    /// Returns a rate in megabits (1,000,000 bits) per second.
    pub const fn from_megabits_per_second(megabits: u32) -> Self {
        Self(megabits as u64 * 1_000_000)
    }

    /// Returns the bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Bitrate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bit/s", self.0)
    }
}

/// The rate at which packets leave the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// Packets pass at once and never queue.
    #[default]
    Unlimited,
    /// A constant bit rate, exact to the nanosecond over any number of packets.
    Fixed(Bitrate),
    /// A recorded trace, which starts when it is set and repeats for ever.
    Trace(Trace),
}

/// A trace of delivery opportunities in Mahimahi's form.
///
/// Each opportunity sends up to [`OPPORTUNITY_BYTES`] of waiting packets: several small ones, or a part of a large one.
/// Unused bytes are lost. See `mm-link(1)` of Mahimahi.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The times of opportunities: ascending, not empty, the last one above zero. The last one is also the period.
    opportunities_ms: Arc<[u32]>,
}

impl Trace {
    /// Returns a trace with opportunities at these times, in milliseconds from its start. The last one is also its
    /// period.
    pub fn new(opportunities_ms: Vec<u32>) -> Result<Self, TraceError> {
        let count = opportunities_ms.len();
        if count > OPPORTUNITIES_MAX {
            return Err(TraceError::TooLong { count });
        }
        if let Some(before) = opportunities_ms
            .windows(2)
            .position(|pair| pair[0] > pair[1])
        {
            return Err(TraceError::Backwards {
                opportunity: before + 1,
            });
        }
        match opportunities_ms.last() {
            None | Some(0) => Err(TraceError::Empty),
            Some(_) => Ok(Self {
                opportunities_ms: opportunities_ms.into(),
            }),
        }
    }

    /// Parses a Mahimahi trace: each line is the time of an opportunity in milliseconds.
    ///
    /// Blank lines and lines that begin with `#` are ignored.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut opportunities_ms = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = line
                .parse()
                .map_err(|_| TraceError::NotANumber { line: index + 1 })?;
            opportunities_ms.push(at);
        }
        Self::new(opportunities_ms)
    }

    /// Returns the time after which the trace repeats.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms())
    }

    /// Returns the mean rate over one period.
    pub fn mean_rate(&self) -> Bitrate {
        let bits = self.opportunities_ms.len() as u64 * OPPORTUNITY_BYTES * 8;
        Bitrate(bits * 1000 / self.period_ms())
    }

    /// Returns the time of an opportunity since the start of the trace. Opportunities are numbered over all
    /// repetitions.
    pub(crate) fn time(&self, opportunity: u64) -> Duration {
        let count = self.opportunities_ms.len() as u64;
        let (round, index) = (opportunity / count, opportunity % count);
        let index = usize::try_from(index).expect("less than the length of a vector");
        let offset_ms = u64::from(self.opportunities_ms[index]);
        Duration::from_millis(round * self.period_ms() + offset_ms)
    }

    /// Returns the number of the first opportunity later than `elapsed` since the start of the trace.
    pub(crate) fn first_after(&self, elapsed: Duration) -> u64 {
        let count = self.opportunities_ms.len() as u64;
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX / 2);
        let (round, offset_ms) = (elapsed_ms / self.period_ms(), elapsed_ms % self.period_ms());
        let passed = self
            .opportunities_ms
            .partition_point(|at| u64::from(*at) <= offset_ms);
        round * count + passed as u64
    }

    fn period_ms(&self) -> u64 {
        self.opportunities_ms
            .last()
            .map_or(1, |last| u64::from(*last))
    }
}

/// Why a trace is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// No opportunity after time zero, so the trace has no period.
    #[error("expected at least one line with a time above 0 ms")]
    Empty,
    /// A line that is not a 32-bit number of milliseconds.
    #[error("line {line}: expected a whole number of milliseconds")]
    NotANumber {
        /// The line, from 1.
        line: usize,
    },
    /// An opportunity earlier than the one before it.
    #[error("line {}: the time is earlier than that of the line before", opportunity + 1)]
    Backwards {
        /// The opportunity, from 0.
        opportunity: usize,
    },
    /// More opportunities than [`OPPORTUNITIES_MAX`].
    #[error("expected at most {OPPORTUNITIES_MAX} lines, not {count}")]
    TooLong {
        /// The number of opportunities.
        count: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_and_repeats() {
        let trace = Trace::parse("# a comment\n0\n\n5\n5\n 10 \n").expect("a good trace");
        assert_eq!(trace.period(), Duration::from_millis(10));
        assert_eq!(trace.mean_rate().bits_per_second(), 4 * 1504 * 8 * 100);
        let times: Vec<u128> = (0..9).map(|index| trace.time(index).as_millis()).collect();
        assert_eq!(times, [0, 5, 5, 10, 10, 15, 15, 20, 20]);
    }

    #[test]
    fn the_first_opportunity_after_a_time_is_found() {
        let trace = Trace::new(vec![0, 5, 5, 10]).expect("a good trace");
        let after = |micros| trace.first_after(Duration::from_micros(micros));
        assert_eq!(after(0), 1);
        assert_eq!(after(4_999), 1);
        assert_eq!(after(5_000), 3);
        assert_eq!(after(9_999), 3);
        assert_eq!(
            after(10_000),
            5,
            "the last of one round and the first of the next coincide"
        );
        assert_eq!(after(15_500), 7);
    }

    #[test]
    fn each_kind_of_bad_trace_is_named() {
        assert_eq!(Trace::parse(""), Err(TraceError::Empty));
        assert_eq!(Trace::parse("0\n0\n"), Err(TraceError::Empty));
        assert_eq!(
            Trace::parse("1\n-2\n"),
            Err(TraceError::NotANumber { line: 2 })
        );
        assert_eq!(
            Trace::parse("4294967296"),
            Err(TraceError::NotANumber { line: 1 })
        );
        assert_eq!(
            Trace::parse("1\n3\n2\n"),
            Err(TraceError::Backwards { opportunity: 2 })
        );
    }

    #[test]
    fn the_number_of_opportunities_is_limited() {
        assert!(Trace::new(vec![1; OPPORTUNITIES_MAX]).is_ok());
        let count = OPPORTUNITIES_MAX + 1;
        assert_eq!(
            Trace::new(vec![1; count]),
            Err(TraceError::TooLong { count })
        );
    }
}
