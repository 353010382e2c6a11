//! Media over QUIC Transport (MOQT): codec, and the state machine of one session.
//!
//! The codec decodes bytes to values that are the same for all drafts, and encodes them: [`message::Message`] for
//! control messages, [`data`] for data streams and datagrams, [`reader`] for streams that arrive in pieces.
//! [`draft::Draft`] alone holds the differences between drafts. On top, [`session`] is the state machine of one
//! session, which uses a [`weir_transport::Transport`].
//!
//! This crate opens no socket, reads no clock, and knows neither QUIC nor media. Nothing that a peer sends makes it
//! panic, and every length and count has a limit.

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
