//! The namespaces that the relays behind links have, and the subscriptions that found them.

use std::{collections::BTreeMap, time::Duration};

use weir_moqt::{name::Namespace, session::RequestId};
use weir_quic::Handle;

use super::ended::Ended;
use crate::{ids::RequestKey, timers::Timer, turn::Turn};

/// Namespaces of the relays behind links.
#[derive(Debug, Default)]
pub(super) struct Found {
    namespaces: BTreeMap<(Handle, Namespace), Source>,
    /// Number of namespaces of each subscription.
    counts: BTreeMap<RequestKey, usize>,
    /// Subscriptions that have ended, and found namespaces that others may find again.
    ended: Ended,
    /// Links that were replaced, and their successors, which have their namespaces until these can have been found again.
    successors: BTreeMap<Handle, Handle>,
    /// Whether the timer is set.
    is_armed: bool,
}

/// How a namespace was found.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// The subscription that found it last.
    request: RequestId,
    /// Whether this relay announced the namespace to the other one itself.
    is_own: bool,
}

/// What changes in one step of a review.
#[derive(Debug, Default)]
pub(super) struct Review {
    /// Namespaces that the other relay no longer has.
    pub(super) gone: Vec<Namespace>,
    /// Namespaces that only the other relay has now.
    pub(super) foreign: Vec<Namespace>,
    /// Where the next step begins.
    pub(super) next: Option<Namespace>,
    pub(super) looked_at: usize,
}

impl Found {
    /// Notes a namespace that a subscription found, of which it may find so many. Returns whether it is new and not this
    /// relay's own; `None` if there is no room.
    pub(super) fn insert(
        &mut self,
        key: RequestKey,
        namespace: Namespace,
        is_own: bool,
        max: usize,
    ) -> Option<bool> {
        let place = (key.0, namespace);
        let known = self.namespaces.get(&place).copied();
        if known.is_some_and(|known| known.request == key.1) {
            return Some(false);
        }
        if self.counts.get(&key).is_some_and(|count| *count >= max) {
            return None;
        }
        if let Some(known) = known {
            self.uncount((key.0, known.request));
        }
        let source = Source {
            request: key.1,
            is_own: known.map_or(is_own, |known| known.is_own),
        };
        self.namespaces.insert(place, source);
        *self.counts.entry(key).or_default() += 1;
        Some(known.is_none() && !is_own)
    }

    /// Removes a namespace; returns whether it was known and not this relay's own.
    pub(super) fn remove(&mut self, link: Handle, namespace: Namespace) -> bool {
        let Some(source) = self.namespaces.remove(&(link, namespace)) else {
            return false;
        };
        self.uncount((link, source.request));
        !source.is_own
    }

