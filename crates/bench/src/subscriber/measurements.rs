//! What the subscribers of a role measure together.

use weir_client::client::Client;
use weir_moqt::draft::Draft;

use super::{SubscriberConfig, SubscriberProgress};
use crate::metrics::{Heat, TrackReceiver};
use weir_histogram::Series;

/// What all subscribers of a role write to, and the configuration that they read.
#[derive(Debug)]
pub(super) struct Measurements {
    pub(super) config: SubscriberConfig,
    /// One for each subscription, those of a subscriber side by side.
    pub(super) receivers: Vec<TrackReceiver>,
    /// Latency over time, one for each plan.
    pub(super) latency: Vec<Series>,
    /// What arrived by subscriber and planned time, one for each plan.
    pub(super) heat: Vec<Heat>,
    pub(super) progress: SubscriberProgress,
    /// The draft that sessions agreed on, and what the relay calls itself.
    pub(super) relay: Option<(Draft, Option<String>)>,
}

impl Measurements {
    /// Counts an open session, and takes note of whom it is with.
    pub(super) fn note_relay(&mut self, client: &Client) {
        self.progress.ready += 1;
        if self.relay.is_none()
            && let Some(draft) = client.draft()
        {
            self.relay = Some((draft, client.implementation().map(str::to_owned)));
        }
    }
}
