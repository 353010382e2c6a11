//! SUBSCRIBE and what follows from it: who gets a track, who waits for it, and how it ends for them.

use std::time::Duration;

use weir_moqt::{
    error::RequestErrorCode,
    location::Location,
    message::{RequestOk, Subscribe, SubscribeOk},
    parameter::{Filter, Parameters},
    session::RequestId,
};
use weir_quic::Handle;

use crate::{
    delivery::subscription::Subscriber, dispatch::Owners, sessions::peer::Part, timers::Timer,
    track::Waiting, track::table::TrackId, turn::Turn,
};

impl Owners {
    /// A session wants a track.
    pub(crate) fn on_subscribe(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        subscribe: Subscribe,
    ) {
        let limits = &turn.config.limits;
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let is_neighbour = peer.is_neighbour;
        if !is_neighbour && peer.counts.subscribers >= limits.subscriptions_per_session_max {
            turn.counters.refused_limit_subscriptions += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        let track = &subscribe.track;
        let Some(track_id) = self.tracks.find_or_create(track, limits.tracks_max) else {
            turn.counters.refused_limit_tracks += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        };
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        if track.has_subscriber(handle) {
            turn.counters.refused_duplicate += 1;
            let code = RequestErrorCode::DUPLICATE_SUBSCRIPTION;
            return turn.refuse(handle, id, code);
        }
        let rendezvous = subscribe.parameters.rendezvous_timeout.unwrap_or_default();
        let until = turn.now + rendezvous.min(limits.rendezvous_max);
        let answer_by = turn.now + UPSTREAM_ANSWER_MAX;
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
        turn.timers.set(wake, Timer::Rendezvous(handle, id));
        let is_established = track.is_established();
        if is_neighbour {
            if track.is_established_here() {
                self.request_group(turn, track_id, &wishes);
                return self.admit_waiting(turn, track_id);
            }
            self.ask_publishers(turn, track_id, None);
            return self.dismiss_neighbours(turn, track_id);
        }
        if is_established {
            self.request_group(turn, track_id, &wishes);
            self.ask_neighbours(turn, track_id);
            return self.admit_waiting(turn, track_id);
        }
        if self.neighbours_len() > 0 {
            // One may have offered it, and rest.
            self.update_upstream(turn, track_id);
        }
        let is_asking = self.tracks.get(track_id).is_some_and(|it| it.is_asking());
        let is_asked = self.ask_publishers(turn, track_id, None) > 0;
        if !is_asking && !is_asked {
            let code = RequestErrorCode::DOES_NOT_EXIST;
            self.on_publishers_declined(turn, track_id, code);
        }
    }

    /// The publisher is there: everyone who waits becomes a subscriber.
    pub(crate) fn admit_waiting(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let is_established_here = track.is_established_here();
        let admitted = track
            .waiting
            .extract_if(.., |waiting| !waiting.is_neighbour || is_established_here);
        for waiting in admitted.collect::<Vec<_>>() {
            let timer = Timer::Rendezvous(waiting.handle, waiting.request);
            turn.timers.cancel(waiting.wake, timer);
            self.admit(turn, id, waiting);
        }
        self.update_upstream(turn, id);
        self.settle_joins(turn, id);
    }

    fn admit(&mut self, turn: &mut Turn<'_>, id: TrackId, waiting: Waiting) {
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
            if let Some(peer) = turn.sessions.get(handle) {
                peer.remove(request);
            }
            turn.counters.refused_range += 1;
            let code = RequestErrorCode::INVALID_RANGE;
            return turn.refuse(handle, request, code);
        }
        let expires = turn.expires_in(handle, request);
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
        turn.with_session(handle, |session, connection| {
            session.subscribe_ok(connection, request, ok);
        });
    }

    /// No publisher came, or none answered, in time.
    pub(crate) fn on_waited(&mut self, turn: &mut Turn<'_>, handle: Handle, request: RequestId) {
        let part = turn
            .sessions
            .get(handle)
            .and_then(|peer| peer.requests.get(&request));
        let Some(&Part::Subscriber(track)) = part else {
            return;
        };
        turn.counters.refused_timeout += 1;
        self.refuse_waiting(turn, handle, request, RequestErrorCode::TIMEOUT);
        self.update_upstream(turn, track);
    }

