//! Connections to peer threads: the other endpoints of this process that share its address, each on a thread of its own.
//!
//! Such a connection has streams and datagrams as one over the network has, so a role speaks to a peer thread as to any
//! peer. It has no packets, no loss and no encryption: what is written becomes [`ThreadMessage`](message::ThreadMessage)s,
//! which the host delivers in their order. Windows limit what is in flight; the reader opens them lazily, so that a one-way
//! flow rarely wakes the sender.

mod connection;
pub(crate) mod endpoint;
pub(crate) mod message;
mod view;

pub(crate) use self::{endpoint::ThreadConnections, view::ThreadConnectionView};
