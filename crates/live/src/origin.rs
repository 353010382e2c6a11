//! The origin: publishes a live stream to a relay by a strategy.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use weir_moqt::data::{ObjectHeader, ObjectStatus, SubgroupHeader, SubgroupId};
use weir_moqt::draft::Draft;
use weir_moqt::error::{PublishDoneCode, RequestErrorCode, ResetCode};
use weir_moqt::message::{PublishDone, RequestError, RequestOk};
use weir_moqt::name::{FullTrackName, NameError, Namespace, TrackName};
use weir_moqt::parameter::{GroupOrder, Parameters};
use weir_moqt::property::{DEFAULT_PUBLISHER_GROUP_ORDER, Properties};
use weir_moqt::session::{Event as SessionEvent, RequestId};
use weir_moqt::transport::{Direction, StreamId, Transport, WriteError};
use weir_quic::{App, Endpoint, Event};

use crate::Frame;
use crate::client::{Client, Rest, Target, Timebase};
use crate::packaging::{FrameTag, fragment_payload};
use crate::source::Source;
use crate::strategy::{Step, Strategy, StreamKey};

/// What an origin is made with.
#[derive(Debug)]
pub struct OriginConfig {
    /// Where the relay is.
    pub target: Target,
    /// The namespace of its tracks.
    pub namespace: Namespace,
    /// How the stream is delivered.
    pub strategy: Box<dyn Strategy>,
    /// The clock that availability is told in.
    pub timebase: Timebase,
    /// Where frames come from.
    pub source: Box<dyn Source>,
}

/// What an origin did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginCounters {
    /// Frames that came from the source.
    pub frames: u64,
    /// Frames that came before the relay took the track.
    pub frames_early: u64,
    /// Frames written to a stream.
    pub frames_written: u64,
    /// Streams reset because of what the strategy says.
    pub streams_reset: u64,
    /// Streams given up because more than 8 MiB waited.
    pub streams_overflowed: u64,
}

/// The origin of a live stream, as a client of a relay.
#[derive(Debug)]
pub struct Origin {
    client: Client,
    namespace: Namespace,
    strategy: Box<dyn Strategy>,
    timebase: Timebase,
    source: Box<dyn Source>,
    publications: Vec<Publication>,
    streams: BTreeMap<StreamKey, Outgoing>,
    /// When which stream is to be reset.
    deadlines: BTreeSet<(Instant, StreamKey)>,
    steps: Vec<Step>,
    counters: OriginCounters,
    /// When the session is closed, after the end of the source.
    leave_at: Option<Instant>,
}

#[derive(Debug)]
struct Publication {
    request: RequestId,
    is_accepted: bool,
    streams_opened: u64,
}

/// A stream with what waits for it.
#[derive(Debug, Default)]
struct Outgoing {
    stream: Option<StreamId>,
    previous: Option<u64>,
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    is_finished: bool,
}

impl Origin {
    /// An origin that connects when it is first driven.
    pub fn new(config: OriginConfig) -> Self {
        Self {
            client: Client::new(config.target),
            namespace: config.namespace,
            strategy: config.strategy,
            timebase: config.timebase,
            source: config.source,
            publications: Vec::new(),
            streams: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            steps: Vec::new(),
            counters: OriginCounters::default(),
            leave_at: None,
        }
    }

    /// What it did so far.
    pub fn counters(&self) -> OriginCounters {
        self.counters
    }

    /// Why it is of no more use.
    pub fn failure(&self) -> Option<&str> {
        self.client.failure()
    }

    /// Whether the relay has taken all of its tracks.
    pub fn is_published(&self) -> bool {
        let is_accepted = |publication: &Publication| publication.is_accepted;
        !self.publications.is_empty() && self.publications.iter().all(is_accepted)
    }

    fn handle_session_events(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while let Some(event) = self.client.poll_event() {
            match event {
                SessionEvent::Ready { .. } => self.publish(now, endpoint),
                SessionEvent::Accepted { id, .. } => {
                    let mut publications = self.publications.iter_mut();
                    if let Some(accepted) = publications.find(|one| one.request == id) {
                        accepted.is_accepted = true;
                    }
                }
                SessionEvent::Rejected { error, .. } => {
                    let RequestError { code, reason, .. } = error;
                    self.client
                        .fail(format!("the relay refused a track: {code} {reason:?}"));
                }
                SessionEvent::Request { id, .. } => self.refuse(now, endpoint, id),
                SessionEvent::Update { id, .. } => {
                    if let Some((session, mut connection)) = self.client.open(now, endpoint) {
                        session.request_ok(&mut connection, id, RequestOk::default());
                    }
                }
                SessionEvent::Closed { .. } => {
                    self.client.fail("the relay withdrew a track".to_owned());
                }
                SessionEvent::GoAway(_) => self.client.fail("the relay is going away".to_owned()),
                SessionEvent::Violated(violation) => {
                    let reason = violation.reason;
                    self.client
                        .fail(format!("the relay broke the protocol: {reason}"));
                }
                // Answers to what an origin never asks, and objects it never subscribed to.
                SessionEvent::Updated { .. }
                | SessionEvent::Done { .. }
                | SessionEvent::Namespace { .. }
                | SessionEvent::NamespaceDone { .. }
                | SessionEvent::PublishBlocked { .. }
                | SessionEvent::RequestGoAway { .. }
                | SessionEvent::Subgroup { .. }
                | SessionEvent::Object { .. }
                | SessionEvent::Fetched { .. }
                | SessionEvent::FetchObject { .. }
                | SessionEvent::Payload { .. }
                | SessionEvent::StreamEnd { .. }
                | SessionEvent::Datagram { .. } => {}
            }
        }
    }

