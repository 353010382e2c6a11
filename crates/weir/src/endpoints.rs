//! Endpoints and sockets as the subcommands need them.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use weir_net::{SocketConfig, UdpSocket, clock::SystemClock};
use weir_quic::{Endpoint, EndpointConfig, Limits, Qlog, tls::ServerTls};

/// An endpoint with randomness from the system and, if wanted, logs of connections.
pub(crate) fn endpoint(
    limits: Limits,
    server: Option<ServerTls>,
    segmentation_offload: bool,
    qlog: Option<Qlog>,
) -> anyhow::Result<Endpoint> {
    let mut seed = [0; 32];
    aws_lc_rs::rand::fill(&mut seed)
        .map_err(|_| anyhow::anyhow!("the system gives no random bytes"))?;
    let config = EndpointConfig {
        limits,
        server,
        seed,
        time_source: Arc::new(SystemClock),
        qlog,
        segmentation_offload,
    };
    Endpoint::new(config).context("the QUIC endpoint cannot be made")
}

/// A socket at `address`.
pub(crate) fn bind(address: SocketAddr, config: SocketConfig) -> anyhow::Result<UdpSocket> {
    UdpSocket::bind(address, config).with_context(|| format!("cannot bind to {address}"))
}
