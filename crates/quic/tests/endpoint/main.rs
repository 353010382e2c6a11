//! Tests of two connected endpoints in virtual time: limits, streams, datagrams, acknowledgements, batches of packets, ends of
//! connections, turns, hostile peers, and peers that exceed their limits.

#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test fails by panicking, looks only at the events that it is about, and prints its seed"
)]

mod acknowledgements;
mod datagrams;
mod disobedient;
mod ends;
mod handshakes;
mod hostile;
mod limits;
mod packets;
mod pair;
mod streams;
mod turns;
mod web_transport;
