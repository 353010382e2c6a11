//! Every setting of the relay, in the order in which they are printed.

use super::{
    AdminConfig, AnonymousConfig, ClientsConfig, DrainConfig, JwtConfig, LogConfig, QlogConfig,
    RelayConfig, TlsConfig, WebTransportConfig,
    sections::{DAY, HOUR, MILLISECOND, MINUTE, SECOND},
};
use crate::relay::settings::{Setting, setting};

/// Every setting of the relay.
pub(crate) fn table() -> Vec<Setting<RelayConfig>> {
    let parts = [
        operation(),
        TlsConfig::table(),
        WebTransportConfig::table(),
        AdminConfig::table(),
        DrainConfig::table(),
        LogConfig::table(),
        QlogConfig::table(),
        AnonymousConfig::table(),
        ClientsConfig::table(),
        JwtConfig::table(),
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
            "UDP address to listen on; port 0 lets the system choose."
        ),
        setting!(threads in 1..=64, "Threads that serve, each with connections of its own."),
        setting!(cores in 0..=1023, "Run each thread on one core only; one number for each thread."),
        setting!(rest in 0..=SECOND, "Pause after handling packets, so that more are handled together; adds up to this much latency."),
        setting!(
            offload,
            "Let the kernel take several packets at once (GSO, GRO)."
        ),
        setting!(
            pauses_publishers,
            "Tell publishers to send nothing while nobody wants their track; not all can be paused."
        ),
    ]
}

fn load_limits() -> Vec<Setting<RelayConfig>> {
    vec![
        setting!(limits.load.queue_delay_max in MILLISECOND..=MINUTE, "Lag of the event loop (90th percentile): above it for a second, new sessions and requests are refused until the lag has halved."),
        setting!(limits.load.memory_bytes_max in 1 << 20..=1 << 50, "Memory of the process: above it, new sessions and requests are refused until it is below nine tenths of this."),
    ]
}

