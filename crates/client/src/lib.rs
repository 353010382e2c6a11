//! MOQT clients: a connection, its SETUP and its session, from the first packet to the end, and again after that.
//!
//! The crate is pure. It is *not* a role: a role owns its clients, hands them the events of their connections, and takes
//! the events of their sessions. [`client::Client`] is one connection to a [`target::Target`], [`clients::Clients`] are
//! thousands, and [`peer::Peer`] is the session on either end of a connection, for servers too. What waits for an outgoing stream is
//! in a [`send_queue::SendQueue`]. A role that reconnects waits for as long as a [`backoff::Backoff`] says, and hands the time and
//! its endpoint on as a [`turn::Turn`].

pub mod backoff;
pub mod client;
pub mod clients;
pub mod peer;
pub mod send_queue;
pub mod target;
pub mod turn;