    /// Offers the tracks of the strategy.
    fn publish(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let Some((session, mut connection)) = self.client.open(now, endpoint) else {
            return;
        };
        let mut failure = None;
        for (alias, terms) in (0..).zip(self.strategy.tracks()) {
            let order = match terms.order {
                GroupOrder::Ascending => 1,
                GroupOrder::Descending => 2,
            };
            let properties = Properties::builder()
                .int(DEFAULT_PUBLISHER_GROUP_ORDER, order)
                .build();
            let name = match track(&self.namespace, terms.name) {
                Ok(name) => name,
                Err(error) => {
                    failure = Some(format!("the track {} has no name: {error}", terms.name));
                    break;
                }
            };
            match session.publish(
                &mut connection,
                name,
                alias,
                Parameters::default(),
                properties,
            ) {
                Ok(request) => self.publications.push(Publication {
                    request,
                    is_accepted: false,
                    streams_opened: 0,
                }),
                Err(refused) => failure = Some(format!("a track cannot be offered: {refused}")),
            }
        }
        if let Some(reason) = failure {
            self.client.fail(reason);
        }
    }

    fn refuse(&mut self, now: Instant, endpoint: &mut Endpoint, id: RequestId) {
        if let Some((session, mut connection)) = self.client.open(now, endpoint) {
            let error = RequestError {
                code: RequestErrorCode::NOT_SUPPORTED,
                retry_after: None,
                reason: "an origin only publishes".to_owned(),
                redirect: None,
            };
            session.request_error(&mut connection, id, error);
        }
    }

    /// Does all that is due.
    fn advance(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.client.connect(now, endpoint);
        while let Some(frame) = self.source.poll(now) {
            self.on_frame(now, endpoint, &frame);
        }
        while let Some((_, key)) = self.deadlines.pop_first().filter(|(at, _)| *at <= now) {
            self.reset(now, endpoint, key);
        }
        self.flush(now, endpoint);
        if self.source.is_over() {
            self.leave(now, endpoint);
        }
    }

    fn on_frame(&mut self, now: Instant, endpoint: &mut Endpoint, frame: &Frame) {
        self.counters.frames += 1;
        if !self.is_published() {
            self.counters.frames_early += 1;
            return;
        }
        let mut steps = std::mem::take(&mut self.steps);
        self.strategy.place(frame, &mut steps);
        for step in steps.drain(..) {
            match step {
                Step::Write {
                    stream,
                    priority,
                    reset_after,
                } => {
                    self.write(now, endpoint, stream, priority, frame);
                    let deadline = reset_after.map(|after| (now + after, stream));
                    self.deadlines.extend(deadline);
                }
                Step::Finish(stream) => self.finish(stream),
                Step::Reset(stream) => self.reset(now, endpoint, stream),
            }
        }
        self.steps = steps;
    }

    fn write(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        key: StreamKey,
        priority: u8,
        frame: &Frame,
    ) {
        let Some((session, _)) = self.client.open(now, endpoint) else {
            return;
        };
        let draft = session.draft();
        let outgoing = self.streams.entry(key).or_default();
        let mut head = BytesMut::new();
        if outgoing.previous.is_none() {
            header(key, priority).encode(draft, &mut head);
        }
        let payload = fragment_payload(frame);
        let tag = FrameTag::new(frame, self.timebase.microseconds(now));
        object(
            frame.index,
            tag.properties(),
            payload.len(),
            outgoing.previous,
            draft,
            &mut head,
        );
        outgoing.previous = Some(frame.index);
        outgoing.waiting_bytes += head.len() + payload.len();
        outgoing.waiting.push_back(head.freeze());
        if !payload.is_empty() {
            outgoing.waiting.push_back(payload);
        }
        self.counters.frames_written += 1;
        if outgoing.waiting_bytes > WAITING_BYTES_MAX {
            self.counters.streams_overflowed += 1;
            self.reset(now, endpoint, key);
        }
    }

    fn finish(&mut self, key: StreamKey) {
        if let Some(outgoing) = self.streams.get_mut(&key) {
            outgoing.is_finished = true;
        }
    }

