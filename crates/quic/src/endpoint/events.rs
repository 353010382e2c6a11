//! What the engine has to say about its connections, in our words.

use std::{collections::VecDeque, sync::Arc};

use quinn_proto::StreamEvent;

use super::Endpoint;
use crate::{
    Event, Handle, Lost,
    config::PACKET_BYTES_MAX,
    connection::{application_protocol, direction, from_engine},
    h3,
    slots::State,
    web_transport::WebTransport,
};

impl Endpoint {
    /// Turns the engine's events of one connection into ours.
    pub(super) fn collect_events(&mut self, index: u32) {
        let handle = self.slots.handle(index);
        let Some(slot) = self.slots.at(index) else {
            return;
        };
        if slot.web_transport.is_some() {
            return self.collect_layer_events(index);
        }
        while let Some(event) = slot.engine.poll() {
            if slot.state == State::Closed {
                continue;
            }
            match event {
                quinn_proto::Event::HandshakeDataReady => {
                    // The first event of all: from now on it is known who leads the connection.
                    if let Some(offer) = &self.offer
                        && slot.engine.side().is_server()
                        && application_protocol(&slot.engine).as_deref() == Some(h3::ALPN)
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
                    self.handshakes -= usize::from(std::mem::take(&mut slot.handshaking));
                    self.events.push_back(Event::Connected { handle });
                }
                quinn_proto::Event::ConnectionLost { reason } => {
                    if std::mem::take(&mut slot.handshaking) {
                        self.handshakes -= 1;
                        self.counters.handshakes_failed += 1;
                    }
                    slot.state = State::Closed;
                    if let Some(reason) = Lost::from_engine(reason) {
                        self.events.push_back(Event::Lost { handle, reason });
                    }
                }
                quinn_proto::Event::DatagramReceived => {
                    let mut bytes = 0;
                    while let Some(data) = slot.engine.datagrams().recv() {
                        bytes += data.len() + DATAGRAM_OVERHEAD_BYTES;
                        slot.datagrams_received += 1;
                        self.events.push_back(Event::Datagram { handle, data });
                    }
                    if bytes + 2 * PACKET_BYTES_MAX > self.limits.datagram_receive_bytes_max {
                        // The engine may have dropped some, which only its statistics show.
                        slot.datagrams_unread =
                            slot.engine.stats().frame_rx.datagram - slot.datagrams_received;
                    }
                }
                quinn_proto::Event::Stream(event) => {
                    stream_event(handle, &mut slot.engine, &event, &mut self.events);
                }
            }
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
            events.push_back(Event::Readable {
                handle,
                stream: from_engine(id),
            });
        }
        StreamEvent::Writable { id } => {
            events.push_back(Event::Writable {
                handle,
                stream: from_engine(id),
            });
        }
        StreamEvent::Finished { id } => {
            events.push_back(Event::Finished {
                handle,
                stream: from_engine(id),
            });
        }
        StreamEvent::Stopped { id, error_code } => {
            let (stream, code) = (from_engine(id), error_code.into_inner());
            events.push_back(Event::Stopped {
                handle,
                stream,
                code,
            });
        }
        StreamEvent::Available { dir } => {
            events.push_back(Event::StreamsAvailable {
                handle,
                direction: direction(dir),
            });
        }
    }
}

/// What the engine counts for each datagram besides its payload, at least.
pub(super) const DATAGRAM_OVERHEAD_BYTES: usize = size_of::<bytes::Bytes>();
