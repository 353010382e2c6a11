//! The pair of control streams: SETUP first, GOAWAY at most once [moqt-18 §3.3].

use std::time::Instant;

use bytes::Bytes;

use super::request_ids::parity;
use super::send_stream::Outgoing;
use super::{CONTROL_PRIORITY, Event, Session, Side};
use crate::error::{DecodeError, SessionError, Violation};
use crate::message::{GoAway, Message, Setup};
use crate::reader::MessageReader;
use crate::transport::{Direction, StreamId, Transport};

/// Both control streams of a session.
#[derive(Debug)]
pub(super) struct Control {
    /// This endpoint's SETUP, until it is sent.
    setup: Option<Box<Setup>>,
    /// This endpoint's stream, once the transport allowed it.
    stream: Option<StreamId>,
    outgoing: Outgoing,
    reader: MessageReader,
    /// Whether the peer opened its stream.
    pub(super) is_received: bool,
    /// The peer's SETUP, once it came.
    peer: Option<Box<Setup>>,
    /// When it is overdue.
    deadline: Option<Instant>,
    /// The peer closed a control stream: when and with what the session closes.
    closed: Option<(Instant, Violation)>,
    pub(super) goaway_sent: bool,
    pub(super) goaway_received: bool,
}

impl Control {
    pub(super) fn new(setup: Setup, reader: MessageReader) -> Self {
        Self {
            setup: Some(Box::new(setup)),
            stream: None,
            outgoing: Outgoing::default(),
            reader,
            is_received: false,
            peer: None,
            deadline: None,
            closed: None,
            goaway_sent: false,
            goaway_received: false,
        }
    }

    /// This endpoint's control stream, once open.
    pub(super) fn stream(&self) -> Option<StreamId> {
        self.stream
    }

    /// The peer's SETUP.
    pub(super) fn peer(&self) -> Option<&Setup> {
        self.peer.as_deref()
    }

    /// When the session closes because the peer closed a control stream, and with what.
    pub(super) fn closed(&self) -> Option<(Instant, Violation)> {
        self.closed
    }

    /// The peer closed a control stream; the session closes at `until`.
    pub(super) fn close(&mut self, until: Instant, violation: Violation) {
        self.closed.get_or_insert((until, violation));
    }

    /// When the peer's SETUP is overdue.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Starts the wait for the peer's SETUP, unless it is there already.
    pub(super) fn set_deadline(&mut self, deadline: Instant) {
        if self.peer.is_none() {
            self.deadline = Some(deadline);
        }
    }

    /// Sends what waits for room.
    pub(super) fn flush(&mut self, transport: &mut dyn Transport) {
        if let Some(stream) = self.stream {
            self.outgoing.flush(transport, stream);
        }
    }
}

impl Session {
    /// Announces the end of the session. The session fills in the Request ID, rejects the peer's
    /// newer requests with `GOING_AWAY`, and leaves it to the role to close when the time is over.
    ///
    /// # Panics
    /// If it was called before, or if a client names a URI [moqt-18 §10.4].
    pub fn goaway(&mut self, transport: &mut dyn Transport, goaway: GoAway) {
        if self.is_closed {
            return;
        }
        assert!(!self.control.goaway_sent, "GOAWAY is sent once");
        self.check_goaway(&goaway);
        self.control.goaway_sent = true;
        let request_id = Some(self.ids.first_unseen().0);
        let message = Message::GoAway(GoAway {
            request_id,
            ..goaway
        });
        self.send_control(transport, &message);
    }

    /// Opens the control stream if that has not succeeded yet, with SETUP as its first message.
    pub(super) fn open_control(&mut self, transport: &mut dyn Transport) {
        if self.control.stream.is_some() {
            return;
        }
        let Some(stream) = transport.open(Direction::Uni) else {
            return;
        };
        transport.set_priority(stream, CONTROL_PRIORITY);
        self.control.stream = Some(stream);
        if let Some(setup) = self.control.setup.take() {
            let bytes = self
                .encode(&Message::Setup(*setup))
                .expect("the own SETUP fits");
            self.control.outgoing.hold_first(bytes);
        }
        self.control.flush(transport);
        self.open_queued(transport);
    }

