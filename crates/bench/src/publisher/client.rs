//! One publisher: its offers, its responses to the relay, and its tracks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use weir_moqt::error::{PublishDoneCode, RequestErrorCode};
use weir_moqt::location::Location;
use weir_moqt::message::{Fetch, FetchKind, PublishDone, RequestError, RequestOk};
use weir_moqt::parameter::Parameters;
use weir_moqt::session::{Accepted, Event as SessionEvent, Request, RequestId};
use weir_quic::ConnectionStats;

use super::fetch_response::{FetchResponse, Progress, fetch_ok};
use super::offer::{Offer, Reason, accept, datagram_overhead, offer_namespaces, offer_tracks};
use super::publication::Publication;
use super::{PublicationResult, PublishFlow, PublisherConfig, PublisherProgress, ReleaseError};
use crate::limits::FETCHES_MAX;
use crate::metrics::{Dropped, TrackPlan};
use crate::profile::{Pattern, TrackMode};
use crate::scenario::NamedTrack;
use weir_client::client::Client;
use weir_client::peer::DataEvent;
use weir_client::turn::Turn;
use weir_histogram::Histogram;

/// The tracks of one publisher. The caller passes in its connection.
#[derive(Debug)]
pub(crate) struct PublisherClient {
    tracks: Vec<Publication>,
    /// Offers without a response: PUBLISH or `PUBLISH_NAMESPACE`.
    pending: BTreeMap<RequestId, Offer>,
    offered: bool,
    failure: Option<String>,
    /// FETCH responses in progress.
    fetches: Vec<FetchResponse>,
    /// When the end of each track may be announced, by track number.
    ends: BTreeMap<usize, Instant>,
}

impl PublisherClient {
    pub(super) fn new(tracks: &[NamedTrack], plans: &[TrackPlan]) -> Self {
        let tracks = (0..).zip(tracks);
        let publication = |(alias, track): (u64, &NamedTrack)| {
            let is_fetched = plans[track.plan].pattern() == Pattern::Fetch;
            Publication::new(track.plan, track.name.clone(), alias, is_fetched)
        };
        Self {
            tracks: tracks.map(publication).collect(),
            fetches: Vec::new(),
            pending: BTreeMap::new(),
            offered: false,
            failure: None,
            ends: BTreeMap::new(),
        }
    }

    /// Returns why the publisher failed, if it did.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Whether a track was being sent when the connection was lost.
    pub(super) fn is_cut_off(&self) -> bool {
        self.tracks.iter().any(Publication::is_cut_off)
    }

    /// Counts the datagrams that the connection accepted and then dropped. The connection does not tell their tracks,
    /// so they count for the first datagram track.
    /// count for the first that has datagrams.
    pub(super) fn note_dropped(&mut self, stats: &ConnectionStats, plans: &[TrackPlan]) {
        let has_datagrams = |track: &&mut Publication| {
            !track.is_fetched() && plans[track.plan].track_mode() == TrackMode::Datagram
        };
        if let Some(track) = self.tracks.iter_mut().find(has_datagrams) {
            track.sender.on_dropped(Dropped {
                expired: stats.datagrams_dropped_expired,
                crowded_out: stats.datagrams_dropped_oldest,
            });
        }
    }

    pub(super) fn has_announced(&self) -> bool {
        self.failure.is_some() || (self.offered && self.pending.is_empty())
    }

    pub(super) fn is_served(&self) -> bool {
        self.failure.is_some() || self.tracks.iter().all(Publication::is_served)
    }

    pub(super) fn is_done(&self) -> bool {
        self.failure.is_some() || self.tracks.iter().all(Publication::is_done)
    }

    /// Handles an event of the data streams.
    pub(super) fn on_data_event(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        plans: &[TrackPlan],
        event: &DataEvent,
    ) {
        match event {
            // A publisher has no subscriptions, so it expects no object.
            DataEvent::Acknowledged(_) | DataEvent::Datagram(..) => {}
            DataEvent::Writable(_) | DataEvent::StreamsAvailable => {
                self.flush(turn, client);
                self.flush_fetches(turn, client, plans);
            }
            DataEvent::Stopped(stream, _) => {
                if let Some((_, mut connection)) = client.open(turn) {
                    let stopped =
                        |track: &mut Publication| track.handle_stopped(&mut connection, *stream);
                    let _known = self.tracks.iter_mut().any(stopped);
                    self.fetches.retain(|response| !response.is(*stream));
                }
            }
        }
    }

