//! Metadata tracks: the init segment and the catalog, of one object each.
//!
//! The origin keeps these objects. A relay that has dropped them fetches them for late subscribers.

use bytes::{Bytes, BytesMut};
use weir_client::send_queue::SendQueue;
use weir_moqt::data::{FetchEncoder, FetchEntry, FetchHeader, FetchObject};
use weir_moqt::draft::Draft;
use weir_moqt::location::Location;
use weir_moqt::message::{Fetch, FetchKind, FetchOk};
use weir_moqt::name::FullTrackName;
use weir_moqt::parameter::{GroupOrder, Parameters};
use weir_moqt::priority::{SUBSCRIBER_PRIORITY_DEFAULT, rank};
use weir_moqt::property::Properties;
use weir_transport::Transport;

/// A metadata track and its one object.
#[derive(Debug)]
pub(super) struct MetadataTrack {
    pub(super) name: &'static str,
    /// The object's location in the track.
    pub(super) at: Location,
    pub(super) payload: Bytes,
}

/// The response to a FETCH.
#[derive(Debug)]
pub(super) struct FetchResponse(SendQueue);

impl MetadataTrack {
    /// Whether a FETCH requests the object of this track.
    pub(super) fn is_requested_by(&self, fetch: &Fetch) -> bool {
        match &fetch.kind {
            FetchKind::Standalone { track, start, end } => {
                is_named(track, self.name) && *start <= self.at && *end >= self.at
            }
            FetchKind::Recent { track, .. } => is_named(track, self.name),
            // Joining fetches refer to a subscription, and an origin has none.
            FetchKind::RelativeJoining { .. } | FetchKind::AbsoluteJoining { .. } => false,
        }
    }

    /// Returns the `FETCH_OK` for a FETCH of the object, and the stream that follows.
    pub(super) fn response(&self, draft: Draft, fetch: &Fetch) -> (FetchOk, FetchResponse) {
        let ok = FetchOk {
            end_of_track: false,
            end: self.at,
            parameters: Parameters::default(),
            properties: Properties::EMPTY,
        };
        let mut bytes = BytesMut::new();
        let request_id = fetch.request_id;
        FetchHeader { request_id }.encode(draft, &mut bytes);
        let object = FetchObject {
            group: self.at.group,
            subgroup: Some(0),
            object: self.at.object,
            priority: METADATA_PRIORITY,
            properties: Properties::EMPTY,
            payload_len: self.payload.len() as u64,
        };
        FetchEncoder::new(draft, GroupOrder::Ascending)
            .encode(&FetchEntry::Object(object), &mut bytes);
        bytes.extend_from_slice(&self.payload);
        let order = GroupOrder::Ascending;
        let rank = rank(SUBSCRIBER_PRIORITY_DEFAULT, METADATA_PRIORITY, order, 0, 0);
        let mut queue = SendQueue::new(rank);
        queue.push(bytes.freeze(), ());
        queue.finish();
        (ok, FetchResponse(queue))
    }
}

impl FetchResponse {
    /// Writes what the connection accepts. Returns true if something remains to be written.
    pub(super) fn flush(&mut self, connection: &mut dyn Transport) -> bool {
        self.0.flush(connection, |()| {}).is_ok() && !self.0.is_over()
    }
}

/// Compares names only: a publisher receives requests for its own namespace only.
pub(super) fn is_named(track: &FullTrackName, name: &str) -> bool {
    track.name.as_bytes() == name.as_bytes()
}

/// Before all other objects [msf-01 §5].
pub(super) const METADATA_PRIORITY: u8 = 8;
/// Responses in progress at the same time; a further FETCH is refused.
pub(super) const FETCH_RESPONSES_MAX: usize = 16;