    fn uncount(&mut self, key: RequestKey) {
        if let Some(count) = self.counts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&key);
                self.ended.remove(key);
            }
        }
    }

    /// Notes that a subscription has ended: what it found is kept until another one can have found it.
    pub(super) fn on_ended(&mut self, turn: &mut Turn<'_>, key: RequestKey, prefix: Namespace) {
        if self.counts.contains_key(&key) {
            self.ended.insert(key, prefix, turn.now, CONFIRMATION_MAX);
            self.review_later(turn);
        }
    }

    /// Handles the loss of a link: nothing that its subscriptions found is kept.
    pub(super) fn on_link_lost(&mut self, link: Handle) {
        self.ended.forget_link(link);
        self.successors.retain(|_, successor| *successor != link);
    }

    /// Notes that a link to the same relay replaces one.
    pub(super) fn on_link_replaced(&mut self, old: Handle, new: Handle) {
        for successor in self.successors.values_mut() {
            if *successor == old {
                *successor = new;
            }
        }
        self.successors.insert(old, new);
    }

    /// Returns the link that has replaced one whose namespaces are being withdrawn. It is forgotten with the last of them.
    pub(super) fn successor(&mut self, link: Handle) -> Option<Handle> {
        let mut left = self.namespaces.range((link, Namespace::EMPTY)..);
        if left.next().is_some_and(|((other, _), _)| *other == link) {
            self.successors.get(&link).copied()
        } else {
            self.successors.remove(&link)
        }
    }

    /// Has a link take over a namespace of the one that it replaces. Returns whether it is new to it.
    pub(super) fn take_over(
        &mut self,
        turn: &mut Turn<'_>,
        link: Handle,
        namespace: &Namespace,
    ) -> bool {
        let place = (link, namespace.clone());
        if self.namespaces.contains_key(&place) {
            return false;
        }
        let source = Source {
            request: TAKEN_OVER,
            is_own: false,
        };
        self.namespaces.insert(place, source);
        let key = (link, TAKEN_OVER);
        *self.counts.entry(key).or_default() += 1;
        self.on_ended(turn, key, Namespace::EMPTY);
        true
    }

    /// Has all namespaces reviewed, after a time in which the other relays can confirm or withdraw them.
    pub(super) fn review_later(&mut self, turn: &mut Turn<'_>) {
        if !self.is_armed {
            self.is_armed = true;
            let at = turn.now + CONFIRMATION_MAX;
            turn.timers.set(at, Timer::Interests);
        }
    }

    /// Notes that a subscription to a prefix was sent over a link: it may find again what others have found. Returns how
    /// many these are.
    pub(super) fn on_begun(&mut self, turn: &Turn<'_>, link: Handle, prefix: &Namespace) -> usize {
        let until = turn.now + CONFIRMATION_MAX;
        self.ended.keep_overlapping(link, prefix, until)
    }

    /// Notes that subscriptions are still to be sent, which may find again what others have found.
    pub(super) fn keep_all_longer(&mut self, turn: &Turn<'_>) {
        self.ended.keep_all(turn.now + CONFIRMATION_MAX);
    }

    /// Handles the time of a review. Returns the links whose namespaces are to be reviewed.
    pub(super) fn on_review_due(&mut self, turn: &mut Turn<'_>) -> Vec<Handle> {
        self.is_armed = false;
        self.ended.expire(turn.now);
        if !self.ended.is_empty() {
            self.review_later(turn);
        }
        let mut links: Vec<_> = self.counts.keys().map(|&(link, _)| link).collect();
        links.dedup();
        links
    }

    /// Looks at the next namespaces of a link, from one on. Removes those that no subscription finds any more: it has
    /// ended long enough ago, and is not open. Those that this relay announced itself, and no longer does, are the other
    /// relay's from now on.
    pub(super) fn review(
        &mut self,
        link: Handle,
        from: &Namespace,
        is_open: impl Fn(RequestKey) -> bool,
        is_own: impl Fn(&Namespace) -> bool,
    ) -> Review {
        let mut review = Review::default();
        // The same subscription found most of them.
        let mut last = None;
        for ((other, namespace), source) in self.namespaces.range_mut((link, from.clone())..) {
            if *other != link {
                break;
            }
            let changes = review.gone.len() + review.foreign.len();
            if review.looked_at >= LOOKED_AT_MAX || changes >= CHANGES_MAX {
                review.next = Some(namespace.clone());
                break;
            }
            review.looked_at += 1;
            let key = (link, source.request);
            let is_kept = match last {
                Some((other, is_kept)) if other == key => is_kept,
                _ => is_open(key) || self.ended.contains(key),
            };
            last = Some((key, is_kept));
            if !is_kept {
                review.gone.push(namespace.clone());
            } else if source.is_own && !is_own(namespace) {
                source.is_own = false;
                review.foreign.push(namespace.clone());
            }
        }
        let gone = &mut review.gone;
        gone.retain(|namespace| self.remove(link, namespace.clone()));
        review
    }
}

/// Stands for the subscriptions of a link that was replaced.
const TAKEN_OVER: RequestId = RequestId(u64::MAX);
/// Namespaces that are looked at in one step.
const LOOKED_AT_MAX: usize = 128;
/// Namespaces that change in one step: each is sent to all who watch it.
const CHANGES_MAX: usize = 8;
/// How long another relay may take to send the namespaces under a prefix, or to withdraw one.
const CONFIRMATION_MAX: Duration = Duration::from_secs(2);
