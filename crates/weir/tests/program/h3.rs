//! `weir h3` on real sockets.

mod agents;
mod certificates;
mod compare;
mod flags;
mod load;
mod odd;
mod serve;
mod stage;
