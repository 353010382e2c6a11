//! How a player finds out what there is: it asks for the catalog under both of its names at once, then for what that names.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_moqt::location::Location;
use weir_moqt::message::{FetchKind, RequestError};
use weir_moqt::parameter::{Filter, Parameters};
use weir_moqt::session::RequestId;
use weir_quic::Endpoint;

use super::{Of, Viewer};
use crate::catalog::CATALOG_TRACK;
use crate::origin::track;
use crate::plan::{EARLIER_CATALOG_TRACK, Plan, PlanError, init_tracks};

/// What was asked for and has come so far.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    asked: Vec<Asked>,
    catalog: Option<Bytes>,
    segments: BTreeMap<String, Bytes>,
    /// When what was promised should have come.
    give_up_at: Option<Instant>,
    is_over: bool,
}

/// A track with one object, for those who come late.
#[derive(Debug)]
struct Asked {
    name: String,
    request: RequestId,
    is_answered: bool,
}

impl Discovery {
    /// When it is looked whether to wait any longer.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.give_up_at.filter(|_| !self.is_over)
    }

    /// Whether a request is one of these.
    pub(super) fn has(&self, request: RequestId) -> bool {
        self.asked.iter().any(|asked| asked.request == request)
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
    pub(super) fn discover(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let patience = self.config.patience;
        for name in [CATALOG_TRACK, EARLIER_CATALOG_TRACK] {
            self.ask(now, endpoint, name, patience);
        }
    }

    fn ask(&mut self, now: Instant, endpoint: &mut Endpoint, name: &str, patience: Duration) {
        let Some((session, mut connection)) = self.client.open(now, endpoint) else {
            return;
        };
        let full_name = match track(&self.config.namespace, name) {
            Ok(full_name) => full_name,
            Err(error) => {
                let reason = format!("the track {name:?} has no name: {error}");
                return self.client.fail(reason);
            }
        };
        let parameters = Parameters {
            filter: Some(Filter::LargestObject),
            rendezvous_timeout: Some(patience).filter(|time| !time.is_zero()),
            ..Parameters::default()
        };
        match session.subscribe(&mut connection, full_name, parameters) {
            Ok(request) => self.discovery.asked.push(Asked {
                name: name.to_owned(),
                request,
                is_answered: false,
            }),
            Err(refused) => {
                let reason = format!("the track {name:?} cannot be asked for: {refused}");
                self.client.fail(reason);
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
        if self.discovery.answer(id).is_none() || self.discovery.is_over {
            return;
        }
        match self.discovery.catalog {
            Some(_) => self.plan_if_answered(now, endpoint),
            None if self.discovery.is_answered() => {
                let RequestError { code, reason, .. } = error;
                let reason = format!("the relay refused the catalog: {code} {reason:?}");
                self.client.fail(reason);
            }
            None => {}
        }
    }

    /// What one of the tracks holds is here.
    pub(super) fn on_held(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        id: RequestId,
        payload: Bytes,
    ) {
        let Some(name) = self
            .discovery
            .answer(id)
            .filter(|_| !self.discovery.is_over)
        else {
            // Publishers say it again and again, for those who come late.
            return;
        };
        if self.discovery.catalog.is_some() {
            self.discovery.segments.insert(name, payload);
            return self.plan_if_answered(now, endpoint);
        }
        // Who has a catalog under the one name has none under the other.
        for asked in &mut self.discovery.asked {
            asked.is_answered = true;
        }
        let names = match init_tracks(&payload) {
            Ok(names) => names,
            Err(error) => return self.on_no_plan(&error),
        };
        self.discovery.catalog = Some(payload);
        self.discovery.give_up_at = Some(now + HELD_TIME_MAX);
        for name in names {
            self.ask(now, endpoint, &name, Duration::ZERO);
        }
        self.plan_if_answered(now, endpoint);
    }

    /// What was promised did not come.
    pub(super) fn on_discovery_timeout(&mut self, now: Instant) {
        let is_due = |at: Instant| at <= now;
        if !self.discovery.poll_timeout().is_some_and(is_due) {
            return;
        }
        self.discovery.is_over = true;
        let unanswered = self.discovery.asked.iter().find(|asked| !asked.is_answered);
        let name = unanswered.map_or(CATALOG_TRACK, |asked| &*asked.name);
        let reason = format!("the track {name:?} is there, but what it holds did not come");
        self.client.fail(reason);
    }

    fn plan_if_answered(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if !self.discovery.is_answered() {
            return;
        }
        let Some(catalog) = &self.discovery.catalog else {
            return;
        };
        match Plan::read(catalog, &self.discovery.segments) {
            Ok(plan) => {
                self.discovery.is_over = true;
                self.apply(now, endpoint, plan);
            }
            Err(error) => self.on_no_plan(&error),
        }
    }

    fn on_no_plan(&mut self, error: &PlanError) {
        self.discovery.is_over = true;
        self.client.fail(error.to_string());
    }
}

/// How long what is there may take to come.
const HELD_TIME_MAX: Duration = Duration::from_secs(5);
