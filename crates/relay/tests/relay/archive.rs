//! The past of tracks, as scripted clients have it and fetch it.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use weir_moqt::{
    data::{FetchEncoder, FetchEntry, FetchHeader, FetchObject},
    draft::Draft,
    error::RequestErrorCode,
    location::Location,
    message::{Fetch, FetchKind, FetchOk, RequestError, RequestOk},
    parameter::{GroupOrder, Parameters},
    property::Properties,
    session::{RequestId, StreamEnd},
};
use weir_sim::NodeId;
use weir_transport::StreamId;

use crate::stage::{Asked, Stage};

/// What a client makes of a FETCH of the relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Serving {
    /// Never answers.
    #[default]
    Ignore,
    Decline(RequestErrorCode),
    /// Sends what it has of the range.
    Serve,
    /// The same, and says that the track ends with its last object.
    ServeWhole,
    /// Grants it, sends this many bytes of the answer, and no more.
    Stall(usize),
    /// Grants it, and sends the objects against their order.
    Reverse,
    /// Grants it up to right before its start, and sends nothing.
    GrantNothing,
}

/// The past that a client has of all its tracks.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    pub(crate) objects: BTreeMap<Location, Vec<u8>>,
    pub(crate) properties: Properties,
    pub(crate) serving: Serving,
    /// What it says when it is asked how a track stands; nothing if it does not answer.
    pub(crate) standing: Option<Result<Location, RequestErrorCode>>,
    /// The tracks that it was asked about.
    pub(crate) track_statuses: Vec<RequestId>,
    /// Requests to fetch that came from the relay.
    pub(crate) asked: Vec<(RequestId, Fetch)>,
}

/// What came of a fetch.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    pub(crate) ok: Option<FetchOk>,
    pub(crate) stream: Option<StreamId>,
    pub(crate) entries: Vec<(FetchEntry, Vec<u8>)>,
    pub(crate) end: Option<StreamEnd>,
}

/// What a client says to a FETCH.
pub(crate) struct Reply {
    pub(crate) answer: Result<FetchOk, RequestError>,
    /// The bytes of the data stream, and whether they are all.
    pub(crate) data: Option<(Bytes, bool)>,
}

impl Archive {
    /// A range of whole groups from `first` to `last`, with so many objects in each.
    pub(crate) fn fill(&mut self, first: u64, last: u64, objects: u64, bytes: usize) {
        for group in first..=last {
            for object in 0..objects {
                let payload = crate::stage::payload(group, object, bytes);
                self.objects.insert(Location::new(group, object), payload);
            }
        }
    }

    /// How a track stands.
    pub(crate) fn answer(&self) -> Option<Result<RequestOk, RequestError>> {
        Some(match self.standing? {
            Ok(largest) => Ok(RequestOk {
                parameters: Parameters {
                    largest_object: Some(largest),
                    ..Parameters::default()
                },
                properties: self.properties.clone(),
            }),
            Err(code) => Err(request_error(code)),
        })
    }

    pub(crate) fn reply(&self, id: RequestId, fetch: &Fetch) -> Option<Reply> {
        let FetchKind::Standalone { start, end, .. } = fetch.kind else {
            panic!("the relay joins nothing");
        };
        let order = fetch.parameters.group_order.unwrap_or_default();
        match self.serving {
            Serving::Ignore => None,
            Serving::Decline(code) => Some(Reply::refusal(code)),
            Serving::Serve | Serving::ServeWhole | Serving::Stall(_) | Serving::Reverse => {
                Some(self.serve(id, start, end, order))
            }
            Serving::GrantNothing => Some(Reply::of_nothing(id, start)),
        }
    }

    /// What it has of a range, as far as its way of serving lets it through.
    fn serve(&self, id: RequestId, start: Location, end: Location, order: GroupOrder) -> Reply {
        let largest = self.objects.keys().next_back().copied();
        let Some(largest) = largest.filter(|&largest| start <= largest) else {
            return Reply::refusal(RequestErrorCode::INVALID_RANGE);
        };
        let answer = Ok(FetchOk {
            end_of_track: self.serving == Serving::ServeWhole && end >= largest,
            end: end.min(largest),
            parameters: Parameters::default(),
            properties: self.properties.clone(),
        });
        let mut data = self.stream(id, start, end, order).freeze();
        let is_all = if let Serving::Stall(bytes) = self.serving {
            data.truncate(bytes);
            false
        } else {
            true
        };
        Reply {
            answer,
            data: Some((data, is_all)),
        }
    }

    /// The data stream with the objects of a range.
    fn stream(&self, id: RequestId, start: Location, end: Location, order: GroupOrder) -> BytesMut {
        let mut found: Vec<_> = self.objects.range(start..=end).collect();
        if order == GroupOrder::Descending {
            found.sort_by_key(|(location, _)| (std::cmp::Reverse(location.group), location.object));
        }
        let is_reversed = self.serving == Serving::Reverse;
        let order = if is_reversed {
            found.reverse();
            GroupOrder::Descending
        } else {
            order
        };
        let mut data = stream_header(id);
        let mut encoder = FetchEncoder::new(Draft::Draft18, order);
        for (location, payload) in found {
            if is_reversed && location.object > 0 {
                continue;
            }
            let object = FetchObject {
                group: location.group,
                subgroup: Some(0),
                object: location.object,
                priority: 128,
                properties: Properties::EMPTY,
                payload_len: payload.len() as u64,
            };
            encoder.encode(&FetchEntry::Object(object), &mut data);
            data.extend_from_slice(payload);
        }
        data
    }
}

