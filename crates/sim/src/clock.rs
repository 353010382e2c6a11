//! Virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// The time of day at which every simulation starts: 15 January 2027, 08:00 UTC.
const START_OF_DAY: Duration = Duration::from_hours(500_000);

/// The clock of one simulation, which moves only when it is set.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    now: Instant,
    time_of_day: Arc<TimeOfDay>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "nothing else makes an `Instant`; only differences to this one count"
        )]
        let start = Instant::now();
        Self {
            start,
            now: start,
            time_of_day: Arc::default(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Returns the instant `elapsed` after the start.
    pub(crate) fn at(&self, elapsed: Duration) -> Instant {
        self.start + elapsed
    }

    pub(crate) fn advance(&mut self, now: Instant) {
        assert!(now >= self.now, "virtual time never runs backwards");
        self.now = now;
        let elapsed = u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.time_of_day
            .elapsed_ns
            .store(elapsed, Ordering::Relaxed);
    }

    /// Returns the time of day for TLS and address tokens. It moves with the clock.
    pub(crate) fn time_of_day(&self) -> Arc<TimeOfDay> {
        Arc::clone(&self.time_of_day)
    }
}

/// The time of day in a simulation.
#[derive(Debug, Default)]
pub(crate) struct TimeOfDay {
    elapsed_ns: AtomicU64,
}

impl TimeOfDay {
    fn since_unix_epoch(&self) -> Duration {
        START_OF_DAY + Duration::from_nanos(self.elapsed_ns.load(Ordering::Relaxed))
    }
}

impl weir_quic::TimeSource for TimeOfDay {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.since_unix_epoch()
    }
}

impl TimeProvider for TimeOfDay {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.since_unix_epoch()))
    }
}
