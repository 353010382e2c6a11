//! Load shedding: when a relay refuses new sessions and requests because its host can hardly keep up.

use std::time::{Duration, Instant};

/// A host's observation of its own load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// How long input waits before it is processed: the lag of the event loop.
    pub queue_delay: Duration,
    /// Memory of the process, in bytes.
    pub memory_bytes: u64,
    /// The part of it that the allocator has given out, in bytes. What is freed leaves it at once.
    pub heap_bytes: u64,
}

/// The load from which new sessions and requests are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadLimits {
    /// Longest delay, if it lasts for [`STANDING`]. Below half of it, new sessions and requests are accepted again.
    pub queue_delay_max: Duration,
    /// Most memory, in bytes. Above it, new sessions and requests are refused, until it is below nine tenths. From nine
    /// tenths on, the relay frees the oldest objects in the cache. Above it, or if nine tenths of it are given out, also the
    /// sessions that hold the most. While less than half of it is given out, nothing is refused or freed: what the
    /// allocator keeps serves what comes next.
    pub memory_bytes_max: u64,
}

impl Default for LoadLimits {
    fn default() -> Self {
        Self {
            queue_delay_max: Duration::from_millis(250),
            memory_bytes_max: 4 << 30,
        }
    }
}

/// Why a relay refuses new sessions and requests: the limit of [`LoadLimits`] that its host exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overload {
    /// [`LoadLimits::memory_bytes_max`].
    Memory,
    /// [`LoadLimits::queue_delay_max`].
    Delay,
}

/// How long the delay has to exceed its limit before anything is refused. A single pause of the host, or a burst of new
/// sessions, causes a shorter delay; neither is overload.
pub const STANDING: Duration = Duration::from_secs(1);

/// What a relay is to free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excess {
    /// Bytes, from the cache first.
    pub bytes: u64,
    /// Whether sessions may be closed for what the cache does not have.
    pub closes_sessions: bool,
}

/// How long it takes until the memory of the process shows what was freed: allocators return memory late.
const READING: Duration = Duration::from_secs(2);

/// Decides from a host's observations whether to shed load.
#[derive(Clone, Debug)]
pub struct Shedder {
    limits: LoadLimits,
    /// Since when every observed delay has exceeded the limit.
    late_since: Option<Instant>,
    overload: Option<Overload>,
    /// When memory was last freed because of the memory of the process.
    freed_at: Option<Instant>,
    /// The bytes given out from which on the next observation cannot wait.
    urgent_above: u64,
}

/// The part of the limit by which what is given out may grow, past nine tenths, until it is observed again.
const URGENT_PART: u64 = 32;

impl Shedder {
    /// Creates a shedder that sheds nothing.
    pub fn new(limits: LoadLimits) -> Self {
        Self {
            urgent_above: limits.memory_bytes_max / 10 * 9,
            limits,
            late_since: None,
            overload: None,
            freed_at: None,
        }
    }

    /// Returns whether so much memory was given out since the last observation that the next one cannot wait. A few
    /// sessions can make the relay hold a hundred megabytes within the interval of observations.
    #[inline]
    pub fn is_urgent(&self, heap_bytes: u64) -> bool {
        heap_bytes > self.urgent_above
    }

    /// Observes a load; returns whether to shed.
    pub fn observe(&mut self, now: Instant, load: Load) -> bool {
        let LoadLimits {
            queue_delay_max,
            memory_bytes_max,
        } = self.limits;
        let growth = memory_bytes_max / URGENT_PART;
        self.urgent_above = (memory_bytes_max / 10 * 9).max(load.heap_bytes.saturating_add(growth));
        let is_late = load.queue_delay > queue_delay_max;
        self.late_since = is_late.then(|| self.late_since.unwrap_or(now));
        let (is_slow, is_beyond) = if self.is_shedding() {
            let is_slow = load.queue_delay > queue_delay_max / 2;
            (is_slow, load.memory_bytes > memory_bytes_max / 10 * 9)
        } else {
            let late_for = self
                .late_since
                .map(|since| now.saturating_duration_since(since));
            let is_slow = late_for.is_some_and(|late_for| late_for >= STANDING);
            (is_slow, load.memory_bytes > memory_bytes_max)
        };
        self.overload = if is_beyond && load.heap_bytes > memory_bytes_max / 2 {
            Some(Overload::Memory)
        } else {
            is_slow.then_some(Overload::Delay)
        };
        self.is_shedding()
    }

    /// Returns what to free: if more than nine tenths of the memory are given out, what exceeds eight tenths. If the process
    /// needs more than nine tenths, because what is given out lies scattered: the same, once in two seconds, and so that
    /// half of the memory may stay given out.
    pub fn excess(&mut self, now: Instant, load: Load) -> Excess {
        let max = self.limits.memory_bytes_max;
        let (low, high) = (max / 10 * 8, max / 10 * 9);
        if load.heap_bytes > high {
            return Excess {
                bytes: load.heap_bytes - low,
                closes_sessions: true,
            };
        }
        let has_passed = |since| now.saturating_duration_since(since) >= READING;
        if load.memory_bytes <= high
            || load.heap_bytes <= max / 2
            || !self.freed_at.is_none_or(has_passed)
        {
            return Excess::default();
        }
        self.freed_at = Some(now);
        Excess {
            bytes: (load.memory_bytes - low).min(load.heap_bytes - max / 2),
            closes_sessions: load.memory_bytes > max,
        }
    }

