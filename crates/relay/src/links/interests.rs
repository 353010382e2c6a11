//! Subscriptions to prefixes of namespaces and tracks at the relays behind links, for the sessions that subscribe here.
//!
//! A session may not have two overlapping subscriptions of one kind [moqt-18 §10.18]. So the relay subscribes to the
//! shortest prefixes that its own sessions want, which cover all others. One subscription of a client may replace
//! thousands of the relay's: it ends and sends them in pieces, and withdraws namespaces in pieces ([`Walk`]).

mod ended;
mod found;
mod refusals;
mod subscriptions;

use std::time::Duration;

use weir_moqt::{
    error::ResetCode,
    message::RequestError,
    name::{FullTrackName, Namespace},
};
use weir_quic::Handle;

use self::{
    found::Found,
    refusals::{Cause, Hold},
    subscriptions::Subscriptions,
};
use super::{Linking, Links};
use crate::{
    catalogue::walks::{self, Steps, Walk},
    ids::RequestKey,
    sessions::peer::{PeerKind, PrefixKind},
    turn::Turn,
};

/// The relay's subscriptions to prefixes, and what they found.
#[derive(Debug, Default)]
pub(super) struct Interests {
    subscriptions: Subscriptions,
    found: Found,
}

impl Links {
    /// Has the namespaces reviewed that other relays have.
    pub(super) fn review_later(&mut self, turn: &mut Turn<'_>) {
        self.interests.found.review_later(turn);
    }
}

