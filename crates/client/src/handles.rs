//! Which client a connection belongs to.

use weir_quic::Handle;

/// Numbers of clients by the handles of their connections.
#[derive(Debug, Default)]
pub struct Handles {
    /// By [`Handle::index`], which is reused; the handle itself tells the uses apart.
    clients: Vec<Option<(Handle, usize)>>,
}

impl Handles {
    /// Notes whose connection it is.
    pub fn insert(&mut self, handle: Handle, client: usize) {
        if self.clients.len() <= handle.index() {
            self.clients.resize(handle.index() + 1, None);
        }
        self.clients[handle.index()] = Some((handle, client));
    }

    /// Forgets a connection, unless its place was taken by another one.
    pub fn remove(&mut self, handle: Handle) {
        let place = self.clients.get_mut(handle.index());
        if let Some(place) = place.filter(|place| place.is_some_and(|(known, _)| known == handle)) {
            *place = None;
        }
    }

    /// The client that a connection belongs to.
    #[inline]
    pub fn client_of(&self, handle: Handle) -> Option<usize> {
        let (known, client) = (*self.clients.get(handle.index())?)?;
        (known == handle).then_some(client)
    }
}

/// The connection that an event happened on.
pub fn handle_of(event: &weir_quic::Event) -> Handle {
    use weir_quic::Event;
    match event {
        Event::Connected { handle }
        | Event::Lost { handle, .. }
        | Event::Opened { handle, .. }
        | Event::Readable { handle, .. }
        | Event::Writable { handle, .. }
        | Event::Stopped { handle, .. }
        | Event::Finished { handle, .. }
        | Event::StreamsAvailable { handle, .. }
        | Event::Datagram { handle, .. } => *handle,
    }
}
