//! Many clients of one server, by their numbers.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use weir_quic::{Event, Handle};

use crate::client::Client;
use crate::target::Target;
use crate::turn::Turn;

/// A fixed number of clients of one server, and which connection is whose.
#[derive(Debug)]
pub struct Clients {
    all: Vec<Client>,
    sockets: u32,
    /// Whose connection it is, by [`Handle::index`]. That is reused; the handle itself tells the uses apart.
    numbers: Vec<Option<(Handle, usize)>>,
}

impl Clients {
    /// `count` clients that wait to [`connect`](Self::connect).
    pub fn new(target: Target, count: usize) -> Self {
        let (sockets, target) = (target.sockets.max(1), Arc::new(target));
        let clients = (0..count).map(|_| Client::new(Arc::clone(&target)));
        Self {
            all: clients.collect(),
            sockets,
            numbers: Vec::new(),
        }
    }

    /// How many clients there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is no client.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All clients in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.all.iter()
    }

    /// Starts the connection of a client, in place of the one that it had.
    pub fn connect(&mut self, turn: &mut Turn<'_>, number: usize) {
        let client = &mut self.all[number];
        let left = client.handle();
        let socket = u32::try_from(number % self.sockets as usize).unwrap_or(0);
        client.connect(turn, socket);
        let begun = client.handle();
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

    /// The number of the client whose connection an event belongs to.
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
