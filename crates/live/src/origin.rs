//! The origin: publishes a live stream to a relay by a strategy.

mod drain;
mod media;
mod metadata;
mod moving;
mod offers;
mod publication;
mod send_stream;
mod streams;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use weir_client::client::Client;
use weir_client::peer::DataEvent;
use weir_client::target::Target;
use weir_client::turn::Turn;
use weir_moqt::error::ResetCode;
use weir_moqt::location::Location;
use weir_moqt::message::Subscribe;
use weir_moqt::name::{FullTrackName, NameError, Namespace, TrackName};
use weir_moqt::parameter::Parameters;
use weir_moqt::property::Properties;
use weir_moqt::session::{Accepted, Event as SessionEvent, RequestId};
use weir_quic::{App, Endpoint, Event};

use self::drain::Drain;
use self::metadata::{FetchResponse, METADATA_PRIORITY, MetadataTrack};
use self::moving::{Departure, Resumption};
pub use self::publication::PublishFlow;
use self::publication::{Publication, RequestState, Terms};
use self::send_stream::Object;
use self::streams::Streams;
use crate::catalog::{CATALOG_TRACK, Catalog, INIT_TRACK, audio_track};
use crate::packaging::{FrameTag, Packaging};
use crate::source::Source;
use crate::strategy::{Step, Strategy, StreamKey};
use crate::timebase::Timebase;
use crate::{FrameKind, Init, Item};

/// The configuration of an origin.
#[derive(Debug)]
pub struct OriginConfig {
    /// The relay.
    pub target: Target,
    /// The namespace of the tracks.
    pub namespace: Namespace,
    /// How tracks are offered.
    pub flow: PublishFlow,
    /// The delivery strategy.
    pub strategy: Box<dyn Strategy>,
    /// Whether a relay that is not weir's gets [`Strategy::for_other_relays`].
    pub fits_relay: bool,
    /// The packaging of objects.
    pub packaging: Packaging,
    /// The clock of the capture times in frame tags.
    pub timebase: Timebase,
    /// The source of frames.
    pub source: Box<dyn Source>,
}

/// The counters of an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginCounters {
    /// Frames that came from the source.
    pub frames: u64,
    /// Frames written to a stream.
    pub frames_written: u64,
    /// Audio objects that came from the source.
    pub audio_objects: u64,
    /// Streams that the strategy reset.
    pub streams_reset: u64,
    /// Streams given up because more than 8 MiB were queued for one stream, or 32 MiB for all.
    pub streams_overflowed: u64,
    /// Responses to a FETCH of the init segment or the catalog.
    pub fetches_answered: u64,
    /// Requests refused because 16 others were already waiting for the tracks to be known.
    pub early_over_limit: u64,
    /// How often the origin left a relay for the next one.
    pub relays_left: u64,
    /// Frames between the loss of a relay and the next keyframe, which were not published.
    pub frames_skipped: u64,
}

/// The origin of a live stream, as a client of a relay.
#[derive(Debug)]
pub struct Origin {
    client: Client,
    namespace: Namespace,
    flow: PublishFlow,
    /// The state of `PUBLISH_NAMESPACE`.
    namespace_offer: RequestState,
    /// When the relay must have accepted the offer.
    answer_by: Option<Instant>,
    strategy: Box<dyn Strategy>,
    fits_relay: bool,
    packaging: Packaging,
    timebase: Timebase,
    source: Box<dyn Source>,
    /// Tracks by alias: first those of the strategy, then metadata, then audio.
    publications: Vec<Publication>,
    init: Option<Box<Init>>,
    metadata: Vec<MetadataTrack>,
    fetch_responses: Vec<FetchResponse>,
    /// SUBSCRIBEs that arrived before the tracks were known.
    waiting_subscribes: Vec<(RequestId, Subscribe)>,
    /// The Group ID of the first group: the time of day. So an origin that restarts continues with higher groups, and
    /// no relay mistakes its groups for earlier ones.
    first_group: u64,
    /// The current group, counted from the first.
    group: u64,
    streams: Streams,
    steps: Vec<Step>,
    counters: OriginCounters,
    /// The drain after the end of the source.
    drain: Option<Drain>,
    /// The relay has sent GOAWAY.
    departure: Option<Departure>,
    /// A keyframe that the next relay gets.
    held: Option<(Instant, Item)>,
    /// The first objects at a relay that was moved to.
    resumption: Resumption,
    /// Whether the rest of a group is left out.
    awaits_keyframe: bool,
    /// Why the origin last left a relay for the next one.
    last_move: Option<String>,
}

