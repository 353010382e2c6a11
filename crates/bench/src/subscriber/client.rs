//! One subscriber: a connection, its session, and the tracks it receives.

use std::sync::Arc;
use std::time::Instant;

use weir_moqt::data::{ObjectDatagram, ObjectStatus, SubgroupHeader};
use weir_moqt::draft::Draft;
use weir_moqt::error::{RequestErrorCode, ResetCode};
use weir_moqt::message::{RequestError, RequestOk};
use weir_moqt::name::FullTrackName;
use weir_moqt::session::{Event as SessionEvent, RequestId, StreamEnd};
use weir_moqt::transport::StreamId;
use weir_quic::{Endpoint, Event, Handle};

use super::incoming::{Complete, Incoming, matches};
use super::{SubscriberConfig, SubscriberProgress, SubscriptionResult, Wanted};
use crate::limits::INCOMING_STREAMS_MAX;
use crate::metrics::{Delivered, End, Failure, Received, SentTotals, TrackPlan, TrackReceiver};
use crate::payload::HEAD_BYTES;
use crate::peer::{Peer, Rest};
use crate::series::Series;
use crate::target::Target;

/// What all subscribers of a role write to.
#[derive(Debug)]
pub(super) struct Tracks {
    /// One for each subscription, those of a subscriber side by side.
    pub(super) receivers: Vec<TrackReceiver>,
    /// Latency over time, one for each plan.
    pub(super) latency: Vec<Series>,
    pub(super) progress: SubscriberProgress,
}

/// One subscriber.
#[derive(Debug)]
pub(super) struct SubscriberClient {
    peer: Option<Peer>,
    wanted: Arc<[Wanted]>,
    /// Where its receivers begin.
    first: usize,
    subscriptions: Vec<Subscription>,
    streams: Vec<Incoming>,
    connected: bool,
    failure: Option<String>,
    closed: bool,
}

/// A track at a subscriber.
#[derive(Clone, Debug)]
struct Subscription {
    /// Beyond all others before the request is sent.
    request: RequestId,
    asked: Option<Instant>,
    first_object: Option<Instant>,
    accepted: bool,
    ended: bool,
    failure: Option<String>,
}

impl SubscriberClient {
    pub(super) fn new(wanted: Arc<[Wanted]>, first: usize) -> Self {
        Self {
            peer: None,
            subscriptions: vec![Subscription::new(); wanted.len()],
            wanted,
            first,
            streams: Vec::new(),
            connected: false,
            failure: None,
            closed: false,
        }
    }

    pub(super) fn connect(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        target: &Target,
        number: usize,
        tracks: &mut Tracks,
    ) {
        match Peer::connect(now, endpoint, target, number) {
            Ok(peer) => self.peer = Some(peer),
            Err(reason) => self.fail(tracks, reason),
        }
    }

    pub(super) fn handle(&self) -> Option<Handle> {
        self.peer.as_ref().map(Peer::handle)
    }

    pub(super) fn is_subscribed(&self) -> bool {
        self.subscriptions
            .iter()
            .all(|one| one.accepted || one.ended)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn relay(&self) -> Option<(Draft, Option<&str>)> {
        let peer = self.peer.as_ref()?;
        Some((peer.draft()?, peer.implementation()))
    }

    pub(super) fn handle_event(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        config: &SubscriberConfig,
        tracks: &mut Tracks,
        event: Event,
    ) {
        let Some(peer) = &mut self.peer else { return };
        let limits = &config.session_limits;
        match peer.handle_event(now, endpoint, &config.target, limits, event) {
            // The hot path: a datagram that the session knows raises no event.
            Rest::Datagram(request, datagram) => {
                return self.on_datagram(now, config, tracks, request, &datagram);
            }
            // A subscriber has no data streams of its own.
            Rest::Nothing | Rest::Writable | Rest::Stopped(_) | Rest::StreamsAvailable => {}
        }
        if !self.connected && peer.is_connected() {
            self.connected = true;
            tracks.progress.connected += 1;
        }
        self.handle_session_events(now, endpoint, config, tracks);
    }

    /// Looks after time-outs. If `give_up`, tracks on which nothing has come yet are given up.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        config: &SubscriberConfig,
        tracks: &mut Tracks,
        give_up: bool,
    ) {
        if self.closed {
            return;
        }
        if let Some(peer) = &mut self.peer {
            peer.handle_timeout(now, endpoint);
        }
        self.handle_session_events(now, endpoint, config, tracks);
        for (number, subscription) in self.subscriptions.iter_mut().enumerate() {
            let plan = &config.plans[self.wanted[number].plan];
            let receiver = &mut tracks.receivers[self.first + number];
            receiver.handle_timeout(now, plan);
            if give_up && subscription.first_object.is_none() {
                receiver.end(End::Idle);
            }
            subscription.note_end(receiver, &mut tracks.progress);
        }
        if self
            .subscriptions
            .iter()
            .all(|subscription| subscription.ended)
        {
            self.close(now, endpoint);
        }
    }

