//! The context of one step of a role.

use std::time::Instant;

use weir_quic::{Connection, Endpoint, Handle};

/// The time of a step, and the endpoint that it acts on.
pub struct Turn<'a> {
    /// The time of the step.
    pub now: Instant,
    /// The role's endpoint.
    pub endpoint: &'a mut Endpoint,
}

impl Turn<'_> {
    /// Returns one of the endpoint's connections; `None` if it is closed or lost.
    #[inline]
    pub fn connection(&mut self, handle: Handle) -> Option<Connection<'_>> {
        self.endpoint.connection(self.now, handle)
    }
}
