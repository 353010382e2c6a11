//! Publishers of a track: PUBLISH, the relay's own SUBSCRIBE, and FORWARD.

use std::time::Duration;

use weir_moqt::{
    error::{RequestErrorCode, ResetCode},
    location::Location,
    message::{Publish, RequestOk, SubscribeOk},
    parameter::Parameters,
    property::Properties,
    session::RequestId,
};
use weir_quic::Handle;

use super::{
    Publisher, Track, Tracks,
    end_markers::EndMarkers,
    publisher::{PublisherEvent, PublisherState},
};
use crate::{
    effect::Effect,
    ids::{PublisherId, TrackId},
    sessions::peer::{PeerKind, Purpose},
    timers::Timer,
    turn::Turn,
};

/// The demand for a track, as its publishers have to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Whether a subscriber wants objects.
    pub(crate) is_wanted: bool,
    /// Whether there are neither subscriptions nor waiting requests.
    pub(crate) is_unwanted: bool,
    /// The largest new group that a waiting request asks for [moqt-18 §10.2.13].
    pub(crate) new_group: Option<u64>,
    /// Whether there are established subscriptions, which need the largest location.
    pub(crate) has_subscriptions: bool,
}

impl Demand {
    /// No demand.
    pub(crate) const NONE: Self = Self {
        is_wanted: false,
        is_unwanted: true,
        new_group: None,
        has_subscriptions: false,
    };

    /// Returns the FORWARD value for a publisher. It is true if objects are wanted, always for clients unless
    /// publishers are paused, and for links while an offer waits for the largest location.
    fn forward(self, turn: &Turn<'_>, is_link: bool, track: &Track) -> bool {
        let sends_always = !turn.config.pauses_publishers && !is_link;
        sends_always || self.is_wanted || is_link && track.awaits_offer
    }
}

impl Tracks {
    /// Returns the track of a PUBLISH, if the session may publish it.
    pub(crate) fn find_published(
        &mut self,
        turn: &mut Turn<'_>,
        (handle, id): PublisherId,
        publish: &Publish,
    ) -> Option<TrackId> {
        let limits = &turn.config.limits;
        let peer = turn.sessions.get(handle)?;
        let is_link = peer.is_link();
        if !is_link && peer.counts().sources >= limits.publications_per_session_max {
            turn.counters.refused_limit_publications += 1;
            turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
            return None;
        }
        let track_id = match self.find_or_add(turn, (handle, id), &publish.track) {
            Ok(track_id) => track_id,
            Err(full) => {
                full.count(turn.counters);
                turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
                return None;
            }
        };
        let mut publishers = self.table.get(track_id)?.publishers.iter();
        let same = publishers.find(|it| it.handle == handle && !it.is_leaving());
        match same.cloned() {
            Some(publisher) if publisher.state == PublisherState::Asked => {
                // The PUBLISH crosses the relay's own SUBSCRIBE, which has to end first [moqt-18 §5.1].
                self.cancel(turn, track_id, &publisher);
            }
            Some(_) => {
                turn.counters.refused_duplicate += 1;
                turn.refuse(handle, id, RequestErrorCode::DUPLICATE_SUBSCRIPTION);
                return None;
            }
            None => {}
        }
        let track = self.table.get(track_id)?;
        // A session that was asked and has not answered keeps no place from one that publishes.
        let clients = track.clients().filter(|it| it.was_established());
        if !is_link && clients.count() >= limits.publishers_per_track_max {
            turn.counters.refused_limit_publishers += 1;
            turn.refuse(handle, id, RequestErrorCode::EXCESSIVE_LOAD);
            return None;
        }
        Some(track_id)
    }

    /// Handles PUBLISH, and answers with FORWARD according to the demand.
    pub(crate) fn publish(
        &mut self,
        turn: &mut Turn<'_>,
        (track_id, sender): (TrackId, PublisherId),
        publish: &Publish,
        demand: Demand,
    ) {
        let (handle, id) = sender;
        let is_link = turn.is_link(handle);
        let Some(track) = self.table.get(track_id) else {
            return;
        };
        let is_new = !track.is_published();
        let forward = demand.forward(turn, is_link, track);
        self.add(
            turn,
            track_id,
            sender,
            PublisherState::published(is_link, forward),
        );
        let largest = publish.parameters.largest_object;
        self.welcome(turn, track_id, sender, largest);
        self.establish(turn, track_id, demand, Some(&publish.properties), largest);
        let parameters = Parameters {
            forward: Some(forward),
            expires: turn.expires_in(handle, id),
            ..Parameters::default()
        };
        let ok = RequestOk {
            parameters,
            ..RequestOk::default()
        };
        turn.accept((handle, id), ok);
        turn.push(Effect::Established(track_id));
        turn.push(Effect::Published {
            track: track_id,
            is_new,
        });
    }

