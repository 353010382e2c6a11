//! Conversion of the engine's events to this crate's.

use std::{collections::VecDeque, sync::Arc};

use quinn_proto::{ConnectionError, Dir, StreamEvent};

use super::Endpoint;
use crate::{
    Event, Handle, Lost,
    config::PACKET_BYTES_MAX,
    connection::{application_protocol, direction, from_engine},
    slots::{Hot, Slot, State},
    tls::refusal::Refusals,
    web_transport::WebTransport,
};

impl Endpoint {
    /// Collects events of one connection, up to a limit: those of a stream of which the role has left data come alone, and
    /// first. Returns whether there may be more.
    pub(super) fn collect_events(&mut self, index: u32) -> bool {
        let handle = self.slots.handle(index);
        let slot = self.slots.at(index);
        if let Some(stream) = slot.and_then(|slot| slot.unread.pop_front()) {
            self.events.push_back(Event::Readable { handle, stream });
            return true;
        }
        self.convert_events(index)
    }

    /// Converts events of the engine, up to a limit. Returns whether there may be more.
    fn convert_events(&mut self, index: u32) -> bool {
        let handle = self.slots.handle(index);
        let (Some(now), Some((hot, slot))) = (self.now, self.slots.both(index)) else {
            return false;
        };
        if slot.web_transport.is_some() {
            return self.collect_layer_events(index);
        }
        let mut left = EVENTS_AT_ONCE;
        let dropped = go_on(handle, hot, slot, &mut left, &mut self.events);
        self.counters.datagrams_dropped_unread += dropped;
        // A packet may hold a hundred frames that raise the limit of streams: the role hears of the last.
        let mut available = [false; 2];
        while left > 0
            && let Some(event) = slot.engine.poll()
        {
            left -= 1;
            if slot.state == State::Closed {
                continue;
            }
            match event {
                quinn_proto::Event::Stream(StreamEvent::Available { dir }) => {
                    available[dir as usize] = true;
                }
                quinn_proto::Event::HandshakeDataReady => {
                    // The first event of all determines whether the layer handles the connection.
                    if let Some(offer) = &self.offer
                        && slot.engine.side().is_server()
                        && application_protocol(&slot.engine).as_deref() == Some(weir_h3::ALPN)
                    {
                        let layer = WebTransport::server(Arc::clone(offer));
                        slot.web_transport = Some(Box::new(layer));
                        self.start_layer(index);
                        return self.collect_layer_events(index);
                    }
                }
                quinn_proto::Event::DatagramsUnblocked => {}
                quinn_proto::Event::Connected => {
                    slot.state = State::Established;
                    self.handshakes -= usize::from(slot.end_handshake(now));
                    self.events.push_back(Event::Connected { handle });
                }
                quinn_proto::Event::ConnectionLost { reason } => {
                    slot.lost = Some(Box::new(reason));
                }
                quinn_proto::Event::DatagramReceived => {
                    let bytes = take_datagrams(handle, hot, slot, &mut left, &mut self.events);
                    let is_near_limit =
                        bytes + 2 * PACKET_BYTES_MAX > self.limits.datagram_receive_bytes_max;
                    if is_near_limit && left > 0 {
                        self.counters.datagrams_dropped_unread += slot.note_unread();
                    }
                }
                quinn_proto::Event::Stream(StreamEvent::Opened { dir }) => {
                    accept(handle, hot, slot, dir, &mut left, &mut self.events);
                }
                quinn_proto::Event::Stream(event) => {
                    stream_event(handle, &event, &mut self.events);
                }
            }
        }
        for dir in [Dir::Bi, Dir::Uni]
            .into_iter()
            .filter(|&dir| available[dir as usize])
        {
            let available = StreamEvent::Available { dir };
            self.events.extend(in_our_words(handle, &available));
        }
        left == 0 || self.tell_of_loss(handle, left, Lost::from_engine)
    }

    /// Tells the role why the engine ended a connection, if it did. The role can read what came before the end until then, so
    /// this waits until there are no other events: `left` is [`EVENTS_AT_ONCE`]. Returns whether it waits.
    pub(super) fn tell_of_loss(
        &mut self,
        handle: Handle,
        left: usize,
        in_our_words: fn(ConnectionError, Option<&Refusals>) -> Option<Lost>,
    ) -> bool {
        let Some(slot) = self.slots.at(handle.index) else {
            return false;
        };
        if left < EVENTS_AT_ONCE {
            return slot.lost.is_some();
        }
        let Some(reason) = slot.lost.take() else {
            return false;
        };
        // It counts as a handshake until the engine has forgotten it, so that the limits hold for what is in memory.
        let was_handshake = slot.handshaking.is_some();
        self.counters.note_loss(was_handshake, &reason);
        let was_open = std::mem::replace(&mut slot.state, State::Closed) != State::Closed;
        if was_open && let Some(reason) = in_our_words(*reason, slot.refusals.as_deref()) {
            self.events.push_back(Event::Lost { handle, reason });
        }
        false
    }
}

