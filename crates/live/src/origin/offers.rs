//! How an origin offers its tracks to the relay, and answers the relay's requests.

use std::time::Duration;

use weir_client::turn::Turn;
use weir_moqt::error::{RequestErrorCode, SessionError};
use weir_moqt::message::{RequestError, Subscribe};
use weir_moqt::parameter::Parameters;
use weir_moqt::session::{CloseReason, Request, RequestId};

use super::metadata::{FETCH_RESPONSES_MAX, is_named};
use super::publication::{Publication, PublishFlow, RequestState, Terms, requested_track};
use super::{Origin, track};

impl Origin {
    /// Handles a request that the relay ended before the end of its track.
    pub(super) fn on_closed(&mut self, turn: &mut Turn<'_>, id: RequestId, reason: CloseReason) {
        self.waiting_subscribes.retain(|(early, _)| *early != id);
        if self.namespace_offer.id() == Some(id) {
            let reason = format!("the relay withdrew the namespace: {}", words(reason));
            self.client.fail(turn, SessionError::NO_ERROR, reason);
        }
        let mut publications = self.publications.iter_mut().enumerate();
        let Some((track, publication)) = publications.find(|(_, one)| one.request.id() == Some(id))
        else {
            return;
        };
        match self.flow {
            PublishFlow::Publish => {
                let reason = format!("the relay withdrew a track: {}", words(reason));
                self.client.fail(turn, SessionError::NO_ERROR, reason);
            }
            PublishFlow::Namespace => {
                publication.request = RequestState::None;
                for key in self.streams.of_track(track) {
                    self.reset(turn, key);
                }
            }
        }
    }

    /// Handles a refused offer. If the relay does not support PUBLISH at all, the namespace is offered instead.
    pub(super) fn on_rejected(&mut self, turn: &mut Turn<'_>, id: RequestId, error: &RequestError) {
        let is_namespace = self.namespace_offer.id() == Some(id);
        if self.flow == PublishFlow::Namespace && !is_namespace {
            // The answer to a PUBLISH that was sent before the first was refused.
            return;
        }
        if self.flow == PublishFlow::Publish
            && error.code == RequestErrorCode::NOT_SUPPORTED
            && !self.is_published()
        {
            self.flow = PublishFlow::Namespace;
            for publication in &mut self.publications {
                publication.request = RequestState::None;
            }
            return self.publish_namespace(turn);
        }
        let RequestError { code, reason, .. } = error;
        let offer = if is_namespace {
            "the namespace"
        } else {
            "a track"
        };
        let reason = format!("the relay refused {offer}: {code} {reason:?}");
        self.client.fail(turn, SessionError::NO_ERROR, reason);
    }

    fn publish_namespace(&mut self, turn: &mut Turn<'_>) {
        let namespace = self.namespace.clone();
        let Some((session, mut connection)) = self.client.open(turn) else {
            return;
        };
        match session.publish_namespace(&mut connection, namespace, Parameters::default()) {
            Ok(request) => self.namespace_offer = RequestState::Offered(request),
            Err(refused) => {
                let reason = format!("the namespace cannot be announced: {refused}");
                self.client.fail(turn, SessionError::NO_ERROR, reason);
            }
        }
    }

    /// Offers the tracks of the strategy.
    pub(super) fn publish(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let milliseconds = self.timebase.microseconds(now) / 1000;
        if self.counters.relays_left == 0 {
            self.first_group = u64::try_from(milliseconds).unwrap_or(0);
        }
        self.answer_by = Some(now + ANSWER_TIME_MAX);
        let is_weir = self.client.implementation();
        let is_weir = is_weir.is_some_and(|name| name.starts_with("weir/"));
        if self.fits_relay
            && !is_weir
            && let Some(other) = self.strategy.for_other_relays()
        {
            self.strategy = other;
        }
        if self.flow == PublishFlow::Namespace {
            self.publish_namespace(turn);
        }
        let tracks: Vec<_> = self.strategy.tracks().into();
        for one in tracks {
            let terms = Terms {
                order: one.order,
                subgroup_timeout: one.subgroup_timeout,
                ..Terms::PLAIN
            };
            self.offer(turn, one.name, terms);
        }
        if self.init.is_some() {
            self.offer_init(turn);
        }
        self.advance(turn);
    }

    /// Fails the origin if the relay did not accept the offer in time.
    pub(super) fn on_answer_timeout(&mut self, turn: &mut Turn<'_>) {
        if self.is_published() || self.answer_by.is_none_or(|by| by > turn.now) {
            return;
        }
        let offered = match self.flow {
            PublishFlow::Publish => "PUBLISH",
            PublishFlow::Namespace => "PUBLISH_NAMESPACE",
        };
        let seconds = ANSWER_TIME_MAX.as_secs();
        let reason = format!("the relay did not answer {offered} within {seconds} s");
        self.client
            .fail(turn, SessionError::CONTROL_MESSAGE_TIMEOUT, reason);
    }

