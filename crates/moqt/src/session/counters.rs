//! Counters of what a session dropped, refused or ended, by reason.

crate::metrics! {
    /// Counters of a session, from zero at its start. Operators see each as `weir_session_NAME_total`, with its comment as
    /// the help text.
    Counters {
        /// Sessions closed because the peer sent no SETUP within `limits.session.setup_timeout`.
        setup_overdue,
        /// Sessions closed because the peer ended its control stream, after `limits.session.control_closed_grace`.
        control_closed,
        /// Requests of peers refused at `limits.session.requests_max`.
        requests_over_limit,
        /// Requests to peers not sent, at `limits.session.requests_local_max`.
        requests_local_over_limit,
        /// Requests to peers not sent, at `limits.session.requests_queued_max`.
        requests_queued_over_limit,
        /// Updates to peers not sent, because the peer had not answered `limits.session.updates_max` earlier ones.
        updates_local_over_limit,
        /// Sessions closed because a control message exceeded `limits.session.message_bytes_max`.
        messages_too_long,
        /// Sessions closed because an object's header exceeded `limits.session.object_header_bytes_max`.
        object_headers_too_long,
        /// Requests of peers refused before the relay sees them: reserved namespace, unknown mandatory property, bad
        /// token, GOAWAY.
        requests_rejected,
        /// Streams of ended requests stopped at `limits.session.requests_draining_max`, because the peer had not
        /// finished them.
        requests_not_drained,
        /// Gaps in Request IDs treated as used at `limits.session.request_id_gaps_max`.
        request_id_gaps_closed,
        /// Requests of peers ended at `limits.session.updates_max` unanswered updates.
        updates_over_limit,
        /// Requests ended because the peer announced more than `limits.session.namespaces_max` namespaces.
        namespaces_over_limit,
        /// Streams that the peer reset before their type or track was known.
        streams_reset_early,
        /// Streams of peers refused at `limits.session.streams_max`.
        streams_over_limit,
        /// Streams stopped at `limits.session.incomplete_bytes_max`.
        incomplete_over_limit,
        /// Streams stopped at `limits.session.stall_max`.
        streams_stalled,
        /// Sessions closed at `limits.session.outgoing_bytes_max`, because the peer does not read its control messages.
        outgoing_over_limit,
        /// Subscriptions to prefixes ended at `limits.session.outgoing_bytes_max`, because the peer does not read the
        /// announcements.
        announcements_over_limit,
        /// Track Aliases of ended subscriptions removed at `limits.session.aliases_retired_max`.
        aliases_forgotten,
        /// Datagrams dropped because their subscription has ended.
        datagrams_late,
        /// Datagrams with an unknown Track Alias dropped at `limits.session.datagrams_unknown_max`.
        datagrams_unknown_over_limit,
        /// Datagrams with an unknown Track Alias dropped at `limits.session.datagrams_unknown_bytes_max`.
        datagrams_unknown_over_bytes,
        /// Datagrams dropped because no message assigned their Track Alias within
        /// `limits.session.unknown_alias_timeout`.
        datagrams_unknown_expired,
        /// Data streams stopped because their subscription or fetch has ended.
        streams_late,
        /// Data streams with an unknown Track Alias stopped at `limits.session.streams_unknown_max`.
        streams_unknown_over_limit,
        /// Data streams stopped because no message assigned their Track Alias within
        /// `limits.session.unknown_alias_timeout`.
        streams_unknown_expired,
        /// Subscriptions that stopped accepting late objects early, at `limits.session.tracks_lingering_max`.
        tracks_lingering_over_limit,
        /// Sessions closed because the relay answered a request that does not exist, or twice: a bug of weir. Please
        /// report it.
        misused,
        /// Bytes of padding discarded, from streams and datagrams.
        padding_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_listed_and_summed() {
        let one = Counters {
            setup_overdue: 1,
            padding_bytes: 2,
            ..Counters::default()
        };
        let sum = one.plus(one).plus(Counters::default());
        let listed: Vec<_> = sum.iter().filter(|(_, value)| *value > 0).collect();
        assert_eq!(listed, [("setup_overdue", 2), ("padding_bytes", 4)]);
        let mut told = Counters::descriptions();
        assert_eq!(
            told.next(),
            Some(
                "Sessions closed because the peer sent no SETUP within `limits.session.setup_timeout`."
            )
        );
        assert_eq!(Counters::descriptions().count(), sum.iter().count());
    }
}
