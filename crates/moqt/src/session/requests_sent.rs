//! The requests of this endpoint, from the call to the end of the stream: sent or queued, updated, cancelled.

use bytes::Bytes;
use weir_transport::{Direction, StreamId, Transport};

use super::request_state::{EndedBy, Opener, UpdateSent};
use super::requests::{Announced, Entry, Subject};
use super::send_stream::SendStream;
use super::state::{Input, Verdict, judge};
use super::stream_state::Stream;
use super::streams::refuse;
use super::{CloseReason, REQUEST_PRIORITY, Refused, Request, RequestId, Session};
use crate::error::{EncodeError, ResetCode, SessionError};
use crate::message::{
    Fetch, FetchKind, Message, Publish, PublishNamespace, RequestKind, RequestUpdate, Subscribe,
    SubscribeNamespace, SubscribeTracks, TrackStatus,
};
use crate::name::{FullTrackName, Namespace};
use crate::parameter::Parameters;
use crate::property::Properties;
use crate::reader::MessageReader;

impl Session {
    /// Sends SUBSCRIBE: requests the new objects of a track [moqt-18 §10.7].
    pub fn subscribe(
        &mut self,
        transport: &mut dyn Transport,
        track: FullTrackName,
        parameters: Parameters,
    ) -> Result<RequestId, Refused> {
        let subject = Subject::Track(track.clone());
        self.send_request(transport, subject, |request_id| {
            Request::Subscribe(Subscribe {
                request_id,
                track,
                parameters,
            })
        })
    }

    /// Sends PUBLISH: offers the objects of a track under a Track Alias that no other track of this session has
    /// [moqt-18 §10.10].
    pub fn publish(
        &mut self,
        transport: &mut dyn Transport,
        track: FullTrackName,
        track_alias: u64,
        parameters: Parameters,
        properties: Properties,
    ) -> Result<RequestId, Refused> {
        let terms = parameters.clone();
        let publish = publish(track, track_alias, parameters, properties);
        let id = self.send_request(transport, Subject::None, publish)?;
        self.note_terms(id, &terms);
        Ok(id)
    }

    /// Sends PUBLISH only if that is possible at once; returns [`Refused::NoStream`] if the request would wait for the
    /// peer to allow another stream. A fill in the parameters is that of the peer's `SUBSCRIBE_TRACKS`: it is not sent,
    /// and reported like that of a SUBSCRIBE [moqt-21 §9.18.1].
    pub fn publish_now(
        &mut self,
        transport: &mut dyn Transport,
        track: FullTrackName,
        track_alias: u64,
        parameters: Parameters,
        properties: Properties,
    ) -> Result<RequestId, Refused> {
        self.check_room()?;
        let Some(stream) = self.open_unqueued(transport) else {
            return Err(Refused::NoStream);
        };
        let terms = parameters.clone();
        let sent = Parameters {
            fill: None,
            ..parameters
        };
        let publish = publish(track, track_alias, sent, properties);
        let id = self.send_request_on(transport, Some(stream), Subject::None, publish)?;
        self.note_terms(id, &terms);
        self.report_fill(transport, (id, id), &terms);
        Ok(id)
    }

    /// Sends FETCH: requests past objects [moqt-18 §10.12].
    pub fn fetch(
        &mut self,
        transport: &mut dyn Transport,
        kind: FetchKind,
        parameters: Parameters,
    ) -> Result<RequestId, Refused> {
        let order = parameters.group_order.unwrap_or_default();
        let subject = match &kind {
            FetchKind::Standalone { start, .. } => Subject::Range(*start),
            FetchKind::Recent { .. } => Subject::None,
            FetchKind::RelativeJoining { .. } | FetchKind::AbsoluteJoining { .. } => {
                if !self.draft.has_joining_fetches() {
                    return self.send_fill(transport, &kind, &parameters);
                }
                Subject::None
            }
        };
        let id = self.send_request(transport, subject, |request_id| {
            Request::Fetch(Fetch {
                request_id,
                kind,
                parameters,
            })
        })?;
        self.fetches
            .insert(id, order, self.limits.requests_local_max);
        Ok(id)
    }

    /// Sends `TRACK_STATUS`: requests what is known of a track [moqt-18 §10.14].
    pub fn track_status(
        &mut self,
        transport: &mut dyn Transport,
        track: FullTrackName,
        parameters: Parameters,
    ) -> Result<RequestId, Refused> {
        self.send_request(transport, Subject::None, |request_id| {
            Request::TrackStatus(TrackStatus {
                request_id,
                track,
                parameters,
            })
        })
    }

