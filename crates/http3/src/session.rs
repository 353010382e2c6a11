//! What a connection of HTTP/3 has besides its requests: control streams, settings, GOAWAY, and the streams of
//! a field compression whose dynamic table has no bytes (RFC 9114 §6.2, RFC 9204 §4.2).

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

use crate::Limits;

/// The part of an HTTP/3 connection that is the same on both sides. Whose error a method returns has broken a rule:
/// the connection is to be closed with the code of the [`Violation`].
///
/// It looks at the number of a stream: the second bit says that it is unidirectional (RFC 9000 §2.1).
#[derive(Debug)]
pub struct Session {
    side: Side,
    limits: Limits,
    /// Our own streams, control first, as far as the peer has let us open them.
    own: Vec<StreamId>,
    /// What they did not take yet.
    unsent: Vec<(StreamId, Bytes)>,
    /// The peer's unidirectional streams.
    streams: Vec<(StreamId, Uni)>,
    peer_streams: PeerStreams,
    control: PeerControl,
    sent_goaway: bool,
}

/// What the peer has said on its control stream.
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
    /// What it is for is not known; with the first bytes that came.
    Fresh(Bytes),
    Known(PeerStream),
}

impl Session {
    /// A session that has neither sent nor heard anything.
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

    /// Opens our streams, as far as the peer lets us; to be called again when it lets us open more.
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

    /// The peer's settings, when they have come.
    pub fn settings(&self) -> Option<&Settings> {
        self.control.settings.as_ref()
    }

    /// From which stream on the server takes no more requests, if it has said so. (From a client: the push.)
    pub fn goaway(&self) -> Option<u64> {
        self.control.goaway
    }

    /// Says that we take no more from `number` on: on a server the number of a request's stream. Once.
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

    /// The peer opened a stream.
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

    /// A stream is readable. Reads it and returns true, if it is not a request's.
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

    /// A stream takes data again. Writes what is left to it and returns true, if it is not a request's.
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

    /// The peer wants no more of a stream. Returns true, if it is not a request's.
    pub fn handle_stopped(&mut self, stream: StreamId) -> Result<bool, Violation> {
        if self.own.contains(&stream) {
            return Err(CLOSED_CRITICAL_STREAM);
        }
        Ok(is_uni(stream))
    }

    /// Writes to a stream of ours, behind what it has not taken yet.
    fn write(&mut self, transport: &mut dyn Transport, stream: StreamId, mut data: Bytes) {
        let waits = self.unsent.iter().any(|(of, _)| *of == stream);
        if waits || transport.write(stream, &mut data) == Err(WriteError::Blocked) {
            self.unsent.push((stream, data));
        }
    }

    fn read(&mut self, transport: &mut dyn Transport, stream: StreamId) -> Result<(), Violation> {
        while let Some(index) = self.streams.iter().position(|(of, _)| *of == stream) {
            match transport.read(stream) {
                Read::Blocked => return Ok(()),
                Read::Data(data) => self.on_data(transport, index, data)?,
                Read::Fin | Read::Reset(_) => {
                    // One may end before it says what it is (RFC 9114 §6.2).
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

    /// A stream says what it is for.
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

/// The dynamic table has no bytes unless said otherwise (RFC 9204 §5).
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