    /// Resumes blocked streams and announces ends. Called periodically.
    pub(super) fn on_check(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        plans: &[TrackPlan],
    ) {
        self.flush(turn, client);
        self.flush_fetches(turn, client, plans);
        self.announce_ends(turn, client, plans);
    }

    /// Checks that the largest object of every datagram track fits into a datagram (decision 26).
    pub(super) fn check_datagram_sizes(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        plans: &[TrackPlan],
    ) -> Result<(), ReleaseError> {
        let Some((session, mut connection)) = client.open(turn) else {
            return Ok(());
        };
        let datagram_bytes_max = connection.datagram_size_max().unwrap_or(0);
        for track in &self.tracks {
            let plan = &plans[track.plan];
            let object_bytes = plan.schedule().largest_object().bytes();
            let datagram_bytes =
                datagram_overhead(session.draft(), track, plan) + object_bytes as usize;
            if plan.track_mode() == TrackMode::Datagram && datagram_bytes > datagram_bytes_max {
                let name = track.name.clone();
                return Err(ReleaseError::TooLarge {
                    name,
                    object_bytes,
                    datagram_bytes,
                    datagram_bytes_max,
                });
            }
        }
        Ok(())
    }

    /// Sends the next item of a track if it is due.
    pub(super) fn send_due(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        released: Instant,
        plans: &[TrackPlan],
        track: usize,
        buffer: &mut BytesMut,
    ) -> bool {
        let publication = &mut self.tracks[track];
        let plan = &plans[publication.plan];
        let now = turn.now;
        match client.open(turn) {
            Some((session, mut connection)) => {
                let open = Some((session.draft(), &mut connection));
                publication.send_due(now, released, plan, open, buffer)
            }
            None => publication.send_due(now, released, plan, None, buffer),
        }
    }

    /// Returns when the next item of a track is to be sent, or retried.
    pub(super) fn next_at(
        &mut self,
        now: Instant,
        released: Instant,
        plans: &[TrackPlan],
        track: usize,
    ) -> Option<Instant> {
        let publication = &self.tracks[track];
        let plan = &plans[publication.plan];
        let Some(next) = publication.next_at(plan) else {
            self.ends.entry(track).or_insert(now + DONE_DELAY);
            return None;
        };
        let retry = if publication.awaits_streams(plan) {
            now + RETRY_PERIOD
        } else {
            released
        };
        Some((released + next).max(retry))
    }

    pub(super) fn add_to(&self, progress: &mut PublisherProgress, is_ready: bool) {
        progress.publishers += 1;
        progress.ready += u64::from(is_ready);
        progress.established += u64::from(self.offered);
        progress.failed += u64::from(self.failure.is_some());
        for track in &self.tracks {
            progress.tracks += 1;
            progress.served += u64::from(track.is_served());
            progress.done += u64::from(track.is_done() && !track.is_cut_off());
            progress.objects_sent += track.sender.totals().objects;
            progress.refused += track.sender.refusals().total();
        }
    }

    pub(super) fn results(&self, publisher: usize) -> impl Iterator<Item = PublicationResult> {
        self.tracks.iter().map(move |track| PublicationResult {
            publisher,
            plan: track.plan,
            name: track.name.clone(),
            sender: track.sender.result(),
            totals: track.sender.totals(),
        })
    }

    pub(super) fn add_lateness(&self, plan: usize, total: &mut Histogram) {
        for track in self.tracks.iter().filter(|track| track.plan == plan) {
            total.merge(track.sender.lateness());
        }
    }

    fn flush(&mut self, turn: &mut Turn<'_>, client: &mut Client) {
        let now = turn.now;
        if let Some((_, mut connection)) = client.open(turn) {
            for track in &mut self.tracks {
                track.flush(now, &mut connection);
            }
        }
    }

