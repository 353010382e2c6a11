//! A turn: what one step of the relay may touch, whichever owner takes it.

use std::time::Instant;

use weir_moqt::{
    error::{RequestErrorCode, ResetCode},
    message::{PublishDone, RequestOk},
    session::RequestId,
    session::Session,
};
use weir_quic::{Connection, Endpoint, Handle};

use crate::{
    Authority, Config, Counters,
    effect::{Effect, Effects},
    ids::RequestKey,
    sessions::{
        Sessions,
        peer::{PeerKind, Purpose},
        refusal::refusal,
    },
    timers::Timers,
};

/// Time, endpoint and shared state, for the duration of one event or timer.
pub(crate) struct Turn<'a> {
    pub(crate) now: Instant,
    pub(crate) endpoint: &'a mut Endpoint,
    pub(crate) config: &'a Config,
    pub(crate) authority: &'a dyn Authority,
    pub(crate) counters: &'a mut Counters,
    pub(crate) timers: &'a mut Timers,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) effects: &'a mut Effects,
}

impl Turn<'_> {
    /// Pushes an effect for another owner, carried out after this step.
    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Returns whether a session is a link.
    pub(crate) fn is_link(&mut self, handle: Handle) -> bool {
        self.sessions.get(handle).is_some_and(|peer| peer.is_link())
    }

    /// Returns what a session is to this relay; a client if the session is gone.
    pub(crate) fn kind(&mut self, handle: Handle) -> PeerKind {
        let peer = self.sessions.get(handle);
        peer.map_or(PeerKind::Client, |peer| peer.kind())
    }

    /// Counts an object that came from a session, if that is a link to another machine.
    #[inline]
    pub(crate) fn note_object_over(&mut self, kind: PeerKind, handle: Handle) {
        if kind.is_remote_link()
            && let Some(peer) = self.sessions.get(handle)
        {
            peer.objects += 1;
        }
    }

    /// Returns the purpose of a request.
    pub(crate) fn purpose(&mut self, (handle, id): (Handle, RequestId)) -> Option<Purpose> {
        self.sessions.get(handle)?.purpose(id).cloned()
    }

    /// Calls a function with a session and its connection, if both exist. Events that it causes are handled later in the
    /// turn, whichever session the turn is about.
    pub(crate) fn with_session<T>(
        &mut self,
        handle: Handle,
        act: impl FnOnce(&mut Session, &mut Connection<'_>) -> T,
    ) -> Option<T> {
        let peer = self.sessions.get(handle)?;
        let mut connection = self.endpoint.connection(self.now, handle)?;
        let had_events = peer.session().has_events();
        let result = act(peer.session_mut(), &mut connection);
        let session = peer.session();
        if session.is_closed() || (session.has_events() && !had_events) {
            self.sessions.process_later(handle);
        }
        Some(result)
    }

    /// Adds a request to its session.
    pub(crate) fn insert_request(&mut self, (handle, id): RequestKey, purpose: Purpose) {
        if let Some(peer) = self.sessions.get(handle) {
            peer.insert(id, purpose);
        }
    }

    /// Removes a request from its session; returns its purpose.
    pub(crate) fn remove_request(&mut self, (handle, id): RequestKey) -> Option<Purpose> {
        self.sessions.get(handle)?.remove(id)
    }

    /// Answers a request with REQUEST_OK.
    pub(crate) fn accept(&mut self, (handle, id): RequestKey, ok: RequestOk) {
        self.with_session(handle, |session, connection| {
            session.request_ok(connection, id, ok);
        });
    }

    /// Ends a request of either side at once.
    pub(crate) fn cancel(&mut self, (handle, id): RequestKey, code: ResetCode) {
        self.with_session(handle, |session, connection| {
            session.cancel(connection, id, code);
        });
    }

    /// Sends PUBLISH_DONE for a subscription of a session.
    pub(crate) fn publish_done(&mut self, (handle, id): RequestKey, done: PublishDone) {
        self.with_session(handle, |session, connection| {
            session.publish_done(connection, id, done);
        });
    }

    /// Answers a request with REQUEST_ERROR.
    pub(crate) fn refuse(&mut self, handle: Handle, id: RequestId, code: RequestErrorCode) {
        self.log_refusal((handle, id), code, None);
        self.refuse_quietly((handle, id), code);
    }

    /// Answers a request with REQUEST_ERROR, without a log line.
    pub(crate) fn refuse_quietly(&mut self, (handle, id): RequestKey, code: RequestErrorCode) {
        self.with_session(handle, |session, connection| {
            session.request_error(connection, id, refusal(code));
        });
    }

    /// Answers the oldest unanswered update of a request.
    pub(crate) fn grant_update(&mut self, handle: Handle, id: RequestId, ok: RequestOk) {
        self.with_session(handle, |session, connection| {
            session.update_ok(connection, id, ok);
        });
    }
}
