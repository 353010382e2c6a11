//! The registry of a fleet: which of its relays has which namespaces.
//!
//! A relay sends its registry commands and takes events from it. Neither waits: an implementation that talks to servers does
//! so on a thread of its own. A relay without a fleet has no registry. [`simulated`] is a registry in virtual time, and
//! [`conformance`] is what every implementation has to do.

pub mod conformance;
pub mod simulated;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use weir_client::target::Target;
use weir_moqt::name::Namespace;

/// The number of a relay of a fleet. A process chooses it at random, so a relay that restarts is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelayId(pub u64);

impl fmt::Display for RelayId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// A relay of a fleet, and how to connect to it.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its number.
    pub id: RelayId,
    /// Its URL without secrets: its name in logs, metrics and redirects.
    pub name: String,
    /// How to connect to it.
    pub target: Arc<Target>,
}

/// An event of a registry.
#[derive(Clone, Debug)]
pub enum RegistryEvent {
    /// Another relay has a lease, whether or not it has namespaces.
    Joined {
        /// The relay.
        member: Arc<Member>,
    },
    /// The lease of another relay has ended.
    Left {
        /// The relay.
        relay: RelayId,
    },
    /// Another relay has a namespace. The event may be repeated.
    Found {
        /// The namespace.
        namespace: Namespace,
        /// The relay that has it.
        member: Arc<Member>,
    },
    /// Another relay no longer has a namespace, or its lease has ended.
    Lost {
        /// The namespace.
        namespace: Namespace,
        /// The relay that had it.
        relay: RelayId,
    },
    /// The registry cannot be reached, or does not take changes. What was found stays valid as far as anyone knows.
    Stale,
    /// Everything that the registry has was reported, and changes follow. Until the first such event, the registry counts as
    /// stale.
    Current,
}

/// The registry of a fleet, as one of its relays uses it.
///
/// The registry reports what the other relays have, never what this one has. It keeps what this relay has registered for as
/// long as the relay lives, also if the registry itself was lost meanwhile. A relay has one lease for all its registrations: if
/// the relay dies, they end within [`LEASE`].
pub trait Registry: fmt::Debug + Send {
    /// Registers a namespace that clients of this relay publish in.
    fn register(&mut self, now: Instant, namespace: &Namespace);

    /// Withdraws a namespace.
    fn withdraw(&mut self, now: Instant, namespace: &Namespace);

    /// Returns the next event, if there is one.
    fn poll(&mut self, now: Instant) -> Option<RegistryEvent>;

    /// Returns when [`poll`](Self::poll) is due, a time in the past if events wait; `None` if the registry wakes the relay's
    /// host at the next event.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// How long registrations of a relay stay after its last sign of life.
pub const LEASE: Duration = Duration::from_secs(10);
/// How often a relay gives a sign of life.
pub const RENEWAL: Duration = Duration::from_secs(3);
/// How long a registry may take no changes until it counts as stale: two renewals.
pub const STALE_AFTER: Duration = Duration::from_secs(6);
