//! A connection to a neighbour: another endpoint of this process, on a thread of its own.
//!
//! It has streams and datagrams as one over the network has, so a role that speaks to peers speaks to the
//! neighbour in the same way. It has no packets, no loss and no encryption: what is written becomes
//! [`Letter`]s, which the host carries over in their order. What is in flight is limited by windows that the
//! reader opens again; since it opens them lazily, a one-way flow wakes the sender rarely.

mod streams;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use quinn_proto::EcnCodepoint;
use weir_transport::{Direction, Read, StreamId, WriteError};

use self::streams::Streams;
use crate::{Event, Handle, Lost};

/// What one endpoint tells a neighbour. Letters have to arrive in the order in which they were taken, and
/// none may be lost.
#[derive(Debug)]
pub struct Letter(pub(crate) Content);

/// What a letter says.
#[derive(Debug)]
pub(crate) enum Content {
    /// The next bytes of a stream.
    Data { stream: u64, data: Bytes },
    /// The end of a stream.
    Fin { stream: u64 },
    /// The end of a stream at once.
    Reset { stream: u64, code: u64 },
    /// A stream is no longer wanted.
    Stop { stream: u64, code: u64 },
    /// What was taken of a stream since the last such letter, and whether its end was.
    Taken {
        stream: u64,
        charge: usize,
        is_done: bool,
    },
    /// A datagram.
    Datagram(Bytes),
    /// What was taken of datagrams since the last such letter.
    DatagramsTaken { charge: usize },
    /// The connection is over.
    Close { code: u64, reason: Bytes },
    /// A packet from the network that is the neighbour's.
    Packet(Box<Stray>),
}

/// A packet that came to the wrong endpoint.
#[derive(Debug)]
pub(crate) struct Stray {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: Option<EcnCodepoint>,
    pub(crate) data: BytesMut,
}

/// Limits of a connection to a neighbour, in each direction. A letter is charged its bytes and
/// [`LETTER_CHARGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "limits are named so")]
pub(crate) struct CrossingLimits {
    /// In flight on all streams.
    pub(crate) bytes_max: usize,
    /// In flight on one stream.
    pub(crate) stream_bytes_max: usize,
    /// In flight in datagrams; newer ones are dropped.
    pub(crate) datagram_bytes_max: usize,
    /// Streams open at once, of each direction.
    pub(crate) streams_max: usize,
    /// Packets of the neighbour's that wait to be passed on; newer ones are dropped.
    pub(crate) strays_max: usize,
}

impl Default for CrossingLimits {
    fn default() -> Self {
        Self {
            bytes_max: 32 << 20,
            stream_bytes_max: 4 << 20,
            datagram_bytes_max: 8 << 20,
            streams_max: 1 << 18,
            strays_max: 4096,
        }
    }
}

/// One end of a connection to a neighbour.
#[derive(Debug)]
pub(crate) struct Crossing {
    handle: Handle,
    neighbour: u16,
    limits: CrossingLimits,
    state: State,
    streams: Streams,
    /// Charge of datagrams sent and not yet known to be taken.
    datagrams_in_flight: usize,
    /// Charge of datagrams taken and not yet reported.
    datagrams_taken: usize,
    letters: Vec<Letter>,
    /// Strays among `letters`, or more if some have been taken since.
    strays: usize,
    pub(crate) datagrams_dropped: u64,
    pub(crate) strays_dropped: u64,
    pub(crate) strays_passed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Closed here; the neighbour has not said so yet.
    Closing,
    /// Closed on both sides, until the pause is over.
    Resting(Instant),
}

