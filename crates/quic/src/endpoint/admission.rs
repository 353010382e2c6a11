//! Admission of incoming connections: accepted, asked to validate their address, or refused.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use quinn_proto::{
    ConnectionHandle, EndpointEvent, Incoming, ServerConfig, Transmit, TransportConfig, VarInt,
};

use super::{Endpoint, Handle};
use crate::{
    Counted, Loss, Origin,
    datagrams::{DatagramQueue, Dropped},
    slots::{Slot, State},
};

/// An incoming connection that waits to be accepted.
pub(super) struct Arrival {
    incoming: Incoming,
    socket: u32,
    /// When its first packet came.
    at: Instant,
    /// Its place among the handshakes of its address.
    counted: Option<Counted>,
}

impl Endpoint {
    /// Refuses incoming connections, also those that wait to be accepted, or accepts them again. Established connections
    /// are not affected.
    pub fn refuse_incoming(&mut self, refuse: bool) {
        self.refuses_incoming = refuse;
        if !refuse {
            return;
        }
        while let Some(Arrival {
            incoming, socket, ..
        }) = self.arriving.pop_front()
        {
            self.scratch.clear();
            self.counters.refused_unwanted += 1;
            let transmit = self.engine.refuse(incoming, &mut self.scratch);
            self.respond(transmit, socket);
        }
    }

    /// Lets an incoming connection wait to be accepted, asks it to validate its address, or refuses it.
    pub(super) fn admit(&mut self, now: Instant, socket: u32, incoming: Incoming) {
        self.scratch.clear();
        let origin = Origin::of(incoming.remote_address().ip());
        let from_there = self.handshake_counts.count(origin);
        let handshakes = self.handshakes + self.arriving.len();
        let counters = &mut self.counters;
        let refusals = if self.refuses_incoming {
            Some(&mut counters.refused_unwanted)
        } else if self.slots.open() + self.arriving.len() >= self.limits.connections_max {
            Some(&mut counters.refused_connections)
        } else if handshakes >= self.limits.handshakes_max {
            Some(&mut counters.refused_handshakes)
        } else if from_there >= self.limits.handshakes_per_address_max {
            Some(&mut counters.refused_handshakes_address)
        } else {
            None
        };
        if let Some(count) = refusals {
            *count += 1;
            let transmit = self.engine.refuse(incoming, &mut self.scratch);
            self.respond(transmit, socket);
            return;
        }
        let is_crowd = handshakes >= self.limits.handshakes_before_retry_max
            || from_there >= self.limits.handshakes_per_address_max.div_ceil(2);
        if is_crowd && !incoming.remote_address_validated() && incoming.may_retry() {
            match self.engine.retry(incoming, &mut self.scratch) {
                Ok(transmit) => {
                    self.counters.retried += 1;
                    self.respond(transmit, socket);
                }
                Err(error) => self.engine.ignore(error.into_incoming()),
            }
            return;
        }
        self.arriving.push_back(Arrival {
            incoming,
            socket,
            at: now,
            counted: self.handshake_counts.enter(origin, usize::MAX),
        });
    }

    /// Returns since when the next incoming connection waits.
    pub(super) fn arriving_since(&self) -> Option<Instant> {
        Some(self.arriving.front()?.at)
    }

    /// Accepts the next incoming connection. Signature and key exchange take half a millisecond, so packets of established
    /// connections do not wait for those of many new ones.
    pub(super) fn accept_next(&mut self, now: Instant) {
        let Some(arrival) = self.arriving.pop_front() else {
            return;
        };
        let Arrival {
            incoming,
            socket,
            at,
            counted,
        } = arrival;
        self.scratch.clear();
        let logged = self.logged_server();
        match self.engine.accept(incoming, now, &mut self.scratch, logged) {
            Ok((handle, mut engine)) => {
                self.counters.accepted += 1;
                if engine.is_closed() {
                    // The client's first packets end the connection. The engine sets no timer for that, and would keep it
                    // until the idle timeout.
                    self.counters.handshakes_failed += 1;
                    let transmit = engine.poll_transmit(now, 1, &mut self.scratch);
                    if let Some(transmit) = transmit {
                        self.respond(transmit, socket);
                    }
                    self.engine.handle_event(handle, EndpointEvent::drained());
                    return;
                }
                let handle = self.adopt(at, handle, engine, socket, counted);
                let deadline = now + self.limits.handshake_timeout;
                self.handshake_deadlines.push_back((deadline, handle));
            }
            Err(error) => {
                self.counters.handshakes_failed += 1;
                if let Some(transmit) = error.response {
                    self.respond(transmit, socket);
                }
            }
        }
    }