    /// Sends `PUBLISH_NAMESPACE`: offers the tracks of a namespace [moqt-18 §10.15].
    pub fn publish_namespace(
        &mut self,
        transport: &mut dyn Transport,
        namespace: Namespace,
        parameters: Parameters,
    ) -> Result<RequestId, Refused> {
        self.send_request(transport, Subject::None, |request_id| {
            Request::PublishNamespace(PublishNamespace {
                request_id,
                namespace,
                parameters,
            })
        })
    }

    /// Sends `SUBSCRIBE_NAMESPACE`: requests the namespaces under a prefix [moqt-18 §10.18].
    pub fn subscribe_namespace(
        &mut self,
        transport: &mut dyn Transport,
        prefix: Namespace,
        parameters: Parameters,
    ) -> Result<RequestId, Refused> {
        let subject = Subject::Namespaces(Box::new(Announced::new(prefix.clone())));
        self.send_request(transport, subject, |request_id| {
            Request::SubscribeNamespace(SubscribeNamespace {
                request_id,
                prefix,
                parameters,
            })
        })
    }

    /// Sends `SUBSCRIBE_TRACKS`: requests the tracks under a prefix [moqt-18 §10.19]. With a fill, the past objects of
    /// each track come on a fetch stream of its own, whose ID is that of the PUBLISH with the highest bit set.
    pub fn subscribe_tracks(
        &mut self,
        transport: &mut dyn Transport,
        prefix: Namespace,
        parameters: Parameters,
    ) -> Result<RequestId, Refused> {
        let subject = match &parameters.fill {
            Some(fill) => Subject::FilledTracks {
                prefix: prefix.clone(),
                order: fill.group_order.or(parameters.group_order),
            },
            None => Subject::None,
        };
        let has_fill = parameters.fill.is_some();
        let id = self.send_request(transport, subject, |request_id| {
            Request::SubscribeTracks(SubscribeTracks {
                request_id,
                prefix,
                parameters,
            })
        })?;
        self.fills_tracks |= has_fill;
        Ok(id)
    }

    /// Sends `REQUEST_UPDATE`: changes an own request, or a `PUBLISH` of the peer as its subscriber
    /// [moqt-18 §10.9]. Answered with [`Event::Updated`](super::Event::Updated), in the order of the calls.
    ///
    /// # Panics
    /// If the request takes no updates from here: `TRACK_STATUS`, an unanswered `PUBLISH` of the
    /// peer, and its other requests.
    pub fn update(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        parameters: Parameters,
    ) -> Result<(), Refused> {
        let prefix = parameters.track_namespace_prefix.clone();
        self.send_update(transport, id, parameters, UpdateSent::OfRole(prefix))?;
        Ok(())
    }

    /// Sends `REQUEST_UPDATE`, and returns its ID.
    pub(super) fn send_update(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        parameters: Parameters,
        update_sent: UpdateSent,
    ) -> Result<RequestId, Refused> {
        if self.state.is_closed() {
            return Err(Refused::Closed);
        }
        let updates_max = self.updates_max();
        let request = self.requests.get(id).ok_or(Refused::Over)?;
        let live = request.state.live().ok_or(Refused::Over)?;
        let takes_updates = match (request.opener, request.kind) {
            (Opener::Here, kind) => kind != RequestKind::TrackStatus,
            (Opener::Peer, kind) => kind == RequestKind::Publish && !request.state.is_pending(),
        };
        assert!(takes_updates, "this request takes no update from this side");
        if live.updates_sent.len() >= updates_max {
            self.counters.updates_local_over_limit += 1;
            return Err(Refused::Limit);
        }
        let update = Message::RequestUpdate(RequestUpdate {
            request_id: self.ids.next().0,
            parameters,
        });
        let (update_id, pieces) = self.encode_request(&update)?;
        if let Some(request) = self.requests.get_mut(id)
            && let Some(live) = request.state.live_mut()
        {
            live.updates_sent.push_back((update_id, update_sent));
        }
        self.send_pieces(transport, id, pieces);
        Ok(update_id)
    }

