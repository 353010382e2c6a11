//! One session on one connection, whichever side opened the connection.

use std::time::Instant;

use weir_moqt::data::ObjectDatagram;
use weir_moqt::draft::Draft;
use weir_moqt::error::SessionError;
use weir_moqt::limits::Limits;
use weir_moqt::message::Setup;
use weir_moqt::session::{Config, Event as SessionEvent, RequestId, Session, Side};
use weir_quic::{Connection, Event, Handle};
use weir_transport::{StreamId, Transport as _};

use crate::turn::Turn;

/// The other end of a connection: the connection's handle and the session on it.
#[derive(Debug)]
pub struct Peer {
    handle: Handle,
    session: Session,
}

/// An event for the role, since it concerns the role's own data.
#[derive(Debug)]
pub enum DataEvent {
    /// A data stream is writable again.
    Writable(StreamId),
    /// The peer sent `STOP_SENDING` for a data stream, with this error code.
    Stopped(StreamId, u64),
    /// The peer has acknowledged all data and the end of a data stream.
    Acknowledged(StreamId),
    /// The peer allows more streams.
    StreamsAvailable,
    /// An object of a subscription arrived in a datagram.
    Datagram(RequestId, ObjectDatagram),
}

impl Peer {
    /// Starts a session on a connection whose handshake is complete, and sends SETUP.
    ///
    /// Returns `None` if the connection's protocol is not a draft of MOQT, and closes the connection.
    pub fn start(
        now: Instant,
        connection: &mut Connection<'_>,
        side: Side,
        setup: Setup,
        limits: Limits,
    ) -> Option<Self> {
        let protocol = connection.protocol().unwrap_or_default();
        let Some(draft) = Draft::from_alpn(protocol.as_bytes()) else {
            connection.close(SessionError::VERSION_NEGOTIATION_FAILED.0, b"unknown ALPN");
            return None;
        };
        let mut session = Session::new(Config {
            draft,
            side,
            limits,
            setup,
        });
        session.start(now, connection);
        Some(Self {
            handle: connection.handle(),
            session,
        })
    }

    /// Returns the endpoint's handle of the connection.
    #[inline]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the session, to inspect. [`open`](Self::open) returns it together with its connection, to send.
    #[inline]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the session and its connection; `None` if the connection is closed or lost.
    #[inline]
    pub fn open<'a>(
        &'a mut self,
        turn: &'a mut Turn<'_>,
    ) -> Option<(&'a mut Session, Connection<'a>)> {
        let connection = turn.connection(self.handle)?;
        Some((&mut self.session, connection))
    }

    /// Passes an event of this connection to the session. Returns the part that concerns the role.
    ///
    /// Call [`poll_event`](Self::poll_event) until it returns `None` afterwards, unless a datagram was returned.
    #[inline]
    pub fn handle_event(&mut self, turn: &mut Turn<'_>, event: Event) -> Option<DataEvent> {
        let now = turn.now;
        let (session, mut connection) = self.open(turn)?;
        let connection = &mut connection;
        match event {
            Event::Datagram { data, .. } => {
                let (request, datagram) = session.handle_datagram(now, connection, data)?;
                return Some(DataEvent::Datagram(request, datagram));
            }
            Event::Opened {
                stream, direction, ..
            } => session.handle_opened(now, connection, stream, direction),
            Event::Readable { stream, .. } => session.handle_readable(now, connection, stream),
            Event::Writable { stream, .. } => {
                if !session.handle_writable(now, connection, stream) {
                    return Some(DataEvent::Writable(stream));
                }
            }
            Event::Stopped { stream, code, .. } => {
                if !session.handle_stopped(now, connection, stream, code) {
                    return Some(DataEvent::Stopped(stream, code));
                }
            }
            Event::Finished { stream, .. } => return Some(DataEvent::Acknowledged(stream)),
            Event::StreamsAvailable { direction, .. } => {
                session.handle_streams_available(now, connection, direction);
                return Some(DataEvent::StreamsAvailable);
            }
            Event::Connected { .. } | Event::Lost { .. } => {}
        }
        None
    }

    /// Returns the next event of the session.
    #[inline]
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.session.poll_event()
    }

    /// Closes the session and its connection with a code; `NO_ERROR` for none.
    pub fn close(&mut self, turn: &mut Turn<'_>, code: SessionError, reason: &str) {
        if let Some((session, mut connection)) = self.open(turn) {
            session.close(&mut connection, code, reason);
        }
    }
}
