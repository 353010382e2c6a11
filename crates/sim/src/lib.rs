//! The host with a virtual clock and virtual links, from a seed.
