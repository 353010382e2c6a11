//! Whole benchmarks in virtual time: the real roles and real QUIC packets over emulated links.

mod fetch;
mod hopeless;
mod limits;
mod one;
mod parts;
mod priorities;
mod processes;
mod three;
mod unruly;
mod world;