impl Reply {
    fn refusal(code: RequestErrorCode) -> Self {
        Self {
            answer: Err(request_error(code)),
            data: None,
        }
    }

    /// Grants a range that ends right before its start, with an empty data stream.
    fn of_nothing(id: RequestId, start: Location) -> Self {
        let answer = Ok(FetchOk {
            end_of_track: false,
            end: Location::new(start.group, start.object - 1),
            parameters: Parameters::default(),
            properties: Properties::EMPTY,
        });
        Self {
            answer,
            data: Some((stream_header(id).freeze(), true)),
        }
    }
}

fn request_error(code: RequestErrorCode) -> RequestError {
    RequestError {
        code,
        retry_after: None,
        reason: String::new(),
        redirect: None,
    }
}

/// The data stream of a fetch, as far as its header.
fn stream_header(id: RequestId) -> BytesMut {
    let mut data = BytesMut::new();
    FetchHeader { request_id: id.0 }.encode(Draft::Draft18, &mut data);
    data
}

impl Fetched {
    /// The places and payloads of the objects that came in full, in their order.
    pub(crate) fn objects(&self) -> Vec<(Location, &[u8])> {
        let entries = self.entries.iter();
        let objects = entries.filter_map(|(entry, payload)| match entry {
            FetchEntry::Object(object) if object.payload_len == payload.len() as u64 => {
                let location = Location::new(object.group, object.object);
                Some((location, payload.as_slice()))
            }
            FetchEntry::Object(_) | FetchEntry::EndOfRange { .. } => None,
        });
        objects.collect()
    }

    /// Groups and objects that came in full, in their order; each payload tells where it belongs.
    pub(crate) fn places(&self, bytes: usize) -> Vec<(u64, u64)> {
        let objects = self.objects().into_iter();
        let places = objects.map(|(Location { group, object }, payload)| {
            let expected = crate::stage::payload(group, object, bytes);
            assert_eq!(payload, expected, "{group}:{object} arrives unaltered");
            (group, object)
        });
        places.collect()
    }

    /// The last locations of ranges that are unknown, and of those that do not exist.
    pub(crate) fn ranges(&self) -> Vec<(bool, Location)> {
        let entries = self.entries.iter();
        let ranges = entries.filter_map(|(entry, _)| match entry {
            &FetchEntry::EndOfRange { unknown, location } => Some((unknown, location)),
            FetchEntry::Object(_) => None,
        });
        ranges.collect()
    }
}

impl Stage {
    /// A client fetches a range of a track.
    pub(crate) fn fetch(
        &mut self,
        node: NodeId,
        track: &str,
        start: (u64, u64),
        end: (u64, u64),
    ) -> Asked {
        self.fetch_with(node, standalone(track, start, end), Parameters::default())
    }

    pub(crate) fn fetch_with(
        &mut self,
        node: NodeId,
        kind: FetchKind,
        parameters: Parameters,
    ) -> Asked {
        let id = self.act(node, |session, connection| {
            session.fetch(connection, kind, parameters)
        });
        let id = self.noted(node, id);
        Asked { node, id, alias: 0 }
    }

    /// A client wants to know how a track stands.
    pub(crate) fn track_status(&mut self, node: NodeId, track: &str) -> Asked {
        let track = crate::stage::name(track);
        let id = self.act(node, |session, connection| {
            session.track_status(connection, track, Parameters::default())
        });
        let id = self.noted(node, id);
        Asked { node, id, alias: 0 }
    }

    pub(crate) fn fetched(&self, asked: Asked) -> &Fetched {
        &self.outcome(asked).fetched
    }

    /// A fetch was granted and its stream has come to its end: how far it reached.
    pub(crate) fn expect_complete(&self, asked: Asked) -> Location {
        let fetched = self.fetched(asked);
        assert_eq!(
            fetched.end,
            Some(StreamEnd::Fin),
            "{:?}",
            self.refusal(asked)
        );
        fetched.ok.as_ref().expect("it is granted").end
    }

    /// The ranges that the relay fetched from a client.
    pub(crate) fn fetched_from(&self, node: NodeId) -> Vec<(Location, Location)> {
        let asked = self.actor(node).archive.asked.iter();
        let ranges = asked.map(|(_, fetch)| match fetch.kind {
            FetchKind::Standalone { start, end, .. } => (start, end),
            FetchKind::RelativeJoining { .. } | FetchKind::AbsoluteJoining { .. } => {
                panic!("the relay joins nothing")
            }
        });
        ranges.collect()
    }
}

/// A range of a track, both ends included.
pub(crate) fn standalone(track: &str, start: (u64, u64), end: (u64, u64)) -> FetchKind {
    FetchKind::Standalone {
        track: crate::stage::name(track),
        start: Location::new(start.0, start.1),
        end: Location::new(end.0, end.1),
    }
}

/// The last object that any group could have.
pub(crate) const ALL: u64 = u64::MAX;
