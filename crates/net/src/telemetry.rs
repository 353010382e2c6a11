//! Numbers that a host publishes to other threads.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Counters of one host thread, which writes them. Any thread may read them. All only grow.
#[derive(Debug, Default)]
pub struct Telemetry {
    pub(crate) packets_received: AtomicU64,
    pub(crate) packets_sent: AtomicU64,
    pub(crate) bytes_received: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    pub(crate) receive_calls: AtomicU64,
    pub(crate) send_calls: AtomicU64,
    pub(crate) send_errors: AtomicU64,
    pub(crate) receive_dropped: AtomicU64,
    pub(crate) messages_sent: AtomicU64,
    pub(crate) messages_received: AtomicU64,
    pub(crate) threads_woken: AtomicU64,
    pub(crate) channels_full: AtomicU64,
    pub(crate) turns: AtomicU64,
    pub(crate) turn_nanos: AtomicU64,
    pub(crate) cpu_nanos: AtomicU64,
    lag: Histogram,
    forwarding: Histogram,
}

/// Counts of delays by power of two of microseconds.
#[derive(Debug)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    max_micros: AtomicU64,
    sum_nanos: AtomicU64,
}

/// A snapshot of [`Telemetry`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TelemetrySnapshot {
    /// UDP payloads received.
    pub packets_received: u64,
    /// UDP payloads sent.
    pub packets_sent: u64,
    /// Bytes of UDP payload received.
    pub bytes_received: u64,
    /// Bytes of UDP payload sent.
    pub bytes_sent: u64,
    /// Calls of `recvmmsg`.
    pub receive_calls: u64,
    /// Calls of `sendmmsg`.
    pub send_calls: u64,
    /// Packets that the system refused to send.
    pub send_errors: u64,
    /// Packets that the kernel dropped because the receive buffer was full.
    pub receive_dropped: u64,
    /// Messages sent to peer threads.
    pub messages_sent: u64,
    /// Messages received from peer threads.
    pub messages_received: u64,
    /// Sleeping peer threads that were woken for messages.
    pub threads_woken: u64,
    /// Turns after which the channel to a peer thread was too full for all messages.
    pub channels_full: u64,
    /// Turns of the event loop.
    pub turns: u64,
    /// Time between the beginnings and ends of turns. The rest of the time, the event loop waited, or was not woken yet.
    pub busy: Duration,
    /// CPU time of the thread.
    pub cpu: Duration,
    /// How long turns and late timers delayed other work.
    pub lag: Delays,
    /// The time from reading received packets to handing the resulting packets to the system. For each packet read in a
    /// turn that sent something, this is the time to the end of the turn.
    pub forwarding: Delays,
}

/// A distribution of delays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Counts by power of two of microseconds: bucket `n` holds delays below `2^n` µs.
    pub buckets: Vec<u64>,
    /// The largest delay.
    pub max: Duration,
    /// The sum of all delays.
    pub sum: Duration,
}

impl Telemetry {
    /// Returns the current numbers.
    pub fn snapshot(&self) -> TelemetrySnapshot {
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        TelemetrySnapshot {
            packets_received: read(&self.packets_received),
            packets_sent: read(&self.packets_sent),
            bytes_received: read(&self.bytes_received),
            bytes_sent: read(&self.bytes_sent),
            receive_calls: read(&self.receive_calls),
            send_calls: read(&self.send_calls),
            send_errors: read(&self.send_errors),
            receive_dropped: read(&self.receive_dropped),
            messages_sent: read(&self.messages_sent),
            messages_received: read(&self.messages_received),
            threads_woken: read(&self.threads_woken),
            channels_full: read(&self.channels_full),
            turns: read(&self.turns),
            busy: Duration::from_nanos(read(&self.turn_nanos)),
            cpu: Duration::from_nanos(read(&self.cpu_nanos)),
            lag: self.lag.summary(),
            forwarding: self.forwarding.summary(),
        }
    }

    /// Returns the number of UDP payloads received.
    pub fn packets_received(&self) -> u64 {
        self.packets_received.load(Ordering::Relaxed)
    }

    /// Adds to a number that only the calling thread writes. Uses a plain load and store without a bus lock.
    pub(crate) fn add(value: &AtomicU64, amount: u64) {
        let sum = value.load(Ordering::Relaxed).wrapping_add(amount);
        value.store(sum, Ordering::Relaxed);
    }

    /// Records how late something was handled.
    pub(crate) fn record_lag(&self, lag: Duration) {
        self.lag.record(lag, 1);
    }

    /// Records the time from reading `packets` to sending the resulting packets.
    pub(crate) fn record_forwarding(&self, delay: Duration, packets: u64) {
        self.forwarding.record(delay, packets);
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            max_micros: AtomicU64::new(0),
            sum_nanos: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    fn record(&self, delay: Duration, count: u64) {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let micros = nanos / 1000;
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        Telemetry::add(&self.buckets[bucket.min(BUCKETS - 1)], count);
        Telemetry::add(&self.sum_nanos, nanos.saturating_mul(count));
        if micros > self.max_micros.load(Ordering::Relaxed) {
            self.max_micros.store(micros, Ordering::Relaxed);
        }
    }

    fn summary(&self) -> Delays {
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        Delays {
            buckets: self.buckets.iter().map(read).collect(),
            max: Duration::from_micros(read(&self.max_micros)),
            sum: Duration::from_nanos(read(&self.sum_nanos)),
        }
    }
}

impl Delays {
    /// Returns an upper bound of the delay below which a share of `quantile` (0 to 1) stayed.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let total: u64 = self.buckets.iter().sum();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank within a count; one off does not matter"
        )]
        let rank = (total as f64 * quantile.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        for (exponent, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank && seen > 0 {
                return Duration::from_micros(1 << exponent).min(self.max);
            }
        }
        self.max
    }

    /// Returns what was added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |index: usize| earlier.buckets.get(index).copied().unwrap_or(0);
        let buckets: Vec<u64> = self
            .buckets
            .iter()
            .enumerate()
            .map(|(index, count)| count.saturating_sub(before(index)))
            .collect();
        // The largest delay of the difference is unknown; its bucket bounds it.
        let last = buckets.iter().rposition(|&count| count > 0);
        let bound = last.map_or(Duration::ZERO, |exponent| {
            Duration::from_micros(1 << exponent)
        });
        Self {
            buckets,
            max: self.max.min(bound),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }
}

/// Powers of two of microseconds, up to over an hour.
const BUCKETS: usize = 33;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_quantiles_bound_from_above() {
        let telemetry = Telemetry::default();
        for micros in 1..=1000 {
            telemetry.record_lag(Duration::from_micros(micros));
        }
        let lag = telemetry.snapshot().lag;
        assert_eq!(lag.max, Duration::from_millis(1));
        assert_eq!(lag.sum, Duration::from_micros(500_500));
        assert_eq!(lag.quantile(0.5), Duration::from_micros(512));
        assert_eq!(lag.quantile(1.0), Duration::from_millis(1));
        assert_eq!(Delays::default().quantile(0.99), Duration::ZERO);

        telemetry.record_forwarding(Duration::from_millis(3), 5);
        let forwarding = telemetry.snapshot().forwarding;
        assert_eq!(forwarding.buckets.iter().sum::<u64>(), 5);
        assert_eq!(forwarding.sum, Duration::from_millis(15));
    }
}
