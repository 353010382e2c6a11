//! Fills: past objects of a subscription, which later drafts request with a parameter of the subscription or of its
//! update, in place of a FETCH that joins it [moqt-22 §3.4, §9.20.15].
//!
//! The role sees a fill as that FETCH in both directions. Its Request ID is that of the message which requested it, with
//! the highest bit set. The fetch has no messages of its own: acceptance has no encoding, and a refusal resets a stream.

use bytes::BytesMut;
use weir_transport::{Direction, Transport};

use super::request_state::{Opener, UpdateSent};
use super::requests::{Entry, Subject, Terms};
use super::send_stream::SendStream;
use super::{Accepted, CloseReason, Event, Refused, Request, RequestId, Session};
use crate::data::FetchHeader;
use crate::error::{RequestErrorCode, ResetCode};
use crate::location::Location;
use crate::message::{Fetch, FetchKind, FetchOk, Publish, RequestError, RequestKind, RequestOk};
use crate::name::FullTrackName;
use crate::parameter::{Filter, Parameters};
use crate::property::Properties;

impl Session {
    /// Remembers what fills of a subscription that this endpoint publishes depend on. Drafts with joining fetches need
    /// none of it.
    pub(super) fn note_terms(&mut self, id: RequestId, parameters: &Parameters) {
        if !self.draft.has_joining_fetches()
            && let Some(request) = self.requests.get_mut(id)
        {
            request.terms = Some(Box::new(Terms::new(parameters)));
        }
    }

    /// Applies an update of the peer to a subscription, and reports the fill that it requests.
    pub(super) fn update_terms(
        &mut self,
        transport: &mut dyn Transport,
        (id, update_id): (RequestId, RequestId),
        parameters: &Parameters,
    ) {
        if let Some(request) = self.requests.get_mut(id)
            && let Some(terms) = &mut request.terms
        {
            terms.change(parameters);
            self.report_fill(transport, (id, update_id), parameters);
        }
    }

    /// Reports the fill of a subscription as a FETCH that joins it. A subscription that is paused, and a fill of objects
    /// that are newer than the largest one, have none [moqt-22 §3.4.1].
    pub(super) fn report_fill(
        &mut self,
        transport: &mut dyn Transport,
        (subscription, requested_by): (RequestId, RequestId),
        parameters: &Parameters,
    ) {
        let Some(fill) = &parameters.fill else { return };
        let request = self.requests.get(subscription);
        let Some(terms) = request.and_then(|request| request.terms.as_deref()) else {
            return;
        };
        let filter = fill.filter.unwrap_or(terms.filter);
        let Some(kind) = joining(subscription, filter).filter(|_| terms.forward) else {
            return;
        };
        let parameters = Parameters {
            fill_timeout: fill.fill_timeout,
            subscriber_priority: fill.subscriber_priority.or(terms.priority),
            group_order: fill.group_order.or(terms.group_order),
            ..Parameters::none()
        };
        let id = requested_by.fill();
        self.insert_fill(id, subscription, Opener::Peer);
        if self.requests.peer_live() > self.limits.requests_max {
            self.counters.requests_over_limit += 1;
            let error = RequestError::new(RequestErrorCode::EXCESSIVE_LOAD, "");
            return self.request_error(transport, id, error);
        }
        let request = Request::Fetch(Fetch {
            request_id: id.0,
            kind,
            parameters,
        });
        self.events.push_back(Event::Request { id, request });
    }

    /// Expects the fill of a track that the peer publishes, if an own `SUBSCRIBE_TRACKS` asks for it and the track has
    /// objects.
    pub(super) fn expect_fill(&mut self, id: RequestId, publish: &Publish) {
        let (of_track, parameters) = (&publish.track.namespace, &publish.parameters);
        if self.fills_tracks
            && parameters.largest_object.is_some()
            && parameters.forward != Some(false)
            && let Some(order) = self.requests.fill_of_tracks(of_track)
        {
            self.insert_fill(id.fill(), id, Opener::Here);
            let fetches_max = self.limits.requests_local_max;
            self.fetches.insert(id.fill(), order, fetches_max);
        }
    }

