//! Churn: subscribers that end their session and begin another.

use std::time::Instant;

use super::client::SubscriberClient;
use super::subscribers::Subscribers;
use super::subscription::Subscription;
use crate::metrics::TrackReceiver;
use weir_report::relay::Conduct;

impl Subscribers {
    /// When the next client leaves, and comes back.
    pub(super) fn next_leave(&self) -> Option<Instant> {
        self.next_leave
    }

    /// The client that leaves now, if one does. The turn goes round, and passes over those who have not come back
    /// yet and those whose tracks are over.
    pub(super) fn next_to_leave(&mut self, now: Instant) -> Option<usize> {
        let period = self.measured.config.audience.churn_period()?;
        let at = self.next_leave.filter(|at| *at <= now)?;
        // A role that was late does not send a crowd away at once.
        self.next_leave = Some((at + period).max(now));
        let all = self.clients.len();
        let mut order = (0..all).map(|step| (self.leave_turn + step) % all);
        let number =
            order.find(|number| self.clients[*number].may_leave(&self.measured.receivers))?;
        self.leave_turn = number + 1;
        self.clients[number].leave();
        Some(number)
    }

    /// Lets clients begin to leave once all have joined.
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

    /// The session ends; what was received stays.
    fn leave(&mut self) {
        self.requests.clear();
        self.streams.clear();
        self.discovery = None;
        for subscription in &mut self.subscriptions {
            subscription.leave();
        }
    }
}
