//! What the audience does beside listening: `[audience]`, the one section of a profile that is no track.

use std::time::Duration;

use weir_report::relay::Conduct;

/// How subscribers join, read, and come and go. The default is a peaceful audience whose rate of joining the
/// command line decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audience {
    /// Clients started per second, zero for all at once; `None` leaves it to the command line.
    pub joins_per_second: Option<u32>,
    /// Share of the subscribers that read slowly, in per cent: 0 to 99.
    pub slow_subscribers: u8,
    /// How long slow subscribers leave their streams unread each time.
    pub slow_read_pause: Duration,
    /// Share of the subscribers that leave and come back, in per cent: 0 to 99.
    pub churning_subscribers: u8,
    /// Sessions that these end and begin anew, per second, all of them together.
    pub churn_per_second: u32,
}

impl Audience {
    /// How subscriber `number` of `all` behaves. Those of one kind are spread evenly; where both kinds would
    /// meet, it reads slowly.
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

    /// Whether somebody in it reads slowly, or comes and goes.
    pub fn is_unruly(&self) -> bool {
        self.slow_subscribers > 0 || self.churning_subscribers > 0
    }

    /// From one end of a session to the next, if there are any.
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
