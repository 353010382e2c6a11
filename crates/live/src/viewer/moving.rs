//! The way of a player from one relay to the next. Playing continues if the next relay has the same catalog.
//!
//! At GOAWAY, the player leaves between two groups, and gets the next group from its beginning. A publisher at the same relay leaves
//! then, too, so the rest of a group is nowhere else.

use std::time::{Duration, Instant};

use weir_client::turn::Turn;
use weir_moqt::error::SessionError;
use weir_moqt::message::GoAway;

use super::config::Join;
use super::unpacking::Unpacker;
use super::{Discovery, Freshness, Phase, Sequence, Viewer};
use crate::plan::Plan;

/// A relay that is to be left.
#[derive(Debug)]
pub(super) struct Departure {
    goaway: GoAway,
    /// The newest group when GOAWAY came.
    group: Option<u64>,
    /// Since when no stream is open.
    quiet_since: Option<Instant>,
    /// When the player leaves at the latest.
    by: Instant,
}

impl Departure {
    /// Returns when the player leaves if nothing else happens.
    pub(super) fn poll_timeout(&self) -> Instant {
        let quiet = self.quiet_since.map(|since| since + QUIET);
        quiet.map_or(self.by, |at| at.min(self.by))
    }
}

impl Viewer {
    /// Prepares to leave a relay that has sent GOAWAY. Fails if there is no other.
    pub(super) fn prepare_to_leave(&mut self, turn: &mut Turn<'_>, goaway: &GoAway) {
        if !self.client.may_follow(goaway) {
            self.fail_to_follow(turn);
        } else if self.departure.is_none() {
            let time = goaway.timeout.map_or(DEPARTURE_MAX, |timeout| timeout / 2);
            self.departure = Some(Departure {
                goaway: goaway.clone(),
                group: self.newest_group,
                quiet_since: None,
                by: turn.now + time.min(DEPARTURE_MAX),
            });
        }
    }

    /// Leaves the relay that has sent GOAWAY if a new group has begun, if nothing has been under way for a while, or if the time is
    /// over.
    pub(super) fn depart(&mut self, turn: &mut Turn<'_>) {
        let (newest, is_quiet) = (self.newest_group, self.streams.is_empty());
        let is_playing = !self.tracks.is_empty();
        let Some(departure) = &mut self.departure else {
            return;
        };
        if self.phase.ended_at().is_some() {
            // There is nothing to play at another relay.
            self.departure = None;
            self.config.reconnect_timeout = Duration::ZERO;
            return;
        }
        if is_quiet {
            departure.quiet_since.get_or_insert(turn.now);
        } else {
            departure.quiet_since = None;
        }
        let is_due =
            newest > departure.group || departure.poll_timeout() <= turn.now || !is_playing;
        if is_due && !self.client.follow(turn, &departure.goaway) {
            self.fail_to_follow(turn);
        }
    }

    fn fail_to_follow(&mut self, turn: &mut Turn<'_>) {
        let reason = "the relay is going away".to_owned();
        self.client.fail(turn, SessionError::NO_ERROR, reason);
    }

    /// Begins again after the client has left its relay.
    pub(super) fn note_move(&mut self) {
        let Some(reason) = self.client.take_move() else {
            return;
        };
        self.last_move = Some(reason);
        self.relays_left += 1;
        self.has_moved = true;
        self.join = match self.departure.take() {
            Some(_) => Join::Current,
            None => self.config.join,
        };
        self.newest_group = None;
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

/// The longest time until the player leaves a relay after its GOAWAY.
const DEPARTURE_MAX: Duration = Duration::from_secs(3);
/// Without a stream for this long, a group is over.
const QUIET: Duration = Duration::from_millis(150);
