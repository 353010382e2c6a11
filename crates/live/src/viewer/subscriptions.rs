//! The requests of the player: SUBSCRIBE for its tracks, and the past of the group in which it joins them.

use std::time::Duration;

use weir_client::turn::Turn;
use weir_moqt::error::{RequestErrorCode, SessionError};
use weir_moqt::message::FetchKind;
use weir_moqt::parameter::{Filter, Parameters};
use weir_moqt::session::RequestId;

use super::Viewer;
use super::config::Join;
use super::incoming::{StreamContent, Track};
use super::unpacking::Unpacker;
use crate::origin::track;

impl Viewer {
    /// Subscribes to media tracks.
    pub(super) fn subscribe(
        &mut self,
        turn: &mut Turn<'_>,
        tracks: Vec<(String, Option<Unpacker>)>,
    ) {
        for (name, unpacker) in tracks {
            let place = self.tracks.len();
            if let Some(request) = self.subscribe_to_media(turn, &name, place) {
                self.tracks.push(Track::new(name, request, unpacker));
            }
        }
        self.await_answers(turn.now);
    }

    /// Sends SUBSCRIBE for a media track, with the present joining point.
    pub(super) fn subscribe_to_media(
        &mut self,
        turn: &mut Turn<'_>,
        name: &str,
        place: usize,
    ) -> Option<RequestId> {
        let filter = match self.join {
            Join::Next => Filter::NextGroupStart,
            Join::Current => Filter::LargestObject,
        };
        let timeout = self.config.rendezvous_timeout;
        let (request, past) = self.subscribe_to(turn, name, filter, timeout)?;
        let of = StreamContent::Track(place);
        self.fetches.retain(|(_, other)| *other != of);
        self.fetches.extend(past.map(|fetch| (fetch, of)));
        Some(request)
    }

    /// Sends SUBSCRIBE for a track, with a request for the past of the current group if the track is joined there. Returns the
    /// subscription, and the fetch of the past if it was requested. The relay may wait for a publisher for
    /// `rendezvous_timeout`. If the request cannot be sent, the player fails.
    pub(super) fn subscribe_to(
        &mut self,
        turn: &mut Turn<'_>,
        name: &str,
        filter: Filter,
        rendezvous_timeout: Duration,
    ) -> Option<(RequestId, Option<RequestId>)> {
        let full_name = match track(&self.config.namespace, name) {
            Ok(full_name) => full_name,
            Err(error) => {
                let reason = format!("the track {name:?} has an invalid name: {error}");
                self.client.fail(turn, SessionError::NO_ERROR, reason);
                return None;
            }
        };
        let parameters = Parameters {
            filter: Some(filter),
            rendezvous_timeout: Some(rendezvous_timeout).filter(|time| !time.is_zero()),
            ..Parameters::default()
        };
        let (session, mut connection) = self.client.open(turn)?;
        let connection = &mut connection;
        let sent = if filter == Filter::LargestObject {
            session.subscribe_with_past(connection, full_name, parameters, 0)
        } else {
            let sent = session.subscribe(connection, full_name, parameters);
            sent.map(|request| (request, None))
        };
        match sent {
            Ok(sent) => Some(sent),
            Err(refused) => {
                let reason = format!("the track {name:?} cannot be subscribed to: {refused}");
                self.client.fail(turn, SessionError::NO_ERROR, reason);
                None
            }
        }
    }

    /// Fetches the earlier objects of a subscription's current group, unless SUBSCRIBE has requested them.
    pub(super) fn fetch_past(&mut self, turn: &mut Turn<'_>, id: RequestId, of: StreamContent) {
        if self.fetches.iter().any(|(_, other)| *other == of) {
            return;
        }
        let Some((session, mut connection)) = self.client.open(turn) else {
            return;
        };
        let kind = FetchKind::RelativeJoining {
            request_id: id.0,
            groups: 0,
        };
        if let Ok(fetch) = session.fetch(&mut connection, kind, Parameters::default()) {
            self.fetches.push((fetch, of));
        }
    }
}

/// Returns whether a relay may say by this error that the session already subscribes to the track. From draft-19 on, a relay
/// without several subscriptions to one track says that it does not support them.
pub(super) fn may_be_duplicate(code: RequestErrorCode) -> bool {
    code == RequestErrorCode::DUPLICATE_SUBSCRIPTION || code == RequestErrorCode::NOT_SUPPORTED
}
