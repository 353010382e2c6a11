//! Finds the tracks of a stream: requests the catalog under both of its names, then the init segments that the catalog
//! names.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_client::turn::Turn;
use weir_moqt::error::{RequestErrorCode, SessionError};
use weir_moqt::location::Location;
use weir_moqt::message::RequestError;
use weir_moqt::parameter::Filter;
use weir_moqt::session::RequestId;

use super::Viewer;
use super::answer_timeout::{answer_by, unanswered_reason};
use super::incoming::{Retries, StreamContent};
use super::subscriptions::may_be_duplicate;
use crate::catalog::CATALOG_TRACK;
use crate::limits::{CATALOG_BYTES_MAX, INIT_SEGMENT_BYTES_MAX};
use crate::plan::{EARLIER_CATALOG_TRACK, Plan, init_tracks};

/// The requested metadata tracks, and their state.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    requests: Vec<MetadataRequest>,
    catalog: Option<CatalogObject>,
    segments: BTreeMap<String, Bytes>,
    /// The deadline of a response, or of the object of an accepted track.
    give_up_at: Option<Instant>,
    /// When to request the catalog again, after no publisher had it.
    retry_at: Option<Instant>,
    is_over: bool,
}

/// The SUBSCRIBE for a metadata track: the catalog or an init segment.
#[derive(Debug)]
struct MetadataRequest {
    name: String,
    request: RequestId,
    is_catalog: bool,
    state: RequestState,
    retries: Retries,
}

/// The state of a request for a metadata track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    /// No response has arrived.
    Requested,
    /// The relay has accepted the request; the object has not arrived.
    Accepted,
    /// The request is complete.
    Answered {
        /// Whether the relay has accepted the request.
        is_accepted: bool,
    },
}

/// An event of a request for a metadata track.
#[derive(Clone, Copy, Debug)]
enum RequestEvent {
    /// The relay accepts it.
    Accept,
    /// Its object has arrived, will not arrive, or is not needed.
    Answer,
}

impl RequestState {
    fn after(self, event: RequestEvent) -> Self {
        match (self, event) {
            (Self::Requested | Self::Accepted, RequestEvent::Accept) => Self::Accepted,
            (Self::Answered { .. }, RequestEvent::Accept) => Self::Answered { is_accepted: true },
            (_, RequestEvent::Answer) => Self::Answered {
                is_accepted: self.is_accepted(),
            },
        }
    }

    fn is_accepted(self) -> bool {
        matches!(self, Self::Accepted | Self::Answered { is_accepted: true })
    }

    fn is_answered(self) -> bool {
        matches!(self, Self::Answered { .. })
    }
}

/// The last catalog.
#[derive(Debug)]
struct CatalogObject {
    /// The request that the catalog answered.
    request: RequestId,
    group: u64,
    json: Bytes,
}

impl Discovery {
    /// Returns the deadline of the current requests.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.give_up_at.filter(|_| !self.is_over)
    }

    /// Returns when to request the catalog again, after no publisher had it.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Whether a request is one of these.
    pub(super) fn has(&self, request: RequestId) -> bool {
        self.requests
            .iter()
            .any(|metadata| metadata.request == request)
    }

    /// Returns all requests.
    pub(super) fn into_requests(self) -> Vec<RequestId> {
        self.requests
            .iter()
            .map(|metadata| metadata.request)
            .collect()
    }

    /// Returns the largest object of a metadata track in bytes.
    pub(super) fn bytes_max(&self, request: RequestId) -> usize {
        if self.is_catalog(request) {
            CATALOG_BYTES_MAX
        } else {
            INIT_SEGMENT_BYTES_MAX
        }
    }

    fn is_catalog(&self, request: RequestId) -> bool {
        let mut catalogs = self.requests.iter().filter(|metadata| metadata.is_catalog);
        catalogs.any(|metadata| metadata.request == request)
    }

    /// Whether a catalog differs from the last. Publishers repeat catalogs for late subscribers, a fetched catalog may
    /// be outdated, and a stream has a catalog under only one of the two names.
    fn is_news(&self, found: &CatalogObject) -> bool {
        self.catalog.as_ref().is_none_or(|known| {
            known.request == found.request && known.group <= found.group && known.json != found.json
        })
    }

    /// Begins with a new catalog. Returns the requests that the previous one caused.
    fn begin(&mut self, now: Instant, found: CatalogObject) -> Vec<RequestId> {
        self.catalog = Some(found);
        self.segments.clear();
        self.is_over = false;
        self.give_up_at = Some(now + METADATA_TIME_MAX);
        self.retry_at = None;
        let over = self
            .requests
            .extract_if(.., |metadata| !metadata.is_catalog);
        let over = over.map(|metadata| metadata.request).collect();
        for metadata in &mut self.requests {
            metadata.state = metadata.state.after(RequestEvent::Answer);
        }
        over
    }

    /// Completes a request. Returns the name of its track, unless the request was complete before.
    fn answer(&mut self, request: RequestId) -> Option<String> {
        let mut requests = self.requests.iter_mut();
        let metadata = requests
            .find(|metadata| metadata.request == request && !metadata.state.is_answered())?;
        metadata.state = metadata.state.after(RequestEvent::Answer);
        Some(metadata.name.clone())
    }

    fn is_answered(&self) -> bool {
        self.requests
            .iter()
            .all(|metadata| metadata.state.is_answered())
    }
}

