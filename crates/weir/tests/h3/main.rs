//! `weir h3` as a program, on real sockets.

mod load;
mod serve;
mod stage;
