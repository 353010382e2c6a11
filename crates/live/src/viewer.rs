//! The player's role: receives a live stream from a relay, and notes what a viewer would have seen.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_moqt::data::{FetchEntry, ObjectHeader, ObjectStatus};
use weir_moqt::error::{RequestErrorCode, ResetCode};
use weir_moqt::location::Location;
use weir_moqt::message::{FetchKind, RequestError, RequestOk};
use weir_moqt::name::Namespace;
use weir_moqt::parameter::{Filter, Parameters};
use weir_moqt::session::{Accepted, Event as SessionEvent, RequestId};
use weir_moqt::transport::StreamId;
use weir_quic::{App, Endpoint, Event};

use crate::client::{Client, Target, Timebase};
use crate::figures::FrameRecord;
use crate::freshness::Freshness;
use crate::origin::track;
use crate::packaging::FrameTag;
use crate::playout::{Arrival, Player, PlayerSettings};
use crate::sequence::Sequence;

/// What a player is made with.
#[derive(Clone, Debug)]
pub struct ViewerConfig {
    /// Where the relay is.
    pub target: Target,
    /// The namespace of the stream's tracks.
    pub namespace: Namespace,
    /// Names of its tracks.
    pub tracks: Vec<String>,
    /// Where to begin.
    pub join: Join,
    /// How long to wait for somebody to publish the stream.
    pub patience: Duration,
    /// How it plays.
    pub settings: PlayerSettings,
    /// The clock that availability is told in.
    pub timebase: Timebase,
}

/// Where a player begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// With the next group: the lowest latency.
    Next,
    /// With the present group, of which it fetches what is past: the quickest start.
    Current,
}

/// A player without a screen.
#[derive(Debug)]
pub struct Viewer {
    config: ViewerConfig,
    client: Client,
    player: Player,
    /// Those that have not ended.
    subscriptions: Vec<RequestId>,
    first_subscription: Option<RequestId>,
    /// Of what is past, and whether it is of the first track.
    fetches: Vec<(RequestId, bool)>,
    streams: BTreeMap<StreamId, Incoming>,
    /// Of the first track, if that is taken as one stream.
    sequence: Option<Sequence<Whole>>,
    freshness: Option<Freshness>,
    streams_refused: u64,
    records: Vec<FrameRecord>,
    started_us: Option<i64>,
    wake_at: Option<Instant>,
    /// When the last track ended.
    ended_at: Option<Instant>,
    objects_unknown: u64,
}

/// A stream that is being received.
#[derive(Debug)]
struct Incoming {
    group: u64,
    is_first_track: bool,
    /// Whether it carries what is past of a group, of which the rest comes on other streams.
    is_fetch: bool,
    current: Option<Current>,
}

/// The object that is being received.
#[derive(Debug)]
struct Current {
    tag: FrameTag,
    bytes: u64,
    missing: u64,
}

/// A frame that has arrived.
#[derive(Debug)]
struct Whole {
    group: u64,
    tag: FrameTag,
    bytes: u64,
}

impl Viewer {
    /// A player that connects when it is first driven.
    pub fn new(config: ViewerConfig) -> Self {
        Self {
            client: Client::new(config.target.clone()),
            player: Player::new(config.settings),
            subscriptions: Vec::new(),
            first_subscription: None,
            fetches: Vec::new(),
            streams: BTreeMap::new(),
            sequence: config.settings.in_sequence.then(Sequence::new),
            freshness: config.settings.stops_stale.then(Freshness::default),
            streams_refused: 0,
            records: Vec::new(),
            started_us: None,
            wake_at: None,
            ended_at: None,
            objects_unknown: 0,
            config,
        }
    }

    /// What became of each frame that arrived, in the order of arrival.
    pub fn records(&self) -> &[FrameRecord] {
        &self.records
    }

    /// When it began to connect, in microseconds of the shared clock.
    pub fn started_us(&self) -> Option<i64> {
        self.started_us
    }

