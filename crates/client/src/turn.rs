//! What one step of a role may touch.

use std::time::Instant;

use weir_quic::{Connection, Endpoint, Handle};

/// The time of a step and the endpoint on which it acts, handed from function to function.
pub struct Turn<'a> {
    /// The time of the step.
    pub now: Instant,
    /// The role's endpoint.
    pub endpoint: &'a mut Endpoint,
}

impl Turn<'_> {
    /// One of the endpoint's connections; `None` if it is closed or lost.
    #[inline]
    pub fn connection(&mut self, handle: Handle) -> Option<Connection<'_>> {
        self.endpoint.connection(self.now, handle)
    }
}
