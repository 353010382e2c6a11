//! Origins and players on real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use weir_live::Timebase;
use weir_net::{Bell, Host, HostConfig, SocketConfig, Stop, Telemetry, clock};
use weir_quic::{App, Congestion, Limits};

use crate::endpoints;

/// Runs a role that connects to `remote`, until it is finished or asked to stop.
pub(crate) fn host(
    app: &mut dyn App,
    remote: SocketAddr,
    congestion: Congestion,
    bell: Option<Bell>,
    stop: &Stop,
) -> anyhow::Result<()> {
    let socket = endpoints::bind(endpoints::local_address(remote), SocketConfig::default())?;
    let limits = Limits {
        keep_alive: Some(KEEP_ALIVE),
        congestion,
        ..Limits::default()
    };
    let endpoint = endpoints::endpoint(limits, None, socket.has_segmentation(), None)?;
    let mut host = Host::new(
        HostConfig::default(),
        vec![socket],
        endpoint,
        Arc::new(Telemetry::default()),
        stop.clone(),
    )
    .context("cannot set up the event loop")?;
    if let Some(bell) = bell {
        host = host.with_bell(bell);
    }
    host.run(app).context("the event loop failed")
}

/// The time of day, as all on one machine share it.
pub(crate) fn timebase() -> Timebase {
    Timebase {
        at: clock::now(),
        us: i64::try_from(clock::since_epoch().as_micros()).unwrap_or(0),
    }
}

/// Pings, so that a stream that pauses keeps its connection.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
