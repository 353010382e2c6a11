//! The interface between hosts and roles.

use std::time::Instant;

use crate::{Endpoint, Event};

/// A role: a relay, a load generator, a player. A role is sans-I/O and driven by a host.
///
/// A host calls [`handle_event`](Self::handle_event) for each event of the endpoint, then
/// [`handle_timeout`](Self::handle_timeout) if [`poll_timeout`](Self::poll_timeout) is due, and afterwards sends the
/// packets of the endpoint.
pub trait App {
    /// Handles an event of a connection of `endpoint`.
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event);

    /// Returns when the role is to be woken next; `None` if only events can wake it.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Handles the time of [`poll_timeout`](Self::poll_timeout). Early calls do nothing.
    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint);

    /// Begins to end the role's sessions, since the host was asked to stop (a signal, the end of a run).
    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint);

    /// Returns whether the role has nothing left to do, so that its host may return.
    fn is_finished(&self) -> bool;
}
