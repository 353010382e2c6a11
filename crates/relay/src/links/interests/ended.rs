//! The relay's own subscriptions to prefixes that have ended, until others can have found their namespaces again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use weir_moqt::{name::Namespace, session::RequestId};
use weir_quic::Handle;

use crate::ids::RequestKey;

/// Subscriptions that have ended and found namespaces.
#[derive(Debug, Default)]
pub(super) struct Ended {
    kept: BTreeMap<RequestKey, Kept>,
    /// The same by their prefixes.
    prefixes: BTreeSet<(Handle, Namespace, RequestId)>,
}

/// Until when the namespaces of a subscription are kept.
#[derive(Debug)]
struct Kept {
    prefix: Namespace,
    since: Instant,
    until: Instant,
}

impl Kept {
    /// Keeps them longer. However often other subscriptions are sent, that has an end: those who watch a namespace have to
    /// learn that it is gone.
    fn keep(&mut self, until: Instant, max: Duration) {
        self.until = self.until.max(until.min(self.since + max));
    }
}

impl Ended {
    /// Adds a subscription that has ended now. What it found is kept for `time`, and longer if it is to be.
    pub(super) fn insert(
        &mut self,
        (link, request): RequestKey,
        prefix: Namespace,
        now: Instant,
        time: Duration,
    ) {
        self.prefixes.insert((link, prefix.clone(), request));
        let kept = self.kept.entry((link, request)).or_insert(Kept {
            prefix,
            since: now,
            until: now,
        });
        kept.keep(now + time, KEPT_MAX);
    }

    pub(super) fn remove(&mut self, key: RequestKey) {
        if let Some(kept) = self.kept.remove(&key) {
            self.prefixes.remove(&(key.0, kept.prefix, key.1));
        }
    }

    pub(super) fn contains(&self, key: RequestKey) -> bool {
        self.kept.contains_key(&key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Keeps what was found under a prefix, or under a shorter one, until another time. Returns how many subscriptions that
    /// concerns.
    pub(super) fn keep_overlapping(
        &mut self,
        link: Handle,
        prefix: &Namespace,
        until: Instant,
    ) -> usize {
        let from = (link, Namespace::EMPTY, RequestId(0));
        let first = self.prefixes.range(from..).next();
        if first.is_none_or(|(other, ..)| *other != link) {
            return 0;
        }
        let mut looked_at = 0;
        for fields in 0..=prefix.fields_len() {
            let Ok(of) = Namespace::new(prefix.fields().take(fields)) else {
                continue;
            };
            let is_longer_too = fields == prefix.fields_len();
            let from = (link, of.clone(), RequestId(0));
            for (other, ended, request) in self.prefixes.range(from..) {
                let is_meant = *ended == of || is_longer_too && ended.starts_with(&of);
                if *other != link || !is_meant {
                    break;
                }
                looked_at += 1;
                if let Some(kept) = self.kept.get_mut(&(link, *request)) {
                    kept.keep(until, KEPT_MAX);
                }
            }
        }
        looked_at
    }

    /// Keeps everything until another time, because others are still to be sent.
    pub(super) fn keep_all(&mut self, until: Instant) {
        let all = self.kept.values_mut();
        all.for_each(|kept| kept.keep(until, KEPT_CHANGING_MAX));
    }

    /// Removes those whose namespaces are no longer kept.
    pub(super) fn expire(&mut self, now: Instant) {
        self.kept.retain(|key, kept| {
            let is_kept = kept.until > now;
            if !is_kept {
                let place = (key.0, kept.prefix.clone(), key.1);
                self.prefixes.remove(&place);
            }
            is_kept
        });
    }

    /// Removes those over a link.
    pub(super) fn forget_link(&mut self, link: Handle) {
        self.kept.retain(|(other, _), _| *other != link);
        self.prefixes.retain(|(other, ..)| *other != link);
    }
}

/// How long namespaces are kept at most because others are sent.
const KEPT_MAX: Duration = Duration::from_secs(30);
/// How long they are kept at most as long as others are to be sent: before one that covers them, tens of thousands may end.
const KEPT_CHANGING_MAX: Duration = Duration::from_mins(5);
