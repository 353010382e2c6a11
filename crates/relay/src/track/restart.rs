//! Publishers that begin a track anew while the session that they had before is not known to be dead.
//!
//! A session that has fallen silent lives until its idle time-out. Meanwhile the draft knows two publishers of one
//! track [moqt-18 §9.3], and what the second sends would be taken for repetitions of what the first has sent.

use std::time::{Duration, Instant};

use weir_moqt::location::Location;

use crate::{
    dispatch::Owners, track::Track, track::duplicates::Sender, track::end_markers::Ends,
    track::table::TrackId, turn::Turn,
};

impl Owners {
    /// A publisher joins others. If it says that it has published nothing [moqt-18 §10.2.11], though they have, it
    /// may be one of them that fell and came back: it is believed until one of the others is heard of again, and they
    /// are asked for a sign of life.
    pub(crate) fn welcome(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        sender: Sender,
        largest: Option<Location>,
    ) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        if largest.is_some() || track.largest.is_none() {
            return;
        }
        let mut is_anew = false;
        let others = track.sources.iter_mut();
        for other in others.filter(|other| (other.handle, other.request) != sender) {
            is_anew |= other.is_established();
            other.probed = None;
            if !other.is_neighbour
                && let Some(mut connection) = turn.endpoint.connection(turn.now, other.handle)
            {
                other.probed = Some(connection.stats().bytes_received);
                connection.probe();
            }
        }
        if is_anew {
            turn.counters.publishers_anew += 1;
            track.duplicates.begin_anew(turn.now, sender);
            track.ends = Ends::default();
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

    /// Whether a track ends with a publisher that is done, though others are there: it counted anew, and they gave
    /// no sign of life since. Of a neighbour's publishers that is not known.
    pub(crate) fn is_ended_by(&mut self, turn: &mut Turn<'_>, id: TrackId, sender: Sender) -> bool {
        let Some(track) = self.tracks.get(id) else {
            return false;
        };
        let source = track.source(sender.0, sender.1);
        if source.is_none_or(|source| source.leaving.is_none())
            || !track.duplicates.is_newcomer(sender)
        {
            return false;
        }
        let mut others = track.sources.iter();
        others.all(|other| {
            (other.handle, other.request) == sender
                || turn
                    .endpoint
                    .connection(turn.now, other.handle)
                    .is_none_or(|connection| {
                        Some(connection.stats().bytes_received) == other.probed
                    })
        })
    }
}

impl Track {
    /// Until when the others may take to give a sign of life when a publisher is done that counts anew.
    pub(crate) fn silence_until(&self, sender: Sender) -> Option<Instant> {
        let since = self.duplicates.newcomer_since(sender)?;
        Some(since + SIGN_OF_LIFE_MAX)
    }
}

/// How long a publisher may take to give a sign of life, when its track would else end.
const SIGN_OF_LIFE_MAX: Duration = Duration::from_millis(500);
