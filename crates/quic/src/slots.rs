//! The table of connections. Fields that are read for every packet are kept apart from the engine's state.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use quinn_proto::ConnectionError;
use weir_transport::StreamId;

use crate::{
    Counted, Handle, Loss,
    connection::Bare,
    datagrams::{DatagramQueue, Dropped},
    tls::refusal::Refusals,
    web_transport::WebTransport,
};

/// Connections by the engine's index.
pub(crate) struct Slots {
    hot: Vec<Hot>,
    /// Each in an allocation of its own, which its end frees, and which stays where it is while the table grows.
    cold: Vec<Option<Box<Slot>>>,
    open: usize,
    /// Number of leading places for connections to peer threads, which are vacant here.
    reserved: usize,
}

/// The fields that are read for every packet and every turn.
#[derive(Clone, Copy)]
pub(crate) struct Hot {
    generation: u32,
    /// The socket on which the peer's packets arrive.
    pub(crate) socket: u32,
    /// Bytes of stream data handed to the engine.
    pub(crate) written_bytes: u64,
    /// Bytes that came and were not read, nearly: see [`Hot::note_received`].
    unread_bytes: u64,
    /// Whether the connection may have packets to send. It is then also `listed`.
    pub(crate) dirty: bool,
    /// Whether the place is in the endpoint's list of connections that may have packets. Stays when the connection is
    /// removed.
    pub(crate) listed: bool,
    /// Whether the place is in the endpoint's list of connections that may have events. Stays when the connection is
    /// removed.
    pub(crate) active: bool,
    /// Whether the peer may have opened streams of which the role was not told, and of which the engine tells no more.
    pub(crate) has_untold_streams: bool,
    /// The same for datagrams.
    pub(crate) has_untold_datagrams: bool,
}

/// One connection.
pub(crate) struct Slot {
    pub(crate) engine: quinn_proto::Connection,
    /// The HTTP/3 layer between the connection and the role, if there is one.
    pub(crate) web_transport: Option<Box<WebTransport>>,
    /// Why its client refused certificates; `None` on a server.
    pub(crate) refusals: Option<Arc<Refusals>>,
    pub(crate) datagrams: DatagramQueue,
    /// Streams of which the role has left data for later.
    pub(crate) unread: VecDeque<StreamId>,
    pub(crate) datagram_bytes_max: usize,
    pub(crate) state: State,
    /// Why the engine ended the connection, until the role was told.
    pub(crate) lost: Option<Box<ConnectionError>>,
    /// Counts it as a handshake in flight, until the handshake is over.
    pub(crate) handshaking: Option<Counted>,
    /// When the first packet came or was due.
    pub(crate) began: Instant,
    /// How long the handshake took; 0 while it lasts.
    pub(crate) handshake: Duration,
    /// Datagrams dropped before they reached the engine.
    pub(crate) dropped: Dropped,
    /// Datagrams handed to the role.
    pub(crate) datagrams_received: u64,
    /// Datagrams that the engine dropped because they were not read in time.
    pub(crate) datagrams_unread: u64,
    /// Packets that are lost on purpose.
    pub(crate) loss: Loss,
}

/// The state of a connection, as its role sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Handshake,
    Established,
    /// Closed by either side: no further events; the engine is draining it.
    Closed,
}

impl Slots {
    /// Creates an empty table whose first `reserved` places stay vacant.
    pub(crate) fn new(reserved: usize) -> Self {
        Self {
            hot: vec![Hot::vacant(); reserved],
            cold: std::iter::repeat_with(|| None).take(reserved).collect(),
            open: 0,
            reserved,
        }
    }

    /// Returns the place of the engine's connection number `index`.
    pub(crate) fn place(&self, index: usize) -> usize {
        index + self.reserved
    }

    /// Returns the engine's number of the connection at a place.
    pub(crate) fn engine_index(&self, place: u32) -> usize {
        place as usize - self.reserved
    }

    /// Returns the number of connections that the engine keeps.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Inserts a new connection under the engine's index.
    pub(crate) fn insert(&mut self, index: usize, slot: Slot, socket: u32) -> Handle {
        let index = self.place(index);
        while self.hot.len() <= index {
            self.hot.push(Hot::vacant());
            self.cold.push(None);
        }
        debug_assert!(
            self.cold[index].is_none(),
            "the engine reuses an index only after removal"
        );
        self.open += 1;
        self.cold[index] = Some(Box::new(slot));
        let hot = &mut self.hot[index];
        *hot = Hot {
            generation: hot.generation,
            socket,
            listed: hot.listed,
            active: hot.active,
            ..Hot::vacant()
        };
        Handle {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            generation: hot.generation,
        }
    }