impl Origin {
    /// Returns an origin that connects when it is first driven.
    pub fn new(config: OriginConfig) -> Self {
        Self {
            client: Client::new(Arc::new(config.target)),
            namespace: config.namespace,
            flow: config.flow,
            namespace_offer: RequestState::None,
            answer_by: None,
            strategy: config.strategy,
            fits_relay: config.fits_relay,
            packaging: config.packaging,
            timebase: config.timebase,
            source: config.source,
            publications: Vec::new(),
            init: None,
            metadata: Vec::new(),
            fetch_responses: Vec::new(),
            waiting_subscribes: Vec::new(),
            first_group: 0,
            group: 0,
            streams: Streams::default(),
            steps: Vec::new(),
            counters: OriginCounters::default(),
            drain: None,
            departure: None,
            held: None,
            resumption: Resumption::default(),
            awaits_keyframe: false,
            last_move: None,
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> OriginCounters {
        self.counters
    }

    /// Returns the client of the relay.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns why the origin failed, if it did.
    pub fn failure(&self) -> Option<&str> {
        self.client.failure()
    }

    /// Returns why the origin last left a relay for the next one, if it did.
    pub fn last_move(&self) -> Option<&str> {
        self.last_move.as_deref()
    }

    /// Whether the relay has accepted all tracks of the strategy, or their namespace. Until then the origin takes
    /// nothing from the source.
    pub fn is_published(&self) -> bool {
        if self.flow == PublishFlow::Namespace {
            return self.namespace_offer.is_accepted();
        }
        let count = self.strategy.tracks().len();
        let is_accepted = |publication: &Publication| publication.request.is_accepted();
        self.publications.len() >= count && self.publications[..count].iter().all(is_accepted)
    }

    fn handle_session_events(&mut self, turn: &mut Turn<'_>) {
        while let Some(event) = self.client.poll_event() {
            match event {
                SessionEvent::Ready { .. } => self.publish(turn),
                SessionEvent::Accepted { id, ok } => self.on_accepted(turn, id, &ok),
                SessionEvent::Rejected { id, error } => self.on_rejected(turn, id, &error),
                SessionEvent::Request { id, request } => self.answer(turn, id, &request),
                SessionEvent::Update { id, parameters, .. } => {
                    self.apply_parameters(turn, id, &parameters);
                    self.client.accept_update(turn, id);
                }
                SessionEvent::Closed { id, reason } => self.on_closed(turn, id, reason),
                SessionEvent::GoAway(_) if self.has_arrived() => {
                    self.client.close(turn, "the stream is over");
                }
                // The rest of the stream arrives within the relay's time to drain, or never.
                SessionEvent::GoAway(_) if self.drain.is_some() => {}
                SessionEvent::GoAway(goaway) => self.on_goaway(turn, goaway),
                SessionEvent::Violated(violation) => {
                    let reason = violation.text();
                    let reason = format!("the relay violated the protocol: {reason}");
                    self.client.fail(turn, violation.code, reason);
                }
                // Responses to requests that an origin never sends, and objects without a subscription.
                SessionEvent::Updated { .. }
                | SessionEvent::Done { .. }
                | SessionEvent::Namespace { .. }
                | SessionEvent::NamespaceDone { .. }
                | SessionEvent::PublishBlocked { .. }
                | SessionEvent::StateChanged { .. }
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

    /// Handles the relay's acceptance of a PUBLISH or of the `PUBLISH_NAMESPACE`.
    fn on_accepted(&mut self, turn: &mut Turn<'_>, id: RequestId, ok: &Accepted) {
        let tracks = self.publications.iter_mut();
        let tracks = tracks.map(|publication| &mut publication.request);
        for offer in tracks.chain([&mut self.namespace_offer]) {
            if *offer == RequestState::Offered(id) {
                *offer = RequestState::Established(id);
            }
        }
        if let Accepted::Ok(ok) = ok {
            self.apply_parameters(turn, id, &ok.parameters);
        }
    }

    /// Applies the peer's parameters of a track: its priority, and whether to forward objects.
    fn apply_parameters(&mut self, turn: &mut Turn<'_>, id: RequestId, parameters: &Parameters) {
        if let Some((_, subscribe)) = self
            .waiting_subscribes
            .iter_mut()
            .find(|(early, _)| *early == id)
        {
            return subscribe.parameters.change(parameters);
        }
        let mut publications = self.publications.iter_mut().enumerate();
        let found = publications.find(|(_, one)| one.request.id() == Some(id));
        let (Some((track, publication)), Some((_, mut connection))) =
            (found, self.client.open(turn))
        else {
            return;
        };
        publication.apply_parameters(parameters);
        publication.forward(parameters, self.group);
        if !publication.is_forwarded {
            for key in self.streams.of_track(track) {
                let code = ResetCode::CANCELLED;
                let is_given_up = self.streams.give_up(&mut connection, key, code);
                self.counters.streams_reset += u64::from(is_given_up);
            }
        }
        self.streams.update_ranks(&mut connection, track, |order| {
            publication.rank(order.priority, order.key.group, order.key.subgroup)
        });
    }

    /// Does everything that is due.
    fn advance(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        if !self.client.has_started() {
            self.client.connect(turn, SOCKET);
        }
        let is_published = self.is_published();
        while self.resumption.is_over(now, is_published)
            && is_published
            && !self.streams.is_full()
            && !self.is_about_to_leave()
            && let Some((at, item)) = self.next_item(now)
        {
            match item {
                Item::Init(init) => self.on_init(turn, init),
                Item::Frame(frame) => self.on_frame(turn, at, &frame),
                Item::Audio {
                    track,
                    presentation_us,
                    duration_us,
                    fragment,
                    samples,
                    sizes,
                } => {
                    let tag = FrameTag {
                        kind: FrameKind::Key,
                        is_disposable: false,
                        references: 0,
                        available_us: self.timebase.microseconds(at),
                        decode_us: presentation_us,
                        presentation_us,
                        duration_us,
                        number: self.counters.audio_objects,
                    };
                    match self.packaging {
                        Packaging::Cmaf => {
                            self.on_audio(turn, track, tag, &fragment, &samples);
                        }
                        Packaging::Loc => {
                            for (tag, sample) in tag.split(&samples, &sizes) {
                                self.on_audio(turn, track, tag, &fragment, &sample);
                            }
                        }
                    }
                }
            }
        }
        self.answer_waiting(turn);
        for key in self.streams.expired(now) {
            self.reset(turn, key);
        }
        self.flush(turn);
        if self.source.is_over() && self.held.is_none() {
            self.drain(turn);
        }
        self.depart(turn);
    }

    /// Keeps the catalog and the init segment, and offers them.
    fn on_init(&mut self, turn: &mut Turn<'_>, init: Box<Init>) {
        let now_ms = self.timebase.microseconds(turn.now) / 1000;
        let catalog = Catalog::new(&init, &*self.strategy, self.packaging, now_ms);
        let at = Location {
            group: self.first_group,
            object: 0,
        };
        for (name, payload) in [
            (CATALOG_TRACK, catalog.encode()),
            (INIT_TRACK, init.segment.clone()),
        ] {
            self.metadata.push(MetadataTrack { name, at, payload });
        }
        self.init = Some(init);
        self.offer_init(turn);
    }

    /// Offers the catalog, the init segment and audio, in this order: a subscriber that has one of them can also find
    /// those before it.
    fn offer_init(&mut self, turn: &mut Turn<'_>) {
        for number in 0..self.metadata.len() {
            let track = &self.metadata[number];
            let (name, payload) = (track.name, track.payload.clone());
            if let Some(alias) = self.offer(turn, name, Terms::METADATA) {
                self.write_metadata(turn, alias, payload);
            }
        }
        let audio = self.init.iter().flat_map(|init| &init.audio);
        let numbers: Vec<u32> = audio.map(|audio| audio.number).collect();
        for number in numbers {
            let name = audio_track(number);
            let terms = Terms {
                audio: Some(number),
                ..Terms::PLAIN
            };
            self.offer(turn, &name, terms);
        }
        self.answer_waiting(turn);
    }

    /// Writes the object of a metadata track.
    fn write_metadata(&mut self, turn: &mut Turn<'_>, track: usize, payload: Bytes) {
        let key = StreamKey {
            track,
            group: 0,
            subgroup: 0,
        };
        let object = Object {
            id: 0,
            properties: Properties::EMPTY,
            payload,
        };
        self.write(turn, key, METADATA_PRIORITY, object);
        self.streams.finish(key);
    }

    fn reset(&mut self, turn: &mut Turn<'_>, key: StreamKey) {
        if let Some((_, mut connection)) = self.client.open(turn) {
            let is_reset = self.streams.reset(&mut connection, key);
            self.counters.streams_reset += u64::from(is_reset);
        }
    }

    /// Writes queued data, as far as the connection accepts it.
    fn flush(&mut self, turn: &mut Turn<'_>) {
        let Some((_, mut connection)) = self.client.open(turn) else {
            return;
        };
        let connection = &mut connection;
        self.fetch_responses
            .retain_mut(|answer| answer.flush(connection));
        let publications = &mut self.publications;
        self.streams.flush(connection, |track| {
            if let Some(publication) = publications.get_mut(track) {
                publication.streams_opened += 1;
            }
        });
    }
}

impl App for Origin {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let turn = &mut Turn { now, endpoint };
        // Live media does not use datagrams.
        if let Event::Datagram { .. } = event {
            return;
        }
        if matches!(event, Event::Lost { .. }) && self.has_arrived() {
            return self.client.close(turn, "the stream is over");
        }
        match self.client.handle_event(turn, event) {
            None | Some(DataEvent::Datagram(..)) => {}
            Some(DataEvent::Writable(_) | DataEvent::StreamsAvailable) => {
                self.flush(turn);
                self.end_tracks_if_over(turn);
            }
            Some(DataEvent::Acknowledged(stream)) => {
                self.streams.arrived(stream);
                self.end_tracks_if_over(turn);
            }
            Some(DataEvent::Stopped(stream, _)) => {
                if let Some((_, mut connection)) = self.client.open(turn)
                    && self.streams.stopped(&mut connection, stream)
                {
                    self.counters.streams_reset += 1;
                }
                self.end_tracks_if_over(turn);
            }
        }
        self.handle_session_events(turn);
        self.depart(turn);
        self.note_move();
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.client.is_closed() {
            return None;
        }
        if !self.client.has_started() {
            return Some(self.timebase.at);
        }
        // The origin takes nothing from the source until the relay has accepted the tracks.
        let is_ready = self.is_published() && !self.streams.is_full() && !self.is_about_to_leave();
        let is_awaited = self.drain.is_none() && (is_ready || self.source.is_over());
        let next_at = self.source.next_at().filter(|_| is_awaited);
        let next_at = self.resumption.poll_timeout().or(next_at);
        let look_at = self.drain.as_ref().map(|drain| drain.look_at);
        [
            self.client.poll_timeout(),
            next_at,
            self.streams.next_deadline(),
            look_at,
            self.departure.as_ref().map(|departure| departure.by),
            self.answer_by.filter(|_| !self.is_published()),
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
        self.client.handle_timeout(turn);
        self.on_answer_timeout(turn);
        self.advance(turn);
        self.handle_session_events(turn);
        self.note_move();
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        self.client.close(turn, "the origin was stopped");
    }

    fn is_finished(&self) -> bool {
        self.client.is_closed()
    }
}

/// Returns the full name of a track in a namespace.
pub(crate) fn track(namespace: &Namespace, name: &str) -> Result<FullTrackName, NameError> {
    FullTrackName::new(namespace.clone(), TrackName::new(name)?)
}

/// The only socket of the host.
const SOCKET: u32 = 0;
