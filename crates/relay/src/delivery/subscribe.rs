//! SUBSCRIBE and what follows from it: who gets a track, who waits for it, and how it ends for them.

use std::time::{Duration, Instant};

use weir_moqt::{
    error::RequestErrorCode,
    location::Location,
    message::{RequestError, RequestOk, Subscribe, SubscribeOk},
    parameter::{Filter, Parameters},
    session::RequestId,
};
use weir_quic::{Endpoint, Handle};

use crate::{
    Relay, delivery::subscription::Subscriber, sessions::peer::Part, timers::Timer, track::Waiting,
    track::table::TrackId,
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
        let is_neighbour = peer.is_neighbour;
        if !is_neighbour && peer.counts.subscribers >= limits.subscriptions_per_session_max {
            self.counters.refused_limit_subscriptions += 1;
            return self.refuse(now, endpoint, handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        let track = &subscribe.track;
        let Some(track_id) = self.tracks.find_or_create(track, limits.tracks_max) else {
            self.counters.refused_limit_tracks += 1;
            return self.refuse(now, endpoint, handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        };
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        if track.has_subscriber(handle) {
            self.counters.refused_duplicate += 1;
            let code = RequestErrorCode::DUPLICATE_SUBSCRIPTION;
            return self.refuse(now, endpoint, handle, id, code);
        }
        let rendezvous = subscribe.parameters.rendezvous_timeout.unwrap_or_default();
        let until = now + rendezvous.min(limits.rendezvous_max);
        let answer_by = now + UPSTREAM_ANSWER_MAX;
        let wake = until.max(answer_by);
        let wishes = Parameters {
            new_group_request: subscribe.parameters.new_group_request,
            ..Parameters::default()
        };
        track.waiting.push(Waiting {
            handle,
            request: id,
            is_neighbour,
            parameters: subscribe.parameters,
            until,
            answer_by,
            wake,
        });
        peer.insert(id, Part::Subscriber(track_id));
        self.timers.set(wake, Timer::Rendezvous(handle, id));
        let is_established = track.is_established();
        if is_neighbour {
            if track.is_established_here() {
                self.request_group(now, endpoint, track_id, &wishes);
                return self.admit_waiting(now, endpoint, track_id);
            }
            self.ask_publishers(now, endpoint, track_id, None);
            return self.dismiss_neighbours(now, endpoint, track_id);
        }
        if is_established {
            self.request_group(now, endpoint, track_id, &wishes);
            self.ask_neighbours(now, endpoint, track_id);
            return self.admit_waiting(now, endpoint, track_id);
        }
        if self.neighbours_len() > 0 {
            // One may have offered it, and rest.
            self.update_upstream(now, endpoint, track_id);
        }
        let is_asking = self.tracks.get(track_id).is_some_and(|it| it.is_asking());
        let is_asked = self.ask_publishers(now, endpoint, track_id, None) > 0;
        if !is_asking && !is_asked {
            let code = RequestErrorCode::DOES_NOT_EXIST;
            self.on_publishers_declined(now, endpoint, track_id, code);
        }
    }

    /// The publisher is there: everyone who waits becomes a subscriber.
    pub(crate) fn admit_waiting(&mut self, now: Instant, endpoint: &mut Endpoint, id: TrackId) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let is_established_here = track.is_established_here();
        let admitted = track
            .waiting
            .extract_if(.., |waiting| !waiting.is_neighbour || is_established_here);
        for waiting in admitted.collect::<Vec<_>>() {
            let timer = Timer::Rendezvous(waiting.handle, waiting.request);
            self.timers.cancel(waiting.wake, timer);
            self.admit(now, endpoint, id, waiting);
        }
        self.update_upstream(now, endpoint, id);
        self.settle_joins(now, endpoint, id);
    }

    fn admit(&mut self, now: Instant, endpoint: &mut Endpoint, id: TrackId, waiting: Waiting) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let Waiting {
            handle,
            request,
            is_neighbour,
            parameters,
            ..
        } = waiting;
        if is_over(parameters.filter, track.largest) {
            if let Some(peer) = self.peers.get(handle) {
                peer.remove(request);
            }
            self.counters.refused_range += 1;
            let code = RequestErrorCode::INVALID_RANGE;
            return self.refuse(now, endpoint, handle, request, code);
        }
        let expires = self.expires_in(now, handle, request);
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let defaults = track.defaults();
        let mut subscriber = Subscriber::new(handle, request, &parameters, track.largest, defaults);
        subscriber.is_neighbour = is_neighbour;
        if let Err(place) = track.place(handle, request) {
            track.subscribers.insert(place, subscriber);
        }
        let ok = SubscribeOk {
            track_alias: track.alias,
            parameters: Parameters {
                largest_object: track.largest,
                expires,
                ..Parameters::default()
            },
            properties: track.properties.clone(),
        };
        self.with_session(now, endpoint, handle, |session, connection| {
            session.subscribe_ok(connection, request, ok);
        });
    }

    /// No publisher came, or none answered, in time.
    pub(crate) fn on_waited(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        request: RequestId,
    ) {
        let part = self
            .peers
            .get(handle)
            .and_then(|peer| peer.requests.get(&request));
        let Some(&Part::Subscriber(track)) = part else {
            return;
        };
        self.counters.refused_timeout += 1;
        self.refuse_waiting(now, endpoint, handle, request, RequestErrorCode::TIMEOUT);
        self.update_upstream(now, endpoint, track);
    }

    /// No publisher is left who could still accept: those who do not want to wait for another are told.
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
        for waiting in &mut found.waiting {
            let timer = Timer::Rendezvous(waiting.handle, waiting.request);
            if waiting.until > now {
                self.timers.cancel(waiting.wake, timer);
                waiting.wake = waiting.until;
                self.timers.set(waiting.wake, timer);
            } else {
                refused.push((waiting.handle, waiting.request));
            }
        }
        for (handle, request) in refused {
            if code == RequestErrorCode::DOES_NOT_EXIST {
                self.counters.refused_does_not_exist += 1;
            }
            self.refuse_waiting(now, endpoint, handle, request, code);
        }
    }

    pub(crate) fn refuse_waiting(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        request: RequestId,
        code: RequestErrorCode,
    ) {
        let part = self.peers.get(handle).and_then(|peer| peer.remove(request));
        if let Some(Part::Subscriber(id)) = part {
            self.stop_waiting(id, handle, request);
            self.settle_joins(now, endpoint, id);
            self.forget_if_unused(id);
        }
        self.refuse(now, endpoint, handle, request, code);
    }

    fn stop_waiting(&mut self, id: TrackId, handle: Handle, request: RequestId) {
        if let Some(track) = self.tracks.get(id)
            && let Some(place) = track
                .waiting
                .iter()
                .position(|waiting| waiting.is_of(handle, request))
        {
            let waiting = track.waiting.remove(place);
            let timer = Timer::Rendezvous(handle, request);
            self.timers.cancel(waiting.wake, timer);
        }
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
        self.stop_waiting(id, handle, request);
        let who = (id, handle, request);
        self.with_subscriber(now, endpoint, who, |subscriber, connection, _, turn| {
            subscriber.abandon(connection, turn);
        });
        if let Some(track) = self.tracks.get(id)
            && let Ok(place) = track.place(handle, request)
        {
            let subscriber = track.subscribers.remove(place);
            for subgroup in subscriber.holds() {
                track.settle_subgroup(subgroup);
            }
        }
        self.settle_joins(now, endpoint, id);
        self.update_upstream(now, endpoint, id);
        self.forget_if_unused(id);
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
        let needs_permit = !parameters.authorization_tokens.is_empty()
            || parameters.track_namespace_prefix.is_some();
        if needs_permit && !self.is_renewed(now, endpoint, handle, id, parameters) {
            return;
        }
        let part = self
            .peers
            .get(handle)
            .and_then(|peer| peer.requests.get(&id));
        let mut answer = RequestOk::default();
        if matches!(part, Some(Part::Interest(_))) {
            return self.update_interest(now, endpoint, handle, id, parameters);
        }
        if let Some(&Part::Subscriber(track_id)) = part {
            let Some(track) = self.tracks.get(track_id) else {
                return;
            };
            let largest = track.largest;
            let mut waiting = track.waiting.iter_mut();
            if let Some(waiting) = waiting.find(|waiting| waiting.is_of(handle, id)) {
                waiting.parameters.change(parameters);
                return self.grant_update(now, endpoint, handle, id, answer);
            }
            let who = (track_id, handle, id);
            self.with_subscriber(now, endpoint, who, |subscriber, connection, _, turn| {
                let had_forward = subscriber.forward;
                subscriber.update(connection, parameters, largest, turn);
                let wakes = subscriber.forward && !had_forward;
                if wakes {
                    subscriber.joining = largest;
                }
                if wakes || parameters.filter.is_some() {
                    answer.parameters.largest_object = largest;
                }
            });
            self.request_group(now, endpoint, track_id, parameters);
            self.update_upstream(now, endpoint, track_id);
            self.dismiss_neighbours(now, endpoint, track_id);
            self.dismiss_if_drained(now, endpoint, track_id, handle, id);
            answer.parameters.expires = self.expires_in(now, handle, id);
        }
        self.update_fetch(now, endpoint, (handle, id), parameters);
        self.grant_update(now, endpoint, handle, id, answer);
    }

    /// Answers the oldest update of a request.
    pub(crate) fn grant_update(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
        ok: RequestOk,
    ) {
        self.with_session(now, endpoint, handle, |session, connection| {
            session.update_ok(connection, id, ok);
        });
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
        self.with_session(now, endpoint, handle, |session, connection| {
            session.request_error(connection, id, refusal(code));
        });
    }
}

