//! Endpoints and sockets as the subcommands need them.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use anyhow::Context as _;
use weir_net::{SocketConfig, UdpSocket, clock::SystemClock};
use weir_quic::{Endpoint, EndpointConfig, Limits, Qlog, Shard, tls::ServerTls};

/// An endpoint with randomness from the system and, if wanted, logs of connections.
pub(crate) fn endpoint(
    limits: Limits,
    server: Option<ServerTls>,
    segmentation_offload: bool,
    qlog: Option<Qlog>,
) -> anyhow::Result<Endpoint> {
    let config = EndpointConfig {
        limits,
        server,
        seed: seed()?,
        time_source: Arc::new(SystemClock),
        qlog,
        packets: weir_quic::Packets::default(),
        segmentation_offload,
    };
    Endpoint::new(config).context("the QUIC endpoint cannot be made")
}

/// One of several endpoints of a server on one address, all made with the same `seed`.
pub(crate) fn shard(
    limits: Limits,
    server: ServerTls,
    segmentation_offload: bool,
    qlog: Option<Qlog>,
    seed: [u8; 32],
    shard: Shard,
) -> anyhow::Result<Endpoint> {
    let config = EndpointConfig {
        limits,
        server: Some(server),
        seed,
        time_source: Arc::new(SystemClock),
        qlog,
        packets: weir_quic::Packets::default(),
        segmentation_offload,
    };
    Endpoint::with_shard(config, shard).context("the QUIC endpoint cannot be made")
}

/// A seed from the system's generator.
pub(crate) fn seed() -> anyhow::Result<[u8; 32]> {
    let mut seed = [0; 32];
    aws_lc_rs::rand::fill(&mut seed)
        .map_err(|_| anyhow::anyhow!("the system gives no random bytes"))?;
    Ok(seed)
}

/// A socket at `address`.
pub(crate) fn bind(address: SocketAddr, config: SocketConfig) -> anyhow::Result<UdpSocket> {
    UdpSocket::bind(address, config).with_context(|| format!("cannot bind to {address}"))
}

/// An address of this machine from which `remote` can be reached, on a port that the system chooses.
pub(crate) fn local_address(remote: SocketAddr) -> SocketAddr {
    match remote {
        SocketAddr::V4(_) if remote.ip().is_loopback() => (Ipv4Addr::LOCALHOST, 0).into(),
        SocketAddr::V6(_) if remote.ip().is_loopback() => (Ipv6Addr::LOCALHOST, 0).into(),
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}