impl Crossing {
    /// The end at endpoint number `own` of the connection to number `neighbour`.
    pub(crate) fn new(own: u16, neighbour: u16, index: u32, limits: CrossingLimits) -> Self {
        Self {
            handle: Handle {
                index,
                generation: 0,
            },
            neighbour,
            limits,
            state: State::Open,
            streams: Streams::new(own > neighbour, limits),
            datagrams_in_flight: 0,
            datagrams_taken: 0,
            letters: Vec::new(),
            strays: 0,
            datagrams_dropped: 0,
            strays_dropped: 0,
            strays_passed: 0,
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn neighbour(&self) -> u16 {
        self.neighbour
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// When it opens again.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Resting(until) => Some(until),
            State::Open | State::Closing => None,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, events: &mut VecDeque<Event>) {
        if self.poll_timeout().is_some_and(|until| until <= now) {
            self.open_again(events);
        }
    }

    /// Sends a datagram, or drops it if too much is in flight.
    pub(crate) fn send_datagram(&mut self, data: Bytes) {
        let charge = data.len() + LETTER_CHARGE;
        if self.datagrams_in_flight + charge > self.limits.datagram_bytes_max {
            self.datagrams_dropped += 1;
            return;
        }
        self.datagrams_in_flight += charge;
        self.letters.push(Letter(Content::Datagram(data)));
    }

    /// Opens a stream, unless too many are open.
    pub(crate) fn open(&mut self, direction: Direction) -> Option<StreamId> {
        self.is_open().then(|| self.streams.open(direction))?
    }

    /// Takes the next bytes off a stream, or its end.
    pub(crate) fn read(&mut self, stream: StreamId, events: &mut VecDeque<Event>) -> Read {
        self.streams.read(self.handle, stream.0, events)
    }

    /// Takes what fits in flight off the front of `data`.
    pub(crate) fn write(&mut self, stream: StreamId, data: &mut Bytes) -> Result<(), WriteError> {
        self.streams.write(stream.0, data, &mut self.letters)
    }

    /// Ends a stream after what was written.
    pub(crate) fn finish(&mut self, stream: StreamId) {
        let stream = stream.0;
        if self.streams.end(stream) {
            self.letters.push(Letter(Content::Fin { stream }));
        }
    }

    /// Ends a stream at once.
    pub(crate) fn reset(&mut self, stream: StreamId, code: u64) {
        let stream = stream.0;
        if self.streams.end(stream) {
            self.letters.push(Letter(Content::Reset { stream, code }));
        }
    }

    /// Discards what comes on a stream.
    pub(crate) fn stop(&mut self, stream: StreamId, code: u64, events: &mut VecDeque<Event>) {
        let stream = stream.0;
        if self.streams.stop(self.handle, stream, events) {
            self.letters.push(Letter(Content::Stop { stream, code }));
        }
    }

    /// Passes on a packet that is the neighbour's.
    pub(crate) fn pass_on(&mut self, stray: Stray) {
        if self.letters.is_empty() {
            self.strays = 0;
        }
        if self.strays >= self.limits.strays_max {
            self.strays_dropped += 1;
            return;
        }
        self.strays += 1;
        self.strays_passed += 1;
        self.letters.push(Letter(Content::Packet(Box::new(stray))));
    }

    /// Letters for the neighbour, oldest first. The host takes them off the front.
    pub(crate) fn letters(&mut self) -> &mut Vec<Letter> {
        let is_due = !self.letters.is_empty()
            || self.streams.must_report()
            || self.datagrams_taken >= self.limits.datagram_bytes_max / 4;
        if is_due && self.is_open() {
            self.streams.report(&mut self.letters);
            if self.datagrams_taken > 0 {
                let charge = std::mem::take(&mut self.datagrams_taken);
                self.letters
                    .push(Letter(Content::DatagramsTaken { charge }));
            }
        }
        &mut self.letters
    }

    /// Closes the connection. It opens again after a pause.
    pub(crate) fn close(&mut self, code: u64, reason: &[u8]) {
        if self.is_open() {
            self.state = State::Closing;
            self.say_closed(code, Bytes::copy_from_slice(reason));
        }
    }

    /// The neighbour says something that is not a packet from the network.
    pub(crate) fn handle_letter(
        &mut self,
        now: Instant,
        content: Content,
        events: &mut VecDeque<Event>,
    ) {
        if let Content::Close { code, reason } = content {
            return self.on_close(now, code, &reason, events);
        }
        match self.state {
            // Written before the neighbour knew.
            State::Closing => return,
            // The neighbour's pause is over already.
            State::Resting(_) => self.open_again(events),
            State::Open => {}
        }
        let handle = self.handle;
        match content {
            Content::Datagram(data) => {
                self.datagrams_taken += data.len() + LETTER_CHARGE;
                events.push_back(Event::Datagram { handle, data });
            }
            Content::DatagramsTaken { charge } => {
                self.datagrams_in_flight = self.datagrams_in_flight.saturating_sub(charge);
            }
            Content::Data { stream, data } => self.streams.on_data(handle, stream, data, events),
            Content::Fin { stream } => self.streams.on_end(handle, stream, None, events),
            Content::Reset { stream, code } => {
                self.streams.on_end(handle, stream, Some(code), events);
            }
            Content::Stop { stream, code } => {
                let letters = &mut self.letters;
                self.streams.on_stop(handle, stream, code, letters, events);
            }
            Content::Taken {
                stream,
                charge,
                is_done,
            } => self
                .streams
                .on_taken(handle, stream, charge, is_done, events),
            Content::Close { .. } | Content::Packet(_) => {}
        }
    }

    fn on_close(&mut self, now: Instant, code: u64, reason: &[u8], events: &mut VecDeque<Event>) {
        match self.state {
            State::Open => {
                self.say_closed(code, Bytes::new());
                events.push_back(Event::Lost {
                    handle: self.handle,
                    reason: Lost::Application {
                        code,
                        reason: String::from_utf8_lossy(reason).into_owned(),
                    },
                });
            }
            State::Closing => {}
            State::Resting(_) => return,
        }
        self.state = State::Resting(now + PAUSE);
    }

    fn say_closed(&mut self, code: u64, reason: Bytes) {
        self.letters.push(Letter(Content::Close { code, reason }));
        self.streams.clear();
        self.datagrams_in_flight = 0;
        self.datagrams_taken = 0;
    }

    fn open_again(&mut self, events: &mut VecDeque<Event>) {
        self.state = State::Open;
        self.handle.generation = self.handle.generation.wrapping_add(1);
        let handle = self.handle;
        events.push_back(Event::Connected { handle });
    }
}

/// What a letter costs beside its bytes.
pub(crate) const LETTER_CHARGE: usize = 64;
/// How long a connection to a neighbour stays closed.
const PAUSE: Duration = Duration::from_millis(100);