    /// Finds out what a stream from the peer carries, once its first bytes say so.
    pub(super) fn on_control_opened(&mut self) -> Result<(), Violation> {
        if self.control.is_received {
            return Err(Violation::protocol("a second control stream"));
        }
        self.control.is_received = true;
        Ok(())
    }

    pub(super) fn on_control_data(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        data: Bytes,
    ) -> Result<(), DecodeError> {
        self.control.reader.push(data);
        while let Some(message) = self.control.reader.poll()? {
            match (message, self.control.peer.is_some()) {
                (Message::Setup(setup), false) => self.on_setup(now, transport, setup)?,
                (Message::GoAway(goaway), true) => self.on_goaway(goaway)?,
                (Message::Setup(_), true) => {
                    return Err(Violation::protocol("a second SETUP").into());
                }
                (_, false) => {
                    return Err(Violation::protocol("a message before SETUP").into());
                }
                (_, true) => {
                    return Err(Violation::protocol("not a message of the control stream").into());
                }
            }
            if self.is_closed {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Refuses what a GOAWAY from here may not say.
    pub(super) fn check_goaway(&self, goaway: &GoAway) {
        let names_uri = !goaway.new_session_uri.is_empty();
        assert!(
            self.side == Side::Server || !names_uri,
            "a client names no new session"
        );
    }

    /// Refuses a URI from a client, which cannot tell a server where to connect.
    pub(super) fn check_uri_received(&self, uri: &str) -> Result<(), Violation> {
        if self.side == Side::Server && !uri.is_empty() {
            return Err(Violation::protocol("a client names a URI to connect to"));
        }
        Ok(())
    }

    fn on_setup(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        mut setup: Setup,
    ) -> Result<(), DecodeError> {
        if self.side == Side::Client {
            check_server_setup(&setup)?;
        }
        if !self.tokens.resolve_setup(&mut setup.authorization_tokens)? {
            let code = SessionError::MALFORMED_AUTH_TOKEN;
            return Err(Violation {
                code,
                reason: "a token twice in SETUP",
            }
            .into());
        }
        self.control.peer = Some(Box::new(setup.clone()));
        self.control.deadline = None;
        self.events.push_back(Event::Ready { peer: setup });
        self.read_early(now, transport)
    }

    /// Reads the streams that came before SETUP, in the order of their numbers.
    fn read_early(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
    ) -> Result<(), DecodeError> {
        let early: Vec<StreamId> = self.streams.keys().copied().collect();
        for stream in early {
            self.recognise(now, transport, stream)?;
            if !self.is_control(stream) {
                self.read(now, transport, stream)?;
            }
        }
        Ok(())
    }

    fn on_goaway(&mut self, goaway: GoAway) -> Result<(), Violation> {
        if self.control.goaway_received {
            return Err(Violation::protocol("a second GOAWAY"));
        }
        let Some(request_id) = goaway.request_id else {
            return Err(Violation::protocol(
                "GOAWAY on the control stream has no Request ID",
            ));
        };
        if request_id % 2 != parity(self.side) {
            let code = SessionError::INVALID_REQUEST_ID;
            return Err(Violation {
                code,
                reason: "GOAWAY names a Request ID of its sender",
            });
        }
        self.check_uri_received(&goaway.new_session_uri)?;
        self.control.goaway_received = true;
        self.events.push_back(Event::GoAway(goaway));
        Ok(())
    }

    fn send_control(&mut self, transport: &mut dyn Transport, message: &Message) {
        let bytes = self
            .encode(message)
            .expect("a GOAWAY with a bounded URI fits");
        self.control.outgoing.hold(bytes);
        self.control.flush(transport);
    }
}

/// Refuses what only clients say in SETUP [moqt-18 §10.3.1].
fn check_server_setup(setup: &Setup) -> Result<(), Violation> {
    if setup.path.is_some() {
        let code = SessionError::INVALID_PATH;
        return Err(Violation {
            code,
            reason: "a server sends PATH",
        });
    }
    if setup.authority.is_some() {
        let code = SessionError::INVALID_AUTHORITY;
        return Err(Violation {
            code,
            reason: "a server sends AUTHORITY",
        });
    }
    Ok(())
}