    /// Returns when the oldest handshake of an incoming connection has to be over.
    pub(super) fn handshake_deadline(&self) -> Option<Instant> {
        self.handshake_deadlines.front().map(|&(at, _)| at)
    }

    /// Closes incoming connections whose handshake takes too long.
    pub(super) fn close_overdue_handshakes(&mut self, now: Instant) {
        self.forget_ended_handshakes();
        while let Some(&(at, handle)) = self.handshake_deadlines.front()
            && at <= now
        {
            if let Some((_, slot)) = self.slots.usable(handle) {
                let reason = b"the handshake takes too long".as_slice().into();
                slot.engine.close(now, VarInt::from_u32(0), reason);
                slot.state = State::Closed;
                self.counters.handshakes_failed += 1;
                self.counters.handshakes_overdue += 1;
                self.mark(handle.index);
            }
            self.handshake_deadlines.pop_front();
            self.forget_ended_handshakes();
        }
    }

    /// Drops the deadlines of the oldest handshakes that are over.
    pub(super) fn forget_ended_handshakes(&mut self) {
        while let Some(&(_, handle)) = self.handshake_deadlines.front() {
            let slot = self.slots.usable(handle);
            if slot.is_some_and(|(_, slot)| slot.handshaking.is_some()) {
                return;
            }
            self.handshake_deadlines.pop_front();
        }
    }

    /// Returns the server's configuration with a log for the next connection, if logs are configured.
    pub(super) fn logged_server(&self) -> Option<Arc<ServerConfig>> {
        let transport = self.logged_transport()?;
        let mut server = self.server.clone()?;
        server.transport_config(transport);
        Some(Arc::new(server))
    }

    pub(super) fn logged_transport(&self) -> Option<Arc<TransportConfig>> {
        let stream = self.qlog.as_ref()?.stream(self.opened)?;
        self.limits
            .transport(&self.packets, self.segmentation_offload, Some(stream))
            .ok()
            .map(Arc::new)
    }

    /// Takes in a new connection, which began at a given time.
    pub(super) fn adopt(
        &mut self,
        began: Instant,
        handle: ConnectionHandle,
        engine: quinn_proto::Connection,
        socket: u32,
        counted: Option<Counted>,
    ) -> Handle {
        self.opened += 1;
        self.handshakes += 1;
        let slot = Slot {
            engine,
            web_transport: None,
            refusals: None,
            lost: None,
            datagrams: DatagramQueue::default(),
            unread: VecDeque::new(),
            datagram_bytes_max: self.limits.datagram_send_bytes_max,
            state: State::Handshake,
            handshaking: counted,
            began,
            handshake: Duration::ZERO,
            dropped: Dropped::default(),
            datagrams_received: 0,
            datagrams_unread: 0,
            loss: Loss::NONE,
        };
        let handle = self.slots.insert(handle.0, slot, socket);
        self.mark(handle.index);
        handle
    }

    /// Keeps a reply for the next burst. Replies beyond the limit, as in a flood, are dropped.
    pub(super) fn respond(&mut self, transmit: Transmit, socket: u32) {
        if self.responses.len() < RESPONSES_MAX {
            let data = self.scratch[..transmit.size].to_vec();
            self.responses.push_back((transmit, socket, data));
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // The engine warns of connections that are neither accepted nor refused.
        for arrival in self.arriving.drain(..) {
            self.engine.ignore(arrival.incoming);
        }
    }
}

/// Largest number of replies to unknown connections kept for one burst.
const RESPONSES_MAX: usize = 1024;