    /// Sends SUBSCRIBE to a session, unless the session is a publisher already or there is no demand. Returns whether
    /// it was sent.
    pub(crate) fn ask(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        handle: Handle,
        demand: Demand,
    ) -> bool {
        self.ask_patiently(turn, track_id, handle, demand, None)
    }

    /// Does the same, and lets the session wait for a publisher for as long as `rendezvous`.
    pub(crate) fn ask_patiently(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        handle: Handle,
        demand: Demand,
        rendezvous: Option<Duration>,
    ) -> bool {
        let Some(track) = self.table.get(track_id) else {
            return false;
        };
        if track.has_publisher(handle) || demand.is_unwanted {
            return false;
        }
        let max = turn.config.limits.publishers_per_track_max;
        let clients = track.clients().filter(|it| !it.is_overdue()).count();
        if !turn.is_link(handle) && clients >= max {
            turn.counters.publishers_not_asked += 1;
            return false;
        }
        // FORWARD is 1 whatever the subscribers asked for [moqt-18 §9.2].
        let parameters = Parameters {
            forward: Some(true),
            new_group_request: demand.new_group,
            rendezvous_timeout: rendezvous,
            ..Parameters::default()
        };
        let name = track.name.clone();
        let request = turn.with_session(handle, |session, connection| {
            session.subscribe(connection, name, parameters)
        });
        let Some(Ok(request)) = request else {
            return false;
        };
        let sender = (handle, request);
        self.add(turn, track_id, sender, PublisherState::Asked);
        self.await_answer(turn, track_id, sender, rendezvous.unwrap_or_default());
        true
    }

    /// Handles SUBSCRIBE_OK.
    pub(crate) fn on_subscribe_ok(
        &mut self,
        turn: &mut Turn<'_>,
        (track_id, sender): (TrackId, PublisherId),
        ok: &SubscribeOk,
        demand: Demand,
    ) {
        self.change(track_id, sender, PublisherEvent::Accepted);
        let largest = ok.parameters.largest_object;
        self.welcome(turn, track_id, sender, largest);
        self.establish(turn, track_id, demand, Some(&ok.properties), largest);
        turn.push(Effect::Established(track_id));
        turn.push(Effect::LinksUnserved(track_id));
    }

    /// Handles a publisher's answer to an update of FORWARD. It makes the largest location of a link's track known.
    pub(crate) fn on_update_ok(
        &mut self,
        turn: &mut Turn<'_>,
        (track_id, sender): (TrackId, PublisherId),
        largest: Option<Location>,
        demand: Demand,
    ) {
        if turn.is_link(sender.0) {
            self.change(track_id, sender, PublisherEvent::UpdateAnswered);
            let Some(track) = self.table.get(track_id) else {
                return;
            };
            if track
                .publisher(sender)
                .is_some_and(|it| it.is_established())
            {
                self.establish(turn, track_id, demand, None, largest);
                turn.push(Effect::Established(track_id));
                turn.push(Effect::OfferAwaited(track_id));
                turn.push(Effect::LinksUnserved(track_id));
            }
        } else if let (Some(largest), Some(track)) = (largest, self.table.get(track_id)) {
            track.observe(largest);
        }
        // The next update can be sent, if it did not fit before.
        turn.push(Effect::DemandChanged(track_id));
    }

    /// Handles a publisher's notice of a change that the relay did not ask for; it tells the largest location.
    pub(crate) fn on_state_changed(
        &mut self,
        turn: &mut Turn<'_>,
        sender: PublisherId,
        parameters: &Parameters,
    ) {
        if let (Some(largest), Some(id)) = (parameters.largest_object, turn.published_track(sender))
            && let Some(track) = self.table.get(id)
        {
            track.observe(largest);
        }
    }

