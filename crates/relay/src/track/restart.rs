//! Publishers that restart a track while the session that they had before is not known to be dead.
//!
//! A session that has fallen silent lives until its idle time-out. Meanwhile the draft knows two publishers of one
//! track [moqt-18 §9.3], and what the second sends would be taken for repetitions of what the first has sent.

use std::time::{Duration, Instant};

use weir_moqt::location::Location;

use super::{Track, Tracks, end_markers::EndMarkers};
use crate::{
    ids::{PublisherId, TrackId},
    turn::Turn,
};

impl Tracks {
    /// A publisher joins others. If it says that it has published nothing [moqt-18 §10.2.11], though they have, it
    /// may be one of them that fell and came back: it is believed until one of the others is heard of again, and they
    /// are probed.
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
            // What the others are in the middle of is not what it will send in that place.
            let subgroups = track.subgroups.iter_mut();
            for subgroup in subgroups.filter(|subgroup| subgroup.sender != Some(sender)) {
                let before = subgroup.partial_bytes();
                subgroup.forget_part();
                self.ledger.parts.hold(subgroup.session(), before, 0);
            }
        }
    }

    /// Whether a track ends with a publisher that is done, though others are there: it restarted the track, and nothing
    /// has come from them since. Of publishers behind a link that is not known.
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
    /// Probes all publishers but `sender`; returns whether one of them is established.
    fn probe_others(&mut self, turn: &mut Turn<'_>, sender: PublisherId) -> bool {
        let mut is_any_established = false;
        for other in self.publishers.iter_mut().filter(|it| it.id() != sender) {
            is_any_established |= other.is_established();
            other.probed = None;
            if !other.is_link
                && let Some(mut connection) = turn.endpoint.connection(turn.now, other.handle)
            {
                other.probed = Some(connection.stats().bytes_received);
                connection.probe();
            }
        }
        is_any_established
    }

    /// Until when the others may take to show that they are there, when a publisher is done that has restarted the
    /// track.
    pub(super) fn silence_until(&self, sender: PublisherId) -> Option<Instant> {
        let since = self.duplicates.restarted_since(sender)?;
        Some(since + PROBE_ANSWER_MAX)
    }
}

/// How long a publisher may take to answer a probe, when its track would else end.
const PROBE_ANSWER_MAX: Duration = Duration::from_millis(500);
