//! How a player finds out what there is: it asks for the catalog under both of its names at once, then for what that names.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_moqt::error::RequestErrorCode;
use weir_moqt::location::Location;
use weir_moqt::message::{FetchKind, RequestError};
use weir_moqt::parameter::{Filter, Parameters};
use weir_moqt::session::RequestId;
use weir_quic::Endpoint;

use super::Viewer;
use super::answer_timeout::{answer_by, unanswered_reason};
use super::incoming::{Of, Tries};
use crate::catalog::CATALOG_TRACK;
use crate::origin::track;
use crate::plan::{EARLIER_CATALOG_TRACK, Plan, init_tracks};

/// What was asked for and has come so far.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    asked: Vec<Asked>,
    catalog: Option<Found>,
    segments: BTreeMap<String, Bytes>,
    /// When an answer, or what was promised, should have come.
    give_up_at: Option<Instant>,
    /// When to ask again, because nobody had it.
    ask_at: Option<Instant>,
    is_over: bool,
}

/// A track with one object, for those who come late.
#[derive(Debug)]
struct Asked {
    name: String,
    request: RequestId,
    is_catalog: bool,
    /// Whether the relay has it.
    is_accepted: bool,
    /// Whether nothing more is awaited.
    is_answered: bool,
    tries: Tries,
}

/// The last catalog that came.
#[derive(Debug)]
struct Found {
    /// What it was asked for by.
    request: RequestId,
    group: u64,
    json: Bytes,
}

impl Discovery {
    /// When it is looked whether to wait any longer.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.give_up_at.filter(|_| !self.is_over)
    }

    /// When to ask again, because nobody had it.
    pub(super) fn ask_at(&self) -> Option<Instant> {
        self.ask_at
    }

    /// Whether a request is one of these.
    pub(super) fn has(&self, request: RequestId) -> bool {
        self.asked.iter().any(|asked| asked.request == request)
    }

    /// All that was asked for.
    pub(super) fn into_requests(self) -> Vec<RequestId> {
        self.asked.iter().map(|asked| asked.request).collect()
    }

    fn is_catalog(&self, request: RequestId) -> bool {
        let mut catalogs = self.asked.iter().filter(|asked| asked.is_catalog);
        catalogs.any(|asked| asked.request == request)
    }

    /// Whether a catalog is another one than the last. Publishers say it again and again, for those who come late, what
    /// is fetched may be older, and who has one under the one name has none under the other.
    fn is_news(&self, found: &Found) -> bool {
        self.catalog.as_ref().is_none_or(|known| {
            known.request == found.request && known.group <= found.group && known.json != found.json
        })
    }

    /// Begins with a catalog; returns the requests for what another one named.
    fn begin(&mut self, now: Instant, found: Found) -> Vec<RequestId> {
        self.catalog = Some(found);
        self.segments.clear();
        self.is_over = false;
        self.give_up_at = Some(now + HELD_TIME_MAX);
        self.ask_at = None;
        let over = self.asked.extract_if(.., |asked| !asked.is_catalog);
        let over = over.map(|asked| asked.request).collect();
        for asked in &mut self.asked {
            asked.is_answered = true;
        }
        over
    }

    /// Notes that nothing more is awaited from a request; returns the name of its track, if that is news.
    fn answer(&mut self, request: RequestId) -> Option<String> {
        let mut asked = self.asked.iter_mut();
        let asked = asked.find(|asked| asked.request == request && !asked.is_answered)?;
        asked.is_answered = true;
        Some(asked.name.clone())
    }

    fn is_answered(&self) -> bool {
        self.asked.iter().all(|asked| asked.is_answered)
    }
}

impl Viewer {
    /// Asks for the catalog. Of a stream that is not published yet the relay is to tell when it is.
    pub(super) fn discover(&mut self, now: Instant, endpoint: &mut Endpoint, patience: Duration) {
        for name in [CATALOG_TRACK, EARLIER_CATALOG_TRACK] {
            self.ask(now, endpoint, name, patience, true);
        }
        self.discovery.give_up_at = answer_by(now, patience);
    }

    fn ask(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        name: &str,
        patience: Duration,
        is_catalog: bool,
    ) {
        if let Some(request) = self.ask_for(now, endpoint, name, patience) {
            self.discovery.asked.push(Asked {
                name: name.to_owned(),
                request,
                is_catalog,
                is_accepted: false,
                is_answered: false,
                tries: Tries::default(),
            });
        }
    }

    /// Asks for one of the tracks; if that cannot be, the player is of no more use.
    fn ask_for(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        name: &str,
        patience: Duration,
    ) -> Option<RequestId> {
        let full_name = match track(&self.config.namespace, name) {
            Ok(full_name) => full_name,
            Err(error) => {
                let reason = format!("the track {name:?} has no name: {error}");
                self.client.fail(reason);
                return None;
            }
        };
        let parameters = Parameters {
            filter: Some(Filter::LargestObject),
            rendezvous_timeout: Some(patience).filter(|time| !time.is_zero()),
            ..Parameters::default()
        };
        let (session, mut connection) = self.client.open(now, endpoint)?;
        match session.subscribe(&mut connection, full_name, parameters) {
            Ok(request) => Some(request),
            Err(refused) => {
                let reason = format!("the track {name:?} cannot be asked for: {refused}");
                self.client.fail(reason);
                None
            }
        }
    }

