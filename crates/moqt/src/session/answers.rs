//! What this endpoint says on the streams of requests: answers, and the ends of subscriptions.
//!
//! The role cannot know yet what came in with the last call, so all of these do nothing for a
//! request that is over. For a live one, a message that does not fit is misuse, and panics.

use super::requests::Request as Entry;
use super::state::{Opener, State};
use super::{RequestId, Session};
use crate::error::{RequestErrorCode, SessionError, Violation};
use crate::message::{
    FetchOk, GoAway, Message, PublishDone, RequestError, RequestKind, RequestOk, SubscribeOk,
};
use crate::name::{Namespace, TrackName};
use crate::transport::Transport;

impl Session {
    /// Accepts the peer's `SUBSCRIBE` under an alias of the role's choice, which no other track of
    /// this session may have [moqt-18 §10.8].
    ///
    /// # Panics
    /// If the live request is another one, or was answered.
    pub fn subscribe_ok(&mut self, transport: &mut dyn Transport, id: RequestId, ok: SubscribeOk) {
        self.accept(
            transport,
            id,
            &[RequestKind::Subscribe],
            &Message::SubscribeOk(ok),
        );
    }

    /// Accepts the peer's `FETCH` [moqt-18 §10.13]. The role opens the data stream itself, and
    /// calls [`finish`](Self::finish) after it.
    ///
    /// # Panics
    /// If the live request is another one, or was answered.
    pub fn fetch_ok(&mut self, transport: &mut dyn Transport, id: RequestId, ok: FetchOk) {
        self.accept(transport, id, &[RequestKind::Fetch], &Message::FetchOk(ok));
    }

    /// Accepts any other request of the peer, or else its oldest update [moqt-18 §10.5]. The
    /// answer to `TRACK_STATUS` ends it.
    ///
    /// # Panics
    /// If the live request waits for no answer, or for another one.
    pub fn request_ok(&mut self, transport: &mut dyn Transport, id: RequestId, ok: RequestOk) {
        let message = Message::RequestOk(ok);
        let Some(request) = self.requests.get(id) else {
            return;
        };
        match request.state() {
            State::Pending if request.opener == Opener::Peer => {
                let is_status = request.kind == RequestKind::TrackStatus;
                self.accept(transport, id, &OK_KINDS, &message);
                if is_status {
                    self.finish(transport, id);
                }
            }
            State::Pending | State::Established { .. } => {
                self.answer_update(transport, id, &message);
            }
            State::DoneUnanswered => {
                self.send(transport, id, &message);
                self.finish_request(transport, id);
                self.drain(transport, id, State::EndedByPeer);
            }
            State::EndedByPeer | State::EndedHere => {}
        }
    }

    /// Refuses the peer's request, or else its oldest update [moqt-18 §10.6].
    ///
    /// A refused request is over. So is a namespace request or fetch with a refused update; a
    /// subscription then wants [`publish_done`](Self::publish_done) with `UPDATE_FAILED` from its
    /// publisher [moqt-18 §10.9.1].
    ///
    /// # Panics
    /// If the live request waits for no answer.
    pub fn request_error(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        error: RequestError,
    ) {
        let Some(request) = self.requests.get(id) else {
            return;
        };
        let message = Message::RequestError(error);
        match request.state() {
            State::Pending if request.opener == Opener::Peer => {
                self.send(transport, id, &message);
                self.end_here(transport, id);
            }
            State::DoneUnanswered => {
                self.send(transport, id, &message);
                self.end_here(transport, id);
            }
            State::Pending | State::Established { .. } => {
                let outlives =
                    matches!(request.kind, RequestKind::Subscribe | RequestKind::Publish);
                self.answer_update(transport, id, &message);
                if !outlives {
                    self.end_here(transport, id);
                }
            }
            State::EndedByPeer | State::EndedHere => {}
        }
    }

    /// Ends a subscription as its publisher, after all its data streams are closed
    /// [moqt-18 §10.11].
    ///
    /// # Panics
    /// If the live request is no subscription this endpoint publishes to.
    pub fn publish_done(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        done: PublishDone,
    ) {
        let Some(request) = self.live(id) else { return };
        let publishes = match request.opener {
            Opener::Here => request.kind == RequestKind::Publish,
            Opener::Peer => {
                request.kind == RequestKind::Subscribe && request.state() != State::Pending
            }
        };
        assert!(
            publishes,
            "PUBLISH_DONE goes with an established subscription or a PUBLISH"
        );
        self.send(transport, id, &Message::PublishDone(done));
        self.end_here(transport, id);
    }

    /// Tells of a namespace under the prefix of the peer's `SUBSCRIBE_NAMESPACE`
    /// [moqt-18 §10.16].
    ///
    /// # Panics
    /// If the live request is another one, or was not accepted.
    pub fn namespace(&mut self, transport: &mut dyn Transport, id: RequestId, suffix: Namespace) {
        let kind = RequestKind::SubscribeNamespace;
        self.tell(transport, id, kind, &Message::Namespace(suffix));
    }

