//! One subscriber: a connection, its session, and the tracks it receives.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_moqt::data::{ObjectDatagram, ObjectHeader, ObjectStatus, SubgroupId};
use weir_moqt::error::{RequestErrorCode, ResetCode};
use weir_moqt::message::RequestError;
use weir_moqt::name::FullTrackName;
use weir_moqt::session::{Event as SessionEvent, Request, RequestId, StreamEnd};
use weir_transport::StreamId;

use super::incoming::{Complete, Incoming, carries, matches};
use super::measurements::Measurements;
use super::subscription::Subscription;
use super::{SubscribeFlow, SubscriberConfig, SubscriptionResult};
use crate::limits::INCOMING_STREAMS_MAX;
use crate::metrics::{Delivered, End, Failure, Received, SentTotals, TrackReceiver};
use crate::payload::HEAD_BYTES;
use crate::scenario::NamedTrack;
use weir_client::client::Client;
use weir_client::turn::Turn;
use weir_report::relay::Conduct;

/// The tracks that one subscriber receives. The caller passes in its connection.
#[derive(Debug)]
pub(super) struct SubscriberClient {
    pub(super) wanted: Arc<[NamedTrack]>,
    /// The subscriber's number in its role.
    pub(super) number: usize,
    /// The index of its first receiver.
    pub(super) first: usize,
    pub(super) subscriptions: Vec<Subscription>,
    /// Subscriptions by request, in ascending order of requests.
    pub(super) requests: Vec<(RequestId, usize)>,
    /// The joining FETCH of each track that has one under way: its request, the subscription, and when it was sent.
    pub(super) joins: Vec<(RequestId, usize, Instant)>,
    /// The request that discovers tracks under a prefix, if they are discovered.
    pub(super) discovery: Option<RequestId>,
    pub(super) streams: Vec<Incoming>,
    handshake: Option<Duration>,
    setup: Option<Duration>,
    failure: Option<String>,
    closed: bool,
    /// How the subscriber behaves. Only the latencies of steady subscribers enter the totals.
    pub(super) conduct: Conduct,
    /// Sessions that it has established.
    pub(super) sessions: u64,
}

impl SubscriberClient {
    pub(super) fn new(
        wanted: Arc<[NamedTrack]>,
        (number, first): (usize, usize),
        conduct: Conduct,
    ) -> Self {
        Self {
            subscriptions: vec![Subscription::default(); wanted.len()],
            requests: Vec::with_capacity(wanted.len()),
            joins: Vec::new(),
            discovery: None,
            wanted,
            number,
            first,
            streams: Vec::new(),
            handshake: None,
            setup: None,
            failure: None,
            closed: false,
            conduct,
            sessions: 0,
        }
    }

