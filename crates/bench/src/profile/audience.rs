//! The section `[audience]`: what subscribers do beside receiving, and how their packets travel.

use std::time::Duration;

use weir_quic::tls::Acknowledgements;
use weir_report::relay::Conduct;

use super::key::Key;
use super::{ProfileError, ini};

/// How subscribers join, read and churn, and how they share sockets, threads and acknowledgements. By default they read
/// at once and stay, on one socket and one thread, and the command line sets the rate at which they join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audience {
    /// Clients that start per second, or zero for all at once. With `None` the command line decides.
    pub joins_per_second: Option<u32>,
    /// Per cent of the subscribers that read slowly, 0 to 99.
    pub slow_subscribers: u8,
    /// How long slow subscribers leave their streams unread at a time.
    pub slow_read_pause: Duration,
    /// Per cent of the subscribers that leave and rejoin, 0 to 99.
    pub churning_subscribers: u8,
    /// Sessions per second that churning subscribers end and replace, all of them together.
    pub churn_per_second: u32,
    /// Whether each subscriber has a UDP socket of its own (`sockets = own`).
    pub has_own_sockets: bool,
    /// Threads that the subscribers are spread over, 1 to 1024; at most one for each subscriber. `None`: one on each core that
    /// the subscribers have.
    pub threads: Option<u16>,
    /// When subscribers acknowledge packets.
    pub acknowledgements: Acknowledgements,
    /// How long a thread waits from one read of its sockets to the next while packets arrive, so that packets that come
    /// close together are read together. Zero: each packet wakes it.
    pub receive_pause: Duration,
    /// Largest delay of outgoing packets. Each subscriber has a delay of its own, from zero to this, for all its packets.
    pub reply_spread: Duration,
}

impl Default for Audience {
    fn default() -> Self {
        Self {
            joins_per_second: None,
            slow_subscribers: 0,
            slow_read_pause: Duration::ZERO,
            churning_subscribers: 0,
            churn_per_second: 0,
            has_own_sockets: false,
            threads: None,
            acknowledgements: Acknowledgements::Delayed,
            receive_pause: RECEIVE_PAUSE,
            reply_spread: Duration::ZERO,
        }
    }
}

/// A combination of settings that is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contradiction {
    /// The key that needs another value.
    pub(super) key: Key,
    /// Why, and what to do.
    pub(super) reason: &'static str,
}

impl Audience {
    /// Returns the audience with the settings of `pairs` in place of its own: `KEY=VALUE` with commas between, in the
    /// form of the section `[audience]`.
    ///
    /// # Errors
    /// A key or value is wrong, or the settings contradict each other. The error shows `name` in place of a file.
    pub fn with(&self, name: &str, pairs: &str) -> Result<Self, ProfileError> {
        ini::audience_with(self, pairs).map_err(|error| error.in_file(name))
    }

    /// Returns a contradiction between settings; `None` if there is none.
    pub(super) fn contradiction(&self) -> Option<Contradiction> {
        let is_spread = !self.reply_spread.is_zero();
        let contradictions = [(
            is_spread && !self.has_own_sockets,
            Key::ReplySpread,
            "it needs sockets = own: subscribers that share a socket share its delay",
        )];
        let found = contradictions.into_iter().find(|(is_so, ..)| *is_so)?;
        let (_, key, reason) = found;
        Some(Contradiction { key, reason })
    }

    /// Returns how much later the packets of subscriber `number` leave. Delays are spread evenly over
    /// [`Self::reply_spread`], for any number of subscribers.
    pub fn reply_delay_of(&self, number: usize) -> Duration {
        // Multiples of the golden ratio leave no gaps and no heaps.
        let place = (number as u64).wrapping_mul(GOLDEN_RATIO) >> 32;
        let spread_ns = crate::clock::nanoseconds(self.reply_spread);
        let delay_ns = (u128::from(spread_ns) * u128::from(place)) >> 32;
        Duration::from_nanos(u64::try_from(delay_ns).unwrap_or(spread_ns))
    }

