//! SUBSCRIBE and what follows from it: who gets a track, who waits for it, and how it ends for them.

use std::time::{Duration, Instant};

use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode},
    message::{PublishDone, RequestError, RequestOk, Subscribe, SubscribeOk},
    name::FullTrackName,
    parameter::Parameters,
    property::Properties,
    session::RequestId,
};
use weir_quic::{Endpoint, Handle};

use crate::{
    Relay, peer::Part, subscriber::Subscriber, timers::Timer, track::Waiting, tracks::TrackId,
};

impl Relay {
    /// A session wants a track.
    pub(crate) fn on_subscribe(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
        subscribe: Subscribe,
    ) {
        let limits = &self.config.limits;
        let Some(peer) = self.peers.get(handle) else {
            return;
        };
        let is_full = peer.counts.subscribers >= limits.subscriptions_per_session_max;
        let track_id = (!is_full)
            .then(|| {
                self.tracks
                    .find_or_create(&subscribe.track, limits.tracks_max)
            })
            .flatten();
        let Some(track_id) = track_id else {
            self.counters.refused_load += 1;
            return self.refuse(now, endpoint, handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        };
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        if track.has_subscriber(handle) {
            self.counters.refused_duplicate += 1;
            return self.refuse(
                now,
                endpoint,
                handle,
                id,
                RequestErrorCode::DUPLICATE_SUBSCRIPTION,
            );
        }
        let rendezvous = subscribe.parameters.rendezvous_timeout.unwrap_or_default();
        let waiting = Waiting {
            handle,
            request: id,
            parameters: subscribe.parameters,
            until: now + rendezvous.min(limits.rendezvous_max),
            answer_by: now + UPSTREAM_ANSWER_MAX,
        };
        let until = waiting.until;
        track.waiting.push(waiting);
        peer.insert(id, Part::Subscriber(track_id));
        if track.is_established() {
            return self.admit_waiting(now, endpoint, track_id);
        }
        self.unserved.insert(track_id);
        let is_asking = track.is_asking() || self.ask_publishers(now, endpoint, track_id) > 0;
        if is_asking {
            self.timers
                .set(now + UPSTREAM_ANSWER_MAX, Timer::Rendezvous(handle, id));
        } else if until > now {
            self.timers.set(until, Timer::Rendezvous(handle, id));
        } else {
            self.refuse_waiting(now, endpoint, handle, id, RequestErrorCode::DOES_NOT_EXIST);
        }
    }

    /// The publisher is there: everyone who waits becomes a subscriber.
    pub(crate) fn admit_waiting(&mut self, now: Instant, endpoint: &mut Endpoint, id: TrackId) {
        self.unserved.remove(&id);
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        for waiting in std::mem::take(&mut track.waiting) {
            let Waiting {
                handle,
                request,
                parameters,
                ..
            } = waiting;
            let Some(track) = self.tracks.get(id) else {
                return;
            };
            let defaults = track.defaults();
            let subscriber = Subscriber::new(handle, request, &parameters, track.largest, defaults);
            if let Err(place) = track.place(handle, request) {
                track.subscribers.insert(place, subscriber);
            }
            let ok = SubscribeOk {
                track_alias: track.alias,
                parameters: Parameters {
                    largest_object: track.largest,
                    ..Parameters::default()
                },
                properties: track.properties.clone(),
            };
            self.with_session(now, endpoint, handle, |session, connection| {
                session.subscribe_ok(connection, request, ok);
            });
        }
        self.update_upstream(now, endpoint, id);
    }

    /// No publisher came, or none answered, in time.
    pub(crate) fn on_waited(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        request: RequestId,
    ) {
        let Some(Part::Subscriber(track)) = self
            .peers
            .get(handle)
            .and_then(|peer| peer.requests.get(&request))
            .cloned()
        else {
            return;
        };
        let Some(track) = self.tracks.get(track) else {
            return;
        };
        let is_asking = track.is_asking();
        let is_it = |waiting: &&Waiting| waiting.handle == handle && waiting.request == request;
        let Some(waiting) = track.waiting.iter().find(is_it) else {
            return;
        };
        let by = if is_asking {
            waiting.answer_by.max(waiting.until)
        } else {
            waiting.until
        };
        if now < by {
            self.timers.set(by, Timer::Rendezvous(handle, request));
            return;
        }
        self.counters.refused_timeout += 1;
        self.refuse_waiting(now, endpoint, handle, request, RequestErrorCode::TIMEOUT);
    }

    /// Whoever waited for the publishers that were asked: they all declined.
    pub(crate) fn on_publishers_declined(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        track: TrackId,
        code: RequestErrorCode,
    ) {
        let Some(found) = self.tracks.get(track) else {
            return;
        };
        let mut refused = Vec::new();
        for waiting in &found.waiting {
            if waiting.until > now {
                let timer = Timer::Rendezvous(waiting.handle, waiting.request);
                self.timers.set(waiting.until, timer);
            } else {
                refused.push((waiting.handle, waiting.request));
            }
        }
        for (handle, request) in refused {
            self.refuse_waiting(now, endpoint, handle, request, code);
        }
    }

    fn refuse_waiting(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        request: RequestId,
        code: RequestErrorCode,
    ) {
        let part = self.peers.get(handle).and_then(|peer| peer.remove(request));
        if let Some(Part::Subscriber(id)) = part
            && let Some(track) = self.tracks.get(id)
        {
            track
                .waiting
                .retain(|other| (other.handle, other.request) != (handle, request));
            self.forget_if_unused(id);
        }
        if code == RequestErrorCode::DOES_NOT_EXIST {
            self.counters.refused_does_not_exist += 1;
        }
        self.refuse(now, endpoint, handle, request, code);
    }

    /// A subscriber ended its subscription, or is gone itself.
    pub(crate) fn subscriber_gone(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        id: TrackId,
        handle: Handle,
        request: RequestId,
    ) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        track
            .waiting
            .retain(|other| (other.handle, other.request) != (handle, request));
        if let Ok(place) = track.place(handle, request) {
            let mut subscriber = track.subscribers.remove(place);
            if let Some(mut connection) = endpoint.connection(now, handle) {
                subscriber.abandon(&mut connection);
            }
        }
        self.drop_read_subgroups(id);
        self.update_upstream(now, endpoint, id);
        self.forget_if_unused(id);
    }

