//! What is kept of runs, as users come by it: archives and their reports, and comparisons. On real sockets, small, and without
//! a word about how fast the machine is.

mod archives;
mod comparisons;
mod stage;
