//! Bytes of objects that have arrived in part: in total, and per session.

use std::collections::BTreeMap;

use weir_quic::Handle;

/// Bytes of objects that have arrived in part, and may never arrive in full.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    bytes: u64,
    /// Bytes per session that has any.
    of_sessions: BTreeMap<Handle, u64>,
}

impl Parts {
    /// Changes the number of bytes held of an object from `before` to `after`. `session` is `None` for a link, which
    /// stands for many sessions.
    #[inline]
    pub(crate) fn hold(&mut self, session: Option<Handle>, before: u64, after: u64) {
        if before == after {
            return;
        }
        self.bytes = self.bytes + after - before;
        let Some(session) = session else { return };
        let of_session = self.of_sessions.entry(session).or_default();
        *of_session = *of_session + after - before;
        if *of_session == 0 {
            self.of_sessions.remove(&session);
        }
    }

    /// Returns the bytes of the objects of a session.
    pub(crate) fn of(&self, session: Handle) -> u64 {
        self.of_sessions.get(&session).copied().unwrap_or_default()
    }

    /// Returns how many bytes may be held of an object of which `held` bytes are held already. All objects share `max`,
    /// and the objects of one session half of it: a session that never completes its objects leaves room for others.
    pub(crate) fn room(&self, session: Option<Handle>, held: u64, max: u64) -> u64 {
        let of_all = max.saturating_sub(self.bytes.saturating_sub(held));
        let Some(session) = session else {
            return of_all;
        };
        of_all.min((max / 2).saturating_sub(self.of(session).saturating_sub(held)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::handles;

    #[test]
    fn one_session_may_take_half_of_the_room() {
        let [one, other, third] = handles::<3>().map(Some);
        let mut parts = Parts::default();
        parts.hold(one, 0, 40);
        assert_eq!(parts.room(one, 40, 100), 50, "of the same object");
        assert_eq!(parts.room(one, 0, 100), 10, "of another one");
        parts.hold(one, 40, 50);
        assert_eq!(parts.room(one, 0, 100), 0, "at the limit");
        assert_eq!(parts.room(other, 0, 100), 50);
        parts.hold(other, 0, 50);
        assert_eq!(parts.room(third, 0, 100), 0, "there is none in all");
        assert_eq!(parts.room(None, 0, 100), 0);
        parts.hold(one, 50, 0);
        assert_eq!(parts.room(third, 0, 100), 50);
        assert_eq!(parts.room(None, 0, 100), 50, "of many sessions");
        parts.hold(other, 50, 0);
        assert!(parts.of_sessions.is_empty());
    }
}
