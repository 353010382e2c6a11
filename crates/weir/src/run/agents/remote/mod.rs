//! Agents on other hosts, which a controller reaches through a message system.
//!
//! A controller asks who is there, claims agents, and gives each a share. Agents obey only those who prove that they have the
//! shared key; see [`envelope`]. Two message systems have one conformance suite: NATS, and one within the process for tests.

mod bus;
mod clocks;
pub(crate) mod envelope;
mod fleet;
mod job;
mod members;
mod nats;
mod protocol;
mod server;
mod shares;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use self::bus::Bus;
#[cfg(test)]
pub(crate) use self::bus::hub::Hub;
pub(crate) use self::envelope::SharedKey;
pub(crate) use self::fleet::{Fleet, Wanted};
pub(crate) use self::job::{Job, Surroundings};
pub(crate) use self::nats::NatsBus;
pub(crate) use self::protocol::{AGENTS_MAX, AgentInfo, Limits};
pub(crate) use self::server::{AgentServer, check_name};
