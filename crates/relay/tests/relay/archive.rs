//! Past objects: what scripted clients have of them, and how they fetch them.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use weir_moqt::{
    data::{FetchEncoder, FetchEntry, FetchHeader, FetchObject, RangeEnd},
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

/// How a client answers a FETCH of the relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Serving {
    /// Never answers.
    #[default]
    Ignore,
    Decline(RequestErrorCode),
    /// Sends the objects that it has of the range.
    Serve,
    /// Does the same, and never ends the stream of the request.
    ServeAndStay,
    /// Sends the objects, and marks the last one as the end of the track.
    ServeWhole,
    /// Accepts the FETCH, sends this many bytes of the answer, and no more.
    Stall(usize),
    /// Accepts the FETCH, and sends the objects in the wrong order.
    Reverse,
    /// Accepts the FETCH up to just before its start, and sends nothing.
    GrantNothing,
}

/// The past objects that a client has, the same for all its tracks.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    pub(crate) objects: BTreeMap<Location, Vec<u8>>,
    pub(crate) properties: Properties,
    pub(crate) serving: Serving,
    /// The answer to TRACK_STATUS; `None` for no answer.
    pub(crate) standing: Option<Result<Location, RequestErrorCode>>,
    /// The TRACK_STATUS requests received.
    pub(crate) track_statuses: Vec<RequestId>,
    /// The FETCH requests received from the relay.
    pub(crate) asked: Vec<(RequestId, Fetch)>,
}

/// The result of a fetch.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    pub(crate) ok: Option<FetchOk>,
    pub(crate) stream: Option<StreamId>,
    pub(crate) entries: Vec<(FetchEntry, Vec<u8>)>,
    pub(crate) end: Option<StreamEnd>,
}

/// A client's answer to a FETCH.
pub(crate) struct Reply {
    pub(crate) answer: Result<FetchOk, RequestError>,
    /// The bytes of the data stream, and whether they are complete.
    pub(crate) data: Option<(Bytes, bool)>,
}

impl Archive {
    /// Adds the groups from `first` to `last`, with this number of objects each.
    pub(crate) fn fill(&mut self, first: u64, last: u64, objects: u64, bytes: usize) {
        for group in first..=last {
            for object in 0..objects {
                let payload = crate::stage::payload(group, object, bytes);
                self.objects.insert(Location::new(group, object), payload);
            }
        }
    }

    /// Returns the answer to TRACK_STATUS.
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

    /// Returns the answer to a FETCH in a session of `draft`; `None` for no answer.
    pub(crate) fn reply(&self, draft: Draft, id: RequestId, fetch: &Fetch) -> Option<Reply> {
        let FetchKind::Standalone { start, end, .. } = fetch.kind else {
            panic!("the relay joins nothing");
        };
        let order = fetch.parameters.group_order.unwrap_or_default();
        let answer_in = (draft, id);
        match self.serving {
            Serving::Ignore => None,
            Serving::Decline(code) => Some(Reply::refusal(code)),
            Serving::Serve
            | Serving::ServeAndStay
            | Serving::ServeWhole
            | Serving::Stall(_)
            | Serving::Reverse => Some(self.serve(answer_in, (start, end), order)),
            Serving::GrantNothing => Some(Reply::of_nothing(answer_in, start)),
        }
    }

    /// Returns the answer for a range, according to the client's way of serving.
    fn serve(
        &self,
        answer_in: (Draft, RequestId),
        (start, end): (Location, Location),
        order: GroupOrder,
    ) -> Reply {
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
        let mut data = self.stream(answer_in, (start, end), order).freeze();
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

    /// Returns the data stream with the objects of a range.
    fn stream(
        &self,
        (draft, id): (Draft, RequestId),
        (start, end): (Location, Location),
        order: GroupOrder,
    ) -> BytesMut {
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
        let mut data = stream_header((draft, id));
        let mut encoder = FetchEncoder::new(draft, order);
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

    /// Accepts a range that ends just before its start, with an empty data stream.
    fn of_nothing(answer_in: (Draft, RequestId), start: Location) -> Self {
        let answer = Ok(FetchOk {
            end_of_track: false,
            end: Location::new(start.group, start.object - 1),
            parameters: Parameters::default(),
            properties: Properties::EMPTY,
        });
        Self {
            answer,
            data: Some((stream_header(answer_in).freeze(), true)),
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

/// Returns the header of the data stream of a fetch.
fn stream_header((draft, id): (Draft, RequestId)) -> BytesMut {
    let mut data = BytesMut::new();
    FetchHeader { request_id: id.0 }.encode(draft, &mut data);
    data
}

impl Fetched {
    /// Returns the locations and payloads of the complete objects, in order.
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

    /// Returns the group and object IDs of the complete objects, in order; checks that each payload belongs there.
    pub(crate) fn places(&self, bytes: usize) -> Vec<(u64, u64)> {
        let objects = self.objects().into_iter();
        let places = objects.map(|(Location { group, object }, payload)| {
            let expected = crate::stage::payload(group, object, bytes);
            assert_eq!(payload, expected, "{group}:{object} arrives unaltered");
            (group, object)
        });
        places.collect()
    }

    /// Returns the last locations of ranges that are unknown (`true`) or do not exist.
    pub(crate) fn ranges(&self) -> Vec<(bool, Location)> {
        let entries = self.entries.iter();
        let ranges = entries.filter_map(|(entry, _)| match entry {
            &FetchEntry::EndOfRange { reason, location } => {
                Some((reason != RangeEnd::NonExistent, location))
            }
            FetchEntry::Object(_) => None,
        });
        ranges.collect()
    }
}

impl Stage {
    /// Fetches a range of a track for a client.
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

    /// Requests the status of a track for a client.
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

    /// Checks that a fetch was accepted and its stream has ended; returns how far it reached.
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

    /// Returns the ranges that the relay fetched from a client.
    pub(crate) fn fetched_from(&self, node: NodeId) -> Vec<(Location, Location)> {
        let asked = self.actor(node).archive.asked.iter();
        let ranges = asked.map(|(_, fetch)| match fetch.kind {
            FetchKind::Standalone { start, end, .. } => (start, end),
            FetchKind::Recent { .. }
            | FetchKind::RelativeJoining { .. }
            | FetchKind::AbsoluteJoining { .. } => {
                panic!("the relay joins nothing")
            }
        });
        ranges.collect()
    }
}

/// Returns the range of a track, both ends inclusive.
pub(crate) fn standalone(track: &str, start: (u64, u64), end: (u64, u64)) -> FetchKind {
    FetchKind::Standalone {
        track: crate::stage::name(track),
        start: Location::new(start.0, start.1),
        end: Location::new(end.0, end.1),
    }
}

/// The largest possible object ID.
pub(crate) const ALL: u64 = u64::MAX;
