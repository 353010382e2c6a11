//! Publishers: clients that send the tracks of a profile by their schedules.
//!
//! A [`PublisherRole`] hosts any number of publishers, each on a connection of its own. They offer their tracks to the
//! relay and wait. [`release`](PublisherRole::release) begins all schedules at the same instant; the caller decides
//! whether every subscriber must be served first (decision 8). The role does not know subscribers, and opens no socket.

mod client;
mod fetch_response;
mod offer;
mod outgoing;
mod publication;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use weir_moqt::draft::Draft;
use weir_moqt::name::FullTrackName;
use weir_moqt::session::Event as SessionEvent;
use weir_quic::{App, ConnectionStats, Endpoint, Event};

use self::client::PublisherClient;
use crate::clock::ramp_time;
use crate::limits::{CONNECTS_PER_TURN_MAX, ITEMS_PER_TURN_MAX};
use crate::measured::PublishersMeasured;
use crate::metrics::{SenderResult, SentTotals, TrackPlan};
use crate::part::Part;
use crate::rendezvous::Awaited;
use crate::scenario::NamedTrack;
use weir_client::client::Client;
use weir_client::clients::Clients;
use weir_client::peer::DataEvent;
use weir_client::target::Target;
use weir_client::turn::Turn;
use weir_histogram::Histogram;

/// The configuration of publishers.
#[derive(Clone, Debug)]
pub struct PublisherConfig {
    /// The relay.
    pub target: Target,
    /// The tracks of the profile.
    pub plans: Arc<[TrackPlan]>,
    /// The tracks of each publisher, one entry per connection.
    pub publishers: Vec<Vec<NamedTrack>>,
    /// Which of the run's publishers these are.
    pub part: Part,
    /// How tracks are offered.
    pub flow: PublishFlow,
    /// Connections started per second, or zero for all at once.
    pub ramp_per_second: u32,
    /// Subscribers of other processes that have to be subscribed before the tracks count as served.
    pub await_subscribers: Option<u64>,
}

/// How tracks are offered, since relays differ (decision 33).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishFlow {
    /// PUBLISH for each track. [moqt-18 §10.10]
    Publish,
    /// `PUBLISH_NAMESPACE` for each namespace; the relay subscribes when it has a subscriber.
    /// [moqt-18 §10.15]
    PublishNamespace,
}

/// Why the schedules cannot begin.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReleaseError {
    /// An object does not fit into a datagram of the path to the relay (decision 26).
    #[error(
        "{name}: objects of {object_bytes} bytes make datagrams of {datagram_bytes} bytes, but the \
         path to the relay carries {datagram_bytes_max}"
    )]
    TooLarge {
        /// The track.
        name: FullTrackName,
        /// Bytes of the largest object.
        object_bytes: u32,
        /// Bytes of its datagram.
        datagram_bytes: usize,
        /// Bytes of the largest datagram that the path carries.
        datagram_bytes_max: usize,
    },
}

/// A publisher's measurements of one track.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublicationResult {
    /// The publisher's number in the role.
    pub publisher: usize,
    /// The index of the track's plan.
    pub plan: usize,
    /// The track's name.
    #[serde(with = "crate::measured::track_name")]
    pub name: FullTrackName,
    /// Counts of sent objects.
    pub sender: SenderResult,
    /// The totals that subscribers compare with.
    pub totals: SentTotals,
}

/// The progress of publishers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublisherProgress {
    /// Publishers in all.
    pub publishers: u64,
    /// Publishers with an established session.
    pub ready: u64,
    /// Publishers that have had a session, open or not.
    pub established: u64,
    /// Publishers that failed.
    pub failed: u64,
    /// Tracks in all.
    pub tracks: u64,
    /// Tracks that the relay accepts objects of.
    pub served: u64,
    /// Tracks that were sent to their end.
    pub done: u64,
    /// DATA objects sent.
    pub objects_sent: u64,
    /// DATA objects that were not sent.
    pub refused: u64,
    /// Subscribers of other processes that have announced themselves, if they are awaited.
    pub present: u64,
    /// Subscribers of other processes that have to announce themselves before objects are sent; 0 if none are awaited.
    pub awaited: u64,
    /// Announcements of subscribers that were not counted: malformed, or of too many processes.
    pub ignored_announcements: u64,
}

