//! Who announced which namespace.

use std::collections::BTreeMap;

use weir_moqt::{name::Namespace, session::RequestId};
use weir_quic::Handle;

/// Announced namespaces and their publishers [moqt-18 §9.5].
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    publishers: BTreeMap<Namespace, Vec<(Handle, RequestId)>>,
    count: usize,
}

impl Namespaces {
    pub(crate) fn insert(&mut self, namespace: Namespace, publisher: (Handle, RequestId)) {
        self.publishers
            .entry(namespace)
            .or_default()
            .push(publisher);
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, namespace: &Namespace, publisher: (Handle, RequestId)) {
        let Some(publishers) = self.publishers.get_mut(namespace) else {
            return;
        };
        let before = publishers.len();
        publishers.retain(|&other| other != publisher);
        self.count -= before - publishers.len();
        if publishers.is_empty() {
            self.publishers.remove(namespace);
        }
    }

    /// The sessions that announced `namespace` or a prefix of it, each once, shortest prefix first.
    pub(crate) fn matching(&self, namespace: &Namespace) -> Vec<Handle> {
        let mut found: Vec<Handle> = Vec::new();
        for fields in 0..=namespace.fields_len() {
            let Ok(prefix) = Namespace::new(namespace.fields().take(fields)) else {
                continue;
            };
            for &(handle, _) in self.publishers.get(&prefix).into_iter().flatten() {
                if !found.contains(&handle) {
                    found.push(handle);
                }
            }
        }
        found
    }

    /// Number of announcements.
    pub(crate) fn len(&self) -> usize {
        self.count
    }
}

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
            namespaces.insert(namespace(&["a"]), (one, RequestId(request)));
        }
        namespaces.remove(&namespace(&["a"]), (one, RequestId(0)));
        assert_eq!(namespaces.matching(&namespace(&["a"])), [one]);
        namespaces.remove(&namespace(&["a"]), (one, RequestId(0)));
        assert_eq!(namespaces.len(), 1, "nothing is withdrawn twice");
        namespaces.remove(&namespace(&["a"]), (one, RequestId(2)));
        assert_eq!(namespaces.matching(&namespace(&["a"])), []);
        assert_eq!(namespaces.len(), 0);
        assert!(namespaces.publishers.is_empty());
    }
}