    /// Handles an event of the session.
    pub(super) fn on_session_event(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        config: &PublisherConfig,
        event: SessionEvent,
    ) {
        match event {
            SessionEvent::Ready { .. } => self.offer(turn, client, config),
            SessionEvent::Request { id, request } => {
                self.answer(turn, client, config, id, request);
            }
            SessionEvent::Update { id, parameters, .. } => {
                self.on_update(turn, client, id, &parameters);
            }
            SessionEvent::Accepted { id, ok } => self.on_accepted(id, &ok),
            SessionEvent::Rejected { id, error } => self.on_rejected(id, &error),
            SessionEvent::Closed { id, .. } => self.on_closed(turn, client, id),
            SessionEvent::Violated(violation) => {
                self.fail(format!("the relay violated the protocol: {violation}"));
            }
            SessionEvent::GoAway(goaway) if client.follow(turn, &goaway) => {}
            SessionEvent::GoAway(_) => self.fail("the relay is going away".to_owned()),
            // Responses to requests that a publisher never sends, and objects without a subscription.
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

    /// Offers all tracks, once the session is established.
    fn offer(&mut self, turn: &mut Turn<'_>, client: &mut Client, config: &PublisherConfig) {
        self.offered = true;
        let tokens = client.tokens();
        let Some((session, mut connection)) = client.open(turn) else {
            return;
        };
        let offered = match config.flow {
            PublishFlow::Publish => offer_tracks(
                session,
                &mut connection,
                (config, &tokens),
                &mut self.tracks,
                &mut self.pending,
            ),
            PublishFlow::PublishNamespace => offer_namespaces(
                session,
                &mut connection,
                &tokens,
                &self.tracks,
                &mut self.pending,
            ),
        };
        if let Err(refused) = offered {
            self.fail(format!("the tracks could not be offered: {refused}"));
        }
    }

    fn answer(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        config: &PublisherConfig,
        id: RequestId,
        request: Request,
    ) {
        let now = turn.now;
        let Some((session, mut connection)) = client.open(turn) else {
            return;
        };
        let (code, reason) = match request {
            Request::Subscribe(subscribe) => {
                match accept(&mut self.tracks, &config.plans, id, &subscribe) {
                    Ok(ok) => return session.subscribe_ok(&mut connection, id, ok),
                    Err(reason) => reason,
                }
            }
            Request::Fetch(fetch) => match fetched_range(&self.tracks, &fetch) {
                Some((track, range)) if self.fetches.len() < FETCHES_MAX => {
                    let draft = session.draft();
                    let plan = &config.plans[self.tracks[track].plan];
                    session.fetch_ok(&mut connection, id, fetch_ok(plan, range.1));
                    self.fetches
                        .push(FetchResponse::new(now, draft, id, (track, plan), range));
                    return self.flush_fetches(turn, client, &config.plans);
                }
                Some(_) => TOO_MANY_FETCHES,
                None => NO_PAST,
            },
            Request::TrackStatus(_) => NO_PAST,
            Request::Publish(_) | Request::PublishNamespace(_) => NO_INTEREST,
            Request::SubscribeNamespace(_) | Request::SubscribeTracks(_) => NO_DISCOVERY,
        };
        session.request_error(&mut connection, id, RequestError::new(code, reason));
    }

    fn on_update(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        id: RequestId,
        parameters: &Parameters,
    ) {
        let Some((session, mut connection)) = client.open(turn) else {
            return;
        };
        let track = self
            .tracks
            .iter_mut()
            .find(|track| track.request() == Some(id));
        let mut answer = RequestOk::default();
        if let (Some(track), Some(forward)) = (track, parameters.forward)
            && track.on_forward(&mut connection, forward)
            && forward
        {
            // The response that enables forwarding says where the subscriber joins [moqt-18 §5.1].
            answer.parameters.largest_object = track.largest();
        }
        session.update_ok(&mut connection, id, answer);
    }

    fn on_accepted(&mut self, id: RequestId, ok: &Accepted) {
        let forward = match ok {
            Accepted::Ok(ok) => ok.parameters.forward.unwrap_or(true),
            Accepted::Subscribe(_) | Accepted::Fetch(_) => true,
        };
        if let Some(Offer::Track(track)) = self.pending.remove(&id) {
            self.tracks[track].on_established(forward);
        }
    }

    fn on_rejected(&mut self, id: RequestId, error: &RequestError) {
        let what = match self.pending.remove(&id) {
            Some(Offer::Track(track)) => self.tracks[track].name.to_string(),
            Some(Offer::Namespace) => "the namespace".to_owned(),
            None => return,
        };
        let RequestError { code, reason, .. } = error;
        self.fail(format!("the relay refused {what}: {code} {reason:?}"));
    }

    /// Handles the end of the relay's subscription, or of its acceptance of an offer.
    fn on_closed(&mut self, turn: &mut Turn<'_>, client: &mut Client, id: RequestId) {
        let Some((_, mut connection)) = client.open(turn) else {
            return;
        };
        for track in self
            .tracks
            .iter_mut()
            .filter(|track| track.request() == Some(id))
        {
            track.on_unsubscribed(&mut connection);
        }
        self.fetches.retain(|response| response.request != id);
    }

    /// Sends what fetch streams accept, and removes those that are complete.
    fn flush_fetches(&mut self, turn: &mut Turn<'_>, client: &mut Client, plans: &[TrackPlan]) {
        let now = turn.now;
        if self.fetches.is_empty() {
            return;
        }
        let Some((session, mut connection)) = client.open(turn) else {
            return;
        };
        let tracks = &mut self.tracks;
        self.fetches.retain_mut(|response| {
            let publication = &mut tracks[response.track];
            let plan = &plans[publication.plan];
            match response.flush(now, &mut connection, publication, plan) {
                Progress::Blocked => true,
                Progress::Done => {
                    session.finish(&mut connection, response.request);
                    false
                }
                Progress::Abandoned => false,
            }
        });
    }

    /// Sends `PUBLISH_DONE` for tracks whose last message has had time to leave.
    fn announce_ends(&mut self, turn: &mut Turn<'_>, client: &mut Client, plans: &[TrackPlan]) {
        let due: Vec<usize> = self
            .ends
            .iter()
            .filter(|(_, at)| **at <= turn.now)
            .map(|(track, _)| *track)
            .collect();
        for number in due {
            let track = &mut self.tracks[number];
            if !track.is_ready_to_end(&plans[track.plan]) {
                continue;
            }
            self.ends.remove(&number);
            track.on_done();
            let done = PublishDone {
                code: PublishDoneCode::TRACK_ENDED,
                stream_count: Some(track.streams_opened()),
                reason: String::new(),
            };
            if let Some((session, mut connection)) = client.open(turn)
                && let Some(request) = track.request()
            {
                session.publish_done(&mut connection, request, done);
            }
        }
    }

    /// Notes that the client has left its relay. The session with the next one offers the tracks again.
    pub(super) fn on_move(&mut self) {
        self.pending.clear();
        self.fetches.clear();
        for track in &mut self.tracks {
            track.on_session_end();
        }
    }

    /// Fails the publisher. The first reason is kept.
    pub(super) fn fail(&mut self, reason: String) {
        if self.failure.is_none() {
            self.failure = Some(reason);
            for track in &mut self.tracks {
                track.on_disconnected();
            }
        }
    }
}

/// Returns the track and range of a FETCH, if this publisher has them.
fn fetched_range(tracks: &[Publication], fetch: &Fetch) -> Option<(usize, (Location, Location))> {
    let FetchKind::Standalone { track, start, end } = &fetch.kind else {
        return None;
    };
    let number = tracks
        .iter()
        .position(|one| one.name == *track && one.is_fetched())?;
    Some((number, (*start, *end)))
}

/// How long `PUBLISH_DONE` waits, so that it does not overtake queued datagrams.
const DONE_DELAY: Duration = Duration::from_millis(100);
/// How often COMPLETION is retried while objects are queued before it.
const RETRY_PERIOD: Duration = Duration::from_millis(5);
const NO_PAST: Reason = (
    RequestErrorCode::NOT_SUPPORTED,
    "a benchmark publisher has no past",
);
const TOO_MANY_FETCHES: Reason = (RequestErrorCode::EXCESSIVE_LOAD, "too many fetches at once");
const NO_INTEREST: Reason = (
    RequestErrorCode::UNINTERESTED,
    "a benchmark publisher only publishes",
);
const NO_DISCOVERY: Reason = (
    RequestErrorCode::NOT_SUPPORTED,
    "a benchmark publisher offers its tracks by itself",
);
