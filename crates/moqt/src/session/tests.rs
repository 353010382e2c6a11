//! Stories of two sessions.

use std::time::Instant;

/// The first moment of all tests; nothing reads the clock after it.
#[expect(
    clippy::disallowed_methods,
    reason = "an Instant has no other beginning"
)]
pub(super) fn epoch() -> Instant {
    Instant::now()
}
