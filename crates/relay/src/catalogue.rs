//! The catalogue: announced namespaces, subscriptions to what lies under a prefix, and track status.

pub(crate) mod namespaces;
pub(crate) mod offers;
pub(crate) mod prefix_subscriptions;
pub(crate) mod track_status;

use std::collections::BTreeMap;

use weir_moqt::session::RequestId;
use weir_quic::Handle;

use crate::catalogue::{
    namespaces::Announcements, prefix_subscriptions::PrefixSubscriptions,
    track_status::StatusRequest,
};

/// A request, by the session that it belongs to and its ID there.
pub(crate) type RequestKey = (Handle, RequestId);

/// What clients and links announced, and what they want to know about namespaces and tracks.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    announcements: Announcements,
    subscriptions: PrefixSubscriptions,
    /// TRACK_STATUS requests that a publisher was asked for, by the request of the session that waits for the answer.
    statuses: BTreeMap<RequestKey, StatusRequest>,
}

impl Catalogue {
    /// Returns the number of open PUBLISH_NAMESPACE requests.
    pub(crate) fn announcements_len(&self) -> usize {
        self.announcements.len()
    }

    /// Returns the number of open SUBSCRIBE_NAMESPACE and SUBSCRIBE_TRACKS requests.
    pub(crate) fn prefixes_len(&self) -> usize {
        self.subscriptions.len()
    }
}
