//! The role of a player: receives a live stream from a relay, and records what a viewer would have seen.

mod answer_timeout;
mod config;
mod discovery;
mod incoming;
mod moving;
mod numbering;
mod objects;
mod patience;
mod phase;
mod plan_change;
mod publisher_change;
mod receive_window;
mod records;
mod subscriptions;
mod unpacking;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use weir_client::client::Client;
use weir_client::turn::Turn;
use weir_moqt::data::{SubgroupHeader, SubgroupId};
use weir_moqt::error::{PublishDoneCode, RequestErrorCode, ResetCode, SessionError};
use weir_moqt::location::Location;
use weir_moqt::message::{PublishDone, RequestError};
use weir_moqt::session::{Accepted, Event as SessionEvent, RequestId};
use weir_quic::{App, Endpoint, Event};
use weir_transport::StreamId;

pub use self::config::{Choice, Join, ViewerConfig};
use self::discovery::Discovery;
use self::incoming::{Incoming, ReceivedFrame, StreamContent, Track};
use self::moving::Departure;
use self::numbering::Numbering;
use self::patience::Patience;
use self::phase::Phase;
use self::publisher_change::PublisherTracker;
use self::receive_window::ReceiveWindow;
pub use self::receive_window::WINDOW_FIRST;
use self::records::Records;
use self::subscriptions::may_be_duplicate;
use crate::limits::RECORDS_MAX;
use crate::plan::Plan;
use crate::playout::{Arrival, Fate, Freshness, Player, PlayerSettings};
use crate::sequence::Sequence;
use crate::strategy;
use weir_report::lab::FrameRecord;

/// A player without a screen.
#[derive(Debug)]
pub struct Viewer {
    config: ViewerConfig,
    client: Client,
    /// The current settings of playout.
    settings: PlayerSettings,
    player: Player,
    discovery: Discovery,
    /// The plan of the catalog.
    plan: Option<Plan>,
    tracks: Vec<Track>,
    /// Fetches of objects before the joining point.
    fetches: Vec<(RequestId, StreamContent)>,
    streams: BTreeMap<StreamId, Incoming>,
    /// The first track's sequence, if the track is played as one stream.
    sequence: Option<Sequence<ReceivedFrame>>,
    freshness: Option<Freshness>,
    receive_window: ReceiveWindow,
    publisher_tracker: PublisherTracker,
    streams_refused: u64,
    records: Records,
    started_us: Option<i64>,
    wake_at: Option<Instant>,
    phase: Phase,
    patience: Patience,
    numbering: Numbering,
    catalogs_followed: u64,
    publishers_followed: u64,
    frames_of_former: u64,
    objects_unknown: u64,
    /// Why the last object without a frame could not be parsed.
    complaint: Option<String>,
    /// Why the relay ended a track that is played, if the authorization ended.
    revoked: Option<String>,
    relays_left: u64,
    /// Why the player last left a relay for the next one.
    last_move: Option<String>,
    /// Whether the next catalog is the first one of another relay.
    has_moved: bool,
    /// The relay that has sent GOAWAY, until the player leaves it.
    departure: Option<Departure>,
    /// The newest group of the first track.
    newest_group: Option<u64>,
    /// Where tracks are joined.
    join: Join,
}

impl Viewer {
    /// Returns a player that connects when it is first driven.
    pub fn new(config: ViewerConfig) -> Self {
        let settings = match &config.choice {
            Choice::Known { settings, .. } => *settings,
            Choice::Catalog => strategy::usual().player(),
        };
        let settings = settings.with_buffer(config.buffer);
        Self {
            client: Client::new(Arc::new(config.target.clone())),
            settings,
            player: Player::new(settings),
            discovery: Discovery::default(),
            plan: None,
            tracks: Vec::new(),
            fetches: Vec::new(),
            streams: BTreeMap::new(),
            sequence: settings.in_sequence.then(Sequence::new),
            freshness: settings.stops_stale.then(Freshness::default),
            receive_window: ReceiveWindow::default(),
            publisher_tracker: PublisherTracker::default(),
            streams_refused: 0,
            records: Records::new(RECORDS_MAX),
            started_us: None,
            wake_at: None,
            phase: Phase::default(),
            patience: Patience::default(),
            numbering: Numbering::default(),
            catalogs_followed: 0,
            publishers_followed: 0,
            frames_of_former: 0,
            objects_unknown: 0,
            complaint: None,
            revoked: None,
            relays_left: 0,
            last_move: None,
            has_moved: false,
            departure: None,
            newest_group: None,
            join: config.join,
            config,
        }
    }

    /// Returns the fate of each frame that arrived, in the order of arrival.
    pub fn records(&self) -> &[FrameRecord] {
        self.records.kept()
    }

