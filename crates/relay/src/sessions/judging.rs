//! Judging sessions again after the rules have changed: a key or token was revoked, or a namespace was reserved.

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use weir_moqt::{name::Namespace, session::RequestId};
use weir_quic::Handle;

use crate::{
    Denial,
    authority::{AccessToken, Action, Subject},
    timers::Timer,
    turn::Turn,
};

/// The rules by which all sessions were judged: revisions of the authority and of reserved namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rules {
    authority: u64,
    ownership: u64,
}

/// What is left to judge. It goes in rounds, each of all sessions and then their requests.
#[derive(Debug, Default)]
pub(crate) struct Judging {
    /// The newest rules; `None` before the first look.
    rules: Option<Rules>,
    /// Whether they have changed since the last round began.
    is_outdated: bool,
    /// When the last round began.
    begun: Option<Instant>,
    /// Sessions that are left in this round.
    sessions: VecDeque<Handle>,
    /// Requests that are left of the session before them.
    requests: VecDeque<(Handle, RequestId)>,
    /// Namespaces that this session has lost.
    lost: BTreeSet<Namespace>,
}

impl Judging {
    /// Returns whether a round is under way.
    fn is_on(&self) -> bool {
        !self.sessions.is_empty() || !self.requests.is_empty()
    }

    fn may_begin(&self, now: Instant) -> bool {
        self.begun.is_none_or(|begun| begun + ROUND <= now)
    }

    /// Notes that the session whose requests are judged has lost a namespace.
    pub(crate) fn note_lost(&mut self, namespace: Namespace) {
        self.lost.insert(namespace);
    }

    /// Returns whether that session has lost a namespace or a prefix of it.
    pub(crate) fn is_lost(&self, namespace: &Namespace) -> bool {
        let mut prefixes = namespace.prefixes();
        !self.lost.is_empty() && prefixes.any(|prefix| self.lost.contains(&prefix))
    }
}

impl Turn<'_> {
    /// Begins to judge all sessions again if the rules have changed.
    pub(crate) fn note_rules(&mut self) {
        let rules = Rules {
            authority: self.authority.revision(),
            ownership: self.sessions.ownership.revision(),
        };
        let judging = &mut self.sessions.judging;
        if judging.rules == Some(rules) {
            return;
        }
        if judging.rules.replace(rules).is_some() && !judging.is_outdated {
            judging.is_outdated = true;
            if !judging.is_on() {
                self.judge_later();
            }
        }
    }

    /// Returns the next session to judge, or the next request of the one before.
    pub(crate) fn next_to_judge(&mut self) -> Option<(Handle, Option<RequestId>)> {
        let judging = &mut self.sessions.judging;
        if let Some((handle, id)) = judging.requests.pop_front() {
            return Some((handle, Some(id)));
        }
        if judging.sessions.is_empty() && judging.is_outdated && judging.may_begin(self.now) {
            judging.is_outdated = false;
            judging.begun = Some(self.now);
            let all = self.sessions.handles();
            self.sessions.judging.sessions = all.into();
        }
        let handle = self.sessions.judging.sessions.pop_front()?;
        Some((handle, None))
    }

    /// Sets the wake-up for what is left to judge.
    pub(crate) fn judge_later(&mut self) {
        let judging = &self.sessions.judging;
        if judging.is_on() {
            self.timers.set(self.now + PAUSE, Timer::Judge);
        } else if judging.is_outdated {
            let at = judging.begun.map_or(self.now, |begun| begun + ROUND);
            self.timers.set(at.max(self.now), Timer::Judge);
        }
    }

    /// Judges the credentials of a session again. Returns the denial of one that had rights and has lost them.
    pub(crate) fn judge_session(&mut self, handle: Handle) -> Result<(), Denial> {
        let Some(peer) = self.sessions.get(handle) else {
            return Ok(());
        };
        let credentials = peer.access.credentials();
        let judged = self.authority.grant(self.now, &credentials, &mut peer.memo);
        peer.access.judge_again(judged)
    }

    /// Has the requests of a session judged next. Those of the relay have no tokens. Offers have those of the request that
    /// asked for offers; tracks that the relay asked for end with the announcement of their namespace.
    pub(crate) fn judge_requests_of(&mut self, handle: Handle) {
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        let is_of_peer = |id: &RequestId| peer.session().is_of_peer(*id);
        let (theirs, ours): (Vec<_>, Vec<_>) = peer.requests().partition(is_of_peer);
        let judging = &mut self.sessions.judging;
        judging.lost.clear();
        judging.requests = theirs
            .into_iter()
            .chain(ours)
            .map(|id| (handle, id))
            .collect();
    }

    /// Returns whether a request of a session is still permitted.
    pub(crate) fn is_still_permitted(
        &mut self,
        (handle, id): (Handle, RequestId),
        subject: &Subject,
    ) -> bool {
        let peer = self.sessions.get(handle);
        let tokens: Vec<AccessToken> = peer.map(|peer| peer.own_tokens(id)).unwrap_or_default();
        let Ok(permission) = self.permit_with(handle, tokens, subject) else {
            return false;
        };
        let owner = permission.owner.as_deref();
        subject.action != Action::Publish
            || self.sessions.ownership.admits(&subject.namespace, owner)
    }
}

/// The time between two turns that judge.
const PAUSE: Duration = Duration::from_millis(1);
/// The least time from the beginning of a round to that of the next: publishers may reserve namespaces one after the other.
const ROUND: Duration = Duration::from_millis(250);