/// Takes streams and datagrams that the last turn left, until `left` is 0. Returns the number of datagrams that were dropped
/// since.
fn go_on(
    handle: Handle,
    hot: &mut Hot,
    slot: &mut Slot,
    left: &mut usize,
    events: &mut VecDeque<Event>,
) -> u64 {
    if slot.state == State::Closed {
        return 0;
    }
    if std::mem::take(&mut hot.has_untold_streams) {
        for dir in [Dir::Bi, Dir::Uni] {
            accept(handle, hot, slot, dir, left, events);
        }
    }
    if std::mem::take(&mut hot.has_untold_datagrams) {
        take_datagrams(handle, hot, slot, left, events);
        if *left > 0 {
            return slot.note_unread();
        }
    }
    0
}

/// Accepts streams of the peer until `left` is 0.
fn accept(
    handle: Handle,
    hot: &mut Hot,
    slot: &mut Slot,
    dir: Dir,
    left: &mut usize,
    events: &mut VecDeque<Event>,
) {
    while *left > 0
        && let Some(id) = slot.engine.streams().accept(dir)
    {
        *left -= 1;
        let (stream, direction) = (from_engine(id), direction(dir));
        events.push_back(Event::Opened {
            handle,
            stream,
            direction,
        });
        events.push_back(Event::Readable { handle, stream });
    }
    hot.has_untold_streams |= *left == 0;
}

/// Takes received datagrams until `left` is 0. Returns the bytes that they took in the engine.
fn take_datagrams(
    handle: Handle,
    hot: &mut Hot,
    slot: &mut Slot,
    left: &mut usize,
    events: &mut VecDeque<Event>,
) -> usize {
    let mut bytes = 0;
    while *left > 0
        && let Some(data) = slot.engine.datagrams().recv()
    {
        *left -= 1;
        bytes += data.len() + DATAGRAM_OVERHEAD_BYTES;
        hot.note_read(data.len());
        slot.datagrams_received += 1;
        events.push_back(Event::Datagram { handle, data });
    }
    hot.has_untold_datagrams = *left == 0;
    bytes
}

fn stream_event(handle: Handle, event: &StreamEvent, events: &mut VecDeque<Event>) {
    match *event {
        StreamEvent::Readable { id } => {
            let stream = from_engine(id);
            // The engine reports the stream for every packet. One event for several packets is enough, since the role
            // reads all of their data.
            let is_known = matches!(
                events.back(),
                Some(Event::Readable { handle: of, stream: last }) if (*of, *last) == (handle, stream)
            );
            if !is_known {
                events.push_back(Event::Readable { handle, stream });
            }
        }
        StreamEvent::Opened { .. }
        | StreamEvent::Writable { .. }
        | StreamEvent::Finished { .. }
        | StreamEvent::Stopped { .. }
        | StreamEvent::Available { .. } => events.extend(in_our_words(handle, event)),
    }
}

/// Converts an event of a stream. New streams are not in the event: they have to be asked for.
pub(super) fn in_our_words(handle: Handle, event: &StreamEvent) -> Option<Event> {
    Some(match *event {
        StreamEvent::Opened { .. } => return None,
        StreamEvent::Readable { id } => Event::Readable {
            handle,
            stream: from_engine(id),
        },
        StreamEvent::Writable { id } => Event::Writable {
            handle,
            stream: from_engine(id),
        },
        StreamEvent::Finished { id } => Event::Finished {
            handle,
            stream: from_engine(id),
        },
        StreamEvent::Stopped { id, error_code } => Event::Stopped {
            handle,
            stream: from_engine(id),
            code: error_code.into_inner(),
        },
        StreamEvent::Available { dir } => Event::StreamsAvailable {
            handle,
            direction: direction(dir),
        },
    })
}

/// Most events of a connection that are handled before others have their turn. Of a hostile session's requests, each may cost tens of
/// microseconds.
pub(super) const EVENTS_AT_ONCE: usize = 8;
/// The smallest overhead of a datagram in the engine's accounting.
pub(super) const DATAGRAM_OVERHEAD_BYTES: usize = size_of::<bytes::Bytes>();
