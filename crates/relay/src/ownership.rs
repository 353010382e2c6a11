//! Ownership: namespaces that are reserved to one publisher while it is connected.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use weir_moqt::name::Namespace;

/// The reserved namespaces of a process. Clones share them, so that a reservation holds on all threads.
#[derive(Clone, Debug, Default)]
pub struct Ownership(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    reserved: Mutex<BTreeMap<Namespace, Reservation>>,
    /// How often a namespace was reserved that was not before.
    revision: AtomicU64,
}

/// A reserved namespace.
#[derive(Debug)]
struct Reservation {
    owner: String,
    /// Sessions of the owner that reserved it.
    sessions: usize,
}

/// A reservation by one session, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    ownership: Ownership,
    namespace: Namespace,
}

impl Ownership {
    /// Returns whether `owner` may publish in a namespace: neither it nor a prefix of it is reserved to somebody else.
    pub(crate) fn admits(&self, namespace: &Namespace, owner: Option<&str>) -> bool {
        let reserved = self.lock();
        if reserved.is_empty() {
            return true;
        }
        let prefixes = (0..=namespace.fields_len())
            .filter_map(|fields| Namespace::new(namespace.fields().take(fields)).ok());
        let mut owners = prefixes.filter_map(|prefix| Some(&reserved.get(&prefix)?.owner));
        owners.all(|other| owner == Some(other))
    }

    /// Reserves a namespace to `owner`; `None` if it is reserved to somebody else.
    pub(crate) fn reserve(&self, namespace: &Namespace, owner: &str) -> Option<Reserved> {
        if !self.admits(namespace, Some(owner)) {
            return None;
        }
        let mut reserved = self.lock();
        let entry = reserved.entry(namespace.clone());
        let reservation = entry.or_insert_with(|| {
            self.0.revision.fetch_add(1, Ordering::Relaxed);
            Reservation {
                owner: owner.to_owned(),
                sessions: 0,
            }
        });
        if reservation.owner != owner {
            return None;
        }
        reservation.sessions += 1;
        drop(reserved);
        Some(Reserved {
            ownership: self.clone(),
            namespace: namespace.clone(),
        })
    }

    /// Returns a number that changes when a namespace is reserved, so that others may have to leave it.
    pub(crate) fn revision(&self) -> u64 {
        self.0.revision.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Namespace, Reservation>> {
        self.0
            .reserved
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut reserved = self.ownership.lock();
        if let Some(reservation) = reserved.get_mut(&self.namespace) {
            reservation.sessions -= 1;
            if reservation.sessions == 0 {
                reserved.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(fields: &[&str]) -> Namespace {
        Namespace::new(fields).unwrap()
    }

    #[test]
    fn a_namespace_is_reserved_as_long_as_a_session_of_its_owner_holds_it() {
        let ownership = Ownership::default();
        let show = namespace(&["live", "show"]);
        let first = ownership.reserve(&show, "alice").unwrap();
        let revision = ownership.revision();
        let again = ownership.reserve(&show, "alice").unwrap();
        assert_eq!(ownership.revision(), revision, "she had it");
        assert!(ownership.reserve(&show, "mallory").is_none());
        let below = namespace(&["live", "show", "camera"]);
        for (name, owner, admitted) in [
            (&show, Some("alice"), true),
            (&below, Some("alice"), true),
            (&show, Some("mallory"), false),
            (&below, None, false),
            (&namespace(&["live"]), None, true),
            (&namespace(&["live", "showing"]), None, true),
        ] {
            assert_eq!(ownership.admits(name, owner), admitted, "{name} {owner:?}");
        }
        drop(first);
        assert!(!ownership.admits(&show, None), "another session holds it");
        drop(again);
        assert!(ownership.admits(&show, None));
        assert!(ownership.lock().is_empty());
    }
}
