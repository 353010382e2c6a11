//! SUBSCRIBE_NAMESPACE and SUBSCRIBE_TRACKS: sessions that are notified of the namespaces or tracks under a prefix.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::discriminant,
};

use weir_moqt::{
    error::{RequestErrorCode, ResetCode},
    message::{RequestOk, SubscribeTracks},
    name::{FullTrackName, Namespace},
    parameter::Parameters,
    session::RequestId,
};
use weir_quic::Handle;

use crate::{
    catalogue::{
        Catalogue, Offering,
        walks::{self, Steps, Walk},
    },
    effect::Effect,
    ids::RequestKey,
    sessions::peer::{PeerKind, PrefixKind, Purpose},
    track::Tracks,
    turn::Turn,
};

/// An open SUBSCRIBE_NAMESPACE or SUBSCRIBE_TRACKS request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrefixSubscription {
    prefix: Namespace,
    kind: Kind,
}

/// The kind of a subscription to a prefix, and the announcements sent to its session.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// SUBSCRIBE_NAMESPACE.
    Namespaces {
        /// Namespaces for which NAMESPACE was sent, without a later NAMESPACE_DONE.
        notified: BTreeSet<Namespace>,
    },
    /// SUBSCRIBE_TRACKS.
    Tracks {
        /// The parameters that the subscription to each offered track begins with. Without tokens.
        wanted: Box<Parameters>,
        /// Tracks for which PUBLISH_BLOCKED was sent.
        blocked: BTreeSet<FullTrackName>,
    },
}

impl Kind {
    fn name(&self) -> PrefixKind {
        match self {
            Self::Namespaces { .. } => PrefixKind::Namespaces,
            Self::Tracks { .. } => PrefixKind::Tracks,
        }
    }
}

impl PrefixSubscription {
    /// A request for the namespaces under a prefix.
    pub(crate) fn to_namespaces(prefix: Namespace) -> Self {
        let notified = BTreeSet::new();
        let kind = Kind::Namespaces { notified };
        Self { prefix, kind }
    }

    /// A request for the tracks under a prefix.
    pub(crate) fn to_tracks(subscribe: SubscribeTracks) -> Self {
        let wanted = Parameters {
            authorization_tokens: Vec::new(),
            ..subscribe.parameters
        };
        let kind = Kind::Tracks {
            wanted: Box::new(wanted),
            blocked: BTreeSet::new(),
        };
        let prefix = subscribe.prefix;
        Self { prefix, kind }
    }

    /// Returns the parameters for an offer of a track. `None` if the track is not to be offered: PUBLISH_BLOCKED was sent
    /// for it, or the request is SUBSCRIBE_NAMESPACE.
    pub(super) fn wanted_of(&self, track: &FullTrackName) -> Option<&Parameters> {
        match &self.kind {
            Kind::Tracks { wanted, blocked } => (!blocked.contains(track)).then_some(&**wanted),
            Kind::Namespaces { .. } => None,
        }
    }

    /// Returns the effect of such a request.
    fn wanted(&self) -> Effect {
        Effect::PrefixWanted(self.kind.name(), self.prefix.clone())
    }

    /// Returns the effect of the end of such a request.
    fn unwanted(&self) -> Effect {
        Effect::PrefixUnwanted(self.kind.name(), self.prefix.clone())
    }

    /// Returns whether both are of the same kind, and one prefix begins with the other [moqt-18 §10.18].
    fn overlaps(&self, other: &Self) -> bool {
        discriminant(&self.kind) == discriminant(&other.kind)
            && (self.prefix.starts_with(&other.prefix) || other.prefix.starts_with(&self.prefix))
    }
}

/// All open SUBSCRIBE_NAMESPACE and SUBSCRIBE_TRACKS requests.
#[derive(Debug, Default)]
pub(super) struct PrefixSubscriptions {
    open: BTreeMap<RequestKey, PrefixSubscription>,
    to_namespaces: PrefixIndex,
    to_tracks: PrefixIndex,
}