    fn reset(&mut self, now: Instant, endpoint: &mut Endpoint, key: StreamKey) {
        let Some(outgoing) = self.streams.remove(&key) else {
            return;
        };
        self.counters.streams_reset += 1;
        if let (Some((_, mut connection)), Some(stream)) =
            (self.client.open(now, endpoint), outgoing.stream)
        {
            connection.reset(stream, ResetCode::DELIVERY_TIMEOUT.0);
        }
    }

    /// Writes what waits, as far as the connection takes it.
    fn flush(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let Some((_, mut connection)) = self.client.open(now, endpoint) else {
            return;
        };
        let publications = &mut self.publications;
        self.streams.retain(|key, outgoing| {
            if outgoing.stream.is_none() && !outgoing.waiting.is_empty() {
                outgoing.stream = connection.open(Direction::Uni);
                if let (Some(_), Some(track)) = (outgoing.stream, publications.get_mut(key.track)) {
                    track.streams_opened += 1;
                }
            }
            outgoing.flush(&mut connection)
        });
    }

    /// The source is over: finishes what is open, and leaves when that has had time to arrive.
    fn leave(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let Some(at) = self.leave_at else {
            self.leave_at = Some(now + LINGER);
            for outgoing in self.streams.values_mut() {
                outgoing.is_finished = true;
            }
            self.flush(now, endpoint);
            if let Some((session, mut connection)) = self.client.open(now, endpoint) {
                for publication in self.publications.drain(..).filter(|one| one.is_accepted) {
                    let done = PublishDone {
                        code: PublishDoneCode::TRACK_ENDED,
                        stream_count: Some(publication.streams_opened),
                        reason: String::new(),
                    };
                    session.publish_done(&mut connection, publication.request, done);
                }
            }
            return;
        };
        if now >= at {
            self.client.close(now, endpoint, "the stream is over");
        }
    }
}

impl Outgoing {
    /// Writes what the connection takes; returns whether there will be something to do later.
    fn flush(&mut self, connection: &mut dyn Transport) -> bool {
        let Some(stream) = self.stream else {
            return true;
        };
        while let Some(data) = self.waiting.front_mut() {
            let before = data.len();
            let result = connection.write(stream, data);
            self.waiting_bytes -= before - data.len();
            match result {
                Ok(()) => {
                    self.waiting.pop_front();
                }
                Err(WriteError::Blocked) => return true,
                Err(WriteError::Stopped(_)) => {
                    connection.reset(stream, ResetCode::CANCELLED.0);
                    return false;
                }
                Err(WriteError::Closed) => return false,
            }
        }
        if self.is_finished {
            connection.finish(stream);
        }
        !self.is_finished
    }
}

impl App for Origin {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match self.client.handle_event(now, endpoint, &event) {
            Rest::Nothing => {}
            Rest::Room => self.flush(now, endpoint),
            Rest::Stopped(stream) => {
                let found = self
                    .streams
                    .iter()
                    .find(|(_, one)| one.stream == Some(stream));
                if let Some(key) = found.map(|(key, _)| *key) {
                    self.reset(now, endpoint, key);
                }
            }
        }
        self.handle_session_events(now, endpoint);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.client.is_closed() {
            return None;
        }
        if !self.client.has_started() {
            return Some(self.timebase.at);
        }
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        [
            self.client.poll_timeout(),
            self.source.next_at(),
            deadline,
            self.leave_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.client.is_closed() {
            return;
        }
        self.client.handle_timeout(now, endpoint);
        self.advance(now, endpoint);
        self.handle_session_events(now, endpoint);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.client.close(now, endpoint, "the origin was stopped");
    }

    fn is_finished(&self) -> bool {
        self.client.is_closed()
    }
}

/// The full name of a track in a namespace.
pub(crate) fn track(namespace: &Namespace, name: &str) -> Result<FullTrackName, NameError> {
    FullTrackName::new(namespace.clone(), TrackName::new(name)?)
}

fn header(key: StreamKey, priority: u8) -> SubgroupHeader {
    SubgroupHeader {
        track_alias: key.track as u64,
        group: key.group,
        subgroup: SubgroupId::Explicit(key.subgroup),
        priority: Some(priority),
        has_properties: true,
        end_of_group: false,
        first_object: true,
    }
}

fn object(
    id: u64,
    properties: Properties,
    payload_bytes: usize,
    previous: Option<u64>,
    draft: Draft,
    out: &mut BytesMut,
) {
    ObjectHeader {
        id,
        properties,
        status: ObjectStatus::Normal,
        payload_len: payload_bytes as u64,
    }
    .encode_in_subgroup(previous, true, draft, out);
}

/// Bytes that may wait for one stream; it is reset beyond.
pub(crate) const WAITING_BYTES_MAX: usize = 8 << 20;
/// How long the session stays open after the end of the source.
const LINGER: Duration = Duration::from_secs(2);
