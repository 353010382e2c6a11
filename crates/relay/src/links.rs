//! Links: sessions with other relays that this relay exchanges tracks with.
//!
//! A link is a MOQT session with another relay. Each relay announces over its links what its own clients publish. A
//! track crosses a link once, however many clients of the other relay subscribe to it. Every relay has a link to all
//! others, so what came over one link is never passed on over another, and nothing circulates.

mod peer_threads;

use std::collections::BTreeMap;

use weir_moqt::{
    error::{PublishDoneCode, ResetCode},
    message::PublishDone,
    name::Namespace,
    parameter::Parameters,
};
use weir_quic::Handle;

use crate::{
    catalogue::Catalogue,
    delivery::{Delivery, Scope},
    ids::{RequestKey, TrackId},
    sessions::Sessions,
    track::Tracks,
    turn::Turn,
};

/// The established links, and what was announced over them.
#[derive(Debug, Default)]
pub(crate) struct Links {
    ready: Vec<Handle>,
    /// Namespaces that clients announce, with the relay's own PUBLISH_NAMESPACE requests for them.
    announced: BTreeMap<Namespace, Vec<RequestKey>>,
}

/// The links, and what is exchanged over them.
pub(crate) struct Linking<'a> {
    pub(crate) links: &'a mut Links,
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) delivery: &'a mut Delivery,
    pub(crate) tracks: &'a mut Tracks,
}

impl Links {
    /// Returns whether no link is established.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Returns the number of open PUBLISH_NAMESPACE requests of clients.
    pub(crate) fn client_namespaces(&self, catalogue: &Catalogue, sessions: &Sessions) -> usize {
        let links = self.ready.iter();
        let of_links: usize = links.map(|&handle| sessions.namespaces_of(handle)).sum();
        catalogue.announcements_len() - of_links
    }

    /// Removes a link whose session is gone.
    pub(crate) fn forget(&mut self, handle: Handle) {
        self.ready.retain(|&other| other != handle);
        for announcements in self.announced.values_mut() {
            announcements.retain(|&(other, _)| other != handle);
        }
    }

    /// Announces a namespace over all links, unless another client announced it already.
    pub(crate) fn announce(&mut self, turn: &mut Turn<'_>, namespace: &Namespace) {
        if !turn.has_peer_threads() || self.announced.contains_key(namespace) {
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

    /// Withdraws the announcements of a namespace over all links, since no client announces it.
    pub(crate) fn withdraw(&mut self, turn: &mut Turn<'_>, namespace: &Namespace) {
        let announcements = self.announced.remove(namespace);
        for (handle, request) in announcements.into_iter().flatten() {
            turn.cancel((handle, request), ResetCode::CANCELLED);
        }
    }
}

impl Linking<'_> {
    /// Announces and offers everything that clients publish over a new link.
    pub(crate) fn on_ready(&mut self, turn: &mut Turn<'_>, handle: Handle) {
        self.links.ready.push(handle);
        let namespaces: Vec<_> = self.links.announced.keys().cloned().collect();
        for namespace in namespaces {
            self.links.announce_to(turn, handle, &namespace);
        }
        let tracks: Vec<_> = self.tracks.under(&Namespace::EMPTY).collect();
        for track in tracks {
            self.offer_to(turn, track, handle);
        }
    }

    /// Offers a track that a client publishes over all links.
    pub(crate) fn offer(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        for index in 0..self.links.ready.len() {
            self.offer_to(turn, id, self.links.ready[index]);
        }
    }

    fn offer_to(&mut self, turn: &mut Turn<'_>, id: TrackId, handle: Handle) {
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        if track.is_published_by_client() && !self.delivery.has_subscriber(id, handle) {
            // Objects are forwarded until the other relay reports that it has no subscriber, so subscribers that wait
            // there miss none. If the offer cannot be sent, the other relay can still subscribe.
            let _offered = self.delivery.publish(turn, (id, track), handle, true);
        }
    }

    /// Subscribes over links to a track that clients publish as well, since each relay passes on only what its own
    /// clients publish.
    pub(crate) fn ask(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        if self.links.ready.is_empty() {
            return;
        }
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        let namespace = &track.name().namespace;
        let announcers = self.catalogue.announcers_of(turn, namespace);
        let demand = self.delivery.demand(id, true);
        for handle in announcers {
            if self.links.ready.contains(&handle) {
                self.tracks.ask(turn, id, handle, demand);
            }
        }
    }

    /// Ends the subscriptions of links to a track that no client publishes. Other relays may still have the track, and
    /// each finds out for itself whether it has ended.
    pub(crate) fn end_unserved(&mut self, turn: &mut Turn<'_>, id: TrackId) {
        if self.links.ready.is_empty() {
            return;
        }
        let Some(track) = self.tracks.get(id) else {
            return;
        };
        if track.is_sent_by_client() {
            return;
        }
        let done = PublishDone::new(MOVED, "no session of this thread publishes it any more");
        let is_asking = track.is_asking_client();
        self.delivery.end(turn, id, Scope::Links, &done);
        if !is_asking {
            self.delivery.refuse_pending_links(turn, id);
        }
    }
}

/// The PUBLISH_DONE code over a link if none of the relay's clients publishes the track.
const MOVED: PublishDoneCode = PublishDoneCode::GOING_AWAY;

/// Returns whether a PUBLISH_DONE over a link does not end the track itself: the other relay has lost its publisher, or
/// this relay fell too far behind.
pub(crate) fn is_moved(code: PublishDoneCode) -> bool {
    code == MOVED || code == PublishDoneCode::TOO_FAR_BEHIND
}
