//! Churn: subscribers that end their session and begin another.

use std::time::Instant;

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
        let period = self.measured.config.audience.churn_period()?;
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
            let period = self.measured.config.audience.churn_period();
            self.next_leave = period.map(|period| now + period);
        }
    }
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
    fn leave(&mut self) {
        self.requests.clear();
        self.streams.clear();
        self.joins.clear();
        self.discovery = None;
        for subscription in &mut self.subscriptions {
            subscription.leave();
        }
    }
}
