//! Messages of the peer on request streams after the first: answers, updates, announcements; and the ends of the
//! streams.

use std::time::Instant;

use bytes::Bytes;
use weir_transport::Transport;

use super::request_state::{EndedBy, Input, Opener, State, UpdateSent, Verdict, judge};
use super::requests::{Entry, Subject};
use super::requests_received::unsupported_extension;
use super::{Accepted, CloseReason, Event, RequestId, Session};
use crate::draft::Draft;
use crate::error::{DecodeError, PublishDoneCode, ResetCode, SessionError, Violation};
use crate::location::Location;
use crate::message::{
    FetchOk, GoAway, Message, PublishDone, RequestError, RequestKind, RequestOk, RequestUpdate,
    SubscribeOk,
};
use crate::name::{FullTrackName, Namespace};
use crate::parameter::Step;

impl Session {
    /// Reads the messages of a request stream after the first.
    pub(super) fn on_request_data(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        id: RequestId,
        data: Bytes,
    ) -> Result<(), DecodeError> {
        if let Some(request) = self.requests.get_mut(id)
            && let Some(reader) = &mut request.reader
        {
            reader.push(data);
        }
        self.poll_request(now, transport, id)
    }

    /// Handles the end of a direction of a request stream.
    pub(super) fn on_request_end(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        id: RequestId,
        reason: CloseReason,
    ) {
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        match reason {
            CloseReason::Fin | CloseReason::Reset(_) => request.reader = None,
            CloseReason::Stopped(code) => request.sending.reset(transport, code.0),
        }
        let is_gone = request.is_live() && request.is_gone();
        let verdict = judge(
            request.opener,
            request.kind,
            &request.state,
            Input::End(reason),
        );
        if is_gone || verdict == Verdict::Close {
            self.close_request(now, transport, id, reason);
        } else {
            self.forget_if_gone(id);
        }
    }

    /// Finishes an own fetch whose data stream has ended, if it was answered.
    pub(super) fn finish_fetched(&mut self, transport: &mut dyn Transport, id: RequestId) {
        let answered = self
            .requests
            .get(id)
            .is_some_and(|request| request.state.is_established());
        if id.is_fill() {
            self.requests.remove(id);
        } else if answered {
            self.finish_request(transport, id);
        }
    }

    /// Handles the messages that are complete.
    pub(super) fn poll_request(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        id: RequestId,
    ) -> Result<(), DecodeError> {
        while let Some(request) = self.requests.get_mut(id)
            && let Some(reader) = &mut request.reader
            && let Some(message) = reader.poll()?
        {
            self.on_message(now, transport, id, message)?;
        }
        Ok(())
    }

    fn on_message(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        id: RequestId,
        mut message: Message,
    ) -> Result<(), DecodeError> {
        if let Message::RequestUpdate(update) = &mut message {
            self.check_update(update)?;
        }
        let Some(request) = self.requests.get(id) else {
            return Ok(());
        };
        let input = Input::Message(message.kind());
        let verdict = judge(request.opener, request.kind, &request.state, input);
        match (verdict, message) {
            (Verdict::Violate(reason), _) => return Err(Violation::protocol(reason).into()),
            (Verdict::Accept, Message::SubscribeOk(ok)) => {
                return self.on_subscribe_ok(now, transport, id, ok);
            }
            (Verdict::Accept, Message::FetchOk(ok)) => self.on_fetch_ok(transport, id, ok)?,
            (Verdict::Accept, Message::RequestOk(ok)) => self.on_ok(transport, id, ok)?,
            (Verdict::Reject, Message::RequestError(error)) => {
                self.on_rejected(transport, id, error)?;
            }
            (Verdict::UpdateAnswer, Message::RequestOk(ok)) => {
                self.on_updated(transport, id, Ok(ok))?;
            }
            (Verdict::UpdateAnswer, Message::RequestError(error)) => {
                self.on_updated(transport, id, Err(error))?;
            }
            (Verdict::Update, Message::RequestUpdate(update)) => {
                self.on_update(transport, id, update)?;
            }
            (Verdict::Done, Message::PublishDone(done)) => self.on_done(now, transport, id, done),
            (Verdict::StateNotify, Message::PublishStateNotify(notify)) => {
                let parameters = notify.parameters;
                self.events
                    .push_back(Event::StateChanged { id, parameters });
            }
            (Verdict::Namespace, Message::Namespace(suffix)) => {
                self.on_namespace(transport, id, suffix)?;
            }
            (Verdict::NamespaceDone, Message::NamespaceDone(suffix)) => {
                self.on_namespace_done(id, suffix)?;
            }
            (
                Verdict::PublishBlocked,
                Message::PublishBlocked(FullTrackName { namespace, name }),
            ) => {
                let suffix = namespace;
                self.events
                    .push_back(Event::PublishBlocked { id, suffix, name });
            }
            (Verdict::GoAway, Message::GoAway(goaway)) => self.on_request_goaway(id, goaway)?,
            (_, _) => {}
        }
        Ok(())
    }

