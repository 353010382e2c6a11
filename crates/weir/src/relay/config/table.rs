//! The table of the relay's settings, in the order of `--print-config` and `docs/relay-settings.md`.

use super::{
    AdminConfig, AnonymousConfig, ClientsConfig, DrainConfig, FleetConfig, JwtConfig, LogConfig,
    QlogConfig, RelayConfig, TlsConfig, UpstreamConfig, WebTransportConfig,
    sections::{DAY, HOUR, MILLISECOND, MINUTE, SECOND},
};
use crate::relay::settings::{Setting, setting};

/// Returns every setting of the relay.
pub(crate) fn table() -> Vec<Setting<RelayConfig>> {
    let parts = [
        operation(),
        TlsConfig::table(),
        WebTransportConfig::table(),
        AdminConfig::table(),
        DrainConfig::table(),
        UpstreamConfig::table(),
        FleetConfig::table(),
        LogConfig::table(),
        QlogConfig::table(),
        AnonymousConfig::table(),
        ClientsConfig::table(),
        JwtConfig::table(),
        vec![setting!(
            auth.revoked,
            "File of revoked tokens: a line `jti ID` or `sub SUBJECT` for each. Changes end the sessions and requests that such tokens permitted, within `tls.watch`. Not set: none."
        )],
        load_limits(),
        relay_limits(),
        quic_limits(),
        session_limits(),
    ];
    parts.into_iter().flatten().collect()
}

fn operation() -> Vec<Setting<RelayConfig>> {
    vec![
        setting!(
            listen,
            "UDP address to listen on. Port 0: the system chooses one."
        ),
        setting!(threads in 1..=64, "Serving threads, each with its own connections."),
        setting!(cores in 0..=1023, "CPU core of each thread: as many numbers as `threads`. Empty: the system chooses."),
        setting!(rest in 0..=SECOND, "Pause after each round of packets, so that more packets share one round. It adds up to this much latency."),
        setting!(
            offload,
            "Whether the kernel sends and receives several packets in one call (GSO, GRO)."
        ),
        setting!(
            pauses_publishers,
            "Whether publishers get FORWARD 0 while nobody subscribes to their track. Some publishers then end the track."
        ),
        setting!(
            drafts,
            "Drafts of MOQT that the relay speaks with clients and upstream relays, by name or number, the preferred one first. A session has the first of them that its client offers."
        ),
    ]
}

fn load_limits() -> Vec<Setting<RelayConfig>> {
    vec![
        setting!(limits.load.queue_delay_max in MILLISECOND..=MINUTE, "Longest lag of an event loop (90th percentile) that is busy for half of its time. After one second above it, new connections are refused, and new requests with EXCESSIVE_LOAD, until the lag is below half of it."),
        setting!(limits.load.memory_bytes_max in 1 << 20..=1 << 50, "Most memory of the process. Above it, new connections are refused, and new requests with EXCESSIVE_LOAD, until memory is below nine tenths of it. From nine tenths on, the relay frees the oldest objects in the cache. Above it, or if nine tenths of it are given out (weir_heap_bytes), it also closes the sessions that hold the most, with INTERNAL_ERROR. While less than half of it is given out, nothing is refused or freed: what the allocator keeps serves what comes next. Huge pages make the process larger than its heap: with MIMALLOC_ALLOW_THP=0 in the environment, as in the packaged service, a session needs 15 % less memory and an object 4 % more CPU."),
    ]
}

