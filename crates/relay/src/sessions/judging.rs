//! Judging sessions again after the rules have changed: a key or token was revoked, or a namespace was reserved.

use std::time::Duration;

use weir_moqt::session::RequestId;
use weir_quic::Handle;

use crate::{
    Denial,
    authority::{AccessToken, Action, Subject},
    timers::Timer,
    turn::Turn,
};

/// The rules by which all sessions were judged: revisions of the authority and of reserved namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    authority: u64,
    ownership: u64,
}

impl Turn<'_> {
    /// Begins to judge all sessions again if the rules have changed.
    pub(crate) fn note_rules(&mut self) {
        let rules = Rules {
            authority: self.authority.revision(),
            ownership: self.sessions.ownership.revision(),
        };
        if self.sessions.rules == Some(rules) {
            return;
        }
        if self.sessions.rules.replace(rules).is_some() {
            if self.sessions.unjudged.is_empty() {
                self.timers.set(self.now, Timer::Judge);
            }
            self.sessions.unjudged = self.sessions.handles().into();
        }
    }

    /// Takes the sessions to judge in this turn.
    pub(crate) fn take_unjudged(&mut self) -> Vec<Handle> {
        let unjudged = &mut self.sessions.unjudged;
        let count = unjudged.len().min(JUDGED_MAX);
        let taken = unjudged.drain(..count).collect();
        if !unjudged.is_empty() {
            self.timers.set(self.now + PAUSE, Timer::Judge);
        }
        taken
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

/// Sessions that are judged in one turn: each may cost signature checks.
const JUDGED_MAX: usize = 8;
/// The time between two such turns.
const PAUSE: Duration = Duration::from_millis(1);
