//! Admission of incoming connections: accepted, asked to validate their address, or refused.

use std::{sync::Arc, time::Instant};

use quinn_proto::{ConnectionHandle, Incoming, ServerConfig, Transmit, TransportConfig};

use super::{ConnectError, Endpoint, Handle};
use crate::{
    Liveness,
    datagrams::{DatagramQueue, Dropped},
    slots::{Slot, State},
};

impl Endpoint {
    /// Refuses incoming connections, or accepts them again. Established connections are not affected.
    pub fn refuse_incoming(&mut self, refuse: bool) {
        self.refuses_incoming = refuse;
    }

    /// Accepts an incoming connection, asks it to validate its address, or refuses it.
    pub(super) fn admit(&mut self, now: Instant, socket: u32, incoming: Incoming) {
        self.scratch.clear();
        let counters = &mut self.counters;
        let refusals = if self.refuses_incoming {
            Some(&mut counters.refused_unwanted)
        } else if self.slots.open() >= self.limits.connections_max {
            Some(&mut counters.refused_connections)
        } else if self.handshakes >= self.limits.handshakes_max {
            Some(&mut counters.refused_handshakes)
        } else {
            None
        };
        if let Some(count) = refusals {
            *count += 1;
            let transmit = self.engine.refuse(incoming, &mut self.scratch);
            self.respond(transmit, socket);
            return;
        }
        if self.handshakes >= self.limits.handshakes_before_retry_max
            && !incoming.remote_address_validated()
            && incoming.may_retry()
        {
            match self.engine.retry(incoming, &mut self.scratch) {
                Ok(transmit) => {
                    self.counters.retried += 1;
                    self.respond(transmit, socket);
                }
                Err(error) => self.engine.ignore(error.into_incoming()),
            }
            return;
        }
        let logged = self.logged_server();
        match self.engine.accept(incoming, now, &mut self.scratch, logged) {
            Ok((handle, engine)) => {
                self.counters.accepted += 1;
                self.adopt(handle, engine, socket);
            }
            Err(error) => {
                self.counters.handshakes_failed += 1;
                if let Some(transmit) = error.response {
                    self.respond(transmit, socket);
                }
            }
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

    /// Returns the transport configuration of the next outgoing connection.
    pub(super) fn client_transport(
        &self,
        liveness: Option<Liveness>,
    ) -> Result<Arc<TransportConfig>, ConnectError> {
        let Some(liveness) = liveness else {
            let logged = self.logged_transport();
            return Ok(logged.unwrap_or_else(|| Arc::clone(&self.transport)));
        };
        let stream = self.qlog.as_ref().and_then(|it| it.stream(self.opened));
        let limits = self.limits.with_liveness(liveness);
        let transport = limits.transport(&self.packets, self.segmentation_offload, stream);
        transport
            .map(Arc::new)
            .map_err(|error| ConnectError::Engine(error.to_string()))
    }

    pub(super) fn adopt(
        &mut self,
        handle: ConnectionHandle,
        engine: quinn_proto::Connection,
        socket: u32,
    ) -> Handle {
        self.opened += 1;
        self.handshakes += 1;
        let slot = Slot {
            engine,
            web_transport: None,
            refusals: None,
            datagrams: DatagramQueue::default(),
            datagram_bytes_max: self.limits.datagram_send_bytes_max,
            state: State::Handshake,
            handshaking: true,
            dropped: Dropped::default(),
            datagrams_received: 0,
            datagrams_unread: 0,
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

/// Largest number of replies to unknown connections kept for one burst.
const RESPONSES_MAX: usize = 1024;