    /// Offers a track under the next alias. Returns the alias.
    pub(super) fn offer(&mut self, turn: &mut Turn<'_>, name: &str, terms: Terms) -> Option<usize> {
        let alias = self.publications.len();
        let failure = match track(&self.namespace, name) {
            Err(error) => format!("the track {name} has an invalid name: {error}"),
            Ok(full_name) => {
                let mut publication = Publication::new(full_name.clone(), terms);
                if self.flow == PublishFlow::Namespace {
                    self.publications.push(publication);
                    return Some(alias);
                }
                let (session, mut connection) = self.client.open(turn)?;
                let parameters = Parameters::default();
                let properties = publication.properties();
                let connection = &mut connection;
                match session.publish(connection, full_name, alias as u64, parameters, properties) {
                    Ok(request) => {
                        publication.request = RequestState::Offered(request);
                        self.publications.push(publication);
                        return Some(alias);
                    }
                    Err(refused) => format!("a track cannot be published: {refused}"),
                }
            }
        };
        self.client.fail(turn, SessionError::NO_ERROR, failure);
        None
    }

    /// Accepts a SUBSCRIBE for a track that was not offered with PUBLISH. Sends the object of a metadata track at once.
    pub(super) fn on_subscribe(
        &mut self,
        turn: &mut Turn<'_>,
        id: RequestId,
        subscribe: &Subscribe,
    ) {
        let found = requested_track(&self.publications, subscribe);
        if found.is_err() && !self.knows_tracks() {
            if self.waiting_subscribes.len() < WAITING_SUBSCRIBES_MAX {
                return self.waiting_subscribes.push((id, subscribe.clone()));
            }
            self.counters.early_over_limit += 1;
        }
        let metadata = self
            .metadata
            .iter()
            .find(|one| is_named(&subscribe.track, one.name));
        let payload = metadata.map(|track| track.payload.clone());
        let Some((session, mut connection)) = self.client.open(turn) else {
            return;
        };
        let alias = match found {
            Ok(alias) => alias,
            Err(error) => return session.request_error(&mut connection, id, *error),
        };
        let publication = &mut self.publications[alias];
        if payload.is_some() {
            publication.forget_largest();
        }
        let ok = publication.accept(id, &subscribe.parameters, alias as u64, self.group);
        session.subscribe_ok(&mut connection, id, ok);
        if let Some(payload) = payload {
            self.write_metadata(turn, alias, payload);
            self.flush(turn);
        }
    }

    /// Whether the origin knows its tracks. A source begins with their description, if it has one.
    fn knows_tracks(&self) -> bool {
        self.init.is_some() || self.counters.frames > 0 || self.source.is_over()
    }

    /// Answers the SUBSCRIBEs that arrived before the tracks were known.
    pub(super) fn answer_waiting(&mut self, turn: &mut Turn<'_>) {
        if self.knows_tracks() {
            for (id, subscribe) in std::mem::take(&mut self.waiting_subscribes) {
                self.on_subscribe(turn, id, &subscribe);
            }
        }
    }

    /// Answers a SUBSCRIBE, and a FETCH of metadata. Refuses all other requests.
    pub(super) fn answer(&mut self, turn: &mut Turn<'_>, id: RequestId, request: &Request) {
        if let (Request::Subscribe(subscribe), PublishFlow::Namespace) = (request, self.flow) {
            return self.on_subscribe(turn, id, subscribe);
        }
        let Some((session, mut connection)) = self.client.open(turn) else {
            return;
        };
        if let Request::Fetch(fetch) = request
            && let Some(track) = self
                .metadata
                .iter()
                .find(|track| track.is_requested_by(fetch))
            && self.fetch_responses.len() < FETCH_RESPONSES_MAX
        {
            let (ok, mut answer) = track.response(session.draft(), fetch);
            session.fetch_ok(&mut connection, id, ok);
            self.counters.fetches_answered += 1;
            if answer.flush(&mut connection) {
                self.fetch_responses.push(answer);
            }
            return;
        }
        let error = RequestError::new(RequestErrorCode::NOT_SUPPORTED, "an origin only publishes");
        session.request_error(&mut connection, id, error);
    }
}

/// Returns how a relay ended a request, for an error message.
fn words(reason: CloseReason) -> String {
    match reason {
        CloseReason::Reset(code) | CloseReason::Stopped(code) => code.to_string(),
        CloseReason::Fin => "it gave no reason".to_owned(),
    }
}

/// How long the relay may take to answer an offer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// SUBSCRIBEs that may wait until the tracks are known; further ones are refused.
const WAITING_SUBSCRIBES_MAX: usize = 16;
