//! Churn: subscribers that end their session and begin another.

use std::time::{Duration, Instant};

use super::SubscriberConfig;
use super::client::SubscriberClient;
use super::subscribers::Subscribers;
use super::subscription::Subscription;
use crate::metrics::TrackReceiver;
use weir_report::relay::Conduct;

impl Subscribers {
    /// Returns when the next client leaves and rejoins.
    pub(super) fn next_leave(&self) -> Option<Instant> {
        self.next_leave
    }

    /// Returns the client that leaves at `now`, if one does. Clients take turns; those that are still rejoining or
    /// whose tracks have ended are skipped.
    pub(super) fn next_to_leave(&mut self, now: Instant) -> Option<usize> {
        let period = self.churn_period?;
        let at = self.next_leave.filter(|at| *at <= now)?;
        // After a delay, clients still leave one at a time.
        self.next_leave = Some((at + period).max(now));
        let all = self.clients.len();
        let mut order = (0..all).map(|step| (self.leave_turn + step) % all);
        let number =
            order.find(|number| self.clients[*number].may_leave(&self.measured.receivers))?;
        self.leave_turn = number + 1;
        self.clients[number].leave();
        Some(number)
    }

    /// Starts the churn once all clients have joined.
    pub(super) fn note_joined(&mut self, now: Instant) {
        let have_joined = self.measured.progress.started == self.clients.len() as u64;
        if have_joined && self.next_leave.is_none() {
            self.next_leave = self.churn_period.map(|period| now + period);
        }
    }
}

/// Returns the time between two ends of sessions in a part of the run, so that its churning clients end their share of
/// those that all parts end; `None` if none of them churns.
pub(super) fn period_of(
    config: &SubscriberConfig,
    clients: &[SubscriberClient],
) -> Option<Duration> {
    let period = config.audience.churn_period()?;
    let all = config.part.all();
    let is_churning = |conduct: Conduct| conduct == Conduct::Churning;
    let of_all = (0..all).filter(|one| is_churning(config.audience.conduct_of(*one, all)));
    let of_part = clients.iter().filter(|client| is_churning(client.conduct));
    let (of_all, of_part) = (of_all.count() as u64, of_part.count() as u64);
    let ns = crate::clock::nanoseconds(period).saturating_mul(of_all);
    ns.checked_div(of_part).map(Duration::from_nanos)
}

impl SubscriberClient {
    fn may_leave(&self, receivers: &[TrackReceiver]) -> bool {
        let receivers = &receivers[self.first..][..self.subscriptions.len()];
        self.conduct == Conduct::Churning
            && !self.is_closed()
            && self.subscriptions.iter().all(Subscription::is_served)
            && receivers.iter().all(TrackReceiver::is_open)
    }

    /// Ends the session, and keeps what was measured.
    pub(super) fn leave(&mut self) {
        self.requests.clear();
        self.streams.clear();
        self.joins.clear();
        self.discovery = None;
        for subscription in &mut self.subscriptions {
            subscription.leave();
        }
    }
}