    /// Removes a drained connection.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Box<Slot>> {
        let slot = self.cold.get_mut(index as usize)?.take()?;
        let hot = &mut self.hot[index as usize];
        hot.generation = hot.generation.wrapping_add(1);
        hot.dirty = false;
        self.open -= 1;
        Some(slot)
    }

    pub(crate) fn hot(&mut self, index: u32) -> &mut Hot {
        &mut self.hot[index as usize]
    }

    pub(crate) fn handle(&self, index: u32) -> Handle {
        Handle {
            index,
            generation: self.hot[index as usize].generation,
        }
    }

    /// Returns the connection at an index, whatever its handle.
    pub(crate) fn at(&mut self, index: u32) -> Option<&mut Slot> {
        self.cold.get_mut(index as usize)?.as_deref_mut()
    }

    /// Returns both halves of the entry at an index.
    pub(crate) fn both(&mut self, index: u32) -> Option<(&mut Hot, &mut Slot)> {
        let slot = self.cold.get_mut(index as usize)?.as_mut()?;
        Some((&mut self.hot[index as usize], slot))
    }

    /// Returns the number of places ever used.
    pub(crate) fn len(&self) -> usize {
        self.hot.len()
    }

    /// Returns both halves of a connection that its role may use.
    pub(crate) fn usable(&mut self, handle: Handle) -> Option<(&mut Hot, &mut Slot)> {
        let hot = self.hot.get_mut(handle.index as usize)?;
        if hot.generation != handle.generation {
            return None;
        }
        let slot = self.cold[handle.index as usize].as_mut()?;
        (slot.state != State::Closed).then_some((hot, slot))
    }
}

impl Hot {
    fn vacant() -> Self {
        Self {
            generation: 0,
            socket: 0,
            written_bytes: 0,
            unread_bytes: 0,
            dirty: false,
            listed: false,
            active: false,
            has_untold_streams: false,
            has_untold_datagrams: false,
        }
    }
}

impl Hot {
    /// Counts a UDP payload from the peer as unread, as far as it may be stream data. No more than `max`, the flow control
    /// window, can be unread.
    ///
    /// The engine does not tell how much it holds of streams on which earlier data is missing. What came and was not read
    /// is an upper bound, but for what is no data. So each payload counts without its headers, and each byte read counts
    /// for a little more than itself, which makes up for retransmissions and for frames of other kinds.
    #[inline]
    pub(crate) fn note_received(&mut self, payload_bytes: usize, max: u64) {
        let data = payload_bytes.saturating_sub(PAYLOAD_OVERHEAD_BYTES) as u64;
        self.unread_bytes = (self.unread_bytes + data).min(max);
    }

    /// Counts data that was read from a stream, or that came in a datagram.
    #[inline]
    pub(crate) fn note_read(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.unread_bytes = self
            .unread_bytes
            .saturating_sub(bytes + bytes / READ_SURPLUS);
    }

    /// Returns about how many bytes of stream data came and were not read.
    pub(crate) fn unread_bytes(&self) -> u64 {
        self.unread_bytes
    }
}

/// About the bytes of a UDP payload that are not frames with data: header, packet number, tag, an ACK frame.
const PAYLOAD_OVERHEAD_BYTES: usize = 64;
/// The part of each byte read that counts in addition.
const READ_SURPLUS: u64 = 16;

impl Slot {
    /// Notes that the handshake is over. Returns whether it counted as one in flight.
    pub(crate) fn end_handshake(&mut self, now: Instant) -> bool {
        self.handshake = now.saturating_duration_since(self.began);
        self.handshaking.take().is_some()
    }

    /// Returns when this connection is to be woken.
    #[inline]
    pub(crate) fn poll_timeout(&mut self) -> Option<Instant> {
        let engine = self.engine.poll_timeout();
        match &self.web_transport {
            None => engine,
            Some(layer) => [engine, layer.poll_timeout()].into_iter().flatten().min(),
        }
    }

    /// Returns the bare connection and the layer above it, if there is one.
    #[inline]
    pub(crate) fn split<'a>(
        &'a mut self,
        now: Instant,
        index: u32,
        hot: &'a mut Hot,
        dirty: &'a mut Vec<u32>,
    ) -> (Bare<'a>, Option<&'a mut WebTransport>) {
        let bare = Bare {
            now,
            index,
            hot,
            engine: &mut self.engine,
            state: &mut self.state,
            dirty,
        };
        (bare, self.web_transport.as_deref_mut())
    }

    /// Updates how many datagrams the engine dropped unread, which only its statistics show, after all others were read. Returns
    /// the number of new ones.
    pub(crate) fn note_unread(&mut self) -> u64 {
        let unread = self.engine.stats().frame_rx.datagram - self.datagrams_received;
        unread - std::mem::replace(&mut self.datagrams_unread, unread)
    }

    /// Returns the number of bytes before each datagram's payload.
    pub(crate) fn datagram_prefix_length(&self) -> usize {
        let layer = self.web_transport.as_ref();
        layer.map_or(0, |layer| layer.datagram_prefix().len())
    }

    /// Passes as many waiting datagrams to the engine as it accepts. Counts dropped datagrams here and in `total`.
    pub(crate) fn feed(&mut self, now: Instant, total: &mut Dropped) {
        let mut dropped = Dropped::default();
        self.feed_engine(now, &mut dropped);
        self.dropped += dropped;
        *total += dropped;
    }

    fn feed_engine(&mut self, now: Instant, dropped: &mut Dropped) {
        while !self.datagrams.is_empty() {
            let space = self.engine.datagrams().send_buffer_space();
            let size_max = self.engine.datagrams().max_size().unwrap_or(0);
            if space < size_max {
                return;
            }
            let Some(data) = self.datagrams.pop(now, size_max, dropped) else {
                // The next datagram does not fit the path: it is dropped so that it does not block the others.
                if self.datagrams.pop(now, usize::MAX, dropped).is_some() {
                    dropped.oldest += 1;
                }
                continue;
            };
            if self.engine.datagrams().send(data, false).is_err() {
                dropped.oldest += 1;
                return;
            }
        }
    }
}
