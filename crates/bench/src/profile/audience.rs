//! The section `[audience]`: what subscribers do beside receiving.

use std::time::Duration;

use weir_report::relay::Conduct;

/// How subscribers join, read and churn. By default they read at once and stay, and the command line sets the rate at
/// which they join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
}

impl Audience {
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

#[cfg(test)]
mod tests {
    use super::*;

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