    /// Returns whether new sessions and requests are refused.
    pub fn is_shedding(&self) -> bool {
        self.overload.is_some()
    }

    /// Returns why new sessions and requests are refused, if they are.
    pub fn overload(&self) -> Option<Overload> {
        self.overload
    }

    /// Returns the limits.
    pub fn limits(&self) -> &LoadLimits {
        &self.limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::epoch;

    const CALM: Load = Load {
        queue_delay: Duration::ZERO,
        memory_bytes: 0,
        heap_bytes: 0,
    };

    fn at(millis: u64) -> Instant {
        epoch() + Duration::from_millis(millis)
    }

    fn shedder() -> Shedder {
        Shedder::new(LoadLimits {
            queue_delay_max: Duration::from_millis(100),
            memory_bytes_max: 1000,
        })
    }

    #[test]
    fn delay_is_shed_past_its_limit_and_until_half_of_it() {
        let mut shedder = shedder();
        let mut observe = |millis, at_ms| {
            let queue_delay = Duration::from_millis(millis);
            let load = Load {
                queue_delay,
                ..CALM
            };
            shedder.observe(at(at_ms), load)
        };
        assert!(!observe(100, 0));
        assert!(!observe(100, 2000));
        assert!(!observe(101, 2250));
        assert!(!observe(101, 3249));
        assert!(observe(101, 3250));
        assert!(observe(51, 3500));
        assert!(!observe(50, 3750));
        assert!(!observe(100, 5000));
    }

    #[test]
    fn a_delay_that_does_not_stand_is_no_overload() {
        let mut shedder = shedder();
        let late = Load {
            queue_delay: Duration::from_secs(5),
            ..CALM
        };
        // The host is repeatedly paused for five seconds, with one calm observation in between.
        for second in (0..60).step_by(6) {
            assert!(!shedder.observe(at(second * 1000), late));
            assert!(!shedder.observe(at(second * 1000 + 750), late));
            assert!(!shedder.observe(at(second * 1000 + 1000), CALM));
        }
        // The host is late all the time.
        assert!(!shedder.observe(at(60_000), late));
        assert!(shedder.observe(at(61_000), late));
        assert_eq!(shedder.overload(), Some(Overload::Delay));
    }

    #[test]
    fn memory_is_freed_past_nine_tenths_and_down_to_eight() {
        let mut shedder = shedder();
        let mut excess = |heap_bytes| shedder.excess(at(0), Load { heap_bytes, ..CALM });
        for (heap_bytes, bytes) in [(0, 0), (899, 0), (900, 0), (901, 101), (2000, 1200)] {
            let expected = Excess {
                bytes,
                closes_sessions: bytes > 0,
            };
            assert_eq!(excess(heap_bytes), expected);
        }
    }

    #[test]
    fn memory_of_the_process_is_freed_past_nine_tenths_and_not_twice_for_one_reading() {
        let mut shedder = shedder();
        let mut excess = |millis, memory_bytes, heap_bytes| {
            let load = Load {
                memory_bytes,
                heap_bytes,
                ..CALM
            };
            let excess = shedder.excess(at(millis), load);
            (excess.bytes, excess.closes_sessions)
        };
        assert_eq!(excess(0, 900, 800), (0, false));
        assert_eq!(excess(0, 901, 800), (101, false), "the cache only");
        assert_eq!(excess(1999, 2000, 800), (0, false));
        assert_eq!(excess(2000, 1001, 800), (201, true));
        assert_eq!(
            excess(4000, 1001, 600),
            (100, true),
            "half may be given out"
        );
        assert_eq!(excess(6000, 2000, 500), (0, false));
    }

    #[test]
    fn memory_is_observed_again_when_it_has_grown_past_nine_tenths() {
        let mut shedder = shedder();
        assert!(!shedder.is_urgent(900));
        assert!(shedder.is_urgent(901));
        let mut observe = |heap_bytes| {
            shedder.observe(at(0), Load { heap_bytes, ..CALM });
            shedder.clone()
        };
        let shedder = observe(500);
        assert!(!shedder.is_urgent(900) && shedder.is_urgent(901));
        let shedder = observe(2000);
        assert!(!shedder.is_urgent(2031) && shedder.is_urgent(2032));
        assert!(observe(500).is_urgent(901));
    }

    #[test]
    fn memory_is_shed_past_its_limit_and_until_nine_tenths_of_it() {
        let mut shedder = shedder();
        let mut observe = |memory_bytes, heap_bytes| {
            let load = Load {
                memory_bytes,
                heap_bytes,
                ..CALM
            };
            shedder.observe(at(0), load)
        };
        assert!(!observe(1000, 501));
        assert!(observe(1001, 501));
        assert!(observe(901, 501));
        assert!(!observe(900, 501));
        assert!(observe(1001, 501));
        assert!(!observe(1001, 500), "the allocator has as much again");
        assert!(observe(1001, 501));
        assert_eq!(shedder.overload(), Some(Overload::Memory));
    }
}