fn relay_limits() -> Vec<Setting<RelayConfig>> {
    vec![
        setting!(limits.relay.sessions_max in COUNT, "Sessions of all threads; further ones are closed."),
        setting!(limits.relay.sessions_per_address_max in COUNT, "Sessions from one address (IPv6: one /64); further ones are closed. Sessions from this machine do not count."),
        setting!(limits.relay.updates_per_second_max in COUNT, "REQUEST_UPDATEs of a session in a second; EXCESSIVE_LOAD beyond."),
        setting!(limits.relay.resets_per_second_max in COUNT, "Streams that a session may reset, stop or leave unexplained in a second; it is closed beyond."),
        setting!(limits.relay.subscriptions_per_session_max in COUNT, "Subscriptions of a session, waiting ones included; EXCESSIVE_LOAD beyond."),
        setting!(limits.relay.publications_per_session_max in COUNT, "Tracks that a session may publish; EXCESSIVE_LOAD beyond."),
        setting!(limits.relay.namespaces_per_session_max in COUNT, "Namespaces that a session may announce; EXCESSIVE_LOAD beyond."),
        setting!(limits.relay.prefixes_per_session_max in COUNT, "Prefixes of namespaces that a session may watch; EXCESSIVE_LOAD beyond."),
        setting!(limits.relay.matches_per_prefix_max in COUNT, "Namespaces or tracks under one such prefix; NAMESPACE_TOO_LARGE beyond."),
        setting!(limits.relay.token_cache_bytes_max in 0..=1 << 32, "Bytes of authorization tokens that a session may register; the session is closed beyond."),
        setting!(limits.relay.tracks_max in COUNT, "Tracks in all; EXCESSIVE_LOAD beyond."),
        setting!(limits.relay.publishers_per_track_max in COUNT, "Sessions that a track may come from at once; EXCESSIVE_LOAD beyond."),
        setting!(limits.relay.announcers_per_track_max in COUNT, "Sessions looked at for a track by what they announced, exact ones first; not asked beyond."),
        setting!(limits.relay.lag_bytes_max in BYTES, "Bytes that a subscription may be behind; its oldest groups are reset with TOO_FAR_BEHIND beyond."),
        setting!(limits.relay.lag_bytes_per_session_max in BYTES, "Bytes that all subscriptions of a session together may be behind."),
        setting!(limits.relay.streams_timed_per_session_max in COUNT, "Finished streams of a session that have a deadline and are not acknowledged yet; the first is reset for one more."),
        setting!(limits.relay.streams_per_subscription_max in COUNT, "Open streams of a subscription; the oldest that is behind is reset for one more."),
        setting!(limits.relay.subgroups_per_track_max in COUNT, "Open subgroups of a track; further ones are stopped."),
        setting!(limits.relay.rendezvous_max in 0..=DAY, "How long a SUBSCRIBE may wait for a publisher, whatever it asks for."),
        setting!(limits.relay.publisher_linger in 0..=DAY, "How long subscriptions wait for a publisher to return after the last one is lost."),
        setting!(limits.relay.done_linger in 0..=HOUR, "How long missing streams are waited for after PUBLISH_DONE."),
        setting!(limits.relay.tracks_resting_max in COUNT, "Tracks without publisher and subscriber whose objects stay in the cache; beyond it the oldest is forgotten."),
        setting!(limits.relay.fetches_per_session_max in COUNT, "Fetches of a session; EXCESSIVE_LOAD beyond."),
        setting!(limits.relay.fetches_upstream_per_session_max in COUNT, "Fetches that the relay has open at one publisher; beyond it that publisher is not asked."),
        setting!(limits.relay.inquiries_per_session_max in COUNT, "TRACK_STATUS requests of a session that were passed on to publishers; EXCESSIVE_LOAD beyond."),
        setting!(limits.relay.fill_max in 0..=HOUR, "How long a fetch may wait for publishers, whatever it asks for."),
        setting!(limits.relay.cache_track_bytes_max in 0..=1 << 40, "Bytes of the cache for one track; 0: no cache. Give it at least `limits.quic.stream_receive_bytes_max`, which a publisher may send ahead."),
        setting!(limits.relay.cache_bytes_max in 0..=1 << 40, "Bytes of the cache for all tracks and threads; the oldest objects make room."),
        setting!(limits.relay.cache_object_bytes_max in 0..=1 << 40, "Bytes of the largest object in the cache; larger ones are forwarded only, and a FETCH reports them as unknown."),
        setting!(limits.relay.cache_partial_bytes_max in 0..=1 << 40, "Bytes of objects that have arrived in part, half as many for one session; further ones are forwarded only."),
        setting!(limits.relay.cache_fetched_partial_bytes_max in 0..=1 << 40, "Bytes of objects that have arrived in part in answers to the relay's own fetches; further ones are dropped, and a FETCH reports them as unknown."),
        setting!(limits.relay.cache_age_max in 0..=DAY, "How long an object stays in the cache; its publisher may ask for less."),
        setting!(limits.relay.cache_gaps_per_track_max in COUNT, "Ranges of a track that are known not to exist; the smallest is forgotten beyond."),
        setting!(limits.relay.gaps_told_per_track_max in COUNT, "Gaps of a track that its publishers announced; the smallest is forgotten beyond."),
    ]
}