impl Viewer {
    /// Requests the catalog. The relay may wait for a publisher for `rendezvous_timeout`.
    pub(super) fn discover(&mut self, turn: &mut Turn<'_>, rendezvous_timeout: Duration) {
        for name in [CATALOG_TRACK, EARLIER_CATALOG_TRACK] {
            self.request_metadata(turn, name, rendezvous_timeout, true);
        }
        self.discovery.give_up_at = answer_by(turn.now, rendezvous_timeout);
    }

    fn request_metadata(
        &mut self,
        turn: &mut Turn<'_>,
        name: &str,
        rendezvous_timeout: Duration,
        is_catalog: bool,
    ) {
        if let Some(request) = self.subscribe_to_metadata(turn, name, rendezvous_timeout) {
            self.discovery.requests.push(MetadataRequest {
                name: name.to_owned(),
                request,
                is_catalog,
                state: RequestState::Requested,
                retries: Retries::default(),
            });
        }
    }

    /// Sends SUBSCRIBE for a metadata track, which is joined at its current object.
    fn subscribe_to_metadata(
        &mut self,
        turn: &mut Turn<'_>,
        name: &str,
        rendezvous_timeout: Duration,
    ) -> Option<RequestId> {
        let filter = Filter::LargestObject;
        let (request, past) = self.subscribe_to(turn, name, filter, rendezvous_timeout)?;
        let of = StreamContent::Metadata(request);
        self.fetches.extend(past.map(|fetch| (fetch, of)));
        Some(request)
    }

    /// Handles the acceptance of a metadata track. Fetches its object unless it is still to be published.
    pub(super) fn on_metadata_accepted(
        &mut self,
        turn: &mut Turn<'_>,
        id: RequestId,
        largest: Option<Location>,
    ) {
        self.discovery.give_up_at = Some(turn.now + METADATA_TIME_MAX);
        let mut requests = self.discovery.requests.iter_mut();
        if let Some(metadata) = requests.find(|metadata| metadata.request == id) {
            metadata.state = metadata.state.after(RequestEvent::Accept);
        }
        if largest.is_some() {
            self.fetch_past(turn, id, StreamContent::Metadata(id));
        }
    }

    /// Handles the refusal of a metadata track.
    pub(super) fn on_metadata_rejected(
        &mut self,
        turn: &mut Turn<'_>,
        id: RequestId,
        error: &RequestError,
    ) {
        if may_be_duplicate(error.code) && self.request_again(turn, id) {
            return;
        }
        if self.discovery.answer(id).is_none() || self.discovery.is_over {
            return;
        }
        match self.discovery.catalog {
            Some(_) => self.plan_if_answered(turn),
            None if !self.discovery.is_answered() => {}
            None if self.phase.waits_until().is_some() => {
                self.discovery.retry_at = Some(turn.now + RETRY_PAUSE);
            }
            None => {
                if self.asks_later(turn.now, error.code) {
                    return;
                }
                let RequestError { code, reason, .. } = error;
                let reason = format!("the relay refused the catalog: {code} {reason:?}");
                self.client.fail(turn, SessionError::NO_ERROR, reason);
            }
        }
    }

    /// Handles the end of a request for a metadata track. Without an earlier object, this counts as a refusal.
    pub(super) fn on_metadata_closed(&mut self, turn: &mut Turn<'_>, id: RequestId) {
        let mut requests = self.discovery.requests.iter();
        if requests.any(|metadata| metadata.request == id && !metadata.state.is_accepted()) {
            let reason = "it ended the request without an answer";
            let error = RequestError::new(RequestErrorCode::INTERNAL_ERROR, reason);
            self.on_metadata_rejected(turn, id, &error);
        }
    }

