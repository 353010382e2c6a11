//! Judging again by rules that have changed: sessions without rights are closed, requests that are not permitted any longer
//! end.

use weir_quic::Handle;

use super::Owners;
use crate::{ids::RequestKey, sessions::peer::Purpose, turn::Turn};

impl Owners {
    /// Judges some sessions and requests by rules that have changed.
    pub(super) fn on_judge(&mut self, turn: &mut Turn<'_>) {
        let mut left = WORK_PER_TURN;
        while left > 0
            && let Some((handle, request)) = turn.next_to_judge()
        {
            let before = turn.tokens_verified(handle);
            let work = if let Some(id) = request {
                self.judge_request(turn, (handle, id))
            } else {
                self.judge_session(turn, handle)
            };
            let tokens = turn.tokens_verified(handle).saturating_sub(before);
            left = left.saturating_sub(work + tokens * WORK_FOR_TOKEN);
            self.carry_effects(turn);
        }
        turn.judge_later();
    }

    fn judge_session(&mut self, turn: &mut Turn<'_>, handle: Handle) -> usize {
        if let Err(denial) = turn.judge_session(handle) {
            turn.counters.sessions_revoked += 1;
            let (code, reason) = (denial.session_error(), denial.to_string());
            turn.log_ended_session(handle, code, &reason);
            self.close_session(turn, handle, code, &reason);
            WORK_PER_TURN
        } else {
            turn.judge_requests_of(handle);
            WORK_FOR_SESSION
        }
    }

    /// Judges a request, and ends it if it is not permitted any longer. Returns how much work that was.
    fn judge_request(&mut self, turn: &mut Turn<'_>, (handle, id): RequestKey) -> usize {
        let Some(subject) = self.subject(turn, (handle, id)) else {
            return 1;
        };
        let is_asked = turn.sessions.get(handle).is_some_and(|peer| {
            let is_source = matches!(peer.purpose(id), Some(Purpose::Source(_)));
            is_source && !peer.session().is_of_peer(id)
        });
        let is_over = if is_asked {
            turn.sessions.judging.is_lost(&subject.namespace)
        } else {
            !turn.is_still_permitted((handle, id), &subject)
        };
        let purpose = turn.purpose((handle, id)).filter(|_| is_over);
        let Some(purpose) = purpose else {
            return 1;
        };
        let work = self.work_to_end((handle, id), &purpose);
        if let Purpose::Namespace(namespace) = purpose {
            turn.sessions.judging.note_lost(namespace);
        }
        turn.counters.requests_revoked += 1;
        self.revoke(turn, (handle, id));
        work
    }
}

/// Requests that are judged in one turn.
const WORK_PER_TURN: usize = 256;
/// Requests that a session counts as, of which the requests are listed.
const WORK_FOR_SESSION: usize = 32;
/// Requests that the verification of a token counts as.
const WORK_FOR_TOKEN: usize = 32;
