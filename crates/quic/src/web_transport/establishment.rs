//! Establishment of a session: settings, the request, its answer.

use bytes::Bytes;
use weir_transport::{Direction, StreamId, Transport};

use super::{
    Event, HEAD_BYTES_MAX, Side, State, WebTransport,
    capsule::CapsuleReader,
    own_streams::Own,
    request::{self, TOKEN, TOKEN_DRAFT15},
    session::Prefixes,
};
use weir_h3::{
    Code, Violation,
    head::{HeadError, RequestHead, ResponseHead},
    message::{MessageReader, Piece},
    qpack::SectionError,
    settings::{Settings, setting},
    stream_type, varint,
};

impl WebTransport {
    /// Opens the own control stream, as soon as the peer's stream limit permits.
    pub(super) fn open_control(&mut self, transport: &mut dyn Transport) {
        if self.control.is_some() {
            return;
        }
        let Some(stream) = transport.open(Direction::Uni) else {
            return;
        };
        self.control = Some(stream);
        self.own.insert(stream, Own::Control);
        transport.set_priority(stream, i32::MAX);
        let mut data = Vec::new();
        varint::encode(stream_type::CONTROL, &mut data);
        our_settings(&self.side).encode(&mut data);
        self.write_own(transport, stream, data.into(), false);
    }

    /// Handles the peer's settings.
    pub(super) fn on_settings(
        &mut self,
        transport: &mut dyn Transport,
        settings: Settings,
    ) -> Result<(), Violation> {
        self.settings = Some(settings);
        match self.side {
            Side::Client => {
                self.ask(transport);
                Ok(())
            }
            Side::Server(_) => {
                let held = self.session.and_then(|stream| self.own.remove(&stream));
                if let (Some(stream), Some(Own::Held(held))) = (self.session, held) {
                    let (content, head) = *held;
                    self.session = None;
                    return self.on_request(transport, stream, content, head);
                }
                Ok(())
            }
        }
    }

    /// Sends the client's request, once the server's settings have come and a stream can be opened.
    pub(super) fn ask(&mut self, transport: &mut dyn Transport) {
        let (Side::Client, State::Opening, None) = (&self.side, self.state, self.session) else {
            return;
        };
        let (Some(settings), Some(request)) = (&self.settings, &self.request) else {
            return;
        };
        let Some(token) = token(settings) else {
            self.on_failed(transport, "the server does not offer it".to_owned());
            return;
        };
        let headers = request.encode(token);
        let Some(stream) = transport.open(Direction::Bi) else {
            return;
        };
        self.set_session(transport, stream);
        let reader = MessageReader::new(HEAD_BYTES_MAX);
        self.own.insert(stream, Own::Head(Box::new(reader)));
        self.write_own(transport, stream, headers, false);
    }

    /// Handles bytes of a request, or of the answer to the own request.
    pub(super) fn on_head_bytes(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) -> Result<(), Violation> {
        while let Some(Own::Head(reader)) = self.own.get_mut(&stream) {
            let section = match reader.poll()? {
                None => return Ok(()),
                Some(Piece::Head(section)) => Ok(section),
                Some(Piece::HeadTooLarge) => Err(SectionError::TooLarge.into()),
                Some(Piece::Content(_) | Piece::Trailers(_)) => continue,
            };
            match self.side {
                Side::Client => self.on_answer(transport, stream, section)?,
                Side::Server(_) => self.on_request_head(transport, stream, section)?,
            }
        }
        Ok(())
    }

    fn on_request_head(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        section: Result<Bytes, HeadError>,
    ) -> Result<(), Violation> {
        let head = section.and_then(|section| RequestHead::decode(section, HEAD_BYTES_MAX));
        let head = match head {
            Ok(head) => head,
            Err(HeadError::Section(SectionError::Broken(violation))) => return Err(violation),
            Err(HeadError::Section(SectionError::TooLarge)) => {
                self.refuse(transport, stream, 431);
                return Ok(());
            }
            Err(HeadError::Malformed(_)) => {
                self.refuse(transport, stream, 400);
                return Ok(());
            }
        };
        let Some(Own::Head(reader)) = self.own.remove(&stream) else {
            return Ok(());
        };
        self.on_request(transport, stream, *reader, head)
    }

    /// Handles a complete request: it opens the session, waits for the peer's settings, or is refused.
    fn on_request(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        content: MessageReader,
        head: RequestHead,
    ) -> Result<(), Violation> {
        let Side::Server(offer) = &self.side else {
            return Ok(());
        };
        let accepted = match offer.decide(&head) {
            Ok(accepted) => accepted,
            Err(status) => {
                self.refuse(transport, stream, status);
                return Ok(());
            }
        };
        if self.session.is_some() {
            self.refuse(transport, stream, 429);
            return Ok(());
        }
        if self.settings.is_none() {
            // The peer's generation is not known before (draft-ietf-webtrans-http3-15 §3.1).
            self.session = Some(stream);
            self.own
                .insert(stream, Own::Held(Box::new((content, head))));
            return Ok(());
        }
        let headers = accepted.encode();
        self.set_session(transport, stream);
        self.write_own(transport, stream, headers, false);
        self.request = Some(accepted.request);
        self.establish(transport, stream, content, accepted.protocol)
    }

