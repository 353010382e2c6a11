//! The choice of congestion controller.

mod delay;

use std::{sync::Arc, time::Duration};

use quinn_proto::congestion::{ControllerFactory, CubicConfig};

use self::delay::DelayConfig;

/// The congestion controller of an endpoint's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438): fills the queue of the bottleneck until something is lost.
    #[default]
    Cubic,
    /// Keeps the queue of the bottleneck short: reduces the window when packets wait there for longer than a target. If
    /// other flows keep the queue longer regardless, CUBIC takes over until they are gone.
    Delay {
        /// The target of the queueing delay on a path where a packet takes a third of this. The effective target is two
        /// thirds of it on a fast path, and up to about twice as long on a slow one. [`QUEUE_TARGET`] suits live video.
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

/// The queueing delay that [`Congestion::LOW_LATENCY`] aims at: more than the jitter of a mobile link, which is not
/// congestion, and little compared with a jitter buffer.
pub const QUEUE_TARGET: Duration = Duration::from_millis(60);
