//! The relay benchmark of draft-evens-moq-bench-00: profile, schedule, publishers, subscribers, metrics.
//!
//! The crate is pure: it opens no socket, reads no clock, starts no thread and draws no random number. It is *not* a
//! runner. The `weir` program hosts its roles on sockets, and the `sim` crate hosts them on virtual links.
//!
//! A run takes these steps: a [`profile::Profile`] is read from the draft's INI form; [`interpolate`] fills in its
//! names; a [`schedule::Schedule`] says what each track sends and when; objects carry the messages of [`message`] and
//! the synthetic content of [`payload`]; a [`metrics::TrackReceiver`] computes the metrics of the draft's section 5.5
//! from what arrives; and [`outcome`] makes a report of them.

pub mod clock;
pub mod early_stop;
pub mod interpolate;
pub mod limits;
pub mod measured;
pub mod meeting;
pub mod message;
pub mod metrics;
pub mod null_relay;
pub mod observable;
pub mod outcome;
pub mod part;
pub mod payload;
pub mod profile;
pub mod publisher;
pub mod qperf;
mod rendezvous;
pub mod scenario;
pub mod schedule;
#[cfg(test)]
mod stories;
pub mod subscriber;
#[cfg(test)]
mod test_transport;
