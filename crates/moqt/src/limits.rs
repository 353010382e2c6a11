//! Every bound of a session in one place: what a peer can make it keep, and for how long.
//!
//! The defaults suit a relay with thousands of sessions: all tables start empty and allocate
//! nothing until they are used, so the bounds cost memory only where a peer goes there.

use std::time::Duration;

/// The bounds of one session.
///
/// Each is tested at the limit and one past it. What happens one past it stands with the field;
/// the session counts every such event in its counters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limits {
    /// How long the peer's SETUP may take from [`Session::start`] on. One tick later the session
    /// closes with `CONTROL_MESSAGE_TIMEOUT`.
    ///
    /// [`Session::start`]: crate::session::Session::start
    pub setup_timeout: Duration,

    /// Bytes of one control message behind its length. One more closes the session with
    /// `INTERNAL_ERROR`. No message has more than 65535.
    pub message_bytes_max: usize,

    /// Bytes of one object on a data stream before its payload, mostly its properties. One more
    /// closes the session with `INTERNAL_ERROR`.
    pub object_header_bytes_max: usize,

    /// How long a session goes on after the peer closed a control stream, before it closes with
    /// `PROTOCOL_VIOLATION`. A peer that leaves drops all its streams at once, and the transport
    /// does not keep their order: its last words on other streams are still worth hearing.
    pub control_closed_grace: Duration,

    /// Requests the peer may have open. The next is answered with `EXCESSIVE_LOAD`.
    pub requests_max: usize,

    /// Requests this endpoint may have open, queued ones included. The next is refused locally.
    pub requests_local_max: usize,

    /// Local requests that wait because the peer's stream limit is reached. The next is refused
    /// locally.
    pub requests_queued_max: usize,

    /// Ended requests whose stream the peer has not finished yet. At the next the oldest stream is
    /// stopped instead of waited for.
    pub requests_draining_max: usize,

    /// Runs of Request IDs the peer has skipped so far, since streams arrive in any order. At the
    /// next the oldest run counts as used.
    pub request_id_gaps_max: usize,

    /// Unanswered `REQUEST_UPDATE` messages of one request, in each direction. The peer's next one
    /// ends the request with `EXCESSIVE_LOAD`; an own one is refused locally.
    pub updates_max: usize,

    /// Namespaces the peer may announce in answer to one `SUBSCRIBE_NAMESPACE`. The next ends that
    /// request with `EXCESSIVE_LOAD`.
    pub namespaces_max: usize,

    /// Streams opened by the peer that the session knows at one time, of all kinds. The next is
    /// refused with `EXCESSIVE_LOAD`.
    pub streams_max: usize,

    /// Control bytes that wait on one stream because the transport takes no more. One more closes
    /// the session with `INTERNAL_ERROR`, as the peer does not read; of what others announce under a
    /// prefix, it ends the request for that with `EXCESSIVE_LOAD`.
    pub outgoing_bytes_max: usize,

    /// Aliases of ended subscriptions that are remembered, so that late objects are dropped
    /// quietly. The oldest is forgotten for the next.
    pub aliases_retired_max: usize,

    /// Subscriptions that ended with `PUBLISH_DONE` and still take late objects. The oldest is
    /// retired for the next.
    pub tracks_lingering_max: usize,

    /// How long a subscription takes late objects after `PUBLISH_DONE`.
    pub done_linger: Duration,

    /// How long objects with an unknown alias wait for the message that explains it.
    pub unknown_alias_timeout: Duration,

    /// Datagrams with an unknown alias that wait. The oldest is dropped for the next.
    pub datagrams_unknown_max: usize,

    /// Payload and property bytes of the datagrams that wait. The oldest are dropped for the next.
    pub datagrams_unknown_bytes_max: usize,

    /// Subgroup streams with an unknown alias that wait unread. The next is stopped.
    pub streams_unknown_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            setup_timeout: Duration::from_secs(10),
            control_closed_grace: Duration::from_millis(100),
            message_bytes_max: 65_535,
            object_header_bytes_max: 64 * 1024,
            requests_max: 4096,
            requests_local_max: 16_384,
            requests_queued_max: 1024,
            requests_draining_max: 1024,
            request_id_gaps_max: 1024,
            updates_max: 16,
            namespaces_max: 4096,
            streams_max: 16_384,
            outgoing_bytes_max: 256 * 1024,
            aliases_retired_max: 256,
            tracks_lingering_max: 256,
            // The drain window of the benchmark: nothing honest arrives later than this.
            done_linger: Duration::from_secs(2),
            // A few round trips: the control message was sent first and is at most retransmitted.
            unknown_alias_timeout: Duration::from_secs(1),
            datagrams_unknown_max: 256,
            datagrams_unknown_bytes_max: 256 * 1024,
            streams_unknown_max: 64,
        }
    }
}
