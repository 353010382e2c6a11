//! The peer's streams before their purpose is known, and the streams that the layer keeps.

use bytes::Bytes;
use weir_transport::{Direction, Read, StreamId, Transport};

use super::{
    EARLY_STREAMS_MAX, Event, HEAD_BYTES_MAX, REQUESTS_MAX, Side, State, WebTransport,
    capsule::{CapsuleReader, Close},
    codes,
};
use weir_h3::{
    Code, Violation,
    control::Control,
    head::RequestHead,
    message::{MessageReader, Piece},
    peer_streams::{CLOSED_CRITICAL_STREAM, PeerStream},
    varint,
};

/// A stream that the role does not know.
#[derive(Debug)]
pub(super) enum Own {
    /// The own control stream.
    Control,
    /// A stream of the peer with unknown purpose, with its first bytes.
    Fresh(Direction, Bytes),
    /// A stream of a session that is not established. It is not read.
    Early,
    /// A control or QPACK stream of the peer.
    Critical(PeerStream),
    /// A request, or on the client the answer, until its header is complete.
    Head(Box<MessageReader>),
    /// A request for the session that waits for the peer's settings. It is not read.
    Held(Box<(MessageReader, RequestHead)>),
    /// The stream of the session, after its header.
    Session(Box<(MessageReader, CapsuleReader)>),
    /// A request that was answered. It is not read.
    Answered,
}

impl WebTransport {
    /// Reads a stream of the layer until no more data is available, or the stream is not to be read. What comes after some
    /// thousand bytes of all of them is left for later: they may be as many frames or capsules that mean nothing.
    pub(super) fn read_own(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) -> Result<(), Violation> {
        loop {
            match self.own.get(&stream) {
                None | Some(Own::Control | Own::Early | Own::Held(_) | Own::Answered) => {
                    return Ok(());
                }
                Some(Own::Fresh(..) | Own::Critical(_) | Own::Head(_) | Own::Session(_)) => {}
            }
            if self.own_bytes >= BYTES_AT_ONCE {
                if !self.left.contains(&stream) {
                    self.left.push_back(stream);
                }
                return Ok(());
            }
            match transport.read(stream) {
                Read::Blocked => return Ok(()),
                Read::Data(data) => {
                    let length = data.len();
                    self.on_data(transport, stream, data)?;
                    // The first bytes of a stream of the session are the role's.
                    if self.own.contains_key(&stream) {
                        self.own_bytes += length;
                    }
                }
                Read::Fin => return self.on_end(transport, stream, None),
                Read::Reset(code) => return self.on_end(transport, stream, Some(Code(code))),
            }
        }
    }

    fn on_data(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        data: Bytes,
    ) -> Result<(), Violation> {
        match self.own.get_mut(&stream) {
            Some(Own::Fresh(direction, head)) => {
                let direction = *direction;
                let first = if head.is_empty() {
                    data
                } else {
                    [&head[..], &data].concat().into()
                };
                self.on_first_bytes(transport, stream, direction, first)
            }
            Some(Own::Critical(stream)) => {
                let mut settings = None;
                stream.push(data, |control| {
                    // The other frames are about requests and pushes, which are not supported.
                    if let Control::Settings(found) = control {
                        settings = Some(found);
                    }
                    Ok(())
                })?;
                settings.map_or(Ok(()), |settings| self.on_settings(transport, settings))
            }
            Some(Own::Head(reader)) => {
                reader.push(data);
                self.on_head_bytes(transport, stream)
            }
            Some(Own::Session(session)) => {
                session.0.push(data);
                self.on_content(transport, stream)
            }
            Some(Own::Control | Own::Early | Own::Held(_) | Own::Answered) | None => Ok(()),
        }
    }

    /// Determines the purpose of a stream from its first bytes.
    fn on_first_bytes(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        direction: Direction,
        first: Bytes,
    ) -> Result<(), Violation> {
        let marker = match direction {
            Direction::Uni => codes::UNI_STREAM,
            Direction::Bi => codes::BIDI_STREAM,
        };
        let Some((kind, length)) = varint::decode(&first) else {
            self.own.insert(stream, Own::Fresh(direction, first));
            return Ok(());
        };
        if kind == marker {
            let Some((session, session_length)) = varint::decode(&first[length..]) else {
                self.own.insert(stream, Own::Fresh(direction, first));
                return Ok(());
            };
            self.own.remove(&stream);
            let rest = first.slice(length + session_length..);
            return self.on_session_stream(transport, stream, direction, session, rest);
        }
        match direction {
            Direction::Uni => self.on_uni_stream(transport, stream, kind, first.slice(length..)),
            Direction::Bi => self.on_request_stream(transport, stream, first),
        }
    }

    fn on_uni_stream(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        kind: u64,
        rest: Bytes,
    ) -> Result<(), Violation> {
        let Some(critical) = self.peer_streams.open(kind)? else {
            self.own.remove(&stream);
            transport.stop(stream, Code::STREAM_CREATION_ERROR.0);
            return Ok(());
        };
        self.own.insert(stream, Own::Critical(critical));
        if rest.is_empty() {
            return Ok(());
        }
        self.on_data(transport, stream, rest)
    }

