//! Connections to peer threads: the other endpoints of this process that share its address, each on a thread of its
//! own.
//!
//! Such a connection has streams and datagrams like one over the network, so a role uses it in the same way. It has no
//! packets, loss or encryption: data written becomes [`ThreadMessage`](message::ThreadMessage)s, which the host
//! delivers in order. Windows limit what is in flight. The reader opens them lazily, so that a one-way flow rarely
//! wakes the sender.

mod connection;
pub(crate) mod endpoint;
pub(crate) mod message;
mod view;

pub(crate) use self::{endpoint::ThreadConnections, view::ThreadConnectionView};
