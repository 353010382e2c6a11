//! Connections with a WebTransport layer: events between the engine, the layer and the role.

use std::time::Instant;

use quinn_proto::{ConnectionError, Dir, StreamEvent};

use super::{
    Endpoint,
    events::{DATAGRAM_OVERHEAD_BYTES, EVENTS_AT_ONCE, in_our_words},
};
use crate::{
    Event, Handle, Lost,
    config::PACKET_BYTES_MAX,
    connection::{Bare, application_protocol, direction, from_engine},
    slots::State,
    tls::refusal::Refusals,
    web_transport::{self, WebTransport},
};

impl Endpoint {
    /// Converts events of a connection with a layer, up to a limit. Returns whether there may be more.
    pub(super) fn collect_layer_events(&mut self, index: u32) -> bool {
        let Some(now) = self.now else {
            return false;
        };
        let handle = self.slots.handle(index);
        let mut left = EVENTS_AT_ONCE;
        if self.with_layer(now, index, |layer, bare| layer.read_on(bare)) == Some(true) {
            left -= 1;
        }
        let hot = self.slots.hot(index);
        let has_untold_streams = std::mem::take(&mut hot.has_untold_streams);
        if std::mem::take(&mut hot.has_untold_datagrams) {
            self.receive_in_layer(now, handle, true, &mut left);
        }
        if has_untold_streams {
            for dir in [Dir::Bi, Dir::Uni] {
                self.accept_in_layer(now, handle, dir, &mut left);
            }
        }
        while left > 0
            && let Some(slot) = self.slots.at(index)
            && let Some(event) = slot.engine.poll()
        {
            left -= 1;
            match event {
                quinn_proto::Event::HandshakeDataReady => {
                    if application_protocol(&slot.engine).as_deref() != Some(weir_h3::ALPN) {
                        // The client offered HTTP/3 and other protocols, and the server chose another.
                        slot.web_transport = None;
                        return self.collect_events(index);
                    }
                    self.start_layer(index);
                }
                quinn_proto::Event::Connected => {
                    self.handshakes -= usize::from(slot.end_handshake(now));
                    self.with_layer(now, index, |layer, bare| {
                        layer.handle_connected(now, bare);
                    });
                }
                quinn_proto::Event::ConnectionLost { reason } => {
                    slot.lost = Some(Box::new(reason));
                }
                quinn_proto::Event::DatagramReceived => {
                    self.receive_in_layer(now, handle, false, &mut left);
                }
                quinn_proto::Event::DatagramsUnblocked => {}
                quinn_proto::Event::Stream(StreamEvent::Opened { dir }) => {
                    self.accept_in_layer(now, handle, dir, &mut left);
                }
                quinn_proto::Event::Stream(event) => self.on_layer_stream(now, handle, &event),
            }
            self.tell_from_layer(handle);
        }
        self.tell_from_layer(handle);
        let layer = self.with_layer(now, index, |layer, _| {
            (layer.has_unread(), layer.has_read_enough())
        });
        let (has_unread, has_read_enough) = layer.unwrap_or_default();
        if has_read_enough {
            self.active.note_left();
        }
        if has_unread {
            return true;
        }
        left == 0 || self.tell_of_loss(handle, left, lost)
    }

    /// Starts the layer.
    pub(super) fn start_layer(&mut self, index: u32) {
        if let Some(now) = self.now {
            self.with_layer(now, index, |layer, bare| layer.start(bare));
        }
    }

    /// Handles a timer of a connection with a layer.
    pub(super) fn layer_timeout(&mut self, now: Instant, index: u32) {
        self.with_layer(now, index, |layer, bare| layer.handle_timeout(now, bare));
    }