    /// Establishes a publisher. The Track Properties are those of the first publisher; `None` leaves them as they are.
    fn establish(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        demand: Demand,
        properties: Option<&Properties>,
        largest: Option<Location>,
    ) {
        self.table.note_known(id);
        let Some(track) = self.table.get(id) else {
            return;
        };
        let established = track.publishers.iter().filter(|it| it.is_established());
        if established.count() <= 1 {
            if let Some(properties) = properties {
                track.properties = properties.clone();
            }
            let priority = track.properties.publisher_priority();
            track.cache.set_default_priority(priority);
            if largest < track.largest {
                // The publisher starts from the beginning: cached objects are not those that it will send.
                track.cache.clear(&mut self.ledger);
                track.end_markers = EndMarkers::default();
                if !demand.has_subscriptions {
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

    /// Updates FORWARD at publishers, and ends the relay's own subscriptions if there is no demand. `demand` returns the
    /// demand for publishers of a kind.
    pub(crate) fn on_demand(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        demand: impl Fn(PeerKind) -> Demand,
    ) {
        let Some(track) = self.table.get(track_id) else {
            return;
        };
        let mut known: [Option<(bool, bool)>; PeerKind::ALL.len()] = [None; PeerKind::ALL.len()];
        let publishers = track.publishers.iter().filter(|it| !it.is_leaving());
        let publishers: Vec<_> = publishers
            .map(|publisher| {
                let kind = publisher.kind;
                let (wanted, unwanted) = *known[kind as usize].get_or_insert_with(|| {
                    let demand = demand(kind);
                    let wanted = demand.forward(turn, kind.is_link(), track);
                    (wanted, demand.is_unwanted)
                });
                (publisher.clone(), wanted, unwanted)
            })
            .collect();
        for (publisher, is_wanted, is_unwanted) in publishers {
            if is_unwanted && publisher.state.is_own_request() {
                self.cancel(turn, track_id, &publisher);
            } else if publisher.state.forward() == Some(!is_wanted) {
                self.set_forward(turn, track_id, publisher.id(), is_wanted);
            }
        }
        Self::release(turn, track_id);
    }

    fn set_forward(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        sender: PublisherId,
        forward: bool,
    ) {
        let parameters = Parameters {
            forward: Some(forward),
            ..Parameters::default()
        };
        let sent = turn.with_session(sender.0, |session, connection| {
            session.update(connection, sender.1, parameters).is_ok()
        });
        if sent == Some(true) {
            self.change(track_id, sender, PublisherEvent::ForwardSent(forward));
        }
    }

    /// Ends the relay's own subscription to a session; returns whether there was one.
    pub(crate) fn cancel_own(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        sender: PublisherId,
    ) -> bool {
        let publisher = self
            .table
            .get(track_id)
            .and_then(|track| track.publisher(sender));
        let publisher = publisher.map(|publisher| publisher.clone());
        let own = publisher.filter(|it| it.state.is_own_request() && !it.is_leaving());
        if let Some(publisher) = &own {
            self.cancel(turn, track_id, publisher);
        }
        own.is_some()
    }

    /// Ends the relay's own requests for a track to those of `sessions` that have not answered.
    pub(crate) fn cancel_asked(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        sessions: &[Handle],
    ) {
        let mut asked = self.publishers_of(track_id);
        asked.retain(|it| it.state == PublisherState::Asked && sessions.contains(&it.handle));
        for publisher in asked {
            self.cancel(turn, track_id, &publisher);
        }
    }

    /// Ends one of the relay's own subscriptions.
    fn cancel(&mut self, turn: &mut Turn<'_>, track_id: TrackId, publisher: &Publisher) {
        let (handle, request) = publisher.id();
        self.cut_streams(turn, handle, request);
        turn.remove_request((handle, request));
        if let Some(track) = self.table.get(track_id) {
            track.remove_publisher(publisher.id());
            if track.publishers.is_empty() {
                track.restart();
            }
        }
        turn.cancel((handle, request), ResetCode::CANCELLED);
    }

    /// Returns a copy of a track's publishers.
    pub(crate) fn publishers_of(&mut self, id: TrackId) -> Vec<Publisher> {
        let track = self.table.get(id);
        track.map_or_else(Vec::new, |track| track.publishers.clone())
    }

    pub(super) fn change(&mut self, track_id: TrackId, sender: PublisherId, event: PublisherEvent) {
        let track = self.table.get(track_id);
        if let Some(publisher) = track.and_then(|track| track.publisher(sender)) {
            let is_link = publisher.is_link();
            let state = std::mem::replace(&mut publisher.state, PublisherState::Asked);
            publisher.state = state.after(event, is_link);
        }
    }

    fn add(
        &mut self,
        turn: &mut Turn<'_>,
        track_id: TrackId,
        (handle, request): (Handle, RequestId),
        state: PublisherState,
    ) {
        let mut kind = PeerKind::Client;
        if let Some(peer) = turn.sessions.get(handle) {
            peer.insert(request, Purpose::Source(track_id));
            kind = peer.kind();
        }
        if let Some(track) = self.table.get(track_id) {
            if track.publishers.iter().any(|other| !other.is_leaving()) {
                track.duplicates.share();
            }
            let publisher = Publisher::new((handle, request), kind, state);
            track.publishers.push(publisher);
        }
    }
}

impl Turn<'_> {
    /// Returns the track that the objects of a request belong to.
    pub(crate) fn published_track(&mut self, (handle, id): PublisherId) -> Option<TrackId> {
        self.sessions.get(handle)?.source(id)
    }
}
