//! How a player goes on: by the first catalog, by each that takes its place, and after the end of a stream.

use std::time::{Duration, Instant};

use weir_moqt::session::RequestId;
use weir_quic::Endpoint;

use super::incoming::{Of, Track};
use super::publisher_change::Succession;
use super::unpacking::Unpacker;
use super::{Choice, Player, Viewer};
use crate::freshness::Freshness;
use crate::plan::Plan;
use crate::sequence::Sequence;
use crate::strategy;

/// Counts the frames of one publisher after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbering {
    /// What the first frame counts as, if there were others before.
    next: Option<u64>,
    /// The number of the first frame that came of the publisher that is heard now, and what it counts as.
    counts_as: Option<(u64, u64)>,
}

impl Numbering {
    /// What the frame counts as that its publisher gives this number.
    pub(super) fn number(&mut self, told: u64) -> u64 {
        let begin = self.next.unwrap_or(told);
        let (from, counts_as) = *self.counts_as.get_or_insert((told, begin));
        match told.checked_sub(from) {
            Some(after) => counts_as.saturating_add(after),
            None => counts_as.saturating_sub(from - told),
        }
    }
}

impl Viewer {
    /// Plays what the catalog says; what was played by one before is over.
    pub(super) fn apply(&mut self, now: Instant, endpoint: &mut Endpoint, plan: Plan) {
        self.drop_tracks(now, endpoint);
        (self.ended_at, self.waits_until) = (None, None);
        let named = plan.strategy.as_deref().and_then(strategy::by_name);
        let settings = named.unwrap_or_else(strategy::usual).player();
        self.settings = settings.with_buffer(self.config.buffer);
        self.play_anew();
        self.succession = Succession::default();
        let tracks = plan.video.iter();
        let tracks = tracks.map(|one| (one.name.clone(), Some(Unpacker::new(one.clone()))));
        let tracks = tracks.collect();
        if self.plan.replace(plan).is_some() {
            self.catalogs_followed += 1;
        }
        self.subscribe(now, endpoint, tracks);
    }

    /// Another publisher took the place of the one before, and there is nothing new in its catalog: what waits of that one is
    /// dropped, and playing begins anew.
    pub(super) fn follow_publisher(&mut self) {
        self.publishers_followed += 1;
        self.count_on();
        self.play_anew();
    }

    /// Plays by the settings of now, as if nothing had come.
    fn play_anew(&mut self) {
        let settings = self.settings;
        self.player = Player::new(settings);
        self.sequence = settings.in_sequence.then(Sequence::new);
        self.freshness = settings.stops_stale.then(Freshness::default);
    }

    /// The frames of the next publisher count on from those of the last.
    fn count_on(&mut self) {
        let records = self.records.kept().iter();
        let last = records.map(|record| record.number).max();
        self.numbering = Numbering {
            next: last.map(|last| last.saturating_add(1)),
            counts_as: None,
        };
    }

    /// Whether it plays by this plan already. Some publishers put a new catalog out whenever they know their bit rate better.
    pub(super) fn is_played(&self, plan: &Plan) -> bool {
        let is_played = self.plan.as_ref() == Some(plan) && !self.tracks.is_empty();
        is_played && !self.tracks.iter().any(Track::is_over)
    }

    /// Takes nothing more of what was played.
    fn drop_tracks(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.count_on();
        self.answer_by = None;
        let is_track = |of: Of| matches!(of, Of::Track(_));
        let fetches = self.fetches.extract_if(.., |(_, of)| is_track(*of));
        let fetches = fetches.map(|(fetch, _)| fetch);
        let tracks = self.tracks.drain(..).map(|track| track.request);
        let over: Vec<RequestId> = fetches.chain(tracks).collect();
        self.streams.retain(|_, incoming| !is_track(incoming.of));
        self.forget(now, endpoint, &over);
    }

    /// Ends these requests, and all that comes for them.
    pub(super) fn forget(&mut self, now: Instant, endpoint: &mut Endpoint, over: &[RequestId]) {
        if let Some((session, mut connection)) = self.client.open(now, endpoint) {
            for request in over {
                session.forget(&mut connection, *request);
            }
        }
    }

    /// Leaves, or waits for another publisher, when all tracks have ended, and everything was shown or will not come any more.
    pub(super) fn leave(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let Some(ended_at) = self.ended_at else {
            return;
        };
        if self.waits_until.is_some() {
            return self.wait(now, endpoint);
        }
        let is_complete = self.streams.is_empty() && self.tracks.iter().all(Track::is_complete);
        if is_complete {
            self.player.finish(self.config.timebase.microseconds(now));
            self.play(now);
        }
        let is_done = is_complete && self.wake_at.is_none();
        if is_done || now >= ended_at + LINGER {
            self.on_over(now, endpoint, ended_at);
        }
    }

    /// When it leaves, or looks for another publisher again, if nothing happens before.
    pub(super) fn leave_at(&self) -> Option<Instant> {
        match self.waits_until {
            Some(until) => Some(self.discovery.ask_at().map_or(until, |at| at.min(until))),
            None => self.ended_at.map(|at| at + LINGER),
        }
    }

    /// Nothing more comes of a stream.
    fn on_over(&mut self, now: Instant, endpoint: &mut Endpoint, ended_at: Instant) {
        let is_found = matches!(self.config.choice, Choice::Catalog);
        self.waits_until = Some(if is_found {
            ended_at + self.config.patience_again
        } else {
            ended_at
        });
        self.drop_tracks(now, endpoint);
        self.discover_again(now, endpoint);
    }

    /// Waits for another publisher; leaves if none came.
    fn wait(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let is_due = self.discovery.ask_at().is_some_and(|at| at <= now);
        match self.waits_until {
            Some(until) if until <= now => self.client.close(now, endpoint, "the stream is over"),
            Some(_) if is_due => self.discover_again(now, endpoint),
            Some(_) | None => {}
        }
    }

    /// Asks for the catalog anew, if there is time left.
    fn discover_again(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let over = std::mem::take(&mut self.discovery).into_requests();
        self.fetches.clear();
        self.streams.clear();
        self.forget(now, endpoint, &over);
        let left = self
            .waits_until
            .map(|until| until.saturating_duration_since(now));
        match left {
            Some(left) if !left.is_zero() => self.discover(now, endpoint, left),
            Some(_) | None => self.client.close(now, endpoint, "the stream is over"),
        }
    }
}

/// How long what is on its way is waited for after the end of all tracks.
const LINGER: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_one_publisher_after_the_other_are_counted_on_whatever_their_numbers_are() {
        let mut first = Numbering::default();
        assert_eq!([7, 9, 6].map(|told| first.number(told)), [7, 9, 6]);
        let mut next = Numbering {
            next: Some(10),
            counts_as: None,
        };
        assert_eq!([500, 502, 499].map(|told| next.number(told)), [10, 12, 9]);
        assert_eq!(
            [0, u64::MAX].map(|told| next.number(told)),
            [0, u64::MAX - 490]
        );
        let mut last = Numbering {
            next: Some(u64::MAX),
            counts_as: None,
        };
        assert_eq!([0, 1].map(|told| last.number(told)), [u64::MAX; 2]);
    }
}