    /// When the stream ended, in microseconds of the shared clock, if it did.
    pub fn ended_us(&self) -> Option<i64> {
        let timebase = self.config.timebase;
        self.ended_at.map(|at| timebase.microseconds(at))
    }

    /// Objects that said nothing about their frame, or nothing that could be understood.
    pub fn objects_unknown(&self) -> u64 {
        self.objects_unknown
    }

    /// Streams that it refused, because a newer keyframe waited behind them.
    pub fn streams_refused(&self) -> u64 {
        self.streams_refused
    }

    /// Why it is of no more use.
    pub fn failure(&self) -> Option<&str> {
        self.client.failure()
    }

    fn handle_session_events(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while let Some(event) = self.client.poll_event() {
            self.handle_session_event(now, endpoint, event);
        }
    }

    fn handle_session_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: SessionEvent) {
        match event {
            SessionEvent::Ready { .. } => self.subscribe(now, endpoint),
            SessionEvent::Accepted {
                id,
                ok: Accepted::Subscribe(ok),
            } => self.on_subscribed(now, endpoint, id, ok.parameters.largest_object),
            SessionEvent::Rejected { id, error } => {
                let RequestError { code, reason, .. } = error;
                // Nothing is past where a fetch of the present group is refused.
                if self.subscriptions.contains(&id) {
                    self.client
                        .fail(format!("the relay refused a track: {code} {reason:?}"));
                }
            }
            SessionEvent::Request { id, .. } => {
                if let Some((session, mut connection)) = self.client.open(now, endpoint) {
                    let error = RequestError {
                        code: RequestErrorCode::NOT_SUPPORTED,
                        retry_after: None,
                        reason: "a player only subscribes".to_owned(),
                        redirect: None,
                    };
                    session.request_error(&mut connection, id, error);
                }
            }
            SessionEvent::Update { id, .. } => {
                if let Some((session, mut connection)) = self.client.open(now, endpoint) {
                    session.request_ok(&mut connection, id, RequestOk::default());
                }
            }
            SessionEvent::Subgroup {
                stream,
                request,
                header,
            } => self.on_subgroup(now, endpoint, stream, request, header.group),
            SessionEvent::Object { stream, object } => {
                self.on_object(now, endpoint, stream, &object);
            }
            SessionEvent::Fetched { stream, request } => self.on_fetched(stream, request),
            SessionEvent::FetchObject {
                stream,
                entry: FetchEntry::Object(object),
            } => {
                if let Some(incoming) = self.streams.get_mut(&stream) {
                    incoming.group = object.group;
                }
                let header = ObjectHeader {
                    id: object.object,
                    properties: object.properties,
                    status: ObjectStatus::Normal,
                    payload_len: object.payload_len,
                };
                self.on_object(now, endpoint, stream, &header);
            }
            SessionEvent::Payload { stream, data } => {
                self.on_payload(now, stream, data.len() as u64);
            }
            SessionEvent::StreamEnd { stream, .. } => self.on_stream_end(now, stream),
            SessionEvent::Done { id, .. } | SessionEvent::Closed { id, .. } => {
                self.on_track_end(now, id);
            }
            SessionEvent::GoAway(_) => self.client.fail("the relay is going away".to_owned()),
            SessionEvent::Violated(violation) => {
                let reason = violation.reason;
                self.client
                    .fail(format!("the relay broke the protocol: {reason}"));
            }
            SessionEvent::Accepted { .. }
            | SessionEvent::Updated { .. }
            | SessionEvent::Namespace { .. }
            | SessionEvent::NamespaceDone { .. }
            | SessionEvent::PublishBlocked { .. }
            | SessionEvent::RequestGoAway { .. }
            | SessionEvent::FetchObject { .. }
            | SessionEvent::Datagram { .. } => {}
        }
    }

    fn subscribe(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let Some((session, mut connection)) = self.client.open(now, endpoint) else {
            return;
        };
        let mut failure = None;
        for name in &self.config.tracks {
            let name = match track(&self.config.namespace, name) {
                Ok(name) => name,
                Err(error) => {
                    failure = Some(format!("the track {name} has no name: {error}"));
                    break;
                }
            };
            let parameters = Parameters {
                filter: Some(match self.config.join {
                    Join::Next => Filter::NextGroupStart,
                    Join::Current => Filter::LargestObject,
                }),
                rendezvous_timeout: Some(self.config.patience).filter(|time| !time.is_zero()),
                ..Parameters::default()
            };
            match session.subscribe(&mut connection, name, parameters) {
                Ok(request) => {
                    self.first_subscription.get_or_insert(request);
                    self.subscriptions.push(request);
                }
                Err(refused) => failure = Some(format!("a track cannot be asked for: {refused}")),
            }
        }
        if let Some(reason) = failure {
            self.client.fail(reason);
        }
    }

    /// A subscription stands: fetches what is past of the present group, if that is wanted.
    fn on_subscribed(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        id: RequestId,
        largest: Option<Location>,
    ) {
        if self.config.join == Join::Next || largest.is_none() {
            return;
        }
        let is_first_track = self.first_subscription == Some(id);
        let Some((session, mut connection)) = self.client.open(now, endpoint) else {
            return;
        };
        let kind = FetchKind::RelativeJoining {
            request_id: id.0,
            groups: 0,
        };
        if let Ok(fetch) = session.fetch(&mut connection, kind, Parameters::default()) {
            self.fetches.push((fetch, is_first_track));
        }
    }

    fn on_fetched(&mut self, stream: StreamId, request: RequestId) {
        let fetch = self.fetches.iter().find(|(fetch, _)| *fetch == request);
        if let Some((_, is_first_track)) = fetch {
            let incoming = Incoming {
                group: 0,
                is_first_track: *is_first_track,
                is_fetch: true,
                current: None,
            };
            self.streams.insert(stream, incoming);
        }
    }

    /// Objects that are on their way may still come.
    fn on_track_end(&mut self, now: Instant, id: RequestId) {
        self.subscriptions
            .retain(|subscription| *subscription != id);
        if self.subscriptions.is_empty() && !self.fetches.iter().any(|(fetch, _)| *fetch == id) {
            self.ended_at.get_or_insert(now);
        }
    }

    /// Leaves when all tracks have ended, and everything was shown or will not come any more.
    fn leave(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let Some(ended_at) = self.ended_at else {
            return;
        };
        let is_done = self.streams.is_empty() && self.wake_at.is_none();
        if is_done || now >= ended_at + LINGER {
            self.client.close(now, endpoint, "the stream is over");
        }
    }

    fn on_subgroup(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        stream: StreamId,
        request: RequestId,
        group: u64,
    ) {
        if self.streams.len() >= STREAMS_MAX {
            return self.refuse(now, endpoint, stream, ResetCode::EXCESSIVE_LOAD);
        }
        let incoming = Incoming {
            group,
            is_first_track: self.first_subscription == Some(request),
            is_fetch: false,
            current: None,
        };
        self.streams.insert(stream, incoming);
    }

    fn refuse(&mut self, now: Instant, endpoint: &mut Endpoint, stream: StreamId, code: ResetCode) {
        self.streams_refused += 1;
        self.streams.remove(&stream);
        if let Some((session, mut connection)) = self.client.open(now, endpoint) {
            session.stop_data(&mut connection, stream, code);
        }
    }

    fn on_object(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        stream: StreamId,
        object: &ObjectHeader,
    ) {
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return;
        };
        let Ok(Some(tag)) = FrameTag::read(&object.properties) else {
            self.objects_unknown += 1;
            incoming.current = None;
            return;
        };
        let group = incoming.group;
        let (bytes, missing) = (object.payload_len, object.payload_len);
        incoming.current = Some(Current {
            tag,
            bytes,
            missing,
        });
        let now_us = self.config.timebase.microseconds(now);
        if let Some(freshness) = &mut self.freshness
            && !freshness.is_wanted(now_us, group, &tag)
        {
            return self.refuse(now, endpoint, stream, ResetCode::CANCELLED);
        }
        self.on_payload(now, stream, 0);
    }

    fn on_stream_end(&mut self, now: Instant, stream: StreamId) {
        if let Some(incoming) = self.streams.remove(&stream)
            && incoming.is_first_track
            && !incoming.is_fetch
            && let Some(sequence) = &mut self.sequence
        {
            sequence.end(incoming.group);
            self.pass(now);
        }
    }

    /// Lets through what came in sequence.
    fn pass(&mut self, now: Instant) {
        let passing = self.sequence.as_mut().map(Sequence::poll);
        for whole in passing.into_iter().flatten() {
            self.on_frame(now, &whole);
        }
    }

    fn on_payload(&mut self, now: Instant, stream: StreamId, bytes: u64) {
        let Some(incoming) = self.streams.get_mut(&stream) else {
            return;
        };
        let Some(current) = &mut incoming.current else {
            return;
        };
        current.missing = current.missing.saturating_sub(bytes);
        if current.missing > 0 {
            return;
        }
        let whole = Whole {
            group: incoming.group,
            tag: current.tag,
            bytes: current.bytes,
        };
        incoming.current = None;
        match &mut self.sequence {
            Some(sequence) if incoming.is_first_track => {
                sequence.push(whole.group, whole);
                self.pass(now);
            }
            Some(_) | None => self.on_frame(now, &whole),
        }
    }

    fn on_frame(&mut self, now: Instant, whole: &Whole) {
        let Whole { group, tag, bytes } = *whole;
        let now_us = self.config.timebase.microseconds(now);
        let arrival = Arrival {
            number: self.records.len() as u64,
            kind: tag.kind,
            is_disposable: tag.is_disposable,
            group,
            references: tag.references,
            decode_us: tag.decode_us,
            presentation_us: tag.presentation_us,
            duration_us: tag.duration_us,
        };
        self.records.push(FrameRecord {
            number: tag.number,
            group,
            kind: tag.kind.letter(),
            bytes,
            presentation_us: tag.presentation_us,
            available_us: tag.available_us,
            arrived_us: now_us,
            shown_us: None,
        });
        self.player.push(now_us, arrival);
    }

    /// Shows what is due.
    fn play(&mut self, now: Instant) {
        let now_us = self.config.timebase.microseconds(now);
        while let Some(shown) = self.player.poll(now_us) {
            let record = usize::try_from(shown.frame.number).ok();
            let record = record.and_then(|number| self.records.get_mut(number));
            if let Some(record) = record.filter(|_| shown.is_decodable) {
                record.shown_us = Some(now_us);
            }
        }
        let next_us = self.player.poll_timeout(now_us);
        self.wake_at = next_us.map(|us| self.config.timebase.instant(us.max(now_us + 1)));
    }
}

impl App for Viewer {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        // A player has no data streams of its own, so nothing is left of an event.
        let _nothing = self.client.handle_event(now, endpoint, &event);
        self.handle_session_events(now, endpoint);
        self.play(now);
        self.leave(now, endpoint);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.client.is_closed() {
            return None;
        }
        if !self.client.has_started() {
            return Some(self.config.timebase.at);
        }
        let leave_at = self.ended_at.map(|at| at + LINGER);
        [self.client.poll_timeout(), self.wake_at, leave_at]
            .into_iter()
            .flatten()
            .min()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.client.is_closed() {
            return;
        }
        if !self.client.has_started() {
            self.started_us = Some(self.config.timebase.microseconds(now));
            self.client.connect(now, endpoint);
        }
        self.client.handle_timeout(now, endpoint);
        self.handle_session_events(now, endpoint);
        self.play(now);
        self.leave(now, endpoint);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.client.close(now, endpoint, "the player was stopped");
    }

    fn is_finished(&self) -> bool {
        self.client.is_closed()
    }
}

/// Streams that may be open at once; further ones are stopped.
const STREAMS_MAX: usize = 1024;
/// How long what is on its way is waited for after the end of all tracks.
const LINGER: Duration = Duration::from_secs(3);
