//! The relay's other threads: what they are told of each other's publishers.
//!
//! To a thread of the relay another one is a peer with a session of MOQT, whose connection leads through memory. What
//! is published here is announced there, a track crosses when somebody there wants it, once for all of them, and what
//! came from one neighbour is never passed on to another: every thread knows all the others itself. So nothing goes
//! in a circle, and nobody is a publisher for a neighbour but with what sessions of this thread publish.

use std::collections::BTreeMap;

use weir_moqt::{
    draft::Draft,
    error::{PublishDoneCode, RequestErrorCode, ResetCode},
    location::Location,
    message::{MESSAGE_BYTES_MAX, PublishDone, Setup},
    name::Namespace,
    parameter::Parameters,
    session::{self, RequestId, Session, Side},
};
use weir_quic::Handle;

use crate::{
    Config, Grant,
    delivery::subscription::Subscriber,
    dispatch::Owners,
    sessions::Sessions,
    sessions::peer::{Part, Peer},
    track::table::TrackId,
    turn::Turn,
};

/// Sessions with neighbours, and what they were told.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    /// Those that are set up.
    ready: Vec<Handle>,
    /// Namespaces that some session of this thread announces, with the relay's own announcements of them.
    announced: BTreeMap<Namespace, Vec<(Handle, RequestId)>>,
}

impl Owners {
    /// Begins a session with a neighbour.
    pub(crate) fn on_neighbour_connected(
        &mut self,
        turn: &mut Turn<'_>,
        handle: Handle,
        neighbour: u16,
    ) {
        let side = if turn.endpoint.shard().index() < neighbour {
            Side::Client
        } else {
            Side::Server
        };
        let Some(mut connection) = turn.endpoint.connection(turn.now, handle) else {
            return;
        };
        let mut session = Session::new(session::Config {
            draft: Draft::KEPT,
            side,
            limits: neighbour_limits(turn.config),
            setup: Setup {
                implementation: turn.config.implementation.clone(),
                ..Setup::default()
            },
        });
        session.start(turn.now, &mut connection);
        let mut peer = Peer::new(handle, session, None);
        peer.is_neighbour = true;
        // Whatever a neighbour asks for, it has asked its own authority.
        peer.grants = Ok(vec![Grant::everything()]);
        turn.sessions.insert(peer);
        self.settle(turn, handle);
    }

    /// A neighbour is there: it hears of everything that sessions of this thread publish.
    pub(crate) fn on_neighbour_ready(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        self.neighbours.ready.push(handle);
        let namespaces: Vec<Namespace> = self.neighbours.announced.keys().cloned().collect();
        for namespace in namespaces {
            self.announce_to(turn, handle, &namespace);
        }
        let tracks: Vec<_> = self.tracks.under(&Namespace::EMPTY).collect();
        for track in tracks {
            self.offer_to_neighbour(turn, track, handle);
        }
    }

    /// The session with a neighbour is gone.
    pub(crate) fn forget_neighbour(&mut self, handle: Handle) {
        self.neighbours.ready.retain(|&other| other != handle);
        for announcements in self.neighbours.announced.values_mut() {
            announcements.retain(|&(other, _)| other != handle);
        }
    }

    /// Number of announcements by sessions of this thread.
    pub(crate) fn namespaces_here(&self, sessions: &Sessions) -> u64 {
        let neighbours = self.neighbours.ready.iter();
        let told: usize = neighbours
            .map(|&handle| sessions.namespaces_of(handle))
            .sum();
        (self.namespaces.len() - told) as u64
    }

    /// Number of neighbours with a session.
    pub(crate) fn neighbours_len(&self) -> usize {
        self.neighbours.ready.len()
    }

    /// A session of this thread announced a namespace: neighbours hear of it if it is the first to.
    pub(crate) fn announce_to_neighbours(&mut self, turn: &mut Turn<'_>, namespace: &Namespace) {
        if turn.endpoint.shard().count() < 2 || self.neighbours.announced.contains_key(namespace) {
            return;
        }
        let announced = &mut self.neighbours.announced;
        announced.insert(namespace.clone(), Vec::new());
        for handle in self.neighbours.ready.clone() {
            self.announce_to(turn, handle, namespace);
        }
    }

    fn announce_to(&mut self, turn: &mut Turn<'_>, handle: Handle, namespace: &Namespace) {
        let sent = turn.with_session(handle, |session, connection| {
            session.publish_namespace(connection, namespace.clone(), Parameters::default())
        });
        if let Some(Ok(request)) = sent
            && let Some(announcements) = self.neighbours.announced.get_mut(namespace)
        {
            announcements.push((handle, request));
        }
    }

    /// A session of this thread no longer announces a namespace: neighbours hear of it if it was the last to.
    pub(crate) fn withdraw_from_neighbours(&mut self, turn: &mut Turn<'_>, namespace: &Namespace) {
        let mut announcing = self.namespaces.of(namespace).iter();
        if announcing.any(|announcer| !announcer.is_neighbour) {
            return;
        }
        let announcements = self.neighbours.announced.remove(namespace);
        for (handle, request) in announcements.into_iter().flatten() {
            turn.with_session(handle, |session, connection| {
                session.cancel(connection, request, ResetCode::CANCELLED);
            });
        }
    }

    /// A track is published by a session of this thread: neighbours are offered it.
    pub(crate) fn offer_to_neighbours(&mut self, turn: &mut Turn<'_>, track: TrackId) {
        for place in 0..self.neighbours.ready.len() {
            let handle = self.neighbours.ready[place];
            self.offer_to_neighbour(turn, track, handle);
        }
    }