    /// Requests a track again whose request overtook the end of the previous subscription. Returns whether this is
    /// allowed.
    fn request_again(&mut self, turn: &mut Turn<'_>, id: RequestId) -> bool {
        let mut requests = self.discovery.requests.iter_mut();
        let Some(metadata) = requests.find(|metadata| metadata.request == id) else {
            return false;
        };
        if !metadata.retries.take() {
            return false;
        }
        let (name, is_catalog) = (metadata.name.clone(), metadata.is_catalog);
        let left = self.phase.waits_until().filter(|_| is_catalog);
        let left = left.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(turn.now)
        });
        let request = self.subscribe_to_metadata(turn, &name, left);
        let mut requests = self.discovery.requests.iter_mut();
        let metadata = requests.find(|metadata| metadata.request == id);
        metadata.zip(request).is_some_and(|(metadata, request)| {
            metadata.request = request;
            true
        })
    }

    /// Handles the object of a metadata track.
    pub(super) fn on_metadata(
        &mut self,
        turn: &mut Turn<'_>,
        id: RequestId,
        group: u64,
        payload: Bytes,
    ) {
        if self.discovery.is_catalog(id) {
            let found = CatalogObject {
                request: id,
                group,
                json: payload,
            };
            return self.on_catalog(turn, found);
        }
        if let Some(name) = self.discovery.answer(id)
            && !self.discovery.is_over
        {
            self.discovery.segments.insert(name, payload);
            self.plan_if_answered(turn);
        }
    }

    fn on_catalog(&mut self, turn: &mut Turn<'_>, found: CatalogObject) {
        if !self.discovery.is_news(&found) {
            return;
        }
        let names = match init_tracks(&found.json) {
            Ok(names) => names,
            Err(error) if self.discovery.catalog.is_some() => {
                return self.on_unknown(&error.to_string());
            }
            Err(error) => return self.on_useless(turn, error.to_string()),
        };
        let over = self.discovery.begin(turn.now, found);
        self.fetches
            .retain(|(_, of)| !over.iter().any(|id| *of == StreamContent::Metadata(*id)));
        self.forget(turn, &over);
        for name in names {
            self.request_metadata(turn, &name, Duration::ZERO, false);
        }
        self.plan_if_answered(turn);
    }

    /// Handles a missed deadline of a response or an object.
    pub(super) fn on_discovery_timeout(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let is_due = |at: Instant| at <= now;
        if !self.discovery.poll_timeout().is_some_and(is_due) {
            return;
        }
        let unanswered = self
            .discovery
            .requests
            .iter()
            .find(|metadata| !metadata.state.is_answered());
        let name = unanswered.map_or(CATALOG_TRACK, |metadata| &*metadata.name);
        let is_there = self
            .discovery
            .requests
            .iter()
            .any(|metadata| metadata.state.is_accepted());
        let reason = if is_there {
            format!("the track {name:?} exists, but its object did not arrive")
        } else {
            unanswered_reason(name)
        };
        self.on_useless(turn, reason);
        self.discovery.retry_at = self.phase.waits_until().map(|_| now + RETRY_PAUSE);
    }

    fn plan_if_answered(&mut self, turn: &mut Turn<'_>) {
        if !self.discovery.is_answered() {
            return;
        }
        let Some(catalog) = &self.discovery.catalog else {
            return;
        };
        match Plan::read(&catalog.json, &self.discovery.segments) {
            Ok(plan) => {
                self.discovery.is_over = true;
                if !self.resume(turn, &plan) && !self.is_played(&plan) {
                    self.apply(turn, plan);
                }
            }
            Err(error) => self.on_useless(turn, error.to_string()),
        }
    }

    /// Handles an unusable catalog: the first one fails the player, later ones are ignored.
    fn on_useless(&mut self, turn: &mut Turn<'_>, reason: String) {
        self.discovery.is_over = true;
        if self.plan.is_some() {
            self.on_unknown(&reason);
        } else {
            self.client.fail(turn, SessionError::NO_ERROR, reason);
        }
    }
}

/// The time for the object of an accepted track.
const METADATA_TIME_MAX: Duration = Duration::from_secs(5);
/// The pause before the catalog is requested again.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_of_a_request_has_one_outcome() {
        let mut table = String::new();
        for state in [
            RequestState::Requested,
            RequestState::Accepted,
            RequestState::Answered { is_accepted: false },
            RequestState::Answered { is_accepted: true },
        ] {
            for event in [RequestEvent::Accept, RequestEvent::Answer] {
                let row = format!("{state:?} + {event:?} -> {:?}\n", state.after(event));
                table.push_str(&row);
            }
        }
        insta::assert_snapshot!(table);
    }
}