fn relay_limits() -> Vec<Setting<RelayConfig>> {
    vec![
        setting!(limits.relay.sessions_max in COUNT, "Sessions of all threads. Further ones are closed with INTERNAL_ERROR."),
        setting!(limits.relay.sessions_per_address_max in COUNT, "Sessions from one IPv4 address or IPv6 /64, all threads together. Further ones are closed with INTERNAL_ERROR. Loopback is not counted."),
        setting!(limits.relay.unauthorized_max in MILLISECOND..=DAY, "Time that a session without rights may take until its first permitted request, which carries a token. Then it is closed with UNAUTHORIZED."),
        setting!(limits.relay.publisher_silence_max in 0..=DAY, "Time without a packet from a session that publishes or announces, although the relay pings it. Then it is closed. At first it may be silent for four times as long as its handshake took, if that is longer. 0: only `limits.quic.idle_timeout` counts."),
        setting!(limits.relay.updates_per_second_max in COUNT, "REQUEST_UPDATE messages of one session in a second. Further ones are refused with EXCESSIVE_LOAD, which ends the request."),
        setting!(limits.relay.resets_per_second_max in COUNT, "Streams that one session may reset or stop in a second, or open with a Track Alias that stays unknown. Beyond it, the session is closed with INTERNAL_ERROR."),
        setting!(limits.relay.subscriptions_per_session_max in COUNT, "Subscriptions of one session, waiting ones included. Further ones are refused with EXCESSIVE_LOAD."),
        setting!(limits.relay.publications_per_session_max in COUNT, "Tracks that one session may publish. Further ones are refused with EXCESSIVE_LOAD."),
        setting!(limits.relay.namespaces_per_session_max in COUNT, "Namespaces that one session may announce. Further ones are refused with EXCESSIVE_LOAD."),
        setting!(limits.relay.namespaces_max in COUNT, "Namespaces that the sessions of one thread may announce together. Further ones are refused with EXCESSIVE_LOAD."),
        setting!(limits.relay.namespaces_per_address_max in COUNT, "Namespaces that the sessions of one thread from one IPv4 address or IPv6 /64 may announce together. Further ones are refused with EXCESSIVE_LOAD. Loopback is not counted."),
        setting!(limits.relay.registrations_max in COUNT, "Namespaces that all other relays of the fleet may register. Further ones are not used."),
        setting!(limits.relay.fleet_children_max in COUNT, "Relays of the fleet that this one serves with one track. Further ones are redirected to one of those, so that a tree grows."),
        setting!(limits.relay.fleet_depth_max in 1..=64, "Links between relays of the fleet that a track may pass. At this depth, a relay serves further ones itself, and it follows no redirect that leads deeper."),
        setting!(limits.relay.prefixes_per_session_max in COUNT, "Prefixes that one session may subscribe to (SUBSCRIBE_NAMESPACE, SUBSCRIBE_TRACKS). Further ones are refused with EXCESSIVE_LOAD."),
        setting!(limits.relay.matches_per_prefix_max in COUNT, "Namespaces or tracks under one such prefix. With more, the request is refused with NAMESPACE_TOO_LARGE, or later reset with EXCESSIVE_LOAD."),
        setting!(limits.relay.token_cache_bytes_max in 0..=1 << 32, "Bytes of authorization tokens that one session may register. Beyond it, the session is closed with AUTH_TOKEN_CACHE_OVERFLOW."),
        setting!(limits.relay.tracks_max in COUNT, "Tracks in use. Requests for further ones are refused with EXCESSIVE_LOAD."),
        setting!(limits.relay.tracks_per_address_max in COUNT, "Tracks that requests of one IPv4 address or IPv6 /64 may add, in one thread. Requests for further ones are refused with EXCESSIVE_LOAD. Loopback is not counted."),
        setting!(limits.relay.tracks_waiting_max in COUNT, "Tracks in use that have no publisher, because a SUBSCRIBE or FETCH waits for one. Requests for further ones are refused with EXCESSIVE_LOAD."),
        setting!(limits.relay.publishers_per_track_max in COUNT, "Sessions that may publish one track at once. Further PUBLISH requests are refused with EXCESSIVE_LOAD; further announcers are not asked."),
        setting!(limits.relay.announcers_per_track_max in COUNT, "Sessions that may be asked for one track because they announced its namespace, the most specific announcements first. Further ones are not asked."),
        setting!(limits.relay.lag_bytes_max in BYTES, "Bytes that one subscription may be behind. Beyond it, its oldest groups are reset with TOO_FAR_BEHIND; if the newest group alone is too large, the subscription ends."),
        setting!(limits.relay.lag_bytes_per_session_max in BYTES, "Bytes that all subscriptions of one session together may be behind. Beyond it, the subscription that grows loses its oldest groups."),
        setting!(limits.relay.streams_timed_per_session_max in COUNT, "Streams of one session that are fully written, not acknowledged, and have a deadline. For one more, the stream opened first is reset."),
        setting!(limits.relay.streams_per_subscription_max in COUNT, "Open streams of one subscription. For one more, the oldest stream that is behind is reset; if none is, the new subgroup is skipped."),
        setting!(limits.relay.subgroups_per_track_max in COUNT, "Subgroup streams that publishers may have open for one track. Further ones are stopped with EXCESSIVE_LOAD."),
        setting!(limits.relay.rendezvous_max in 0..=DAY, "Longest time that a SUBSCRIBE waits for a publisher, whatever its RENDEZVOUS_TIMEOUT. Then it is refused with TIMEOUT."),
        setting!(limits.relay.publisher_linger in 0..=DAY, "Time that subscriptions wait for a publisher to return after the last one is lost. Then they end."),
        setting!(limits.relay.done_linger in 0..=HOUR, "Time that the relay waits for missing streams after PUBLISH_DONE. Then the track ends without them."),
        setting!(limits.relay.tracks_resting_max in COUNT, "Cached tracks that nobody publishes or subscribes to. For one more, the oldest is removed from the cache."),
        setting!(limits.relay.fetches_per_session_max in COUNT, "Open fetches of one session. Further ones are refused with EXCESSIVE_LOAD."),
        setting!(limits.relay.fetches_upstream_per_session_max in COUNT, "Open fetches of the relay at one publisher. Beyond it, that publisher is not asked."),
        setting!(limits.relay.inquiries_per_session_max in COUNT, "TRACK_STATUS requests of one session that wait for a publisher. Further ones are refused with EXCESSIVE_LOAD."),
        setting!(limits.relay.fill_max in 0..=HOUR, "Longest time that a fetch waits for publishers, whatever its FILL_TIMEOUT. Then missing ranges are marked as unknown."),
        setting!(limits.relay.cache_track_bytes_max in 0..=1 << 40, "Bytes of one track in the cache; its oldest group makes room. 0: no cache. Give it at least `limits.quic.stream_receive_bytes_max`, which a publisher may send ahead."),
        setting!(limits.relay.cache_bytes_max in 0..=1 << 40, "Bytes of the cache, all threads together. The oldest groups make room."),
        setting!(limits.relay.cache_object_bytes_max in 0..=1 << 40, "Bytes of the largest object in the cache. A larger one is only forwarded, and a FETCH reports it as unknown."),
        setting!(limits.relay.cache_partial_bytes_max in 0..=1 << 40, "Bytes of incomplete objects on subgroup streams; one session may hold half of it. Further objects are only forwarded."),
        setting!(limits.relay.cache_fetched_partial_bytes_max in 0..=1 << 40, "Bytes of incomplete objects in answers to the relay's own fetches. Further objects are dropped, and a FETCH reports them as unknown."),
        setting!(limits.relay.cache_age_max in 0..=DAY, "Time that an object stays in the cache. Its publisher may set a shorter one (MAX_CACHE_DURATION)."),
        setting!(limits.relay.cache_gaps_per_track_max in COUNT, "Ranges of one track that the cache knows not to exist. For one more, the range with the smallest location is removed."),
        setting!(limits.relay.gaps_declared_per_track_max in COUNT, "Gaps of one track that its publishers announced. For one more, the gap with the smallest location is removed."),
    ]
}

