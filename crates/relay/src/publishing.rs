//! PUBLISH, PUBLISH_NAMESPACE and the relay's own SUBSCRIBEs: where the objects of a track come from.

use std::time::Instant;

use weir_moqt::{
    error::{RequestErrorCode, ResetCode},
    message::{Publish, PublishDone, RequestError, RequestOk, SubscribeOk},
    name::Namespace,
    parameter::Parameters,
    session::RequestId,
};
use weir_quic::{Endpoint, Handle};

use crate::{
    Relay,
    peer::Part,
    subgroup::Ended,
    subscribing::publisher_gone,
    timers::Timer,
    track::{Origin, Source},
    tracks::TrackId,
};

impl Relay {
    /// A session offers a track.
    pub(crate) fn on_publish(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
        publish: &Publish,
    ) {
        let limits = &self.config.limits;
        let Some(peer) = self.peers.get(handle) else {
            return;
        };
        let is_full = peer.counts.sources >= limits.publications_per_session_max;
        let track_id = (!is_full)
            .then(|| {
                self.tracks
                    .find_or_create(&publish.track, limits.tracks_max)
            })
            .flatten();
        let Some(track_id) = track_id else {
            self.counters.refused_load += 1;
            return self.refuse(now, endpoint, handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        };
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let same = track
            .sources
            .iter()
            .find(|source| source.handle == handle)
            .cloned();
        match same {
            Some(source) if source.origin == Origin::Asked => {
                // The offer overtakes the relay's own request, which has to end first [moqt-18 §5.1].
                self.cancel_source(now, endpoint, track_id, &source);
            }
            Some(source) if source.done.is_none() => {
                self.counters.refused_duplicate += 1;
                let code = RequestErrorCode::DUPLICATE_SUBSCRIPTION;
                return self.refuse(now, endpoint, handle, id, code);
            }
            Some(_) | None => {}
        }
        let offered = publish.parameters.forward != Some(false);
        self.add_source(track_id, handle, id, Origin::Published, offered);
        self.adopt_properties(track_id, &publish.properties);
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        if let Some(largest) = publish.parameters.largest_object {
            track.observe(largest);
        }
        let forward = track.is_wanted();
        if let Some(source) = track.source(handle, id) {
            source.forward = forward;
        }
        let parameters = Parameters {
            forward: Some(forward),
            ..Parameters::default()
        };
        let ok = RequestOk {
            parameters,
            ..RequestOk::default()
        };
        self.with_session(now, endpoint, handle, |session, connection| {
            session.request_ok(connection, id, ok);
        });
        self.admit_waiting(now, endpoint, track_id);
    }

    /// A session announces a namespace.
    pub(crate) fn on_publish_namespace(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
        namespace: &Namespace,
    ) {
        let Some(peer) = self.peers.get(handle) else {
            return;
        };
        if peer.counts.namespaces >= self.config.limits.namespaces_per_session_max {
            self.counters.refused_load += 1;
            return self.refuse(now, endpoint, handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        peer.insert(id, Part::Namespace(namespace.clone()));
        self.namespaces.insert(namespace.clone(), (handle, id));
        self.with_session(now, endpoint, handle, |session, connection| {
            session.request_ok(connection, id, RequestOk::default());
        });
        let unserved: Vec<TrackId> = self.unserved.iter().copied().collect();
        for track_id in unserved {
            let Some(track) = self.tracks.get(track_id) else {
                continue;
            };
            if track.name.namespace.starts_with(namespace) {
                self.ask_publishers(now, endpoint, track_id);
            }
        }
    }

    /// Sends SUBSCRIBE to every session that announced the track's namespace and is not asked already;
    /// returns how many were asked.
    pub(crate) fn ask_publishers(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        track_id: TrackId,
    ) -> usize {
        let Some(track) = self.tracks.get(track_id) else {
            return 0;
        };
        let name = track.name.clone();
        let asked: Vec<Handle> = track.sources.iter().map(|source| source.handle).collect();
        let mut count = 0;
        for handle in self.namespaces.matching(&name.namespace) {
            if asked.contains(&handle) {
                continue;
            }
            let parameters = Parameters {
                forward: Some(true),
                ..Parameters::default()
            };
            let name = name.clone();
            let request = self.with_session(now, endpoint, handle, |session, connection| {
                session.subscribe(connection, name, parameters)
            });
            if let Some(Ok(request)) = request {
                self.add_source(track_id, handle, request, Origin::Asked, true);
                count += 1;
            }
        }
        count
    }

    /// A publisher accepted the relay's SUBSCRIBE.
    pub(crate) fn on_source_accepted(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
        ok: &SubscribeOk,
    ) {
        let Some(track_id) = self.peers.get(handle).and_then(|peer| peer.source(id)) else {
            return;
        };
        self.adopt_properties(track_id, &ok.properties);
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        if let Some(largest) = ok.parameters.largest_object {
            track.observe(largest);
        }
        if let Some(source) = track.source(handle, id) {
            source.origin = Origin::Subscribed;
        }
        self.admit_waiting(now, endpoint, track_id);
    }

    /// A publisher declined the relay's SUBSCRIBE, or a session could not carry a request on.
    pub(crate) fn on_source_rejected(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
        error: &RequestError,
    ) {
        let Some(Part::Source(track_id)) = self.peers.get(handle).and_then(|peer| peer.remove(id))
        else {
            return;
        };
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        track.remove_source(handle, id);
        if track.sources.is_empty() {
            self.on_publishers_declined(now, endpoint, track_id, error.code);
            self.orphan(now, track_id);
        }
        self.forget_if_unused(track_id);
    }

    /// A publisher says that it is done with a track.
    pub(crate) fn on_source_done(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        id: RequestId,
        done: PublishDone,
    ) {
        let Some(track_id) = self.peers.get(handle).and_then(|peer| peer.source(id)) else {
            return;
        };
        let by = now + self.config.limits.done_linger;
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        if let Some(source) = track.source(handle, id) {
            source.done = Some(done);
        }
        if track.sources.iter().all(|source| source.done.is_some()) {
            track.ending_by = Some(by);
            self.timers.set(by, Timer::Ending(track_id));
            self.end_if_complete(now, endpoint, track_id);
        }
    }

    /// Ends a track whose publishers are done and whose streams have all arrived.
    pub(crate) fn end_if_complete(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        track_id: TrackId,
    ) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let is_complete = track.ending_by.is_some()
            && track.sources.iter().all(|source| {
                let count = source.done.as_ref().and_then(|done| done.stream_count);
                source.streams_open == 0 && count.is_some_and(|count| source.streams >= count)
            });
        if is_complete {
            self.end_track(now, endpoint, track_id);
        }
    }

    /// The last streams of a track had time enough to arrive.
    pub(crate) fn on_ending(&mut self, now: Instant, endpoint: &mut Endpoint, track_id: TrackId) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let is_due = track.ending_by.is_some_and(|by| by <= now)
            && track.sources.iter().all(|source| source.done.is_some());
        if is_due {
            self.end_track(now, endpoint, track_id);
        }
    }

    fn end_track(&mut self, now: Instant, endpoint: &mut Endpoint, track_id: TrackId) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        track.ending_by = None;
        let sources = std::mem::take(&mut track.sources);
        let done = sources.iter().find_map(|source| source.done.clone());
        let unfinished: Vec<_> = track
            .subgroups
            .iter()
            .filter(|subgroup| subgroup.ended().is_none())
            .map(|subgroup| subgroup.id)
            .collect();
        for source in &sources {
            if let Some(peer) = self.peers.get(source.handle) {
                peer.remove(source.request);
                peer.inbound.retain(|_, inbound| inbound.track != track_id);
            }
        }
        for subgroup in unfinished {
            self.end_subgroup(track_id, subgroup, Ended::Reset(ResetCode::CANCELLED.0));
        }
        self.publish_grown(now, endpoint);
        let done = done.unwrap_or_else(publisher_gone);
        self.dismiss_subscribers(now, endpoint, track_id, &done);
        if let Some(track) = self.tracks.get(track_id)
            && !track.waiting.is_empty()
        {
            self.unserved.insert(track_id);
            self.ask_publishers(now, endpoint, track_id);
        }
    }