fn quic_limits() -> Vec<Setting<RelayConfig>> {
    vec![
        setting!(limits.quic.connections_max in COUNT, "Connections of all threads; refused beyond."),
        setting!(limits.quic.handshakes_max in COUNT, "Handshakes in flight, of all threads; refused beyond."),
        setting!(limits.quic.handshakes_before_retry_max in 0..=u64::from(u32::MAX), "Handshakes in flight, of all threads, above which clients must prove their address (Retry)."),
        setting!(limits.quic.uni_streams_max in COUNT, "Unidirectional streams that a peer may have open."),
        setting!(limits.quic.bidi_streams_max in COUNT, "Bidirectional streams that a peer may have open."),
        setting!(limits.quic.stream_receive_bytes_max in BYTES, "Bytes that a peer may send ahead on one stream."),
        setting!(limits.quic.receive_bytes_max in BYTES, "Bytes that a peer may send ahead on all its streams."),
        setting!(limits.quic.send_bytes_max in BYTES, "Bytes written to a connection's streams and not yet acknowledged."),
        setting!(limits.quic.datagram_receive_bytes_max in 0..=1 << 32, "Bytes of a connection's datagrams that wait to be read; 0: no datagrams."),
        setting!(limits.quic.datagram_send_bytes_max in 0..=1 << 32, "Bytes of a connection's datagrams that wait to be sent; the oldest are dropped beyond."),
        setting!(
            limits.quic.congestion,
            "How much may be in flight: `cubic` fills the queue of the bottleneck, `delay 25ms` keeps it that short."
        ),
        setting!(limits.quic.idle_timeout in MILLISECOND..=DAY, "A connection without a packet from its peer for this long is lost."),
        setting!(limits.quic.keep_alive in MILLISECOND..=DAY, "Send a ping after this long without traffic; not set: peers do it."),
    ]
}

fn session_limits() -> Vec<Setting<RelayConfig>> {
    vec![
        setting!(limits.session.setup_timeout in MILLISECOND..=HOUR, "How long a peer's SETUP may take."),
        setting!(limits.session.message_bytes_max in 16..=65_535, "Bytes of one control message; the session is closed beyond."),
        setting!(limits.session.object_header_bytes_max in 16..=1 << 30, "Bytes of one object before its payload; the session is closed beyond."),
        setting!(limits.session.control_closed_grace in 0..=MINUTE, "How long a session continues after its peer closed a control stream."),
        setting!(limits.session.requests_max in COUNT, "Requests that a peer may have open; EXCESSIVE_LOAD beyond."),
        setting!(limits.session.requests_local_max in COUNT, "Requests that the relay may have open at a peer."),
        setting!(limits.session.requests_queued_max in COUNT, "Requests of the relay that wait for the peer's stream limit."),
        setting!(limits.session.requests_draining_max in COUNT, "Ended requests whose stream the peer has not finished; the oldest is stopped beyond."),
        setting!(limits.session.request_id_gaps_max in COUNT, "Runs of Request IDs that a peer has skipped so far."),
        setting!(limits.session.updates_max in COUNT, "Unanswered REQUEST_UPDATEs of one request; EXCESSIVE_LOAD beyond."),
        setting!(limits.session.namespaces_max in COUNT, "Namespaces that a peer may announce in answer to one request."),
        setting!(limits.session.streams_max in COUNT, "Streams opened by a peer that are known at once; refused beyond."),
        setting!(limits.session.outgoing_bytes_max in 1024..=1 << 32, "Control bytes that wait on one stream; beyond it the session is closed, or the request if they announce namespaces or tracks."),
        setting!(limits.session.aliases_retired_max in COUNT, "Aliases of ended subscriptions that are remembered."),
        setting!(limits.session.tracks_lingering_max in COUNT, "Ended subscriptions that still take late objects."),
        setting!(limits.session.done_linger in 0..=HOUR, "How long a subscription takes late objects after PUBLISH_DONE."),
        setting!(limits.session.unknown_alias_timeout in 0..=MINUTE, "How long objects wait for the message that explains their alias."),
        setting!(limits.session.datagrams_unknown_max in 0..=u64::from(u32::MAX), "Datagrams with an unknown alias that wait; the oldest is dropped beyond."),
        setting!(limits.session.datagrams_unknown_bytes_max in 0..=1 << 32, "Bytes of the datagrams that wait."),
        setting!(limits.session.streams_unknown_max in 0..=u64::from(u32::MAX), "Streams with an unknown alias that wait; the next is stopped."),
    ]
}

/// What a table may hold.
const COUNT: std::ops::RangeInclusive<u64> = 1..=u32::MAX as u64;
/// What a queue may hold.
const BYTES: std::ops::RangeInclusive<u64> = 1..=u32::MAX as u64;