    /// Forgets ended subgroups that nobody reads any more.
    fn drop_read_subgroups(&mut self, id: TrackId) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let subscribers = &track.subscribers;
        track.subgroups.retain(|subgroup| {
            subgroup.ended().is_none()
                || subgroup.is_fresh()
                || subscribers
                    .iter()
                    .any(|subscriber| subscriber.is_in(subgroup.id))
        });
    }

    /// A session changes one of its requests.
    pub(crate) fn on_update(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
        parameters: &Parameters,
    ) {
        let part = self
            .peers
            .get(handle)
            .and_then(|peer| peer.requests.get(&id))
            .cloned();
        let mut answer = RequestOk::default();
        if let Some(Part::Subscriber(track_id)) = part {
            let Some(track) = self.tracks.get(track_id) else {
                return;
            };
            let (largest, defaults) = (track.largest, track.defaults());
            if let Some(subscriber) = track.subscriber(handle, id) {
                let was_forward = subscriber.forward;
                subscriber.update(parameters, largest, defaults);
                if !was_forward && subscriber.forward {
                    answer.parameters.largest_object = largest;
                }
            }
            if parameters.filter.is_some() {
                answer.parameters.largest_object = largest;
            }
            self.with_session(now, endpoint, handle, |session, connection| {
                session.request_ok(connection, id, answer);
            });
            self.update_upstream(now, endpoint, track_id);
            return;
        }
        self.with_session(now, endpoint, handle, |session, connection| {
            session.request_ok(connection, id, answer);
        });
    }

    /// A session asks how a track stands.
    pub(crate) fn on_track_status(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
        name: &FullTrackName,
    ) {
        let track = self.tracks.find(name).and_then(|id| self.tracks.get(id));
        let Some(track) = track.filter(|track| track.is_established()) else {
            self.counters.refused_does_not_exist += 1;
            return self.refuse(now, endpoint, handle, id, RequestErrorCode::DOES_NOT_EXIST);
        };
        let ok = RequestOk {
            parameters: Parameters {
                largest_object: track.largest,
                ..Parameters::default()
            },
            properties: track.properties.clone(),
        };
        self.with_session(now, endpoint, handle, |session, connection| {
            session.request_ok(connection, id, ok);
        });
    }

    /// Ends a track for all its subscribers: at once for those who have everything, for the others as soon as
    /// their streams are complete [moqt-18 §10.13].
    pub(crate) fn dismiss_subscribers(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        id: TrackId,
        done: &PublishDone,
    ) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let mut drained = Vec::new();
        for subscriber in &mut track.subscribers {
            subscriber.ending = Some(done.clone());
            subscriber.forward = false;
            if subscriber.is_drained() {
                drained.push((subscriber.handle, subscriber.request));
            }
        }
        for (handle, request) in drained {
            self.dismiss_if_drained(now, endpoint, id, handle, request);
        }
        self.forget_if_unused(id);
    }

    /// Sends PUBLISH_DONE to a subscriber whose track has ended, once its streams are complete.
    pub(crate) fn dismiss_if_drained(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        id: TrackId,
        handle: Handle,
        request: RequestId,
    ) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let Ok(place) = track.place(handle, request) else {
            return;
        };
        let subscriber = &track.subscribers[place];
        if subscriber.ending.is_none() || !subscriber.is_drained() {
            return;
        }
        let subscriber = track.subscribers.remove(place);
        let done = subscriber.ending.clone().map(|done| PublishDone {
            stream_count: Some(subscriber.streams_opened()),
            ..done
        });
        if let Some(peer) = self.peers.get(handle) {
            peer.remove(request);
        }
        if let Some(done) = done {
            self.with_session(now, endpoint, handle, |session, connection| {
                session.publish_done(connection, request, done);
            });
        }
        self.forget_if_unused(id);
    }

    /// Answers a request of a kind that the relay does not serve.
    pub(crate) fn refuse_unsupported(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
    ) {
        self.counters.refused_not_supported += 1;
        self.refuse(now, endpoint, handle, id, RequestErrorCode::NOT_SUPPORTED);
    }

    /// Answers a request with an error.
    pub(crate) fn refuse(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
        code: RequestErrorCode,
    ) {
        let retry_after = (code == RequestErrorCode::EXCESSIVE_LOAD).then_some(LOAD_RETRY);
        let reason = reason(code).to_owned();
        let error = RequestError {
            code,
            retry_after,
            reason,
            redirect: None,
        };
        self.with_session(now, endpoint, handle, |session, connection| {
            session.request_error(connection, id, error);
        });
    }

    pub(crate) fn forget_if_unused(&mut self, id: TrackId) {
        self.tracks.remove_if_unused(id);
        if self.tracks.get(id).is_none() {
            self.unserved.remove(&id);
        }
    }

    /// The properties that subscribers are told of a track; the first publisher decides.
    pub(crate) fn adopt_properties(&mut self, id: TrackId, properties: &Properties) {
        if let Some(track) = self.tracks.get(id)
            && track.sources.len() <= 1
        {
            track.properties = properties.clone();
        }
    }
}

/// What is said when a track ends because its publisher vanished.
pub(crate) fn publisher_gone() -> PublishDone {
    PublishDone {
        code: PublishDoneCode::TRACK_ENDED,
        stream_count: None,
        reason: "the publisher is gone".to_owned(),
    }
}

fn reason(code: RequestErrorCode) -> &'static str {
    match code {
        RequestErrorCode::DOES_NOT_EXIST => "nobody publishes this track",
        RequestErrorCode::TIMEOUT => "no publisher came in time",
        RequestErrorCode::EXCESSIVE_LOAD => "a limit of the relay is reached",
        RequestErrorCode::DUPLICATE_SUBSCRIPTION => "the session has this subscription already",
        RequestErrorCode::NOT_SUPPORTED => "the relay does not serve this request",
        _ => "",
    }
}

/// How long publishers may take to answer a SUBSCRIBE of the relay.
const UPSTREAM_ANSWER_MAX: Duration = Duration::from_secs(10);
/// When a request that was refused at a limit may be tried again.
const LOAD_RETRY: Duration = Duration::from_secs(1);
