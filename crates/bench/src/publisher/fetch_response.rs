//! The response to a FETCH: all objects of a range on one stream, as fast as the stream accepts them. [evens-00 §3.3]

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use weir_moqt::data::{FetchEncoder, FetchEntry, FetchHeader, FetchObject};
use weir_moqt::draft::Draft;
use weir_moqt::location::Location;
use weir_moqt::message::FetchOk;
use weir_moqt::parameter::{GroupOrder, Parameters};
use weir_moqt::session::RequestId;
use weir_transport::{Direction, StreamId, Transport, WriteError};

use super::offer::track_properties;
use super::publication::Publication;
use crate::clock::nanoseconds;
use crate::message::{Completion, DataHeader};
use crate::metrics::TrackPlan;
use crate::payload::Tag;
use crate::schedule::{Item, ItemKind};

/// The response to a FETCH: the stream of its objects.
#[derive(Debug)]
pub(super) struct FetchResponse {
    pub(super) request: RequestId,
    /// The track's number at its publisher.
    pub(super) track: usize,
    stream: Option<StreamId>,
    encoder: FetchEncoder,
    began: Instant,
    /// The next item of the schedule.
    next: u64,
    /// The last location requested.
    end: Location,
    pending: Bytes,
}

/// How far a flush got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The stream is blocked before the end.
    Blocked,
    /// Everything was sent.
    Done,
    /// The relay does not want the rest.
    Abandoned,
}

impl FetchResponse {
    pub(super) fn new(
        now: Instant,
        draft: Draft,
        request: RequestId,
        (track, plan): (usize, &TrackPlan),
        (start, end): (Location, Location),
    ) -> Self {
        let mut pending = BytesMut::new();
        let header = FetchHeader {
            request_id: request.0,
        };
        header.encode(draft, &mut pending);
        Self {
            request,
            track,
            stream: None,
            encoder: FetchEncoder::new(draft, GroupOrder::Ascending),
            began: now,
            next: plan.schedule().items_before(start.group, start.object),
            end,
            pending: pending.freeze(),
        }
    }

    /// Whether the response uses `stream`.
    pub(super) fn is(&self, stream: StreamId) -> bool {
        self.stream == Some(stream)
    }

    /// Sends what the stream accepts.
    pub(super) fn flush(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        publication: &mut Publication,
        plan: &TrackPlan,
    ) -> Progress {
        if self.stream.is_none() {
            let Some(stream) = transport.open(Direction::Uni) else {
                return Progress::Blocked;
            };
            transport.set_priority(stream, -i32::from(plan.priority()));
            self.stream = Some(stream);
        }
        let Some(stream) = self.stream else {
            return Progress::Blocked;
        };
        loop {
            if self.pending.is_empty() && !self.encode_next(now, publication, plan) {
                transport.finish(stream);
                return Progress::Done;
            }
            match transport.write(stream, &mut self.pending) {
                Ok(()) => {}
                Err(WriteError::Blocked) => return Progress::Blocked,
                Err(WriteError::Stopped(_) | WriteError::Closed) => return Progress::Abandoned,
            }
        }
    }

    /// Encodes the next item of the range. Returns false if there is none.
    fn encode_next(
        &mut self,
        now: Instant,
        publication: &mut Publication,
        plan: &TrackPlan,
    ) -> bool {
        let end = (self.end.group, self.end.object);
        let is_within = |item: &Item| (item.group, item.object) <= end;
        let Some(item) = plan.schedule().item(self.next).filter(is_within) else {
            return false;
        };
        self.next += 1;
        let mut payload = BytesMut::new();
        self.write_payload(now, plan, &item, &mut payload);
        let mut bytes = BytesMut::with_capacity(payload.len() + HEADER_ROOM);
        let object = FetchObject {
            group: item.group,
            subgroup: Some(0),
            object: item.object,
            priority: plan.priority(),
            properties: super::publication::properties_of(plan, &item),
            payload_len: payload.len() as u64,
        };
        self.encoder.encode(&FetchEntry::Object(object), &mut bytes);
        bytes.extend_from_slice(&payload);
        self.pending = bytes.freeze();
        match item.kind {
            ItemKind::Data(data) => publication.sender.on_sent(now, now, &data),
            ItemKind::Start => publication.sender.on_start(),
            ItemKind::Completion { .. } => {}
        }
        true
    }

