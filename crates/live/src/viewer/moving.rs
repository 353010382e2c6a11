//! The way of a player from one relay to the next. Playing continues if the next relay has the same catalog.

use weir_client::turn::Turn;

use super::unpacking::Unpacker;
use super::{Discovery, Freshness, Phase, Sequence, Viewer};
use crate::plan::Plan;

impl Viewer {
    /// Begins again after the client has left its relay.
    pub(super) fn note_move(&mut self) {
        let Some(reason) = self.client.take_move() else {
            return;
        };
        self.last_move = Some(reason);
        self.relays_left += 1;
        self.has_moved = true;
        self.discovery = Discovery::default();
        self.tracks.clear();
        self.fetches.clear();
        self.streams.clear();
        // The rest of a group that was under way does not come.
        self.sequence = self.settings.in_sequence.then(Sequence::new);
        self.freshness = self.settings.stops_stale.then(Freshness::default);
        if self.phase.ended_at().is_none() {
            self.phase = Phase::default();
        }
    }

    /// Continues to play a plan at the next relay. Returns false if another plan was played before.
    pub(super) fn resume(&mut self, turn: &mut Turn<'_>, plan: &Plan) -> bool {
        let goes_on = std::mem::take(&mut self.has_moved) && self.plan.as_ref() == Some(plan);
        if goes_on {
            let tracks = plan.video.iter();
            let tracks = tracks.map(|one| (one.name.clone(), Some(Unpacker::new(one.clone()))));
            self.subscribe(turn, tracks.collect());
        }
        goes_on
    }
}