/// The error of a request or an update that the relay refuses.
pub(crate) fn refusal(code: RequestErrorCode) -> RequestError {
    RequestError {
        code,
        retry_after: (code == RequestErrorCode::EXCESSIVE_LOAD).then_some(LOAD_RETRY),
        reason: reason(code).to_owned(),
        redirect: None,
    }
}

/// Whether a filter ends before what the track has come to [moqt-18 §5.1.2].
fn is_over(filter: Option<Filter>, largest: Option<Location>) -> bool {
    match (filter, largest) {
        (Some(Filter::AbsoluteRange { end_group, .. }), Some(largest)) => end_group < largest.group,
        (_, _) => false,
    }
}

fn reason(code: RequestErrorCode) -> &'static str {
    match code {
        RequestErrorCode::DOES_NOT_EXIST => "nobody publishes this track",
        RequestErrorCode::TIMEOUT => "no publisher came in time",
        RequestErrorCode::EXCESSIVE_LOAD => "a limit of the relay is reached",
        RequestErrorCode::DUPLICATE_SUBSCRIPTION => "the session has this subscription already",
        RequestErrorCode::INVALID_RANGE => "there is nothing in this range",
        RequestErrorCode::INVALID_JOINING_REQUEST_ID => "there is no such subscription to join",
        RequestErrorCode::NOT_SUPPORTED => "no publisher serves this request",
        RequestErrorCode::PREFIX_OVERLAP => "the prefix overlaps with another of this session",
        RequestErrorCode::NAMESPACE_TOO_LARGE => "there is too much under this prefix",
        RequestErrorCode::UNAUTHORIZED => "nothing that was shown permits this",
        RequestErrorCode::EXPIRED_AUTH_TOKEN => "the authorization has expired",
        RequestErrorCode::MALFORMED_AUTH_TOKEN => "the authorization token cannot be read",
        _ => "",
    }
}

/// How long publishers may take to answer a SUBSCRIBE of the relay.
const UPSTREAM_ANSWER_MAX: Duration = Duration::from_secs(10);
/// When a request that was refused at a limit may be tried again.
const LOAD_RETRY: Duration = Duration::from_secs(1);
