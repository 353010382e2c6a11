//! The limits of a client, for itself and for what a server can make it store.

use std::time::Duration;

/// Seconds of a run, each of which has a histogram.
pub const SECONDS_MAX: usize = 3600;
/// The longest timeout of a handshake.
pub const HANDSHAKE_TIMEOUT_MAX: Duration = Duration::from_hours(24);
/// Connections of one client at the same time.
pub const CONNECTIONS_MAX: usize = 50_000;
/// Requests of one connection at the same time.
pub const REQUESTS_AT_ONCE_MAX: usize = 10_000;
/// Characters of a server's reason for closing a connection.
pub const REASON_CHARACTERS_MAX: usize = 200;
/// How long a connection's place stays empty after a failure, so that a server that refuses everybody does not get a
/// hundred thousand attempts a second.
pub const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Most paths of one client: enough for a mix of file sizes.
pub const PATHS_MAX: usize = 64;