    /// Returns how many updates of a request may be unanswered, by the limits of both endpoints [moqt-19 §10.3.1.7].
    fn updates_max(&self) -> usize {
        let peer = self
            .peer_setup()
            .and_then(|setup| setup.max_request_updates);
        let of_peer = peer.filter(|max| *max > 0);
        let of_peer = of_peer.and_then(|max| usize::try_from(max).ok());
        let own = self.limits.updates_max;
        of_peer.map_or(own, |max| max.min(own))
    }

    /// Ends a request of either side at once: its stream is reset and stopped, its data streams are stopped, and late
    /// objects are dropped. Does nothing if the request is over.
    pub fn cancel(&mut self, transport: &mut dyn Transport, id: RequestId, code: ResetCode) {
        self.end_fills(transport, id, (Opener::Here, CloseReason::Reset(code)));
        self.forget_with(transport, id, code);
        self.abort(transport, id, code);
    }

    /// Drops the late objects of a subscription or fetch that has ended. An own fetch that is answered and whose data
    /// stream has ended is over with it; another request that is live or not answered is cancelled. The session queues no
    /// further event that names the request.
    pub fn forget(&mut self, transport: &mut dyn Transport, id: RequestId) {
        let Some(request) = self.requests.get(id) else {
            return self.forget_with(transport, id, ResetCode::CANCELLED);
        };
        let is_fetch = request.opener == Opener::Here && request.kind == RequestKind::Fetch;
        if request.is_over() {
            self.forget_with(transport, id, ResetCode::CANCELLED);
            self.requests.note_reported(id);
        } else if is_fetch && request.state.is_established() && !self.fetches.contains(id) {
            self.finish_request(transport, id);
            self.drain(transport, id, EndedBy::Here);
        } else {
            self.cancel(transport, id, ResetCode::CANCELLED);
        }
    }

    /// Opens streams for the requests that wait for one, in order.
    pub(super) fn open_queued(&mut self, transport: &mut dyn Transport) {
        while let Some(id) = self.requests.first_queued() {
            let Some(stream) = transport.open(Direction::Bi) else {
                return;
            };
            self.adopt(transport, stream, id);
            if let Some(request) = self.requests.pop_first_queued() {
                request.sending.open(transport, stream);
            }
        }
    }

    /// Sends the messages that wait for room, and frees the request if those were its last.
    pub(super) fn flush_request(&mut self, transport: &mut dyn Transport, id: RequestId) {
        if let Some(request) = self.requests.get_mut(id) {
            request.sending.flush(transport);
            self.forget_if_gone(id);
        }
    }

    /// Sends the pieces of a message on the stream of a request, or keeps them for it.
    pub(super) fn send_pieces(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        pieces: Vec<Bytes>,
    ) {
        for piece in pieces {
            self.send_bytes(transport, id, piece);
        }
    }

    /// Sends bytes on the stream of a request, or keeps them for it.
    pub(super) fn send_bytes(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        bytes: Bytes,
    ) {
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        request.sending.push(transport, bytes);
        if request.sending.waiting_bytes() > self.limits.outgoing_bytes_max {
            self.counters.outgoing_over_limit += 1;
            self.violate(
                transport,
                SessionError::INTERNAL_ERROR.violation("the peer does not read control messages"),
            );
        }
    }

    /// Finishes the own direction of a request after the messages sent.
    pub(super) fn finish_request(&mut self, transport: &mut dyn Transport, id: RequestId) {
        if let Some(request) = self.requests.get_mut(id) {
            request.sending.finish(transport);
        }
    }

    /// Ends both directions of a request that are still open, and forgets it.
    pub(super) fn abort(&mut self, transport: &mut dyn Transport, id: RequestId, code: ResetCode) {
        let Some(mut request) = self.requests.remove(id) else {
            return;
        };
        let Some(stream) = request.sending.stream() else {
            return;
        };
        request.sending.reset(transport, code.0);
        if request.reader.is_some() {
            transport.stop(stream, code.0);
        }
        self.forget_stream(stream);
    }

    /// Ends a request, and keeps it until its stream is over, within bounds.
    pub(super) fn drain(&mut self, transport: &mut dyn Transport, id: RequestId, by: EndedBy) {
        self.requests.end(id, by);
        self.bound_draining(transport, id);
    }

