//! Work of another kind than a relay benchmark. The fleet carries its orders and results, and knows nothing of them.

use std::time::Instant;

use serde_json::Value;

use super::protocol::Limits;

/// Work that an agent does on threads of its own. They stop when it is dropped.
pub(crate) trait Job {
    /// Returns the work in words, for the agent's log.
    fn words(&self) -> String;

    /// Returns what the controller shall know since the last call. Does not wait.
    ///
    /// # Errors
    /// The work has failed.
    fn poll(&mut self) -> anyhow::Result<Vec<Value>>;

    /// Ends the work early. Its results follow.
    fn end(&mut self);
}

/// What an agent gives to a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    /// Cores of the agent.
    pub(crate) cores: &'a [usize],
    pub(crate) limits: Limits,
    /// Process of the server, if the agent watches it.
    pub(crate) watched: Option<u32>,
    /// When the job begins.
    pub(crate) begin: Instant,
}

/// Starts the job of an order. The error says what is wrong with the order.
pub(crate) type StartJob = fn(Value, Surroundings<'_>) -> anyhow::Result<Box<dyn Job>>;
