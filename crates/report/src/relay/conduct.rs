//! How subscribers behave, and what those that misbehave on purpose received.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SubscriberReport;

/// The behaviour of a subscriber, which the profile sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Conduct {
    /// The subscriber stays, and reads its streams at once.
    #[default]
    Steady,
    /// The subscriber reads its streams only from time to time.
    SlowReader,
    /// The subscriber leaves and reconnects with a new session.
    Churning,
}

impl Conduct {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::SlowReader => "slow_reader",
            Self::Churning => "churning",
        }
    }
}

/// Slow and churning subscribers. They lose objects on purpose, so other figures leave them out: these show whether the
/// other subscribers were affected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetApart {
    /// Subscriptions of subscribers that read their streams only from time to time.
    pub slow_readers: u64,
    /// Subscriptions of subscribers that left and reconnected.
    pub churning: u64,
    /// Sessions of these subscriptions, one after the other.
    pub sessions: u64,
    /// Objects received by these subscriptions.
    pub objects_received: u64,
    /// Objects lost by these subscriptions.
    pub lost_objects: u64,
    /// Objects of `lost_objects` that were lost because a stream was reset.
    pub cut_by_reset: u64,
}

impl SetApart {
    pub(super) fn over(subscribers: &[SubscriberReport]) -> Self {
        let mut apart = Self::default();
        for one in subscribers {
            match one.conduct {
                Conduct::Steady => continue,
                Conduct::SlowReader => apart.slow_readers += 1,
                Conduct::Churning => apart.churning += 1,
            }
            apart.sessions += one.sessions;
            apart.objects_received += one.completion.objects_received;
            apart.lost_objects += one.completion.lost_objects;
            apart.cut_by_reset += one.delivery.cut_by_reset;
        }
        apart
    }

    /// Returns true if there is a slow or churning subscriber.
    pub fn has_subscribers(&self) -> bool {
        self.slow_readers + self.churning > 0
    }
}
