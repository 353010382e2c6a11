//! Signatures of tokens: how many are verified for one session at once, since each costs a tenth of a millisecond or more.
//!
//! A session beyond that pauses: its further requests and updates wait, unread if they have not been read yet.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use weir_moqt::session;
use weir_quic::Handle;
use weir_transport::{StreamId, Transport as _};

use crate::{timers::Timer, turn::Turn};

/// The tokens that were verified for a session.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    /// Verified without a pause between them.
    count: usize,
    /// When the last one was verified.
    last: Option<Instant>,
    /// Whether the session pauses.
    pauses: bool,
    /// Streams with data that came in the pause.
    unread: BTreeSet<StreamId>,
}

impl Turn<'_> {
    /// Returns the next event of a session, unless it pauses.
    pub(crate) fn poll_event(&mut self, handle: Handle) -> Option<session::Event> {
        let peer = self.sessions.get(handle)?;
        if peer.verified.pauses {
            return None;
        }
        peer.session_mut().poll_event()
    }

    /// Leaves the data of a stream for later if its session pauses. Returns whether it does.
    pub(crate) fn leaves_unread(&mut self, handle: Handle, stream: StreamId) -> bool {
        let peer = self
            .sessions
            .get(handle)
            .filter(|peer| peer.verified.pauses);
        let Some(peer) = peer else {
            return false;
        };
        peer.verified.unread.insert(stream);
        true
    }

    /// Ends the pause of a session, and has what came meanwhile read, each stream in a turn of its own.
    pub(crate) fn end_pause(&mut self, handle: Handle) {
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        let verified = std::mem::take(&mut peer.verified);
        self.with_session(handle, |_, connection| {
            for stream in verified.unread {
                connection.read_later(stream);
            }
        });
    }

    /// Counts tokens that were verified for a session. With too many, the session pauses.
    pub(super) fn note_verified(&mut self, handle: Handle, count: usize) {
        let Some(peer) = self.sessions.get(handle).filter(|_| count > 0) else {
            return;
        };
        let verified = &mut peer.verified;
        if verified.last.is_none_or(|last| last + PAUSE <= self.now) {
            verified.count = 0;
        }
        verified.last = Some(self.now);
        verified.count += count;
        if verified.count >= AT_ONCE && !verified.pauses {
            verified.pauses = true;
            self.timers.set(self.now + PAUSE, Timer::Verifying(handle));
        }
    }
}

/// Tokens that are verified for a session before it pauses.
const AT_ONCE: usize = 4;
/// A session can have two hundred verified in a second.
const PAUSE: Duration = Duration::from_millis(20);
