//! Which congestion controller an endpoint's connections use.

mod delay;

use std::{sync::Arc, time::Duration};

use quinn_proto::congestion::{ControllerFactory, CubicConfig};

use self::delay::DelayConfig;

/// How much a connection may have in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438): fills the queue of the bottleneck until something is lost.
    #[default]
    Cubic,
    /// Keeps the queue of the bottleneck short: backs off when packets wait there for longer than a target, unless
    /// others keep it longer whatever we do; then CUBIC decides until they are gone.
    Delay {
        /// How long packets may wait in the queue where a packet takes a third of this; on a fast path two thirds
        /// of it, on a slow one up to twice as long. [`QUEUE_TARGET`] suits live video.
        queue_target: Duration,
    },
}

impl Congestion {
    /// Keeps the queue at [`QUEUE_TARGET`].
    pub const LOW_LATENCY: Self = Self::Delay {
        queue_target: QUEUE_TARGET,
    };

    pub(crate) fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Self::Cubic => Arc::new(CubicConfig::default()),
            Self::Delay { queue_target } => Arc::new(DelayConfig { queue_target }),
        }
    }
}

/// The wait in the queue that [`Congestion::LOW_LATENCY`] aims at: long enough that the jitter of a mobile
/// link is not taken for congestion, short beside a jitter buffer.
pub const QUEUE_TARGET: Duration = Duration::from_millis(60);
