//! The pair of control streams: SETUP first, GOAWAY at most once [moqt-18 §3.3].

use std::time::Instant;

use bytes::Bytes;
use weir_transport::{Direction, StreamId, Transport};

use super::request_ids::parity;
use super::send_stream::SendStream;
use super::state::{Input, Verdict, judge};
use super::{CONTROL_PRIORITY, Event, Session, Side};
use crate::error::{DecodeError, SessionError, Violation};
use crate::message::{GoAway, Message, Setup};
use crate::reader::MessageReader;

/// Both control streams of a session.
#[derive(Debug)]
pub(super) struct Control {
    sending: SendStream,
    reader: MessageReader,
    /// When and with what the session closes, if the peer ended a control stream.
    ended: Option<(Instant, Violation)>,
}

impl Control {
    /// Creates the control streams of a session; `setup` begins this endpoint's stream.
    pub(super) fn new(setup: Bytes, reader: MessageReader) -> Self {
        Self {
            sending: SendStream::beginning_with(setup),
            reader,
            ended: None,
        }
    }

    /// Returns this endpoint's control stream, once open.
    pub(super) fn stream(&self) -> Option<StreamId> {
        self.sending.stream()
    }

    /// Returns when and with what the session closes, if the peer ended a control stream.
    pub(super) fn ended(&self) -> Option<(Instant, Violation)> {
        self.ended
    }

    /// Records that the peer ended a control stream; the session closes at `until`.
    pub(super) fn end(&mut self, until: Instant, violation: Violation) {
        self.ended.get_or_insert((until, violation));
    }

    /// Sends the messages that wait for room.
    pub(super) fn flush(&mut self, transport: &mut dyn Transport) {
        self.sending.flush(transport);
    }
}

impl Session {
    /// Sends GOAWAY. The session fills in the Request ID and rejects newer requests of the peer with `GOING_AWAY`. The
    /// role closes the session when the timeout of the GOAWAY is over.
    ///
    /// Does nothing unless the session is ready. A session that is not ready needs no GOAWAY: the role closes it.
    ///
    /// # Panics
    /// If it was called before, or if a client names a URI [moqt-18 §10.4].
    pub fn goaway(&mut self, transport: &mut dyn Transport, goaway: GoAway) {
        let verdict = judge(&self.state, Input::OwnGoAway);
        assert_ne!(verdict, Verdict::Misuse, "GOAWAY is sent once");
        if verdict != Verdict::Accept {
            return;
        }
        self.check_goaway(&goaway);
        self.state.on_goaway_sent();
        let first_unseen = self.ids.first_unseen().0;
        let request_id = self.draft.goaway_has_request_id().then_some(first_unseen);
        let message = Message::GoAway(GoAway {
            request_id,
            ..goaway
        });
        self.send_control(transport, &message);
    }

    /// Opens the control stream, with SETUP as its first message, unless it is open.
    pub(super) fn open_control(&mut self, transport: &mut dyn Transport) {
        if self.control.stream().is_some() {
            return;
        }
        let Some(stream) = transport.open(Direction::Uni) else {
            return;
        };
        transport.set_priority(stream, CONTROL_PRIORITY);
        self.control.sending.open(transport, stream);
        self.open_queued(transport);
    }

    /// Records the peer's control stream.
    pub(super) fn on_control_opened(&mut self) -> Result<(), Violation> {
        if let Verdict::Violate(reason) = judge(&self.state, Input::ControlStream) {
            return Err(Violation::protocol(reason));
        }
        self.state.on_control_stream();
        Ok(())
    }

    /// Reads the messages of the peer's control stream.
    pub(super) fn on_control_data(
        &mut self,
        transport: &mut dyn Transport,
        data: Bytes,
    ) -> Result<(), DecodeError> {
        self.control.reader.push(data);
        while !self.state.is_closed()
            && let Some(message) = self.control.reader.poll()?
        {
            let verdict = judge(&self.state, Input::Message(message.kind()));
            match (verdict, message) {
                (Verdict::Violate(reason), _) => return Err(Violation::protocol(reason).into()),
                (Verdict::Accept, Message::Setup(setup)) => self.on_setup(transport, setup)?,
                (Verdict::Accept, Message::GoAway(goaway)) => self.on_goaway(goaway)?,
                (_, _) => {}
            }
        }
        Ok(())
    }

    /// Asserts that a GOAWAY of this endpoint has no field that only the other side may send.
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
            return Err(Violation::protocol("a GOAWAY of a client contains a URI"));
        }
        Ok(())
    }

    fn on_setup(
        &mut self,
        transport: &mut dyn Transport,
        mut setup: Setup,
    ) -> Result<(), DecodeError> {
        if self.side == Side::Client {
            check_server_setup(&setup)?;
        }
        if !self.tokens.resolve_setup(&mut setup.authorization_tokens)? {
            return Err(SessionError::MALFORMED_AUTH_TOKEN
                .violation("an authorization token is repeated in SETUP")
                .into());
        }
        self.state.on_setup(Box::new(setup.clone()));
        self.events.push_back(Event::Ready { peer: setup });
        // Each is read in a turn of its own, in the order of their numbers.
        let is_early = |&stream: &StreamId| !self.is_control(stream);
        for stream in self.streams.keys().copied().filter(is_early) {
            transport.read_later(stream);
        }
        Ok(())
    }

    fn on_goaway(&mut self, goaway: GoAway) -> Result<(), Violation> {
        match goaway.request_id {
            Some(request_id) if request_id % 2 != parity(self.side) => {
                return Err(SessionError::INVALID_REQUEST_ID
                    .violation("the Request ID in GOAWAY is not of the receiver"));
            }
            None if self.draft.goaway_has_request_id() => {
                return Err(Violation::protocol(
                    "GOAWAY on the control stream has no Request ID",
                ));
            }
            Some(_) | None => {}
        }
        self.check_uri_received(&goaway.new_session_uri)?;
        self.state.on_goaway_received();
        self.events.push_back(Event::GoAway(goaway));
        Ok(())
    }

    fn send_control(&mut self, transport: &mut dyn Transport, message: &Message) {
        let bytes = self
            .encode(message)
            .expect("a GOAWAY with a bounded URI fits");
        self.control.sending.push(transport, bytes);
    }
}

/// Checks that a server's SETUP has no option that only clients send [moqt-18 §10.3.1].
fn check_server_setup(setup: &Setup) -> Result<(), Violation> {
    if setup.path.is_some() {
        return Err(SessionError::INVALID_PATH.violation("a server sends PATH"));
    }
    if setup.authority.is_some() {
        return Err(SessionError::INVALID_AUTHORITY.violation("a server sends AUTHORITY"));
    }
    Ok(())
}