    /// A publisher left without a last word.
    pub(crate) fn source_gone(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        track_id: TrackId,
        handle: Handle,
        request: RequestId,
    ) {
        if let Some(peer) = self.peers.get(handle) {
            let lost: Vec<_> = peer
                .inbound
                .iter()
                .filter(|(_, inbound)| inbound.request == request)
                .map(|(&stream, &inbound)| (stream, inbound))
                .collect();
            for (stream, inbound) in lost {
                if let Some(peer) = self.peers.get(handle) {
                    peer.inbound.remove(&stream);
                }
                self.cut_subgroup(&inbound);
            }
            self.publish_grown(now, endpoint);
        }
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let gone = track.remove_source(handle, request);
        if gone.is_some_and(|source| source.done.is_some()) && track.sources.is_empty() {
            // It had said its last word, and left before its streams were all here.
            self.end_track(now, endpoint, track_id);
        } else if track.sources.is_empty() {
            self.on_publishers_declined(now, endpoint, track_id, RequestErrorCode::DOES_NOT_EXIST);
            self.orphan(now, track_id);
            self.ask_publishers(now, endpoint, track_id);
        }
        self.forget_if_unused(track_id);
    }

    /// Keeps the subscribers of a track for a while, in case its publisher comes back.
    fn orphan(&mut self, now: Instant, track_id: TrackId) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        if track.subscribers.is_empty() && track.waiting.is_empty() {
            return;
        }
        let until = now + self.config.limits.publisher_linger;
        track.orphaned_until = Some(until);
        self.unserved.insert(track_id);
        self.timers.set(until, Timer::Orphaned(track_id));
    }

    /// The publisher did not come back.
    pub(crate) fn on_orphaned(&mut self, now: Instant, endpoint: &mut Endpoint, track_id: TrackId) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        if track.orphaned_until.is_some_and(|until| until <= now) {
            track.orphaned_until = None;
            self.dismiss_subscribers(now, endpoint, track_id, &publisher_gone());
        }
    }

    /// Tells publishers whether objects are wanted; ends the relay's own subscriptions when nobody is left.
    pub(crate) fn update_upstream(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        track_id: TrackId,
    ) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let is_wanted = track.is_wanted();
        let is_empty = track.subscribers.is_empty() && track.waiting.is_empty();
        let sources = track.sources.clone();
        for source in sources {
            if source.done.is_some() {
                continue;
            }
            if is_empty && source.origin != Origin::Published {
                self.cancel_source(now, endpoint, track_id, &source);
            } else if source.forward != is_wanted && source.origin != Origin::Asked {
                let parameters = Parameters {
                    forward: Some(is_wanted),
                    ..Parameters::default()
                };
                let sent =
                    self.with_session(now, endpoint, source.handle, |session, connection| {
                        session
                            .update(connection, source.request, parameters)
                            .is_ok()
                    });
                if sent == Some(true)
                    && let Some(track) = self.tracks.get(track_id)
                    && let Some(source) = track.source(source.handle, source.request)
                {
                    source.forward = is_wanted;
                }
            }
        }
        self.forget_if_unused(track_id);
    }

    /// Ends one of the relay's own subscriptions.
    fn cancel_source(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        track_id: TrackId,
        source: &Source,
    ) {
        if let Some(peer) = self.peers.get(source.handle) {
            peer.remove(source.request);
            peer.inbound
                .retain(|_, inbound| inbound.request != source.request);
        }
        self.with_session(now, endpoint, source.handle, |session, connection| {
            session.cancel(connection, source.request, ResetCode::CANCELLED);
        });
        if let Some(track) = self.tracks.get(track_id) {
            track.remove_source(source.handle, source.request);
            if track.sources.is_empty() && track.subscribers.is_empty() {
                track.subgroups.clear();
            }
        }
    }

    fn add_source(
        &mut self,
        track_id: TrackId,
        handle: Handle,
        request: RequestId,
        origin: Origin,
        forward: bool,
    ) {
        if let Some(peer) = self.peers.get(handle) {
            peer.insert(request, Part::Source(track_id));
        }
        if let Some(track) = self.tracks.get(track_id) {
            track.orphaned_until = None;
            track.ending_by = None;
            track.sources.push(Source {
                handle,
                request,
                origin,
                forward,
                streams: 0,
                streams_open: 0,
                done: None,
            });
        }
    }
}