    /// Removes the records of frames whose time to be shown had not come when the player stopped. Returns how many.
    pub fn remove_waiting_frames(&mut self) -> usize {
        self.records.remove_waiting(self.player.shown_us())
    }

    /// Counts the frames after the first 4 million. They are played but not recorded.
    pub fn frames_not_recorded(&self) -> u64 {
        self.records.dropped()
    }

    /// Returns when the player began to connect, in microseconds of the shared clock.
    pub fn started_us(&self) -> Option<i64> {
        self.started_us
    }

    /// Returns when the stream ended, in microseconds of the shared clock, if it did.
    pub fn ended_us(&self) -> Option<i64> {
        let timebase = self.config.timebase;
        self.phase.ended_at().map(|at| timebase.microseconds(at))
    }

    /// Counts the objects in which no frame was found.
    pub fn objects_unknown(&self) -> u64 {
        self.objects_unknown
    }

    /// Returns why no frame was found in the last of these objects.
    pub fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }

    /// Returns the plan of the catalog; `None` before it arrives, and for known tracks.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Counts the later catalogs that the player followed, from a publisher that reconnected or changed its tracks.
    pub fn catalogs_followed(&self) -> u64 {
        self.catalogs_followed
    }

    /// Counts the publishers that took over with an equal catalog and that the player followed.
    pub fn publishers_followed(&self) -> u64 {
        self.publishers_followed
    }

    /// Counts how often the player left a relay for the next one.
    pub fn relays_left(&self) -> u64 {
        self.relays_left
    }

    /// Counts the frames of former publishers, which were not shown.
    pub fn frames_of_former(&self) -> u64 {
        self.frames_of_former
    }

    /// Counts the streams that the player stopped: because a newer keyframe waited behind them, or because too many
    /// streams or too many bytes were incomplete.
    pub fn streams_refused(&self) -> u64 {
        self.streams_refused
    }

    /// Returns the client of the relay.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns why the player last left a relay for the next one, if it did.
    pub fn last_move(&self) -> Option<&str> {
        self.last_move.as_deref()
    }

    /// Returns true if the session with the relay was established.
    pub fn had_session(&self) -> bool {
        self.client.setup_time().is_some()
    }

    /// Returns why the player failed, if it did. A player fails too if its authorization ended before the stream.
    pub fn failure(&self) -> Option<&str> {
        self.client.failure().or(self.revoked.as_deref())
    }

    fn handle_session_events(&mut self, turn: &mut Turn<'_>) {
        while let Some(event) = self.client.poll_event() {
            self.handle_session_event(turn, event);
        }
    }

    fn handle_session_event(&mut self, turn: &mut Turn<'_>, event: SessionEvent) {
        let now = turn.now;
        match event {
            SessionEvent::Ready { .. } => self.begin(turn),
            SessionEvent::Accepted {
                id,
                ok: Accepted::Subscribe(ok),
            } => {
                let largest = ok.parameters.largest_object;
                if self.discovery.has(id) {
                    self.on_metadata_accepted(turn, id, largest);
                } else {
                    self.on_subscribed(turn, id, largest);
                }
            }
            SessionEvent::Rejected { id, error } if self.discovery.has(id) => {
                self.on_metadata_rejected(turn, id, &error);
            }
            SessionEvent::Rejected { id, error } => self.on_rejected(turn, id, error),
            SessionEvent::Request { id, .. } => {
                let code = RequestErrorCode::NOT_SUPPORTED;
                let error = RequestError::new(code, "a player only subscribes");
                self.client.refuse(turn, id, error);
            }
            SessionEvent::Update { id, .. } => self.client.accept_update(turn, id),
            SessionEvent::Subgroup {
                stream,
                request,
                header,
            } => self.on_subgroup(turn, stream, request, &header),
            SessionEvent::Object { stream, object } => {
                self.on_object(turn, stream, &object);
            }
            SessionEvent::Fetched { stream, request } => self.on_fetched(stream, request),
            SessionEvent::FetchObject { stream, entry } => {
                self.on_fetch_entry(turn, stream, entry);
            }
            SessionEvent::Payload { stream, data } => {
                self.on_payload(turn, stream, &data);
            }
            SessionEvent::StreamEnd { stream, .. } => self.on_stream_end(now, stream),
            SessionEvent::Done { id, done } => self.on_done(now, id, &done),
            SessionEvent::Closed { id, .. } if self.discovery.has(id) => {
                self.on_metadata_closed(turn, id);
            }
            SessionEvent::Closed { id, .. } => self.on_track_end(now, id, None),
            SessionEvent::GoAway(goaway) => self.on_goaway(turn, &goaway),
            SessionEvent::Violated(violation) => {
                let reason = violation.text();
                let reason = format!("the relay violated the protocol: {reason}");
                self.client.fail(turn, violation.code, reason);
            }
            SessionEvent::Accepted { .. }
            | SessionEvent::Updated { .. }
            | SessionEvent::Namespace { .. }
            | SessionEvent::NamespaceDone { .. }
            | SessionEvent::PublishBlocked { .. }
            | SessionEvent::StateChanged { .. }
            | SessionEvent::RequestGoAway { .. }
            | SessionEvent::Datagram { .. } => {}
        }
    }

    /// Requests the catalog, or known tracks, when the session is established.
    fn begin(&mut self, turn: &mut Turn<'_>) {
        self.patience
            .start(turn.now, self.config.rendezvous_timeout);
        match self.config.choice.clone() {
            Choice::Catalog => self.discover(turn, self.config.rendezvous_timeout),
            Choice::Known { tracks, .. } => {
                let tracks = tracks.into_iter().map(|name| (name, None));
                self.subscribe(turn, tracks.collect());
            }
        }
    }

    fn on_rejected(&mut self, turn: &mut Turn<'_>, id: RequestId, error: RequestError) {
        // A refused fetch means that the current group has no earlier objects.
        let Some(place) = self.tracks.iter().position(|track| track.request == id) else {
            return;
        };
        let RequestError { code, reason, .. } = error;
        if may_be_duplicate(code) && self.tracks[place].retries.take() {
            // This request overtook the end of the previous subscription.
            let name = self.tracks[place].name.clone();
            if let Some(request) = self.subscribe_to_media(turn, &name, place) {
                self.tracks[place].request = request;
            }
        } else if self.catalogs_followed > 0 {
            // The publisher that reconnected has left again.
            self.on_track_end(turn.now, id, Some(0));
        } else if !self.asks_later(turn.now, code) {
            let reason = format!("the relay refused a track: {code} {reason:?}");
            self.client.fail(turn, SessionError::NO_ERROR, reason);
        }
    }

    /// Handles an accepted subscription. Fetches the earlier objects of the current group if the player joins there.
    fn on_subscribed(&mut self, turn: &mut Turn<'_>, id: RequestId, largest: Option<Location>) {
        self.on_accepted(id);
        if self.join == Join::Next || largest.is_none() {
            return;
        }
        if let Some(place) = self.tracks.iter().position(|track| track.request == id) {
            self.fetch_past(turn, id, StreamContent::Track(place));
        }
    }

    fn on_fetched(&mut self, stream: StreamId, request: RequestId) {
        let fetch = self.fetches.iter().find(|(fetch, _)| *fetch == request);
        if let Some((_, of)) = fetch {
            self.streams.insert(stream, Incoming::new(*of, 0, true));
        }
    }

    /// Handles PUBLISH_DONE of a track.
    fn on_done(&mut self, now: Instant, id: RequestId, done: &PublishDone) {
        let reason = match done.code {
            PublishDoneCode::EXPIRED => "the token has expired",
            PublishDoneCode::UNAUTHORIZED => "the credentials do not permit this any longer",
            _ => return self.on_track_end(now, id, done.stream_count),
        };
        if let Some(track) = self.tracks.iter().find(|track| track.request == id) {
            let (name, code) = (&track.name, done.code);
            self.revoked = Some(format!(
                "the relay ended the track {name:?}: {code} {reason:?}"
            ));
        }
        self.on_track_end(now, id, done.stream_count);
    }

    /// Ends a track. Objects may still arrive, on as many streams in all as `streams` says.
    fn on_track_end(&mut self, now: Instant, id: RequestId, streams: Option<u64>) {
        if let Some(track) = self.tracks.iter_mut().find(|track| track.request == id) {
            track.end(streams);
            if self.tracks.iter().all(Track::is_over) {
                self.phase.on_ended(now);
            }
        }
    }

    fn on_subgroup(
        &mut self,
        turn: &mut Turn<'_>,
        stream: StreamId,
        request: RequestId,
        header: &SubgroupHeader,
    ) {
        let mut tracks = self.tracks.iter_mut().zip(0..);
        let found = tracks.find(|(track, _)| track.request == request);
        let of = match found {
            Some((track, place)) => {
                track.streams += 1;
                if place == 0 {
                    self.newest_group = self.newest_group.max(Some(header.group));
                }
                StreamContent::Track(place)
            }
            None if self.discovery.has(request) => StreamContent::Metadata(request),
            None => return,
        };
        if self.streams.len() >= STREAMS_MAX {
            return self.refuse(turn, stream, ResetCode::EXCESSIVE_LOAD);
        }
        let mut incoming = Incoming::new(of, header.group, false);
        incoming.subgroup = match header.subgroup {
            SubgroupId::Zero => Some(0),
            SubgroupId::Explicit(subgroup) => Some(subgroup),
            SubgroupId::FirstObject => None,
        };
        self.streams.insert(stream, incoming);
    }

    fn refuse(&mut self, turn: &mut Turn<'_>, stream: StreamId, code: ResetCode) {
        self.streams_refused += 1;
        self.streams.remove(&stream);
        if let Some((session, mut connection)) = self.client.open(turn) {
            session.stop_data(&mut connection, stream, code);
        }
    }

    fn on_stream_end(&mut self, now: Instant, stream: StreamId) {
        if let Some(incoming) = self.streams.remove(&stream)
            && incoming.of == StreamContent::Track(0)
            && !incoming.is_fetch
            && let Some(sequence) = &mut self.sequence
        {
            sequence.end(incoming.group);
            self.pass(now);
        }
    }

    /// Processes the frames that are next in sequence.
    fn pass(&mut self, now: Instant) {
        let passing = self.sequence.as_mut().map(Sequence::poll);
        for whole in passing.into_iter().flatten() {
            self.on_frame(now, &whole);
        }
    }

    fn on_frame(&mut self, now: Instant, whole: &ReceivedFrame) {
        let ReceivedFrame {
            group,
            tag,
            has_frame_tag,
            bytes,
        } = *whole;
        let now_us = self.config.timebase.microseconds(now);
        let record = self.records.push(FrameRecord {
            number: self.numbering.number(tag.number),
            group,
            kind: tag.kind.letter(),
            bytes,
            presentation_us: tag.presentation_us,
            available_us: has_frame_tag.then_some(tag.available_us),
            arrived_us: now_us,
            shown_us: None,
        });
        let arrival = Arrival {
            number: record,
            kind: tag.kind,
            is_disposable: tag.is_disposable,
            group,
            references: tag.references,
            decode_us: tag.decode_us,
            presentation_us: tag.presentation_us,
            duration_us: tag.duration_us,
        };
        if self.player.push(now_us, arrival) != Fate::Waiting {
            self.records.settle(record);
        }
    }

    /// Limits what is in flight, if the strategy wants that.
    fn limit_queue(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let Some((_, mut connection)) = self.client.open(turn) else {
            return;
        };
        if !self.settings.limits_queue {
            self.receive_window.open();
        }
        if self.receive_window.wants_probe(now) {
            connection.probe();
        }
        let stats = connection.stats();
        let (round_trip, received) = (stats.round_trip, stats.bytes_received);
        if let Some(bytes) = self.receive_window.update(now, round_trip, received) {
            connection.set_receive_window(bytes);
        }
    }

    /// Shows the frames that are due.
    fn play(&mut self, now: Instant) {
        let now_us = self.config.timebase.microseconds(now);
        while let Some(shown) = self.player.poll(now_us) {
            self.records.settle(shown.frame.number);
            let record = self.records.find(shown.frame.number);
            if let Some(record) = record.filter(|_| shown.is_decodable) {
                record.shown_us = Some(now_us);
                if let Some(freshness) = &mut self.freshness {
                    freshness.note_shown(shown.frame.group);
                }
            }
        }
        let next_us = self.player.poll_timeout(now_us);
        self.wake_at = next_us.map(|us| self.config.timebase.instant(us.max(now_us + 1)));
    }
}

