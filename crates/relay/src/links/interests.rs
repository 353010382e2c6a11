//! Subscriptions to prefixes of namespaces and tracks at the relays behind links, for the sessions that subscribe here.
//!
//! A session may not have two overlapping subscriptions of one kind [moqt-18 §10.18]. So the relay subscribes to the
//! shortest prefixes that its own sessions want, which cover all others.

use std::{
    collections::BTreeMap,
    ops::Bound,
    time::{Duration, Instant},
};

use weir_moqt::{error::ResetCode, name::Namespace, parameter::Parameters, session::RequestId};
use weir_quic::Handle;

use crate::{
    catalogue::Catalogue,
    effect::Effect,
    ids::RequestKey,
    sessions::peer::{PrefixKind, Purpose},
    timers::Timer,
    turn::Turn,
};

/// The prefixes that sessions of this relay want to know about, and the relay's own subscriptions for them.
#[derive(Debug, Default)]
pub(super) struct Interests {
    /// Number of subscriptions of sessions to each prefix.
    wanted: BTreeMap<(PrefixKind, Namespace), usize>,
    open: BTreeMap<RequestKey, Interest>,
    /// When namespaces are removed that were not confirmed.
    review_at: Option<Instant>,
    /// Subscriptions that the other relay refused because it had not processed the end of the one before.
    refused: Vec<(Handle, Interest)>,
}

/// A subscription of the relay.
#[derive(Debug)]
struct Interest {
    kind: PrefixKind,
    prefix: Namespace,
    /// The namespaces that the other relay has.
    found: Inheritance,
    /// How often it was refused because of an overlap.
    refusals: u32,
}

/// How a namespace was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// By this subscription.
    Told,
    /// By an earlier subscription to another prefix. It is forgotten if this one does not find it soon.
    Inherited,
    /// By this subscription, but this relay announced it to the other one itself.
    Own,
}

/// Namespaces found by a subscription that was replaced.
type Inheritance = BTreeMap<Namespace, Found>;

impl Interests {
    /// Handles a new subscription of a session. `links` are those that are asked.
    pub(super) fn on_wanted(
        &mut self,
        turn: &mut Turn<'_>,
        links: &[Handle],
        (kind, prefix): (PrefixKind, Namespace),
    ) {
        let count = self.wanted.entry((kind, prefix.clone())).or_default();
        *count += 1;
        if *count > 1 || self.is_covered(kind, &prefix) {
            return;
        }
        for &link in links {
            let covered: Vec<RequestKey> = self.open_under(link, kind, &prefix).collect();
            let mut inherited = self.take_refused(link, kind, &prefix);
            for key in covered {
                inherited.append(&mut self.close(turn, key));
            }
            self.subscribe(turn, link, (kind, prefix.clone()), inherited);
        }
    }

    /// Handles the end of a subscription of a session.
    pub(super) fn on_unwanted(
        &mut self,
        turn: &mut Turn<'_>,
        catalogue: &mut Catalogue,
        links: &[Handle],
        (kind, prefix): (PrefixKind, Namespace),
    ) {
        let name = (kind, prefix);
        let Some(count) = self.wanted.get_mut(&name) else {
            return;
        };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.wanted.remove(&name);
        let (kind, prefix) = name;
        if self.is_covered(kind, &prefix) {
            return;
        }
        let remaining = self.shortest_under(kind, &prefix);
        for &link in links {
            let closed: Vec<RequestKey> = self.open_under(link, kind, &prefix).collect();
            let mut found = self.take_refused(link, kind, &prefix);
            for key in closed {
                found.append(&mut self.close(turn, key));
            }
            for narrower in &remaining {
                let is_under = |namespace: &Namespace| namespace.starts_with(narrower);
                let inherited: Inheritance = found
                    .extract_if(.., |namespace, _| is_under(namespace))
                    .collect();
                self.subscribe(turn, link, (kind, narrower.clone()), inherited);
            }
            forget(turn, catalogue, link, found);
        }
    }

    /// Subscribes to everything that is wanted over a link.
    pub(super) fn on_link(&mut self, turn: &mut Turn<'_>, link: Handle) {
        for kind in [PrefixKind::Namespaces, PrefixKind::Tracks] {
            for prefix in self.shortest_under(kind, &Namespace::EMPTY) {
                self.subscribe(turn, link, (kind, prefix), Inheritance::new());
            }
        }
    }

    /// Ends all subscriptions over a link that is lost. Its namespaces are withdrawn later, like those of any session that is
    /// gone.
    pub(super) fn on_link_lost(&mut self, turn: &mut Turn<'_>, link: Handle) {
        let mut lost = Vec::new();
        for key in self.of_link(link).map(|(&key, _)| key).collect::<Vec<_>>() {
            lost.push(self.close(turn, key));
        }
        let refused = self.refused.extract_if(.., |(other, _)| *other == link);
        lost.extend(refused.map(|(_, interest)| interest.found));
        let told = lost.into_iter().flatten();
        let told = told.filter(|(_, found)| *found != Found::Own);
        let namespaces = told.map(|(namespace, _)| namespace).collect();
        turn.push(Effect::NamespacesLost(link, namespaces));
    }

