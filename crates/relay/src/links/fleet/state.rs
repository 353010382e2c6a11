//! What operators are shown of the fleet.

use std::time::{Duration, Instant};

use weir_moqt::name::Namespace;

use super::Fleet;
use crate::registry::RelayId;

/// What a relay knows of its fleet, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetState {
    /// For how long the registry has not been reachable; `None` if it is.
    pub stale_for: Option<Duration>,
    /// The other relays.
    pub relays: Vec<FleetRelay>,
}

/// Another relay of the fleet, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetRelay {
    /// Its number.
    pub id: RelayId,
    /// Its name.
    pub name: String,
    /// Number of namespaces that it has registered.
    pub registered: usize,
    /// The first of these namespaces, at most 100.
    pub namespaces: Vec<Namespace>,
}

impl Fleet {
    /// Returns the numbers of other relays and of their registrations, and whether they are stale.
    pub(in crate::links) fn numbers(&self) -> (usize, usize, bool) {
        let relays = self.relays.values();
        let relays = relays.filter(|known| !known.namespaces.is_empty());
        (relays.count(), self.registered, self.stale_since.is_some())
    }

    pub(in crate::links) fn state(&self, now: Instant) -> FleetState {
        let relays = self.relays.iter();
        let relays = relays.filter(|(_, known)| !known.namespaces.is_empty());
        let relays = relays.map(|(&id, known)| FleetRelay {
            id,
            name: known.member.name.clone(),
            registered: known.namespaces.len(),
            namespaces: known.namespaces.iter().take(SHOWN_MAX).cloned().collect(),
        });
        FleetState {
            stale_for: self
                .stale_since
                .map(|since| now.saturating_duration_since(since)),
            relays: relays.collect(),
        }
    }
}

/// Namespaces of one relay that operators are shown.
const SHOWN_MAX: usize = 100;