    /// Forgets a request that was just ended if its stream is over. If too many ended requests remain, aborts the
    /// oldest.
    pub(super) fn bound_draining(&mut self, transport: &mut dyn Transport, id: RequestId) {
        self.forget_if_gone(id);
        if let Some(oldest) = self
            .requests
            .draining_beyond(self.limits.requests_draining_max)
        {
            self.counters.requests_not_drained += 1;
            self.abort(transport, oldest, ResetCode::CANCELLED);
        }
    }

    /// Forgets a request whose stream is over.
    pub(super) fn forget_if_gone(&mut self, id: RequestId) {
        if self.requests.get(id).is_some_and(Entry::is_gone)
            && let Some(request) = self.requests.remove(id)
            && let Some(stream) = request.sending.stream()
        {
            self.forget_stream(stream);
        }
    }

    /// Ends the delivery of a request's objects: late ones are dropped, data streams are stopped.
    pub(super) fn forget_with(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        code: ResetCode,
    ) {
        if self.requests.get(id).is_none_or(Entry::receives_objects) {
            self.retire(id);
            self.stop_data_of(transport, id, code);
        }
    }

    fn send_request(
        &mut self,
        transport: &mut dyn Transport,
        subject: Subject,
        request: impl FnOnce(u64) -> Request,
    ) -> Result<RequestId, Refused> {
        self.check_room()?;
        let stream = self.open_unqueued(transport);
        self.send_request_on(transport, stream, subject, request)
    }

    /// Opens a stream for a request, unless others wait for one.
    fn open_unqueued(&self, transport: &mut dyn Transport) -> Option<StreamId> {
        if self.requests.first_queued().is_none() && self.control.stream().is_some() {
            transport.open(Direction::Bi)
        } else {
            None
        }
    }

    fn send_request_on(
        &mut self,
        transport: &mut dyn Transport,
        stream: Option<StreamId>,
        subject: Subject,
        request: impl FnOnce(u64) -> Request,
    ) -> Result<RequestId, Refused> {
        if stream.is_none() && self.requests.queued_len() >= self.limits.requests_queued_max {
            self.counters.requests_queued_over_limit += 1;
            return Err(Refused::Limit);
        }
        let request = request(self.ids.next().0);
        let kind = request.kind();
        let (id, pieces) = match self.encode_request(&request.into()) {
            Ok(encoded) => encoded,
            Err(refused) => {
                if let Some(stream) = stream {
                    refuse(transport, stream, Direction::Bi, ResetCode::INTERNAL_ERROR);
                }
                return Err(refused);
            }
        };
        let reader = MessageReader::new(self.draft, self.limits.message_bytes_max);
        let entry = |sending| Entry {
            subject,
            reader: Some(reader),
            ..Entry::new(kind, Opener::Here, sending)
        };
        if let Some(stream) = stream {
            self.adopt(transport, stream, id);
            self.requests.insert(id, entry(SendStream::on(stream)));
        } else {
            self.requests.queue(id, entry(SendStream::unopened()));
        }
        self.send_pieces(transport, id, pieces);
        Ok(id)
    }

    pub(super) fn check_room(&mut self) -> Result<(), Refused> {
        if let Verdict::Refuse(refused) = judge(&self.state, Input::OwnRequest) {
            return Err(refused);
        }
        if self.requests.own_live() >= self.limits.requests_local_max {
            self.counters.requests_local_over_limit += 1;
            return Err(Refused::Limit);
        }
        Ok(())
    }

    /// Encodes a request or update with the next Request ID, which it uses up unless it is too long.
    fn encode_request(&mut self, message: &Message) -> Result<(RequestId, Vec<Bytes>), Refused> {
        let id = self.ids.next();
        let pieces = self.encode_shared(message).map_err(|error| match error {
            EncodeError::TooLong { .. } => Refused::TooLong,
            EncodeError::NotInDraft { .. } => Refused::NotInDraft,
        })?;
        self.ids.assign();
        Ok((id, pieces))
    }

    fn adopt(&mut self, transport: &mut dyn Transport, stream: StreamId, id: RequestId) {
        transport.set_priority(stream, REQUEST_PRIORITY);
        self.streams.insert(stream, Stream::Request(id));
    }
}

/// Creates the PUBLISH of a track as soon as its Request ID is known.
fn publish(
    track: FullTrackName,
    track_alias: u64,
    parameters: Parameters,
    properties: Properties,
) -> impl FnOnce(u64) -> Request {
    move |request_id| {
        Request::Publish(Publish {
            request_id,
            track,
            track_alias,
            parameters,
            properties,
        })
    }
}
