//! Links with new credentials: when the credentials of this relay change, each link is replaced by a new one. The old one is
//! closed once the new one has taken over, so that nothing is lost.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode, SessionError},
    message::{PublishDone, RequestError},
};
use weir_quic::Handle;

use super::{
    Linking, Links,
    upstreams::{LinkCredentials, Member, State, Upstreams},
};
use crate::{catalogue::walks::Walk, effect::Effect, ids::TrackId, timers::Timer, turn::Turn};

/// The connections of a link beside the present one.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    /// The revision of the credentials that the newest attempt presents.
    attempted: u64,
    /// The revision of the credentials that the present link has presented.
    presented: u64,
    /// The connection that replaces the present link as soon as it is established.
    pub(super) successor: Option<Handle>,
    former: Option<Former>,
    /// Why the present link could not be replaced.
    pub(super) problem: Option<String>,
}

/// A link that was replaced.
#[derive(Clone, Copy, Debug)]
struct Former {
    handle: Handle,
    /// The present link.
    successor: Handle,
    since: Instant,
    /// Its objects that the link has counted.
    objects: u64,
}

impl Renewal {
    /// Returns whether the present link has old credentials, and no attempt to replace it is in progress.
    pub(super) fn is_due(&self, revision: u64) -> bool {
        self.presented != revision && self.successor.is_none()
    }

    /// Notes an attempt with credentials of a revision.
    pub(super) fn begin(&mut self, revision: u64) {
        self.attempted = revision;
    }

    /// Forgets the link that was replaced, if it is this one, and adds the objects that came since to `sum`.
    pub(super) fn forget_former(&mut self, handle: Handle, objects: u64, sum: &mut u64) -> bool {
        let former = self.former.take_if(|former| former.handle == handle);
        *sum += former.map_or(0, |former| objects.saturating_sub(former.objects));
        former.is_some()
    }
}

impl Member {
    /// Returns all connections.
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        let former = self.renewal.former.map(|former| former.handle);
        [self.state.handle(), self.renewal.successor, former]
            .into_iter()
            .flatten()
    }

    /// Returns whether a connection is one of this link.
    pub(super) fn has(&self, handle: Handle) -> bool {
        self.handles().any(|own| own == handle)
    }

    /// Returns whether a connection is one of this link, and is being established.
    pub(super) fn is_connecting(&self, handle: Handle) -> bool {
        self.state == State::Connecting(handle) || self.renewal.successor == Some(handle)
    }

    /// Handles a connection that was established. Returns the link that it replaces, if it does. `revision` is that of the
    /// present credentials.
    pub(super) fn replace(
        &mut self,
        turn: &mut Turn<'_>,
        number: usize,
        revision: u64,
    ) -> Option<Handle> {
        self.renewal.presented = self.renewal.attempted;
        self.renewal.problem = None;
        if self.renewal.presented != revision {
            turn.timers.set(turn.now, Timer::Upstream(number));
        }
        let successor = self.renewal.successor.take()?;
        let handle = self.state.handle()?;
        let objects = turn.sessions.get(handle).map_or(0, |peer| peer.objects);
        self.objects += objects;
        turn.counters.links_renewed += 1;
        let former = Former {
            handle,
            successor,
            since: turn.now,
            objects,
        };
        if let Some(earlier) = self.renewal.former.replace(former) {
            close(turn, earlier.handle);
        }
        let at = turn.now + OVERLAP;
        turn.timers.set(at, Timer::LinkReplaced(number));
        Some(handle)
    }
}

impl Upstreams {
    /// Begins to replace the established links and to connect to the others, if the credentials have changed.
    pub(super) fn note_credentials(&mut self, turn: &mut Turn<'_>) {
        let Some(credentials) = &self.credentials else {
            return;
        };
        let revision = credentials.revision();
        if std::mem::replace(&mut self.revision, revision) == revision {
            return;
        }
        for (&number, member) in &self.members {
            // Those that wait for the next attempt need not wait either.
            if !matches!(member.state, State::Connecting(_)) {
                turn.timers.set(turn.now, Timer::Upstream(number));
            }
        }
    }

    /// Notes that the relay behind a link refused a request for lack of rights. `what` is the request. What a replaced link
    /// loses when its credentials expire does not count.
    pub(super) fn note_refusal(&mut self, turn: &mut Turn<'_>, handle: Handle, what: &str) {
        let mut members = self.members.values_mut();
        let Some(member) = members.find(|member| member.state.handle() == Some(handle)) else {
            return;
        };
        turn.counters.link_requests_refused += 1;
        let now = turn.now;
        let is_new = |at: &Instant| now.saturating_duration_since(*at) >= REFUSALS_LOGGED_EVERY;
        if member.refusal_logged.as_ref().is_none_or(is_new) {
            member.refusal_logged = Some(now);
            let upstream = &member.upstream.name;
            tracing::warn!(
                upstream,
                "the upstream relay refuses requests for lack of rights: {what}"
            );
        }
        member.refusal = Some(what.to_owned());
    }