    /// Sends SUBSCRIBE, with a request for the past from the start of the group that is `groups` before the largest one.
    /// Returns the subscription, and the fetch of the past objects.
    ///
    /// Drafts without fills have no such SUBSCRIBE, and the fetch is `None`: call [`fetch`](Self::fetch) when the
    /// subscription is accepted. Some relays serve fills of SUBSCRIBE only, not those of updates that `fetch` sends.
    pub fn subscribe_with_past(
        &mut self,
        transport: &mut dyn Transport,
        track: FullTrackName,
        parameters: Parameters,
        groups: u64,
    ) -> Result<(RequestId, Option<RequestId>), Refused> {
        if self.draft.has_joining_fetches() {
            return Ok((self.subscribe(transport, track, parameters)?, None));
        }
        let fill = Parameters {
            filter: Some(Filter::Recent { groups }),
            ..Parameters::none()
        };
        let order = parameters.group_order.unwrap_or_default();
        let parameters = Parameters {
            fill: Some(Box::new(fill)),
            ..parameters
        };
        let subscription = self.subscribe(transport, track, parameters)?;
        let fetch = subscription.fill();
        self.insert_fill(fetch, subscription, Opener::Here);
        let fetches_max = self.limits.requests_local_max;
        self.fetches.insert(fetch, order, fetches_max);
        Ok((subscription, Some(fetch)))
    }

    /// Requests a fill of a subscription with an update.
    pub(super) fn send_fill(
        &mut self,
        transport: &mut dyn Transport,
        kind: &FetchKind,
        parameters: &Parameters,
    ) -> Result<RequestId, Refused> {
        let Some((subscription, filter)) = joined(kind) else {
            return Err(Refused::NotInDraft);
        };
        self.check_room()?;
        let request = self.requests.get(subscription).ok_or(Refused::Over)?;
        let is_unanswered = request.opener == Opener::Peer && request.state.is_pending();
        if !request.receives_objects() || !request.is_live() || is_unanswered {
            return Err(Refused::Over);
        }
        let fill = Parameters {
            filter: Some(filter),
            fill_timeout: parameters.fill_timeout,
            subscriber_priority: parameters.subscriber_priority,
            group_order: parameters.group_order,
            range_filters: parameters.range_filters.clone(),
            ..Parameters::none()
        };
        let update = Parameters {
            fill: Some(Box::new(fill)),
            authorization_tokens: parameters.authorization_tokens.clone(),
            ..Parameters::none()
        };
        let update_id = self.send_update(transport, subscription, update, UpdateSent::Fill)?;
        let id = update_id.fill();
        self.insert_fill(id, subscription, Opener::Here);
        let order = parameters.group_order.unwrap_or_default();
        self.fetches
            .insert(id, order, self.limits.requests_local_max);
        Ok(id)
    }

    /// Handles the answer to an update that requested a fill.
    pub(super) fn on_fill_answered(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        result: Result<RequestOk, RequestError>,
    ) {
        if self.requests.get(id).is_none() {
            return;
        }
        match result {
            Ok(ok) => {
                self.requests.establish(id);
                let fetched = FetchOk {
                    end_of_track: false,
                    end: ok.parameters.largest_object.unwrap_or(Location::MAX),
                    parameters: Parameters::none(),
                    properties: Properties::EMPTY,
                };
                let ok = Accepted::Fetch(fetched);
                self.events.push_back(Event::Accepted { id, ok });
            }
            Err(error) => {
                self.cancel(transport, id, ResetCode::CANCELLED);
                self.events.push_back(Event::Rejected { id, error });
            }
        }
    }

