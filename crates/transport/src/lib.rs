//! The trait [`Transport`]: the operations that a protocol session needs from its connection.
//!
//! MOQT and HTTP/3 sessions use it, whether QUIC, WebTransport or a queue carries the session. It is *not* a transport:
//! the `quic` crate implements the trait for connections, and tests implement it for queues. A session borrows its
//! transport for one call and keeps no handle to it.

use bytes::Bytes;

/// One stream of a connection, in the numbering of the underlying transport.
///
/// The number is opaque: a session compares and orders it, and does not interpret its bits.
#[derive(Copy, Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StreamId(pub u64);

/// Whether both endpoints send on a stream, or only the one that opened it.
#[derive(Copy, Clone, Debug, Eq, Hash, PartialEq)]
pub enum Direction {
    /// Only the opener sends: control and data streams.
    Uni,
    /// Both send: request streams.
    Bi,
}

/// The result of a read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Read {
    /// The next bytes of the stream, in order; never empty.
    Data(Bytes),
    /// The peer finished the stream; nothing follows.
    Fin,
    /// The peer reset the stream with this code; nothing follows.
    Reset(u64),
    /// No data at present; the transport reports when there is more.
    Blocked,
}

/// Why a write did not accept all bytes.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum WriteError {
    /// Flow control or the send buffer is full; the transport reports when there is room.
    Blocked,
    /// The peer sent `STOP_SENDING` with this code.
    Stopped(u64),
    /// The stream or the connection is closed.
    Closed,
}

/// A connection as a session sees it: streams, resets, priorities and the end of the connection.
///
/// Datagrams are left out: a session only receives them, and the role sends them on its own connection.
pub trait Transport {
    /// Opens a stream. Returns `None` if the peer's stream limit is reached.
    fn open(&mut self, direction: Direction) -> Option<StreamId>;

    /// Reads the next bytes of a stream.
    fn read(&mut self, stream: StreamId) -> Read;

    /// Reads everything available on a stream, in order, and appends it to `pieces`. Returns the reason that it
    /// stopped, which is never [`Read::Data`].
    fn read_all(&mut self, stream: StreamId, pieces: &mut Vec<Bytes>) -> Read {
        loop {
            match self.read(stream) {
                Read::Data(data) => pieces.push(data),
                end @ (Read::Fin | Read::Reset(_) | Read::Blocked) => return end,
            }
        }
    }

    /// Has the stream reported as readable again once others have had their turn, since data of it was left for later.
    fn read_later(&mut self, stream: StreamId);

    /// Writes as much as fits, and removes it from the front of `data`. Returns `Ok` only if all of `data` was
    /// accepted.
    fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError>;

    /// Ends the sending side with a FIN after everything written.
    fn finish(&mut self, stream: StreamId);

    /// Resets the sending side with `code`; bytes not yet delivered may be lost.
    fn reset(&mut self, stream: StreamId, code: u64);

    /// Sends `STOP_SENDING` with `code`, and discards what arrives.
    fn stop(&mut self, stream: StreamId, code: u64);

    /// Sets the send priority of a stream: higher is sent first.
    fn set_priority(&mut self, stream: StreamId, priority: i32);

    /// Closes the connection with an application code.
    fn close(&mut self, code: u64, reason: &[u8]);
}
