//! Connection handles and times for the unit tests.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use weir_moqt::draft::Draft;
use weir_quic::{Endpoint, EndpointConfig, Handle, Limits, TimeSource};
use weir_sim::{SERVER_NAME, Sim};

/// An arbitrary time.
pub(crate) fn epoch() -> Instant {
    Sim::new(0).now()
}

/// Returns handles of several connections, the same on every call.
pub(crate) fn handles<const N: usize>() -> [Handle; N] {
    let sim = Sim::new(0);
    let mut endpoint = Endpoint::new(EndpointConfig {
        limits: Limits::default(),
        server: None,
        seed: [0; 32],
        time_source: Arc::new(Midnight),
        qlog: None,
        packets: weir_quic::Packets::default(),
        segmentation_offload: false,
        handshake_counts: weir_quic::OriginCounts::default(),
    })
    .unwrap();
    let (client, remote) = (sim.client_config(&Draft::alpns()), ([10, 0, 0, 1], 4433));
    [(); N].map(|()| {
        endpoint
            .connect(sim.now(), &client, remote.into(), SERVER_NAME, 0)
            .unwrap()
    })
}

/// A time of day that never changes.
struct Midnight;

impl TimeSource for Midnight {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }
}