    /// Handles what an update carries even if its request is over: its ID and its tokens.
    fn check_update(&mut self, update: &mut RequestUpdate) -> Result<(), Violation> {
        self.accept_id(RequestId(update.request_id))?;
        if self
            .tokens
            .resolve(&mut update.parameters.authorization_tokens)?
        {
            return Ok(());
        }
        // The whole session is closed, although the draft also permits REQUEST_ERROR, which would end more than the
        // update [moqt-18 §3.5].
        Err(SessionError::MALFORMED_AUTH_TOKEN
            .violation("an authorization token is repeated in an update"))
    }

    /// Checks an error against the request that it answers.
    fn check_error(&self, error: &RequestError, id: RequestId) -> Result<(), Violation> {
        if let Some(request) = self.requests.get(id) {
            error.check(self.draft, request.kind)?;
        }
        match &error.redirect {
            Some(redirect) => self.check_uri_received(&redirect.connect_uri),
            None => Ok(()),
        }
    }

    fn on_subscribe_ok(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        id: RequestId,
        ok: SubscribeOk,
    ) -> Result<(), DecodeError> {
        let alias = ok.track_alias;
        self.requests.establish(id);
        if ok.parameters.largest_object.is_none() {
            // Nothing is there to fill the subscription with.
            self.end_fills(transport, id, (Opener::Here, CloseReason::Fin));
        }
        let Some(request) = self.requests.get(id) else {
            return Ok(());
        };
        let Subject::Track(track) = &request.subject else {
            return Ok(());
        };
        let track = track.clone();
        self.claim_alias(alias, id, &track)?;
        if ok.properties.mandatory().is_some() {
            self.give_up(transport, id);
            self.drop_waiting(transport, alias);
            return Ok(());
        }
        self.events.push_back(Event::Accepted {
            id,
            ok: Accepted::Subscribe(ok),
        });
        self.deliver_waiting(now, transport, alias, id)
    }

    fn on_fetch_ok(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        ok: FetchOk,
    ) -> Result<(), Violation> {
        self.requests.establish(id);
        let Some(request) = self.requests.get(id) else {
            return Ok(());
        };
        if let Subject::Range(start) = request.subject
            && ends_before(self.draft, ok.end, start)
        {
            return Err(Violation::protocol("FETCH_OK ends before the fetch starts"));
        }
        if ok.properties.mandatory().is_some() {
            self.give_up(transport, id);
            return Ok(());
        }
        self.events.push_back(Event::Accepted {
            id,
            ok: Accepted::Fetch(ok),
        });
        if !self.fetches.contains(id) {
            // The data stream has ended before the answer came.
            self.finish_request(transport, id);
        }
        Ok(())
    }

    /// Ends an own request whose answer has a mandatory property that this endpoint does not understand.
    fn give_up(&mut self, transport: &mut dyn Transport, id: RequestId) {
        self.cancel(transport, id, ResetCode::CANCELLED);
        let error = unsupported_extension();
        self.events.push_back(Event::Rejected { id, error });
    }

    fn on_ok(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        mut ok: RequestOk,
    ) -> Result<(), Violation> {
        let Some(request) = self.requests.get_mut(id) else {
            return Ok(());
        };
        let kind = request.kind;
        ok.check(self.draft, kind, Step::Answer)?;
        if ok.parameters.range_filter_error(self.ranges_max).is_some() {
            return Err(Violation::protocol("an answer has invalid range filters"));
        }
        if request.terms.as_ref().is_some_and(|terms| !terms.forward) {
            // What the PUBLISH says applies until the subscriber changes it with an update.
            ok.parameters.forward = Some(false);
        }
        self.requests.establish(id);
        self.events.push_back(Event::Accepted {
            id,
            ok: Accepted::Ok(ok),
        });
        if kind == RequestKind::TrackStatus {
            self.finish_request(transport, id);
            self.drain(transport, id, EndedBy::Peer { is_reported: false });
        }
        Ok(())
    }

