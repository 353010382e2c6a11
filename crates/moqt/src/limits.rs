//! Limits of a session: how much a peer can make it keep, and for how long.
//!
//! The defaults suit a relay with thousands of sessions: tables start empty and allocate nothing until they are used,
//! so a limit costs memory only for a peer that approaches it.

use std::time::Duration;

/// The limits of one session.
///
/// Each is tested at the limit and one past it. Each field tells what happens past its limit; the session counts these
/// events in its counters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limits {
    /// How long the peer's SETUP may take after [`Session::start`]. Then the session closes with
    /// `CONTROL_MESSAGE_TIMEOUT`.
    ///
    /// [`Session::start`]: crate::session::Session::start
    pub setup_timeout: Duration,

    /// Payload bytes of one control message, at most 65535. Beyond it, the session closes with `INTERNAL_ERROR`.
    pub message_bytes_max: usize,

    /// Bytes of one object on a data stream before its payload, mostly its properties. Beyond it, the session closes
    /// with `INTERNAL_ERROR`.
    pub object_header_bytes_max: usize,

    /// How long a session continues after the peer closed a control stream, before it closes with `PROTOCOL_VIOLATION`.
    /// A peer that leaves ends all its streams at once and in any order, so data on other streams may still arrive.
    pub control_closed_grace: Duration,

    /// Requests that the peer may have open. Further requests are answered with `EXCESSIVE_LOAD`.
    pub requests_max: usize,

    /// Requests that this endpoint may have open, including queued ones. Further requests are refused locally.
    pub requests_local_max: usize,

    /// Local requests that wait because the peer's stream limit is reached. Further requests are refused locally.
    pub requests_queued_max: usize,

    /// Ended requests whose stream the peer has not finished. Beyond it, the oldest stream is stopped.
    pub requests_draining_max: usize,

    /// Gaps in the peer's Request IDs, which are possible since streams arrive in any order. Beyond it, the oldest gap
    /// counts as used.
    pub request_id_gaps_max: usize,

    /// Unanswered `REQUEST_UPDATE` messages of one request, in each direction. Beyond it, an update of the peer ends
    /// the request with `EXCESSIVE_LOAD`, and a local update is refused.
    pub updates_max: usize,

    /// Namespaces that the peer may announce in answer to one `SUBSCRIBE_NAMESPACE`. Beyond it, the request ends with
    /// `EXCESSIVE_LOAD`.
    pub namespaces_max: usize,

    /// Streams of all kinds that the peer opened and the session tracks. Further streams are refused with
    /// `EXCESSIVE_LOAD`.
    pub streams_max: usize,

    /// Bytes of incomplete messages and object headers on all streams of the peer. Beyond it, the stream that grows is
    /// stopped with `EXCESSIVE_LOAD`.
    pub incomplete_bytes_max: usize,

    /// How long nothing may come on a stream in the middle of a message, an object header or an object, or before its
    /// header. Then it is stopped with `EXCESSIVE_LOAD`, at the next check: within twice this time. Zero: there is no
    /// limit.
    pub stall_max: Duration,

    /// Control bytes that wait on one stream because the transport accepts no more. Beyond it, the session closes with
    /// `INTERNAL_ERROR`, since the peer does not read. If the bytes are announcements under a prefix, only that request
    /// ends, with `EXCESSIVE_LOAD`.
    pub outgoing_bytes_max: usize,

    /// Aliases of ended subscriptions that are remembered so that late objects are dropped. Beyond it, the oldest alias
    /// is removed.
    pub aliases_retired_max: usize,

    /// Subscriptions that ended with `PUBLISH_DONE` and still accept late objects. Beyond it, the oldest is retired.
    pub tracks_lingering_max: usize,

    /// How long a subscription accepts late objects after `PUBLISH_DONE`.
    pub done_linger: Duration,

    /// How long objects with an unknown Track Alias wait for the message that assigns it.
    pub unknown_alias_timeout: Duration,

    /// Datagrams with an unknown Track Alias that wait. Beyond it, the oldest is dropped.
    pub datagrams_unknown_max: usize,

    /// Payload and property bytes of the datagrams that wait. Beyond it, the oldest are dropped.
    pub datagrams_unknown_bytes_max: usize,

    /// Subgroup streams with an unknown Track Alias that wait unread. Further streams are stopped.
    pub streams_unknown_max: usize,
}

impl Limits {
    /// Limits for a server. A client chooses its peer, and may wait for it.
    pub fn for_servers() -> Self {
        Self {
            stall_max: Duration::from_secs(10),
            ..Self::default()
        }
    }
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
            incomplete_bytes_max: 1 << 20,
            stall_max: Duration::ZERO,
            outgoing_bytes_max: 256 * 1024,
            aliases_retired_max: 256,
            tracks_lingering_max: 256,
            // The drain window of the benchmark: no object that counts arrives later.
            done_linger: Duration::from_secs(2),
            // A few round trips: the control message was sent first and is retransmitted at most.
            unknown_alias_timeout: Duration::from_secs(1),
            datagrams_unknown_max: 256,
            datagrams_unknown_bytes_max: 256 * 1024,
            streams_unknown_max: 64,
        }
    }
}