impl PublisherProgress {
    /// Adds the progress of other publishers. All of them see the same subscribers of other processes.
    pub fn add(&mut self, other: &Self) {
        for (own, other) in [
            (&mut self.publishers, other.publishers),
            (&mut self.ready, other.ready),
            (&mut self.established, other.established),
            (&mut self.failed, other.failed),
            (&mut self.tracks, other.tracks),
            (&mut self.served, other.served),
            (&mut self.done, other.done),
            (&mut self.objects_sent, other.objects_sent),
            (&mut self.refused, other.refused),
        ] {
            *own = own.saturating_add(other);
        }
        self.present = self.present.max(other.present);
        self.awaited = self.awaited.max(other.awaited);
        self.ignored_announcements = self.ignored_announcements.max(other.ignored_announcements);
    }
}

/// Publishers on one endpoint.
#[derive(Debug)]
pub struct PublisherRole {
    config: PublisherConfig,
    clients: Vec<PublisherClient>,
    /// The publishers' connections. In a meeting, subscribers share them.
    pub(crate) connections: Clients,
    started: Instant,
    connected: usize,
    released: Option<Instant>,
    /// When each track of each publisher is due.
    agenda: BinaryHeap<Reverse<(Instant, usize, usize)>>,
    next_check: Instant,
    close_at: Option<Instant>,
    awaited: Option<Awaited>,
    /// Whether connections stay open after the end of all tracks, until [`Self::close`].
    is_held_open: bool,
    closed: bool,
    buffer: BytesMut,
}

impl PublisherRole {
    /// Returns publishers that start to connect at `now`.
    pub fn new(config: PublisherConfig, now: Instant) -> Self {
        let clients: Vec<_> = config
            .publishers
            .iter()
            .map(|tracks| PublisherClient::new(tracks, &config.plans))
            .collect();
        let run_id = config.plans.first().map_or(0, TrackPlan::run_id);
        let awaited = config.await_subscribers;
        Self {
            awaited: awaited.map(|subscribers| Awaited::new(run_id, subscribers)),
            connections: Clients::new(config.target.clone(), clients.len()),
            config,
            clients,
            started: now,
            connected: 0,
            released: None,
            agenda: BinaryHeap::new(),
            next_check: now,
            close_at: None,
            is_held_open: false,
            closed: false,
            buffer: BytesMut::with_capacity(BUFFER_BYTES),
        }
    }

    /// Returns publishers whose connections are shared, so that they stay open after the end of all tracks.
    pub(crate) fn held_open(config: PublisherConfig, now: Instant) -> Self {
        Self {
            is_held_open: true,
            ..Self::new(config, now)
        }
    }

    /// Returns the number of publishers.
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether the end of every track was announced, or cannot be.
    pub(crate) fn is_done(&self) -> bool {
        self.released.is_some() && self.clients.iter().all(PublisherClient::is_done)
    }

    /// Whether the relay has answered every offer, with acceptance or refusal.
    pub fn has_announced(&self) -> bool {
        self.clients.iter().all(PublisherClient::has_announced)
    }

    /// Whether the relay accepts objects of every track, publishers that failed aside, and all awaited subscribers are
    /// there.
    pub fn is_served(&self) -> bool {
        let is_lost = || self.clients.iter().all(|client| client.failure().is_some());
        let has_all = self.awaited.as_ref().is_none_or(Awaited::is_complete);
        (has_all || is_lost()) && self.clients.iter().all(PublisherClient::is_served)
    }

    /// Begins all schedules at `now` (decision 8). Later calls do nothing.
    ///
    /// # Errors
    /// The largest object of a datagram track does not fit into a datagram. In this case nothing was begun.
    pub fn release(&mut self, now: Instant, endpoint: &mut Endpoint) -> Result<(), ReleaseError> {
        let turn = &mut Turn { now, endpoint };
        if self.released.is_some() {
            return Ok(());
        }
        for (number, client) in self.clients.iter_mut().enumerate() {
            let connection = &mut self.connections[number];
            client.check_datagram_sizes(turn, connection, &self.config.plans)?;
        }
        self.released = Some(now);
        for (client, publisher) in self.config.publishers.iter().enumerate() {
            for track in 0..publisher.len() {
                self.agenda.push(Reverse((now, client, track)));
            }
        }
        Ok(())
    }

    /// Returns when the schedules began.
    pub fn released_at(&self) -> Option<Instant> {
        self.released
    }