    fn on_answer(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        section: Result<Bytes, HeadError>,
    ) -> Result<(), Violation> {
        let head = section.and_then(|section| ResponseHead::decode(section, HEAD_BYTES_MAX));
        let head = match head {
            Ok(head) => head,
            Err(HeadError::Section(SectionError::Broken(violation))) => return Err(violation),
            Err(error @ (HeadError::Section(SectionError::TooLarge) | HeadError::Malformed(_))) => {
                self.on_failed(transport, format!("the server's answer: {error}"));
                return Ok(());
            }
        };
        match head.status {
            // An interim response; another one follows (RFC 9110 §15.2).
            100..200 => {
                if let Some(Own::Head(reader)) = self.own.get_mut(&stream) {
                    reader.expect_another_head();
                }
                Ok(())
            }
            200..300 => {
                let Some(Own::Head(reader)) = self.own.remove(&stream) else {
                    return Ok(());
                };
                let request = self.request.as_ref();
                let protocol = request.and_then(|request| request.chosen(&head));
                self.establish(transport, stream, *reader, protocol)
            }
            status => {
                let reason = format!("the server refused the session with status {status}");
                self.on_failed(transport, reason);
                Ok(())
            }
        }
    }

    /// Handles a request or an answer that ended before its header was complete.
    pub(super) fn on_head_cut(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        reset: Option<Code>,
    ) {
        match (&self.side, reset) {
            (Side::Server(_), _) => {
                self.counters.requests_refused += 1;
                transport.reset(stream, Code::REQUEST_INCOMPLETE.0);
            }
            (Side::Client, None) => {
                self.on_failed(
                    transport,
                    "the server closed the request without a response".to_owned(),
                );
            }
            (Side::Client, Some(code)) => {
                self.on_failed(transport, format!("the server reset the request: {code}"));
            }
        }
    }

    fn set_session(&mut self, transport: &mut dyn Transport, stream: StreamId) {
        self.session = Some(stream);
        self.prefixes = Prefixes::new(stream);
        // The end of the session has priority over all other data.
        transport.set_priority(stream, i32::MAX);
    }

    fn establish(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        content: MessageReader,
        protocol: Option<String>,
    ) -> Result<(), Violation> {
        self.state = State::Established;
        self.deadline = None;
        self.protocol = protocol;
        self.counters.sessions += 1;
        let session = Box::new((content, CapsuleReader::default()));
        self.own.insert(stream, Own::Session(session));
        self.events.push_back(Event::Established);
        self.release_early(transport);
        // Data may have come with the header, and while the stream was not read.
        self.on_content(transport, stream)?;
        self.read_own(transport, stream)
    }

    fn refuse(&mut self, transport: &mut dyn Transport, stream: StreamId, status: u16) {
        self.counters.requests_refused += 1;
        self.own.insert(stream, Own::Answered);
        self.write_own(transport, stream, request::encode_refusal(status), true);
    }
}

/// The settings of all generations; each peer uses its own.
fn our_settings(side: &Side) -> Settings {
    let mut entries = vec![
        (setting::MAX_FIELD_SECTION_SIZE, HEAD_BYTES_MAX as u64),
        (setting::H3_DATAGRAM, 1),
        (setting::H3_DATAGRAM_DRAFT04, 1),
        (setting::ENABLE_WEBTRANSPORT, 1),
        (setting::WEBTRANSPORT_MAX_SESSIONS, 1),
        (setting::WT_MAX_SESSIONS, 1),
        (setting::WT_ENABLED, 1),
    ];
    if matches!(side, Side::Server(_)) {
        entries.push((setting::ENABLE_CONNECT_PROTOCOL, 1));
    }
    Settings::new(&entries)
}

/// Returns the `:protocol` token for a server with these settings; `None` if the server has no WebTransport.
fn token(settings: &Settings) -> Option<&'static str> {
    let older = [
        setting::ENABLE_WEBTRANSPORT,
        setting::WEBTRANSPORT_MAX_SESSIONS,
        setting::WT_MAX_SESSIONS,
    ];
    if older.iter().any(|identifier| settings.has(*identifier)) {
        Some(TOKEN)
    } else {
        settings.has(setting::WT_ENABLED).then_some(TOKEN_DRAFT15)
    }
}
