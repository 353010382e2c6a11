//! Endpoints and sockets as the subcommands need them.

use std::{fs::File, net::SocketAddr, path::Path, sync::Arc};

use anyhow::Context as _;
use weir_net::{
    SocketConfig, UdpSocket,
    clock::{self, SystemClock},
};
use weir_quic::{Endpoint, EndpointConfig, Limits, Qlog, tls::ServerTls};

/// An endpoint with randomness from the system and, if wanted, a log of each connection in `qlog`.
pub(crate) fn endpoint(
    limits: Limits,
    server: Option<ServerTls>,
    segmentation_offload: bool,
    qlog: Option<&Path>,
) -> anyhow::Result<Endpoint> {
    let mut seed = [0; 32];
    aws_lc_rs::rand::fill(&mut seed)
        .map_err(|_| anyhow::anyhow!("the system gives no random bytes"))?;
    let config = EndpointConfig {
        limits,
        server,
        seed,
        time_source: Arc::new(SystemClock),
        qlog: qlog.map(qlog_into).transpose()?,
        segmentation_offload,
    };
    Endpoint::new(config).context("the QUIC endpoint cannot be made")
}

/// A socket at `address`.
pub(crate) fn bind(address: SocketAddr, config: SocketConfig) -> anyhow::Result<UdpSocket> {
    UdpSocket::bind(address, config).with_context(|| format!("cannot bind to {address}"))
}

fn qlog_into(folder: &Path) -> anyhow::Result<Qlog> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let folder = folder.to_owned();
    let prefix = clock::since_epoch().as_millis();
    let open = move |number: u64| {
        let name = format!("{prefix}-{number}.sqlog");
        let file = File::create(folder.join(name)).ok()?;
        Some(Box::new(std::io::BufWriter::new(file)) as Box<_>)
    };
    Ok(Qlog {
        open: Arc::new(open),
        start: clock::now(),
    })
}