    pub(super) fn is_subscribed(&self) -> bool {
        self.subscriptions.iter().all(Subscription::is_ready)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Records how far the connection has progressed.
    pub(super) fn note_connection(&mut self, client: &Client, measured: &mut Measurements) {
        if self.handshake.is_none() && client.handshake_time().is_some() {
            self.handshake = client.handshake_time();
            measured.progress.connected += 1;
        }
        if let Some(reason) = client.failure() {
            self.fail(measured, reason.to_owned());
        }
    }

    /// Whether the event of a session shared with a publisher concerns this subscriber.
    pub(super) fn takes(&self, event: &SessionEvent) -> bool {
        match event {
            SessionEvent::Subgroup { .. }
            | SessionEvent::Object { .. }
            | SessionEvent::Fetched { .. }
            | SessionEvent::FetchObject { .. }
            | SessionEvent::Payload { .. }
            | SessionEvent::StreamEnd { .. }
            | SessionEvent::Datagram { .. }
            | SessionEvent::Namespace { .. }
            | SessionEvent::NamespaceDone { .. }
            | SessionEvent::PublishBlocked { .. }
            | SessionEvent::StateChanged { .. }
            | SessionEvent::Request {
                request: Request::Publish(_),
                ..
            } => true,
            SessionEvent::Accepted { id, .. }
            | SessionEvent::Rejected { id, .. }
            | SessionEvent::Updated { id, .. }
            | SessionEvent::Update { id, .. }
            | SessionEvent::Done { id, .. }
            | SessionEvent::Closed { id, .. }
            | SessionEvent::RequestGoAway { id, .. } => {
                self.discovery == Some(*id)
                    || self.number_of(*id).is_some()
                    || self.join_of(*id).is_some()
            }
            SessionEvent::Ready { .. }
            | SessionEvent::Request { .. }
            | SessionEvent::GoAway(_)
            | SessionEvent::Violated(_) => false,
        }
    }

    /// Handles timeouts. With `give_up`, gives up tracks that have received nothing. Returns whether all tracks have
    /// ended, so that the connection can be closed.
    pub(super) fn on_check(
        &mut self,
        now: Instant,
        measured: &mut Measurements,
        give_up: bool,
    ) -> bool {
        for (number, subscription) in self.subscriptions.iter_mut().enumerate() {
            let plan = &measured.config.plans[self.wanted[number].plan];
            let receiver = &mut measured.receivers[self.first + number];
            receiver.handle_timeout(now, plan);
            if give_up && subscription.first_object.is_none() {
                receiver.end(End::Idle);
            }
            subscription.note_end(receiver, &mut measured.progress);
        }
        self.subscriptions.iter().all(Subscription::has_ended)
    }

    /// Ends all tracks that have not ended.
    pub(super) fn end(&mut self, measured: &mut Measurements, end: End) {
        let receivers = &mut measured.receivers[self.first..];
        for (subscription, receiver) in self.subscriptions.iter_mut().zip(receivers) {
            receiver.end(end);
            subscription.note_end(receiver, &mut measured.progress);
        }
    }

    /// Notes that the connection was closed.
    pub(super) fn on_closed(&mut self) {
        self.closed = true;
        self.streams = Vec::new();
    }

    /// Returns the receivers of this subscriber with their plans.
    pub(super) fn receivers<'a>(
        &'a self,
        measured: &'a Measurements,
    ) -> impl Iterator<Item = (&'a TrackReceiver, usize)> {
        let receivers = &measured.receivers[self.first..];
        receivers
            .iter()
            .zip(self.wanted.iter().map(|wanted| wanted.plan))
    }

    pub(super) fn results(
        &self,
        measured: &Measurements,
        sent: &impl Fn(&FullTrackName) -> Option<SentTotals>,
    ) -> Vec<SubscriptionResult> {
        let plans = &measured.config.plans;
        let subscriptions = self.subscriptions.iter().zip(self.wanted.iter());
        let result = |((subscription, wanted), (receiver, plan)): (_, (&TrackReceiver, usize))| {
            let (subscription, wanted): (&Subscription, &NamedTrack) = (subscription, wanted);
            let sent = sent(&wanted.name).map(|sent| plans[plan].sent_to_one(sent));
            SubscriptionResult {
                subscriber: self.number,
                plan,
                name: wanted.name.clone(),
                track: receiver.result(&plans[plan], sent),
                failure: subscription
                    .failure
                    .clone()
                    .or_else(|| self.failure.clone()),
                handshake: self.handshake,
                setup: self.setup,
                first_object: subscription.first_object_time,
                joining_fetch: subscription.joining_fetch,
                conduct: self.conduct,
                sessions: self.sessions,
            }
        };
        subscriptions
            .zip(self.receivers(measured))
            .map(result)
            .collect()
    }

    /// Handles an object in a datagram.
    #[inline]
    pub(super) fn on_datagram(
        &mut self,
        now: Instant,
        measured: &mut Measurements,
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
        let plan = &measured.config.plans[self.wanted[number].plan];
        let delivered = Delivered {
            group: datagram.group,
            object: datagram.object,
            head: &payload[..payload.len().min(HEAD_BYTES)],
            bytes: payload.len() as u64,
            intact: !measured.config.verify_content
                || (matches(payload, plan.content())
                    && carries(&datagram.properties, plan.properties())),
        };
        self.on_delivered(now, measured, number, (&delivered, false));
    }

