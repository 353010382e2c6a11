//! What origin and player have in common: a connection to a relay, its session, and the clock.

use std::net::SocketAddr;
use std::time::Instant;

use weir_moqt::draft::Draft;
use weir_moqt::error::SessionError;
use weir_moqt::limits::Limits;
use weir_moqt::message::Setup;
use weir_moqt::session::{Config, Event as SessionEvent, Session, Side};
use weir_quic::{ClientConfig, Connection, Endpoint, Event, Handle};
use weir_transport::{StreamId, Transport as _};

/// Where the relay is, and what is said to it first.
#[derive(Clone, Debug)]
pub struct Target {
    /// The relay's address.
    pub remote: SocketAddr,
    /// The name that its certificate has to be for.
    pub server_name: String,
    /// Trust and protocols; these decide which drafts are offered.
    pub client: ClientConfig,
    /// What is said in SETUP.
    pub setup: Setup,
}

/// Maps the host's clock to microseconds that origin and player share.
#[derive(Clone, Copy, Debug)]
pub struct Timebase {
    /// A moment of the host's clock.
    pub at: Instant,
    /// What the shared clock said then, in microseconds.
    pub us: i64,
}

impl Timebase {
    /// What the shared clock says at `now`, in microseconds.
    pub fn microseconds(&self, now: Instant) -> i64 {
        let after = now.saturating_duration_since(self.at).as_micros();
        let before = self.at.saturating_duration_since(now).as_micros();
        let offset = i64::try_from(after).unwrap_or(i64::MAX / 4)
            - i64::try_from(before).unwrap_or(i64::MAX / 4);
        self.us.saturating_add(offset)
    }

    /// The moment at which the shared clock says `us`.
    pub fn instant(&self, us: i64) -> Instant {
        let offset = std::time::Duration::from_micros((us - self.us).unsigned_abs());
        if us >= self.us {
            self.at + offset
        } else {
            self.at.checked_sub(offset).unwrap_or(self.at)
        }
    }
}

/// A connection and its session.
#[derive(Debug)]
pub(crate) struct Client {
    target: Target,
    handle: Option<Handle>,
    session: Option<Session>,
    failure: Option<String>,
    is_closed: bool,
}

/// What of an event is left for the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing; but the session may have events.
    Nothing,
    /// A data stream takes bytes again, or more streams can be opened.
    Room,
    /// The relay wants no more of a data stream.
    Stopped(StreamId),
    /// The relay has acknowledged all of a stream.
    Arrived(StreamId),
}

impl Client {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            handle: None,
            session: None,
            failure: None,
            is_closed: false,
        }
    }

    /// Starts to connect, once.
    pub(crate) fn connect(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.handle.is_some() || self.is_closed {
            return;
        }
        let Target {
            client,
            remote,
            server_name,
            ..
        } = &self.target;
        match endpoint.connect(now, client, *remote, server_name, 0) {
            Ok(handle) => self.handle = Some(handle),
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// Whether it was asked to connect.
    pub(crate) fn has_started(&self) -> bool {
        self.handle.is_some() || self.is_closed
    }

    pub(crate) fn handle_event(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        event: &Event,
    ) -> Rest {
        if let Event::Lost { reason, .. } = event {
            self.fail(reason.to_string());
            return Rest::Nothing;
        }
        let handle = self.handle;
        let Some(mut connection) = handle.and_then(|handle| endpoint.connection(now, handle))
        else {
            return Rest::Nothing;
        };
        if let Event::Connected { .. } = event {
            self.on_connected(now, &mut connection);
            return Rest::Nothing;
        }
        let Some(session) = &mut self.session else {
            return Rest::Nothing;
        };
        let connection = &mut connection;
        match *event {
            Event::Opened {
                stream, direction, ..
            } => session.handle_opened(now, connection, stream, direction),
            Event::Readable { stream, .. } => session.handle_readable(now, connection, stream),
            Event::Writable { stream, .. } => {
                if !session.handle_writable(now, connection, stream) {
                    return Rest::Room;
                }
            }
            Event::Stopped { stream, code, .. } => {
                if !session.handle_stopped(now, connection, stream, code) {
                    return Rest::Stopped(stream);
                }
            }
            Event::StreamsAvailable { direction, .. } => {
                session.handle_streams_available(now, connection, direction);
                return Rest::Room;
            }
            Event::Finished { stream, .. } => return Rest::Arrived(stream),
            // Live media does not travel in datagrams.
            Event::Datagram { .. } | Event::Connected { .. } | Event::Lost { .. } => {}
        }
        Rest::Nothing
    }

    /// The session with the connection it speaks on, while both are open.
    pub(crate) fn open<'a>(
        &'a mut self,
        now: Instant,
        endpoint: &'a mut Endpoint,
    ) -> Option<(&'a mut Session, Connection<'a>)> {
        let connection = endpoint.connection(now, self.handle?)?;
        Some((self.session.as_mut()?, connection))
    }

    pub(crate) fn poll_event(&mut self) -> Option<SessionEvent> {
        self.session.as_mut()?.poll_event()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.session.as_ref()?.poll_timeout()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if let Some((session, mut connection)) = self.open(now, endpoint)
            && session.poll_timeout().is_some_and(|timeout| timeout <= now)
        {
            session.handle_timeout(now, &mut connection);
        }
    }

    pub(crate) fn fail(&mut self, reason: String) {
        self.failure.get_or_insert(reason);
        self.is_closed = true;
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Takes leave of the relay.
    pub(crate) fn close(&mut self, now: Instant, endpoint: &mut Endpoint, reason: &str) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        let handle = self.handle;
        if let Some(mut connection) = handle.and_then(|handle| endpoint.connection(now, handle)) {
            match &mut self.session {
                Some(session) => session.close(&mut connection, SessionError::NO_ERROR, reason),
                None => connection.close(SessionError::NO_ERROR.0, reason.as_bytes()),
            }
        }
    }

    fn on_connected(&mut self, now: Instant, connection: &mut Connection<'_>) {
        let protocol = connection.protocol().unwrap_or_default();
        let Some(draft) = Draft::from_alpn(protocol.as_bytes()) else {
            connection.close(SessionError::VERSION_NEGOTIATION_FAILED.0, b"unknown ALPN");
            return self.fail(format!("the relay chose the unknown protocol {protocol:?}"));
        };
        let session = Session::new(Config {
            draft,
            side: Side::Client,
            limits: Limits::default(),
            setup: self.target.setup.clone(),
        });
        self.session.insert(session).start(now, connection);
    }
}
