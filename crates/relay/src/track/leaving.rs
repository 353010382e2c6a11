//! How publishers of a track leave: SUBSCRIBE declined, PUBLISH_DONE, or session lost.

use std::time::{Duration, Instant};

use weir_moqt::{
    error::RequestErrorCode,
    message::{PublishDone, RequestError},
};

use super::{
    Leaving, Publisher, Track, Tracks,
    publisher::{PublisherEvent, PublisherState},
};
use crate::{
    effect::Effect,
    ids::{PublisherId, TrackId},
    sessions::peer::PeerKind,
    timers::Timer,
    turn::Turn,
};

/// A publisher that is gone, and the state of its track.
pub(crate) struct Gone {
    pub(crate) publisher: Publisher,
    /// Whether no other publisher has the track, or the track ends with this one.
    pub(crate) is_last: bool,
}

impl Tracks {
    /// Handles a publisher that declined the relay's SUBSCRIBE, or whose session cancelled it. The relay follows redirects
    /// within its fleet only: otherwise the track does not exist for subscribers.
    pub(crate) fn on_subscribe_error(
        turn: &mut Turn<'_>,
        sender: PublisherId,
        error: &RequestError,
    ) {
        let code = if error.code == RequestErrorCode::REDIRECT {
            RequestErrorCode::DOES_NOT_EXIST
        } else {
            error.code
        };
        if let Some(track) = turn.published_track(sender) {
            turn.push(Effect::PublisherGone(track, sender, code));
        }
    }

    /// Handles PUBLISH_DONE. Data that the publisher sent before may still be under way.
    pub(crate) fn on_publish_done(
        &mut self,
        turn: &mut Turn<'_>,
        sender: PublisherId,
        done: PublishDone,
    ) {
        let Some(id) = turn.published_track(sender) else {
            return;
        };
        let track = self.table.get(id);
        if let Some(publisher) = track.and_then(|track| track.publisher(sender)) {
            let leaving = Leaving {
                done,
                since: turn.now,
                until: turn.now + turn.config.limits.done_linger,
                stream_bytes: publisher.stream_bytes,
            };
            self.change(id, sender, PublisherEvent::Done(leaving));
        }
        self.release_leaving(turn, id);
    }

    /// Handles the end of a publisher's request, or of the relay's request to it. After PUBLISH_DONE this changes
    /// nothing.
    pub(crate) fn on_request_closed(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        sender: PublisherId,
    ) {
        let track = self.table.get(id);
        let publisher = track.and_then(|track| track.publisher(sender));
        if publisher.is_some_and(|publisher| !publisher.is_leaving()) {
            let code = RequestErrorCode::DOES_NOT_EXIST;
            turn.push(Effect::PublisherGone(id, sender, code));
        }
    }