    /// Ends all tracks that have not ended.
    pub(super) fn end(&mut self, tracks: &mut Tracks, end: End) {
        let receivers = &mut tracks.receivers[self.first..];
        for (subscription, receiver) in self.subscriptions.iter_mut().zip(receivers) {
            receiver.end(end);
            subscription.note_end(receiver, &mut tracks.progress);
        }
    }

    pub(super) fn close(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.closed = true;
        self.streams = Vec::new();
        if let Some(peer) = &mut self.peer {
            peer.close(now, endpoint, "the benchmark is over");
        }
    }

    /// The receivers of this subscriber with their plans.
    pub(super) fn receivers<'a>(
        &'a self,
        tracks: &'a Tracks,
    ) -> impl Iterator<Item = (&'a TrackReceiver, usize)> {
        let receivers = &tracks.receivers[self.first..];
        receivers
            .iter()
            .zip(self.wanted.iter().map(|wanted| wanted.plan))
    }

    pub(super) fn results(
        &self,
        subscriber: usize,
        plans: &[TrackPlan],
        tracks: &Tracks,
        sent: &impl Fn(&FullTrackName) -> Option<SentTotals>,
    ) -> Vec<SubscriptionResult> {
        let subscriptions = self.subscriptions.iter().zip(self.wanted.iter());
        let result = |((subscription, wanted), (receiver, plan)): (_, (&TrackReceiver, usize))| {
            let (subscription, wanted): (&Subscription, &Wanted) = (subscription, wanted);
            SubscriptionResult {
                subscriber,
                plan,
                name: wanted.name.clone(),
                track: receiver.result(&plans[plan], sent(&wanted.name)),
                failure: subscription
                    .failure
                    .clone()
                    .or_else(|| self.failure.clone()),
                handshake: self.peer.as_ref().and_then(Peer::handshake_time),
                setup: self.peer.as_ref().and_then(Peer::setup_time),
                first_object: subscription.first_object_time(),
            }
        };
        subscriptions
            .zip(self.receivers(tracks))
            .map(result)
            .collect()
    }

    fn on_datagram(
        &mut self,
        now: Instant,
        config: &SubscriberConfig,
        tracks: &mut Tracks,
        request: RequestId,
        datagram: &ObjectDatagram,
    ) {
        let Some(number) = self.number_of(request) else {
            return;
        };
        if datagram.status != ObjectStatus::Normal {
            return;
        }
        let payload = &datagram.payload;
        let plan = &config.plans[self.wanted[number].plan];
        let delivered = Delivered {
            group: datagram.group,
            object: datagram.object,
            head: &payload[..payload.len().min(HEAD_BYTES)],
            bytes: payload.len() as u64,
        };
        let intact = !config.verify_content
            || (matches(payload, plan.content()) && datagram.properties == *plan.properties());
        self.on_delivered(now, config, tracks, number, &delivered, intact);
    }

    /// An object has arrived in whole.
    fn on_delivered(
        &mut self,
        now: Instant,
        config: &SubscriberConfig,
        tracks: &mut Tracks,
        number: usize,
        delivered: &Delivered<'_>,
        intact: bool,
    ) {
        let plan_number = self.wanted[number].plan;
        let plan = &config.plans[plan_number];
        let receiver = &mut tracks.receivers[self.first + number];
        let subscription = &mut self.subscriptions[number];
        match receiver.handle_object(now, plan, delivered) {
            Received::Data { latency_ns } => {
                tracks.progress.objects += 1;
                tracks.progress.bytes += delivered.bytes;
                if let Some(latency_ns) = latency_ns {
                    tracks.latency[plan_number].record_ns(now, latency_ns);
                    if !intact {
                        receiver.handle_corrupt();
                    }
                }
            }
            Received::Start
            | Received::Repeated
            | Received::Foreign
            | Received::Completion
            | Received::Malformed
            | Received::Ignored => {}
        }
        subscription.first_object.get_or_insert(now);
        subscription.note_end(receiver, &mut tracks.progress);
    }

    fn handle_session_events(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        config: &SubscriberConfig,
        tracks: &mut Tracks,
    ) {
        while let Some(event) = self.peer.as_mut().and_then(Peer::poll_event) {
            self.handle_session_event(now, endpoint, config, tracks, event);
        }
        if let Some(reason) = self.peer.as_ref().and_then(Peer::failure) {
            let reason = reason.to_owned();
            self.fail(tracks, reason);
        }
    }

    fn handle_session_event(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        config: &SubscriberConfig,
        tracks: &mut Tracks,
        event: SessionEvent,
    ) {
        match event {
            SessionEvent::Payload { stream, data } => {
                let complete = self
                    .streams
                    .iter_mut()
                    .rev()
                    .find(|one| one.stream == stream);
                let complete = complete.and_then(|incoming| {
                    let plan = &config.plans[self.wanted[incoming.subscription].plan];
                    let content = config.verify_content.then(|| plan.content());
                    Some((incoming.subscription, incoming.on_payload(&data, content)?))
                });
                self.on_complete(now, config, tracks, complete);
            }
            SessionEvent::Object { stream, object } => {
                let complete = self
                    .streams
                    .iter_mut()
                    .rev()
                    .find(|one| one.stream == stream);
                let complete = complete.and_then(|incoming| {
                    let plan = &config.plans[self.wanted[incoming.subscription].plan];
                    let intact = !config.verify_content || object.properties == *plan.properties();
                    Some((incoming.subscription, incoming.on_object(&object, intact)?))
                });
                self.on_complete(now, config, tracks, complete);
            }
            SessionEvent::Subgroup {
                stream,
                request,
                header,
            } => {
                self.on_subgroup(now, endpoint, stream, request, &header);
            }
            SessionEvent::StreamEnd { stream, end } => {
                self.on_stream_end(config, tracks, stream, end);
            }
            SessionEvent::Datagram { request, datagram } => {
                self.on_datagram(now, config, tracks, request, &datagram);
            }
            SessionEvent::Ready { .. } => self.subscribe(now, endpoint, config, tracks),
            SessionEvent::Accepted { id, .. } => self.on_accepted(tracks, id),
            SessionEvent::Rejected { id, error } => self.on_rejected(tracks, id, &error),
            SessionEvent::Done { id, .. } | SessionEvent::Closed { id, .. } => {
                self.on_done(now, config, tracks, id);
            }
            SessionEvent::Violated(violation) => {
                let (code, reason) = (violation.code, violation.reason);
                self.fail(
                    tracks,
                    format!("the relay broke the protocol: {reason} ({code})"),
                );
            }
            SessionEvent::Request { id, .. } => self.refuse(now, endpoint, id),
            SessionEvent::Update { id, .. } => {
                if let Some((session, mut connection)) =
                    self.peer.as_mut().and_then(|peer| peer.open(now, endpoint))
                {
                    session.request_ok(&mut connection, id, RequestOk::default());
                }
            }
            // The relay may announce its leave; the run goes on for as long as it lasts. The rest
            // answers what a subscriber never asks.
            SessionEvent::GoAway(_)
            | SessionEvent::RequestGoAway { .. }
            | SessionEvent::Updated { .. }
            | SessionEvent::Namespace { .. }
            | SessionEvent::NamespaceDone { .. }
            | SessionEvent::PublishBlocked { .. }
            | SessionEvent::Fetched { .. }
            | SessionEvent::FetchObject { .. } => {}
        }
    }

    /// Subscribes to every track, once the session is open.
    fn subscribe(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        config: &SubscriberConfig,
        tracks: &mut Tracks,
    ) {
        let Some(peer) = &mut self.peer else { return };
        peer.on_ready(now);
        tracks.progress.ready += 1;
        let Some((session, mut connection)) = peer.open(now, endpoint) else {
            return;
        };
        let receivers = &mut tracks.receivers[self.first..];
        let subscriptions = self
            .subscriptions
            .iter_mut()
            .zip(receivers)
            .zip(self.wanted.iter());
        for ((subscription, receiver), wanted) in subscriptions {
            let parameters = config.request.parameters(&config.plans[wanted.plan]);
            subscription.asked = Some(now);
            match session.subscribe(&mut connection, wanted.name.clone(), parameters) {
                Ok(request) => subscription.request = request,
                Err(refused) => {
                    subscription.failure = Some(format!("could not subscribe: {refused}"));
                    receiver.fail(Failure::Refused);
                    receiver.end(End::Disconnected);
                    subscription.note_end(receiver, &mut tracks.progress);
                }
            }
        }
    }

    fn on_accepted(&mut self, tracks: &mut Tracks, id: RequestId) {
        if let Some(number) = self.number_of(id)
            && !std::mem::replace(&mut self.subscriptions[number].accepted, true)
        {
            tracks.progress.accepted += 1;
        }
    }

    fn on_rejected(&mut self, tracks: &mut Tracks, id: RequestId, error: &RequestError) {
        let Some(number) = self.number_of(id) else {
            return;
        };
        let RequestError { code, reason, .. } = error;
        let subscription = &mut self.subscriptions[number];
        let receiver = &mut tracks.receivers[self.first + number];
        subscription.failure = Some(format!(
            "the relay refused the subscription: {code} {reason:?}"
        ));
        receiver.fail(Failure::Refused);
        receiver.end(End::Disconnected);
        subscription.note_end(receiver, &mut tracks.progress);
    }

    /// The relay says that the track is over, or leaves the subscription without saying so.
    fn on_done(
        &mut self,
        now: Instant,
        config: &SubscriberConfig,
        tracks: &mut Tracks,
        id: RequestId,
    ) {
        if let Some(number) = self.number_of(id) {
            let plan = &config.plans[self.wanted[number].plan];
            tracks.receivers[self.first + number].handle_publish_done(now, plan);
        }
    }

    fn on_subgroup(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        stream: StreamId,
        request: RequestId,
        header: &SubgroupHeader,
    ) {
        match self.number_of(request) {
            Some(number) if self.streams.len() < INCOMING_STREAMS_MAX => {
                let incoming = Incoming::new(stream, number, header.group, header.subgroup);
                self.streams.push(incoming);
            }
            Some(_) | None => {
                if let Some((session, mut connection)) =
                    self.peer.as_mut().and_then(|peer| peer.open(now, endpoint))
                {
                    session.stop_data(&mut connection, stream, ResetCode::EXCESSIVE_LOAD);
                }
            }
        }
    }

    fn on_complete(
        &mut self,
        now: Instant,
        config: &SubscriberConfig,
        tracks: &mut Tracks,
        complete: Option<(usize, Complete)>,
    ) {
        if let Some((number, complete)) = complete {
            let (delivered, intact) = (complete.delivered(), complete.matches);
            self.on_delivered(now, config, tracks, number, &delivered, intact);
        }
    }

    fn on_stream_end(
        &mut self,
        config: &SubscriberConfig,
        tracks: &mut Tracks,
        stream: StreamId,
        end: StreamEnd,
    ) {
        let Some(position) = self.streams.iter().position(|one| one.stream == stream) else {
            return;
        };
        let incoming = self.streams.swap_remove(position);
        match end {
            StreamEnd::Fin => {}
            StreamEnd::Reset(_) => {
                let (group, subgroup, next_object) = incoming.position();
                let plan = &config.plans[self.wanted[incoming.subscription].plan];
                let receiver = &mut tracks.receivers[self.first + incoming.subscription];
                receiver.handle_reset(plan, group, subgroup, next_object);
            }
        }
    }

    /// A subscriber serves nobody.
    fn refuse(&mut self, now: Instant, endpoint: &mut Endpoint, id: RequestId) {
        let error = RequestError {
            code: RequestErrorCode::UNINTERESTED,
            retry_after: None,
            reason: "a benchmark subscriber asks for what it wants".to_owned(),
            redirect: None,
        };
        if let Some((session, mut connection)) =
            self.peer.as_mut().and_then(|peer| peer.open(now, endpoint))
        {
            session.request_error(&mut connection, id, error);
        }
    }

    /// The connection is of no more use.
    fn fail(&mut self, tracks: &mut Tracks, reason: String) {
        if self.failure.is_none() {
            self.failure = Some(reason);
            tracks.progress.failed += 1;
            self.streams = Vec::new();
            self.end(tracks, End::Disconnected);
        }
    }

    /// The subscription that a request belongs to. Requests are sent in the order of the
    /// subscriptions, so their IDs ascend.
    #[inline]
    fn number_of(&self, request: RequestId) -> Option<usize> {
        self.subscriptions
            .binary_search_by_key(&request, |one| one.request)
            .ok()
    }
}

impl Subscription {
    fn new() -> Self {
        Self {
            request: RequestId(u64::MAX),
            asked: None,
            first_object: None,
            accepted: false,
            ended: false,
            failure: None,
        }
    }

    /// Counts the end of the track once.
    #[inline]
    fn note_end(&mut self, receiver: &TrackReceiver, progress: &mut SubscriberProgress) {
        if !self.ended && receiver.has_ended() {
            self.ended = true;
            progress.ended += 1;
        }
    }

    /// From SUBSCRIBE to the first object.
    fn first_object_time(&self) -> Option<std::time::Duration> {
        Some(self.first_object?.saturating_duration_since(self.asked?))
    }
}
