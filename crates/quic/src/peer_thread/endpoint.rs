//! The part of an endpoint that handles connections to peer threads.

use std::{collections::VecDeque, time::Instant};

use super::{
    connection::{ThreadConnection, ThreadLimits},
    message::{Content, ThreadMessage},
    view::ThreadConnectionView,
};
use crate::{Endpoint, Event, Handle, Shard, endpoint::turns::Turns};

/// Counters of the traffic between peer threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerThreadCounters {
    /// Datagrams to peer threads dropped because too many were in flight.
    pub datagrams_dropped: u64,
    /// Packets that came to the wrong endpoint and were passed to the right one.
    pub strays_passed: u64,
    /// Such packets dropped because too many waited.
    pub strays_dropped: u64,
}

/// The connections to all peer threads.
pub(crate) struct ThreadConnections {
    shard: Shard,
    /// Ordered by the number of the peer thread; the position is the handle's index.
    connections: Vec<ThreadConnection>,
}

impl ThreadConnections {
    pub(crate) fn new(shard: Shard) -> Self {
        let others = (0..shard.count()).filter(|&other| other != shard.index());
        let connections = (0..).zip(others).map(|(index, other)| {
            ThreadConnection::new(shard.index(), other, index, ThreadLimits::default())
        });
        Self {
            shard,
            connections: connections.collect(),
        }
    }

    /// Returns the first events of an endpoint: connections to peer threads exist from the start.
    pub(crate) fn initial_events(&self) -> VecDeque<Event> {
        let connections = self.connections.iter();
        connections
            .map(|connection| Event::Connected {
                handle: connection.handle(),
            })
            .collect()
    }

    /// Returns the connection of a handle, unless it is lost or closed. Events that it causes go to `events`.
    pub(crate) fn view<'a>(
        &'a mut self,
        handle: Handle,
        events: &'a mut VecDeque<Event>,
        turns: &'a mut Turns,
    ) -> Option<ThreadConnectionView<'a>> {
        let connection = self.connections.get_mut(handle.index())?;
        let is_usable = connection.handle() == handle && connection.is_open();
        is_usable.then_some(ThreadConnectionView {
            connection,
            events,
            turns,
        })
    }

    /// Returns the connection to the peer thread to which a packet belongs; `None` if it belongs to this endpoint.
    #[inline]
    pub(crate) fn owner(&mut self, packet: &[u8]) -> Option<&mut ThreadConnection> {
        if self.connections.is_empty() {
            return None;
        }
        let owner = Shard::owner(packet, self.shard.count());
        self.connection(owner)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.connections
            .iter()
            .filter_map(ThreadConnection::poll_timeout)
            .min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, events: &mut VecDeque<Event>) {
        for connection in &mut self.connections {
            connection.handle_timeout(now, events);
        }
    }

    pub(crate) fn close_all(&mut self, code: u64, reason: &[u8]) {
        for connection in &mut self.connections {
            connection.close(code, reason);
        }
    }

    /// Returns the connection to peer thread number `number`, which is not this endpoint itself.
    fn connection(&mut self, number: u16) -> Option<&mut ThreadConnection> {
        let own = self.shard.index();
        let place = match number.cmp(&own) {
            std::cmp::Ordering::Less => number,
            std::cmp::Ordering::Equal => return None,
            std::cmp::Ordering::Greater => number - 1,
        };
        self.connections.get_mut(usize::from(place))
    }
}

impl Endpoint {
    /// Returns which of several endpoints with one address this is.
    pub fn shard(&self) -> Shard {
        self.peer_threads.shard
    }

    /// Returns the messages for peer thread number `peer`, oldest first. The host delivers them after each turn, and
    /// removes them.
    ///
    /// # Panics
    /// If there is no such peer thread.
    pub fn messages_to(&mut self, peer: u16) -> &mut Vec<ThreadMessage> {
        self.thread_connection(peer).messages()
    }

    /// Handles messages from peer thread number `peer`.
    ///
    /// # Panics
    /// If there is no such peer thread.
    pub fn handle_messages(
        &mut self,
        now: Instant,
        peer: u16,
        messages: impl IntoIterator<Item = ThreadMessage>,
    ) {
        for ThreadMessage(content) in messages {
            if let Content::Packet(packet) = content {
                self.handle_own_packet(now, 0, *packet);
                continue;
            }
            let place = self.thread_connection(peer).handle().index();
            let Self {
                peer_threads,
                events,
                ..
            } = self;
            peer_threads.connections[place].handle_message(now, content, events);
        }
    }

    /// Returns the counters of the traffic between peer threads.
    pub fn peer_thread_counters(&self) -> PeerThreadCounters {
        let mut sum = PeerThreadCounters::default();
        for connection in &self.peer_threads.connections {
            sum.datagrams_dropped += connection.datagrams_dropped;
            sum.strays_passed += connection.strays_passed;
            sum.strays_dropped += connection.strays_dropped;
        }
        sum
    }

    fn thread_connection(&mut self, peer: u16) -> &mut ThreadConnection {
        self.peer_threads
            .connection(peer)
            .expect("the host names peer threads only")
    }
}
