//! Many clients of one server, by number.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use weir_quic::{Event, Handle};

use crate::client::Client;
use crate::target::Target;
use crate::turn::Turn;

/// A fixed number of clients of one server, and the client of each connection.
#[derive(Debug)]
pub struct Clients {
    all: Vec<Client>,
    sockets: u32,
    /// The client of each connection, by [`Handle::index`]. The index is reused, so the handle tells connections apart.
    numbers: Vec<Option<(Handle, usize)>>,
}

impl Clients {
    /// Returns `count` clients that wait to [`connect`](Self::connect).
    pub fn new(target: Target, count: usize) -> Self {
        Self::numbered(target, 0..count)
    }

    /// Returns clients that wait to [`connect`](Self::connect), each with its number among all clients of the target.
    pub fn numbered(target: Target, numbers: impl Iterator<Item = usize>) -> Self {
        let (sockets, target) = (target.sockets.max(1), Arc::new(target));
        let clients = numbers.map(|number| Client::numbered(Arc::clone(&target), number));
        Self {
            all: clients.collect(),
            sockets,
            numbers: Vec::new(),
        }
    }

    /// Returns the number of clients.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is no client.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns all clients, in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.all.iter()
    }

    /// Starts a new connection of a client. It replaces the previous one.
    pub fn connect(&mut self, turn: &mut Turn<'_>, number: usize) {
        let left = self.all[number].handle();
        let socket = u32::try_from(number % self.sockets as usize).unwrap_or(0);
        self.all[number].connect(turn, socket);
        self.note_connection(number, left);
    }

    /// Handles the timeouts of a client, which may connect to its next relay.
    pub fn handle_timeout(&mut self, turn: &mut Turn<'_>, number: usize) {
        let left = self.all[number].handle();
        self.all[number].handle_timeout(turn);
        if self.all[number].handle() != left {
            self.note_connection(number, left);
        }
    }

    /// Notes which client the new connection belongs to, and forgets the one that it replaces.
    fn note_connection(&mut self, number: usize, left: Option<Handle>) {
        let begun = self.all[number].handle();
        if let Some(left) = left
            && self.number(left).is_some()
        {
            self.numbers[left.index()] = None;
        }
        if let Some(begun) = begun {
            if self.numbers.len() <= begun.index() {
                self.numbers.resize(begun.index() + 1, None);
            }
            self.numbers[begun.index()] = Some((begun, number));
        }
    }

    /// Returns the number of the client whose connection an event belongs to.
    #[inline]
    pub fn number_of(&self, event: &Event) -> Option<usize> {
        self.number(event.handle())
    }

    #[inline]
    fn number(&self, handle: Handle) -> Option<usize> {
        let (known, number) = (*self.numbers.get(handle.index())?)?;
        (known == handle).then_some(number)
    }
}

impl Index<usize> for Clients {
    type Output = Client;

    #[inline]
    fn index(&self, number: usize) -> &Client {
        &self.all[number]
    }
}

impl IndexMut<usize> for Clients {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut Client {
        &mut self.all[number]
    }
}