    /// One of the tracks is there; what it holds is fetched, unless it is still to come.
    pub(super) fn on_held_accepted(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        id: RequestId,
        largest: Option<Location>,
    ) {
        self.discovery.give_up_at = Some(now + HELD_TIME_MAX);
        let mut asked = self.discovery.asked.iter_mut();
        if let Some(asked) = asked.find(|asked| asked.request == id) {
            asked.is_accepted = true;
        }
        let Some((session, mut connection)) = self.client.open(now, endpoint) else {
            return;
        };
        if largest.is_none() {
            return;
        }
        let kind = FetchKind::RelativeJoining {
            request_id: id.0,
            groups: 0,
        };
        if let Ok(fetch) = session.fetch(&mut connection, kind, Parameters::default()) {
            self.fetches.push((fetch, Of::Held(id)));
        }
    }

    /// One of the tracks is not there.
    pub(super) fn on_held_rejected(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        id: RequestId,
        error: &RequestError,
    ) {
        let is_early = error.code == RequestErrorCode::DUPLICATE_SUBSCRIPTION;
        if is_early && self.ask_once_more(now, endpoint, id) {
            return;
        }
        if self.discovery.answer(id).is_none() || self.discovery.is_over {
            return;
        }
        match self.discovery.catalog {
            Some(_) => self.plan_if_answered(now, endpoint),
            None if !self.discovery.is_answered() => {}
            None if self.waits_until.is_some() => {
                self.discovery.ask_at = Some(now + ASK_PAUSE);
            }
            None => {
                let RequestError { code, reason, .. } = error;
                let reason = format!("the relay refused the catalog: {code} {reason:?}");
                self.client.fail(reason);
            }
        }
    }

    /// A request for one of the tracks is over. If there was no answer, that is one.
    pub(super) fn on_held_closed(&mut self, now: Instant, endpoint: &mut Endpoint, id: RequestId) {
        let mut asked = self.discovery.asked.iter();
        if asked.any(|asked| asked.request == id && !asked.is_accepted) {
            let error = RequestError {
                code: RequestErrorCode::INTERNAL_ERROR,
                retry_after: None,
                reason: "it ended the request without an answer".to_owned(),
                redirect: None,
            };
            self.on_held_rejected(now, endpoint, id, &error);
        }
    }

    /// Asks for a track again whose end of the subscription before was overtaken; returns whether that may be.
    fn ask_once_more(&mut self, now: Instant, endpoint: &mut Endpoint, id: RequestId) -> bool {
        let mut asked = self.discovery.asked.iter_mut();
        let Some(asked) = asked.find(|asked| asked.request == id) else {
            return false;
        };
        if !asked.tries.take() {
            return false;
        }
        let (name, is_catalog) = (asked.name.clone(), asked.is_catalog);
        let left = self.waits_until.filter(|_| is_catalog);
        let left = left.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let request = self.ask_for(now, endpoint, &name, left);
        let mut asked = self.discovery.asked.iter_mut();
        let asked = asked.find(|asked| asked.request == id);
        asked.zip(request).is_some_and(|(asked, request)| {
            asked.request = request;
            true
        })
    }

    /// What one of the tracks holds is here.
    pub(super) fn on_held(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        id: RequestId,
        group: u64,
        payload: Bytes,
    ) {
        if self.discovery.is_catalog(id) {
            let found = Found {
                request: id,
                group,
                json: payload,
            };
            return self.on_catalog(now, endpoint, found);
        }
        if let Some(name) = self.discovery.answer(id)
            && !self.discovery.is_over
        {
            self.discovery.segments.insert(name, payload);
            self.plan_if_answered(now, endpoint);
        }
    }

    fn on_catalog(&mut self, now: Instant, endpoint: &mut Endpoint, found: Found) {
        if !self.discovery.is_news(&found) {
            return;
        }
        let names = match init_tracks(&found.json) {
            Ok(names) => names,
            Err(error) if self.discovery.catalog.is_some() => {
                return self.on_unknown(&error.to_string());
            }
            Err(error) => return self.on_useless(error.to_string()),
        };
        let over = self.discovery.begin(now, found);
        self.fetches
            .retain(|(_, of)| !over.iter().any(|id| *of == Of::Held(*id)));
        self.forget(now, endpoint, &over);
        for name in names {
            self.ask(now, endpoint, &name, Duration::ZERO, false);
        }
        self.plan_if_answered(now, endpoint);
    }

    /// An answer, or what was promised, did not come.
    pub(super) fn on_discovery_timeout(&mut self, now: Instant) {
        let is_due = |at: Instant| at <= now;
        if !self.discovery.poll_timeout().is_some_and(is_due) {
            return;
        }
        let unanswered = self.discovery.asked.iter().find(|asked| !asked.is_answered);
        let name = unanswered.map_or(CATALOG_TRACK, |asked| &*asked.name);
        let is_there = self.discovery.asked.iter().any(|asked| asked.is_accepted);
        let reason = if is_there {
            format!("the track {name:?} is there, but what it holds did not come")
        } else {
            unanswered_reason(name)
        };
        self.on_useless(reason);
        self.discovery.ask_at = self.waits_until.map(|_| now + ASK_PAUSE);
    }

    fn plan_if_answered(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if !self.discovery.is_answered() {
            return;
        }
        let Some(catalog) = &self.discovery.catalog else {
            return;
        };
        match Plan::read(&catalog.json, &self.discovery.segments) {
            Ok(plan) => {
                self.discovery.is_over = true;
                if !self.is_played(&plan) {
                    self.apply(now, endpoint, plan);
                }
            }
            Err(error) => self.on_useless(error.to_string()),
        }
    }

    /// A catalog is of no use: the first one ends the player, by later ones it does not go on.
    fn on_useless(&mut self, reason: String) {
        self.discovery.is_over = true;
        if self.plan.is_some() {
            self.on_unknown(&reason);
        } else {
            self.client.fail(reason);
        }
    }
}

/// How long what is there may take to come.
const HELD_TIME_MAX: Duration = Duration::from_secs(5);
/// After this time it is asked again for what nobody had, if it is waited for.
const ASK_PAUSE: Duration = Duration::from_millis(250);