impl PrefixSubscriptions {
    /// Adds a request. That of a link is not notified of anything: the relay announces to links what it passes on to
    /// them, and asks other links for what this one wants to know.
    fn insert(&mut self, key: RequestKey, kind: PeerKind, subscription: PrefixSubscription) {
        let prefix = subscription.prefix.clone();
        if !kind.is_link() {
            self.index(&subscription.kind).insert(prefix, key);
        }
        self.open.insert(key, subscription);
    }

    fn remove(&mut self, key: RequestKey) -> Option<PrefixSubscription> {
        let subscription = self.open.remove(&key)?;
        self.index(&subscription.kind)
            .remove(&subscription.prefix, key);
        Some(subscription)
    }

    pub(super) fn get(&self, key: RequestKey) -> Option<&PrefixSubscription> {
        self.open.get(&key)
    }

    /// Changes the parameters of later offers.
    fn change(&mut self, key: RequestKey, update: &Parameters) {
        if let Some(subscription) = self.open.get_mut(&key)
            && let Kind::Tracks { wanted, .. } = &mut subscription.kind
        {
            wanted.change(update);
        }
    }

    /// Returns the SUBSCRIBE_TRACKS requests that cover a namespace, those with the longest prefix first.
    pub(super) fn to_tracks_of(&self, namespace: &Namespace) -> Vec<RequestKey> {
        self.to_tracks.covering(namespace).collect()
    }

    /// Returns the number of open requests.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    fn index(&mut self, kind: &Kind) -> &mut PrefixIndex {
        match kind {
            Kind::Namespaces { .. } => &mut self.to_namespaces,
            Kind::Tracks { .. } => &mut self.to_tracks,
        }
    }

    /// Returns the SUBSCRIBE_NAMESPACE requests that cover a namespace, those with the longest prefix first.
    fn to_namespaces_of(&self, namespace: &Namespace) -> Vec<RequestKey> {
        self.to_namespaces.covering(namespace).collect()
    }

    /// Returns whether the session has another subscription that overlaps.
    fn has_overlap(&self, (handle, _): RequestKey, wanted: &PrefixSubscription) -> bool {
        let mut others = self.of_session(handle);
        others.any(|other| other.overlaps(wanted))
    }

    fn of_session(&self, handle: Handle) -> impl Iterator<Item = &PrefixSubscription> {
        let of_session = (handle, RequestId(0))..=(handle, RequestId(u64::MAX));
        self.open.range(of_session).map(|(_, it)| it)
    }
}

