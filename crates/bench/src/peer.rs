//! One client's connection to the relay, from the first packet to its end: what publishers and
//! subscribers have in common.

use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_moqt::data::ObjectDatagram;
use weir_moqt::draft::Draft;
use weir_moqt::error::SessionError;
use weir_moqt::limits::Limits;
use weir_moqt::session::{RequestId, Session};
use weir_quic::{Connection, Endpoint, Event, Handle};
use weir_transport::{StreamId, Transport as _};

use crate::target::Target;

/// A connection and its session.
#[derive(Debug)]
pub(crate) struct Peer {
    handle: Handle,
    session: Option<Session>,
    started: Instant,
    connected: Option<Instant>,
    ready: Option<Instant>,
    /// Why the connection is of no more use, in words; it stays the first reason.
    failure: Option<String>,
    closed: bool,
}

/// What of an event is left for the role, after the session took its part.
#[derive(Debug)]
pub(crate) enum Rest {
    /// Nothing; but the session may have events.
    Nothing,
    /// A data stream of the role takes bytes again.
    Writable,
    /// The relay wants no more of a data stream of the role.
    Stopped(StreamId),
    /// More data streams can be opened.
    StreamsAvailable,
    /// An object.
    Datagram(RequestId, ObjectDatagram),
}

impl Peer {
    /// Starts to connect. The error says why that was impossible.
    pub(crate) fn connect(
        now: Instant,
        endpoint: &mut Endpoint,
        target: &Target,
        client: usize,
    ) -> Result<Self, String> {
        let handle = target
            .connect(now, endpoint, client)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            handle,
            session: None,
            started: now,
            connected: None,
            ready: None,
            failure: None,
            closed: false,
        })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Lets the session take its part of an event that belongs to this connection.
    pub(crate) fn handle_event(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        target: &Target,
        limits: &Limits,
        event: Event,
    ) -> Rest {
        if let Event::Lost { reason, .. } = &event {
            self.fail(reason.to_string());
            return Rest::Nothing;
        }
        let Some(mut connection) = endpoint.connection(now, self.handle) else {
            return Rest::Nothing;
        };
        if let Event::Connected { .. } = event {
            self.on_connected(now, &mut connection, target, limits);
            return Rest::Nothing;
        }
        let Some(session) = &mut self.session else {
            return Rest::Nothing;
        };
        match event {
            Event::Datagram { data, .. } => on_datagram(now, session, &mut connection, data),
            Event::Opened {
                stream, direction, ..
            } => {
                session.handle_opened(now, &mut connection, stream, direction);
                Rest::Nothing
            }
            Event::Readable { stream, .. } => {
                session.handle_readable(now, &mut connection, stream);
                Rest::Nothing
            }
            Event::Writable { stream, .. } => {
                if session.handle_writable(now, &mut connection, stream) {
                    Rest::Nothing
                } else {
                    Rest::Writable
                }
            }
            Event::Stopped { stream, code, .. } => {
                if session.handle_stopped(now, &mut connection, stream, code) {
                    Rest::Nothing
                } else {
                    Rest::Stopped(stream)
                }
            }
            Event::StreamsAvailable { direction, .. } => {
                session.handle_streams_available(now, &mut connection, direction);
                Rest::StreamsAvailable
            }
            Event::Connected { .. } | Event::Lost { .. } | Event::Finished { .. } => Rest::Nothing,
        }
    }

    /// The session with the connection it speaks on, while both are open.
    pub(crate) fn open<'a>(
        &'a mut self,
        now: Instant,
        endpoint: &'a mut Endpoint,
    ) -> Option<(&'a mut Session, Connection<'a>)> {
        let connection = endpoint.connection(now, self.handle)?;
        Some((self.session.as_mut()?, connection))
    }

    /// The next event of the session.
    pub(crate) fn poll_event(&mut self) -> Option<weir_moqt::session::Event> {
        self.session.as_mut()?.poll_event()
    }

    /// The relay's SETUP is here.
    pub(crate) fn on_ready(&mut self, now: Instant) {
        self.ready.get_or_insert(now);
    }

    /// Lets the session do what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if let Some((session, mut connection)) = self.open(now, endpoint)
            && session.poll_timeout().is_some_and(|timeout| timeout <= now)
        {
            session.handle_timeout(now, &mut connection);
        }
    }

    /// The connection is of no more use.
    pub(crate) fn fail(&mut self, reason: String) {
        self.failure.get_or_insert(reason);
        self.closed = true;
    }

    /// Takes leave of the relay.
    pub(crate) fn close(&mut self, now: Instant, endpoint: &mut Endpoint, reason: &str) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        if let Some(mut connection) = endpoint.connection(now, self.handle) {
            match &mut self.session {
                Some(session) => session.close(&mut connection, SessionError::NO_ERROR, reason),
                None => connection.close(SessionError::NO_ERROR.0, reason.as_bytes()),
            }
        }
    }

    /// Whether SETUP went both ways and the connection stands.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_some() && !self.closed
    }

    /// Whether the QUIC handshake came to its end.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.is_some()
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// From the first packet to the end of the QUIC handshake.
    pub(crate) fn handshake_time(&self) -> Option<Duration> {
        Some(self.connected?.saturating_duration_since(self.started))
    }

    /// From there to the relay's SETUP.
    pub(crate) fn setup_time(&self) -> Option<Duration> {
        Some(self.ready?.saturating_duration_since(self.connected?))
    }

    /// The draft both sides agreed on.
    pub(crate) fn draft(&self) -> Option<Draft> {
        self.session.as_ref().map(Session::draft)
    }

    /// What the relay calls itself in its SETUP.
    pub(crate) fn implementation(&self) -> Option<&str> {
        self.session
            .as_ref()?
            .peer_setup()?
            .implementation
            .as_deref()
    }

    fn on_connected(
        &mut self,
        now: Instant,
        connection: &mut Connection<'_>,
        target: &Target,
        limits: &Limits,
    ) {
        self.connected = Some(now);
        let protocol = connection.protocol().unwrap_or_default();
        if let Some(session) = target.session(&protocol, limits) {
            self.session.insert(session).start(now, connection);
        } else {
            connection.close(SessionError::VERSION_NEGOTIATION_FAILED.0, b"unknown ALPN");
            self.fail(format!("the relay chose the unknown protocol {protocol:?}"));
        }
    }
}

fn on_datagram(
    now: Instant,
    session: &mut Session,
    connection: &mut Connection<'_>,
    data: Bytes,
) -> Rest {
    match session.handle_datagram(now, connection, data) {
        Some((request, datagram)) => Rest::Datagram(request, datagram),
        None => Rest::Nothing,
    }
}
