//! Conformance and robustness of any MOQT relay, from outside.
//!
//! A [`Case`] names a rule of draft-ietf-moq-transport and has a script: what up to 48 clients send, and what the
//! relay has to do. [`cases`] returns the table of all cases of an [`Edition`], draft-22 or draft-18; a [`Scout`] tells
//! which of them a relay prefers. The role [`Probe`] runs the cases one after the other, and the role [`Bystander`] beside
//! it publishes and subscribes all the while, so that its losses show what hostile peers do to others. A host runs the two
//! on two threads.
//!
//! The scripts write their messages byte by byte (`wire.rs`), independent of the codec that the relay of this workspace
//! uses. It is *not* a load generator: rates and durations of all cases are bounded.

mod attempt;
mod bystander;
mod case;
mod cases;
mod edition;
mod hostile;
mod line;
mod probe;
mod scout;
mod script;
mod seen;
mod wire;

pub use bystander::{Bystander, Figures};
pub use case::{Case, Kind, Level, On, Outcome, Verdict};
pub use cases::all as cases;
pub use edition::Edition;
pub use probe::{Config, Probe};
pub use scout::Scout;