    fn on_rejected(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        error: RequestError,
    ) -> Result<(), Violation> {
        self.check_error(&error, id)?;
        self.end_fills(transport, id, (Opener::Here, CloseReason::Fin));
        self.stop_data_of(transport, id, ResetCode::CANCELLED);
        self.finish_request(transport, id);
        self.events.push_back(Event::Rejected { id, error });
        self.drain(transport, id, EndedBy::Peer { is_reported: true });
        Ok(())
    }

    fn on_updated(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        result: Result<RequestOk, RequestError>,
    ) -> Result<(), Violation> {
        if let Err(error) = &result {
            self.check_error(error, id)?;
        }
        let Some(request) = self.requests.get_mut(id) else {
            return Ok(());
        };
        let live = request.state.live_mut();
        let sent = live.and_then(|live| live.updates_sent.pop_front());
        let prefix = match sent {
            Some((_, UpdateSent::OfRole(prefix))) => prefix,
            Some((update, UpdateSent::Fill)) => {
                self.on_fill_answered(transport, update.fill(), result);
                return Ok(());
            }
            Some((_, UpdateSent::OfAnswer)) => return Ok(()),
            None => None,
        };
        if let Ok(ok) = &result {
            ok.check(self.draft, request.kind, Step::UpdateAnswer)?;
            match (prefix, &mut request.subject) {
                (Some(new), Subject::Namespaces(announced)) => announced.prefix = new,
                (Some(new), Subject::FilledTracks { prefix, .. }) => *prefix = new,
                (_, _) => {}
            }
        }
        let outlives =
            result.is_ok() || matches!(request.kind, RequestKind::Subscribe | RequestKind::Publish);
        self.events.push_back(Event::Updated { id, result });
        if !outlives {
            // The responder ends it [moqt-18 §10.9.1].
            self.finish_request(transport, id);
            self.drain(transport, id, EndedBy::Peer { is_reported: false });
        }
        Ok(())
    }

    fn on_update(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        update: RequestUpdate,
    ) -> Result<(), Violation> {
        let Some(request) = self.requests.get_mut(id) else {
            return Ok(());
        };
        let RequestUpdate {
            request_id,
            parameters,
        } = update;
        parameters.check(self.draft, request.kind, Step::Update)?;
        if request.state.updates_unanswered() >= self.limits.updates_max {
            self.counters.updates_over_limit += 1;
            if self.draft.setup_has_limits() {
                return Err(SessionError::TOO_MANY_REQUEST_UPDATES
                    .violation("more updates of a request than SETUP permits"));
            }
            self.end_for_load(transport, id);
            return Ok(());
        }
        if let Some(error) = parameters.range_filter_error(self.ranges_max) {
            self.reject_update(transport, id, error);
            return Ok(());
        }
        if let Some(live) = request.state.live_mut() {
            live.updates_due += 1;
        }
        let update_id = RequestId(request_id);
        let terms = request.terms.is_some().then(|| parameters.clone());
        self.events.push_back(Event::Update {
            id,
            update_id,
            parameters,
        });
        if let Some(terms) = terms {
            self.update_terms(transport, (id, update_id), &terms);
        }
        Ok(())
    }

    /// Refuses an update of the peer, and ends the request: with `PUBLISH_DONE` if it is a subscription
    /// [moqt-18 §10.9.1].
    fn reject_update(&mut self, transport: &mut dyn Transport, id: RequestId, error: RequestError) {
        self.counters.requests_rejected += 1;
        let refused = Message::RequestError(error);
        let done = PublishDone::new(PublishDoneCode::UPDATE_FAILED, "");
        let is_subscription = self.requests.get(id).is_some_and(|request| {
            matches!(request.kind, RequestKind::Subscribe | RequestKind::Publish)
                && request.state.is_established()
        });
        for message in [
            Some(refused),
            is_subscription.then_some(Message::PublishDone(done)),
        ] {
            if let Some(Ok(bytes)) = message.map(|message| self.encode(&message)) {
                self.send_bytes(transport, id, bytes);
            }
        }
        self.finish_request(transport, id);
        self.end_for_load(transport, id);
    }

    fn on_done(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        id: RequestId,
        done: PublishDone,
    ) {
        self.events.push_back(Event::Done { id, done });
        self.linger(now, id);
        let is_unanswered = self.requests.done(id);
        if !is_unanswered {
            self.finish_request(transport, id);
        }
        self.bound_draining(transport, id);
    }

