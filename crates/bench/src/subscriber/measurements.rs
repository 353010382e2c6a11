//! Measurements that the subscribers of a role share.

use weir_client::client::Client;
use weir_moqt::draft::Draft;
use weir_quic::ConnectionStats;
use weir_report::relay::Acknowledged;

use super::{SubscriberConfig, SubscriberProgress};
use crate::metrics::{Heat, OverTime, TrackReceiver};
use weir_histogram::Series;

/// The measurements that all subscribers of a role write to, and the configuration that they read.
#[derive(Debug)]
pub(super) struct Measurements {
    pub(super) config: SubscriberConfig,
    /// One per subscription. Those of one subscriber are adjacent.
    pub(super) receivers: Vec<TrackReceiver>,
    /// Latency over time, one per plan.
    pub(super) latency: Vec<Series>,
    /// Deltas, variances and bit rates over time, one per plan.
    pub(super) over_time: Vec<OverTime>,
    /// Arrivals by subscriber and planned time, one per plan.
    pub(super) heat: Vec<Heat>,
    /// How packets were acknowledged, over all connections that were closed.
    pub(super) acknowledged: Option<Acknowledged>,
    pub(super) progress: SubscriberProgress,
    /// The draft and the relay's name of the first session.
    pub(super) relay: Option<(Draft, Option<String>)>,
}

impl Measurements {
    /// Counts the packets and acknowledgements of a connection that is about to be closed.
    pub(super) fn note_acknowledged(&mut self, stats: &ConnectionStats) {
        let total = self.acknowledged.get_or_insert_default();
        total.connections += 1;
        total.connections_asked += u64::from(stats.ack_frequencies_received > 0);
        total.packets_received += stats.payloads_received;
        total.acknowledgements_sent += stats.acks_sent;
    }

    /// Counts an established session, and records the relay's draft and name.
    pub(super) fn note_relay(&mut self, client: &Client) {
        self.progress.ready += 1;
        if self.relay.is_none()
            && let Some(draft) = client.draft()
        {
            self.relay = Some((draft, client.implementation().map(str::to_owned)));
        }
    }
}