impl Offering<'_> {
    /// Accepts or refuses a SUBSCRIBE_NAMESPACE or SUBSCRIBE_TRACKS request.
    pub(crate) fn on_subscribe_prefix(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): RequestKey,
        subscription: PrefixSubscription,
    ) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let (kind, max) = (peer.kind(), turn.config.limits.prefixes_per_session_max);
        if !kind.is_link() && peer.counts().prefixes >= max {
            turn.counters.refused_limit_prefixes += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        if !kind.is_link()
            && let Err(code) =
                self.catalogue
                    .check_prefix(turn, self.tracks, (handle, id), &subscription)
        {
            return turn.refuse(handle, id, code);
        }
        turn.insert_request((handle, id), Purpose::Prefix(subscription.prefix.clone()));
        turn.push(subscription.wanted());
        self.catalogue
            .subscriptions
            .insert((handle, id), kind, subscription);
        turn.accept((handle, id), RequestOk::default());
        if !kind.is_link() {
            self.send_all_matches(turn, (handle, id));
        }
    }

    /// Applies an update of a SUBSCRIBE_NAMESPACE or SUBSCRIBE_TRACKS request. Notifications that were sent stay valid
    /// if the new prefix covers them [moqt-18 §10.9.2]. Other parameters change the subscriptions to tracks that are
    /// offered later [moqt-21 §9.20.19].
    pub(crate) fn on_prefix_updated(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): RequestKey,
        parameters: &Parameters,
    ) {
        let key = (handle, id);
        if let Some(prefix) = &parameters.track_namespace_prefix {
            let Some(mut subscription) = self.catalogue.subscriptions.remove(key) else {
                return;
            };
            turn.push(subscription.unwanted());
            subscription.prefix = prefix.clone();
            if let Err(code) = self
                .catalogue
                .check_prefix(turn, self.tracks, key, &subscription)
            {
                return turn.push(Effect::UpdateFailed(handle, id, code));
            }
            if let Kind::Namespaces { notified } = &mut subscription.kind {
                turn.note_matches(handle, notified.len());
                notified.retain(|namespace| namespace.starts_with(prefix));
            }
            turn.push(subscription.wanted());
            let kind = turn.kind(handle);
            self.catalogue.subscriptions.insert(key, kind, subscription);
            if let Some(peer) = turn.sessions.get(handle) {
                peer.change_prefix(id, prefix.clone());
            }
        }
        self.catalogue.subscriptions.change(key, parameters);
        turn.grant_update(handle, id, RequestOk::default());
        self.send_all_matches(turn, key);
    }

    /// Sends everything that a new or changed subscription covers and that its session was not sent, in pieces.
    fn send_all_matches(&mut self, turn: &mut Turn<'_>, key: RequestKey) {
        if let Some(subscription) = self.catalogue.subscriptions.get(key) {
            let (walk, start) = (Walk::Prefix(key), walks::start(&subscription.prefix));
            if let Some(start) = self.catalogue.begin_walk(turn, &walk, start) {
                let steps = self.send_matches(turn, key, &start);
                self.catalogue.walk_on(turn, walk, steps);
            }
        }
    }

    /// Sends the next matches, from a name on.
    pub(crate) fn send_matches(
        &mut self,
        turn: &mut Turn<'_>,
        key: RequestKey,
        from: &FullTrackName,
    ) -> Steps {
        let Some(subscription) = self.catalogue.subscriptions.get(key) else {
            return Steps::default();
        };
        let prefix = &subscription.prefix;
        let count = walks::NOTIFICATIONS_MAX;
        match subscription.kind {
            Kind::Namespaces { .. } => {
                let announced = self
                    .catalogue
                    .announcements
                    .under_from(prefix, &from.namespace);
                let mut matches: Vec<_> = announced.take(count + 1).cloned().collect();
                let rest = (matches.len() > count).then(|| matches.pop()).flatten();
                let work = matches.len() * walks::NOTIFICATION_WORK;
                for namespace in matches {
                    self.catalogue.send_namespace(turn, key, &namespace);
                }
                let rest = rest.map(|namespace| walks::start(&namespace));
                Steps { rest, work }
            }
            Kind::Tracks { .. } => {
                let mut matches: Vec<_> = self
                    .tracks
                    .under_from(prefix, from)
                    .take(count + 1)
                    .collect();
                let rest = (matches.len() > count).then(|| matches.pop()).flatten();
                let work = matches.len() * walks::NOTIFICATION_WORK;
                for track in matches {
                    if self.tracks.get(track).is_some_and(|it| it.is_published()) {
                        self.offer(turn, track, key);
                    }
                }
                let rest = rest.and_then(|id| Some(self.tracks.get(id)?.name().clone()));
                Steps { rest, work }
            }
        }
    }
}

impl Catalogue {
    /// Forgets a SUBSCRIBE_NAMESPACE or SUBSCRIBE_TRACKS request that has ended.
    pub(crate) fn on_prefix_closed(&mut self, turn: &mut Turn<'_>, key: RequestKey) {
        if let Some(subscription) = self.subscriptions.remove(key) {
            turn.push(subscription.unwanted());
        }
    }