    /// Closes all connections, since the run is over.
    pub fn close(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if !self.closed {
            for (number, stats) in self.connection_stats(now, endpoint) {
                self.clients[number].note_dropped(&stats, &self.config.plans);
            }
        }
        let turn = &mut Turn { now, endpoint };
        for number in 0..self.clients.len() {
            self.connections[number].close(turn, "the benchmark is over");
        }
        self.connected = self.clients.len();
        self.agenda.clear();
        self.closed = true;
    }

    /// Returns the progress of the publishers. Visits every track.
    pub fn progress(&self) -> PublisherProgress {
        let mut progress = PublisherProgress::default();
        for (number, client) in self.clients.iter().enumerate() {
            client.add_to(&mut progress, self.connections[number].is_ready());
        }
        if let Some(awaited) = &self.awaited {
            progress.present = awaited.present();
            progress.awaited = awaited.subscribers();
            progress.ignored_announcements = awaited.ignored();
        }
        progress
    }

    /// Returns what was sent of every track.
    pub fn results(&self) -> Vec<PublicationResult> {
        let clients = self.clients.iter().enumerate();
        clients
            .flat_map(|(number, client)| client.results(number))
            .collect()
    }

    /// Returns the delays from planned time to time of sending for one plan, over all publishers.
    pub fn lateness(&self, plan: usize) -> Histogram {
        let mut total = Histogram::new();
        for client in &self.clients {
            client.add_lateness(plan, &mut total);
        }
        total
    }

    /// Returns why publishers failed, by their numbers.
    pub fn failures(&self) -> impl Iterator<Item = (usize, &str)> {
        let clients = self.clients.iter().enumerate();
        clients.filter_map(|(number, client)| Some((number, client.failure()?)))
    }

    /// Returns why publishers failed before all of their tracks had ended, by their numbers.
    pub fn cut_off(&self) -> impl Iterator<Item = (usize, &str)> {
        let clients = self.clients.iter().enumerate();
        let cut_off = clients.filter(|(_, client)| client.is_cut_off());
        cut_off.filter_map(|(number, client)| Some((number, client.failure()?)))
    }

    /// Returns all that was measured.
    pub fn measured(&self) -> PublishersMeasured {
        let reason = |(_, reason): (usize, &str)| reason.to_owned();
        let plans = 0..self.config.plans.len();
        PublishersMeasured {
            results: self.results(),
            lateness: plans.map(|plan| self.lateness(plan)).collect(),
            progress: self.progress(),
            failures: self.failures().map(reason).collect(),
            cut_off: self.cut_off().map(reason).collect(),
            draft: self.draft(),
        }
    }

    /// Returns the draft of the first session, by publisher number, that has one.
    pub fn draft(&self) -> Option<Draft> {
        self.connections.iter().find_map(Client::draft)
    }

    /// Returns statistics of the open connections, by publisher number.
    pub fn connection_stats(
        &self,
        now: Instant,
        endpoint: &mut Endpoint,
    ) -> Vec<(usize, ConnectionStats)> {
        let clients = self.connections.iter().enumerate();
        let stats = clients.filter_map(|(number, client)| {
            let connection = endpoint.connection(now, client.handle()?)?;
            Some((number, connection.stats()))
        });
        stats.collect()
    }

    /// Whether the event belongs to one of these publishers' connections.
    pub fn owns(&self, event: &Event) -> bool {
        self.connections.number_of(event).is_some()
    }

    /// Returns when client `client` starts to connect.
    fn connects_at(&self, client: usize) -> Instant {
        let number = self.config.part.number_in_run(client) as u64;
        ramp_time(self.started, self.config.ramp_per_second, number)
    }

    /// Returns when the next client starts to connect.
    fn next_connect(&self) -> Option<Instant> {
        let waiting = self.connected < self.clients.len();
        waiting.then(|| self.connects_at(self.connected))
    }

    fn connect_some(&mut self, turn: &mut Turn<'_>) {
        for _ in 0..CONNECTS_PER_TURN_MAX {
            if self.next_connect().is_none_or(|at| at > turn.now) {
                return;
            }
            let number = self.connected;
            self.connected += 1;
            self.connections.connect(turn, number);
            self.note_failure(number);
        }
    }

    /// Handles an event of a client's data streams.
    pub(crate) fn on_data_event(&mut self, turn: &mut Turn<'_>, number: usize, event: &DataEvent) {
        let (connection, plans) = (&mut self.connections[number], &self.config.plans);
        self.clients[number].on_data_event(turn, connection, plans, event);
    }

