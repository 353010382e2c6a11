//! Tests of the program: processes, real sockets, files and terminals.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod audience;
mod cli;
mod documents;
mod fleet;
mod h3;
mod kept;
mod lab;
mod live;
mod metrics;
mod operations;
mod probing;
mod process;
mod proof;
mod searching;
mod terminal;
mod two_processes;
