//! The host with real sockets, threads and the clock.