impl Linking<'_> {
    /// Handles a subscription to a prefix by a session.
    pub(crate) fn on_prefix_wanted(
        &mut self,
        turn: &mut Turn<'_>,
        prefix: (PrefixKind, Namespace),
    ) {
        let subscriptions = &mut self.links.interests.subscriptions;
        subscriptions.want(self.catalogue.fallbacks(), prefix);
        self.change_interests(turn);
    }

    /// Handles the end of a subscription to a prefix by a session.
    pub(crate) fn on_prefix_unwanted(
        &mut self,
        turn: &mut Turn<'_>,
        prefix: (PrefixKind, Namespace),
    ) {
        let subscriptions = &mut self.links.interests.subscriptions;
        subscriptions.end_want(turn, self.catalogue.fallbacks(), prefix);
        self.change_interests(turn);
    }

    /// Subscribes over a new link to everything that is wanted.
    pub(super) fn watch_link(&mut self, turn: &mut Turn<'_>, link: Handle) {
        self.links.interests.subscriptions.on_link(link);
        self.change_interests(turn);
    }

    /// Ends all subscriptions over a link, and withdraws what they found.
    pub(super) fn unwatch_link(&mut self, turn: &mut Turn<'_>, link: Handle) {
        self.links.interests.subscriptions.on_link_lost(link);
        self.links.interests.found.on_link_lost(link);
        self.change_interests(turn);
        self.walk(turn, Walk::Found(link));
    }

    /// Has a link take over the namespaces of the one that it replaces.
    pub(super) fn replace_watched_link(&mut self, turn: &mut Turn<'_>, old: Handle, new: Handle) {
        if self.catalogue.fallbacks().contains(&old) {
            self.links.interests.found.on_link_replaced(old, new);
        }
        self.on_fallback_lost(turn, old);
    }

    /// Sends subscriptions again that other relays refused or ended.
    pub(crate) fn send_interests_again(&mut self, turn: &mut Turn<'_>) {
        self.links.interests.subscriptions.send_again(turn);
        self.change_interests(turn);
    }

    fn change_interests(&mut self, turn: &mut Turn<'_>) {
        self.walk(turn, Walk::Interests);
    }

    /// Sends and ends the next subscriptions.
    pub(super) fn change_next_interests(
        &mut self,
        turn: &mut Turn<'_>,
        from: FullTrackName,
    ) -> Steps {
        let interests = &mut self.links.interests;
        let links = self.catalogue.fallbacks();
        let changed = interests.subscriptions.change_some(turn, links);
        for (key, prefix) in changed.ended {
            interests.found.on_ended(turn, key, prefix);
        }
        let mut kept = 0;
        for (link, prefix) in changed.begun {
            kept += interests.found.on_begun(turn, link, &prefix);
        }
        Steps {
            rest: (!changed.is_over).then_some(from),
            work: changed.work + kept / LOOKS_TO_WORK,
        }
    }

    /// Handles NAMESPACE of the relay behind a link.
    pub(crate) fn on_namespace(
        &mut self,
        turn: &mut Turn<'_>,
        key: RequestKey,
        suffix: &Namespace,
    ) {
        let max = turn.config.limits.matches_per_prefix_max;
        let Some(namespace) = self.full_namespace(key, suffix) else {
            return;
        };
        if namespace == Namespace::EMPTY {
            // Every link to an upstream relay is asked for everything anyway.
            return;
        }
        let is_own = self.links.is_announced(&namespace);
        let found = &mut self.links.interests.found;
        match found.insert(key, namespace.clone(), is_own, max) {
            Some(true) => self.catalogue.announce(turn, key.0, &namespace),
            Some(false) => {}
            None => {
                turn.counters.interests_dropped += 1;
                turn.remove_request(key);
                turn.cancel(key, ResetCode::EXCESSIVE_LOAD);
                self.end_interest(turn, key, Cause::Final);
            }
        }
    }

    /// Handles NAMESPACE_DONE of the relay behind a link.
    pub(crate) fn on_namespace_done(
        &mut self,
        turn: &mut Turn<'_>,
        key: RequestKey,
        suffix: &Namespace,
    ) {
        if let Some(namespace) = self.full_namespace(key, suffix)
            && self.links.interests.found.remove(key.0, namespace.clone())
        {
            self.catalogue.withdraw(turn, key.0, &namespace);
        }
    }

    fn full_namespace(&self, key: RequestKey, suffix: &Namespace) -> Option<Namespace> {
        let prefix = self.links.interests.subscriptions.prefix(key)?;
        Namespace::new(prefix.fields().chain(suffix.fields())).ok()
    }

    /// Handles the end of one of the relay's own subscriptions by the other relay, or with its session.
    pub(crate) fn on_interest_closed(&mut self, turn: &mut Turn<'_>, key: RequestKey) {
        self.end_interest(turn, key, Cause::Retry(Duration::ZERO));
    }

    /// Handles the acceptance of one of the relay's own subscriptions to prefixes.
    pub(crate) fn on_interest_accepted(&mut self, key: RequestKey) {
        self.links.interests.subscriptions.on_accepted(key);
    }

    /// Handles the refusal of one of the relay's own subscriptions to prefixes.
    pub(crate) fn on_interest_rejected(
        &mut self,
        turn: &mut Turn<'_>,
        key: RequestKey,
        error: &RequestError,
    ) {
        let cause = Cause::of(error);
        let is_repeated = self.links.interests.subscriptions.is_repeated(key);
        let what = "SUBSCRIBE_NAMESPACE or SUBSCRIBE_TRACKS";
        match cause {
            Cause::Overlap => {}
            // Logged once, unless rights are missing.
            Cause::Retry(_) | Cause::Final if is_repeated => {
                if !self.links.note_refusal(turn, key.0, what, error) {
                    turn.counters.link_requests_refused += 1;
                }
            }
            Cause::Retry(_) | Cause::Final => self.links.on_rejected(turn, key, (what, error)),
        }
        self.end_interest(turn, key, cause);
    }

    /// Has a subscription sent again, or longer prefixes subscribed to instead. What it found is kept for a while, because
    /// these may find it again; not if its link is lost.
    fn end_interest(&mut self, turn: &mut Turn<'_>, key: RequestKey, cause: Cause) {
        let interests = &mut self.links.interests;
        let Some(closed) = interests.subscriptions.on_closed(turn, key, cause) else {
            self.walk(turn, Walk::Found(key.0));
            return;
        };
        interests.found.on_ended(turn, key, closed.prefix);
        if closed.hold == Some(Hold::Barred) {
            self.change_interests(turn);
        }
    }

    /// Reviews the namespaces that other relays were given time to confirm.
    pub(crate) fn review_interests(&mut self, turn: &mut Turn<'_>) {
        let interests = &mut self.links.interests;
        if interests.subscriptions.is_changing() {
            interests.found.keep_all_longer(turn);
        }
        for link in interests.found.on_review_due(turn) {
            self.walk(turn, Walk::Found(link));
        }
    }

    /// Reviews the next namespaces of the relay behind a link, from one on.
    pub(super) fn review_found(
        &mut self,
        turn: &mut Turn<'_>,
        link: Handle,
        from: &Namespace,
    ) -> Steps {
        let Links {
            interests,
            announced,
            ..
        } = &mut *self.links;
        let subscriptions = &interests.subscriptions;
        let is_open = |key| subscriptions.prefix(key).is_some();
        let is_own = |namespace: &Namespace| {
            announced.contains_key(&(PeerKind::Upstream, namespace.clone()))
        };
        let review = interests.found.review(link, from, is_open, is_own);
        let changes = review.gone.len() + review.foreign.len();
        let successor = interests.found.successor(link);
        for namespace in review.gone {
            if let Some(successor) = successor
                && interests.found.take_over(turn, successor, &namespace)
            {
                self.catalogue.announce(turn, successor, &namespace);
            }
            self.catalogue.withdraw(turn, link, &namespace);
        }
        for namespace in review.foreign {
            self.catalogue.announce(turn, link, &namespace);
        }
        Steps {
            rest: review.next.as_ref().map(walks::start),
            work: changes * CHANGE_WORK + review.looked_at / LOOKS_TO_WORK,
        }
    }
}

/// How many namespaces that do not change count as a step.
const LOOKS_TO_WORK: usize = 8;
/// As how many steps a namespace counts that is withdrawn or announced: it is sent to all who watch it.
const CHANGE_WORK: usize = 24;
