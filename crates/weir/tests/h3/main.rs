//! `weir h3` as a program, on real sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod certificates;
mod compare;
mod flags;
mod load;
mod odd;
mod serve;
mod stage;
