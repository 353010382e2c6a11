//! Messages of this endpoint on request streams: answers, ends of subscriptions, and announcements.
//!
//! All methods do nothing for a request that is over, since the role may not have taken the event that reports it. The
//! session keeps the order on the stream: the answer to an update waits for the answer to its request. An answer that
//! fits no request is a misuse by the role. Since the timing of a peer may cause it, it closes only that peer's session
//! ([`Counters::misused`](super::Counters::misused)).

use weir_transport::Transport;

use super::request_state::{EndedBy, Opener, State, UpdateAnswer, UpdateSent};
use super::requests::Entry;
use super::{CloseReason, Event, RequestId, Session};
use crate::error::{RequestErrorCode, SessionError};
use crate::message::{
    FetchOk, GoAway, Message, PublishDone, PublishStateNotify, RequestError, RequestKind,
    RequestOk, SubscribeOk,
};
use crate::name::{FullTrackName, Namespace, TrackName};
use crate::parameter::Parameters;
use crate::property::Properties;

impl Session {
    /// Accepts the peer's `SUBSCRIBE` under a Track Alias that no other track of this session has [moqt-18 §10.8].
    pub fn subscribe_ok(&mut self, transport: &mut dyn Transport, id: RequestId, ok: SubscribeOk) {
        let ok = SubscribeOk {
            properties: self.properties_wanted(id, ok.properties),
            ..ok
        };
        self.accept(
            transport,
            id,
            &[RequestKind::Subscribe],
            &Message::SubscribeOk(ok),
        );
    }

    /// Accepts the peer's `FETCH` [moqt-18 §10.13]. The role opens the data stream itself, and
    /// calls [`finish`](Self::finish) after it.
    pub fn fetch_ok(&mut self, transport: &mut dyn Transport, id: RequestId, ok: FetchOk) {
        let ok = FetchOk {
            properties: self.properties_wanted(id, ok.properties),
            ..ok
        };
        self.count_fill(id);
        self.accept(transport, id, &[RequestKind::Fetch], &Message::FetchOk(ok));
    }

    /// Accepts any other request of the peer [moqt-18 §10.5]. The answer to `TRACK_STATUS` ends it.
    pub fn request_ok(&mut self, transport: &mut dyn Transport, id: RequestId, ok: RequestOk) {
        let Some(request) = self.requests.get(id) else {
            return;
        };
        let is_last = request.kind == RequestKind::TrackStatus;
        let ok = RequestOk {
            properties: self.properties_wanted(id, ok.properties),
            ..ok
        };
        let (ok, update) = self.split_publish_ok(id, ok);
        let Some(request) = self.requests.get(id) else {
            return;
        };
        if request.state.is_done_unanswered() {
            return self.request_ok_after_done(transport, id, ok);
        }
        self.accept(transport, id, &OK_KINDS, &Message::RequestOk(ok));
        if let Some(update) = update
            && self.live(id).is_some()
        {
            // The draft permits few parameters in the answer; the others follow at once.
            let sent = self.send_update(transport, id, update, UpdateSent::OfAnswer);
            self.counters.updates_local_over_limit += u64::from(sent.is_err());
        }
        if is_last {
            self.finish(transport, id);
        }
    }

    /// Refuses the peer's request, and thereby ends it [moqt-18 §10.6].
    pub fn request_error(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        error: RequestError,
    ) {
        let Some(request) = self.requests.get(id) else {
            return;
        };
        match (&request.state, request.opener) {
            (State::Pending { .. }, Opener::Peer) | (State::DoneUnanswered { .. }, _) => {
                self.refuse_fill(transport, id, error.code);
                self.send(transport, id, &Message::RequestError(error));
                self.end_fills(transport, id, (Opener::Here, CloseReason::Fin));
                self.end_here(transport, id);
            }
            (State::Pending { .. }, Opener::Here) | (State::Established(_), _) => {
                self.misuse(transport, "a request was answered twice");
            }
            (State::Ended(_), _) => {}
        }
    }