    /// Returns the threads that `subscribers` subscribers with `cores` cores are spread over: at least one, at most one for
    /// each subscriber.
    pub fn threads_of(&self, subscribers: usize, cores: usize) -> usize {
        let threads = self.threads.map_or(cores, usize::from);
        threads.min(subscribers).max(1)
    }

    /// Returns how subscriber `number` of `all` behaves. Each kind is spread evenly. A subscriber selected for both
    /// kinds reads slowly.
    pub fn conduct_of(&self, number: usize, all: usize) -> Conduct {
        let is_among = |number: usize, share: u8| {
            let upto = |number: usize| number.saturating_mul(share.into()) / 100;
            upto(number.saturating_add(1)) > upto(number)
        };
        let from_behind = all.saturating_sub(1).saturating_sub(number);
        if is_among(number, self.slow_subscribers) {
            Conduct::SlowReader
        } else if is_among(from_behind, self.churning_subscribers) {
            Conduct::Churning
        } else {
            Conduct::Steady
        }
    }

    /// Whether some subscriber reads slowly or churns.
    pub fn is_unruly(&self) -> bool {
        self.slow_subscribers > 0 || self.churning_subscribers > 0
    }

    /// Returns the time between two ends of sessions; `None` without churn.
    pub fn churn_period(&self) -> Option<Duration> {
        if self.churning_subscribers == 0 {
            return None;
        }
        Duration::from_secs(1).checked_div(self.churn_per_second)
    }
}

/// The pause between two reads by default. On one machine, the relay's CPU time includes some microseconds for each wake-up
/// of a subscriber's thread, so a shorter pause adds to the relay's cost. Measured latency is at most this much too high.
const RECEIVE_PAUSE: Duration = Duration::from_micros(500);
/// 2^64 divided by the golden ratio.
const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_spread_evenly_from_none_to_all() {
        let audience = Audience {
            reply_spread: Duration::from_millis(20),
            ..Audience::default()
        };
        for count in [10, 50, 1000] {
            let mut delays: Vec<_> = (0..count).map(|one| audience.reply_delay_of(one)).collect();
            delays.sort_unstable();
            assert_eq!(delays[0], Duration::ZERO);
            assert!(delays[count - 1] < audience.reply_spread);
            let mean = audience.reply_spread / u32::try_from(count).unwrap();
            let gaps = delays
                .windows(2)
                .map(|pair| pair[1].saturating_sub(pair[0]));
            assert!(gaps.max().unwrap() < 3 * mean, "{count}");
        }
        assert_eq!(Audience::default().reply_delay_of(7), Duration::ZERO);
    }

    #[test]
    fn threads_at_most_one_for_each_subscriber() {
        let audience = Audience {
            threads: Some(8),
            ..Audience::default()
        };
        let threads = [0, 1, 7, 8, 9].map(|subscribers| audience.threads_of(subscribers, 2));
        assert_eq!(threads, [1, 1, 7, 8, 8]);
        let threads = [0, 1, 2, 3].map(|cores| Audience::default().threads_of(2, cores));
        assert_eq!(threads, [1, 1, 2, 2]);
    }

    #[test]
    fn shares_are_kept_and_spread() {
        let audience = Audience {
            slow_subscribers: 10,
            churning_subscribers: 20,
            churn_per_second: 4,
            ..Audience::default()
        };
        let conducts: Vec<Conduct> = (0..200)
            .map(|number| audience.conduct_of(number, 200))
            .collect();
        let count = |conduct| conducts.iter().filter(|one| **one == conduct).count();
        assert_eq!(count(Conduct::SlowReader), 20);
        assert_eq!(count(Conduct::Churning), 40);
        let first_half = conducts[..100]
            .iter()
            .filter(|one| **one == Conduct::SlowReader);
        assert_eq!(first_half.count(), 10);
        assert_eq!(audience.churn_period(), Some(Duration::from_millis(250)));
        assert!(audience.is_unruly());
        let peaceful = Audience::default();
        assert!((0..9).all(|number| peaceful.conduct_of(number, 9) == Conduct::Steady));
        assert_eq!(peaceful.churn_period(), None);
    }
}
