//! Asks relays again that do not wait for a publisher (`RENDEZVOUS_TIMEOUT`).

use std::time::{Duration, Instant};

use weir_client::turn::Turn;
use weir_moqt::error::RequestErrorCode;

use super::{Choice, Viewer};

/// How long the player waits for a publisher after it has joined a relay.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience {
    /// Until when the player asks again.
    until: Option<Instant>,
    /// When the player asks again, after the relay knew no publisher.
    again_at: Option<Instant>,
}

impl Patience {
    /// Starts to wait for so long.
    pub(super) fn start(&mut self, now: Instant, time: Duration) {
        *self = Self {
            until: now.checked_add(time),
            again_at: None,
        };
    }

    /// Returns when the player asks again.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.again_at
    }

    /// Handles a refusal. Returns whether the player asks again. A relay that has waited for a publisher itself answers when
    /// the time is over.
    fn on_refusal(&mut self, now: Instant, code: RequestErrorCode) -> bool {
        let at = now + PAUSE;
        let is_left = self.until.is_some_and(|until| at < until);
        if code == RequestErrorCode::DOES_NOT_EXIST && is_left {
            self.again_at = Some(self.again_at.unwrap_or(at));
        }
        self.again_at.is_some()
    }

    /// Returns how long the player still waits, if it is time to ask again.
    fn ask(&mut self, now: Instant) -> Option<Duration> {
        self.again_at.take_if(|at| *at <= now)?;
        Some(self.until?.saturating_duration_since(now))
    }
}

impl Viewer {
    /// Handles a refusal of the catalog or of a track before anything was played. Returns whether the player asks again.
    pub(super) fn asks_later(&mut self, now: Instant, code: RequestErrorCode) -> bool {
        self.plan.is_none() && self.patience.on_refusal(now, code)
    }

    /// Asks again for the catalog or the tracks, once it is time.
    pub(super) fn ask_again(&mut self, turn: &mut Turn<'_>) {
        let Some(left) = self.patience.ask(turn.now) else {
            return;
        };
        self.drop_tracks(turn);
        let over = std::mem::take(&mut self.discovery).into_requests();
        self.fetches.clear();
        self.streams.clear();
        self.forget(turn, &over);
        match self.config.choice.clone() {
            Choice::Catalog => self.discover(turn, left),
            Choice::Known { tracks, .. } => {
                let tracks = tracks.into_iter().map(|name| (name, None));
                self.subscribe(turn, tracks.collect());
            }
        }
    }
}

/// The pause before the player asks again.
const PAUSE: Duration = Duration::from_millis(250);
