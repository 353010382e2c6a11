//! Objects that an origin holds for those who come late: its init segment and its catalog. A relay that no longer
//! has them fetches them from here.

use bytes::{Bytes, BytesMut};
use weir_moqt::data::{FetchEncoder, FetchEntry, FetchHeader, FetchObject};
use weir_moqt::draft::Draft;
use weir_moqt::location::Location;
use weir_moqt::message::{Fetch, FetchKind, FetchOk};
use weir_moqt::name::{FullTrackName, TrackName};
use weir_moqt::parameter::{GroupOrder, Parameters};
use weir_moqt::priority::{SUBSCRIBER_PRIORITY_DEFAULT, rank};
use weir_moqt::property::Properties;
use weir_transport::{Direction, StreamId, Transport, WriteError};

/// The one object of a track.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) name: TrackName,
    /// Where it is in the track.
    pub(super) at: Location,
    pub(super) payload: Bytes,
}

/// An answer to a FETCH on its way.
#[derive(Debug)]
pub(super) struct Answer {
    stream: Option<StreamId>,
    waiting: Bytes,
}

impl Held {
    /// Whether this is what a FETCH asks for.
    pub(super) fn is_asked_for(&self, fetch: &Fetch) -> bool {
        match &fetch.kind {
            FetchKind::Standalone { track, start, end } => {
                is_named(track, &self.name) && *start <= self.at && *end >= self.at
            }
            // They refer to a subscription, of which an origin has none.
            FetchKind::RelativeJoining { .. } | FetchKind::AbsoluteJoining { .. } => false,
        }
    }

    /// The answer to a FETCH for it, and the stream behind that.
    pub(super) fn answer(&self, draft: Draft, fetch: &Fetch) -> (FetchOk, Answer) {
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
            priority: HELD_PRIORITY,
            properties: Properties::EMPTY,
            payload_len: self.payload.len() as u64,
        };
        FetchEncoder::new(draft, GroupOrder::Ascending)
            .encode(&FetchEntry::Object(object), &mut bytes);
        bytes.extend_from_slice(&self.payload);
        let waiting = bytes.freeze();
        (
            ok,
            Answer {
                stream: None,
                waiting,
            },
        )
    }
}

impl Answer {
    /// Writes what the connection takes; returns whether there will be something to do later.
    pub(super) fn flush(&mut self, connection: &mut dyn Transport) -> bool {
        if self.stream.is_none() {
            self.stream = connection.open(Direction::Uni);
            if let Some(stream) = self.stream {
                let order = GroupOrder::Ascending;
                let rank = rank(SUBSCRIBER_PRIORITY_DEFAULT, HELD_PRIORITY, order, 0, 0);
                connection.set_priority(stream, rank);
            }
        }
        let Some(stream) = self.stream else {
            return true;
        };
        match connection.write(stream, &mut self.waiting) {
            Ok(()) => {
                connection.finish(stream);
                false
            }
            Err(WriteError::Blocked) => true,
            Err(WriteError::Stopped(_) | WriteError::Closed) => false,
        }
    }
}

/// A publisher is asked for its own tracks only, so their names tell them apart.
fn is_named(track: &FullTrackName, name: &TrackName) -> bool {
    track.name == *name
}

/// Before everything else [msf-01 §5].
pub(super) const HELD_PRIORITY: u8 = 8;
/// Answers that may wait at once; further ones are refused.
pub(super) const ANSWERS_MAX: usize = 16;
