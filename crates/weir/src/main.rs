//! `weir`: measure Media-over-QUIC relays; be one.

fn main() {}
