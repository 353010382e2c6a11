//! The catalogue: announced namespaces, subscriptions to the namespaces and tracks under a prefix, and track status.

mod namespaces;
mod offers;
mod prefix_subscriptions;
mod track_status;
pub(crate) mod walks;

use std::collections::BTreeMap;

use weir_quic::Handle;

use self::{
    namespaces::Announcements, prefix_subscriptions::PrefixSubscriptions,
    track_status::TrackStatusRequest, walks::Walks,
};
pub(crate) use self::{prefix_subscriptions::PrefixSubscription, track_status::TrackStatusEvent};
use crate::{delivery::Delivery, ids::RequestKey, registry::RelayId, track::Tracks};

/// The open requests of clients and links about namespaces, prefixes and track status.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    announcements: Announcements,
    subscriptions: PrefixSubscriptions,
    walks: Walks,
    /// Links to ask for namespaces that no session announced, in order of preference.
    fallbacks: Vec<Handle>,
    /// The established links to relays of the fleet.
    fleet_links: BTreeMap<RelayId, Handle>,
    /// TRACK_STATUS requests that wait for a publisher's answer.
    track_statuses: BTreeMap<RequestKey, TrackStatusRequest>,
}

/// The catalogue, with the tracks to offer and their subscriptions.
pub(crate) struct Offering<'a> {
    pub(crate) catalogue: &'a mut Catalogue,
    pub(crate) delivery: &'a mut Delivery,
    pub(crate) tracks: &'a mut Tracks,
}

impl Catalogue {
    /// Returns the number of open PUBLISH_NAMESPACE requests of clients.
    pub(crate) fn client_namespaces(&self) -> usize {
        self.announcements.client_count()
    }

    /// Returns the number of open SUBSCRIBE_NAMESPACE and SUBSCRIBE_TRACKS requests.
    pub(crate) fn prefixes_len(&self) -> usize {
        self.subscriptions.len()
    }
}