    /// Accepts the oldest unanswered update of a request [moqt-18 §10.5]. If the request itself is not answered, the OK
    /// is sent after its answer.
    pub fn update_ok(&mut self, transport: &mut dyn Transport, id: RequestId, ok: RequestOk) {
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        match request.state.answer_update() {
            UpdateAnswer::Now => self.send(transport, id, &Message::RequestOk(ok)),
            UpdateAnswer::AfterRequest(granted) => granted.push_back(ok),
            UpdateAnswer::NotDue => self.misuse(transport, NO_UPDATE_DUE),
            UpdateAnswer::Over => {}
        }
    }

    /// Refuses the oldest unanswered update of a request [moqt-18 §10.6].
    ///
    /// This ends a namespace request or fetch, and every request of the peer that is not answered itself. The publisher
    /// of an established subscription has to call [`publish_done`](Self::publish_done) with `UPDATE_FAILED` afterwards
    /// [moqt-18 §10.9.1].
    pub fn update_error(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        error: RequestError,
    ) {
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        let outlives = matches!(request.kind, RequestKind::Subscribe | RequestKind::Publish);
        match request.state.answer_update() {
            UpdateAnswer::Now => {
                self.send(transport, id, &Message::RequestError(error));
                if !outlives {
                    self.end_here(transport, id);
                }
            }
            UpdateAnswer::AfterRequest(_) => self.request_error(transport, id, error),
            UpdateAnswer::NotDue => self.misuse(transport, NO_UPDATE_DUE),
            UpdateAnswer::Over => {}
        }
    }

    /// Ends a subscription as its publisher, after all its data streams are closed
    /// [moqt-18 §10.11].
    pub fn publish_done(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        done: PublishDone,
    ) {
        let Some(request) = self.live(id) else { return };
        let publishes = match request.opener {
            Opener::Here => request.kind == RequestKind::Publish,
            Opener::Peer => request.kind == RequestKind::Subscribe && !request.state.is_pending(),
        };
        if !publishes {
            return self.misuse(
                transport,
                "PUBLISH_DONE for no subscription that it can end",
            );
        }
        let fill_streams = request.terms.as_ref().map_or(0, |terms| terms.fill_streams);
        let streams = done.stream_count;
        let done = PublishDone {
            stream_count: streams.map(|streams| streams.saturating_add(fill_streams)),
            ..done
        };
        self.send(transport, id, &Message::PublishDone(done));
        self.end_here(transport, id);
    }

    /// Tells the subscriber what this endpoint changed of an established subscription that it publishes, with the
    /// largest location [moqt-22 §9.10]. Does nothing in drafts that cannot say so.
    pub fn publish_state_notify(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        parameters: Parameters,
    ) {
        let Some(request) = self.live(id) else { return };
        let publishes = match request.opener {
            Opener::Here => request.kind == RequestKind::Publish,
            Opener::Peer => request.kind == RequestKind::Subscribe && !request.state.is_pending(),
        };
        if !publishes {
            return self.misuse(transport, "a change of no subscription of this publisher");
        }
        let message = Message::PublishStateNotify(PublishStateNotify { parameters });
        if let Ok(bytes) = self.encode(&message) {
            self.send_bytes(transport, id, bytes);
        }
    }

    /// Announces a namespace under the prefix of the peer's `SUBSCRIBE_NAMESPACE` [moqt-18 §10.16].
    pub fn namespace(&mut self, transport: &mut dyn Transport, id: RequestId, suffix: Namespace) {
        let kind = RequestKind::SubscribeNamespace;
        self.announce(transport, id, kind, &Message::Namespace(suffix));
    }

    /// Announces that a namespace announced before is gone [moqt-18 §10.17].
    pub fn namespace_done(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        suffix: Namespace,
    ) {
        let kind = RequestKind::SubscribeNamespace;
        self.announce(transport, id, kind, &Message::NamespaceDone(suffix));
    }