    fn linger(&mut self, now: Instant, id: RequestId) {
        self.aliases.linger(id, now + self.limits.done_linger);
        if self.aliases.lingering_len() > self.limits.tracks_lingering_max
            && let Some((_, oldest)) = self.aliases.first_lingering()
        {
            self.counters.tracks_lingering_over_limit += 1;
            self.retire(oldest);
        }
    }

    fn on_namespace(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        suffix: Namespace,
    ) -> Result<(), Violation> {
        let Some(Entry {
            subject: Subject::Namespaces(announced),
            ..
        }) = self.requests.get_mut(id)
        else {
            return Ok(());
        };
        let namespace = full_namespace(&announced.prefix, &suffix)?;
        let is_full = announced.namespaces.len() >= self.limits.namespaces_max;
        if is_full && !announced.namespaces.contains(&namespace) {
            self.counters.namespaces_over_limit += 1;
            self.end_for_load(transport, id);
            return Ok(());
        }
        announced.namespaces.insert(namespace);
        self.events.push_back(Event::Namespace { id, suffix });
        Ok(())
    }

    fn on_namespace_done(&mut self, id: RequestId, suffix: Namespace) -> Result<(), Violation> {
        let Some(Entry {
            subject: Subject::Namespaces(announced),
            ..
        }) = self.requests.get_mut(id)
        else {
            return Ok(());
        };
        let namespace = full_namespace(&announced.prefix, &suffix)?;
        if !announced.namespaces.remove(&namespace) {
            return Err(Violation::protocol("NAMESPACE_DONE without a NAMESPACE"));
        }
        self.events.push_back(Event::NamespaceDone { id, suffix });
        Ok(())
    }

    fn on_request_goaway(&mut self, id: RequestId, goaway: GoAway) -> Result<(), Violation> {
        self.check_uri_received(&goaway.new_session_uri)?;
        if goaway.request_id.is_some() {
            return Err(Violation::protocol(
                "GOAWAY on a request stream has a Request ID",
            ));
        }
        let request = self.requests.get_mut(id);
        let Some(live) = request.and_then(|request| request.state.live_mut()) else {
            return Ok(());
        };
        if !live.goaways.receive() {
            return Err(Violation::protocol("a second GOAWAY on a request stream"));
        }
        self.events.push_back(Event::RequestGoAway { id, goaway });
        Ok(())
    }

    /// Cancels a request because it exceeds a limit.
    pub(super) fn end_for_load(&mut self, transport: &mut dyn Transport, id: RequestId) {
        let code = ResetCode::EXCESSIVE_LOAD;
        self.cancel(transport, id, code);
        self.events.push_back(Event::Closed {
            id,
            reason: CloseReason::Reset(code),
        });
    }

    /// Ends a request that the peer has ended: after a FIN it is finished, otherwise aborted.
    fn close_request(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        id: RequestId,
        reason: CloseReason,
    ) {
        let Some(request) = self.requests.get(id) else {
            return;
        };
        let was_live = request.is_live();
        let reported = EndedBy::Peer { is_reported: true };
        if !matches!(request.state, State::Ended(by) if by == reported) {
            self.events.push_back(Event::Closed { id, reason });
        }
        if reason != CloseReason::Fin {
            self.end_fills(transport, id, (Opener::Peer, reason));
        }
        match reason {
            CloseReason::Fin => {
                self.linger(now, id);
                self.finish_request(transport, id);
                self.drain(transport, id, reported);
            }
            CloseReason::Reset(_) | CloseReason::Stopped(_) => {
                // After PUBLISH_DONE, objects are still accepted, as they were before the reset.
                if was_live {
                    self.forget_with(transport, id, ResetCode::CANCELLED);
                }
                self.abort(transport, id, ResetCode::CANCELLED);
            }
        }
    }
}

fn full_namespace(prefix: &Namespace, suffix: &Namespace) -> Result<Namespace, Violation> {
    let too_long = Violation::protocol("a namespace suffix is too long for its prefix");
    prefix.join(suffix).map_err(|_| too_long)
}

/// Returns whether the end of a fetch, as encoded, is smaller than its start [moqt-18 §10.13].
fn ends_before(draft: Draft, end: Location, start: Location) -> bool {
    if !draft.has_exclusive_ends() {
        return end < start;
    }
    let covers_group = end.object == u64::MAX;
    end.group < start.group
        || end.group == start.group && !covers_group && end.object + 1 < start.object
}