    /// Offers a track to a neighbour, whose sessions may want it.
    fn offer_to_neighbour(&mut self, turn: &mut Turn<'_>, id: TrackId, handle: Handle) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        if !track.is_published_here() || track.has_subscriber(handle) {
            return;
        }
        // Objects follow until it says that nobody there wants them: so those who wait there miss none.
        let wanted = Parameters {
            forward: Some(true),
            ..Parameters::default()
        };
        let offer = Parameters {
            largest_object: track.largest,
            ..wanted.clone()
        };
        let (name, alias) = (track.name.clone(), track.alias);
        let properties = track.properties.clone();
        let offered = turn.with_session(handle, |session, connection| {
            session.publish_now(connection, name, alias, offer, properties)
        });
        let Some(Ok(request)) = offered else {
            return;
        };
        if let Some(peer) = turn.sessions.get(handle) {
            peer.insert(request, Part::Subscriber(id));
        }
        if let Some(track) = self.tracks.get(id)
            && let Err(place) = track.place(handle, request)
        {
            let (largest, defaults) = (track.largest, track.defaults());
            let mut subscriber = Subscriber::new(handle, request, &wanted, largest, defaults);
            subscriber.is_neighbour = true;
            subscriber.is_offer = true;
            track.subscribers.insert(place, subscriber);
        }
    }

    /// A neighbour answered to whether objects of its track are wanted. If they are, it is known turn.now how far the track
    /// has come, and those who wait can be told.
    pub(crate) fn on_neighbour_updated(
        &mut self,
        turn: &mut Turn<'_>,
        id: TrackId,
        who: (Handle, RequestId),
        largest: Option<Location>,
    ) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let Some(source) = track.source(who.0, who.1) else {
            return;
        };
        source.updates_pending = source.updates_pending.saturating_sub(1);
        if !source.is_established() {
            return;
        }
        let properties = track.properties.clone();
        self.establish(turn, id, &properties, largest);
        self.admit_waiting(turn, id);
        if self.tracks.get(id).is_some_and(|track| track.awaits_offer) {
            self.offer_all(turn, id);
        }
        self.dismiss_neighbours(turn, id);
    }

    /// Asks neighbours for a track that others publish as well: what they have of it, they pass on to nobody but their
    /// own sessions and this thread.
    pub(crate) fn ask_neighbours(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        if self.neighbours.ready.is_empty() {
            return;
        }
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let namespace = track.name.namespace.clone();
        let publishers = self.announcers_of(turn, &namespace);
        for handle in publishers {
            if self.neighbours.ready.contains(&handle) {
                self.ask(turn, id, handle);
            }
        }
    }

    /// Sends neighbours on their way if no session of this thread publishes a track any more: if others do, neighbours
    /// have it from their threads, and whether the track has ended is for each thread to find out.
    pub(crate) fn dismiss_neighbours(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        if track.is_fed_here() {
            return;
        }
        let done = PublishDone {
            code: MOVED,
            stream_count: None,
            reason: "no session of this thread publishes it any more".to_owned(),
        };
        self.dismiss_subscribers(turn, id, &done, |subscriber| subscriber.is_neighbour);
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        if !track.is_asking_here() {
            let waiting = track.waiting.iter().filter(|waiting| waiting.is_neighbour);
            let waiting: Vec<_> = waiting.map(|it| (it.handle, it.request)).collect();
            for (handle, request) in waiting {
                let code = RequestErrorCode::DOES_NOT_EXIST;
                self.refuse_waiting(turn, handle, request, code);
            }
        }
    }
}

impl Turn<'_> {
    pub(crate) fn is_neighbour(&mut self, handle: Handle) -> bool {
        self.sessions
            .get(handle)
            .is_some_and(|peer| peer.is_neighbour)
    }
}

/// What all sessions of a thread ask for may come through one session, and what they may send fits it: on its way from thread
/// to thread it is longer by what the relay says of it.
fn neighbour_limits(config: &Config) -> weir_moqt::limits::Limits {
    let limits = &config.session_limits;
    let requests = config.limits.tracks_max.saturating_mul(2);
    weir_moqt::limits::Limits {
        requests_max: limits.requests_max.max(requests),
        requests_local_max: limits.requests_local_max.max(requests),
        streams_max: limits.streams_max.max(requests),
        outgoing_bytes_max: limits.outgoing_bytes_max.max(OUTGOING_BYTES_MAX),
        message_bytes_max: MESSAGE_BYTES_MAX,
        object_header_bytes_max: limits
            .object_header_bytes_max
            .saturating_add(HEADER_GROWTH_BYTES_MAX),
        ..limits.clone()
    }
}

/// By this a neighbour tells that it has no publisher of a track any more, which says nothing about the track: others
/// may have one.
const MOVED: PublishDoneCode = PublishDoneCode::GOING_AWAY;
/// What the fields before an object's payload may be longer by than those that a publisher sent: numbers that were left out or
/// were differences there stand whole.
const HEADER_GROWTH_BYTES_MAX: usize = 64;
/// Control messages on their way to a neighbour on one stream.
const OUTGOING_BYTES_MAX: usize = 8 << 20;

/// Whether the last word of a neighbour says nothing about the track itself: it has it no more, or could not keep up.
pub(crate) fn is_moved(code: PublishDoneCode) -> bool {
    code == MOVED || code == PublishDoneCode::TOO_FAR_BEHIND
}
