//! Publishers that restart a track before their former session is known to be dead.
//!
//! The session of a lost peer lasts until its idle timeout. Until then the track has two publishers [moqt-18 §9.3], and
//! the objects of the second would count as repetitions of those of the first.

use std::time::{Duration, Instant};

use weir_moqt::location::Location;

use super::{Track, Tracks, end_markers::EndMarkers};
use crate::{
    ids::{PublisherId, TrackId},
    turn::Turn,
};

impl Tracks {
    /// Handles a publisher that joins others. If the publisher announces that it has published nothing
    /// [moqt-18 §10.2.11], though the others have, it may be one of them that reconnected. The relay treats this as a
    /// restart until one of the others sends something, and probes the others.
    pub(super) fn welcome(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        sender: PublisherId,
        largest: Option<Location>,
    ) {
        let Some(track) = self.table.get(id) else {
            return;
        };
        if largest.is_some() || track.largest.is_none() {
            return;
        }
        if track.probe_others(turn, sender) {
            turn.counters.publishers_anew += 1;
            track.duplicates.begin_restart(turn.now, sender);
            track.end_markers = EndMarkers::default();
            track.group_asked = None;
            track.largest = None;
            // Incomplete objects of the others are not what the new publisher will send.
            let subgroups = track.subgroups.iter_mut();
            for subgroup in subgroups.filter(|subgroup| subgroup.sender != Some(sender)) {
                let before = subgroup.partial_bytes();
                subgroup.forget_part();
                self.ledger.parts.hold(subgroup.session(), before, 0);
            }
        }
    }

    /// Returns whether a track ends with a publisher that sent PUBLISH_DONE although others exist: it restarted the
    /// track, and nothing has come from the others since. Nothing is known of publishers behind a link.
    pub(super) fn is_ended_by(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        sender: PublisherId,
    ) -> bool {
        let Some(track) = self.table.get(id) else {
            return false;
        };
        let publisher = track.publisher(sender);
        if publisher.is_none_or(|publisher| !publisher.is_leaving())
            || !track.duplicates.has_restarted(sender)
        {
            return false;
        }
        let now = turn.now;
        let mut others = track.publishers.iter().filter(|it| it.id() != sender);
        others.all(|other| {
            let connection = turn.endpoint.connection(now, other.handle);
            connection.is_none_or(|it| Some(it.stats().bytes_received) == other.probed)
        })
    }
}

impl Track {
    /// Probes all publishers except `sender`; returns whether one of them is established.
    fn probe_others(&mut self, turn: &mut Turn<'_>, sender: PublisherId) -> bool {
        let mut is_any_established = false;
        for other in self.publishers.iter_mut().filter(|it| it.id() != sender) {
            is_any_established |= other.is_established();
            other.probed = None;
            if !other.is_link()
                && let Some(mut connection) = turn.endpoint.connection(turn.now, other.handle)
            {
                other.probed = Some(connection.stats().bytes_received);
                connection.probe();
            }
        }
        is_any_established
    }

    /// Returns until when the other publishers may answer their probe, if `sender` has restarted the track.
    pub(super) fn silence_until(&self, sender: PublisherId) -> Option<Instant> {
        let since = self.duplicates.restarted_since(sender)?;
        Some(since + PROBE_ANSWER_MAX)
    }
}

/// How long a publisher may take to answer a probe before its track ends.
const PROBE_ANSWER_MAX: Duration = Duration::from_millis(500);
