//! Starts to play a catalog, and changes to the next catalog or publisher.

use weir_client::turn::Turn;
use weir_moqt::session::RequestId;

use super::incoming::{StreamContent, Track};
use super::numbering::Numbering;
use super::phase::Phase;
use super::publisher_change::PublisherTracker;
use super::unpacking::Unpacker;
use super::{Player, Viewer};
use crate::plan::Plan;
use crate::playout::Freshness;
use crate::sequence::Sequence;
use crate::strategy;

impl Viewer {
    /// Plays a plan in place of the previous one.
    pub(super) fn apply(&mut self, turn: &mut Turn<'_>, plan: Plan) {
        self.drop_tracks(turn);
        self.phase = Phase::default();
        let target = plan.target.unwrap_or(strategy::TARGET_DEFAULT);
        let named = plan.strategy.as_deref();
        let named = named.and_then(|name| strategy::by_name_and_target(name, target));
        let settings = named.unwrap_or_else(strategy::usual).player();
        self.settings = settings.with_buffer(self.config.buffer);
        self.restart_playout();
        self.publisher_tracker = PublisherTracker::default();
        let tracks = plan.video.iter();
        let tracks = tracks.map(|one| (one.name.clone(), Some(Unpacker::new(one.clone()))));
        let tracks = tracks.collect();
        if self.plan.replace(plan).is_some() {
            self.catalogs_followed += 1;
        }
        self.subscribe(turn, tracks);
    }

    /// Follows another publisher with an equal catalog. Drops waiting frames of the former publisher, and restarts
    /// playout.
    pub(super) fn follow_publisher(&mut self) {
        self.publishers_followed += 1;
        self.count_on();
        self.restart_playout();
    }

    /// Restarts playout with the current settings.
    fn restart_playout(&mut self) {
        let settings = self.settings;
        self.records.settle_all();
        self.player = Player::new(settings);
        self.sequence = settings.in_sequence.then(Sequence::new);
        self.freshness = settings.stops_stale.then(Freshness::default);
    }

    /// Numbers the next publisher's frames after those of the last.
    fn count_on(&mut self) {
        let records = self.records.kept().iter();
        let last = records.map(|record| record.number).max();
        self.numbering = Numbering::after(last);
    }

    /// Whether this plan is being played. Some publishers repeat their catalog whenever their estimate of the bit rate
    /// improves.
    pub(super) fn is_played(&self, plan: &Plan) -> bool {
        let is_played = self.plan.as_ref() == Some(plan) && !self.tracks.is_empty();
        is_played && !self.tracks.iter().any(Track::is_over)
    }

    /// Ends the subscriptions and fetches of the played tracks.
    pub(super) fn drop_tracks(&mut self, turn: &mut Turn<'_>) {
        self.count_on();
        self.phase.on_answered();
        let is_track = |of: StreamContent| matches!(of, StreamContent::Track(_));
        let fetches = self.fetches.extract_if(.., |(_, of)| is_track(*of));
        let fetches = fetches.map(|(fetch, _)| fetch);
        let tracks = self.tracks.drain(..).map(|track| track.request);
        let over: Vec<RequestId> = fetches.chain(tracks).collect();
        self.streams.retain(|_, incoming| !is_track(incoming.of));
        self.forget(turn, &over);
    }

    /// Ends requests, and drops what still arrives for them.
    pub(super) fn forget(&mut self, turn: &mut Turn<'_>, over: &[RequestId]) {
        if let Some((session, mut connection)) = self.client.open(turn) {
            for request in over {
                session.forget(&mut connection, *request);
            }
        }
    }
}