    /// Announces a track under the prefix of the peer's `SUBSCRIBE_TRACKS` for which there is no stream. The track may
    /// not be published afterwards [moqt-18 §10.20].
    pub fn publish_blocked(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        suffix: Namespace,
        name: TrackName,
    ) {
        let kind = RequestKind::SubscribeTracks;
        self.announce(
            transport,
            id,
            kind,
            &Message::PublishBlocked(FullTrackName {
                namespace: suffix,
                name,
            }),
        );
    }

    /// Returns whether a request is the peer's and neither side has ended it.
    pub fn is_of_peer(&self, id: RequestId) -> bool {
        self.live(id)
            .is_some_and(|request| request.opener == Opener::Peer)
    }

    /// Asks the peer to move one request elsewhere [moqt-18 §10.4].
    ///
    /// Does nothing if it was called for the request before.
    ///
    /// # Panics
    /// If a client names a URI.
    pub fn request_goaway(&mut self, transport: &mut dyn Transport, id: RequestId, goaway: GoAway) {
        self.check_goaway(&goaway);
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        let live = request.state.live_mut();
        if !live.is_some_and(|live| live.goaways.send()) {
            return;
        }
        let message = Message::GoAway(GoAway {
            request_id: None,
            ..goaway
        });
        self.send(transport, id, &message);
    }

    /// Finishes this endpoint's direction of a request: of a fetch after its data, of a namespace subscription, or of a
    /// namespace that is withdrawn.
    pub fn finish(&mut self, transport: &mut dyn Transport, id: RequestId) {
        if self
            .live(id)
            .is_some_and(|request| id.is_fill() || request.sending.stream().is_some())
        {
            self.end_here(transport, id);
        }
    }

    /// Rejects a request without notifying the role.
    pub(super) fn reject(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        error: RequestError,
    ) {
        self.counters.requests_rejected += 1;
        self.send(transport, id, &Message::RequestError(error));
        self.end_here(transport, id);
    }

    fn accept(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        kinds: &[RequestKind],
        message: &Message,
    ) {
        let Some(request) = self.live(id) else { return };
        if request.opener != Opener::Peer || !kinds.contains(&request.kind) {
            return self.misuse(transport, "not the answer to this request");
        }
        if !request.state.is_pending() {
            return self.misuse(transport, "a request was answered twice");
        }
        let granted = self.requests.establish(id);
        self.send(transport, id, message);
        // If the answer did not fit, an error was sent instead.
        if self.live(id).is_some() {
            self.send_all(transport, id, granted);
        }
    }

    /// Returns the Track Properties for the answer to a request, which may want none [moqt-22 §9.20.21].
    fn properties_wanted(&self, id: RequestId, properties: Properties) -> Properties {
        let request = self.requests.get(id);
        if request.is_some_and(|request| request.omits_properties) {
            Properties::EMPTY
        } else {
            properties
        }
    }

    /// Returns the answer to a PUBLISH without the parameters that the draft does not permit there, and the update that
    /// sets them.
    fn split_publish_ok(
        &self,
        id: RequestId,
        mut ok: RequestOk,
    ) -> (RequestOk, Option<Parameters>) {
        let request = self.requests.get(id);
        let Some(request) = request.filter(|request| request.kind == RequestKind::Publish) else {
            return (ok, None);
        };
        if !self.draft.publish_ok_has_group_order() {
            ok.parameters.group_order = None;
        }
        if self.draft.publish_ok_has_parameters() {
            return (ok, None);
        }
        let expires = ok.parameters.expires.take();
        let mut update = ok.parameters;
        ok.parameters = Parameters {
            expires,
            ..Parameters::none()
        };
        let offered = request.terms.as_ref().is_none_or(|terms| terms.forward);
        update.forward = Some(update.forward.unwrap_or(true)).filter(|wanted| *wanted != offered);
        let is_needed = update != Parameters::none();
        (ok, is_needed.then_some(update))
    }

