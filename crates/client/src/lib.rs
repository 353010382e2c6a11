//! MOQT clients: a connection, its SETUP and its session, from the first packet to the end, and reconnection.
//!
//! The crate is pure. It is *not* a role: a role owns its clients, passes them the events of their connections, and
//! takes the events of their sessions. [`client::Client`] is one connection to a [`target::Target`];
//! [`clients::Clients`] are thousands; [`peer::Peer`] is the session at either end of a connection, also in servers. A
//! [`send_queue::SendQueue`] holds the data queued for an outgoing stream. A role that reconnects waits as long as its
//! [`backoff::Backoff`] says. A [`turn::Turn`] carries the time and the endpoint from function to function.

pub mod backoff;
pub mod client;
pub mod clients;
pub mod peer;
pub mod roaming;
pub mod send_queue;
pub mod target;
pub mod tokens;
pub mod turn;
