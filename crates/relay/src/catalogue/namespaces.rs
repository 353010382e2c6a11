//! PUBLISH_NAMESPACE: announced namespaces, and the sessions that announced them. In a fleet, also the namespaces that
//! other relays have registered.

use std::collections::BTreeMap;

use weir_moqt::{error::RequestErrorCode, message::RequestOk, name::Namespace};
use weir_quic::Handle;

use crate::{
    catalogue::Catalogue,
    effect::Effect,
    ids::RequestKey,
    registry::RelayId,
    sessions::peer::{PeerKind, Purpose},
    turn::Turn,
};

/// Announced namespaces, and the sessions that announced them [moqt-18 §9.5].
#[derive(Debug, Default)]
pub(super) struct Announcements {
    /// Links first, then clients in the order of their announcements.
    announcers: BTreeMap<Namespace, Vec<Announcer>>,
    /// Number of announcements of clients.
    from_clients: usize,
}

/// Who has a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// A session announced it.
    Session(Handle),
    /// A relay of the fleet registered it.
    Relay(RelayId),
}

/// A session that announced a namespace, or a relay that registered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Announcer {
    who: Who,
    /// What the session is to this relay. The relay behind a link passes on what its clients announce.
    kind: PeerKind,
    /// Number of its open PUBLISH_NAMESPACE requests for this one namespace.
    requests: usize,
}

impl Announcer {
    /// Returns the session that announced the namespace, if there is one.
    fn session(&self) -> Option<Handle> {
        match self.who {
            Who::Session(handle) => Some(handle),
            Who::Relay(_) => None,
        }
    }

    /// Returns the relay that registered the namespace, if it was one.
    fn relay(&self) -> Option<RelayId> {
        match self.who {
            Who::Session(_) => None,
            Who::Relay(relay) => Some(relay),
        }
    }
}

/// Sessions that may have a track.
#[derive(Debug, PartialEq, Eq)]
struct Matching {
    /// Clients, those with the most specific announcement first, then the earliest; then links.
    sessions: Vec<Handle>,
    /// Whether further clients announced it.
    is_cut: bool,
}

impl Announcements {
    /// Adds an announcement; returns whether it is the first of its namespace.
    fn insert(&mut self, namespace: Namespace, who: Who, kind: PeerKind) -> bool {
        let announcers = self.announcers.entry(namespace).or_default();
        let is_first = announcers.is_empty();
        self.from_clients += usize::from(!kind.is_link());
        if let Some(announcer) = announcers.iter_mut().find(|it| it.who == who) {
            announcer.requests += 1;
            return is_first;
        }
        let place = if kind.is_link() { 0 } else { announcers.len() };
        let announcer = Announcer {
            who,
            kind,
            requests: 1,
        };
        announcers.insert(place, announcer);
        is_first
    }

    /// Removes one announcement; returns whether it was the last of its namespace.
    fn remove(&mut self, namespace: &Namespace, who: Who) -> bool {
        let Some(announcers) = self.announcers.get_mut(namespace) else {
            return false;
        };
        let Some(place) = announcers.iter().position(|it| it.who == who) else {
            return false;
        };
        self.from_clients -= usize::from(!announcers[place].kind.is_link());
        announcers[place].requests -= 1;
        if announcers[place].requests == 0 {
            announcers.remove(place);
        }
        let is_last = announcers.is_empty();
        if is_last {
            self.announcers.remove(namespace);
        }
        is_last
    }

