//! Tracks that break the rules of the object model, and requests for new groups of those that keep them.

use weir_moqt::{
    error::{PublishDoneCode, RequestErrorCode, ResetCode},
    parameter::Parameters,
};
use weir_quic::Handle;

use crate::{dispatch::Owners, track::table::TrackId, turn::Turn};

impl Owners {
    /// A track turned out to be malformed by what `publisher` sent: its subscribers and those who fetch it are told at
    /// once, and nothing more of it is taken from there [moqt-18 §2.4.2].
    pub(crate) fn on_malformed(&mut self, turn: &mut Turn<'_>, id: TrackId, publisher: Handle) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        turn.counters.tracks_malformed += 1;
        tracing::debug!(track = %track.name, connection = publisher.index(), "malformed");
        let sources = track.sources.clone();
        let feeders = track.feeders.clone();
        let subscribers = track.subscribers.iter();
        let subscribers: Vec<_> = subscribers
            .map(|subscriber| (subscriber.handle, subscriber.request))
            .collect();
        for who in subscribers {
            let code = PublishDoneCode::MALFORMED_TRACK;
            self.cut_subscriber(turn, id, who, code);
        }
        self.cut_fetches(turn, id, RequestErrorCode::MALFORMED_TRACK);
        for feeder in feeders.into_iter().filter(|feeder| feeder.0 == publisher) {
            self.fail_feeder(turn, feeder, RequestErrorCode::MALFORMED_TRACK);
        }
        for source in sources
            .into_iter()
            .filter(|source| source.handle == publisher)
        {
            self.cut_streams(turn, source.handle, source.request);
            turn.with_session(source.handle, |session, connection| {
                session.cancel(connection, source.request, ResetCode::MALFORMED_TRACK);
            });
            let peer = turn.sessions.get(source.handle);
            if peer.and_then(|peer| peer.remove(source.request)).is_some() {
                let who = (source.handle, source.request);
                let code = RequestErrorCode::MALFORMED_TRACK;
                self.source_gone(turn, id, who, code);
            }
        }
        self.publish_grown(turn);
    }

    /// A subscriber asks for a new group: its wish goes to the publishers unless they were asked already, or the group
    /// is there [moqt-18 §10.2.13].
    pub(crate) fn request_group(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        parameters: &Parameters,
    ) {
        let (Some(wanted), Some(track)) = (parameters.new_group_request, self.tracks.get(id))
        else {
            return;
        };
        let largest = track.largest.map(|largest| largest.group);
        let is_there = wanted != 0 && largest.is_some_and(|largest| wanted <= largest);
        let is_asked = track
            .group_asked
            .is_some_and(|(asked, at)| asked >= wanted && at == largest);
        if !track.properties.dynamic_groups() || is_there || is_asked {
            return;
        }
        track.group_asked = Some((wanted, largest));
        for source in track.sources.clone() {
            if source.is_established() {
                let update = Parameters {
                    new_group_request: Some(wanted),
                    ..Parameters::default()
                };
                turn.with_session(source.handle, |session, connection| {
                    session.update(connection, source.request, update).is_ok()
                });
            }
        }
    }
}