    /// Handles an event of a client's session.
    pub(crate) fn on_session_event(
        &mut self,
        turn: &mut Turn<'_>,
        number: usize,
        event: SessionEvent,
    ) {
        let (connection, config) = (&mut self.connections[number], &self.config);
        if let Some(awaited) = &mut self.awaited {
            let heard = awaited.on_session_event(turn, connection, number, &event);
            if let Err(problem) = heard {
                // None of them may begin without the subscribers.
                for client in &mut self.clients {
                    client.fail(problem.clone());
                }
            }
        }
        self.clients[number].on_session_event(turn, connection, config, event);
    }

    /// Fails the publisher if its connection has failed.
    pub(crate) fn note_failure(&mut self, number: usize) {
        if let Some(reason) = self.connections[number].failure() {
            self.clients[number].fail(reason.to_owned());
        }
    }

    fn drain(&mut self, turn: &mut Turn<'_>, number: usize) {
        while let Some(event) = self.connections[number].poll_event() {
            self.on_session_event(turn, number, event);
        }
        self.note_move(number);
        self.note_failure(number);
    }

    /// Notes whether a client has left its relay for the next one. Returns whether it has.
    pub(crate) fn note_move(&mut self, number: usize) -> bool {
        let has_moved = self.connections[number].take_move().is_some();
        if has_moved {
            self.clients[number].on_move();
        }
        has_moved
    }

    /// Sends the due items of one track, and schedules the next.
    fn send_due(&mut self, turn: &mut Turn<'_>, released: Instant, client: usize, track: usize) {
        let plans = &self.config.plans;
        let publisher = &mut self.clients[client];
        for _ in 0..ITEMS_PER_TURN_MAX {
            let connection = &mut self.connections[client];
            if !publisher.send_due(turn, connection, released, plans, track, &mut self.buffer) {
                break;
            }
        }
        if let Some(next) = publisher.next_at(turn.now, released, plans, track) {
            self.agenda.push(Reverse((next, client, track)));
        }
    }

    /// Handles what needs no timer of its own: session timeouts and the ends of tracks.
    fn check(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        self.next_check = now + CHECK_PERIOD;
        for (number, client) in self.clients.iter_mut().enumerate() {
            let connection = &mut self.connections[number];
            if connection.has_started() {
                client.on_check(turn, connection, &self.config.plans);
            }
        }
        if !self.is_held_open && self.is_done() {
            let close_at = *self.close_at.get_or_insert(now + CLOSE_DELAY);
            if close_at <= now {
                self.close(now, turn.endpoint);
            }
        }
    }
}

impl PublisherRole {
    /// Returns when [`Self::on_timeout`] is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        let due = self.agenda.peek().map(|Reverse((at, _, _))| *at);
        let next = [due, self.next_connect()].into_iter().flatten().min();
        Some(next.map_or(self.next_check, |next| next.min(self.next_check)))
    }

    /// Connects, sends and ends what is due. The caller handles the sessions.
    pub(crate) fn on_timeout(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        if self.closed {
            return;
        }
        self.connect_some(turn);
        if let Some(released) = self.released {
            // Only what is due at this instant: a track that is behind continues in the next turn.
            for _ in 0..self.agenda.len() {
                let Some(Reverse((at, client, track))) = self.agenda.peek().copied() else {
                    break;
                };
                if at > now {
                    break;
                }
                self.agenda.pop();
                self.send_due(turn, released, client, track);
            }
        }
        if self.next_check <= now {
            self.check(turn);
        }
    }
}

impl App for PublisherRole {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        let turn = &mut Turn { now, endpoint };
        if let Some(number) = self.connections.number_of(&event) {
            let left = self.connections[number].handle_event(turn, event);
            if let Some(event) = left {
                self.on_data_event(turn, number, &event);
            }
            self.drain(turn, number);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let turn = &mut Turn { now, endpoint };
        if !self.closed && self.next_check <= now {
            for number in 0..self.clients.len() {
                self.connections.handle_timeout(turn, number);
                self.drain(turn, number);
            }
        }
        self.on_timeout(turn);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.close(now, endpoint);
    }

    fn is_finished(&self) -> bool {
        self.closed
    }
}

/// How often session timeouts and the ends of tracks are checked.
const CHECK_PERIOD: Duration = Duration::from_millis(20);
/// How long connections stay open after the end of all tracks, so that the relay receives the rest.
const CLOSE_DELAY: Duration = Duration::from_secs(2);
/// The size of the buffer that objects are written to. A new one is allocated when it is full.
const BUFFER_BYTES: usize = 64 << 10;