    /// Returns who announced exactly `namespace`.
    fn of(&self, namespace: &Namespace) -> &[Announcer] {
        self.announcers.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// Returns the sessions that announced `namespace` or a prefix of it: all links, and the first `max` clients.
    ///
    /// A session counts once, however often it announces. Every subscription causes this look-up, which visits at most
    /// `max` clients at each prefix of the namespace.
    fn matching(&self, namespace: &Namespace, max: usize) -> Matching {
        let (mut sessions, mut links) = (Vec::new(), Vec::new());
        // Sessions of longer prefixes, which are asked before others [moqt-18 §6.2]. One prefix has each session once.
        let (mut seen, mut is_cut) = (Vec::new(), false);
        for announcers in namespace
            .prefixes()
            .filter_map(|prefix| self.announcers.get(&prefix))
        {
            for announcer in announcers {
                let Some(handle) = announcer.session() else {
                    continue;
                };
                if seen.binary_search(&handle).is_ok() {
                    continue;
                }
                if announcer.kind.is_link() {
                    links.push(handle);
                } else if sessions.len() < max {
                    sessions.push(handle);
                } else {
                    is_cut = true;
                    break;
                }
            }
            seen.clear();
            seen.extend(sessions.iter().chain(&links).copied());
            seen.sort_unstable();
        }
        sessions.append(&mut links);
        Matching { sessions, is_cut }
    }

    /// Returns the relays that registered `namespace` or a prefix of it, those with the longest prefix first.
    fn relays(&self, namespace: &Namespace) -> Vec<RelayId> {
        let mut relays = Vec::new();
        for announcers in namespace
            .prefixes()
            .filter_map(|prefix| self.announcers.get(&prefix))
        {
            let mut registered: Vec<_> = announcers.iter().filter_map(Announcer::relay).collect();
            registered.sort_unstable();
            registered.retain(|relay| !relays.contains(relay));
            relays.append(&mut registered);
        }
        relays
    }

    /// Returns the announced namespaces that are `prefix` or lie under it, sorted.
    pub(super) fn under<'a>(
        &'a self,
        prefix: &'a Namespace,
    ) -> impl Iterator<Item = &'a Namespace> {
        self.under_from(prefix, prefix)
    }

    /// Returns the same namespaces from one of them on.
    pub(super) fn under_from<'a>(
        &'a self,
        prefix: &'a Namespace,
        from: &Namespace,
    ) -> impl Iterator<Item = &'a Namespace> + use<'a> {
        self.announcers
            .range(from.clone()..)
            .map(|(namespace, _)| namespace)
            .take_while(move |namespace| namespace.starts_with(prefix))
    }

    /// Returns the number of announcements of clients.
    pub(super) fn client_count(&self) -> usize {
        self.from_clients
    }
}

