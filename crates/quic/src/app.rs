//! The one seam between hosts and roles.

use std::time::Instant;

use crate::{Endpoint, Event};

/// A role: a relay, a load generator, a player. Pure; driven by a host.
///
/// A host calls [`handle_event`](Self::handle_event) for all that happened on the endpoint, then
/// [`handle_timeout`](Self::handle_timeout) when [`poll_timeout`](Self::poll_timeout) is due, and sends
/// what the endpoint has to send afterwards.
pub trait App {
    /// Something happened on a connection of `endpoint`.
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event);

    /// When the role wants to be woken next; `None` if only events can wake it.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The time of [`poll_timeout`](Self::poll_timeout) has come. Early calls do nothing.
    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint);

    /// The host was asked to stop (a signal, the end of a run): take leave of all peers.
    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint);

    /// Whether the role has nothing left to do, so that its host may return.
    fn is_finished(&self) -> bool;
}
