//! The phases of a player: tracks are played, have ended, or are awaited.

use std::time::{Duration, Instant};

use weir_client::turn::Turn;
use weir_moqt::message::GoAway;

use super::incoming::Track;
use super::{Choice, Viewer};

/// The phase of one publisher's tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The tracks are requested or played.
    Playing {
        /// When the relay must have accepted a track, until it has.
        answer_by: Option<Instant>,
    },
    /// All tracks have ended. Frames under way are still shown.
    Ended { at: Instant },
    /// Everything was shown. The player waits for another publisher.
    Waiting { ended_at: Instant, until: Instant },
}

impl Default for Phase {
    fn default() -> Self {
        Self::Playing { answer_by: None }
    }
}

impl Phase {
    /// Returns when the last track ended.
    pub(super) fn ended_at(self) -> Option<Instant> {
        match self {
            Self::Playing { .. } => None,
            Self::Ended { at } | Self::Waiting { ended_at: at, .. } => Some(at),
        }
    }

    /// Returns until when the player waits for another publisher.
    pub(super) fn waits_until(self) -> Option<Instant> {
        match self {
            Self::Playing { .. } | Self::Ended { .. } => None,
            Self::Waiting { until, .. } => Some(until),
        }
    }

    /// Returns when the relay must have accepted a track.
    pub(super) fn answer_by(self) -> Option<Instant> {
        match self {
            Self::Playing { answer_by } => answer_by,
            Self::Ended { .. } | Self::Waiting { .. } => None,
        }
    }

    /// Stops waiting for an acceptance.
    pub(super) fn on_answered(&mut self) {
        if let Self::Playing { answer_by } = self {
            *answer_by = None;
        }
    }

    /// Notes that all tracks have ended.
    pub(super) fn on_ended(&mut self, now: Instant) {
        if let Self::Playing { .. } = self {
            *self = Self::Ended { at: now };
        }
    }
}

impl Viewer {
    /// Leaves or waits for another publisher, once all tracks have ended and no more frames can be shown.
    pub(super) fn leave(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let ended_at = match self.phase {
            Phase::Playing { .. } => return,
            Phase::Waiting { until, .. } => return self.await_publisher(turn, until),
            Phase::Ended { at } => at,
        };
        let is_complete = self.streams.is_empty() && self.tracks.iter().all(Track::is_complete);
        if is_complete {
            self.player.finish(self.config.timebase.microseconds(now));
            self.play(now);
        }
        let is_done = is_complete && self.wake_at.is_none();
        if is_done || now >= ended_at + LINGER {
            self.on_over(turn, ended_at);
        }
    }

    /// Handles GOAWAY. A player that has seen the end of the stream shows what is under way and leaves without waiting
    /// for another publisher; another player moves on to the next relay, or fails.
    pub(super) fn on_goaway(&mut self, turn: &mut Turn<'_>, goaway: &GoAway) {
        match self.phase {
            Phase::Playing { .. } => self.prepare_to_leave(turn, goaway),
            Phase::Ended { .. } => self.config.reconnect_timeout = Duration::ZERO,
            Phase::Waiting { .. } => self.client.close(turn, "the stream is over"),
        }
    }

    /// Returns when the player leaves, or requests the catalog again, if nothing else happens.
    pub(super) fn leave_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Playing { .. } => None,
            Phase::Ended { at } => Some(at + LINGER),
            Phase::Waiting { until, .. } => {
                Some(self.discovery.retry_at().map_or(until, |at| at.min(until)))
            }
        }
    }

    /// Ends the stream. Waits for another publisher if the stream has a catalog.
    fn on_over(&mut self, turn: &mut Turn<'_>, ended_at: Instant) {
        let is_found = matches!(self.config.choice, Choice::Catalog);
        let until = if is_found {
            ended_at + self.config.reconnect_timeout
        } else {
            ended_at
        };
        self.phase = Phase::Waiting { ended_at, until };
        self.drop_tracks(turn);
        self.discover_again(turn, until);
    }

    /// Waits for another publisher. Leaves when the time is over.
    fn await_publisher(&mut self, turn: &mut Turn<'_>, until: Instant) {
        let now = turn.now;
        if until <= now {
            self.client.close(turn, "the stream is over");
        } else if self.discovery.retry_at().is_some_and(|at| at <= now) {
            self.discover_again(turn, until);
        }
    }

    /// Requests the catalog again if there is time left.
    fn discover_again(&mut self, turn: &mut Turn<'_>, until: Instant) {
        let over = std::mem::take(&mut self.discovery).into_requests();
        self.fetches.clear();
        self.streams.clear();
        self.forget(turn, &over);
        let left = until.saturating_duration_since(turn.now);
        if left.is_zero() {
            self.client.close(turn, "the stream is over");
        } else {
            self.discover(turn, left);
        }
    }
}

/// How long the player waits for objects under way after all tracks have ended.
const LINGER: Duration = Duration::from_secs(3);
