//! Two endpoints back to back in virtual time: every limit at its value and one past it, streams, datagrams,
//! packets in batches, what becomes of connections, and peers that mean no good or take more than they were granted.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test fails by panicking, looks only at the events that it is about, and prints its seed"
)]

mod datagrams;
mod disobedient;
mod ends;
mod hostile;
mod limits;
mod packets;
mod pair;
mod streams;
mod web_transport;
