//! Metrics of a relay: counters and gauges.
//!
//! Operators see each field as `weir_relay_NAME`, with its comment as the help text. Gauges are measured in
//! `dispatch/inspection.rs`.

use weir_moqt::metrics;

metrics! {
    /// Counters: metrics that only grow.
    Counters {
        /// MOQT sessions whose SETUP arrived, with those that were then refused for their token (`sessions_denied`).
        sessions,
        /// Sessions closed because the peer violated the protocol. The log gives the reason at `weir_relay=debug`.
        sessions_violated,
        /// Connections closed at `limits.relay.sessions_max`.
        sessions_refused_total,
        /// Connections closed at `limits.relay.sessions_per_address_max`.
        sessions_refused_address,
        /// Connections closed because the relay was overloaded (`limits.load`).
        sessions_refused_load,
        /// Sessions without rights closed at `limits.relay.unauthorized_max`.
        sessions_unauthorized,
        /// Sessions of publishers closed at `limits.relay.publisher_silence_max`.
        publishers_silent,
        /// Times that a publisher did not answer a SUBSCRIBE, FETCH or TRACK_STATUS of the relay within 2 s. Until it
        /// answers one, others are asked at the same time or before.
        publishers_unresponsive,
        /// Sessions closed at `limits.relay.resets_per_second_max`.
        sessions_closed_resets,
        /// Sessions closed because memory was nearly used up (`limits.load.memory_bytes_max`) and they held the most.
        sessions_closed_memory,
        /// Sessions closed at shutdown because they had not left after `drain.time`.
        sessions_drained_late,
        /// GOAWAY messages sent for single requests at shutdown, after half of `drain.time`.
        requests_moved,
        /// Requests of the relay that it repeated because the peer sent GOAWAY for them.
        requests_renewed,
        /// Overloads: how often the relay began to refuse new sessions and requests. Add threads or memory, or move
        /// clients.
        load_sheddings,
        /// Updates of requests refused at `limits.relay.updates_per_second_max`.
        updates_refused,
        /// Requests refused because the relay was overloaded (`limits.load`).
        refused_shedding,
        /// Sessions closed because a token in their SETUP was refused.
        sessions_denied,
        /// Sessions closed at `limits.relay.token_cache_bytes_max`.
        sessions_token_overflow,
        /// Sessions closed because their token or its key was revoked.
        sessions_revoked,
        /// Requests ended because their token or its key was revoked, or their namespace reserved to another publisher.
        requests_revoked,
        /// Requests ended because their authorization expired.
        requests_expired,
        /// PUBLISH messages sent to subscribers of a track prefix (SUBSCRIBE_TRACKS).
        offers,
        /// PUBLISH messages of the relay that the subscriber of the prefix rejected.
        offers_rejected,
        /// PUBLISH_BLOCKED messages sent, because no stream was free or the session was at a limit.
        offers_blocked,
        /// Subscriptions to a prefix reset at `limits.relay.matches_per_prefix_max`, because the matches became too
        /// many.
        interests_dropped,
        /// Objects received in datagrams.
        datagrams_received,
        /// Objects queued to subscribers in datagrams.
        datagrams_sent,
        /// Datagrams dropped because they are too large for the subscriber's path. Publish smaller objects, or use
        /// streams.
        datagrams_dropped_size,
        /// Datagrams dropped because the subscriber does not accept datagrams.
        datagrams_dropped_unsupported,
        /// Objects received from other threads of the relay, in datagrams and on streams.
        objects_crossed,
        /// Links established to upstream relays and relays of the fleet.
        links_established,
        /// Links to upstream relays and relays of the fleet that were lost or could not be established.
        links_failed,
        /// Links closed because the relay's own requests came back to it: the upstream relays form a ring. The log names
        /// the upstream relay.
        links_in_ring,
        /// Links replaced by new ones because the credentials for other relays have changed.
        links_renewed,
        /// Requests that an upstream relay or a relay of the fleet refused: announcements and subscriptions to prefixes for
        /// any reason, others for lack of rights. Check the rights of `upstream.token_file`, and when it expires.
        link_requests_refused,
        /// Requests of the relay itself that could not be sent over a link, at a limit of the session.
        link_requests_unsent,
        /// Registrations of other relays that were ignored at `limits.relay.registrations_max`.
        registrations_dropped,
        /// Relays of the fleet redirected to another one at `limits.relay.fleet_children_max`.
        fleet_redirected,
        /// Relays of the fleet served beyond `limits.relay.fleet_children_max`, because there was no other one to redirect
        /// them to, or because of `limits.relay.fleet_depth_max`.
        fleet_children_beyond,
        /// Redirects of relays of the fleet that this relay followed.
        fleet_redirects_followed,
        /// Redirects that this relay did not follow: they lead to a relay that is not in the registry or cannot be reached, in a
        /// circle, or beyond `limits.relay.fleet_depth_max`.
        fleet_redirects_refused,
        /// Requests of relays of the fleet that this relay's own track comes from.
        fleet_circles_refused,
        /// FETCH and TRACK_STATUS requests that did not wait for a link to a relay of the fleet, at
        /// `limits.relay.tracks_waiting_max`.
        link_waits_dropped,
        /// Objects received on subgroup streams.
        stream_objects_received,
        /// Subgroup streams received.
        streams_received,
        /// Subgroup streams opened to subscribers. Counters of sent streams include streams to other threads of the
        /// relay.
        streams_sent,
        /// Bytes of headers and payload written to subscribers' streams.
        stream_bytes_sent,
        /// Streams reset with `TOO_FAR_BEHIND` because the subscriber is too slow.
        streams_reset_lag,
        /// Groups dropped for one subscriber because it is too slow (`limits.relay.lag_bytes_max`), or because more than
        /// 1024 ended subgroups of the track were held and it had not read the oldest.
        groups_shed,
        /// Subscriptions ended because their newest group alone exceeds `limits.relay.lag_bytes_max`.
        subscriptions_too_far_behind,
        /// Streams reset because an object's delivery timeout passed.
        streams_reset_timeout,
        /// Streams to subscribers reset because the publisher reset its stream, or another publisher replaced it.
        streams_reset_upstream,
        /// Streams that subscribers stopped (STOP_SENDING).
        streams_stopped,
        /// Subgroups not sent to a subscriber, because it is behind or has `limits.relay.streams_per_subscription_max`
        /// streams.
        subgroups_skipped,
        /// Subgroup streams of publishers stopped at `limits.relay.subgroups_per_track_max`.
        subgroups_refused,
        /// Objects and streams that another publisher of the track had sent before.
        duplicates,
        /// Objects discarded because a gap, or the response to a fetch, had said that they do not exist.
        objects_ruled_out,
        /// Publishers that count as restarting a track: they joined another publisher and announced no LARGEST_OBJECT.
        publishers_anew,
        /// Tracks that lost their last publisher and had no other within `limits.relay.publisher_linger`.
        tracks_abandoned,
        /// Publishers that sent PUBLISH_DONE but not all streams within `limits.relay.done_linger`.
        publishers_incomplete,
        /// Tracks ended with `MALFORMED_TRACK` because a publisher broke the object model. Look for a faulty publisher.
        tracks_malformed,
        /// Datagrams and streams received for a track that the relay has removed.
        objects_unwanted,
        /// Fetches answered to their end.
        fetches_served,
        /// Objects sent in answers to fetches.
        fetch_objects_sent,
        /// Ranges marked as unknown in answers to fetches: neither the cache nor a publisher had them.
        fetch_ranges_unknown,
        /// Times that a stream to a subscriber was blocked because its connection accepted no more data.
        streams_waited,
        /// Fetches that the peer cancelled, or whose session ended.
        fetches_cancelled,
        /// Fetches refused for a reason without a counter of its own, mostly an error of the publisher.
        fetches_failed,
        /// Fetches that stopped waiting for a publisher, at their `FILL_TIMEOUT` or at `limits.relay.fill_max`.
        fetches_waited_out,
        /// Fetches sent to publishers.
        fetches_upstream,
        /// Fetches not sent to a publisher, at `limits.relay.fetches_upstream_per_session_max`.
        fetches_upstream_refused,
        /// Publishers' answers to fetches that contradicted the request.
        fetches_malformed,
        /// TRACK_STATUS requests passed on to publishers.
        inquiries,
        /// Unused tracks removed from the cache at `limits.relay.tracks_resting_max`.
        tracks_resting_forgotten,
        /// Groups removed because the cache was full (`limits.relay.cache_bytes_max` or `cache_track_bytes_max`).
        cache_groups_evicted,
        /// Groups removed from the cache because of their age (`limits.relay.cache_age_max`).
        cache_groups_expired,
        /// Objects removed from a group whose rest stays in the cache, because of size or age.
        cache_objects_evicted,
        /// Objects forwarded but not cached, at `limits.relay.cache_object_bytes_max` or `cache_partial_bytes_max`.
        cache_objects_too_large,
        /// Fetched objects dropped at `limits.relay.cache_object_bytes_max` or `cache_fetched_partial_bytes_max`.
        /// Fetches report them as unknown.
        fetched_objects_dropped,
        /// Ranges known not to exist that the cache removed at `limits.relay.cache_gaps_per_track_max`.
        cache_gaps_forgotten,
        /// Announced gaps removed at `limits.relay.gaps_declared_per_track_max`.
        gaps_declared_forgotten,
        /// Requests refused with `DOES_NOT_EXIST`: nobody publishes the track.
        refused_does_not_exist,
        /// Requests refused with `TIMEOUT`: no publisher came or answered in time.
        refused_timeout,
        /// Requests refused with `INVALID_RANGE`: the requested range has passed, or holds nothing.
        refused_range,
        /// Subscriptions refused at `limits.relay.subscriptions_per_session_max`.
        refused_limit_subscriptions,
        /// PUBLISH requests refused at `limits.relay.publications_per_session_max`.
        refused_limit_publications,
        /// PUBLISH_NAMESPACE requests refused at `limits.relay.namespaces_per_session_max`.
        refused_limit_namespaces,
        /// PUBLISH_NAMESPACE requests refused at `limits.relay.namespaces_max`.
        refused_limit_announcements,
        /// PUBLISH_NAMESPACE requests refused at `limits.relay.namespaces_per_address_max`.
        refused_limit_announcements_address,
        /// Subscriptions to prefixes refused at `limits.relay.prefixes_per_session_max`.
        refused_limit_prefixes,
        /// Fetches refused at `limits.relay.fetches_per_session_max`.
        refused_limit_fetches,
        /// TRACK_STATUS requests refused at `limits.relay.inquiries_per_session_max`.
        refused_limit_inquiries,
        /// Requests refused at `limits.relay.tracks_max`.
        refused_limit_tracks,
        /// Requests refused at `limits.relay.tracks_per_address_max`.
        refused_limit_tracks_address,
        /// Requests refused at `limits.relay.tracks_waiting_max`.
        refused_limit_waiting,
        /// PUBLISH requests refused at `limits.relay.publishers_per_track_max`.
        refused_limit_publishers,
        /// Times that a publisher was not asked for a track, at `limits.relay.publishers_per_track_max`.
        publishers_not_asked,
        /// Times that a search for publishers stopped at `limits.relay.announcers_per_track_max`.
        announcers_cut,
        /// Joining fetches refused because they refer to no established subscription.
        refused_joining,
        /// SUBSCRIBE and PUBLISH requests refused because the session already has one for the track.
        refused_duplicate,
        /// Subscriptions to prefixes refused because they overlap with another of the session.
        refused_overlap,
        /// Subscriptions to prefixes refused with `NAMESPACE_TOO_LARGE` at `limits.relay.matches_per_prefix_max`.
        refused_too_large,
        /// Requests and updates refused with `UNAUTHORIZED`: the client lacks the right. Check `put` and `get` of its
        /// token.
        refused_unauthorized,
        /// Requests to publish refused because the namespace is reserved to another publisher, which is connected.
        refused_owned,
        /// Requests and updates refused because their token has expired. The client needs a new token.
        refused_expired,
        /// Requests and updates refused because their token cannot be read.
        refused_malformed_token,
    }
}