fn quic_limits() -> Vec<Setting<RelayConfig>> {
    vec![
        setting!(limits.quic.connections_max in COUNT, "Connections of all threads. Further ones are refused (CONNECTION_REFUSED)."),
        setting!(limits.quic.handshakes_max in COUNT, "Handshakes in flight, and those that failed up to a few seconds ago, all threads together. Further connections are refused (CONNECTION_REFUSED)."),
        setting!(limits.quic.handshakes_before_retry_max in 0..=u64::from(u32::MAX), "Handshakes in flight, all threads together, above which clients must validate their address (Retry)."),
        setting!(limits.quic.handshakes_per_address_max in COUNT, "Handshakes in flight from one IPv4 address or IPv6 /64, all threads together. From half of it on, clients must validate their address; further connections are refused. Loopback is not counted."),
        setting!(limits.quic.handshake_timeout in MILLISECOND..=HOUR, "Time that the handshake of a client may take. Then it is closed."),
        setting!(limits.quic.uni_streams_max in COUNT, "Unidirectional streams that a peer may have open (initial_max_streams_uni). Beyond it, the connection is closed."),
        setting!(limits.quic.bidi_streams_max in COUNT, "Bidirectional streams that a peer may have open (initial_max_streams_bidi). Beyond it, the connection is closed."),
        setting!(limits.quic.stream_receive_bytes_max in BYTES, "Flow control window of one stream. Beyond it, the connection is closed."),
        setting!(limits.quic.receive_bytes_max in BYTES, "Flow control window of a connection, all its streams together. Beyond it, the connection is closed."),
        setting!(limits.quic.send_bytes_max in BYTES, "Bytes written to a connection's streams and not acknowledged. Further data waits, and counts as lag of its subscription."),
        setting!(limits.quic.datagram_receive_bytes_max in 0..=1 << 32, "Bytes of a connection's datagrams that wait to be read. Beyond it, the oldest are dropped. 0: no datagrams; otherwise at least 2048."),
        setting!(limits.quic.datagram_send_bytes_max in 0..=1 << 32, "Bytes of a connection's datagrams that wait to be sent. Beyond it, the oldest are dropped."),
        setting!(
            limits.quic.congestion,
            "Congestion controller: `cubic` fills the queue of the bottleneck; `delay 25ms` keeps that queue at most so long, up to 10 s."
        ),
        setting!(limits.quic.idle_timeout in MILLISECOND..=DAY, "Idle timeout: a connection without a packet from its peer for this long is lost."),
        setting!(limits.quic.keep_alive in MILLISECOND..=DAY, "Interval of pings on a connection without traffic, below `limits.quic.idle_timeout`. Not set: only clients send pings."),
    ]
}