    /// Accepts a PUBLISH whose `PUBLISH_DONE` has come already.
    fn request_ok_after_done(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        ok: RequestOk,
    ) {
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        let granted = request.state.take_granted();
        self.send(transport, id, &Message::RequestOk(ok));
        if self.is_done_unanswered(id) {
            self.send_all(transport, id, granted);
        }
        // An answer that did not fit has ended the request, and the role was notified.
        let is_reported = !self.is_done_unanswered(id);
        self.finish_request(transport, id);
        self.drain(transport, id, EndedBy::Peer { is_reported });
    }

    fn is_done_unanswered(&self, id: RequestId) -> bool {
        self.requests
            .get(id)
            .is_some_and(|request| request.state.is_done_unanswered())
    }

    fn send_all(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        oks: impl IntoIterator<Item = RequestOk>,
    ) {
        for ok in oks {
            self.send(transport, id, &Message::RequestOk(ok));
        }
    }

    /// Closes the session because the role sent an answer that fits no request. Ignoring it could leave the peer
    /// waiting.
    fn misuse(&mut self, transport: &mut dyn Transport, reason: &'static str) {
        debug_assert!(false, "{reason}");
        self.counters.misused += 1;
        self.violate(transport, SessionError::INTERNAL_ERROR.violation(reason));
    }

    fn announce(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        kind: RequestKind,
        message: &Message,
    ) {
        let Some(request) = self.live(id) else { return };
        let is_accepted = request.state.is_established();
        if request.opener != Opener::Peer || request.kind != kind || !is_accepted {
            return self.misuse(transport, "not a message for this request");
        }
        let waiting_bytes = request.sending.waiting_bytes();
        let Ok(bytes) = self.encode(message) else {
            // A suffix is bounded, so it fits.
            return;
        };
        if waiting_bytes.saturating_add(bytes.len()) > self.limits.outgoing_bytes_max {
            // Other peers determine the number of announcements, so only this request ends, not the session.
            self.counters.announcements_over_limit += 1;
            return self.end_for_load(transport, id);
        }
        self.send_bytes(transport, id, bytes);
    }

    fn live(&self, id: RequestId) -> Option<&Entry> {
        self.requests.get(id).filter(|request| request.is_live())
    }

    /// Ends a request from this side: the own direction is finished, the peer's is read to its end.
    fn end_here(&mut self, transport: &mut dyn Transport, id: RequestId) {
        self.finish_request(transport, id);
        self.forget_with(transport, id, crate::error::ResetCode::CANCELLED);
        self.drain(transport, id, EndedBy::Here);
    }

    /// Sends a message on the stream of a request.
    ///
    /// Only properties can make an answer too long. They come from the publisher, so the request fails, not the
    /// session. The role gets [`Event::Closed`], since it considers the request answered.
    fn send(&mut self, transport: &mut dyn Transport, id: RequestId, message: &Message) {
        let error = RequestError::new(
            RequestErrorCode::INTERNAL_ERROR,
            "the response is too long for a message",
        );
        match self.encode_shared(message) {
            Ok(pieces) => self.send_pieces(transport, id, pieces),
            Err(_) if message.kind() != Message::RequestError(error.clone()).kind() => {
                self.send(transport, id, &Message::RequestError(error));
                let is_unheard = self
                    .requests
                    .get(id)
                    .is_some_and(|request| !request.is_over());
                self.end_here(transport, id);
                if is_unheard {
                    let reason = CloseReason::Fin;
                    self.events.push_back(Event::Closed { id, reason });
                }
            }
            Err(_) => {
                self.violate(
                    transport,
                    SessionError::INTERNAL_ERROR
                        .violation("a REQUEST_ERROR is too long for a message"),
                );
            }
        }
    }
}

const NO_UPDATE_DUE: &str = "no update of the request waits for an answer";

const OK_KINDS: [RequestKind; 5] = [
    RequestKind::Publish,
    RequestKind::TrackStatus,
    RequestKind::PublishNamespace,
    RequestKind::SubscribeNamespace,
    RequestKind::SubscribeTracks,
];
