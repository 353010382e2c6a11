//! Outgoing connections.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use quinn_proto::{ConnectionId, TransportConfig};
use rand::RngExt as _;

use super::{Endpoint, Handle, INITIAL_ID_BYTES};
use crate::{ClientConfig, Limits, LinkOptions, web_transport::WebTransport};

/// Why a connection could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The server's name is not valid in a certificate.
    #[error("{0:?} is not a valid server name")]
    ServerName(String),
    /// The address is not valid for a connection.
    #[error("{0} is not an address to connect to")]
    Address(SocketAddr),
    /// [`Limits::connections_max`](crate::Limits::connections_max) is reached.
    #[error("the limit of {0} connections is reached")]
    TooMany(usize),
    /// The engine refused for another reason.
    #[error("cannot connect: {0}")]
    Engine(String),
}

impl Endpoint {
    /// Starts a connection to `remote` on the host's socket number `socket`. The peer's certificate has to be valid for
    /// `server_name`.
    pub fn connect(
        &mut self,
        now: Instant,
        config: &ClientConfig,
        remote: SocketAddr,
        server_name: &str,
        socket: u32,
    ) -> Result<Handle, ConnectError> {
        self.connect_with(now, config, remote, server_name, socket, None)
    }

    /// Does the same on socket number 0, and grants `receive_bytes` in place of
    /// [`Limits::receive_bytes_max`](crate::Limits::receive_bytes_max).
    pub fn connect_granting(
        &mut self,
        now: Instant,
        config: &ClientConfig,
        remote: SocketAddr,
        server_name: &str,
        receive_bytes: u32,
    ) -> Result<Handle, ConnectError> {
        let limits = Limits {
            receive_bytes_max: receive_bytes,
            ..self.limits.clone()
        };
        let transport = self.transport_within(&limits)?;
        let initial_id = self.initial_ids.random();
        self.start(now, config, (remote, server_name, 0), transport, initial_id)
    }

    /// Does the same for a connection to another relay, with options that replace the endpoint's limits.
    pub fn connect_with(
        &mut self,
        now: Instant,
        config: &ClientConfig,
        remote: SocketAddr,
        server_name: &str,
        socket: u32,
        link: Option<LinkOptions>,
    ) -> Result<Handle, ConnectError> {
        let mut initial_id = self.initial_ids.random::<[u8; INITIAL_ID_BYTES]>();
        if link.is_some_and(|link| link.to_first_shard) {
            // Zero belongs to the first endpoint, however many there are.
            initial_id[0] = 0;
        }
        let transport = self.client_transport(link)?;
        let to = (remote, server_name, socket);
        self.start(now, config, to, transport, initial_id)
    }

    /// Starts a connection.
    fn start(
        &mut self,
        now: Instant,
        config: &ClientConfig,
        (remote, server_name, socket): (SocketAddr, &str, u32),
        transport: Arc<TransportConfig>,
        initial_id: [u8; INITIAL_ID_BYTES],
    ) -> Result<Handle, ConnectError> {
        if self.slots.open() >= self.limits.connections_max {
            return Err(ConnectError::TooMany(self.limits.connections_max));
        }
        let initial_id = ConnectionId::new(&initial_id);
        let mut client = quinn_proto::ClientConfig::new(config.tls.config.clone());
        client
            .transport_config(transport)
            .token_store(self.tokens.clone())
            .initial_dst_cid_provider(Arc::new(move || initial_id));
        let (handle, engine) = self
            .engine
            .connect(now, client, remote, server_name)
            .map_err(|error| match error {
                quinn_proto::ConnectError::InvalidServerName(name) => {
                    ConnectError::ServerName(name)
                }
                quinn_proto::ConnectError::InvalidRemoteAddress(address) => {
                    ConnectError::Address(address)
                }
                error @ (quinn_proto::ConnectError::EndpointStopping
                | quinn_proto::ConnectError::CidsExhausted
                | quinn_proto::ConnectError::NoDefaultClientConfig
                | quinn_proto::ConnectError::UnsupportedVersion) => {
                    ConnectError::Engine(error.to_string())
                }
            })?;
        self.now = Some(now);
        let counted = self.handshake_counts.enter(None, usize::MAX);
        let handle = self.adopt(now, handle, engine, socket, counted);
        if let Some(slot) = self.slots.at(handle.index) {
            let request = config.web_transport.clone();
            slot.web_transport = request.map(|request| Box::new(WebTransport::client(request)));
            slot.refusals = Some(Arc::clone(config.tls.refusals()));
        }
        Ok(handle)
    }

    /// Returns the transport configuration of the next outgoing connection.
    fn client_transport(
        &self,
        link: Option<LinkOptions>,
    ) -> Result<Arc<TransportConfig>, ConnectError> {
        let Some(link) = link else {
            let logged = self.logged_transport();
            return Ok(logged.unwrap_or_else(|| Arc::clone(&self.transport)));
        };
        self.transport_within(&self.limits.with_link(link))
    }

    /// Returns the transport configuration of the next outgoing connection, with these limits.
    fn transport_within(&self, limits: &Limits) -> Result<Arc<TransportConfig>, ConnectError> {
        let stream = self.qlog.as_ref().and_then(|it| it.stream(self.opened));
        let transport = limits.transport(&self.packets, self.segmentation_offload, stream);
        transport
            .map(Arc::new)
            .map_err(|error| ConnectError::Engine(error.to_string()))
    }
}
