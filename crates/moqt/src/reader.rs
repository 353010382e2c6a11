//! Incremental readers: push what a stream delivers, poll for what it says.
//!
//! A reader keeps at most one header that has not arrived as a whole, and hands payload on in the pieces it came in,
//! without a copy. The rhythm is push, then poll until there is nothing more; whoever stops polling before has to stop
//! reading from the stream as well.

mod fetch;
mod input;
mod message;
mod subgroup;

use crate::error::Violation;

pub use self::fetch::{FetchItem, FetchReader};
pub use self::message::MessageReader;
pub use self::subgroup::{SubgroupItem, SubgroupReader};

/// A message has more bytes behind its length than its reader takes.
pub(crate) const MESSAGE_TOO_LONG: Violation =
    Violation::beyond_limit("a message is longer than this endpoint takes");

/// An object has more bytes before its payload than its reader takes.
pub(crate) const HEADER_TOO_LONG: Violation =
    Violation::beyond_limit("a header is longer than this endpoint takes");

#[cfg(test)]
mod tests;
