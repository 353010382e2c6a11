//! Media over QUIC Transport: wire codec and one session's state machine.
//!
//! The codec turns bytes into values that are the same for all drafts, and back: [`message::Message`] for control
//! messages, [`data`] for what data streams and datagrams carry, [`reader`] for streams that arrive in pieces. What
//! differs from draft to draft is answered by [`draft::Draft`] alone. On top, [`session`] is the state machine of one
//! session, which speaks through a [`weir_transport::Transport`].
//!
//! This crate opens no socket, reads no clock, and knows neither QUIC nor media. Nothing a peer sends makes it panic, and
//! every length and count has a limit.

mod cursor;
mod kinds;
mod scope;

pub mod data;
pub mod draft;
pub mod error;
pub mod limits;
pub mod location;
pub mod message;
pub mod metrics;
pub mod name;
pub mod parameter;
pub mod priority;
pub mod property;
pub mod reader;
pub mod session;
pub mod token;
pub mod varint;