    /// Checks whether a session may have this subscription beside its others.
    fn check_prefix(
        &self,
        turn: &mut Turn<'_>,
        tracks: &Tracks,
        key: RequestKey,
        wanted: &PrefixSubscription,
    ) -> Result<(), RequestErrorCode> {
        if !turn.may_count_matches(key.0) {
            turn.counters.refused_limit_prefixes += 1;
            return Err(RequestErrorCode::EXCESSIVE_LOAD);
        }
        let max = turn.config.limits.matches_per_prefix_max;
        let counted = max.saturating_add(1);
        let matches = match wanted.kind {
            Kind::Namespaces { .. } => {
                let namespaces = self.announcements.under(&wanted.prefix);
                namespaces.take(counted).count()
            }
            Kind::Tracks { .. } => tracks.under(&wanted.prefix).take(counted).count(),
        };
        turn.note_matches(key.0, matches);
        if matches > max {
            turn.counters.refused_too_large += 1;
            return Err(RequestErrorCode::NAMESPACE_TOO_LARGE);
        }
        if self.subscriptions.has_overlap(key, wanted) {
            turn.counters.refused_overlap += 1;
            return Err(RequestErrorCode::PREFIX_OVERLAP);
        }
        Ok(())
    }

    /// Sends NAMESPACE to all sessions that subscribe to a namespace, which was announced for the first time.
    pub(super) fn send_namespace_to_all(&mut self, turn: &mut Turn<'_>, namespace: &Namespace) {
        for key in self.subscriptions.to_namespaces_of(namespace) {
            self.send_namespace(turn, key, namespace);
        }
    }

    fn send_namespace(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): RequestKey,
        namespace: &Namespace,
    ) {
        let max = turn.config.limits.matches_per_prefix_max;
        let Some(PrefixSubscription {
            prefix,
            kind: Kind::Namespaces { notified },
        }) = self.subscriptions.open.get_mut(&(handle, id))
        else {
            return;
        };
        if notified.contains(namespace) {
            return;
        }
        if notified.len() >= max {
            return self.drop_subscription(turn, (handle, id));
        }
        notified.insert(namespace.clone());
        if let Some(suffix) = namespace.suffix(prefix) {
            turn.with_session(handle, |session, connection| {
                session.namespace(connection, id, suffix);
            });
        }
    }

    /// Sends NAMESPACE_DONE to all sessions that were sent NAMESPACE, since no session announces the namespace.
    pub(super) fn send_namespace_done(&mut self, turn: &mut Turn<'_>, namespace: &Namespace) {
        for (handle, id) in self.subscriptions.to_namespaces_of(namespace) {
            if let Some(PrefixSubscription {
                prefix,
                kind: Kind::Namespaces { notified },
            }) = self.subscriptions.open.get_mut(&(handle, id))
                && notified.remove(namespace)
                && let Some(suffix) = namespace.suffix(prefix)
            {
                turn.with_session(handle, |session, connection| {
                    session.namespace_done(connection, id, suffix);
                });
            }
        }
    }

    /// Sends PUBLISH_BLOCKED for a track that a session has no room for.
    pub(super) fn send_publish_blocked(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): RequestKey,
        track: &FullTrackName,
    ) {
        turn.counters.offers_blocked += 1;
        let max = turn.config.limits.matches_per_prefix_max;
        let Some(PrefixSubscription {
            prefix,
            kind: Kind::Tracks { blocked, .. },
        }) = self.subscriptions.open.get_mut(&(handle, id))
        else {
            return;
        };
        if blocked.len() >= max {
            return self.drop_subscription(turn, (handle, id));
        }
        blocked.insert(track.clone());
        if let Some(suffix) = track.namespace.suffix(prefix) {
            let name = track.name.clone();
            turn.with_session(handle, |session, connection| {
                session.publish_blocked(connection, id, suffix, name);
            });
        }
    }

    /// Returns the bytes in memory for what the subscriptions of a session have been notified of.
    pub(crate) fn held_by(&self, handle: Handle) -> u64 {
        let subscriptions = self.subscriptions.of_session(handle);
        let held = subscriptions.map(|subscription| match &subscription.kind {
            Kind::Namespaces { notified } => notified.len() * NOTIFIED_BYTES,
            Kind::Tracks { blocked, .. } => blocked.len() * BLOCKED_BYTES,
        });
        held.sum::<usize>() as u64
    }

    /// Returns how many requests are notified of a namespace.
    pub(crate) fn watchers_of(&self, namespace: &Namespace) -> usize {
        let index = &self.subscriptions.to_namespaces;
        let requests = namespace
            .prefixes()
            .filter_map(|prefix| index.requests.get(&prefix));
        requests.map(Vec::len).sum()
    }

    /// Ends a subscription that covers more than the limit permits.
    fn drop_subscription(&mut self, turn: &mut Turn<'_>, (handle, id): RequestKey) {
        turn.counters.interests_dropped += 1;
        turn.cancel((handle, id), ResetCode::EXCESSIVE_LOAD);
        turn.remove_request((handle, id));
        self.on_prefix_closed(turn, (handle, id));
    }
}

