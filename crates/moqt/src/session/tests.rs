//! Tests of two sessions over a link that reorders, and of one session against a scripted peer.

mod bursts;
mod data;
mod drafts;
mod ends;
mod fetching;
mod filled_tracks;
mod incomplete;
mod limits;
mod link;
mod model;
mod namespaces;
mod pair;
mod policies;
mod requests;
mod responses;
mod setup;
mod state_tables;
mod violations;

use std::time::Instant;

/// The first moment of all tests; nothing reads the clock after it.
#[expect(
    clippy::disallowed_methods,
    reason = "an Instant has no other beginning"
)]
pub(super) fn epoch() -> Instant {
    Instant::now()
}
