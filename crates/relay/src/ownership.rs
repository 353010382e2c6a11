//! Ownership: namespaces that are reserved to one publisher while it is connected.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use weir_moqt::{name::Namespace, session::RequestId};

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
    /// Requests of the owner that reserved it.
    requests: usize,
}

/// A reservation by one request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    ownership: Ownership,
    namespace: Namespace,
}

/// The reservations of one session. Those of its requests that have ended last, since it may publish again, but only the newest.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    /// By the request that publishes in the namespace.
    live: BTreeMap<RequestId, Reserved>,
    /// Those of requests that have ended, the oldest first.
    ended: VecDeque<Reserved>,
}

impl Reservations {
    /// Adds the reservation of a request.
    pub(crate) fn insert(&mut self, request: RequestId, reserved: Reserved) {
        self.live.insert(request, reserved);
    }

    /// Removes the reservation of a request that was refused.
    pub(crate) fn on_refused(&mut self, request: RequestId) {
        self.live.remove(&request);
    }

    /// Notes that a request has ended.
    pub(crate) fn on_ended(&mut self, request: RequestId) {
        let Some(reserved) = self.live.remove(&request) else {
            return;
        };
        self.ended.retain(|it| it.namespace != reserved.namespace);
        self.ended.push_back(reserved);
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
    }

    /// Returns about how many bytes the reservations are in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let all = self.live.values().chain(&self.ended);
        all.map(|it| it.namespace.bytes_len() + RESERVED_BYTES)
            .sum()
    }
}

/// Namespaces that stay reserved to a session though none of its requests publishes in them.
const ENDED_MAX: usize = 64;
/// About what a reservation costs beside its namespace.
const RESERVED_BYTES: usize = 256;

impl Ownership {
    /// Returns whether `owner` may publish in a namespace: neither it nor a prefix of it is reserved to somebody else.
    pub(crate) fn admits(&self, namespace: &Namespace, owner: Option<&str>) -> bool {
        let reserved = self.lock();
        if reserved.is_empty() {
            return true;
        }
        let prefixes = namespace.prefixes();
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
                requests: 0,
            }
        });
        if reservation.owner != owner {
            return None;
        }
        reservation.requests += 1;
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
            reservation.requests -= 1;
            if reservation.requests == 0 {
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

    #[test]
    fn what_requests_reserved_is_bounded_after_their_end() {
        let ownership = Ownership::default();
        let name = |number: u64| namespace(&["live", &number.to_string()]);
        let reserve = |number| ownership.reserve(&name(number), "alice").unwrap();
        let mut session = Reservations::default();
        session.insert(RequestId(1000), reserve(1000));
        session.insert(RequestId(1001), reserve(1001));
        session.on_refused(RequestId(1001));
        assert!(ownership.admits(&name(1001), None));
        let ended = ENDED_MAX as u64;
        for number in 0..ended {
            session.insert(RequestId(number), reserve(number));
            session.on_ended(RequestId(number));
            session.on_ended(RequestId(number));
        }
        assert!(!ownership.admits(&name(0), None), "at the limit");
        // A request in the same namespace keeps it.
        session.insert(RequestId(ended), reserve(1));
        session.insert(RequestId(ended + 1), reserve(1));
        session.on_ended(RequestId(ended));
        for number in ended + 2..ended + 4 {
            session.insert(RequestId(number), reserve(number));
            session.on_ended(RequestId(number));
        }
        assert!(ownership.admits(&name(0), None), "past it");
        for kept in [1, 3, 1000] {
            assert!(!ownership.admits(&name(kept), None), "{kept}");
        }
        assert!(session.held_bytes() > (ENDED_MAX + 1) * RESERVED_BYTES);
        drop(session);
        assert!(ownership.lock().is_empty());
    }
}
