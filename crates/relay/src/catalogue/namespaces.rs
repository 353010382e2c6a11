//! Who announced which namespace, and who asked for what lies under it.

use std::collections::{BTreeMap, BTreeSet};

use weir_moqt::{name::Namespace, session::RequestId};
use weir_quic::Handle;

/// Announced namespaces, and the sessions that announced them [moqt-18 §9.5].
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    /// Neighbours first, then in the order in which they came.
    announcers: BTreeMap<Namespace, Vec<Announcer>>,
    count: usize,
}

/// A session that announced a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announcer {
    pub(crate) handle: Handle,
    /// Whether it is another thread of the relay, which passes on what its sessions announce.
    pub(crate) is_neighbour: bool,
    /// Requests by which it announced this one namespace: however many there are, it is one session.
    requests: usize,
}

/// Sessions that may have a track.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Matching {
    /// Those of this thread, the most specific announcement first, then those that came first; then neighbours.
    pub(crate) sessions: Vec<Handle>,
    /// Whether there are more of this thread.
    pub(crate) is_cut: bool,
}

impl Announcements {
    /// Notes an announcement; returns whether it is the first of its namespace.
    pub(crate) fn insert(
        &mut self,
        namespace: Namespace,
        handle: Handle,
        is_neighbour: bool,
    ) -> bool {
        let announcers = self.announcers.entry(namespace).or_default();
        let is_first = announcers.is_empty();
        self.count += 1;
        if let Some(announcer) = announcers.iter_mut().find(|it| it.handle == handle) {
            announcer.requests += 1;
            return is_first;
        }
        let place = if is_neighbour { 0 } else { announcers.len() };
        let announcer = Announcer {
            handle,
            is_neighbour,
            requests: 1,
        };
        announcers.insert(place, announcer);
        is_first
    }

    /// Forgets one announcement of a session; returns whether it was the last of its namespace.
    pub(crate) fn remove(&mut self, namespace: &Namespace, handle: Handle) -> bool {
        let Some(announcers) = self.announcers.get_mut(namespace) else {
            return false;
        };
        let Some(place) = announcers.iter().position(|it| it.handle == handle) else {
            return false;
        };
        self.count -= 1;
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

    /// The sessions that announced exactly `namespace`.
    pub(crate) fn of(&self, namespace: &Namespace) -> &[Announcer] {
        self.announcers.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// The sessions that announced `namespace` or a prefix of it, each once; of those of this thread the first `max`.
    ///
    /// A session counts once, whatever it announces how often, so that it takes the place of no other. Whoever subscribes has
    /// this looked up: at most `max` sessions are passed over at each of a namespace's prefixes.
    pub(crate) fn matching(&self, namespace: &Namespace, max: usize) -> Matching {
        let (mut sessions, mut neighbours) = (Vec::new(), Vec::new());
        let (mut seen, mut is_cut) = (BTreeSet::new(), false);
        for announcers in prefixes(namespace).filter_map(|prefix| self.announcers.get(&prefix)) {
            for announcer in announcers {
                let is_seen = seen.contains(&announcer.handle);
                if !is_seen && !announcer.is_neighbour && sessions.len() >= max {
                    is_cut = true;
                    break;
                }
                if !is_seen {
                    seen.insert(announcer.handle);
                    if announcer.is_neighbour {
                        neighbours.push(announcer.handle);
                    } else {
                        sessions.push(announcer.handle);
                    }
                }
            }
        }
        sessions.append(&mut neighbours);
        Matching { sessions, is_cut }
    }

    /// The namespaces that are `prefix` or lie under it, in their order.
    pub(crate) fn under<'a>(
        &'a self,
        prefix: &'a Namespace,
    ) -> impl Iterator<Item = &'a Namespace> {
        self.announcers
            .range(prefix.clone()..)
            .map(|(namespace, _)| namespace)
            .take_while(move |namespace| namespace.starts_with(prefix))
    }

    /// Number of announcements.
    pub(crate) fn len(&self) -> usize {
        self.count
    }
}

/// Prefixes of namespaces, and the requests of sessions that want to hear of what lies under them.
#[derive(Debug, Default)]
pub(crate) struct Interests {
    requests: BTreeMap<Namespace, Vec<(Handle, RequestId)>>,
    count: usize,
}

impl Interests {
    /// Notes a request.
    pub(crate) fn insert(&mut self, prefix: Namespace, request: (Handle, RequestId)) {
        self.requests.entry(prefix).or_default().push(request);
        self.count += 1;
    }

    /// Forgets a request.
    pub(crate) fn remove(&mut self, prefix: &Namespace, request: (Handle, RequestId)) {
        let Some(requests) = self.requests.get_mut(prefix) else {
            return;
        };
        let before = requests.len();
        requests.retain(|&other| other != request);
        self.count -= before - requests.len();
        if requests.is_empty() {
            self.requests.remove(prefix);
        }
    }

    /// The requests for `namespace` or a prefix of it, the longest first.
    pub(crate) fn covering(
        &self,
        namespace: &Namespace,
    ) -> impl Iterator<Item = (Handle, RequestId)> {
        prefixes(namespace)
            .filter_map(|prefix| self.requests.get(&prefix))
            .flatten()
            .copied()
    }

