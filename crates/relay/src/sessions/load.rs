//! When a relay takes on nothing new, because its host can hardly keep up.

use std::time::{Duration, Instant};

use crate::turn::Turn;

/// What a host observes of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// How long what arrives waits before it is dealt with: the lag of the event loop.
    pub queue_delay: Duration,
    /// Memory that the process uses, in bytes.
    pub memory_bytes: u64,
}

/// From which load on nothing new is taken on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadLimits {
    /// Longest delay, where it stands for [`STANDING`]; at half of it new sessions and requests are welcome again.
    pub queue_delay_max: Duration,
    /// Most memory, in bytes; at nine tenths of it new sessions and requests are welcome again.
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

/// For how long a delay has to be too long before anything is refused for it. A host that was not let run for once is late
/// for once, and a storm of newcomers makes it late until they are in: neither is overload, and neither is a reason to refuse those who come after.
pub const STANDING: Duration = Duration::from_secs(1);

/// Decides from what a host observes whether it is too much.
#[derive(Clone, Debug)]
pub struct Shedder {
    limits: LoadLimits,
    /// Since when every delay that was observed has been too long.
    late_since: Option<Instant>,
    is_shedding: bool,
}

impl Shedder {
    /// One that sheds nothing yet.
    pub fn new(limits: LoadLimits) -> Self {
        Self {
            limits,
            late_since: None,
            is_shedding: false,
        }
    }

    /// Takes note of a load; returns whether to shed from now on.
    pub fn observe(&mut self, now: Instant, load: Load) -> bool {
        let LoadLimits {
            queue_delay_max,
            memory_bytes_max,
        } = self.limits;
        let is_late = load.queue_delay > queue_delay_max;
        self.late_since = is_late.then(|| self.late_since.unwrap_or(now));
        self.is_shedding = if self.is_shedding {
            load.queue_delay > queue_delay_max / 2 || load.memory_bytes > memory_bytes_max / 10 * 9
        } else {
            let late_for = self
                .late_since
                .map(|since| now.saturating_duration_since(since));
            late_for.is_some_and(|late_for| late_for >= STANDING)
                || load.memory_bytes > memory_bytes_max
        };
        self.is_shedding
    }

    /// Whether new sessions and requests are to be refused.
    pub fn is_shedding(&self) -> bool {
        self.is_shedding
    }
}

impl Turn<'_> {
    /// Takes note of how the relay's host keeps up.
    pub(crate) fn observe_load(&mut self, load: Load) {
        let shedder = &mut self.sessions.shedder;
        let before = shedder.is_shedding();
        let is_shedding = shedder.observe(self.now, load);
        if is_shedding != before {
            tracing::info!(?load, is_shedding, "load");
            self.counters.load_sheddings += u64::from(is_shedding);
            let is_refusing = is_shedding || self.sessions.is_draining();
            self.endpoint.refuse_newcomers(is_refusing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::epoch;

    const CALM: Load = Load {
        queue_delay: Duration::ZERO,
        memory_bytes: 0,
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
        // Not let run for five seconds, again and again, with one calm look in between.
        for second in (0..60).step_by(6) {
            assert!(!shedder.observe(at(second * 1000), late));
            assert!(!shedder.observe(at(second * 1000 + 750), late));
            assert!(!shedder.observe(at(second * 1000 + 1000), CALM));
        }
        // Late all the time.
        assert!(!shedder.observe(at(60_000), late));
        assert!(shedder.observe(at(61_000), late));
    }

    #[test]
    fn memory_is_shed_past_its_limit_and_until_nine_tenths_of_it() {
        let mut shedder = shedder();
        let mut observe = |memory_bytes| {
            let load = Load {
                memory_bytes,
                ..CALM
            };
            shedder.observe(at(0), load)
        };
        assert!(!observe(1000));
        assert!(observe(1001));
        assert!(observe(901));
        assert!(!observe(900));
        assert!(!shedder.is_shedding());
    }
}