    /// Removes publishers that sent PUBLISH_DONE, once their streams have arrived or the time for them is over.
    pub(super) fn release_leaving(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        let linger = turn.config.limits.done_linger;
        let Some(track) = self.table.get(id) else {
            return;
        };
        if !track.publishers.iter().any(Publisher::is_leaving) {
            return;
        }
        let has_datagrams = track.duplicates.has_datagrams();
        let silence = track.publishers.iter().find_map(|publisher| {
            let sender = publisher.id();
            Some((sender, track.silence_until(sender)?))
        });
        let mut next: Option<Instant> = None;
        for publisher in &mut track.publishers {
            let Some(due) = publisher.leaves_at(turn.now, linger, has_datagrams) else {
                continue;
            };
            let silence = silence.filter(|(sender, _)| *sender == publisher.id());
            let due = silence.map_or(due, |(_, silence)| due.max(silence));
            if due <= turn.now {
                turn.counters.publishers_incomplete += u64::from(!publisher.is_complete());
                let code = RequestErrorCode::DOES_NOT_EXIST;
                turn.push(Effect::PublisherGone(id, publisher.id(), code));
            } else {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        track.look_at_leaving(turn, id, next);
    }

    /// Handles the end of the time for a publisher's last streams.
    pub(crate) fn on_leaving(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        if let Some(track) = self.table.get(id) {
            track.leaving_at = None;
            self.release_leaving(turn, id);
        }
    }

    /// Ends the streams of a publisher that is gone, and all other streams if the track ends with it.
    pub(crate) fn cut_publisher(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        sender: PublisherId,
    ) -> bool {
        self.cut_streams(turn, sender.0, sender.1);
        turn.remove_request(sender);
        turn.with_session(sender.0, |session, connection| {
            session.forget(connection, sender.1);
        });
        let is_end = self.is_ended_by(turn, id, sender);
        if is_end {
            for other in self.publishers_of(id) {
                self.cut_streams(turn, other.handle, other.request);
            }
        }
        is_end
    }

    /// Removes a publisher whose streams were ended. The track restarts if no other publisher is left, or if it ends
    /// with this one.
    pub(crate) fn remove_publisher(
        &mut self,
        id: TrackId,
        sender: PublisherId,
        is_end: bool,
    ) -> Option<Gone> {
        let track = self.table.get(id)?;
        let publisher = track.remove_publisher(sender)?;
        let is_last = is_end || !track.is_within_reach();
        if !is_last && !track.is_sent() {
            track.restart();
        }
        Some(Gone { publisher, is_last })
    }

    /// Restarts a track for its next publisher.
    pub(crate) fn restart(&mut self, id: TrackId) {
        if let Some(track) = self.table.get(id) {
            track.restart();
        }
    }

    /// Keeps the subscribers of a track for a while, in case its publisher reconnects.
    pub(crate) fn orphan(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        if let Some(track) = self.table.get(id)
            && track.orphaned_until.is_none()
        {
            let until = turn.now + turn.config.limits.publisher_linger;
            track.orphaned_until = Some(until);
            turn.timers.set(until, Timer::Orphaned(id));
        }
    }

    /// Handles a track whose publisher did not reconnect in time.
    pub(crate) fn on_orphaned(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        if let Some(track) = self.table.get(id) {
            track.orphaned_until = None;
            turn.counters.tracks_abandoned += 1;
        }
    }
}

impl Track {
    fn look_at_leaving(&mut self, turn: &mut Turn<'_>, id: TrackId, next: Option<Instant>) {
        if self.leaving_at == next {
            return;
        }
        if let Some(at) = std::mem::replace(&mut self.leaving_at, next) {
            turn.timers.cancel(at, Timer::Leaving(id));
        }
        if let Some(at) = next {
            turn.timers.set(at, Timer::Leaving(id));
        }
    }
}

impl Publisher {
    /// Returns the PUBLISH_DONE of the publisher, if it sent one.
    pub(crate) fn done(&self) -> Option<&PublishDone> {
        match &self.state {
            PublisherState::Leaving { leaving, .. } => Some(&leaving.done),
            PublisherState::Asked
            | PublisherState::Active { .. }
            | PublisherState::Paused { .. }
            | PublisherState::Resuming { .. } => None,
        }
    }

    /// Returns whether the publisher had accepted or offered the track.
    pub(crate) fn was_established(&self) -> bool {
        self.state != PublisherState::Asked
    }

    /// Returns when to remove a publisher that sent PUBLISH_DONE. The time is extended while data arrives on its
    /// streams.
    fn leaves_at(
        &mut self,
        now: Instant,
        linger: Duration,
        has_datagrams: bool,
    ) -> Option<Instant> {
        let (is_complete, goes_on) = (self.is_complete(), self.streams_open > 0);
        let PublisherState::Leaving { leaving, .. } = &mut self.state else {
            return None;
        };
        if leaving.until <= now && goes_on && leaving.stream_bytes < self.stream_bytes {
            leaving.stream_bytes = self.stream_bytes;
            leaving.until = now + linger;
        }
        if !is_complete {
            return Some(leaving.until);
        }
        // Objects of a relay of the same process arrive in order.
        let grace = if has_datagrams && self.kind != PeerKind::Sibling {
            DATAGRAM_GRACE
        } else {
            Duration::ZERO
        };
        Some(leaving.until.min(leaving.since + grace))
    }
}

/// How long datagrams may arrive after PUBLISH_DONE, which does not count them.
const DATAGRAM_GRACE: Duration = Duration::from_millis(200);
