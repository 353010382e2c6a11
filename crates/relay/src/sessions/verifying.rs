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

/// The tokens that were verified for all sessions.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// When those so far would have been verified if each took [`SHARE`].
    until: Option<Instant>,
}

impl Checks {
    /// Counts tokens that were verified. Returns how far those so far are ahead of their share of the time, up to a limit.
    fn add(&mut self, now: Instant, count: usize) -> Duration {
        let begin = self.until.map_or(now, |until| until.max(now));
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let until = begin + SHARE.saturating_mul(count);
        let until = until.min(now + PAUSE_MAX);
        self.until = Some(until);
        until - now
    }
}

/// The tokens that were verified for a session.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    /// Verified without a pause between them.
    count: usize,
    /// When the last one was verified.
    last: Option<Instant>,
    /// Verified in a minute, and when that began.
    lately: usize,
    minute: Option<Instant>,
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
        peer.verified.count = 0;
        peer.verified.pauses = false;
        let unread = std::mem::take(&mut peer.verified.unread);
        self.with_session(handle, |_, connection| {
            for stream in unread {
                connection.read_later(stream);
            }
        });
    }

    /// Returns how often a token was verified for a session.
    pub(crate) fn tokens_verified(&mut self, handle: Handle) -> usize {
        let peer = self.sessions.get(handle);
        peer.map_or(0, |peer| peer.memo.verified())
    }

    /// Counts tokens that were verified for a session. With too many, the session pauses; for longer, if those of all sessions
    /// take too much time, and it has had many verified.
    pub(super) fn note_verified(&mut self, handle: Handle, count: usize) {
        if count == 0 {
            return;
        }
        // A host looks at the clock after each request that costs a signature check.
        self.endpoint.note_enough();
        let ahead = self.sessions.checks.add(self.now, count);
        let Some(peer) = self.sessions.get(handle) else {
            return;
        };
        let verified = &mut peer.verified;
        if verified
            .minute
            .is_none_or(|begun| begun + MINUTE <= self.now)
        {
            verified.minute = Some(self.now);
            verified.lately = 0;
        }
        verified.lately += count;
        let has_many = verified.lately > UNDISTURBED;
        let pause = if has_many { PAUSE.max(ahead) } else { PAUSE };
        if verified.last.is_none_or(|last| last + PAUSE <= self.now) {
            verified.count = 0;
        }
        verified.last = Some(self.now);
        verified.count += count;
        let is_enough = verified.count >= AT_ONCE || pause > AHEAD_MAX;
        if is_enough && !verified.pauses {
            verified.pauses = true;
            self.timers.set(self.now + pause, Timer::Verifying(handle));
        }
    }
}

/// Tokens that are verified for a session before it pauses.
const AT_ONCE: usize = 4;
/// A session can have two hundred verified in a second.
const PAUSE: Duration = Duration::from_millis(20);
/// The time in which one token is to be verified, for all sessions of a thread together: a thousand in a second.
const SHARE: Duration = Duration::from_millis(1);
/// How far all sessions may be ahead of that before those pause that have had many verified.
const AHEAD_MAX: Duration = Duration::from_millis(100);
/// Tokens of a session that are verified in a minute whatever the others have verified.
const UNDISTURBED: usize = 16;
const MINUTE: Duration = Duration::from_mins(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);
