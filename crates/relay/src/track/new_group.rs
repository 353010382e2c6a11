//! `NEW_GROUP_REQUEST`: subscribers' requests to publishers to begin a new group.

use weir_moqt::parameter::Parameters;

use super::Tracks;
use crate::{ids::TrackId, turn::Turn};

impl Tracks {
    /// Passes on a subscriber's request for a new group, unless the publishers were asked already or the group exists
    /// [moqt-18 §10.2.13].
    pub(crate) fn request_group(&mut self, turn: &mut Turn<'_>, id: TrackId, wanted: u64) {
        let Some(track) = self.table.get(id) else {
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
        for publisher in track.publishers.iter().filter(|it| it.is_established()) {
            let update = Parameters {
                new_group_request: Some(wanted),
                ..Parameters::default()
            };
            turn.with_session(publisher.handle, |session, connection| {
                session
                    .update(connection, publisher.request, update)
                    .is_ok()
            });
        }
    }
}
