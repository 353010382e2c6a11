//! The QUIC engine's glue: one endpoint with thousands of connections, as a pure state machine.
//!
//! Built on `quinn-proto`, which takes the time as an argument and hands back packets. This crate adds
//! what a server or load generator on one thread needs around it: a table of connections whose hot
//! fields lie together, one lazy timer wheel for all of them, datagram queues with a deadline,
//! and an outbox that collects the packets of a whole burst so that a host can send them with few
//! system calls.
//!
//! It is *not* a host: it opens no socket, reads no clock and starts no thread. It is the only crate
//! that names the engine, so that another engine could stand in its place.
//!
//! Over HTTP/3 a layer leads the connection ([`web_transport`]): a role sees it, like any other connection, from when its WebTransport
//! session is established. The HTTP/3 codec below it is the crate [`weir_h3`].
//!
//! The main types are [`Endpoint`], the borrowed view [`Connection`] and the seam [`App`] between
//! hosts and roles.

mod app;
mod config;
mod congestion;
mod connection;
mod connection_id;
mod datagrams;
mod endpoint;
mod event;
mod outbox;
mod peer_thread;
mod shard;
mod slots;
pub mod tls;
pub mod web_transport;
mod wheel;

pub use app::App;
pub use config::{
    ClientConfig, ConfigError, EndpointConfig, Limits, OpenLog, Packets, Qlog, TimeSource,
};
pub use congestion::{Congestion, QUEUE_TARGET};
pub use connection::{Carrier, Connection, ConnectionStats, SendDatagramError};
pub use endpoint::{ConnectError, Counters, Endpoint, Handle};
pub use event::{Event, Lost};
pub use outbox::{Outbox, Packet};
pub use peer_thread::{endpoint::PeerThreadCounters, message::ThreadMessage};
pub use quinn_proto::EcnCodepoint;
pub use shard::{LONG_HEADER, LONG_HEADER_ID_OFFSET, SHORT_HEADER_ID_OFFSET, Shard};