    fn with_layer<T>(
        &mut self,
        now: Instant,
        index: u32,
        act: impl FnOnce(&mut WebTransport, &mut Bare<'_>) -> T,
    ) -> Option<T> {
        let (hot, slot) = self.slots.both(index)?;
        let (mut bare, layer) = slot.split(now, index, hot, &mut self.dirty);
        Some(act(layer?, &mut bare))
    }

    /// Accepts streams of the peer until `left` is 0.
    fn accept_in_layer(&mut self, now: Instant, handle: Handle, dir: Dir, left: &mut usize) {
        self.with_layer(now, handle.index, |layer, bare| {
            while *left > 0
                && let Some(id) = bare.engine.streams().accept(dir)
            {
                *left -= 1;
                let stream = from_engine(id);
                layer.handle_opened(stream, direction(dir));
                layer.handle_readable(bare, stream);
            }
            bare.hot.has_untold_streams |= *left == 0;
        });
    }

    /// Takes received datagrams until `left` is 0. `goes_on`: an earlier call left some.
    fn receive_in_layer(&mut self, now: Instant, handle: Handle, goes_on: bool, left: &mut usize) {
        let Some((hot, slot)) = self.slots.both(handle.index) else {
            return;
        };
        let (mut bare, Some(layer)) = slot.split(now, handle.index, hot, &mut self.dirty) else {
            return;
        };
        let (mut bytes, mut received) = (0, 0);
        while *left > 0
            && let Some(data) = bare.engine.datagrams().recv()
        {
            *left -= 1;
            bytes += data.len() + DATAGRAM_OVERHEAD_BYTES;
            received += 1;
            bare.hot.note_read(data.len());
            if let Some(data) = layer.handle_datagram(&mut bare, data) {
                self.events.push_back(Event::Datagram { handle, data });
            }
        }
        bare.hot.has_untold_datagrams = *left == 0;
        slot.datagrams_received += received;
        let is_near_limit = bytes + 2 * PACKET_BYTES_MAX > self.limits.datagram_receive_bytes_max;
        if (goes_on || is_near_limit) && *left > 0 {
            self.counters.datagrams_dropped_unread += slot.note_unread();
        }
    }

    fn on_layer_stream(&mut self, now: Instant, handle: Handle, event: &StreamEvent) {
        let Some((hot, slot)) = self.slots.both(handle.index) else {
            return;
        };
        let (mut bare, Some(layer)) = slot.split(now, handle.index, hot, &mut self.dirty) else {
            return;
        };
        let is_roles = match *event {
            StreamEvent::Opened { .. } => false,
            StreamEvent::Readable { id } => layer.handle_readable(&mut bare, from_engine(id)),
            StreamEvent::Writable { id } => layer.handle_writable(&mut bare, from_engine(id)),
            StreamEvent::Finished { id } => layer.handle_finished(&mut bare, from_engine(id)),
            StreamEvent::Stopped { id, error_code } => {
                let stream = from_engine(id);
                let code = layer.handle_stopped(&mut bare, stream, error_code.into_inner());
                self.events.extend(code.map(|code| Event::Stopped {
                    handle,
                    stream,
                    code,
                }));
                false
            }
            StreamEvent::Available { .. } => layer.handle_streams_available(&mut bare),
        };
        if is_roles {
            self.events.extend(in_our_words(handle, event));
        }
    }

    /// Passes the layer's events to the role, and adds its counters.
    fn tell_from_layer(&mut self, handle: Handle) {
        let Some(slot) = self.slots.at(handle.index) else {
            return;
        };
        let Some(layer) = &mut slot.web_transport else {
            return;
        };
        let counted = layer.take_counters();
        let total = &mut self.counters;
        total.web_transport_sessions += counted.sessions;
        total.http3_requests_refused += counted.requests_refused;
        total.http3_violations += counted.violations;
        total.web_transport_overdue += counted.overdue;
        total.web_transport_streams_refused += counted.streams_refused;
        total.web_transport_datagrams_dropped += counted.datagrams_dropped;
        while let Some(event) = layer.poll_event() {
            let event = match event {
                web_transport::Event::Established => {
                    slot.state = State::Established;
                    Event::Connected { handle }
                }
                web_transport::Event::Opened(stream, direction) => {
                    self.events.push_back(Event::Opened {
                        handle,
                        stream,
                        direction,
                    });
                    Event::Readable { handle, stream }
                }
                web_transport::Event::Datagram(data) => Event::Datagram { handle, data },
                web_transport::Event::Lost(reason) => Event::Lost { handle, reason },
            };
            self.events.push_back(event);
        }
    }
}

fn lost(reason: ConnectionError, refusals: Option<&Refusals>) -> Option<Lost> {
    match reason {
        ConnectionError::ApplicationClosed(close) => Some(web_transport::lost(
            close.error_code.into_inner(),
            &close.reason,
        )),
        reason @ (ConnectionError::VersionMismatch
        | ConnectionError::TransportError(_)
        | ConnectionError::ConnectionClosed(_)
        | ConnectionError::Reset
        | ConnectionError::TimedOut
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted) => Lost::from_engine(reason, refusals),
    }
}