fn session_limits() -> Vec<Setting<RelayConfig>> {
    vec![
        setting!(limits.session.setup_timeout in MILLISECOND..=HOUR, "Time that a peer's SETUP may take. Then the session is closed with CONTROL_MESSAGE_TIMEOUT."),
        setting!(limits.session.message_bytes_max in 16..=65_535, "Payload bytes of one control message. Beyond it, the session is closed with INTERNAL_ERROR."),
        setting!(limits.session.object_header_bytes_max in 16..=1 << 30, "Bytes of one object before its payload, mostly properties. Beyond it, the session is closed with INTERNAL_ERROR."),
        setting!(limits.session.control_closed_grace in 0..=MINUTE, "Time that a session continues after its peer closed the control stream. Then it is closed with PROTOCOL_VIOLATION."),
        setting!(limits.session.requests_max in COUNT, "Requests that a peer may have open. Further ones are refused with EXCESSIVE_LOAD."),
        setting!(limits.session.requests_local_max in COUNT, "Requests that the relay may have open at a peer. Further ones are not sent."),
        setting!(limits.session.requests_queued_max in COUNT, "Requests of the relay that wait because the peer's stream limit is reached. Further ones are not sent."),
        setting!(limits.session.requests_draining_max in COUNT, "Ended requests whose stream the peer has not finished. For one more, the oldest stream is stopped."),
        setting!(limits.session.request_id_gaps_max in COUNT, "Gaps in the Request IDs of a peer. For one more, the oldest gap counts as used."),
        setting!(limits.session.updates_max in COUNT, "Unanswered REQUEST_UPDATE messages of one request. Beyond it, the request ends with EXCESSIVE_LOAD."),
        setting!(limits.session.namespaces_max in COUNT, "Namespaces that a peer may announce in answer to one SUBSCRIBE_NAMESPACE. Beyond it, the request ends with EXCESSIVE_LOAD."),
        setting!(limits.session.streams_max in COUNT, "Open streams of a peer that the session tracks. Further ones are refused with EXCESSIVE_LOAD."),
        setting!(limits.session.incomplete_bytes_max in 1024..=1 << 32, "Bytes of incomplete messages and object headers on all streams of a peer. Beyond it, the stream that grows is stopped with EXCESSIVE_LOAD."),
        setting!(limits.session.stall_max in 0..=HOUR, "Time that nothing may come on a stream in the middle of a message or an object. Then it is stopped with EXCESSIVE_LOAD, within twice this time. \"0s\": no limit."),
        setting!(limits.session.outgoing_bytes_max in 1024..=1 << 32, "Control bytes that wait on one stream because the peer does not read. Beyond it, the session is closed with INTERNAL_ERROR. If they are announcements under a prefix, only that request ends, with EXCESSIVE_LOAD."),
        setting!(limits.session.aliases_retired_max in COUNT, "Track Aliases of ended subscriptions that are remembered, so that late objects are dropped. For one more, the oldest is removed."),
        setting!(limits.session.tracks_lingering_max in COUNT, "Subscriptions that ended with PUBLISH_DONE and still accept late objects. For one more, the oldest stops accepting them."),
        setting!(limits.session.done_linger in 0..=HOUR, "Time that a subscription accepts late objects after PUBLISH_DONE. Later objects are dropped."),
        setting!(limits.session.unknown_alias_timeout in 0..=MINUTE, "Time that objects with an unknown Track Alias wait for the message that assigns it. Then they are dropped."),
        setting!(limits.session.datagrams_unknown_max in 0..=u64::from(u32::MAX), "Datagrams with an unknown Track Alias that wait. For one more, the oldest is dropped."),
        setting!(limits.session.datagrams_unknown_bytes_max in 0..=1 << 32, "Bytes of the datagrams with an unknown Track Alias that wait. Beyond it, the oldest are dropped."),
        setting!(limits.session.streams_unknown_max in 0..=u64::from(u32::MAX), "Subgroup streams with an unknown Track Alias that wait. Further ones are stopped."),
    ]
}

/// Range of counts.
const COUNT: std::ops::RangeInclusive<u64> = 1..=u32::MAX as u64;
/// Range of bytes in a queue.
const BYTES: std::ops::RangeInclusive<u64> = 1..=u32::MAX as u64;