metrics! {
    /// Gauges: metrics of the current state.
    Gauges {
        /// MOQT sessions open.
        sessions,
        /// Tracks with a publisher, a subscriber, or a request that waits for a publisher.
        tracks,
        /// Established subscriptions, paused ones included.
        subscriptions,
        /// Subscriptions of other threads of the relay.
        crossings,
        /// Requests that wait for a publisher.
        waiting,
        /// Namespaces announced.
        namespaces,
        /// Subscriptions to namespace prefixes and track prefixes.
        prefixes,
        /// Subgroups that are being received, or that some subscriber has not read in full.
        subgroups,
        /// Links to upstream relays and relays of the fleet that are established.
        links,
        /// Subscriptions of the relay over links to other relays, requests without an answer included.
        link_subscriptions,
        /// Other relays of the fleet that have registered something.
        fleet_relays,
        /// Namespaces that other relays of the fleet have registered.
        fleet_namespaces,
        /// 1 if the registry of the fleet cannot be reached, so that the list of namespaces may be old.
        fleet_stale,
        /// Relays of the fleet that this one serves.
        fleet_served,
        /// Most links between relays of the fleet that a track passes to reach this relay.
        fleet_depth,
        /// Bytes that relays of the fleet, served by this one, have not read, counted once for each relay. If it grows, a
        /// link to one of them is too slow.
        fleet_lag_bytes,
        /// Bytes of subgroups kept because some subscriber has not read them.
        log_bytes,
        /// Bytes that subscribers have not read, counted once for each subscriber. If it grows, subscribers are too
        /// slow.
        lag_bytes,
        /// Tracks of which only cached objects are left.
        tracks_resting,
        /// Open fetches of clients.
        fetches,
        /// Open fetches of the relay at publishers.
        fetches_upstream,
        /// Objects in the cache.
        cache_objects,
        /// Bytes of the cache, overhead included.
        cache_bytes,
    }
}
