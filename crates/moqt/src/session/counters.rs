//! What a session dropped, refused or gave up, by reason.

crate::metrics! {
    /// Counts of everything a session did not pass on, each from zero at its start.
    Counters {
        /// Sessions closed because no SETUP came within `setup_timeout`.
        setup_overdue,
        /// Sessions closed because the peer ended its control stream, `control_closed_grace` after that.
        control_closed,
        /// Requests of peers answered with `EXCESSIVE_LOAD` because `requests_max` were open.
        requests_over_limit,
        /// Own requests refused because `requests_local_max` were open.
        requests_local_over_limit,
        /// Own requests refused because `requests_queued_max` waited for a stream.
        requests_queued_over_limit,
        /// Own updates refused because the peer had not answered `updates_max`.
        updates_local_over_limit,
        /// Sessions closed because a control message had more than `message_bytes_max`.
        messages_too_long,
        /// Sessions closed because an object had more than `object_header_bytes_max` before its payload.
        object_headers_too_long,
        /// Requests of peers that the session rejected itself: reserved namespaces, unknown mandatory properties, bad tokens, GOAWAY.
        requests_rejected,
        /// Streams of ended requests that were stopped because `requests_draining_max` waited.
        requests_not_drained,
        /// Runs of skipped Request IDs given up at `request_id_gaps_max`.
        request_id_gaps_closed,
        /// Requests ended because the peer had `updates_max` updates unanswered.
        updates_over_limit,
        /// Requests ended because the peer announced `namespaces_max` namespaces.
        namespaces_over_limit,
        /// Streams that the peer reset before it was known what they are for.
        streams_reset_early,
        /// Streams refused because the peer had `streams_max` open.
        streams_over_limit,
        /// Sessions closed because control bytes waited beyond `outgoing_bytes_max`.
        outgoing_over_limit,
        /// Requests for namespaces or tracks ended because what was to be told waited beyond `outgoing_bytes_max`.
        announcements_over_limit,
        /// Aliases of ended subscriptions forgotten at `aliases_retired_max`.
        aliases_forgotten,
        /// Datagrams for subscriptions that have ended.
        datagrams_late,
        /// Datagrams dropped because `datagrams_unknown_max` with an unknown alias waited.
        datagrams_unknown_over_limit,
        /// Datagrams dropped because `datagrams_unknown_bytes_max` with an unknown alias waited.
        datagrams_unknown_over_bytes,
        /// Datagrams dropped because nothing explained their alias in time.
        datagrams_unknown_expired,
        /// Data streams stopped because their subscription or fetch has ended.
        streams_late,
        /// Data streams stopped because too many with an unknown alias waited.
        streams_unknown_over_limit,
        /// Data streams stopped because nothing explained their alias in time.
        streams_unknown_expired,
        /// Subscriptions retired before their time because `tracks_lingering_max` lingered.
        tracks_lingering_over_limit,
        /// Sessions closed because this endpoint's role answered what was not asked, or twice: a fault of ours.
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
            Some("Sessions closed because no SETUP came within `setup_timeout`.")
        );
        assert_eq!(Counters::descriptions().count(), sum.iter().count());
    }
}
