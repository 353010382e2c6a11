//! Hosting of origins and players on real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use weir_live::{Timebase, WINDOW_FIRST};
use weir_net::{SocketConfig, Stop, Waker, clock};
use weir_quic::{App, Congestion, Limits};

use crate::event_loop::{self, EventLoop};

/// Runs an origin that connects to `remote`, until the origin is finished or a stop is requested.
pub(crate) fn host_origin(
    origin: &mut dyn App,
    remote: SocketAddr,
    congestion: Congestion,
    waker: Waker,
    stop: &Stop,
) -> anyhow::Result<()> {
    let limits = Limits {
        keep_alive: Some(KEEP_ALIVE),
        congestion,
        ..Limits::default()
    };
    host(origin, remote, limits, Some(waker), stop)
}

/// Runs a player that connects to `remote`, until the player is finished or a stop is requested.
pub(crate) fn host_viewer(
    viewer: &mut dyn App,
    remote: SocketAddr,
    stop: &Stop,
) -> anyhow::Result<()> {
    let limits = Limits {
        keep_alive: Some(KEEP_ALIVE),
        receive_bytes_max: WINDOW_FIRST,
        ..Limits::default()
    };
    host(viewer, remote, limits, None, stop)
}

fn host(
    app: &mut dyn App,
    remote: SocketAddr,
    limits: Limits,
    waker: Option<Waker>,
    stop: &Stop,
) -> anyhow::Result<()> {
    let socket = event_loop::bind(event_loop::local_address(remote), SocketConfig::default())?;
    let mut event_loop = EventLoop::new(vec![socket], event_loop::endpoint(limits)?, stop.clone())?;
    event_loop.waker = waker;
    event_loop.run(app).map(drop)
}

/// Returns the time of day as a timebase, which all processes of a machine share.
pub(crate) fn timebase() -> Timebase {
    Timebase {
        at: clock::now(),
        us: i64::try_from(clock::since_epoch().as_micros()).unwrap_or(0),
    }
}

/// Interval of pings, which keep the connection of a paused stream open.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
