//! QUIC endpoints: thousands of connections as one sans-I/O state machine, on top of the engine.
//!
//! The engine is `quinn-proto`, which takes the time as an argument and returns packets. This crate adds what a server
//! or load generator on one thread needs: a table of connections whose frequently used fields are contiguous, one lazy
//! timer wheel for all of them, and datagram queues with deadlines. An outbox collects the packets of a whole burst, so
//! that a host can send them with few system calls.
//!
//! It is *not* a host: it opens no socket, reads no clock and starts no thread. No other crate names the engine, so the
//! engine can be replaced.
//!
//! Over HTTP/3, a layer handles the connection ([`web_transport`]). A role sees the connection, like any other, once
//! its WebTransport session is established. The HTTP/3 codec is the crate [`weir_h3`].
//!
//! The main types are [`Endpoint`], the borrowed view [`Connection`], and [`App`], the interface between hosts and
//! roles.

mod app;
mod config;
mod congestion;
mod connection;
mod connection_id;
mod datagrams;
mod endpoint;
mod event;
mod origin;
mod outbox;
mod peer_thread;
mod shard;
mod slots;
pub mod tls;
pub mod web_transport;
mod wheel;

pub use app::App;
pub use config::{
    ClientConfig, ConfigError, EndpointConfig, Limits, LinkOptions, Loss, OpenLog, Packets, Qlog,
    TimeSource, UNACKNOWLEDGED_UNNOTICED,
};
pub use congestion::{Congestion, QUEUE_TARGET};
pub use connection::{Carrier, Connection, ConnectionStats, SendDatagramError};
pub use endpoint::{ConnectError, Counters, Endpoint, Handle};
pub use event::{Event, Lost};
pub use origin::{Counted, Origin, OriginCounts};
pub use outbox::{Outbox, Packet};
pub use peer_thread::{endpoint::PeerThreadCounters, message::ThreadMessage};
pub use quinn_proto::EcnCodepoint;
pub use shard::{LONG_HEADER, LONG_HEADER_ID_OFFSET, SHORT_HEADER_ID_OFFSET, Shard};
