//! Whether tracks are played or have ended, and what happens after their end.

use std::time::{Duration, Instant};

use weir_client::turn::Turn;

use super::incoming::Track;
use super::{Choice, Viewer};

/// How far the tracks of one publisher have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// They are requested or played.
    Playing {
        /// When the relay should have accepted a track, while it has accepted none.
        answer_by: Option<Instant>,
    },
    /// All of them have ended; what is on its way is still shown.
    Ended { at: Instant },
    /// Nothing more comes of them; the player waits for another publisher.
    Waiting { ended_at: Instant, until: Instant },
}

impl Default for Phase {
    fn default() -> Self {
        Self::Playing { answer_by: None }
    }
}

impl Phase {
    /// When the last track ended.
    pub(super) fn ended_at(self) -> Option<Instant> {
        match self {
            Self::Playing { .. } => None,
            Self::Ended { at } | Self::Waiting { ended_at: at, .. } => Some(at),
        }
    }

    /// Until when another publisher is waited for.
    pub(super) fn waits_until(self) -> Option<Instant> {
        match self {
            Self::Playing { .. } | Self::Ended { .. } => None,
            Self::Waiting { until, .. } => Some(until),
        }
    }

    /// When the relay should have accepted a track.
    pub(super) fn answer_by(self) -> Option<Instant> {
        match self {
            Self::Playing { answer_by } => answer_by,
            Self::Ended { .. } | Self::Waiting { .. } => None,
        }
    }

    /// No acceptance is waited for any more.
    pub(super) fn on_answered(&mut self) {
        if let Self::Playing { answer_by } = self {
            *answer_by = None;
        }
    }

    /// All tracks have ended.
    pub(super) fn on_ended(&mut self, now: Instant) {
        if let Self::Playing { .. } = self {
            *self = Self::Ended { at: now };
        }
    }
}

impl Viewer {
    /// Leaves, or waits for another publisher, once all tracks have ended and everything was shown or will not come any more.
    pub(super) fn leave(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let ended_at = match self.phase {
            Phase::Playing { .. } => return,
            Phase::Waiting { until, .. } => return self.wait(turn, until),
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

    /// When the player leaves, or requests the catalog again, if nothing happens before.
    pub(super) fn leave_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Playing { .. } => None,
            Phase::Ended { at } => Some(at + LINGER),
            Phase::Waiting { until, .. } => {
                Some(self.discovery.ask_at().map_or(until, |at| at.min(until)))
            }
        }
    }

    /// The stream is over: waits for another publisher if the stream was found by its catalog.
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

    /// Waits for another publisher; leaves if none came.
    fn wait(&mut self, turn: &mut Turn<'_>, until: Instant) {
        let now = turn.now;
        if until <= now {
            self.client.close(turn, "the stream is over");
        } else if self.discovery.ask_at().is_some_and(|at| at <= now) {
            self.discover_again(turn, until);
        }
    }

    /// Requests the catalog again, if there is time left.
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

/// How long the player waits after the end of all tracks for objects that are on their way.
const LINGER: Duration = Duration::from_secs(3);
