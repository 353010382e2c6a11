//! Configuration of a relay: limits, shutdown.

use std::time::Duration;

use crate::LoadLimits;

/// Configuration of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Limits of the relay's own tables.
    pub limits: Limits,
    /// Limits of each session.
    pub session_limits: weir_moqt::limits::Limits,
    /// The load above which the relay refuses new sessions and requests.
    pub load: LoadLimits,
    /// Time that sessions have to leave at shutdown.
    pub drain_max: Duration,
    /// The URI in GOAWAY; `None` for the URI of this relay.
    pub successor: Option<String>,
    /// Whether publishers are paused (FORWARD 0) while nobody subscribes to their track. This saves their uplink, and
    /// costs the first subscriber a round trip. Publishers that do not support an update of their PUBLISH then end the
    /// track, and the cache lacks what was not sent.
    pub pauses_publishers: bool,
    /// Name and version in SETUP; `None` to leave them out.
    pub implementation: Option<String>,
    /// A random number of this process, the same for all its threads, by which it recognises its own requests if upstream
    /// relays form a ring.
    pub identity: u64,
}

/// Limits of the relay's tables and queues.
///
/// Exceeding a limit affects only the peer that caused it: a request is refused, or an object is dropped for one
/// subscriber. A counter counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions in total. Further ones are closed with `INTERNAL_ERROR`.
    pub sessions_max: usize,
    /// Sessions from one IPv4 address or one IPv6 /64. Further ones are closed with `INTERNAL_ERROR`. Loopback
    /// addresses are not counted.
    pub sessions_per_address_max: usize,
    /// Time that a session to which SETUP granted nothing may take until its first permitted request. Then it is closed
    /// with `UNAUTHORIZED`.
    pub unauthorized_max: Duration,
    /// Time without a packet from a session that publishes or announces something, although it was pinged. Then it is
    /// closed with `INTERNAL_ERROR`, at the next check: within six fifths of this time. Zero: only the idle timeout of
    /// the connection counts.
    pub publisher_silence_max: Duration,
    /// REQUEST_UPDATE messages of one session in a second. Further ones are refused with `EXCESSIVE_LOAD`, which ends
    /// the request.
    pub updates_per_second_max: u32,
    /// Streams that one session may reset or stop in a second, including requests and streams whose Track Alias stays
    /// unknown. Beyond it, the session is closed with `INTERNAL_ERROR`.
    pub resets_per_second_max: u32,
    /// Subscriptions of one session, waiting ones included. Further ones are refused with `EXCESSIVE_LOAD`.
    pub subscriptions_per_session_max: usize,
    /// Tracks that one session may publish. Further ones are refused with `EXCESSIVE_LOAD`.
    pub publications_per_session_max: usize,
    /// Namespaces that one session may announce. Further ones are refused with `EXCESSIVE_LOAD`.
    pub namespaces_per_session_max: usize,
    /// Namespaces that all sessions may announce. Further ones are refused with `EXCESSIVE_LOAD`.
    pub namespaces_max: usize,
    /// Namespaces that the clients of one IPv4 address or IPv6 /64 may announce. Further ones are refused with
    /// `EXCESSIVE_LOAD`. Loopback addresses are not counted.
    pub namespaces_per_address_max: usize,
    /// Namespaces that all other relays of a fleet may register. Further ones are not used.
    pub registrations_max: usize,
    /// Relays of a fleet that this one serves with one track. Further ones are redirected to one of those. Relays that the
    /// registry does not know are not counted.
    pub fleet_children_max: usize,
    /// Links between relays of a fleet that a track passes to be served to a client. No relay is redirected so that there would
    /// be more.
    pub fleet_depth_max: usize,
    /// Prefixes that one session may subscribe to, of namespaces and tracks together. Further ones are refused with
    /// `EXCESSIVE_LOAD`.
    pub prefixes_per_session_max: usize,
    /// Namespaces or tracks under one such prefix. With more, the request is refused with `NAMESPACE_TOO_LARGE`, or
    /// later reset with `EXCESSIVE_LOAD`.
    pub matches_per_prefix_max: usize,
    /// Bytes of authorization tokens that one session may register, plus 16 for each [moqt-18 §10.3.1.3]. Beyond it,
    /// the session is closed with `AUTH_TOKEN_CACHE_OVERFLOW`.
    pub token_cache_bytes_max: u64,
    /// Tracks in use. Requests for further ones are refused with `EXCESSIVE_LOAD`.
    pub tracks_max: usize,
    /// Tracks that requests of one IPv4 address or IPv6 /64 may add. Requests for further ones are refused with
    /// `EXCESSIVE_LOAD`. Loopback addresses are not counted.
    pub tracks_per_address_max: usize,
    /// Tracks in use of which no publisher is known, because a SUBSCRIBE or FETCH waits for one. Requests for further
    /// ones are refused with `EXCESSIVE_LOAD`; publishers find room up to `tracks_max`.
    pub tracks_waiting_max: usize,
    /// Cached tracks that nobody publishes or subscribes to. Beyond it, the oldest is removed.
    pub tracks_resting_max: usize,
    /// Sessions that may publish one track at once. Further PUBLISH requests are refused with `EXCESSIVE_LOAD`; further
    /// announcers of its namespace are not asked.
    pub publishers_per_track_max: usize,
    /// Sessions that may be asked for one track because they announced its namespace: the most specific announcements
    /// first, then the oldest. Further ones are asked neither for objects nor for the track status.
    pub announcers_per_track_max: usize,
    /// Bytes that one subscription may be behind, on all its streams, without data that its connection has accepted.
    /// Beyond it, its oldest groups are reset with `TOO_FAR_BEHIND`. If the newest group alone is too large, the
    /// subscription ends.
    pub lag_bytes_max: u64,
    /// Bytes that all subscriptions of one session together may be behind. Beyond it, the subscription that grows loses
    /// its oldest groups.
    pub lag_bytes_per_session_max: u64,
    /// Open subgroup streams of one subscription. For one more, the oldest stream that is behind is reset with
    /// `TOO_FAR_BEHIND`; if none is behind, the new subgroup is skipped.
    pub streams_per_subscription_max: usize,
    /// Streams of one session that are fully written, not acknowledged, and have a deadline: those with a delivery
    /// timeout, and those whose publisher was displaced. For one more, the stream opened first is reset.
    pub streams_timed_per_session_max: usize,
    /// Subgroup streams that publishers may have open for one track. Further ones are stopped.
    pub subgroups_per_track_max: usize,
    /// Open fetches of one session. Further ones are refused with `EXCESSIVE_LOAD`.
    pub fetches_per_session_max: usize,
    /// Open fetches of the relay at one publisher. Beyond it, that publisher is not asked.
    pub fetches_upstream_per_session_max: usize,
    /// TRACK_STATUS requests of one session that wait for a publisher. Further ones are refused with `EXCESSIVE_LOAD`.
    pub inquiries_per_session_max: usize,
    /// Longest time that a fetch waits for publishers, whatever its `FILL_TIMEOUT` [moqt-18 §10.2.5].
    pub fill_max: Duration,
    /// Longest time that a SUBSCRIBE waits for a publisher, whatever its `RENDEZVOUS_TIMEOUT`.
    pub rendezvous_max: Duration,
    /// Time that the subscribers of a track are kept after its last publisher is lost without PUBLISH_DONE.
    pub publisher_linger: Duration,
    /// Time that the relay waits after PUBLISH_DONE for missing streams, and for open streams on which nothing arrives.
    pub done_linger: Duration,
    /// Bytes of one track in the cache, overhead included. Its oldest group makes room. 0 disables the cache.
    pub cache_track_bytes_max: u64,
    /// Bytes of all tracks in the cache. The oldest group makes room.
    pub cache_bytes_max: u64,
    /// Bytes of the largest object in the cache. A larger one is only forwarded, and fetches report it as unknown.
    pub cache_object_bytes_max: u64,
    /// Bytes of incomplete objects of all tracks on subgroup streams; one session may hold half of it. A further object
    /// is only forwarded.
    pub cache_partial_bytes_max: u64,
    /// Bytes of incomplete objects in answers to the relay's own fetches. A further object is dropped, and fetches
    /// report it as unknown.
    pub cache_fetched_partial_bytes_max: u64,
    /// Time that an object stays in the cache. A publisher's `MAX_CACHE_DURATION` may shorten it [moqt-18 §12.3].
    pub cache_age_max: Duration,
    /// Ranges of one track that the cache knows not to exist, without the end of each cached group. Beyond it, the
    /// range with the smallest location is removed.
    pub cache_gaps_per_track_max: usize,
    /// Gaps of one track that its publishers announced, kept to detect objects inside them. Beyond it, the gap with the
    /// smallest location is removed [moqt-18 §12.8, §12.9].
    pub gaps_declared_per_track_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions_max: 20_000,
            sessions_per_address_max: 4096,
            unauthorized_max: Duration::from_secs(10),
            publisher_silence_max: Duration::from_millis(2_500),
            updates_per_second_max: 100,
            resets_per_second_max: 1000,
            subscriptions_per_session_max: 1024,
            publications_per_session_max: 1024,
            namespaces_per_session_max: 1024,
            namespaces_max: 50_000,
            namespaces_per_address_max: 12_500,
            registrations_max: 200_000,
            fleet_children_max: 32,
            fleet_depth_max: 4,
            prefixes_per_session_max: 64,
            matches_per_prefix_max: 4096,
            token_cache_bytes_max: 16 << 10,
            tracks_max: 100_000,
            tracks_per_address_max: 25_000,
            tracks_waiting_max: 50_000,
            tracks_resting_max: 10_000,
            publishers_per_track_max: 16,
            announcers_per_track_max: 256,
            lag_bytes_max: 4 << 20,
            lag_bytes_per_session_max: 16 << 20,
            streams_per_subscription_max: 128,
            streams_timed_per_session_max: 1024,
            subgroups_per_track_max: 256,
            fetches_per_session_max: 64,
            fetches_upstream_per_session_max: 256,
            inquiries_per_session_max: 64,
            fill_max: Duration::from_secs(10),
            rendezvous_max: Duration::from_secs(30),
            publisher_linger: Duration::from_secs(5),
            done_linger: Duration::from_secs(2),
            cache_track_bytes_max: 16 << 20,
            cache_bytes_max: 512 << 20,
            cache_object_bytes_max: 8 << 20,
            cache_partial_bytes_max: 64 << 20,
            cache_fetched_partial_bytes_max: 64 << 20,
            cache_age_max: Duration::from_mins(1),
            cache_gaps_per_track_max: 1024,
            gaps_declared_per_track_max: 256,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            session_limits: weir_moqt::limits::Limits::for_servers(),
            load: LoadLimits::default(),
            drain_max: Duration::from_secs(10),
            successor: None,
            pauses_publishers: false,
            implementation: Some("weir".to_owned()),
            identity: 0,
        }
    }
}
