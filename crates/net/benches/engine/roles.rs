//! The server that sends, and the clients that receive.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use weir_net::{Stop, clock};
use weir_quic::{App, ClientConfig, Endpoint, Event, Handle};

use crate::options::Options;

/// What the clients have received.
#[derive(Default)]
pub(crate) struct Tally {
    received: AtomicU64,
    lost: AtomicUsize,
}

/// The result.
pub(crate) struct Figures {
    /// CPU time of the server's thread.
    pub(crate) cpu: Duration,
    pub(crate) wall: Duration,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// Sends a datagram to each connection, on schedule.
pub(crate) struct Server {
    wanted: usize,
    seconds: Duration,
    payload: Bytes,
    connections: Vec<Handle>,
    tally: Arc<Tally>,
    stop: Stop,
    /// When the next datagrams are due.
    next: Instant,
    sent: u64,
    /// When to give up if connections are missing.
    come_by: Instant,
    phase: Phase,
}

#[derive(Clone, Copy)]
enum Phase {
    /// Waiting for all connections.
    Gathering,
    /// Sending, but not yet measuring.
    WarmingUp {
        until: Instant,
    },
    Measuring {
        start: Mark,
        until: Instant,
    },
    Done {
        figures: (Mark, Mark),
    },
}

/// All counters at one time.
#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    cpu: Duration,
    sent: u64,
    received: u64,
}

impl Server {
    pub(crate) fn new(options: &Options, tally: Arc<Tally>, stop: Stop) -> Self {
        let now = clock::now();
        Self {
            wanted: options.connections,
            seconds: options.seconds,
            payload: vec![7; options.bytes].into(),
            connections: Vec::new(),
            tally,
            stop,
            next: now,
            sent: 0,
            come_by: now + GATHERING_MAX,
            phase: Phase::Gathering,
        }
    }

    /// Returns the result.
    ///
    /// # Errors
    /// A connection failed, or nothing arrived.
    pub(crate) fn figures(&self) -> Result<Figures, String> {
        let Phase::Done {
            figures: (start, end),
        } = self.phase
        else {
            return Err(format!(
                "{} of {} connections came about",
                self.connections.len(),
                self.wanted
            ));
        };
        let lost = self.tally.lost.load(Ordering::Relaxed);
        if lost > 0 {
            return Err(format!("{lost} connections were lost"));
        }
        let figures = Figures {
            cpu: end.cpu.saturating_sub(start.cpu),
            wall: end.at.duration_since(start.at),
            sent: end.sent - start.sent,
            received: end.received - start.received,
        };
        if figures.received == 0 {
            return Err("nothing arrived".into());
        }
        Ok(figures)
    }

    fn mark(&self, at: Instant) -> Mark {
        Mark {
            at,
            cpu: clock::thread_cpu(),
            sent: self.sent,
            received: self.tally.received.load(Ordering::Relaxed),
        }
    }

    fn send(&mut self, now: Instant, endpoint: &mut Endpoint) {
        for &handle in &self.connections {
            if let Some(mut connection) = endpoint.connection(now, handle) {
                let sent = connection.send_datagram(self.payload.clone(), None);
                self.sent += u64::from(sent.is_ok());
            }
        }
    }

    fn advance(&mut self, now: Instant) {
        match self.phase {
            Phase::Gathering if self.connections.len() == self.wanted => {
                let until = now + WARM_UP;
                self.phase = Phase::WarmingUp { until };
            }
            Phase::WarmingUp { until } if now >= until => {
                self.phase = Phase::Measuring {
                    start: self.mark(now),
                    until: now + self.seconds,
                };
            }
            Phase::Measuring { start, until } if now >= until => {
                let figures = (start, self.mark(now));
                self.phase = Phase::Done { figures };
                self.stop.request();
            }
            Phase::Gathering if now >= self.come_by => self.stop.request(),
            Phase::Gathering
            | Phase::WarmingUp { .. }
            | Phase::Measuring { .. }
            | Phase::Done { .. } => {}
        }
    }
}

impl App for Server {
    fn handle_event(&mut self, _: Instant, _: &mut Endpoint, event: Event) {
        if let Event::Connected { handle } = event {
            self.connections.push(handle);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if now < self.next {
            return;
        }
        self.next = (self.next + INTERVAL).max(now);
        self.advance(now);
        if !matches!(self.phase, Phase::Gathering) {
            self.send(now, endpoint);
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        endpoint.close_all(now, 0, b"");
        self.connections.clear();
    }

    fn is_finished(&self) -> bool {
        self.stop.is_requested() && self.connections.is_empty()
    }
}

/// Connect, and count what arrives.
pub(crate) struct Clients {
    server: SocketAddr,
    config: ClientConfig,
    left: usize,
    open: usize,
    next: Instant,
    is_leaving: bool,
    tally: Arc<Tally>,
}

impl Clients {
    pub(crate) fn new(
        server: SocketAddr,
        config: ClientConfig,
        count: usize,
        tally: Arc<Tally>,
    ) -> Self {
        Self {
            server,
            config,
            left: count,
            open: 0,
            next: clock::now(),
            is_leaving: false,
            tally,
        }
    }
}

impl App for Clients {
    fn handle_event(&mut self, _: Instant, _: &mut Endpoint, event: Event) {
        match event {
            Event::Datagram { .. } => {
                self.tally.received.fetch_add(1, Ordering::Relaxed);
            }
            Event::Lost { .. } => {
                self.open = self.open.saturating_sub(1);
                if !self.is_leaving {
                    self.tally.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            Event::Connected { .. }
            | Event::Opened { .. }
            | Event::Readable { .. }
            | Event::Writable { .. }
            | Event::Stopped { .. }
            | Event::Finished { .. }
            | Event::StreamsAvailable { .. } => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (self.left > 0).then_some(self.next)
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if now < self.next || self.left == 0 {
            return;
        }
        self.next = now + INTERVAL;
        for _ in 0..self.left.min(EACH_TURN) {
            let (server, config) = (self.server, &self.config);
            if endpoint
                .connect(now, config, server, "localhost", 0)
                .is_ok()
            {
                self.open += 1;
                self.left -= 1;
            }
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.is_leaving = true;
        self.left = 0;
        endpoint.close_all(now, 0, b"");
        self.open = 0;
    }

    fn is_finished(&self) -> bool {
        self.is_leaving && self.open == 0
    }
}

/// The ALPN protocol of both sides.
pub(crate) const PROTOCOL: &str = "weir-engine";
/// The interval between datagrams of a connection, as in the audio profile.
pub(crate) const INTERVAL: Duration = Duration::from_millis(20);
/// The pause after a turn, the relay's default.
pub(crate) const REST: Duration = Duration::from_micros(500);
/// Connections opened in one turn.
const EACH_TURN: usize = 10;
/// How long to send before measuring.
const WARM_UP: Duration = Duration::from_secs(2);
/// The time for all clients to connect.
const GATHERING_MAX: Duration = Duration::from_mins(1);