impl Catalogue {
    /// Accepts or refuses a PUBLISH_NAMESPACE request.
    pub(crate) fn on_publish_namespace(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): RequestKey,
        namespace: &Namespace,
    ) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let kind = peer.kind();
        let max = turn.config.limits.namespaces_per_session_max;
        if !kind.is_link() && peer.counts().namespaces >= max {
            turn.counters.refused_limit_namespaces += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        let max = turn.config.limits.namespaces_max;
        if !kind.is_link() && self.announcements.from_clients >= max {
            turn.counters.refused_limit_announcements += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        if !turn.adds_namespace((handle, id)) {
            turn.counters.refused_limit_announcements_address += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        turn.insert_request((handle, id), Purpose::Namespace(namespace.clone()));
        turn.accept((handle, id), RequestOk::default());
        self.announce(turn, handle, namespace);
    }

    /// Adds a namespace that a session announced, or that the relay behind a link has.
    pub(crate) fn announce(&mut self, turn: &mut Turn<'_>, handle: Handle, namespace: &Namespace) {
        let kind = turn.kind(handle);
        if kind.is_link() && *namespace == Namespace::EMPTY {
            return turn.push(Effect::FallbackFound(handle));
        }
        let announcements = &mut self.announcements;
        if announcements.insert(namespace.clone(), Who::Session(handle), kind) {
            self.send_namespace_to_all(turn, namespace);
        }
        turn.push(Effect::NamespaceAnnounced(namespace.clone(), handle));
    }

    /// Removes a namespace that a session announced and does not any more, or whose session is gone.
    pub(crate) fn withdraw(&mut self, turn: &mut Turn<'_>, handle: Handle, namespace: &Namespace) {
        if *namespace == Namespace::EMPTY && self.fallbacks.contains(&handle) {
            return turn.push(Effect::FallbackLost(handle));
        }
        if self.announcements.remove(namespace, Who::Session(handle)) {
            self.send_namespace_done(turn, namespace);
        }
        turn.push(Effect::NamespaceWithdrawn(namespace.clone()));
    }

    /// Adds a namespace that a relay of the fleet has registered.
    pub(crate) fn register(&mut self, turn: &mut Turn<'_>, relay: RelayId, namespace: &Namespace) {
        let announcements = &mut self.announcements;
        let who = Who::Relay(relay);
        if announcements.insert(namespace.clone(), who, PeerKind::Fleet) {
            self.send_namespace_to_all(turn, namespace);
        }
        turn.push(Effect::NamespaceRegistered(namespace.clone()));
    }

    /// Removes a namespace that a relay of the fleet no longer has.
    pub(crate) fn deregister(
        &mut self,
        turn: &mut Turn<'_>,
        relay: RelayId,
        namespace: &Namespace,
    ) {
        if self.announcements.remove(namespace, Who::Relay(relay)) {
            self.send_namespace_done(turn, namespace);
        }
        turn.push(Effect::NamespaceWithdrawn(namespace.clone()));
    }

    /// Sets the established link to a relay of the fleet, or removes it.
    pub(crate) fn set_fleet_link(&mut self, relay: RelayId, link: Option<Handle>) {
        self.fleet_links.remove(&relay);
        self.fleet_links.extend(link.map(|handle| (relay, handle)));
    }

    /// Returns the established link to a relay of the fleet.
    pub(crate) fn fleet_link(&self, relay: RelayId) -> Option<Handle> {
        self.fleet_links.get(&relay).copied()
    }

    /// Returns the relays of the fleet that may have tracks of a namespace, in order of preference.
    pub(crate) fn relays_of(&self, namespace: &Namespace) -> Vec<RelayId> {
        self.announcements.relays(namespace)
    }

    /// Returns the links that are asked for a track which no session announced: those to relays of the fleet that
    /// registered its namespace, then upstream relays.
    pub(crate) fn fallbacks_for(&self, namespace: &Namespace) -> Vec<Handle> {
        let relays = self.relays_of(namespace).into_iter();
        let links = relays.filter_map(|relay| self.fleet_link(relay));
        links.chain(self.fallbacks.iter().copied()).collect()
    }

    /// Adds a link that is asked for namespaces that no session announced, at this place among them.
    pub(crate) fn insert_fallback(&mut self, place: usize, handle: Handle) {
        if !self.fallbacks.contains(&handle) {
            let place = place.min(self.fallbacks.len());
            self.fallbacks.insert(place, handle);
        }
    }

    /// Removes a link that was asked for namespaces that no session announced; returns whether it was.
    pub(crate) fn remove_fallback(&mut self, handle: Handle) -> bool {
        let before = self.fallbacks.len();
        self.fallbacks.retain(|&other| other != handle);
        self.fallbacks.len() < before
    }

    /// Returns the links that are asked for namespaces that no session announced, in order of preference.
    pub(crate) fn fallbacks(&self) -> &[Handle] {
        &self.fallbacks
    }

    /// Returns whether a session announces exactly this namespace, to be passed on to sessions of a kind.
    pub(crate) fn is_announced_for(&self, namespace: &Namespace, kind: PeerKind) -> bool {
        let mut announcers = self.announcements.of(namespace).iter();
        announcers.any(|announcer| announcer.kind.serves(kind))
    }

    /// Returns whether a session announces exactly this namespace.
    pub(crate) fn is_announced_by(&self, namespace: &Namespace, handle: Handle) -> bool {
        let mut announcers = self.announcements.of(namespace).iter();
        announcers.any(|announcer| announcer.session() == Some(handle))
    }

    /// Returns the sessions that announced a namespace or a prefix of it, and so may have its tracks: links, and as
    /// many clients as the configuration permits.
    pub(crate) fn announcers_of(&self, turn: &mut Turn<'_>, namespace: &Namespace) -> Vec<Handle> {
        let max = turn.config.limits.announcers_per_track_max;
        let found = self.announcements.matching(namespace, max);
        turn.counters.announcers_cut += u64::from(found.is_cut);
        found.sessions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::handles;

    fn announce(
        announcements: &mut Announcements,
        namespace: Namespace,
        handle: Handle,
        kind: PeerKind,
    ) -> bool {
        announcements.insert(namespace, Who::Session(handle), kind)
    }

    fn namespace(fields: &[&str]) -> Namespace {
        Namespace::new(fields).unwrap()
    }

    fn matching(announcements: &Announcements, fields: &[&str]) -> Vec<Handle> {
        let found = announcements.matching(&namespace(fields), usize::MAX);
        assert!(!found.is_cut);
        found.sessions
    }

    #[test]
    fn prefixes_match_field_by_field_and_each_session_once() {
        let [one, other] = handles();
        let mut announcements = Announcements::default();
        announce(
            &mut announcements,
            namespace(&["a", "b"]),
            one,
            PeerKind::Client,
        );
        announce(
            &mut announcements,
            namespace(&["a"]),
            other,
            PeerKind::Client,
        );
        announce(&mut announcements, namespace(&["a"]), one, PeerKind::Client);
        assert_eq!(matching(&announcements, &["a"]), [other, one]);
        assert_eq!(matching(&announcements, &["a", "b", "c"]), [one, other]);
        assert_eq!(matching(&announcements, &["ab"]), []);
        assert_eq!(matching(&announcements, &[]), []);
        announce(
            &mut announcements,
            Namespace::EMPTY,
            other,
            PeerKind::Client,
        );
        assert_eq!(matching(&announcements, &["ab"]), [other]);
        assert_eq!(announcements.client_count(), 4);
    }

    #[test]
    fn each_announcement_is_withdrawn_by_itself() {
        let [one, other] = handles();
        let a = namespace(&["a"]);
        let mut announcements = Announcements::default();
        assert!(announce(
            &mut announcements,
            a.clone(),
            one,
            PeerKind::Client
        ));
        assert!(!announce(
            &mut announcements,
            a.clone(),
            one,
            PeerKind::Client
        ));
        assert!(
            !announcements.remove(&a, Who::Session(other)),
            "it announced nothing"
        );
        assert!(!announcements.remove(&a, Who::Session(one)));
        assert_eq!(matching(&announcements, &["a"]), [one]);
        assert_eq!(
            (announcements.client_count(), announcements.of(&a).len()),
            (1, 1)
        );
        assert!(announcements.remove(&a, Who::Session(one)));
        assert_eq!(matching(&announcements, &["a"]), []);
        assert!(
            !announcements.remove(&a, Who::Session(one)),
            "nothing goes twice"
        );
        assert_eq!(announcements.client_count(), 0);
        assert!(announcements.announcers.is_empty());
    }

    #[test]
    fn a_session_takes_one_place_however_often_it_announces() {
        let [hostile, honest, late] = handles();
        let mut announcements = Announcements::default();
        for _ in 0..5000 {
            announce(
                &mut announcements,
                namespace(&["a", "b"]),
                hostile,
                PeerKind::Client,
            );
            announce(
                &mut announcements,
                Namespace::EMPTY,
                hostile,
                PeerKind::Client,
            );
        }
        announce(
            &mut announcements,
            namespace(&["a"]),
            honest,
            PeerKind::Client,
        );
        let found = |max| announcements.matching(&namespace(&["a", "b"]), max);
        let (sessions, is_cut) = (vec![hostile, honest], false);
        assert_eq!(found(2), Matching { sessions, is_cut });
        let (sessions, is_cut) = (vec![hostile], true);
        assert_eq!(found(1), Matching { sessions, is_cut });
        assert_eq!(matching(&announcements, &["c"]), [hostile]);
        announce(
            &mut announcements,
            namespace(&["a"]),
            late,
            PeerKind::Client,
        );
        let found = announcements.matching(&namespace(&["a", "b"]), 2);
        let (sessions, is_cut) = (vec![hostile, honest], true);
        assert_eq!(found, Matching { sessions, is_cut });
    }

    #[test]
    fn links_are_found_whatever_others_announce() {
        let [one, other, near, far] = handles();
        let mut announcements = Announcements::default();
        for handle in [one, other] {
            announce(
                &mut announcements,
                namespace(&["a", "b"]),
                handle,
                PeerKind::Client,
            );
            announce(
                &mut announcements,
                namespace(&["a"]),
                handle,
                PeerKind::Client,
            );
        }
        announce(
            &mut announcements,
            namespace(&["a"]),
            near,
            PeerKind::Sibling,
        );
        announce(
            &mut announcements,
            namespace(&["a", "b"]),
            far,
            PeerKind::Sibling,
        );
        let found = announcements.matching(&namespace(&["a", "b"]), 1);
        let (sessions, is_cut) = (vec![one, far, near], true);
        assert_eq!(found, Matching { sessions, is_cut });
    }

    #[test]
    fn what_lies_under_a_prefix_is_found() {
        let [one] = handles();
        let mut announcements = Announcements::default();
        for fields in [&["a"][..], &["a", "b"], &["ab"], &["b"]] {
            announce(&mut announcements, namespace(fields), one, PeerKind::Client);
        }
        let under = |fields: &[&str]| {
            announcements
                .under(&namespace(fields))
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(under(&["a"]), [namespace(&["a"]), namespace(&["a", "b"])]);
        assert_eq!(under(&["a", "b"]), [namespace(&["a", "b"])]);
        assert_eq!(under(&["c"]), []);
        assert_eq!(under(&[]).len(), 4);
    }

    #[test]
    fn relays_are_found_by_the_longest_prefix_and_sessions_do_not_see_them() {
        let [session] = handles();
        let mut announcements = Announcements::default();
        let (near, far) = (RelayId(2), RelayId(1));
        for (relay, fields) in [(far, &["a"][..]), (near, &["a"]), (near, &["a", "b"])] {
            let who = Who::Relay(relay);
            announcements.insert(namespace(fields), who, PeerKind::Fleet);
        }
        announce(
            &mut announcements,
            namespace(&["a"]),
            session,
            PeerKind::Client,
        );
        assert_eq!(
            announcements.relays(&namespace(&["a", "b", "c"])),
            [near, far]
        );
        assert_eq!(announcements.relays(&namespace(&["a"])), [far, near]);
        assert_eq!(announcements.relays(&namespace(&["b"])), []);
        assert_eq!(matching(&announcements, &["a", "b"]), [session]);
        assert_eq!(announcements.client_count(), 1);
        assert!(!announcements.remove(&namespace(&["a"]), Who::Relay(near)));
        assert!(announcements.remove(&namespace(&["a", "b"]), Who::Relay(near)));
        assert_eq!(announcements.relays(&namespace(&["a", "b"])), [far]);
    }
}
