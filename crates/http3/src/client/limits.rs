//! What a server can make grow, and how far.

use std::time::Duration;

/// Seconds of a run, each of which has a histogram.
pub const SECONDS_MAX: usize = 3600;
/// Longest time that a handshake may take.
pub const HANDSHAKE_TIMEOUT_MAX: Duration = Duration::from_hours(24);
/// Connections of one client at once.
pub const CONNECTIONS_MAX: usize = 50_000;
/// Requests of one connection at once.
pub const REQUESTS_AT_ONCE_MAX: usize = 10_000;
/// Characters of what a server says about why it ended a connection.
pub const REASON_CHARACTERS_MAX: usize = 200;
/// How long a place stays empty after its connection could not be made, so that a server that refuses everybody is not
/// asked a hundred thousand times a second.
pub const RETRY_PAUSE: Duration = Duration::from_millis(100);