    /// Notes that the relay behind a link accepted a request.
    pub(super) fn note_accepted(&mut self, handle: Handle) {
        let mut members = self.members.values_mut();
        if let Some(member) = members.find(|member| member.refusal.is_some() && member.has(handle))
        {
            member.refusal = None;
        }
    }
}

impl Links {
    /// Sets the credentials for other relays.
    pub(crate) fn set_credentials(&mut self, credentials: Arc<dyn LinkCredentials>) {
        self.upstreams.revision = credentials.revision();
        self.upstreams.credentials = Some(credentials);
    }

    /// Begins to replace the links, if the credentials for other relays have changed.
    pub(crate) fn note_credentials(&mut self, turn: &mut Turn<'_>) {
        self.upstreams.note_credentials(turn);
    }

    /// Notes the refusal of a request over a link, if rights are missing. Returns whether they are.
    pub(crate) fn note_refusal(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        what: &str,
        error: &RequestError,
    ) -> bool {
        let is_missing = turn.kind(handle).is_remote_link() && is_about_rights(error.code);
        if is_missing {
            let (code, reason) = (error.code, error.reason.escape_debug());
            let what = format!("{what} refused: {code}: {reason}");
            self.upstreams.note_refusal(turn, handle, &what);
        }
        is_missing
    }

    /// Notes that the relay behind a link ended a subscription, if this relay has lost its rights.
    pub(crate) fn note_done(&mut self, turn: &mut Turn<'_>, handle: Handle, done: &PublishDone) {
        if turn.kind(handle).is_remote_link() && is_loss_of_rights(done.code) {
            let (code, reason) = (done.code, done.reason.escape_debug());
            let what = format!("a subscription ended: {code}: {reason}");
            self.upstreams.note_refusal(turn, handle, &what);
        }
    }

    /// Notes that the relay behind a link accepted a request.
    pub(crate) fn note_answer(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        if turn.kind(handle).is_remote_link() {
            self.upstreams.note_accepted(handle);
        }
    }
}

impl Linking<'_> {
    /// Closes a link that was replaced, unless its successor has not taken over all requests.
    pub(crate) fn on_overlap_over(&mut self, turn: &mut Turn<'_>, number: usize) {
        let member = self.links.upstreams.members.get(&number);
        let Some(former) = member.and_then(|member| member.renewal.former) else {
            return;
        };
        let is_over = turn.now.saturating_duration_since(former.since) >= OVERLAP_MAX;
        if is_over || !self.is_needed(turn, former) {
            return close(turn, former.handle);
        }
        let at = turn.now + OVERLAP;
        turn.timers.set(at, Timer::LinkReplaced(number));
    }

    fn is_needed(&mut self, turn: &mut Turn<'_>, former: Former) -> bool {
        let peer = turn.sessions.get(former.handle);
        if peer.is_some_and(|peer| peer.counts().upstream_fetches > 0) {
            return true;
        }
        let mut sources = turn.sources_of(former.successor).into_iter();
        sources.any(|track| {
            let publishers = self.tracks.get(track).map(|track| track.publishers());
            let mut publishers = publishers.into_iter().flatten();
            publishers.any(|it| it.session() == former.successor && it.is_asked())
        })
    }

    /// Has a new link take over from the one that it replaces: asks it for what comes over the old one.
    pub(crate) fn on_link_replaced(&mut self, turn: &mut Turn<'_>, old: Handle, new: Handle) {
        self.replace_watched_link(turn, old, new);
        self.walk(turn, Walk::Moving { from: old, to: new });
    }
}

impl Turn<'_> {
    /// Returns the tracks that a session was asked for or offers.
    fn sources_of(&mut self, handle: Handle) -> Vec<TrackId> {
        let peer = self.sessions.get(handle);
        peer.map_or_else(Vec::new, |peer| peer.published().collect())
    }
}

fn close(turn: &mut Turn<'_>, handle: Handle) {
    let (code, reason) = (
        SessionError::NO_ERROR,
        "a link with new credentials replaces this one",
    );
    turn.push(Effect::CloseSession(handle, code, reason.to_owned()));
}

/// Returns whether a subscription ended because the subscriber has lost its rights.
pub(super) fn is_loss_of_rights(code: PublishDoneCode) -> bool {
    code == PublishDoneCode::UNAUTHORIZED || code == PublishDoneCode::EXPIRED
}

/// Returns whether a request was refused because the requester has too few rights.
fn is_about_rights(code: RequestErrorCode) -> bool {
    matches!(
        code,
        RequestErrorCode::UNAUTHORIZED
            | RequestErrorCode::MALFORMED_AUTH_TOKEN
            | RequestErrorCode::EXPIRED_AUTH_TOKEN
    )
}

/// How long a link and its successor carry the same tracks at least.
const OVERLAP: Duration = Duration::from_secs(1);
/// How long they do at most, if requests are not answered or responses not complete.
const OVERLAP_MAX: Duration = Duration::from_secs(30);
/// The shortest time between two lines of the log about refusals over a link.
const REFUSALS_LOGGED_EVERY: Duration = Duration::from_secs(10);
