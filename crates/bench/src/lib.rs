//! The relay benchmark of draft-evens-moq-bench-00: profile, schedule, drive, measure.
//!
//! The crate is pure: it opens no socket, reads no clock, starts no thread and draws no random
//! number. What it is *not*: a runner. The binary hosts its roles on sockets and the `sim` crate
//! hosts them on virtual links.
//!
//! The life of a run: a [`profile::Profile`] is read from the draft's INI form, its names are filled
//! in by [`interpolate`], a [`schedule::Schedule`] says what each track sends and when, the messages
//! of [`message`] travel with the synthetic content of [`payload`], and a
//! [`metrics::TrackReceiver`] turns what arrives into the figures of the draft's section 5.5, which
//! [`outcome`] makes into a report.

pub mod clock;
pub mod interpolate;
pub mod limits;
pub mod lookout;
pub mod meeting;
pub mod message;
pub mod metrics;
pub mod null_relay;
pub mod outcome;
pub mod payload;
pub mod profile;
pub mod publisher;
pub mod qperf;
pub mod scenario;
pub mod schedule;
#[cfg(test)]
mod stories;
pub mod subscriber;
#[cfg(test)]
mod test_transport;