    fn on_request_stream(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        first: Bytes,
    ) -> Result<(), Violation> {
        if matches!(self.side, Side::Client) {
            let reason = "the server opened a bidirectional stream outside of a session";
            return Err(Violation::new(Code::STREAM_CREATION_ERROR, reason));
        }
        let open = self.own.values();
        if open.filter(|own| matches!(own, Own::Head(_))).count() >= REQUESTS_MAX {
            self.counters.requests_refused += 1;
            self.discard(transport, stream, Direction::Bi, Code::REQUEST_REJECTED.0);
            return Ok(());
        }
        let mut reader = MessageReader::new(HEAD_BYTES_MAX);
        reader.push(first);
        self.own.insert(stream, Own::Head(Box::new(reader)));
        self.on_head_bytes(transport, stream)
    }

    /// Handles a stream that belongs to a session.
    fn on_session_stream(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        direction: Direction,
        session: u64,
        mut rest: Bytes,
    ) -> Result<(), Violation> {
        if !session.is_multiple_of(4) {
            let reason = "the session ID is not of a client's bidirectional stream";
            return Err(Violation::new(Code::ID_ERROR, reason));
        }
        let names_session = self.session.is_none_or(|known| known.0 == session);
        match self.state {
            State::Established if names_session => {
                self.events.push_back(Event::Opened(stream, direction));
            }
            State::Opening if names_session && self.early_streams.len() < EARLY_STREAMS_MAX => {
                self.own.insert(stream, Own::Early);
                self.early_streams.push((stream, direction, session));
                // It may wait for long, and does not hold the packets that it came in.
                rest = Bytes::copy_from_slice(&rest);
            }
            State::New | State::Opening | State::Established | State::Closing | State::Closed => {
                self.counters.streams_refused += 1;
                self.discard(transport, stream, direction, codes::STREAM_REJECTED);
                return Ok(());
            }
        }
        if !rest.is_empty() {
            self.unread.insert(stream, rest);
        }
        Ok(())
    }

    /// Passes on what came before the session was established.
    pub(super) fn release_early(&mut self, transport: &mut dyn Transport) {
        for (stream, direction, session) in std::mem::take(&mut self.early_streams) {
            self.own.remove(&stream);
            if self.session == Some(StreamId(session)) {
                self.events.push_back(Event::Opened(stream, direction));
            } else {
                self.unread.remove(&stream);
                self.counters.streams_refused += 1;
                self.discard(transport, stream, direction, codes::STREAM_REJECTED);
            }
        }
        let datagrams = std::mem::take(&mut self.early_datagrams);
        self.events
            .extend(datagrams.into_iter().map(Event::Datagram));
    }

    /// Stops a stream, and discards its data.
    pub(super) fn discard(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        direction: Direction,
        code: u64,
    ) {
        self.own.remove(&stream);
        if direction == Direction::Bi {
            transport.reset(stream, code);
        }
        transport.stop(stream, code);
    }

    /// Looks for the capsule that closes the session on its stream.
    pub(super) fn on_content(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) -> Result<(), Violation> {
        let Some(Own::Session(session)) = self.own.get_mut(&stream) else {
            return Ok(());
        };
        let (reader, capsules) = &mut **session;
        while let Some(piece) = reader.poll()? {
            if let Piece::Content(data) = piece
                && let Some(close) = capsules.push(data)?
            {
                self.on_closed(transport, &close);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Handles the end of a stream of the layer, by a FIN or a reset.
    fn on_end(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
        reset: Option<Code>,
    ) -> Result<(), Violation> {
        match self.own.remove(&stream) {
            Some(Own::Critical(_)) => Err(CLOSED_CRITICAL_STREAM),
            Some(Own::Fresh(Direction::Bi, _)) => {
                transport.reset(stream, Code::REQUEST_INCOMPLETE.0);
                Ok(())
            }
            Some(Own::Head(_)) => {
                self.on_head_cut(transport, stream, reset);
                Ok(())
            }
            Some(Own::Session(session)) => {
                if let Some(code) = reset {
                    self.on_failed(transport, format!("the peer reset the session: {code}"));
                    return Ok(());
                }
                session.0.check_end()?;
                // Equivalent to a close with code 0 and no reason.
                let (code, reason) = (0, Vec::new());
                self.on_closed(transport, &Close { code, reason });
                Ok(())
            }
            // A stream may end before its type is complete (RFC 9114 §6.2).
            Some(
                Own::Fresh(Direction::Uni, _)
                | Own::Control
                | Own::Early
                | Own::Held(_)
                | Own::Answered,
            )
            | None => Ok(()),
        }
    }
}

/// Bytes of the layer's streams that are read at once.
const BYTES_AT_ONCE: usize = 4 << 10;
