//! Who announced which namespace, or asked for what lies under it.

use std::collections::{BTreeMap, BTreeSet};

use weir_moqt::{name::Namespace, session::RequestId};
use weir_quic::Handle;

/// Namespaces, and the requests that name them [moqt-18 §9.5].
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    requests: BTreeMap<Namespace, Vec<(Handle, RequestId)>>,
    count: usize,
}

impl Namespaces {
    /// Notes a request; returns whether it is the first for its namespace.
    pub(crate) fn insert(&mut self, namespace: Namespace, request: (Handle, RequestId)) -> bool {
        let requests = self.requests.entry(namespace).or_default();
        requests.push(request);
        self.count += 1;
        requests.len() == 1
    }

    /// Forgets a request; returns whether it was the last for its namespace.
    pub(crate) fn remove(&mut self, namespace: &Namespace, request: (Handle, RequestId)) -> bool {
        let Some(requests) = self.requests.get_mut(namespace) else {
            return false;
        };
        let before = requests.len();
        requests.retain(|&other| other != request);
        self.count -= before - requests.len();
        let is_last = requests.is_empty();
        if is_last {
            self.requests.remove(namespace);
        }
        is_last
    }

    /// The requests for exactly `namespace`.
    pub(crate) fn of(&self, namespace: &Namespace) -> &[(Handle, RequestId)] {
        self.requests.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// The requests for `namespace` or a prefix of it, shortest prefix first.
    pub(crate) fn covering(
        &self,
        namespace: &Namespace,
    ) -> impl Iterator<Item = (Handle, RequestId)> {
        (0..=namespace.fields_len())
            .filter_map(|fields| Namespace::new(namespace.fields().take(fields)).ok())
            .filter_map(|prefix| self.requests.get(&prefix))
            .flatten()
            .copied()
    }

    /// The sessions with a request for `namespace` or a prefix of it, each once, shortest prefix first; of the first
    /// [`MATCHES_MAX`] requests, since whoever subscribes has it looked up.
    pub(crate) fn matching(&self, namespace: &Namespace) -> Vec<Handle> {
        let mut seen = BTreeSet::new();
        self.covering(namespace)
            .take(MATCHES_MAX)
            .filter_map(|(handle, _)| seen.insert(handle).then_some(handle))
            .collect()
    }

    /// The namespaces that are `prefix` or lie under it, in their order.
    pub(crate) fn under<'a>(
        &'a self,
        prefix: &'a Namespace,
    ) -> impl Iterator<Item = &'a Namespace> {
        self.requests
            .range(prefix.clone()..)
            .map(|(namespace, _)| namespace)
            .take_while(move |namespace| namespace.starts_with(prefix))
    }

    /// Number of requests.
    pub(crate) fn len(&self) -> usize {
        self.count
    }
}

/// Requests that are looked at to find out who may have a track.
const MATCHES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::handles;

    fn namespace(fields: &[&str]) -> Namespace {
        Namespace::new(fields).unwrap()
    }

    #[test]
    fn prefixes_match_field_by_field_and_each_session_once() {
        let [one, other] = handles();
        let mut namespaces = Namespaces::default();
        namespaces.insert(namespace(&["a", "b"]), (one, RequestId(0)));
        namespaces.insert(namespace(&["a"]), (other, RequestId(0)));
        namespaces.insert(namespace(&["a"]), (one, RequestId(2)));
        assert_eq!(namespaces.matching(&namespace(&["a"])), [other, one]);
        assert_eq!(
            namespaces.matching(&namespace(&["a", "b", "c"])),
            [other, one]
        );
        assert_eq!(namespaces.matching(&namespace(&["ab"])), []);
        assert_eq!(namespaces.matching(&Namespace::EMPTY), []);
        namespaces.insert(Namespace::EMPTY, (other, RequestId(4)));
        assert_eq!(namespaces.matching(&namespace(&["ab"])), [other]);
        assert_eq!(namespaces.len(), 4);
    }

    #[test]
    fn each_announcement_is_withdrawn_by_itself() {
        let [one, _] = handles();
        let mut namespaces = Namespaces::default();
        for request in [0, 2] {
            let is_first = namespaces.insert(namespace(&["a"]), (one, RequestId(request)));
            assert_eq!(is_first, request == 0);
        }
        assert!(!namespaces.remove(&namespace(&["a"]), (one, RequestId(0))));
        assert_eq!(namespaces.matching(&namespace(&["a"])), [one]);
        namespaces.remove(&namespace(&["a"]), (one, RequestId(0)));
        assert_eq!(namespaces.len(), 1, "nothing is withdrawn twice");
        assert!(namespaces.remove(&namespace(&["a"]), (one, RequestId(2))));
        assert_eq!(namespaces.matching(&namespace(&["a"])), []);
        assert_eq!(namespaces.len(), 0);
        assert!(namespaces.requests.is_empty());
    }

    #[test]
    fn so_many_requests_are_looked_at_and_no_more() {
        let [one, other] = handles();
        for (count, expected) in [
            (MATCHES_MAX - 1, vec![one, other]),
            (MATCHES_MAX, vec![one]),
        ] {
            let mut namespaces = Namespaces::default();
            for request in 0..count as u64 {
                namespaces.insert(namespace(&["a"]), (one, RequestId(request)));
            }
            namespaces.insert(namespace(&["a", "b"]), (other, RequestId(0)));
            assert_eq!(namespaces.matching(&namespace(&["a", "b"])), expected);
        }
    }

    #[test]
    fn what_lies_under_a_prefix_is_found() {
        let [one] = handles();
        let mut namespaces = Namespaces::default();
        for fields in [&["a"][..], &["a", "b"], &["ab"], &["b"]] {
            namespaces.insert(namespace(fields), (one, RequestId(0)));
        }
        let under = |fields: &[&str]| {
            namespaces
                .under(&namespace(fields))
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(under(&["a"]), [namespace(&["a"]), namespace(&["a", "b"])]);
        assert_eq!(under(&["a", "b"]), [namespace(&["a", "b"])]);
        assert_eq!(under(&["c"]), []);
        assert_eq!(under(&[]).len(), 4);
    }
}