    /// Handles an object that has arrived completely, by a joining FETCH if `is_past`.
    fn on_delivered(
        &mut self,
        now: Instant,
        measured: &mut Measurements,
        number: usize,
        (delivered, is_past): (&Delivered<'_>, bool),
    ) {
        let plan_number = self.wanted[number].plan;
        let plan = &measured.config.plans[plan_number];
        let receiver = &mut measured.receivers[self.first + number];
        let subscription = &mut self.subscriptions[number];
        let is_steady = self.conduct == Conduct::Steady;
        let received = if is_past {
            receiver.handle_past_object(now, plan, delivered)
        } else {
            receiver.handle_object(now, plan, delivered)
        };
        let is_of_track = match received {
            Received::Past { number } => {
                measured.progress.objects += 1;
                measured.progress.bytes += delivered.bytes;
                if is_steady {
                    let planned_ns = plan.schedule().planned_ns(number);
                    measured.heat[plan_number].record(self.number, planned_ns, None);
                }
                true
            }
            Received::Data {
                number,
                latency_ns,
                timing,
            } => {
                measured.progress.objects += 1;
                measured.progress.bytes += delivered.bytes;
                let at = now.saturating_duration_since(plan.clock().origin());
                if is_steady {
                    let planned_ns = plan.schedule().planned_ns(number);
                    measured.heat[plan_number].record(self.number, planned_ns, latency_ns);
                    measured.over_time[plan_number].record(at, delivered.bytes, &timing);
                }
                if let Some(latency_ns) = latency_ns.filter(|_| is_steady) {
                    measured.latency[plan_number].record_ns(at, latency_ns);
                }
                true
            }
            Received::Start | Received::Repeated | Received::Completion => true,
            Received::Foreign | Received::Malformed | Received::Ignored => false,
        };
        if is_of_track {
            subscription.note_object(now);
        }
        subscription.note_end(receiver, &mut measured.progress);
    }

    /// Handles an event of the session.
    pub(super) fn on_session_event(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        measured: &mut Measurements,
        event: SessionEvent,
    ) {
        let now = turn.now;
        match event {
            SessionEvent::Payload { stream, data } => {
                let complete = self.on_payload(&measured.config, stream, &data);
                self.on_complete(now, measured, complete);
            }
            SessionEvent::Object { stream, object } => {
                let complete = self.on_object(&measured.config, stream, &object);
                self.on_complete(now, measured, complete);
            }
            SessionEvent::Subgroup {
                stream,
                request,
                header,
            } => {
                let incoming = (header.group, header.subgroup);
                self.on_stream(turn, client, stream, request, incoming);
            }
            SessionEvent::Fetched { stream, request } => {
                self.on_fetch_stream(turn, client, stream, request);
            }
            SessionEvent::FetchObject { stream, entry } => {
                let complete = self.on_fetch_entry(&measured.config, stream, &entry);
                self.on_complete(now, measured, complete);
            }
            SessionEvent::StreamEnd { stream, end } => {
                self.on_stream_end(turn, client, measured, (stream, end));
            }
            SessionEvent::Datagram { request, datagram } => {
                self.on_datagram(now, measured, request, &datagram);
            }
            SessionEvent::Ready { .. } => self.subscribe(turn, client, measured),
            SessionEvent::Accepted { id, ok } => {
                self.on_request_accepted(turn, client, measured, (id, &ok));
            }
            SessionEvent::Rejected { id, error } => self.on_rejected(measured, id, &error),
            SessionEvent::Namespace { id, suffix } => {
                self.on_namespace(turn, client, measured, (id, &suffix));
            }
            SessionEvent::Request {
                id,
                request: Request::Publish(publish),
            } => self.on_publish(turn, client, measured, (id, &publish)),
            SessionEvent::Done { id, .. } | SessionEvent::Closed { id, .. } => {
                self.on_done(now, measured, id);
            }
            SessionEvent::Violated(violation) => {
                let reason = format!("the relay violated the protocol: {violation}");
                self.fail(measured, reason);
            }
            SessionEvent::Request { id, .. } => refuse(turn, client, id),
            SessionEvent::Update { id, .. } => client.accept_update(turn, id),
            SessionEvent::GoAway(goaway) if client.follow(turn, &goaway) => {}
            // Without another relay, the run continues. The others answer requests that a subscriber never sends.
            SessionEvent::GoAway(_)
            | SessionEvent::RequestGoAway { .. }
            | SessionEvent::Updated { .. }
            | SessionEvent::NamespaceDone { .. }
            | SessionEvent::PublishBlocked { .. }
            | SessionEvent::StateChanged { .. } => {}
        }
    }

    /// Handles payload bytes of an object. Returns the object if it is complete, and the index of its subscription.
    fn on_payload(
        &mut self,
        config: &SubscriberConfig,
        stream: StreamId,
        data: &[u8],
    ) -> Option<(usize, Complete)> {
        let mut streams = self.streams.iter_mut().rev();
        let incoming = streams.find(|one| one.stream == stream)?;
        let plan = &config.plans[self.wanted[incoming.subscription].plan];
        let content = config.verify_content.then(|| plan.content());
        Some((incoming.subscription, incoming.on_payload(data, content)?))
    }

    /// Handles the beginning of an object in a subgroup. Returns the object if it is complete, and the index of its
    /// subscription.
    fn on_object(
        &mut self,
        config: &SubscriberConfig,
        stream: StreamId,
        object: &ObjectHeader,
    ) -> Option<(usize, Complete)> {
        let mut streams = self.streams.iter_mut().rev();
        let incoming = streams.find(|one| one.stream == stream)?;
        let plan = &config.plans[self.wanted[incoming.subscription].plan];
        let intact = !config.verify_content || carries(&object.properties, plan.properties());
        Some((incoming.subscription, incoming.on_object(object, intact)?))
    }

    /// Requests every track, once the session is established.
    pub(super) fn subscribe(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        measured: &mut Measurements,
    ) {
        self.sessions += 1;
        if self.sessions == 1 {
            self.setup = client.setup_time();
            measured.note_relay(client);
        } else {
            measured.progress.rejoined += 1;
        }
        self.wait_for_fetches(&measured.config);
        match measured.config.flow {
            SubscribeFlow::Subscribe => {
                let all = 0..self.wanted.len();
                self.ask_for(turn, client, measured, all);
            }
            SubscribeFlow::SubscribeNamespace | SubscribeFlow::SubscribeTracks => {
                self.discover(turn, client, measured);
            }
        }
    }

    /// Sends SUBSCRIBE for those of these tracks that have no request.
    pub(super) fn ask_for(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        measured: &mut Measurements,
        numbers: impl IntoIterator<Item = usize>,
    ) {
        let now = turn.now;
        let tokens = client.tokens();
        let Some((session, mut connection)) = client.open(turn) else {
            return;
        };
        for number in numbers {
            let (subscription, wanted) = (&mut self.subscriptions[number], &self.wanted[number]);
            if subscription.is_requested() || subscription.is_fetched_later {
                continue;
            }
            subscription.on_requested(now);
            let parameters = measured
                .config
                .request
                .parameters(&measured.config.plans[wanted.plan], tokens.clone());
            match session.subscribe(&mut connection, wanted.name.clone(), parameters) {
                Ok(request) => insert_request(&mut self.requests, request, number),
                Err(refused) => {
                    let receiver = &mut measured.receivers[self.first + number];
                    subscription.failure = Some(format!("could not subscribe: {refused}"));
                    receiver.fail(Failure::Refused);
                    receiver.end(End::Disconnected);
                    subscription.note_end(receiver, &mut measured.progress);
                }
            }
        }
    }

    pub(super) fn on_accepted(&mut self, measured: &mut Measurements, id: RequestId) {
        if let Some(number) = self.number_of(id) {
            self.subscriptions[number].on_accepted(&mut measured.progress);
        }
    }

    fn on_rejected(&mut self, measured: &mut Measurements, id: RequestId, error: &RequestError) {
        if self.discovery == Some(id) {
            let RequestError { code, reason, .. } = error;
            return self.fail(
                measured,
                format!("the relay refused to tell what there is: {code} {reason:?}"),
            );
        }
        let RequestError { code, reason, .. } = error;
        if let Some(number) = self.join_of(id) {
            let reason = format!("the relay refused the joining FETCH: {code} {reason:?}");
            return self.fail_join(measured, number, reason);
        }
        let Some(number) = self.number_of(id) else {
            return;
        };
        let subscription = &mut self.subscriptions[number];
        let receiver = &mut measured.receivers[self.first + number];
        subscription.failure = Some(format!(
            "the relay refused the subscription: {code} {reason:?}"
        ));
        receiver.fail(Failure::Refused);
        receiver.end(End::Disconnected);
        subscription.note_end(receiver, &mut measured.progress);
    }

    /// Handles the end of a subscription, with or without a PUBLISH_DONE.
    fn on_done(&mut self, now: Instant, measured: &mut Measurements, id: RequestId) {
        let is_last = |number: &usize| self.subscriptions[*number].next_range.is_none();
        // The request of a range ends before the next one is sent.
        if let Some(number) = self.number_of(id).filter(is_last) {
            let plan = &measured.config.plans[self.wanted[number].plan];
            measured.receivers[self.first + number].handle_publish_done(now, plan);
        }
    }

    /// Handles the beginning of a subgroup or fetch stream.
    pub(super) fn on_stream(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        stream: StreamId,
        request: RequestId,
        (group, subgroup): (u64, SubgroupId),
    ) {
        match self.number_of(request) {
            Some(number) if self.streams.len() < INCOMING_STREAMS_MAX => {
                let incoming = Incoming::new(stream, number, group, subgroup);
                self.streams.push(incoming);
            }
            Some(_) | None => {
                if let Some((session, mut connection)) = client.open(turn) {
                    session.stop_data(&mut connection, stream, ResetCode::EXCESSIVE_LOAD);
                }
            }
        }
    }

    pub(super) fn on_complete(
        &mut self,
        now: Instant,
        measured: &mut Measurements,
        complete: Option<(usize, Complete)>,
    ) {
        if let Some((number, complete)) = complete {
            let is_past = complete.is_past;
            self.on_delivered(now, measured, number, (&complete.delivered(), is_past));
        }
    }

    fn on_stream_end(
        &mut self,
        turn: &mut Turn<'_>,
        client: &mut Client,
        measured: &mut Measurements,
        (stream, end): (StreamId, StreamEnd),
    ) {
        let Some(position) = self.streams.iter().position(|one| one.stream == stream) else {
            return;
        };
        let incoming = self.streams.swap_remove(position);
        match end {
            StreamEnd::Fin => self.on_fetch_end(turn, client, measured, &incoming),
            StreamEnd::Reset(_) if incoming.is_past => {
                let reason = "the relay reset the stream of the joining FETCH";
                self.fail_join(measured, incoming.subscription, reason.to_owned());
            }
            StreamEnd::Reset(_) => {
                let (group, subgroup, next_object) = incoming.position();
                let plan = &measured.config.plans[self.wanted[incoming.subscription].plan];
                let receiver = &mut measured.receivers[self.first + incoming.subscription];
                receiver.handle_reset(plan, group, subgroup, next_object);
            }
        }
    }

    /// Fails the subscriber and ends its tracks. The first reason is kept.
    pub(super) fn fail(&mut self, measured: &mut Measurements, reason: String) {
        if self.failure.is_none() {
            self.failure = Some(reason);
            measured.progress.failed += 1;
            self.streams = Vec::new();
            self.end(measured, End::Disconnected);
        }
    }

    /// Returns the index of the subscription that a request belongs to.
    #[inline]
    pub(super) fn number_of(&self, request: RequestId) -> Option<usize> {
        let place = self
            .requests
            .binary_search_by_key(&request, |(one, _)| *one);
        place.ok().map(|place| self.requests[place].1)
    }
}

/// Refuses a request, since a subscriber serves none.
pub(super) fn refuse(turn: &mut Turn<'_>, client: &mut Client, id: RequestId) {
    let reason = "a benchmark subscriber asks for what it wants";
    let error = RequestError::new(RequestErrorCode::UNINTERESTED, reason);
    client.refuse(turn, id, error);
}

/// Records the subscription of a request. Request IDs ascend, except those of the relay.
pub(super) fn insert_request(
    requests: &mut Vec<(RequestId, usize)>,
    request: RequestId,
    number: usize,
) {
    let place = requests.partition_point(|(one, _)| *one < request);
    requests.insert(place, (request, number));
}