    /// Tells that a namespace announced before is gone [moqt-18 §10.17].
    ///
    /// # Panics
    /// If the live request is another one, or was not accepted.
    pub fn namespace_done(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        suffix: Namespace,
    ) {
        let kind = RequestKind::SubscribeNamespace;
        self.tell(transport, id, kind, &Message::NamespaceDone(suffix));
    }

    /// Tells of a track under the prefix of the peer's `SUBSCRIBE_TRACKS` that there is no stream
    /// for; it may not be published any more [moqt-18 §10.20].
    ///
    /// # Panics
    /// If the live request is another one, or was not accepted.
    pub fn publish_blocked(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        suffix: Namespace,
        name: TrackName,
    ) {
        let kind = RequestKind::SubscribeTracks;
        self.tell(
            transport,
            id,
            kind,
            &Message::PublishBlocked { suffix, name },
        );
    }

    /// Whether a request is the peer's and still lives.
    pub fn is_of_peer(&self, id: RequestId) -> bool {
        self.live(id)
            .is_some_and(|request| request.opener == Opener::Peer)
    }

    /// Asks the peer to move one request elsewhere [moqt-18 §10.4].
    ///
    /// # Panics
    /// If it was called before for this request, or if a client names a URI.
    pub fn request_goaway(&mut self, transport: &mut dyn Transport, id: RequestId, goaway: GoAway) {
        self.check_goaway(&goaway);
        let Some(request) = self
            .requests
            .get_mut(id)
            .filter(|request| request.is_live())
        else {
            return;
        };
        assert!(
            !request.goaway_sent,
            "GOAWAY is sent once on a request stream"
        );
        request.goaway_sent = true;
        let message = Message::GoAway(GoAway {
            request_id: None,
            ..goaway
        });
        self.send(transport, id, &message);
    }

    /// Ends this endpoint's side of a request cleanly: a fetch after its data, a namespace
    /// subscription, or a namespace nobody is to hear of any more.
    pub fn finish(&mut self, transport: &mut dyn Transport, id: RequestId) {
        if self
            .live(id)
            .is_some_and(|request| request.stream.is_some())
        {
            self.end_here(transport, id);
        }
    }

    /// Refuses a request on the session's own account.
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
        let Some(request) = self
            .requests
            .get_mut(id)
            .filter(|request| request.is_live())
        else {
            return;
        };
        assert!(
            request.opener == Opener::Peer,
            "only the peer's requests are answered"
        );
        assert!(
            kinds.contains(&request.kind),
            "not the answer to this kind of request"
        );
        self.requests.establish(id);
        self.send(transport, id, message);
    }

    fn answer_update(&mut self, transport: &mut dyn Transport, id: RequestId, message: &Message) {
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        assert!(request.updates_due > 0, "the request waits for no answer");
        request.updates_due -= 1;
        self.send(transport, id, message);
    }

    fn tell(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        kind: RequestKind,
        message: &Message,
    ) {
        let Some(request) = self.live(id) else { return };
        let is_accepted = matches!(request.state(), State::Established { .. });
        assert!(
            request.opener == Opener::Peer && request.kind == kind && is_accepted,
            "not a message for this request"
        );
        self.send(transport, id, message);
    }

    fn live(&self, id: RequestId) -> Option<&Entry> {
        self.requests.get(id).filter(|request| request.is_live())
    }

    /// Ends a request from here: the own direction is finished, the peer's is read to its end.
    fn end_here(&mut self, transport: &mut dyn Transport, id: RequestId) {
        self.finish_request(transport, id);
        self.forget_with(transport, id, crate::error::ResetCode::CANCELLED);
        self.drain(transport, id, State::EndedHere);
    }

    /// Sends a message on the stream of a request.
    ///
    /// Only properties can make an answer too long; they are the publisher's, so the request fails
    /// and not the session.
    fn send(&mut self, transport: &mut dyn Transport, id: RequestId, message: &Message) {
        let error = RequestError {
            code: RequestErrorCode::INTERNAL_ERROR,
            retry_after: None,
            reason: String::from("the answer does not fit a message"),
            redirect: None,
        };
        match self.encode(message) {
            Ok(bytes) => self.send_bytes(transport, id, bytes),
            Err(_) if message.kind() != Message::RequestError(error.clone()).kind() => {
                self.send(transport, id, &Message::RequestError(error));
                self.end_here(transport, id);
            }
            Err(_) => {
                let code = SessionError::INTERNAL_ERROR;
                self.violate(
                    transport,
                    Violation {
                        code,
                        reason: "an error does not fit",
                    },
                );
            }
        }
    }
}

const OK_KINDS: [RequestKind; 5] = [
    RequestKind::Publish,
    RequestKind::TrackStatus,
    RequestKind::PublishNamespace,
    RequestKind::SubscribeNamespace,
    RequestKind::SubscribeTracks,
];
