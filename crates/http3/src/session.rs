//! The streams of an HTTP/3 connection beside its requests: control streams with SETTINGS and GOAWAY, and the streams
//! of field compression, whose dynamic table has no bytes (RFC 9114 §6.2, RFC 9204 §4.2).

use bytes::Bytes;
use weir_h3::{
    Code, Violation,
    control::Control,
    frame::{self, frame_type},
    peer_streams::{CLOSED_CRITICAL_STREAM, PeerStream, PeerStreams, Side},
    settings::{Settings, setting},
    stream_type, varint,
};
use weir_transport::{Direction, Read, StreamId, Transport, WriteError};

use crate::{Limits, limits::READ_BYTES_AT_ONCE};

/// The part of an HTTP/3 connection that both sides share. After an error, the connection must be closed with the code
/// of the [`Violation`].
///
/// The number of a stream says whether it is unidirectional, in its second bit (RFC 9000 §2.1).
#[derive(Debug)]
pub struct Session {
    side: Side,
    limits: Limits,
    /// This side's streams, control first, as far as the peer has allowed them.
    own: Vec<StreamId>,
    /// Data that those streams have not accepted.
    unsent: Vec<(StreamId, Bytes)>,
    /// The peer's unidirectional streams.
    streams: Vec<(StreamId, Uni)>,
    peer_streams: PeerStreams,
    control: PeerControl,
    sent_goaway: bool,
}

/// Frames and settings that the peer has sent on its control stream.
#[derive(Debug)]
struct PeerControl {
    side: Side,
    settings: Option<Settings>,
    goaway: Option<u64>,
    push_max: Option<u64>,
}

/// One of the peer's unidirectional streams.
#[derive(Debug)]
enum Uni {
    /// Its type is not known. Holds its first bytes.
    Fresh(Bytes),
    Known(PeerStream),
}

impl Session {
    /// Returns a session that has sent and received nothing.
    pub fn new(side: Side, limits: Limits) -> Self {
        Self {
            side,
            limits,
            own: Vec::new(),
            unsent: Vec::new(),
            streams: Vec::new(),
            peer_streams: PeerStreams::new(side),
            control: PeerControl {
                side,
                settings: None,
                goaway: None,
                push_max: None,
            },
            sent_goaway: false,
        }
    }

    /// Opens this side's streams as far as the peer allows. Call it again when the peer allows more.
    pub fn start(&mut self, transport: &mut dyn Transport) {
        while let Some(&kind) = OWN.get(self.own.len()) {
            let Some(stream) = transport.open(Direction::Uni) else {
                return;
            };
            self.own.push(stream);
            let mut data = Vec::with_capacity(16);
            varint::encode(kind, &mut data);
            if kind == stream_type::CONTROL {
                transport.set_priority(stream, i32::MAX);
                our_settings(&self.limits).encode(&mut data);
            }
            self.write(transport, stream, data.into());
        }
    }

    /// Returns the peer's settings, once they have arrived.
    pub fn settings(&self) -> Option<&Settings> {
        self.control.settings.as_ref()
    }

    /// Returns the stream from which on the server rejects requests, after GOAWAY. From a client it is a push ID.
    pub fn goaway(&self) -> Option<u64> {
        self.control.goaway
    }

    /// Sends GOAWAY, once: this side rejects everything from `number` on, which on a server is a request stream.
    pub fn go_away(&mut self, transport: &mut dyn Transport, number: u64) {
        let Some(&control) = self.own.first() else {
            return;
        };
        if std::mem::replace(&mut self.sent_goaway, true) {
            return;
        }
        let mut payload = Vec::with_capacity(8);
        varint::encode(number, &mut payload);
        let mut data = Vec::with_capacity(16);
        frame::encode_head(frame_type::GOAWAY, payload.len(), &mut data);
        data.extend_from_slice(&payload);
        self.write(transport, control, data.into());
    }

    /// Handles a stream that the peer opened.
    pub fn handle_opened(
        &mut self,
        stream: StreamId,
        direction: Direction,
    ) -> Result<(), Violation> {
        match (direction, self.side) {
            (Direction::Bi, Side::Server) => Ok(()),
            (Direction::Bi, Side::Client) => Err(Violation::new(
                Code::STREAM_CREATION_ERROR,
                "a server opened a bidirectional stream",
            )),
            (Direction::Uni, _) => {
                let fresh = |(_, uni): &&(_, Uni)| matches!(uni, Uni::Fresh(_));
                if self.streams.iter().filter(fresh).count() >= self.limits.fresh_streams_max {
                    let reason = "too many streams that do not say what they are";
                    return Err(Violation::new(Code::EXCESSIVE_LOAD, reason));
                }
                self.streams.push((stream, Uni::Fresh(Bytes::new())));
                Ok(())
            }
        }
    }

    /// Reads a readable stream and returns true, unless it is a request's.
    #[inline]
    pub fn handle_readable(
        &mut self,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) -> Result<bool, Violation> {
        if !is_uni(stream) {
            return Ok(false);
        }
        self.read(transport, stream)?;
        Ok(true)
    }

