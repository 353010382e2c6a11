//! Links: other relays that this relay exchanges tracks with.
//!
//! A link is a publisher and a subscriber as any other. What clients publish here is announced and offered there, a track
//! comes over once for all clients that want it, and what came through one link is never passed on to another: every relay
//! knows all the others itself. So nothing goes in a circle, and a link is sent only what clients of this relay publish.
//!
//! Today the other relays are the threads of this process ([`peer_threads`]).

mod peer_threads;

use std::collections::BTreeMap;

use weir_moqt::{
    error::{PublishDoneCode, ResetCode},
    message::PublishDone,
    name::Namespace,
    parameter::Parameters,
    session::RequestId,
};
use weir_quic::Handle;

use crate::{
    catalogue::Catalogue,
    delivery::{Delivery, Scope},
    ids::TrackId,
    sessions::Sessions,
    track::Tracks,
    turn::Turn,
};

/// Links that are set up, and what they were told.
#[derive(Debug, Default)]
pub(crate) struct Links {
    ready: Vec<Handle>,
    /// Namespaces that some client announces, with the relay's own announcements of them.
    announced: BTreeMap<Namespace, Vec<(Handle, RequestId)>>,
}

impl Links {
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Whether a session is a link that is set up.
    pub(crate) fn contains(&self, handle: Handle) -> bool {
        self.ready.contains(&handle)
    }

    /// A link is set up: it is told of everything that clients publish.
    pub(crate) fn on_ready(
        &mut self,
        turn: &mut Turn<'_>,
        delivery: &mut Delivery,
        tracks: &mut Tracks,
        handle: Handle,
    ) {
        self.ready.push(handle);
        let namespaces: Vec<Namespace> = self.announced.keys().cloned().collect();
        for namespace in namespaces {
            self.announce_to(turn, handle, &namespace);
        }
        for track in tracks.under(&Namespace::EMPTY).collect::<Vec<_>>() {
            offer(turn, delivery, tracks, track, handle);
        }
    }

    /// The session of a link is gone.
    pub(crate) fn forget(&mut self, handle: Handle) {
        self.ready.retain(|&other| other != handle);
        for announcements in self.announced.values_mut() {
            announcements.retain(|&(other, _)| other != handle);
        }
    }

    /// Returns the number of announcements by clients.
    pub(crate) fn client_namespaces(&self, catalogue: &Catalogue, sessions: &Sessions) -> usize {
        let links = self.ready.iter();
        let by_links: usize = links.map(|&handle| sessions.namespaces_of(handle)).sum();
        catalogue.announcements_len() - by_links
    }

    /// A client announced a namespace: links are told if it is the first to.
    pub(crate) fn announce(&mut self, turn: &mut Turn<'_>, namespace: &Namespace) {
        if turn.endpoint.shard().count() < 2 || self.announced.contains_key(namespace) {
            return;
        }
        self.announced.insert(namespace.clone(), Vec::new());
        for handle in self.ready.clone() {
            self.announce_to(turn, handle, namespace);
        }
    }

    fn announce_to(&mut self, turn: &mut Turn<'_>, handle: Handle, namespace: &Namespace) {
        let sent = turn.with_session(handle, |session, connection| {
            session.publish_namespace(connection, namespace.clone(), Parameters::default())
        });
        if let Some(Ok(request)) = sent
            && let Some(announcements) = self.announced.get_mut(namespace)
        {
            announcements.push((handle, request));
        }
    }

    /// No client announces a namespace any more: links are told.
    pub(crate) fn withdraw(&mut self, turn: &mut Turn<'_>, namespace: &Namespace) {
        let announcements = self.announced.remove(namespace);
        for (handle, request) in announcements.into_iter().flatten() {
            turn.with_session(handle, |session, connection| {
                session.cancel(connection, request, ResetCode::CANCELLED);
            });
        }
    }

    /// Offers a track to all links, if a client publishes it.
    pub(crate) fn offer_to_all(
        &self,
        turn: &mut Turn<'_>,
        delivery: &mut Delivery,
        tracks: &mut Tracks,
        track: TrackId,
    ) {
        for &handle in &self.ready {
            offer(turn, delivery, tracks, track, handle);
        }
    }

    /// Ends the subscriptions of links to a track that no client publishes any more. Whether the track has ended is for
    /// each relay to find out. Requests that wait go on to wait if a client was asked for the track.
    pub(crate) fn dismiss(
        turn: &mut Turn<'_>,
        delivery: &mut Delivery,
        track: TrackId,
        is_client_asked: bool,
    ) {
        let done = PublishDone {
            code: MOVED,
            stream_count: None,
            reason: "no session of this thread publishes it any more".to_owned(),
        };
        delivery.end(turn, track, Scope::Links, &done);
        if !is_client_asked {
            delivery.refuse_pending_links(turn, track);
        }
    }
}

/// Offers a track to a link, if a client publishes it and the link does not have it. Objects follow until the link says
/// that nobody there wants them: so whoever waits there misses none.
fn offer(
    turn: &mut Turn<'_>,
    delivery: &mut Delivery,
    tracks: &mut Tracks,
    id: TrackId,
    handle: Handle,
) {
    let Some(track) = tracks.get(id) else {
        return;
    };
    if track.is_published_by_client() && !delivery.has_subscriber(id, handle) {
        // If it cannot be offered now, the link asks for it.
        let _offered = delivery.publish(turn, (id, track), handle, true);
    }
}

/// Whether the PUBLISH_DONE of a link says nothing about the track itself: the link has no publisher of it any more, or
/// could not keep up.
pub(crate) fn is_moved(code: PublishDoneCode) -> bool {
    code == MOVED || code == PublishDoneCode::TOO_FAR_BEHIND
}

/// By this a link tells that it has no publisher of a track any more, which says nothing about the track: others
/// may have one.
const MOVED: PublishDoneCode = PublishDoneCode::GOING_AWAY;