    /// Handles the refusal of a subscription because it overlaps with an earlier one. The end of that one is on another
    /// stream, and may arrive later: the subscription is sent again soon. Returns false if there is no sense in that.
    pub(super) fn on_overlap(&mut self, turn: &mut Turn<'_>, key: RequestKey) -> bool {
        let open = &mut self.open;
        let Some(interest) = open.remove(&key) else {
            return false;
        };
        if interest.refusals >= REFUSALS_MAX {
            open.insert(key, interest);
            return false;
        }
        if self.refused.is_empty() {
            turn.timers
                .set(turn.now + REFUSED_PAUSE, Timer::InterestsRefused);
        }
        self.refused.push((key.0, interest));
        true
    }

    /// Sends subscriptions again that were refused because they overlapped with an earlier one.
    pub(super) fn send_again(&mut self, turn: &mut Turn<'_>) {
        for (link, interest) in std::mem::take(&mut self.refused) {
            self.send(
                turn,
                link,
                Interest {
                    refusals: interest.refusals + 1,
                    ..interest
                },
            );
        }
    }

    /// Handles the end of a subscription by the other relay.
    pub(super) fn on_closed(
        &mut self,
        turn: &mut Turn<'_>,
        catalogue: &mut Catalogue,
        key: RequestKey,
    ) {
        if let Some(interest) = self.open.remove(&key) {
            forget(turn, catalogue, key.0, interest.found);
        }
    }

    /// Handles NAMESPACE. `is_own` tells whether this relay announced the namespace to the other one. Returns false if
    /// the other relay has sent too many.
    pub(super) fn on_namespace(
        &mut self,
        turn: &mut Turn<'_>,
        catalogue: &mut Catalogue,
        key: RequestKey,
        (suffix, is_own): (&Namespace, impl Fn(&Namespace) -> bool),
    ) -> bool {
        let max = turn.config.limits.matches_per_prefix_max;
        let Some(interest) = self.open.get_mut(&key) else {
            return true;
        };
        let fields = interest.prefix.fields().chain(suffix.fields());
        let Ok(namespace) = Namespace::new(fields) else {
            return true;
        };
        if namespace == Namespace::EMPTY {
            // Every link to an upstream relay is asked for everything anyway.
            return true;
        }
        let is_known = interest.found.contains_key(&namespace);
        if !is_known && interest.found.len() >= max {
            return false;
        }
        let found = if is_own(&namespace) && !is_known {
            Found::Own
        } else {
            Found::Told
        };
        let before = interest.found.insert(namespace.clone(), found);
        if before.is_none() && found == Found::Told {
            catalogue.announce(turn, key.0, &namespace);
        }
        true
    }

    /// Handles NAMESPACE_DONE.
    pub(super) fn on_namespace_done(
        &mut self,
        turn: &mut Turn<'_>,
        catalogue: &mut Catalogue,
        key: RequestKey,
        suffix: &Namespace,
    ) {
        let Some(interest) = self.open.get_mut(&key) else {
            return;
        };
        let fields = interest.prefix.fields().chain(suffix.fields());
        if let Ok(namespace) = Namespace::new(fields)
            && let Some(found) = interest.found.remove(&namespace)
        {
            forget(turn, catalogue, key.0, [(namespace, found)]);
        }
    }

    /// Has the namespaces reviewed that this relay announced itself, or that were inherited, after a time in which
    /// the other relay can confirm or withdraw them.
    pub(super) fn review_later(&mut self, turn: &mut Turn<'_>) {
        if self.review_at.is_none() {
            let at = turn.now + CONFIRMATION_MAX;
            self.review_at = Some(at);
            turn.timers.set(at, Timer::Interests);
        }
    }

    /// Removes inherited namespaces that were not confirmed, and adds those that another publisher announced as well and
    /// this relay no longer announces.
    pub(super) fn review(
        &mut self,
        turn: &mut Turn<'_>,
        catalogue: &mut Catalogue,
        is_own: impl Fn(&Namespace) -> bool,
    ) {
        self.review_at = None;
        for (&(link, _), interest) in &mut self.open {
            let unconfirmed = interest
                .found
                .extract_if(.., |_, found| *found == Found::Inherited);
            forget(turn, catalogue, link, unconfirmed);
            let own = interest.found.iter_mut();
            for (namespace, found) in own.filter(|(_, found)| **found == Found::Own) {
                if !is_own(namespace) {
                    *found = Found::Told;
                    catalogue.announce(turn, link, namespace);
                }
            }
        }
    }