    fn write_payload(&self, now: Instant, plan: &TrackPlan, item: &Item, payload: &mut BytesMut) {
        let schedule = plan.schedule();
        let elapsed = nanoseconds(now.saturating_duration_since(self.began)) / 1_000_000;
        let elapsed_ms = u32::try_from(elapsed).unwrap_or(u32::MAX);
        match item.kind {
            ItemKind::Start => payload.extend_from_slice(&schedule.start_message().encode()),
            ItemKind::Data(data) => {
                let header = DataHeader {
                    group_number: data.group_number,
                    object_number: data.object_number,
                    milliseconds_since_first_object: elapsed_ms,
                    data_length: data.size.data_length(),
                };
                let sent_ns = plan.clock().ns(now);
                let tag = Tag {
                    run_id: plan.run_id(),
                    sequence: data.number,
                    planned_ns: sent_ns,
                    sent_ns,
                };
                plan.content().write_object(&header, &tag, payload);
            }
            ItemKind::Completion { .. } => {
                let completion = Completion {
                    objects_sent: schedule.objects(),
                    groups_sent: schedule.groups(),
                    total_duration_ms: elapsed_ms,
                };
                payload.extend_from_slice(&completion.encode());
            }
        }
    }
}

/// Returns the FETCH_OK for a range of a track that ends with `end`. All of the track exists.
pub(super) fn fetch_ok(plan: &TrackPlan, end: Location) -> FetchOk {
    let schedule = plan.schedule();
    let covered = schedule.items_before(end.group, end.object.saturating_add(1));
    let last = covered.checked_sub(1).and_then(|last| schedule.item(last));
    let (group, object) = last.map_or((0, 0), |last| (last.group, last.object));
    FetchOk {
        end_of_track: covered == schedule.items(),
        end: Location { group, object },
        parameters: Parameters::default(),
        properties: track_properties(plan),
    }
}

/// Room for the header of an object, without extension headers.
const HEADER_ROOM: usize = 64;

#[cfg(test)]
mod tests {
    use weir_moqt::name::{FullTrackName, Namespace, TrackName};

    use super::*;
    use crate::clock::{RunClock, any_instant};
    use crate::profile::Profile;
    use crate::test_transport::TestTransport;

    /// Counts the objects, groups and START messages that a fetch from `start` on returns. The track has `milliseconds`
    /// of an object every 10 microseconds, in groups as long as allowed.
    fn fetched(milliseconds: u64, start: impl Fn(&TrackPlan) -> Location) -> (u64, u64, u64) {
        let profile = format!(
            "[file]
namespace = perf/file
name = 1
track_mode = stream
priority = 3
ttl = 5000
time_interval = 0.01
objects_per_group = 10000000
first_object_size = 100
object_size = 100
start_delay = 0
total_transmit_time = {milliseconds}
pattern = fetch
"
        );
        let profile = Profile::parse("file.ini", profile.as_bytes()).unwrap();
        let now = any_instant();
        let plan = TrackPlan::new(&profile.tracks[0], 0, 7, RunClock::new(now, 0));
        let namespace = Namespace::new(["perf", "file"]).unwrap();
        let name = FullTrackName::new(namespace, TrackName::new("1").unwrap()).unwrap();
        let mut publication = Publication::new(0, name, 0, true);
        let mut transport = TestTransport::default();
        let all = Location {
            group: u64::MAX,
            object: u64::MAX,
        };
        let ok = fetch_ok(&plan, all);
        assert!(ok.end_of_track && ok.end.group == plan.schedule().completion_group());
        let range = (start(&plan), ok.end);
        let request = RequestId(1);
        let mut response = FetchResponse::new(now, Draft::KEPT, request, (0, &plan), range);
        let progress = response.flush(now, &mut transport, &mut publication, &plan);
        assert_eq!((progress, transport.finished), (Progress::Done, 1));
        let sent = publication.sender.result();
        (sent.objects_sent, sent.groups_sent, sent.starts_sent)
    }

    #[test]
    fn a_range_begins_where_it_is_asked_for() {
        let first = |group, object| move |_: &TrackPlan| Location { group, object };
        assert_eq!(fetched(1, first(0, 0)), (100, 1, 1));
        assert_eq!(fetched(1, first(1, 0)), (100, 1, 0));
        assert_eq!(fetched(1, first(1, 90)), (10, 1, 0));
        assert_eq!(fetched(1, first(2, 0)), (0, 0, 0));
        assert_eq!(fetched(1, first(9, 0)), (0, 0, 0));
    }

    #[test]
    fn the_end_of_ten_billion_objects_is_found_at_once() {
        let near_the_end = |plan: &TrackPlan| {
            assert_eq!(plan.schedule().objects(), 10_000_000_000);
            Location {
                group: plan.schedule().completion_group() - 1,
                object: 9_999_990,
            }
        };
        assert_eq!(fetched(100_000_000, near_the_end), (10, 1, 0));
    }
}
