//! What a relay has done and what it holds: counters and gauges.
//!
//! Operators see each field as `weir_relay_NAME`. Gauges are filled in where the dispatch looks at all owners
//! (`dispatch/inspection.rs`).

use weir_moqt::metrics;

metrics! {
    /// Numbers that only grow.
    Counters {
        /// Sessions that were set up.
        sessions,
        /// Sessions closed because the peer broke the protocol.
        sessions_violated,
        /// Connections closed because there were too many sessions.
        sessions_refused_total,
        /// Connections closed because too many sessions came from their address.
        sessions_refused_address,
        /// Connections closed because the host could hardly keep up.
        sessions_refused_load,
        /// Sessions closed because they reset or stopped too many streams.
        sessions_closed_resets,
        /// Sessions closed because they did not leave in time when the relay was to stop.
        sessions_drained_late,
        /// Requests that sessions were asked to move elsewhere, one by one, when the relay was to stop.
        requests_moved,
        /// Requests of the relay that publishers and subscribers asked it to make anew.
        requests_renewed,
        /// Times that the load became too much.
        load_sheddings,
        /// Updates refused because a session made too many in a second.
        updates_refused,
        /// Requests refused because the host could hardly keep up.
        refused_shedding,
        /// Sessions closed because the authority denied the tokens of their SETUP.
        sessions_denied,
        /// Sessions closed because they registered more tokens than the cache takes.
        sessions_token_overflow,
        /// Requests ended because their authorization did.
        requests_expired,
        /// Tracks offered to sessions that asked for all under a prefix.
        offers,
        /// Of those, tracks that the session did not want.
        offers_rejected,
        /// Tracks not offered for lack of a stream or of room in the session's limits.
        offers_blocked,
        /// Requests for prefixes reset because too much came to lie under them.
        interests_dropped,
        /// Objects received in datagrams.
        datagrams_received,
        /// Objects handed to subscribers' connections as datagrams.
        datagrams_sent,
        /// Datagrams dropped for a subscriber whose path does not carry that size.
        datagrams_dropped_size,
        /// Datagrams dropped for a subscriber that takes none.
        datagrams_dropped_unsupported,
        /// Objects received from other threads of the relay, on either way.
        objects_crossed,
        /// Objects received on subgroup streams.
        stream_objects_received,
        /// Subgroup streams received.
        streams_received,
        /// Subgroup streams opened to subscribers; this and what follows counts other threads of the relay too.
        streams_sent,
        /// Payload and header bytes written to subscribers' streams.
        stream_bytes_sent,
        /// Streams to subscribers that were reset because they fell too far behind.
        streams_reset_lag,
        /// Groups given up for a subscriber because they fell too far behind.
        groups_shed,
        /// Subscriptions ended because a single group was too much for them.
        subscriptions_too_far_behind,
        /// Streams to subscribers that were reset because an object's delivery time-out had passed.
        streams_reset_timeout,
        /// Streams to subscribers that were reset because the publisher reset its own.
        streams_reset_upstream,
        /// Streams that subscribers stopped.
        streams_stopped,
        /// Subgroups skipped for a subscriber with too many streams open.
        subgroups_skipped,
        /// Subgroup streams stopped because a track had too many open.
        subgroups_refused,
        /// Objects and streams received again from another publisher of the same track.
        duplicates,
        /// Objects that came where an answer to a fetch, or a gap, had said that there are none: neither kept nor passed on.
        objects_ruled_out,
        /// Publishers that began a track anew beside others of which nothing was heard since.
        publishers_anew,
        /// Tracks ended for their subscribers because no publisher came back in time.
        tracks_abandoned,
        /// Publishers that were done and whose last streams did not come in time.
        publishers_incomplete,
        /// Tracks ended because they broke the rules of the object model.
        tracks_malformed,
        /// Objects that came for no track that the relay still holds.
        objects_unwanted,
        /// Fetches served to their end.
        fetches_served,
        /// Objects sent in answer to fetches.
        fetch_objects_sent,
        /// Ranges of fetches that stayed unknown.
        fetch_ranges_unknown,
        /// Times that a stream to a subscriber had to wait because its connection took no more.
        streams_waited,
        /// Fetches that their peers ended.
        fetches_cancelled,
        /// Fetches refused for a reason of the publisher's.
        fetches_failed,
        /// Times that a fetch had waited for publishers long enough.
        fetches_waited_out,
        /// Fetches that the relay sent to publishers.
        fetches_upstream,
        /// Times that a publisher was not asked because the relay had too many fetches open there.
        fetches_upstream_refused,
        /// Of those sent, answers that did not keep to what was asked for.
        fetches_malformed,
        /// Questions how a track stands that were passed on to publishers.
        inquiries,
        /// Tracks that nobody used and whose objects were forgotten because there were too many.
        tracks_resting_forgotten,
        /// Groups forgotten because the cache was full.
        cache_groups_evicted,
        /// Groups forgotten because they were too old.
        cache_groups_expired,
        /// Objects forgotten of a group that was kept: it is alone and too large, or lasts too long.
        cache_objects_evicted,
        /// Objects of streams not kept because they are too large, or because others that had arrived in part left no room.
        cache_objects_too_large,
        /// Objects of answers to fetches of the relay that were dropped for the same reasons: to those who fetch them they
        /// are unknown.
        fetched_objects_dropped,
        /// Ranges known not to exist that were forgotten because there are too many.
        cache_gaps_forgotten,
        /// Gaps that publishers told of and that were forgotten because there are too many.
        gaps_told_forgotten,
        /// Requests refused because nobody publishes what they ask for.
        refused_does_not_exist,
        /// Requests that waited for a publisher in vain.
        refused_timeout,
        /// Requests refused because the range that they ask for is over.
        refused_range,
        /// Subscriptions refused because the session had too many.
        refused_limit_subscriptions,
        /// Publications refused because the session had too many.
        refused_limit_publications,
        /// Namespaces refused because the session had announced too many.
        refused_limit_namespaces,
        /// Requests for prefixes refused because the session had too many.
        refused_limit_prefixes,
        /// Fetches refused because the session had too many.
        refused_limit_fetches,
        /// Questions how a track stands that were refused because the session had too many.
        refused_limit_inquiries,
        /// Requests refused because there were too many tracks.
        refused_limit_tracks,
        /// Publications refused because too many sessions published the track.
        refused_limit_publishers,
        /// Times that a publisher was not asked for a track because too many sessions published it.
        publishers_not_asked,
        /// Times that more sessions had announced a track's namespace than are looked at.
        announcers_cut,
        /// Fetches refused because there is no subscription to join.
        refused_joining,
        /// Requests refused because the session already has that subscription.
        refused_duplicate,
        /// Requests for prefixes that overlap with another of the session.
        refused_overlap,
        /// Requests for prefixes under which there is too much.
        refused_too_large,
        /// Requests and updates that nothing permits.
        refused_unauthorized,
        /// Requests and updates whose authorization was over.
        refused_expired,
        /// Requests and updates with a token that cannot be read.
        refused_malformed_token,
    }
}

metrics! {
    /// Numbers that rise and fall: what the relay holds now.
    Gauges {
        /// Sessions.
        sessions,
        /// Tracks with a publisher, a subscriber, or someone waiting.
        tracks,
        /// Established subscriptions, those that want no objects now included.
        subscriptions,
        /// Tracks that another thread of the relay was offered or asked for.
        crossings,
        /// Requests that wait for a publisher.
        waiting,
        /// Namespaces announced.
        namespaces,
        /// Prefixes that sessions want to hear of.
        prefixes,
        /// Subgroups being received or not yet taken by all.
        subgroups,
        /// Bytes of subgroups that some subscriber has not taken yet.
        log_bytes,
        /// The same, for each subscriber that has not taken them.
        lag_bytes,
        /// Tracks of which nothing is left but what the cache remembers.
        tracks_resting,
        /// Fetches of peers.
        fetches,
        /// Fetches of the relay.
        fetches_upstream,
        /// Objects in the cache.
        cache_objects,
        /// Bytes in the cache, with what it costs to keep them.
        cache_bytes,
    }
}