    /// Number of requests.
    pub(crate) fn len(&self) -> usize {
        self.count
    }
}

/// A namespace and its prefixes, the longest first: whoever announced exactly a track's namespace is to be asked before
/// others [moqt-18 §6.2].
fn prefixes(namespace: &Namespace) -> impl Iterator<Item = Namespace> {
    let fields = (0..=namespace.fields_len()).rev();
    fields.filter_map(|fields| Namespace::new(namespace.fields().take(fields)).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::handles;

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
        announcements.insert(namespace(&["a", "b"]), one, false);
        announcements.insert(namespace(&["a"]), other, false);
        announcements.insert(namespace(&["a"]), one, false);
        assert_eq!(matching(&announcements, &["a"]), [other, one]);
        assert_eq!(matching(&announcements, &["a", "b", "c"]), [one, other]);
        assert_eq!(matching(&announcements, &["ab"]), []);
        assert_eq!(matching(&announcements, &[]), []);
        announcements.insert(Namespace::EMPTY, other, false);
        assert_eq!(matching(&announcements, &["ab"]), [other]);
        assert_eq!(announcements.len(), 4);
    }

    #[test]
    fn each_announcement_is_withdrawn_by_itself() {
        let [one, other] = handles();
        let a = namespace(&["a"]);
        let mut announcements = Announcements::default();
        assert!(announcements.insert(a.clone(), one, false));
        assert!(!announcements.insert(a.clone(), one, false));
        assert!(!announcements.remove(&a, other), "it announced nothing");
        assert!(!announcements.remove(&a, one));
        assert_eq!(matching(&announcements, &["a"]), [one]);
        assert_eq!((announcements.len(), announcements.of(&a).len()), (1, 1));
        assert!(announcements.remove(&a, one));
        assert_eq!(matching(&announcements, &["a"]), []);
        assert!(!announcements.remove(&a, one), "nothing goes twice");
        assert_eq!(announcements.len(), 0);
        assert!(announcements.announcers.is_empty());
    }

    #[test]
    fn a_session_takes_one_place_however_often_it_announces() {
        let [hostile, honest, late] = handles();
        let mut announcements = Announcements::default();
        for _ in 0..5000 {
            announcements.insert(namespace(&["a", "b"]), hostile, false);
            announcements.insert(Namespace::EMPTY, hostile, false);
        }
        announcements.insert(namespace(&["a"]), honest, false);
        let found = |max| announcements.matching(&namespace(&["a", "b"]), max);
        let (sessions, is_cut) = (vec![hostile, honest], false);
        assert_eq!(found(2), Matching { sessions, is_cut });
        let (sessions, is_cut) = (vec![hostile], true);
        assert_eq!(found(1), Matching { sessions, is_cut });
        assert_eq!(matching(&announcements, &["c"]), [hostile]);
        announcements.insert(namespace(&["a"]), late, false);
        let found = announcements.matching(&namespace(&["a", "b"]), 2);
        let (sessions, is_cut) = (vec![hostile, honest], true);
        assert_eq!(found, Matching { sessions, is_cut });
    }

    #[test]
    fn neighbours_are_found_whatever_others_announce() {
        let [one, other, near, far] = handles();
        let mut announcements = Announcements::default();
        for handle in [one, other] {
            announcements.insert(namespace(&["a", "b"]), handle, false);
            announcements.insert(namespace(&["a"]), handle, false);
        }
        announcements.insert(namespace(&["a"]), near, true);
        announcements.insert(namespace(&["a", "b"]), far, true);
        let found = announcements.matching(&namespace(&["a", "b"]), 1);
        let (sessions, is_cut) = (vec![one, far, near], true);
        assert_eq!(found, Matching { sessions, is_cut });
    }

    #[test]
    fn what_lies_under_a_prefix_is_found() {
        let [one] = handles();
        let mut announcements = Announcements::default();
        for fields in [&["a"][..], &["a", "b"], &["ab"], &["b"]] {
            announcements.insert(namespace(fields), one, false);
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
    fn requests_cover_what_begins_with_their_prefix_until_they_go() {
        let [one, other] = handles();
        let mut interests = Interests::default();
        let (first, second) = ((one, RequestId(0)), (other, RequestId(0)));
        interests.insert(Namespace::EMPTY, first);
        interests.insert(namespace(&["a"]), second);
        let covering = |interests: &Interests, fields: &[&str]| {
            interests.covering(&namespace(fields)).collect::<Vec<_>>()
        };
        assert_eq!(covering(&interests, &["a", "b"]), [second, first]);
        assert_eq!(covering(&interests, &["ab"]), [first]);
        interests.remove(&namespace(&["a"]), first);
        assert_eq!(interests.len(), 2, "that is none of its requests");
        interests.remove(&namespace(&["a"]), second);
        assert_eq!(covering(&interests, &["a", "b"]), [first]);
        assert_eq!(interests.len(), 1);
    }
}