    /// Sends SUBSCRIBE_NAMESPACE or SUBSCRIBE_TRACKS.
    fn subscribe(
        &mut self,
        turn: &mut Turn<'_>,
        link: Handle,
        (kind, prefix): (PrefixKind, Namespace),
        inherited: Inheritance,
    ) {
        let inherited = inherited.into_iter().map(|(namespace, found)| {
            let found = match found {
                Found::Told | Found::Inherited => Found::Inherited,
                Found::Own => Found::Own,
            };
            (namespace, found)
        });
        let interest = Interest {
            kind,
            prefix,
            found: inherited.collect(),
            refusals: 0,
        };
        if !interest.found.is_empty() {
            self.review_later(turn);
        }
        self.send(turn, link, interest);
    }

    fn send(&mut self, turn: &mut Turn<'_>, link: Handle, interest: Interest) {
        let wanted = interest.prefix.clone();
        let sent = turn.with_session(link, |session, connection| match interest.kind {
            PrefixKind::Namespaces => {
                session.subscribe_namespace(connection, wanted, Parameters::default())
            }
            PrefixKind::Tracks => {
                session.subscribe_tracks(connection, wanted, Parameters::default())
            }
        });
        let Some(Ok(request)) = sent else {
            turn.counters.link_requests_unsent += 1;
            return;
        };
        turn.insert_request((link, request), Purpose::UpstreamPrefix);
        self.open.insert((link, request), interest);
    }

    /// Ends one of the relay's subscriptions; returns what it had found.
    fn close(&mut self, turn: &mut Turn<'_>, key: RequestKey) -> Inheritance {
        let interest = self.open.remove(&key);
        if turn.remove_request(key).is_some() {
            turn.cancel(key, ResetCode::CANCELLED);
        }
        interest.map(|interest| interest.found).unwrap_or_default()
    }

    /// Removes the subscriptions to `prefix` and under it that wait to be sent again; returns what they had found.
    fn take_refused(&mut self, link: Handle, kind: PrefixKind, prefix: &Namespace) -> Inheritance {
        let is_under =
            |interest: &Interest| interest.kind == kind && interest.prefix.starts_with(prefix);
        let refused = self
            .refused
            .extract_if(.., |(other, interest)| *other == link && is_under(interest));
        refused.flat_map(|(_, interest)| interest.found).collect()
    }

    /// Returns whether a shorter prefix of the same kind is wanted.
    fn is_covered(&self, kind: PrefixKind, prefix: &Namespace) -> bool {
        (0..prefix.fields_len())
            .filter_map(|fields| Namespace::new(prefix.fields().take(fields)).ok())
            .any(|shorter| self.wanted.contains_key(&(kind, shorter)))
    }

    /// Returns the shortest wanted prefixes that are `prefix` or lie under it.
    fn shortest_under(&self, kind: PrefixKind, prefix: &Namespace) -> Vec<Namespace> {
        let mut shortest: Vec<Namespace> = Vec::new();
        let from = Bound::Included((kind, prefix.clone()));
        for ((other, wanted), _) in self.wanted.range((from, Bound::Unbounded)) {
            if *other != kind || !wanted.starts_with(prefix) {
                break;
            }
            let covered = shortest.last();
            if covered.is_none_or(|shorter| !wanted.starts_with(shorter)) {
                shortest.push(wanted.clone());
            }
        }
        shortest
    }

    fn of_link(&self, link: Handle) -> impl Iterator<Item = (&RequestKey, &Interest)> {
        self.open
            .range((link, RequestId(0))..=(link, RequestId(u64::MAX)))
    }

    /// Returns the relay's subscriptions over a link to prefixes that are `prefix` or lie under it.
    fn open_under<'a>(
        &'a self,
        link: Handle,
        kind: PrefixKind,
        prefix: &'a Namespace,
    ) -> impl Iterator<Item = RequestKey> + 'a {
        let open = self.of_link(link);
        let open = open.filter(move |(_, interest)| {
            interest.kind == kind && interest.prefix.starts_with(prefix)
        });
        open.map(|(&key, _)| key)
    }
}

/// Withdraws namespaces that the relay behind a link no longer has.
fn forget(
    turn: &mut Turn<'_>,
    catalogue: &mut Catalogue,
    link: Handle,
    found: impl IntoIterator<Item = (Namespace, Found)>,
) {
    for (namespace, found) in found {
        if found != Found::Own {
            catalogue.withdraw(turn, link, &namespace);
        }
    }
}

/// How often a subscription is sent again after an overlap.
const REFUSALS_MAX: u32 = 10;
/// The pause before a subscription is sent again.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);
/// How long another relay may take to send the namespaces under a prefix, or to withdraw one.
const CONFIRMATION_MAX: Duration = Duration::from_secs(2);
