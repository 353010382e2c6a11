//! HTTP/3 (RFC 9114) for the comparison of servers: a server of files, and a load client.
//!
//! Both are roles: they take events and the time from a host and work on the connections of a
//! [`weir_quic::Endpoint`]. What is the same for both sides is in [`session`], the streams that a connection
//! has besides its requests; the codec below, and the reader of one request or answer, is [`weir_h3`].
//!
//! It is *not* a framework: there are no handlers, no trailers to read, no server push, and no dynamic table in
//! the compression of fields. Files come from the program, which read them before.

pub mod client;
mod limits;
pub mod server;
pub mod session;
#[cfg(test)]
mod test_transport;

pub use limits::Limits;
