//! What a session dropped, refused or gave up, by reason.

/// Counts of everything a session did not pass on, each from zero at its start.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Peer's requests answered with `EXCESSIVE_LOAD` since `requests_max` were open.
    pub requests_over_limit: u64,
    /// Own requests refused since `requests_local_max` or `requests_queued_max` was reached.
    pub requests_refused: u64,
    /// Peer's requests the session rejected itself: reserved namespaces, unknown mandatory
    /// properties, bad tokens, GOAWAY.
    pub requests_rejected: u64,
    /// Streams of ended requests that were stopped, since `requests_draining_max` waited.
    pub requests_not_drained: u64,
    /// Runs of skipped Request IDs given up at `request_id_gaps_max`.
    pub request_id_gaps_closed: u64,
    /// Requests ended since the peer had `updates_max` updates unanswered.
    pub updates_over_limit: u64,
    /// Requests ended since the peer announced `namespaces_max` namespaces.
    pub namespaces_over_limit: u64,
    /// Streams refused since the peer had `streams_max` open.
    pub streams_over_limit: u64,
    /// Sessions closed (0 or 1) since control bytes waited beyond `outgoing_bytes_max`.
    pub outgoing_over_limit: u64,
    /// Datagrams for subscriptions that have ended.
    pub datagrams_late: u64,
    /// Datagrams dropped since too many with an unknown alias waited.
    pub datagrams_unknown_over_limit: u64,
    /// Datagrams dropped since nothing explained their alias in time.
    pub datagrams_unknown_expired: u64,
    /// Data streams stopped since their subscription or fetch has ended.
    pub streams_late: u64,
    /// Data streams stopped since too many with an unknown alias waited.
    pub streams_unknown_over_limit: u64,
    /// Data streams stopped since nothing explained their alias in time.
    pub streams_unknown_expired: u64,
    /// Subscriptions retired before their time, since `tracks_lingering_max` lingered.
    pub tracks_lingering_over_limit: u64,
    /// Bytes of padding discarded, from streams and datagrams.
    pub padding_bytes: u64,
}
