//! Requests of sessions, answers to requests of the relay, and updates of both.

use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode, ResetCode},
    message::{Publish, RequestError, RequestOk},
    parameter::Parameters,
    session::{Accepted, CloseReason, Request, RequestId},
};
use weir_quic::Handle;

use super::Owners;
use crate::{
    authority::{Action, Subject},
    catalogue::{PrefixSubscription, TrackStatusEvent},
    effect::Effect,
    ids::RequestKey,
    links::Links,
    sessions::{authorization::joined, peer::Purpose, refusal::refusal},
    track::Tracks,
    turn::Turn,
};

impl Owners {
    pub(super) fn on_request(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): RequestKey,
        request: Request,
    ) {
        turn.log_request((handle, id), &request);
        if turn.sessions.is_shedding() && !turn.is_link(handle) {
            turn.counters.refused_shedding += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        let joined = joined(&request).and_then(|joined| {
            let subject = self.subject(turn, (handle, joined))?;
            Some((joined, subject))
        });
        if Links::is_ring_probe(&request) {
            self.on_permitted(turn, (handle, id), request);
        } else if turn.is_permitted((handle, id), &request, joined.as_ref()) {
            turn.note_permitted(handle, &request);
            self.on_permitted(turn, (handle, id), request);
            turn.forget_expiry_if_over(handle, id);
        }
    }

    pub(super) fn on_permitted(&mut self, turn: &mut Turn<'_>, id: RequestKey, request: Request) {
        let Some(request) = self.linking().park(turn, id, request) else {
            return;
        };
        match request {
            Request::Subscribe(subscribe) => {
                if let Some(kind) = self.linking().seat(turn, id, &subscribe.track) {
                    let tracks = &mut self.tracks;
                    self.delivery
                        .on_subscribe(turn, tracks, (id, kind), subscribe);
                }
            }
            Request::Publish(publish) => self.on_publish(turn, id, &publish),
            Request::PublishNamespace(publish) => {
                self.catalogue
                    .on_publish_namespace(turn, id, &publish.namespace);
            }
            Request::TrackStatus(status) => {
                if let Some(answer) = Links::answer_probe(turn, &status.track) {
                    return turn.accept(id, answer);
                }
                let tracks = &mut self.tracks;
                self.catalogue
                    .on_track_status(turn, tracks, id, status.track);
            }
            Request::Fetch(fetch) => self.serving().on_fetch(turn, id, &fetch),
            Request::SubscribeNamespace(subscribe) => {
                let subscription = PrefixSubscription::to_namespaces(subscribe.prefix);
                self.offering().on_subscribe_prefix(turn, id, subscription);
            }
            Request::SubscribeTracks(subscribe) => {
                let subscription = PrefixSubscription::to_tracks(subscribe);
                self.offering().on_subscribe_prefix(turn, id, subscription);
            }
        }
    }

    fn on_publish(&mut self, turn: &mut Turn<'_>, id: RequestKey, publish: &Publish) {
        if let Some(track) = self.tracks.find_published(turn, id, publish) {
            let demand = self.delivery.demand(track, turn.kind(id.0));
            self.tracks.publish(turn, (track, id), publish, demand);
        }
    }

    /// Handles a REQUEST_UPDATE of a session.
    pub(super) fn on_update(
        &mut self,
        turn: &mut Turn<'_>,
        id: RequestKey,
        parameters: &Parameters,
    ) {
        if !turn.permits_update(id.0) {
            return self.fail_update(turn, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        let needs_permit = !parameters.authorization_tokens.is_empty()
            || parameters.track_namespace_prefix.is_some();
        if needs_permit && !self.is_renewed(turn, id, parameters) {
            return;
        }
        let mut answer = RequestOk::default();
        match turn.purpose(id) {
            Some(Purpose::Prefix(_)) => {
                return self.offering().on_prefix_updated(turn, id, parameters);
            }
            Some(Purpose::Subscriber(track)) => {
                let who = (track, id.0, id.1);
                answer = self
                    .delivery
                    .on_update(turn, &mut self.tracks, who, parameters);
            }
            Some(Purpose::Fetch(_)) => self.serving().on_update(turn, id, parameters),
            Some(_) | None => {}
        }
        turn.grant_update(id.0, id.1, answer);
    }

    /// Checks the new tokens of a REQUEST_UPDATE. Returns false if they do not permit the request. The update is then
    /// refused, and the request ends where the draft says so [moqt-18 §10.9.1].
    fn is_renewed(&mut self, turn: &mut Turn<'_>, id: RequestKey, parameters: &Parameters) -> bool {
        let Some(mut subject) = self.subject(turn, id) else {
            return true;
        };
        if let Some(prefix) = &parameters.track_namespace_prefix {
            subject.namespace.clone_from(prefix);
        }
        match turn.permit_request(id, &parameters.authorization_tokens, &subject) {
            Ok(expires) => {
                turn.note_expiry(id.0, id.1, expires);
                for joining in self.fetches.authorized_by(id.0, id.1).collect::<Vec<_>>() {
                    turn.note_expiry(id.0, joining, expires);
                }
                // The fetch has tokens of its own.
                self.fetches.use_own_authorization(id);
                true
            }
            Err(denial) => {
                turn.count_denial(denial);
                self.fail_update(turn, id, denial.code());
                false
            }
        }
    }

    /// Refuses an update. A subscription, a fetch or a request about namespaces ends with it; a publication is ended by
    /// its publisher [moqt-18 §10.9.1].
    pub(super) fn fail_update(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): (Handle, RequestId),
        code: RequestErrorCode,
    ) {
        turn.log_refusal((handle, id), code, None);
        turn.with_session(handle, |session, connection| {
            session.update_error(connection, id, refusal(code));
        });
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        match peer.purpose(id) {
            Some(&Purpose::Subscriber(track)) => {
                let who = (track, handle, id);
                let code = PublishDoneCode::UPDATE_FAILED;
                self.delivery.cut(turn, &mut self.tracks, who, code);
            }
            Some(Purpose::Namespace(_) | Purpose::Prefix(_) | Purpose::Fetch(_)) => {
                if let Some(purpose) = peer.remove(id) {
                    self.on_ended(turn, (handle, id), purpose);
                }
            }
            Some(
                Purpose::Source(_)
                | Purpose::UpstreamFetch(_)
                | Purpose::TrackStatus
                | Purpose::UpstreamTrackStatus(_)
                | Purpose::UpstreamPrefix
                | Purpose::Announcement
                | Purpose::RingProbe
                | Purpose::AwaitsLink,
            )
            | None => {}
        }
    }

    /// Returns what a request of a session is about, for authorization.
    pub(super) fn subject(&mut self, turn: &mut Turn<'_>, id: RequestKey) -> Option<Subject> {
        let (action, namespace) = match turn.purpose(id)? {
            Purpose::Source(track) => {
                let track = self.tracks.get(track)?;
                (Action::Publish, track.name().namespace.clone())
            }
            Purpose::Subscriber(track) | Purpose::Fetch(track) => {
                let track = self.tracks.get(track)?;
                (Action::Subscribe, track.name().namespace.clone())
            }
            Purpose::Namespace(namespace) => (Action::Publish, namespace),
            Purpose::Prefix(prefix) => (Action::Subscribe, prefix),
            Purpose::UpstreamFetch(_)
            | Purpose::TrackStatus
            | Purpose::UpstreamTrackStatus(_)
            | Purpose::UpstreamPrefix
            | Purpose::Announcement
            | Purpose::RingProbe
            | Purpose::AwaitsLink => return None,
        };
        Some(Subject { action, namespace })
    }

    /// Handles a request that the peer ended.
    pub(super) fn on_closed(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): RequestKey,
        reason: CloseReason,
    ) {
        let is_clean = reason == CloseReason::Fin;
        if self.fetches.is_upstream((handle, id)) {
            return self
                .serving()
                .on_upstream_closed(turn, (handle, id), is_clean);
        }
        if let Some(track) = turn.published_track((handle, id)) {
            self.tracks.on_request_closed(turn, track, (handle, id));
        } else if let Some(peer) = turn.sessions.get(handle)
            && let Some(purpose) = peer.remove(id)
        {
            self.on_ended(turn, (handle, id), purpose);
        }
        if !is_clean {
            turn.note_reset(handle);
        }
    }

    /// Handles the acceptance of a request of the relay.
    pub(super) fn on_accepted(&mut self, turn: &mut Turn<'_>, id: RequestKey, ok: Accepted) {
        turn.note_answer(id.0);
        self.links.note_answer(turn, id.0);
        let Some(purpose) = turn.purpose(id) else {
            return;
        };
        match (purpose, ok) {
            (Purpose::Source(track), Accepted::Subscribe(ok)) => {
                self.links.note_accepted(track);
                let demand = self.delivery.demand(track, turn.kind(id.0));
                self.tracks.on_subscribe_ok(turn, (track, id), &ok, demand);
            }
            (Purpose::UpstreamTrackStatus(requester), Accepted::Ok(ok)) => {
                let event = TrackStatusEvent::Answered(Box::new(ok));
                self.catalogue.on_track_status_event(turn, requester, event);
            }
            (Purpose::Subscriber(track), Accepted::Ok(mut ok)) => {
                // The default in an answer, whatever was offered [moqt-18 §10.2.12].
                ok.parameters.forward.get_or_insert(true);
                let who = (track, id.0, id.1);
                let tracks = &mut self.tracks;
                self.delivery
                    .on_offer_accepted(turn, tracks, who, &ok.parameters);
            }
            (Purpose::RingProbe, Accepted::Ok(ok)) => {
                turn.remove_request(id);
                self.links.on_probe_answered(turn, id.0, &ok);
            }
            (Purpose::UpstreamPrefix, Accepted::Ok(_)) => self.linking().on_interest_accepted(id),
            (Purpose::UpstreamFetch(_), Accepted::Fetch(ok)) => {
                self.serving().on_fetch_ok(turn, id, &ok);
            }
            (_, Accepted::Subscribe(_) | Accepted::Ok(_) | Accepted::Fetch(_)) => {}
        }
    }

    /// Handles the refusal of a request of the relay.
    pub(super) fn on_rejected(
        &mut self,
        turn: &mut Turn<'_>,
        id: RequestKey,
        error: &RequestError,
    ) {
        turn.note_answer(id.0);
        match turn.purpose(id) {
            Some(Purpose::UpstreamTrackStatus(requester)) => {
                self.links.note_refusal(turn, id.0, "TRACK_STATUS", error);
                let event = TrackStatusEvent::Rejected(error.code);
                self.catalogue.on_track_status_event(turn, requester, event);
            }
            Some(Purpose::UpstreamFetch(_)) => {
                self.links.note_refusal(turn, id.0, "FETCH", error);
                self.serving().fail_upstream(turn, id, error.code);
            }
            Some(Purpose::Source(track)) => {
                self.links.note_refusal(turn, id.0, "SUBSCRIBE", error);
                self.linking().note_redirect(turn, (track, id.0), error);
                Tracks::on_subscribe_error(turn, id, error);
            }
            Some(Purpose::Subscriber(_)) => turn.on_offer_rejected(id),
            Some(Purpose::UpstreamPrefix) => {
                turn.remove_request(id);
                self.linking().on_interest_rejected(turn, id, error);
            }
            // The request has not come back to this relay.
            Some(Purpose::RingProbe) => drop(turn.remove_request(id)),
            Some(Purpose::Announcement) => {
                turn.remove_request(id);
                self.links
                    .on_rejected(turn, id, ("PUBLISH_NAMESPACE", error));
            }
            Some(
                Purpose::Namespace(_)
                | Purpose::Prefix(_)
                | Purpose::Fetch(_)
                | Purpose::TrackStatus
                | Purpose::AwaitsLink,
            )
            | None => {}
        }
    }

    /// Handles a publisher's answer to a change of FORWARD.
    pub(super) fn on_updated(
        &mut self,
        turn: &mut Turn<'_>,
        id: RequestKey,
        result: Result<RequestOk, RequestError>,
    ) {
        if let Some(track) = turn.published_track(id) {
            let largest = result.ok().and_then(|ok| ok.parameters.largest_object);
            let demand = self.delivery.demand(track, turn.kind(id.0));
            self.tracks.on_update_ok(turn, (track, id), largest, demand);
        }
    }

    /// Handles a GOAWAY on a request stream [moqt-18 §10.4]. A request of the relay is sent again in the same session,
    /// the only one in which the relay can reach the peer. This counts towards the limit of updates. The peer itself
    /// moves the requests that it sent.
    pub(super) fn on_request_goaway(&mut self, turn: &mut Turn<'_>, (handle, id): RequestKey) {
        let Some(purpose) = turn.moved_purpose((handle, id)) else {
            return;
        };
        match purpose {
            // The next link may have the track.
            Purpose::Source(track) if turn.is_link(handle) => {
                turn.cancel((handle, id), ResetCode::GOING_AWAY);
                let code = RequestErrorCode::GOING_AWAY;
                turn.push(Effect::PublisherGone(track, (handle, id), code));
            }
            Purpose::Source(track) => {
                if self.tracks.cancel_own(turn, track, (handle, id)) {
                    self.linking().ask_again(turn, track, handle);
                }
            }
            Purpose::Subscriber(track) => {
                self.offering().on_offer_goaway(turn, track, (handle, id));
            }
            Purpose::UpstreamFetch(_) => self.serving().on_upstream_moved(turn, (handle, id)),
            Purpose::UpstreamTrackStatus(requester) => {
                let event = TrackStatusEvent::GoAway;
                self.catalogue.on_track_status_event(turn, requester, event);
            }
            Purpose::Namespace(_)
            | Purpose::Prefix(_)
            | Purpose::Fetch(_)
            | Purpose::TrackStatus
            | Purpose::UpstreamPrefix
            | Purpose::Announcement
            | Purpose::RingProbe
            | Purpose::AwaitsLink => {}
        }
    }
}