    /// No publisher is left who could still accept: those who do not want to wait for another are told.
    pub(crate) fn on_publishers_declined(
        &mut self,
        turn: &mut Turn<'_>,
        track: TrackId,
        code: RequestErrorCode,
    ) {
        let Some(found) = self.tracks.get(track) else {
            return;
        };
        let mut refused = Vec::new();
        for waiting in &mut found.waiting {
            let timer = Timer::Rendezvous(waiting.handle, waiting.request);
            if waiting.until > turn.now {
                turn.timers.cancel(waiting.wake, timer);
                waiting.wake = waiting.until;
                turn.timers.set(waiting.wake, timer);
            } else {
                refused.push((waiting.handle, waiting.request));
            }
        }
        for (handle, request) in refused {
            if code == RequestErrorCode::DOES_NOT_EXIST {
                turn.counters.refused_does_not_exist += 1;
            }
            self.refuse_waiting(turn, handle, request, code);
        }
    }

    pub(crate) fn refuse_waiting(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        request: RequestId,
        code: RequestErrorCode,
    ) {
        let part = turn
            .sessions
            .get(handle)
            .and_then(|peer| peer.remove(request));
        if let Some(Part::Subscriber(id)) = part {
            self.stop_waiting(turn, id, handle, request);
            self.settle_joins(turn, id);
            self.forget_if_unused(turn, id);
        }
        turn.refuse(handle, request, code);
    }

    fn stop_waiting(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        handle: Handle,
        request: RequestId,
    ) {
        if let Some(track) = self.tracks.get(id)
            && let Some(place) = track
                .waiting
                .iter()
                .position(|waiting| waiting.is_of(handle, request))
        {
            let waiting = track.waiting.remove(place);
            let timer = Timer::Rendezvous(handle, request);
            turn.timers.cancel(waiting.wake, timer);
        }
    }

    /// A subscriber ended its subscription, or is gone itself.
    pub(crate) fn subscriber_gone(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        handle: Handle,
        request: RequestId,
    ) {
        self.stop_waiting(turn, id, handle, request);
        let who = (id, handle, request);
        self.with_subscriber(turn, who, |subscriber, connection, _, turn| {
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
        self.settle_joins(turn, id);
        self.update_upstream(turn, id);
        self.forget_if_unused(turn, id);
    }

    /// A session changes one of its requests.
    pub(crate) fn on_update(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        parameters: &Parameters,
    ) {
        let needs_permit = !parameters.authorization_tokens.is_empty()
            || parameters.track_namespace_prefix.is_some();
        if needs_permit && !self.is_renewed(turn, handle, id, parameters) {
            return;
        }
        let part = turn
            .sessions
            .get(handle)
            .and_then(|peer| peer.requests.get(&id));
        let mut answer = RequestOk::default();
        if matches!(part, Some(Part::Interest(_))) {
            return self.update_interest(turn, handle, id, parameters);
        }
        if let Some(&Part::Subscriber(track_id)) = part {
            let Some(track) = self.tracks.get(track_id) else {
                return;
            };
            let largest = track.largest;
            let mut waiting = track.waiting.iter_mut();
            if let Some(waiting) = waiting.find(|waiting| waiting.is_of(handle, id)) {
                waiting.parameters.change(parameters);
                return turn.grant_update(handle, id, answer);
            }
            let who = (track_id, handle, id);
            self.with_subscriber(turn, who, |subscriber, connection, _, turn| {
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
            self.request_group(turn, track_id, parameters);
            self.update_upstream(turn, track_id);
            self.dismiss_neighbours(turn, track_id);
            self.dismiss_if_drained(turn, track_id, handle, id);
            answer.parameters.expires = turn.expires_in(handle, id);
        }
        self.update_fetch(turn, (handle, id), parameters);
        turn.grant_update(handle, id, answer);
    }
}

/// Whether a filter ends before what the track has come to [moqt-18 §5.1.2].
fn is_over(filter: Option<Filter>, largest: Option<Location>) -> bool {
    match (filter, largest) {
        (Some(Filter::AbsoluteRange { end_group, .. }), Some(largest)) => end_group < largest.group,
        (_, _) => false,
    }
}

/// How long publishers may take to answer a SUBSCRIBE of the relay.
const UPSTREAM_ANSWER_MAX: Duration = Duration::from_secs(10);