    /// Writes queued data to a stream that is writable again and returns true, unless it is a request's.
    pub fn handle_writable(&mut self, transport: &mut dyn Transport, stream: StreamId) -> bool {
        if !is_uni(stream) {
            return false;
        }
        let (mine, others) = std::mem::take(&mut self.unsent)
            .into_iter()
            .partition(|(of, _)| *of == stream);
        self.unsent = others;
        for (stream, data) in mine {
            self.write(transport, stream, data);
        }
        true
    }

    /// Handles the peer's `STOP_SENDING`. Returns true unless the stream is a request's.
    pub fn handle_stopped(&mut self, stream: StreamId) -> Result<bool, Violation> {
        if self.own.contains(&stream) {
            return Err(CLOSED_CRITICAL_STREAM);
        }
        Ok(is_uni(stream))
    }

    /// Writes to a stream of this side, after queued data.
    fn write(&mut self, transport: &mut dyn Transport, stream: StreamId, mut data: Bytes) {
        let waits = self.unsent.iter().any(|(of, _)| *of == stream);
        if waits || transport.write(stream, &mut data) == Err(WriteError::Blocked) {
            self.unsent.push((stream, data));
        }
    }

    /// Reads what is available of a stream. What comes after some thousand bytes is left for later.
    fn read(&mut self, transport: &mut dyn Transport, stream: StreamId) -> Result<(), Violation> {
        let mut bytes = 0;
        while let Some(index) = self.streams.iter().position(|(of, _)| *of == stream) {
            if bytes >= READ_BYTES_AT_ONCE {
                transport.read_later(stream);
                return Ok(());
            }
            match transport.read(stream) {
                Read::Blocked => return Ok(()),
                Read::Data(data) => {
                    bytes += data.len();
                    self.on_data(transport, index, data)?;
                }
                Read::Fin | Read::Reset(_) => {
                    // A stream may end before its type is known (RFC 9114 §6.2).
                    return match self.streams.swap_remove(index).1 {
                        Uni::Fresh(_) => Ok(()),
                        Uni::Known(_) => Err(CLOSED_CRITICAL_STREAM),
                    };
                }
            }
        }
        Ok(())
    }

    fn on_data(
        &mut self,
        transport: &mut dyn Transport,
        index: usize,
        data: Bytes,
    ) -> Result<(), Violation> {
        match &mut self.streams[index].1 {
            Uni::Fresh(head) => {
                let first = if head.is_empty() {
                    data
                } else {
                    [&head[..], &data].concat().into()
                };
                if let Some((kind, length)) = varint::decode(&first) {
                    return self.on_kind(transport, index, kind, first.slice(length..));
                }
                *head = first;
                Ok(())
            }
            Uni::Known(stream) => stream.push(data, |control| self.control.handle(control)),
        }
    }

    /// Handles the type of a stream.
    fn on_kind(
        &mut self,
        transport: &mut dyn Transport,
        index: usize,
        kind: u64,
        rest: Bytes,
    ) -> Result<(), Violation> {
        let Some(known) = self.peer_streams.open(kind)? else {
            let (stream, _) = self.streams.swap_remove(index);
            transport.stop(stream, Code::STREAM_CREATION_ERROR.0);
            return Ok(());
        };
        self.streams[index].1 = Uni::Known(known);
        if rest.is_empty() {
            return Ok(());
        }
        self.on_data(transport, index, rest)
    }
}

impl PeerControl {
    fn handle(&mut self, control: Control) -> Result<(), Violation> {
        match control {
            Control::Settings(settings) => self.settings = Some(settings),
            Control::GoAway(number) => {
                let is_request = number.is_multiple_of(4);
                if self.side == Side::Client && !is_request {
                    let reason = "GOAWAY names a stream that is no request's";
                    return Err(Violation::new(Code::ID_ERROR, reason));
                }
                if self.goaway.is_some_and(|before| before < number) {
                    let reason = "GOAWAY takes back an earlier one";
                    return Err(Violation::new(Code::ID_ERROR, reason));
                }
                self.goaway = Some(number);
            }
            Control::MaxPushId(number) => {
                if self.push_max.is_some_and(|before| before > number) {
                    let reason = "MAX_PUSH_ID takes back an earlier one";
                    return Err(Violation::new(Code::ID_ERROR, reason));
                }
                self.push_max = Some(number);
            }
            Control::CancelPush(_) => {
                let reason = "CANCEL_PUSH names a push that there is not";
                return Err(Violation::new(Code::ID_ERROR, reason));
            }
        }
        Ok(())
    }
}

fn is_uni(stream: StreamId) -> bool {
    stream.0 & 0b10 != 0
}

/// Returns this side's settings. The dynamic table has no bytes by default (RFC 9204 §5).
fn our_settings(limits: &Limits) -> Settings {
    let bytes_max = limits.field_section_bytes_max as u64;
    Settings::new(&[(setting::MAX_FIELD_SECTION_SIZE, bytes_max)])
}

/// The streams that each side opens.
const OWN: [u64; 3] = [
    stream_type::CONTROL,
    stream_type::ENCODER,
    stream_type::DECODER,
];

#[cfg(test)]
mod tests;
