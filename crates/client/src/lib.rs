//! MOQT clients: a connection, its SETUP and its session, from the first packet to the end.
//!
//! The crate is pure. What it is *not*: a role. A role owns its clients, one ([`client::Peer`]) or thousands
//! ([`clients::Peers`]), and hands them the events of their connections.

pub mod client;
pub mod clients;
pub mod handles;
pub mod target;
