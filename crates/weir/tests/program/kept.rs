//! Archives and their reports, and comparisons: small runs on real sockets, without a claim about speed.

mod archives;
mod comparisons;
mod stage;