impl App for Viewer {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let turn = &mut Turn { now, endpoint };
        // Live media does not use datagrams.
        if let Event::Datagram { .. } = event {
            return;
        }
        if matches!(event, Event::Lost { .. }) && self.phase.waits_until().is_some() {
            return self.client.close(turn, "the stream is over");
        }
        // A player opens no data streams, so it handles every event.
        let _nothing = self.client.handle_event(turn, event);
        self.handle_session_events(turn);
        self.depart(turn);
        self.note_move();
        self.limit_queue(turn);
        self.play(now);
        self.leave(turn);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.client.is_closed() {
            return None;
        }
        if !self.client.has_started() {
            return Some(self.config.timebase.at);
        }
        let give_up_at = self.discovery.poll_timeout();
        [
            self.client.poll_timeout(),
            self.wake_at,
            self.leave_at(),
            give_up_at,
            self.phase.answer_by(),
            self.patience.poll_timeout(),
            self.departure.as_ref().map(Departure::poll_timeout),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        if self.client.is_closed() {
            return;
        }
        if !self.client.has_started() {
            self.started_us = Some(self.config.timebase.microseconds(now));
            self.client.connect(turn, SOCKET);
        }
        self.client.handle_timeout(turn);
        self.on_discovery_timeout(turn);
        self.on_answer_timeout(turn);
        self.ask_again(turn);
        self.handle_session_events(turn);
        self.depart(turn);
        self.note_move();
        self.play(now);
        self.leave(turn);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        self.client.close(turn, "the player was stopped");
    }

    fn is_finished(&self) -> bool {
        self.client.is_closed()
    }
}

/// The only socket of the host.
const SOCKET: u32 = 0;
/// Streams that may be open at the same time. Further ones are stopped.
const STREAMS_MAX: usize = 1024;