    /// Resets a stream in place of a fill that the role refuses, which is the only way to say so. An empty fill has no
    /// stream [moqt-22 §3.4.1].
    pub(super) fn refuse_fill(
        &mut self,
        transport: &mut dyn Transport,
        id: RequestId,
        code: RequestErrorCode,
    ) {
        let Some(Entry {
            subject: Subject::Fill(subscription),
            ..
        }) = self.requests.get(id)
        else {
            return;
        };
        let subscription = self.requests.get(*subscription);
        let is_established =
            subscription.is_some_and(|it| it.state.is_established() || it.opener == Opener::Here);
        if !is_established || code == RequestErrorCode::INVALID_RANGE {
            return;
        }
        let Some(stream) = transport.open(Direction::Uni) else {
            return;
        };
        let mut header = BytesMut::new();
        FetchHeader { request_id: id.0 }.encode(self.draft, &mut header);
        let is_written = transport.write(stream, &mut header.freeze()).is_ok();
        let code = match code {
            RequestErrorCode::EXCESSIVE_LOAD => ResetCode::EXCESSIVE_LOAD,
            RequestErrorCode::MALFORMED_TRACK => ResetCode::MALFORMED_TRACK,
            _ => ResetCode::UNKNOWN_OBJECT_STATUS,
        };
        transport.reset(stream, code.0);
        if is_written {
            self.count_fill(id);
        }
    }

    /// Counts the stream of a fill as one of its subscription [moqt-22 §9.9].
    pub(super) fn count_fill(&mut self, id: RequestId) {
        if let Some(Entry {
            subject: Subject::Fill(subscription),
            ..
        }) = self.requests.get(id)
            && let Some(subscription) = self.requests.get_mut(*subscription)
            && let Some(terms) = &mut subscription.terms
        {
            terms.fill_streams += 1;
        }
    }

    /// Ends the fills of a subscription that has ended [moqt-22 §3.4.1]. The role is notified of those of the peer, and of
    /// its own if the peer ended them.
    pub(super) fn end_fills(
        &mut self,
        transport: &mut dyn Transport,
        subscription: RequestId,
        (by, reason): (Opener, CloseReason),
    ) {
        let fills = self.requests.get_mut(subscription);
        let fills = fills.map_or_else(Vec::new, |request| std::mem::take(&mut request.fills));
        for id in fills {
            let Some(fill) = self.requests.get(id) else {
                continue;
            };
            let is_reported = fill.opener == Opener::Peer || by == Opener::Peer;
            self.cancel(transport, id, ResetCode::CANCELLED);
            if is_reported {
                self.events.push_back(Event::Closed { id, reason });
            }
        }
    }

    fn insert_fill(&mut self, id: RequestId, subscription: RequestId, opener: Opener) {
        let entry = Entry {
            reader: None,
            subject: Subject::Fill(subscription),
            ..Entry::new(RequestKind::Fetch, opener, SendStream::absent())
        };
        self.requests.insert(id, entry);
        if let Some(mut fills) = self
            .requests
            .get_mut(subscription)
            .map(|request| std::mem::take(&mut request.fills))
        {
            fills.retain(|fill| self.requests.get(*fill).is_some());
            fills.push(id);
            if let Some(request) = self.requests.get_mut(subscription) {
                request.fills = fills;
            }
        }
    }
}

/// Returns the FETCH that joins a subscription with the objects of a filter; `None` if the filter covers only objects
/// that do not exist yet.
fn joining(subscription: RequestId, filter: Filter) -> Option<FetchKind> {
    let request_id = subscription.0;
    match filter {
        Filter::NextGroupStart | Filter::LargestObject => None,
        Filter::Recent { groups } => Some(FetchKind::RelativeJoining { request_id, groups }),
        Filter::AbsoluteStart(_) | Filter::AbsoluteRange { .. } => {
            let (start, end) = filter.range(None);
            Some(FetchKind::AbsoluteJoining {
                request_id,
                start,
                end,
            })
        }
    }
}

/// Returns the subscription that a FETCH joins, and the filter of its objects.
fn joined(kind: &FetchKind) -> Option<(RequestId, Filter)> {
    match *kind {
        FetchKind::Standalone { .. } | FetchKind::Recent { .. } => None,
        FetchKind::RelativeJoining { request_id, groups } => {
            Some((RequestId(request_id), Filter::Recent { groups }))
        }
        FetchKind::AbsoluteJoining {
            request_id,
            start,
            end,
        } => {
            let filter = if end == Location::MAX {
                Filter::AbsoluteStart(start)
            } else {
                Filter::AbsoluteRange { start, end }
            };
            Some((RequestId(request_id), filter))
        }
    }
}