/// Requests by the prefix that they name.
#[derive(Debug, Default)]
struct PrefixIndex {
    requests: BTreeMap<Namespace, Vec<RequestKey>>,
}

impl PrefixIndex {
    fn insert(&mut self, prefix: Namespace, request: RequestKey) {
        self.requests.entry(prefix).or_default().push(request);
    }

    fn remove(&mut self, prefix: &Namespace, request: RequestKey) {
        if let Some(requests) = self.requests.get_mut(prefix) {
            requests.retain(|&other| other != request);
            if requests.is_empty() {
                self.requests.remove(prefix);
            }
        }
    }

    /// Returns the requests for `namespace` or a prefix of it, those with the longest prefix first.
    fn covering(&self, namespace: &Namespace) -> impl Iterator<Item = RequestKey> {
        namespace
            .prefixes()
            .filter_map(|prefix| self.requests.get(&prefix))
            .flatten()
            .copied()
    }
}

/// About what a namespace costs that a subscription has been notified of.
const NOTIFIED_BYTES: usize = 64;
/// About what a track costs of which a subscription has been told that it is blocked.
const BLOCKED_BYTES: usize = 112;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::handles;

    fn namespace(fields: &[&str]) -> Namespace {
        Namespace::new(fields).unwrap()
    }

    #[test]
    fn requests_cover_what_begins_with_their_prefix_until_they_go() {
        let [one, other] = handles();
        let mut index = PrefixIndex::default();
        let (first, second) = ((one, RequestId(0)), (other, RequestId(0)));
        index.insert(Namespace::EMPTY, first);
        index.insert(namespace(&["a"]), second);
        let covering = |index: &PrefixIndex, fields: &[&str]| {
            index.covering(&namespace(fields)).collect::<Vec<_>>()
        };
        assert_eq!(covering(&index, &["a", "b"]), [second, first]);
        assert_eq!(covering(&index, &["ab"]), [first]);
        index.remove(&namespace(&["a"]), first);
        let is_kept = covering(&index, &["a", "b"]) == [second, first];
        assert!(is_kept, "that is none of its requests");
        index.remove(&namespace(&["a"]), second);
        assert_eq!(covering(&index, &["a", "b"]), [first]);
        assert_eq!(index.requests.len(), 1);
    }

    #[test]
    fn subscriptions_of_one_session_and_kind_overlap() {
        let [one, other] = handles();
        let mut subscriptions = PrefixSubscriptions::default();
        let subscription = |fields: &[&str]| PrefixSubscription::to_namespaces(namespace(fields));
        let first = (one, RequestId(0));
        subscriptions.insert(first, PeerKind::Client, subscription(&["a", "b"]));
        let second = (one, RequestId(2));
        assert!(subscriptions.has_overlap(second, &subscription(&["a"])));
        assert!(subscriptions.has_overlap(second, &subscription(&["a", "b", "c"])));
        assert!(!subscriptions.has_overlap(second, &subscription(&["a", "c"])));
        let elsewhere = (other, RequestId(2));
        assert!(!subscriptions.has_overlap(elsewhere, &subscription(&["a"])));
        let prefix = namespace(&["a"]);
        let notified = subscriptions.to_namespaces_of(&namespace(&["a", "b"]));
        assert_eq!((notified, subscriptions.len()), (vec![first], 1));
        assert_eq!(subscriptions.to_tracks_of(&namespace(&["a", "b"])), []);
        assert!(subscriptions.remove(first).is_some());
        assert!(!subscriptions.has_overlap(second, &PrefixSubscription::to_namespaces(prefix)));
        assert_eq!(subscriptions.len(), 0);
    }
}
