//! Requests of the peer: reading them, and the rejections that need no role.

use std::time::{Duration, Instant};

use weir_transport::{StreamId, Transport};

use super::request_state::Opener;
use super::requests::{Entry, Subject};
use super::send_stream::SendStream;
use super::state::{Input, Verdict, judge};
use super::stream_state::Stream;
use super::track_aliases::TrackAlias;
use super::{Event, REQUEST_PRIORITY, Request, RequestId, Session};
use crate::error::{DecodeError, RequestErrorCode, SessionError, Violation};
use crate::message::{FetchKind, RequestError, RequestKind, Subscribe};
use crate::name::{FullTrackName, Namespace};

/// How long a peer over `requests_max` has to wait before it tries again.
const RETRY_AFTER_LOAD: Duration = Duration::from_secs(1);

impl Session {
    /// Reads the first message of a request stream, once it is complete.
    pub(super) fn poll_opening(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) -> Result<(), DecodeError> {
        let Some(Stream::Opening(reader)) = self.streams.get_mut(&stream) else {
            return Ok(());
        };
        let Some(message) = reader.poll()? else {
            return Ok(());
        };
        let Some(request) = Request::from_message(message) else {
            return Err(Violation::protocol("not a message that opens a request stream").into());
        };
        let id = request.id();
        self.accept_id(id)?;
        let Some(Stream::Opening(reader)) = self.streams.insert(stream, Stream::Request(id)) else {
            return Ok(());
        };
        let sending = SendStream::on(stream);
        let parameters = request.parameters();
        let entry = Entry {
            reader: Some(*reader),
            omits_properties: parameters.include_properties == Some(false),
            ..Entry::new(request.kind(), Opener::Peer, sending)
        };
        transport.set_priority(stream, REQUEST_PRIORITY);
        self.requests.insert(id, entry);
        self.read_joined(now, transport, &request)?;
        self.on_request(now, transport, id, request)?;
        self.poll_request(now, transport, id)
    }

    /// Reads the stream of the subscription that a FETCH joins: updates that have come count for it [moqt-18 §10.12.2].
    fn read_joined(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        request: &Request,
    ) -> Result<(), DecodeError> {
        let Request::Fetch(fetch) = request else {
            return Ok(());
        };
        let (FetchKind::RelativeJoining { request_id, .. }
        | FetchKind::AbsoluteJoining { request_id, .. }) = fetch.kind
        else {
            return Ok(());
        };
        let joined = self.requests.get(RequestId(request_id));
        let joined = joined.filter(|one| one.kind == RequestKind::Subscribe);
        match joined.and_then(|joined| joined.sending.stream()) {
            Some(stream) => self.read(now, transport, stream),
            None => Ok(()),
        }
    }

    /// Records a Request ID that the peer uses.
    pub(super) fn accept_id(&mut self, id: RequestId) -> Result<(), Violation> {
        if id.is_fill() && !self.draft.has_joining_fetches() {
            return Err(Violation::beyond_limit(
                "a Request ID is larger than this endpoint accepts",
            ));
        }
        if self.ids.accept(id)? {
            self.counters.request_id_gaps_closed += 1;
        }
        Ok(())
    }

    fn on_request(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        id: RequestId,
        mut request: Request,
    ) -> Result<(), DecodeError> {
        let is_unique = self
            .tokens
            .resolve(&mut request.parameters_mut().authorization_tokens)?;
        let alias = match &request {
            Request::Publish(publish) => {
                self.claim_alias(publish.track_alias, id, &publish.track)?;
                Some(publish.track_alias)
            }
            Request::Subscribe(_)
            | Request::Fetch(_)
            | Request::TrackStatus(_)
            | Request::PublishNamespace(_)
            | Request::SubscribeNamespace(_)
            | Request::SubscribeTracks(_) => None,
        };
        if let Some(error) = self.refusal(&request, is_unique) {
            self.reject(transport, id, error);
            if let Some(alias) = alias {
                self.drop_waiting(transport, alias);
            }
            return Ok(());
        }
        let of_subscription = match &request {
            _ if self.draft.has_joining_fetches() => None,
            Request::Subscribe(Subscribe { parameters, .. }) => Some(parameters.clone()),
            Request::Publish(publish) => {
                self.expect_fill(id, publish);
                Some(publish.parameters.clone())
            }
            Request::Fetch(_)
            | Request::TrackStatus(_)
            | Request::PublishNamespace(_)
            | Request::SubscribeNamespace(_)
            | Request::SubscribeTracks(_) => None,
        };
        self.events.push_back(Event::Request { id, request });
        if let Some(parameters) = of_subscription {
            self.note_terms(id, &parameters);
            self.report_fill(transport, (id, id), &parameters);
        }
        match alias {
            Some(alias) => self.deliver_waiting(now, transport, alias, id),
            None => Ok(()),
        }
    }

    /// Returns the error with which the session itself rejects a request, if it does.
    fn refusal(&mut self, request: &Request, tokens_are_unique: bool) -> Option<RequestError> {
        if judge(&self.state, Input::Request) == Verdict::Reject {
            return Some(RequestError::new(
                RequestErrorCode::GOING_AWAY,
                "this session is going away",
            ));
        }
        if self.requests.peer_live() > self.limits.requests_max {
            self.counters.requests_over_limit += 1;
            let error = RequestError::new(
                RequestErrorCode::EXCESSIVE_LOAD,
                "too many requests are open",
            );
            return Some(RequestError {
                retry_after: Some(RETRY_AFTER_LOAD),
                ..error
            });
        }
        if !tokens_are_unique {
            return Some(RequestError::new(
                RequestErrorCode::MALFORMED_AUTH_TOKEN,
                "an authorization token is repeated",
            ));
        }
        if let Some(error) = request.parameters().range_filter_error(self.ranges_max) {
            return Some(error);
        }
        if request.namespace().is_some_and(is_reserved_here) {
            let reason = "the namespace is reserved and nothing is in it";
            return Some(RequestError::new(RequestErrorCode::DOES_NOT_EXIST, reason));
        }
        if request
            .properties()
            .is_some_and(|properties| properties.mandatory().is_some())
        {
            return Some(unsupported_extension());
        }
        None
    }

    /// Assigns an alias to a track whose objects come here [moqt-18 §11.1].
    pub(super) fn claim_alias(
        &mut self,
        alias: u64,
        id: RequestId,
        track: &FullTrackName,
    ) -> Result<(), Violation> {
        let users: Vec<RequestId> = self.aliases.users(alias).collect();
        for user in users {
            match self.requests.get(user).filter(|request| request.is_live()) {
                Some(Entry {
                    subject: Subject::Track(other),
                    ..
                }) if other == track => {}
                Some(_) => {
                    return Err(SessionError::DUPLICATE_TRACK_ALIAS
                        .violation("another track uses this Track Alias"));
                }
                None => self.retire(user),
            }
        }
        if let Some(request) = self.requests.get_mut(id) {
            request.subject = Subject::Track(track.clone());
        }
        self.aliases.insert(TrackAlias { alias, request: id });
        Ok(())
    }
}

/// Returns whether nothing can exist under the namespace: `.` is never used, and this crate supports no extension that
/// uses `.session` [moqt-18 §3.2.1] [moqt-18 §3.2.2].
fn is_reserved_here(namespace: &Namespace) -> bool {
    namespace.is_session_level() || namespace.fields().next() == Some(b".")
}

pub(super) fn unsupported_extension() -> RequestError {
    RequestError::new(
        RequestErrorCode::UNSUPPORTED_EXTENSION,
        "a mandatory property is not supported",
    )
}
