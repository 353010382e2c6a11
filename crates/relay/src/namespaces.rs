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
