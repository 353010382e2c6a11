//! The trait [`Transport`]: what a protocol's session needs of the connection below it.
//!
//! A session of MOQT or HTTP/3 speaks through it, whether QUIC, WebTransport or a queue carries the session. It is
//! *not* a transport: the `quic` crate implements the trait for its connection, tests implement it for queues. A session
//! borrows its transport for the length of one call and keeps no handle to it.

use bytes::Bytes;

/// One stream of a connection, in the numbering of the transport below.
///
/// The number is opaque here: the session compares and orders it, and never looks at its bits.
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

/// What reading a stream gave.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Read {
    /// The next bytes of the stream, in order; never empty.
    Data(Bytes),
    /// The peer finished the stream; nothing follows.
    Fin,
    /// The peer reset the stream with this code; nothing follows.
    Reset(u64),
    /// Nothing more for now; the transport says when there is.
    Blocked,
}

/// Why a write did not take all bytes.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum WriteError {
    /// Flow control or the send buffer is full; the transport says when there is room.
    Blocked,
    /// The peer asked with this code not to be sent more on this stream.
    Stopped(u64),
    /// The stream, or the connection, is gone.
    Closed,
}

/// A connection as a session sees it: streams, resets, priorities and the end of the connection.
///
/// Datagrams are missing on purpose: a session only receives them, and the role sends them on its
/// own connection.
pub trait Transport {
    /// Opens a stream, or returns `None` while the peer's stream limit is reached.
    fn open(&mut self, direction: Direction) -> Option<StreamId>;

    /// Takes the next bytes off a stream.
    fn read(&mut self, stream: StreamId) -> Read;

    /// Takes all that is there off a stream, in order and in one go, and appends it to `pieces`; returns why there is no
    /// more: anything but [`Read::Data`].
    fn read_all(&mut self, stream: StreamId, pieces: &mut Vec<Bytes>) -> Read {
        loop {
            match self.read(stream) {
                Read::Data(data) => pieces.push(data),
                end @ (Read::Fin | Read::Reset(_) | Read::Blocked) => return end,
            }
        }
    }

    /// Takes what fits off the front of `data`; `Ok` only if all of it was taken.
    fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError>;

    /// Ends the sending side cleanly, after everything written.
    fn finish(&mut self, stream: StreamId);

    /// Ends the sending side at once; bytes not yet delivered may be lost.
    fn reset(&mut self, stream: StreamId, code: u64);

    /// Asks the peer to stop sending on this stream, and discards what arrives.
    fn stop(&mut self, stream: StreamId, code: u64);

    /// Sets the send order of a stream: higher is sent first.
    fn set_priority(&mut self, stream: StreamId, priority: i32);

    /// Closes the connection with an application code.
    fn close(&mut self, code: u64, reason: &[u8]);
}
