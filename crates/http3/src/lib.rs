//! HTTP/3 (RFC 9114) for the comparison of servers: a server of files, and a load client.
//!
//! Both are roles: they take events and the time from a host, and work on the connections of a [`weir_quic::Endpoint`].
//! Both sides share [`session`], the streams of a connection beside its requests. Below is [`weir_h3`], with the codec
//! and the reader of a request or response.
//!
//! It is *not* a framework: it has no handlers, no access to trailers, no server push, and no dynamic table for field
//! compression. The program reads the files in advance.

pub mod client;
mod limits;
pub mod server;
pub mod session;
#[cfg(test)]
mod test_transport;

pub use limits::Limits;
