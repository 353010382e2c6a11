//! Incremental readers: push what a stream delivers, poll for what it says.
//!
//! A reader keeps at most one header that has not arrived as a whole, and hands payload on in the pieces it came in,
//! without a copy. The rhythm is push, then poll until there is nothing more; whoever stops polling before has to stop
//! reading from the stream as well.

mod buffer;
mod fetch;
mod message;
mod subgroup;

pub use self::fetch::{FetchItem, FetchReader};
pub use self::message::MessageReader;
pub use self::subgroup::{SubgroupItem, SubgroupReader};

#[cfg(test)]
mod tests;
