//! The connections of a role's clients, by the clients' numbers.

use std::time::Instant;

use weir_moqt::limits::Limits;
use weir_moqt::session::Event as SessionEvent;
use weir_quic::{Endpoint, Event, Handle};

use crate::client::{Peer, Rest};
use crate::handles::{Handles, handle_of};
use crate::target::Target;

/// One connection for each client that has started to connect.
#[derive(Debug)]
pub struct Peers {
    peers: Vec<Option<Peer>>,
    handles: Handles,
}

impl Peers {
    /// No connection yet, for `clients` clients.
    pub fn new(clients: usize) -> Self {
        let mut peers = Vec::new();
        peers.resize_with(clients, || None);
        Self {
            peers,
            handles: Handles::default(),
        }
    }

    /// Starts the connection of client `number`, in place of the one that it had.
    ///
    /// # Errors
    /// Why that was impossible.
    pub fn connect(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        target: &Target,
        number: usize,
    ) -> Result<(), String> {
        let peer = Peer::connect(now, endpoint, target, number)?;
        if let Some(left) = &self.peers[number] {
            self.handles.remove(left.handle());
        }
        self.handles.insert(peer.handle(), number);
        self.peers[number] = Some(peer);
        Ok(())
    }

    /// The client whose connection an event belongs to.
    #[inline]
    pub fn client_of(&self, event: &Event) -> Option<usize> {
        self.handles.client_of(handle_of(event))
    }

    /// Lets the session of client `number` take its part of an event.
    #[inline]
    pub fn handle_event(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        number: usize,
        (target, limits): (&Target, &Limits),
        event: Event,
    ) -> Rest {
        match &mut self.peers[number] {
            Some(peer) => peer.handle_event(now, endpoint, target, limits, event),
            None => Rest::Nothing,
        }
    }

    /// Lets the session of client `number` do what is due.
    pub fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint, number: usize) {
        if let Some(peer) = &mut self.peers[number] {
            peer.handle_timeout(now, endpoint);
        }
    }

    /// The next event of the session of client `number`.
    #[inline]
    pub fn poll_event(&mut self, number: usize) -> Option<SessionEvent> {
        self.peers[number].as_mut()?.poll_event()
    }

    /// The connection of client `number`, if it was ever begun.
    #[inline]
    pub fn peer(&self, number: usize) -> Option<&Peer> {
        self.peers[number].as_ref()
    }

    /// The connection of client `number`, to speak on.
    #[inline]
    pub fn peer_mut(&mut self, number: usize) -> Option<&mut Peer> {
        self.peers[number].as_mut()
    }

    /// The endpoint's name for the connection of client `number`.
    pub fn handle(&self, number: usize) -> Option<Handle> {
        self.peer(number).map(Peer::handle)
    }

    /// Takes leave of the relay on the connection of client `number`.
    pub fn close(&mut self, now: Instant, endpoint: &mut Endpoint, number: usize, reason: &str) {
        if let Some(peer) = self.peer_mut(number) {
            peer.close(now, endpoint, reason);
        }
    }
}
