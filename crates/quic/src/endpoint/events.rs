//! Conversion of the engine's events to this crate's.

use std::{collections::VecDeque, sync::Arc};

use quinn_proto::{Dir, StreamEvent};

use super::Endpoint;
use crate::{
    Event, Handle, Lost,
    config::PACKET_BYTES_MAX,
    connection::{application_protocol, direction, from_engine},
    slots::State,
    web_transport::WebTransport,
};

impl Endpoint {
    /// Converts the engine's events of one connection.
    pub(super) fn collect_events(&mut self, index: u32) {
        let handle = self.slots.handle(index);
        let Some((hot, slot)) = self.slots.both(index) else {
            return;
        };
        if slot.web_transport.is_some() {
            return self.collect_layer_events(index);
        }
        // A packet may hold a hundred frames that raise the limit of streams: the role hears of the last.
        let mut available = [false; 2];
        while let Some(event) = slot.engine.poll() {
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
                    self.handshakes -= usize::from(slot.handshaking.take().is_some());
                    self.events.push_back(Event::Connected { handle });
                }
                quinn_proto::Event::ConnectionLost { reason } => {
                    slot.state = State::Closed;
                    let was_handshake = slot.handshaking.take().is_some();
                    self.handshakes -= usize::from(was_handshake);
                    self.counters.note_loss(was_handshake, &reason);
                    if let Some(reason) = Lost::from_engine(reason, slot.refusals.as_deref()) {
                        self.events.push_back(Event::Lost { handle, reason });
                    }
                }
                quinn_proto::Event::DatagramReceived => {
                    let mut bytes = 0;
                    while let Some(data) = slot.engine.datagrams().recv() {
                        bytes += data.len() + DATAGRAM_OVERHEAD_BYTES;
                        hot.note_read(data.len());
                        slot.datagrams_received += 1;
                        self.events.push_back(Event::Datagram { handle, data });
                    }
                    if bytes + 2 * PACKET_BYTES_MAX > self.limits.datagram_receive_bytes_max {
                        self.counters.datagrams_dropped_unread += slot.note_unread();
                    }
                }
                quinn_proto::Event::Stream(event) => {
                    stream_event(handle, &mut slot.engine, &event, &mut self.events);
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
    }
}

fn stream_event(
    handle: Handle,
    engine: &mut quinn_proto::Connection,
    event: &StreamEvent,
    events: &mut VecDeque<Event>,
) {
    match *event {
        StreamEvent::Opened { dir } => {
            while let Some(id) = engine.streams().accept(dir) {
                let (stream, direction) = (from_engine(id), direction(dir));
                events.push_back(Event::Opened {
                    handle,
                    stream,
                    direction,
                });
                events.push_back(Event::Readable { handle, stream });
            }
        }
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
        StreamEvent::Writable { .. }
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

/// The smallest overhead of a datagram in the engine's accounting.
pub(super) const DATAGRAM_OVERHEAD_BYTES: usize = size_of::<bytes::Bytes>();
