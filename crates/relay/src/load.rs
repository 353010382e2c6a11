//! When a relay takes on nothing new, because its host can hardly keep up.

use std::time::Duration;

use weir_quic::Endpoint;

use crate::Relay;

/// What a host observes of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// How long what arrives waits before it is dealt with: the lag of the event loop.
    pub queue_delay: Duration,
    /// Memory that the process uses, in bytes.
    pub memory_bytes: u64,
}

/// From which load on nothing new is taken on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadLimits {
    /// Longest delay; at half of it new sessions and requests are welcome again.
    pub queue_delay_max: Duration,
    /// Most memory, in bytes; at nine tenths of it new sessions and requests are welcome again.
    pub memory_bytes_max: u64,
}

impl Default for LoadLimits {
    fn default() -> Self {
        Self {
            queue_delay_max: Duration::from_millis(250),
            memory_bytes_max: 4 << 30,
        }
    }
}

/// Decides from what a host observes whether it is too much.
#[derive(Clone, Debug)]
pub struct Shedder {
    limits: LoadLimits,
    is_shedding: bool,
}

impl Shedder {
    /// One that sheds nothing yet.
    pub fn new(limits: LoadLimits) -> Self {
        Self {
            limits,
            is_shedding: false,
        }
    }

    /// Takes note of a load; returns whether to shed from now on.
    pub fn observe(&mut self, load: Load) -> bool {
        let LoadLimits {
            queue_delay_max,
            memory_bytes_max,
        } = self.limits;
        self.is_shedding = if self.is_shedding {
            load.queue_delay > queue_delay_max / 2 || load.memory_bytes > memory_bytes_max / 10 * 9
        } else {
            load.queue_delay > queue_delay_max || load.memory_bytes > memory_bytes_max
        };
        self.is_shedding
    }

    /// Whether new sessions and requests are to be refused.
    pub fn is_shedding(&self) -> bool {
        self.is_shedding
    }
}

impl Relay {
    /// Whether newcomers and requests are refused because of the load.
    pub fn is_shedding(&self) -> bool {
        self.shedder.is_shedding()
    }

    /// Takes note of how its host keeps up. Under too much load, newcomers are refused before they cost a
    /// handshake, and requests are answered with `EXCESSIVE_LOAD` and when to come back; what runs goes on.
    pub fn observe_load(&mut self, endpoint: &mut Endpoint, load: Load) {
        let before = self.shedder.is_shedding();
        let is_shedding = self.shedder.observe(load);
        if is_shedding != before {
            tracing::info!(?load, is_shedding, "load");
            self.counters.load_sheddings += u64::from(is_shedding);
            endpoint.refuse_newcomers(is_shedding || self.is_draining());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Load = Load {
        queue_delay: Duration::ZERO,
        memory_bytes: 0,
    };

    fn shedder() -> Shedder {
        Shedder::new(LoadLimits {
            queue_delay_max: Duration::from_millis(100),
            memory_bytes_max: 1000,
        })
    }

    #[test]
    fn delay_is_shed_past_its_limit_and_until_half_of_it() {
        let mut shedder = shedder();
        let mut observe = |millis| {
            let queue_delay = Duration::from_millis(millis);
            shedder.observe(Load {
                queue_delay,
                ..CALM
            })
        };
        assert!(!observe(100));
        assert!(observe(101));
        assert!(observe(51));
        assert!(!observe(50));
        assert!(!observe(100));
    }

    #[test]
    fn memory_is_shed_past_its_limit_and_until_nine_tenths_of_it() {
        let mut shedder = shedder();
        let mut observe = |memory_bytes| {
            shedder.observe(Load {
                memory_bytes,
                ..CALM
            })
        };
        assert!(!observe(1000));
        assert!(observe(1001));
        assert!(observe(901));
        assert!(!observe(900));
        assert!(!shedder.is_shedding());
    }
}
