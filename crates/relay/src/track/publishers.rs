//! PUBLISH, PUBLISH_NAMESPACE and the relay's own SUBSCRIBEs: where the objects of a track come from.

use weir_moqt::{
    error::{RequestErrorCode, ResetCode},
    location::Location,
    message::{Publish, RequestOk, SubscribeOk},
    name::Namespace,
    parameter::Parameters,
    property::Properties,
    session::RequestId,
};
use weir_quic::Handle;

use crate::{
    dispatch::Owners,
    effect::Effect,
    sessions::peer::Part,
    timers::Timer,
    track::end_markers::Ends,
    track::table::TrackId,
    track::{Origin, Source},
    turn::Turn,
};

impl Owners {
    /// A session offers a track.
    pub(crate) fn on_publish(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        publish: &Publish,
    ) {
        let limits = &turn.config.limits;
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let is_neighbour = peer.is_neighbour;
        if !is_neighbour && peer.counts.sources >= limits.publications_per_session_max {
            turn.counters.refused_limit_publications += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        let track = &publish.track;
        let Some(track_id) = self.tracks.find_or_create(track, limits.tracks_max) else {
            turn.counters.refused_limit_tracks += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        };
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let mut sources = track.sources.iter();
        let same = sources.find(|source| source.handle == handle && source.leaving.is_none());
        let same = same.cloned();
        match same {
            Some(source) if source.origin == Origin::Asked => {
                // The offer overtakes the relay's own request, which has to end first [moqt-18 §5.1].
                self.cancel_source(turn, track_id, &source);
            }
            Some(_) => {
                turn.counters.refused_duplicate += 1;
                let code = RequestErrorCode::DUPLICATE_SUBSCRIPTION;
                return turn.refuse(handle, id, code);
            }
            None => {}
        }
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let max = turn.config.limits.publishers_per_track_max;
        if !is_neighbour && track.publishers_here() >= max {
            turn.counters.refused_limit_publishers += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        let is_new = !track.is_published();
        let sends_always = !turn.config.pauses_publishers && !is_neighbour;
        let forward = sends_always || track.is_wanted(is_neighbour);
        self.add_source(turn, track_id, handle, id, Origin::Published, forward);
        let largest = publish.parameters.largest_object;
        self.welcome(turn, track_id, (handle, id), largest);
        self.establish(turn, track_id, &publish.properties, largest);
        let parameters = Parameters {
            forward: Some(forward),
            expires: turn.expires_in(handle, id),
            ..Parameters::default()
        };
        let ok = RequestOk {
            parameters,
            ..RequestOk::default()
        };
        turn.with_session(handle, |session, connection| {
            session.request_ok(connection, id, ok);
        });
        self.admit_waiting(turn, track_id);
        if is_new {
            self.offer_all(turn, track_id);
        }
        self.offer_to_neighbours(turn, track_id);
        self.dismiss_neighbours(turn, track_id);
    }

    /// A session announces a namespace.
    pub(crate) fn on_publish_namespace(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        namespace: &Namespace,
    ) {
        let Some(peer) = turn.sessions.get(handle) else {
            return;
        };
        let is_neighbour = peer.is_neighbour;
        let max = turn.config.limits.namespaces_per_session_max;
        if !is_neighbour && peer.counts.namespaces >= max {
            turn.counters.refused_limit_namespaces += 1;
            return turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
        }
        peer.insert(id, Part::Namespace(namespace.clone()));
        let is_new = self
            .namespaces
            .insert(namespace.clone(), handle, is_neighbour);
        turn.with_session(handle, |session, connection| {
            session.request_ok(connection, id, RequestOk::default());
        });
        if is_new {
            self.tell_all(turn, namespace);
        }
        turn.push(Effect::NamespaceAnnounced(namespace.clone(), handle));
    }

    /// A session announced a namespace: peer threads hear of it, and the session is asked for the tracks in it that are
    /// wanted.
    pub(crate) fn on_announced(
        &mut self,
        turn: &mut Turn<'_>,
        namespace: &Namespace,
        handle: Handle,
    ) {
        if !turn.is_neighbour(handle) {
            self.announce_to_neighbours(turn, namespace);
        }
        let tracks: Vec<_> = self.tracks.under(namespace).collect();
        for track_id in tracks {
            self.ask(turn, track_id, handle);
        }
    }

    /// The sessions that may have the tracks of a namespace by what they announced, as many of this thread as are looked at.
    pub(crate) fn announcers_of(
        &mut self,
        turn: &mut Turn<'_>,
        namespace: &Namespace,
    ) -> Vec<Handle> {
        let max = turn.config.limits.announcers_per_track_max;
        let found = self.namespaces.matching(namespace, max);
        turn.counters.announcers_cut += u64::from(found.is_cut);
        found.sessions
    }

    /// Sends SUBSCRIBE to every session that announced the track's namespace and is not asked already,
    /// except for one that just left; returns how many were asked.
    pub(crate) fn ask_publishers(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        except: Option<Handle>,
    ) -> usize {
        let Some(track) = self.tracks.get(track_id) else {
            return 0;
        };
        let namespace = track.name.namespace.clone();
        let publishers = self.announcers_of(turn, &namespace);
        publishers
            .into_iter()
            .filter(|&handle| Some(handle) != except && self.ask(turn, track_id, handle))
            .count()
    }

    /// Sends SUBSCRIBE to a session, unless it is a source of the track already or nobody wants it; returns whether it
    /// was sent.
    pub(crate) fn ask(&mut self, turn: &mut Turn<'_>, track_id: TrackId, handle: Handle) -> bool {
        let Some(track) = self.tracks.get(track_id) else {
            return false;
        };
        let is_neighbour = turn
            .sessions
            .get(handle)
            .is_some_and(|peer| peer.is_neighbour);
        let mut sources = track.sources.iter();
        if sources.any(|source| source.handle == handle) || track.is_unwanted(is_neighbour) {
            return false;
        }
        let max = turn.config.limits.publishers_per_track_max;
        if !is_neighbour && track.publishers_here() >= max {
            turn.counters.publishers_not_asked += 1;
            return false;
        }
        let waiting = track.waiting.iter();
        let wishes = waiting.filter_map(|waiting| waiting.parameters.new_group_request);
        // Whatever the subscribers want turn.now [moqt-18 §9.2].
        let parameters = Parameters {
            forward: Some(true),
            new_group_request: wishes.max(),
            ..Parameters::default()
        };
        let name = track.name.clone();
        let request = turn.with_session(handle, |session, connection| {
            session.subscribe(connection, name, parameters)
        });
        let Some(Ok(request)) = request else {
            return false;
        };
        self.add_source(turn, track_id, handle, request, Origin::Asked, true);
        true
    }

    /// A publisher accepted the relay's SUBSCRIBE.
    pub(crate) fn on_source_accepted(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        id: RequestId,
        ok: &SubscribeOk,
    ) {
        let Some(track_id) = turn.sessions.get(handle).and_then(|peer| peer.source(id)) else {
            return;
        };
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        if let Some(source) = track.source(handle, id) {
            source.origin = Origin::Subscribed;
        }
        let largest = ok.parameters.largest_object;
        self.welcome(turn, track_id, (handle, id), largest);
        self.establish(turn, track_id, &ok.properties, largest);
        self.admit_waiting(turn, track_id);
        self.dismiss_neighbours(turn, track_id);
    }

    /// Objects of a track may come from turn.now on. What subscribers are told of it is decided by the first of
    /// several publishers.
    pub(crate) fn establish(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        properties: &Properties,
        largest: Option<Location>,
    ) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        track.is_known = true;
        let established = track.sources.iter().filter(|other| other.is_established());
        if established.count() <= 1 {
            track.properties = properties.clone();
            track.cache.default_priority = properties.publisher_priority();
            if largest < track.largest {
                // It counts anew: what is remembered is not what it will send.
                track.cache.clear(&mut self.ledger);
                track.ends = Ends::default();
                if track.subscribers.is_empty() {
                    track.largest = None;
                }
            }
        }
        if let Some(largest) = largest {
            track.observe(largest);
        }
        if let Some(until) = track.orphaned_until.take() {
            turn.timers.cancel(until, Timer::Orphaned(id));
        }
    }

    /// Tells publishers whether objects are wanted; ends the relay's own subscriptions when nobody is left.
    pub(crate) fn update_upstream(&mut self, turn: &mut Turn<'_>, track_id: TrackId) {
        let Some(track) = self.tracks.get(track_id) else {
            return;
        };
        let wishes = [false, true].map(|by_neighbour| {
            let sends_always = !turn.config.pauses_publishers && !by_neighbour;
            let is_wanted = sends_always || track.is_wanted(by_neighbour);
            (is_wanted, track.is_unwanted(by_neighbour))
        });
        for source in track.sources.clone() {
            if source.leaving.is_some() {
                continue;
            }
            let (is_wanted, is_unwanted) = wishes[usize::from(source.is_neighbour)];
            if is_unwanted && source.origin != Origin::Published {
                self.cancel_source(turn, track_id, &source);
            } else if source.forward != is_wanted && source.origin != Origin::Asked {
                let parameters = Parameters {
                    forward: Some(is_wanted),
                    ..Parameters::default()
                };
                let sent = turn.with_session(source.handle, |session, connection| {
                    session
                        .update(connection, source.request, parameters)
                        .is_ok()
                });
                if sent == Some(true)
                    && let Some(track) = self.tracks.get(track_id)
                    && let Some(source) = track.source(source.handle, source.request)
                {
                    source.forward = is_wanted;
                    source.updates_pending += u32::from(source.is_neighbour);
                }
            }
        }
        self.forget_if_unused(turn, track_id);
    }

    /// Ends one of the relay's own subscriptions.
    pub(crate) fn cancel_source(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        source: &Source,
    ) {
        self.cut_streams(turn, source.handle, source.request);
        if let Some(peer) = turn.sessions.get(source.handle) {
            peer.remove(source.request);
        }
        if let Some(track) = self.tracks.get(track_id) {
            track.remove_source(source.handle, source.request);
            if track.sources.is_empty() {
                track.start_afresh();
            }
        }
        turn.with_session(source.handle, |session, connection| {
            session.cancel(connection, source.request, ResetCode::CANCELLED);
        });
        self.publish_grown(turn);
    }

    fn add_source(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        handle: Handle,
        request: RequestId,
        origin: Origin,
        forward: bool,
    ) {
        let mut is_neighbour = false;
        if let Some(peer) = turn.sessions.get(handle) {
            peer.insert(request, Part::Source(track_id));
            is_neighbour = peer.is_neighbour;
        }
        if let Some(track) = self.tracks.get(track_id) {
            if track.sources.iter().any(|other| other.leaving.is_none()) {
                track.duplicates.share();
            }
            track.sources.push(Source {
                handle,
                request,
                is_neighbour,
                origin,
                forward,
                updates_pending: 0,
                streams: 0,
                streams_open: 0,
                stream_bytes: 0,
                probed: None,
                leaving: None,
            });
        }
    }
}
