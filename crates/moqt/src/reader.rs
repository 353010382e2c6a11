//! Incremental readers of streams: the caller pushes bytes, and polls for messages, headers and payload.
//!
//! A reader keeps at most one incomplete header, and returns payload in the pieces in which it came, without a copy.
//! After each push the caller polls until `None`. A caller that stops polling earlier has to stop reading the stream
//! too.

mod buffer;
mod fetch;
mod message;
mod subgroup;

pub use self::fetch::{FetchItem, FetchReader};
pub use self::message::MessageReader;
pub use self::subgroup::{SubgroupItem, SubgroupReader};

#[cfg(test)]
mod tests;
