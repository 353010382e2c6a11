//! The load client's threads, and the progress that other threads can read.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::anyhow;
use weir_http3::client::{Client, Progress, transport_limits};
use weir_net::{HostConfig, ReceivePause, SocketConfig, Stop, Telemetry, UdpSocket, clock};
use weir_quic::{App, Endpoint, EndpointConfig, Event, Packets, Qlog};

use crate::event_loop::{self, EventLoop, LoopThread};

/// The parameters of a thread's sockets and endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// Sockets of the thread.
    pub(super) sockets: u32,
    /// Whether GSO and GRO are used.
    pub(super) offload: bool,
    pub(super) packets: Packets,
    pub(super) idle_timeout: Duration,
    /// Whether the thread pauses between two reads.
    pub(super) rests: bool,
    pub(super) core: Option<usize>,
}

/// A client on its thread.
pub(super) struct Hosted {
    thread: LoopThread<Shown>,
    seen: Arc<Mutex<Progress>>,
    pub(super) telemetry: Arc<Telemetry>,
}

/// A client that publishes its progress, and adapts the pause between two reads.
struct Shown {
    client: Client,
    seen: Arc<Mutex<Progress>>,
    looked: Instant,
    next_look: Instant,
    rest: Option<ReceivePause>,
}

impl Shown {
    fn look(&mut self, now: Instant) {
        let progress = self.client.progress();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *seen, progress);
        if let Some(rest) = &self.rest {
            let answers = progress.successes.saturating_sub(before.successes);
            rest.set(rest_for(progress.in_flight, answers, now - self.looked));
        }
        self.looked = now;
        self.next_look = now + LOOK_PERIOD;
    }
}

/// Returns the pause of a closed loop: a part of the latency, which follows from requests in flight and responses per time
/// (Little's law).
fn rest_for(in_flight: u64, answers: u64, elapsed: Duration) -> Duration {
    let in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
    let answers = u32::try_from(answers).unwrap_or(u32::MAX).max(1);
    let latency = elapsed.saturating_mul(in_flight) / answers;
    (latency / REST_PART).clamp(REST_MIN, REST_MAX)
}

impl App for Shown {
    #[inline]
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        self.client.handle_event(now, endpoint, event);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let client = self.client.poll_timeout();
        Some(client.map_or(self.next_look, |client| client.min(self.next_look)))
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.client.handle_timeout(now, endpoint);
        if self.next_look <= now {
            self.look(now);
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.client.handle_shutdown(now, endpoint);
    }

    fn is_finished(&self) -> bool {
        self.client.is_finished()
    }
}

impl Surroundings {
    /// Binds the sockets of a thread whose server is at `remote`.
    pub(super) fn bind(&self, remote: SocketAddr) -> anyhow::Result<Vec<UdpSocket>> {
        let local = event_loop::local_address(remote);
        let config = SocketConfig {
            buffer_bytes: BUFFER_BYTES,
            offload: self.offload,
        };
        (0..self.sockets)
            .map(|_| event_loop::bind(local, config))
            .collect()
    }
}

impl Hosted {
    /// Starts a thread with `client`, whose server is at `remote`.
    pub(super) fn start(
        client: Client,
        remote: SocketAddr,
        surroundings: Surroundings,
        qlog: Option<Qlog>,
        stop: &Stop,
    ) -> anyhow::Result<Self> {
        let sockets = surroundings.bind(remote)?;
        let rest = surroundings.rests.then(|| ReceivePause::new(REST_MIN));
        let endpoint = EndpointConfig {
            packets: surroundings.packets,
            qlog,
            ..event_loop::endpoint(transport_limits(surroundings.idle_timeout))?
        };
        let mut event_loop = EventLoop::new(sockets, endpoint, stop.clone())?;
        event_loop.core = surroundings.core;
        event_loop.config = HostConfig {
            // The client keeps no data of responses.
            lends_buffers: true,
            ..HostConfig::default()
        };
        event_loop.receive_pause.clone_from(&rest);
        let telemetry = Arc::clone(&event_loop.telemetry);
        let seen = Arc::new(Mutex::new(Progress::default()));
        let now = clock::now();
        let shown = Shown {
            client,
            seen: Arc::clone(&seen),
            looked: now,
            next_look: now,
            rest,
        };
        Ok(Self {
            thread: event_loop.start("weir-h3-load", shown)?,
            seen,
            telemetry,
        })
    }

    pub(super) fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    pub(super) fn progress(&self) -> Progress {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the thread. Returns its client, its telemetry, and the number of Retry packets received.
    pub(super) fn join(self) -> anyhow::Result<(Client, Arc<Telemetry>, u64)> {
        let panicked = |_| anyhow!("a thread of the load client panicked");
        let (shown, counters) = self.thread.join().map_err(panicked)??;
        Ok((shown.client, self.telemetry, counters.retries_received))
    }
}

/// The pause of a closed loop is the latency divided by this number. On one machine, the server's CPU time includes each
/// wake-up of the client, so the client lets some packets gather. Measured latency is at most this part too high. The server
/// does not become idle: it has the other requests meanwhile.
const REST_PART: u32 = 8;
/// Shortest pause.
const REST_MIN: Duration = Duration::from_micros(100);
/// Longest pause: acknowledgements must not be late (RFC 9000 §13.2.1).
const REST_MAX: Duration = Duration::from_millis(1);
/// Time between two updates of the progress.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// Receive buffer of each socket, in bytes: holds what a server sends in some milliseconds.
const BUFFER_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_loop_rests_for_a_part_of_the_latency_within_bounds() {
        let elapsed = Duration::from_millis(20);
        // 500 answers in 20 ms with 100 in flight take 4 ms each.
        assert_eq!(rest_for(100, 500, elapsed), Duration::from_micros(500));
        assert_eq!(rest_for(1, 1000, elapsed), REST_MIN);
        assert_eq!(rest_for(0, 1000, elapsed), REST_MIN);
        assert_eq!(rest_for(100, 0, elapsed), REST_MAX, "nothing comes");
        assert_eq!(rest_for(u64::MAX, 1, Duration::MAX), REST_MAX);
    }
}
