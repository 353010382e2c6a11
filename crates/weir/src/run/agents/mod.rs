//! Agents make the load of a run, and a controller leads them.
//!
//! An agent has a share of the run's publishers and subscribers, on threads of its own. The controller knows it by its
//! [`AgentLink`] alone: it sends [`Order`]s, and reads what the agent [`Said`]. A run on one machine has one agent, in the
//! controller's process.

mod agent;
mod group;
mod load;
mod message;
pub(crate) mod remote;
mod threads;

pub(super) use self::agent::Agent;
pub(super) use self::group::Agents;
pub(super) use self::load::{Assignment, Share, Slice, longest, track_plans};
pub(super) use self::message::{Order, Said, Sample, State, ThreadSample, ThreadState};
pub(super) use self::threads::{KEEP_ALIVE, SecondSeen, Seen};

use std::time::Instant;

/// The way to an agent. It keeps the order of messages in both directions.
pub(super) trait AgentLink {
    /// Returns the name of a remote agent; `None` for the one in this process.
    fn name(&self) -> Option<&str>;

    /// Sends an order.
    ///
    /// # Errors
    /// The agent cannot be reached, or an agent in this process cannot carry the order out.
    fn order(&mut self, order: Order) -> anyhow::Result<()>;

    /// Returns what the agent has said since the last call, oldest first. Does not wait.
    ///
    /// # Errors
    /// The agent is lost: it has ended, or nothing has come from it for too long.
    fn poll(&mut self, now: Instant) -> anyhow::Result<Vec<Said>>;
}
