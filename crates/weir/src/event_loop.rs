//! Event loops on real sockets: one loop, or several that share an address.

use std::{
    iter,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use weir_net::{
    CHANNEL_ITEMS_MAX, Host, HostConfig, ReceivePause, SocketConfig, Stop, Telemetry,
    ThreadChannels, UdpSocket, Waker, clock::SystemClock, pin_to_core, thread_channels,
};
use weir_quic::{
    App, Counters, Endpoint, EndpointConfig, Limits, OriginCounts, Packets, Shard, ThreadMessage,
};

/// An event loop that is not running yet.
pub(crate) struct EventLoop {
    /// The core of the loop's thread; `None` for any.
    pub(crate) core: Option<usize>,
    pub(crate) config: HostConfig,
    pub(crate) telemetry: Arc<Telemetry>,
    /// Wakes the loop, in addition to packets and timers.
    pub(crate) waker: Option<Waker>,
    /// The pause between reads, instead of the configured one.
    pub(crate) receive_pause: Option<ReceivePause>,
    /// How much later the packets of each socket leave; empty: at once.
    pub(crate) send_delays: Vec<Duration>,
    sockets: Vec<UdpSocket>,
    endpoint: Endpoint,
    channels: Option<ThreadChannels<ThreadMessage>>,
    stop: Stop,
}

impl EventLoop {
    /// Returns a loop that runs on any core until `stop`.
    pub(crate) fn new(
        sockets: Vec<UdpSocket>,
        endpoint: EndpointConfig,
        stop: Stop,
    ) -> anyhow::Result<Self> {
        let segmentation_offload = sockets.iter().all(UdpSocket::has_segmentation);
        let endpoint = Endpoint::new(EndpointConfig {
            segmentation_offload,
            ..endpoint
        });
        let endpoint = endpoint.context("the QUIC endpoint cannot be made")?;
        Ok(Self::of(sockets, endpoint, None, stop))
    }

    fn of(
        sockets: Vec<UdpSocket>,
        endpoint: Endpoint,
        channels: Option<ThreadChannels<ThreadMessage>>,
        stop: Stop,
    ) -> Self {
        Self {
            core: None,
            config: HostConfig::default(),
            telemetry: Arc::default(),
            waker: None,
            receive_pause: None,
            send_delays: Vec::new(),
            sockets,
            endpoint,
            channels,
            stop,
        }
    }

    #[cfg(test)]
    pub(crate) fn sockets(&self) -> &[UdpSocket] {
        &self.sockets
    }

    /// Runs `app` on the calling thread until it is finished. Returns the endpoint's counters.
    pub(crate) fn run(self, app: &mut dyn App) -> anyhow::Result<Counters> {
        if let Some(core) = self.core {
            pin_to_core(core).with_context(|| format!("cannot run on core {core}"))?;
        }
        let mut host = Host::new(
            self.config,
            self.sockets,
            self.endpoint,
            self.telemetry,
            self.stop,
        )
        .context("cannot set up the event loop")?;
        if let Some(channels) = self.channels {
            host = host.with_thread_channels(channels);
        }
        if let Some(waker) = self.waker {
            host = host.with_waker(waker);
        }
        if let Some(pause) = self.receive_pause {
            host = host.with_receive_pause(pause);
        }
        if !self.send_delays.is_empty() {
            host = host.with_send_delays(self.send_delays);
        }
        host.run(app).context("the event loop failed")?;
        Ok(host.endpoint().counters())
    }

    /// Runs `app` on a new thread called `name`, which returns it.
    pub(crate) fn start<A: App + Send + 'static>(
        self,
        name: &str,
        app: A,
    ) -> anyhow::Result<LoopThread<A>> {
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || self.finish(app));
        thread.with_context(|| format!("cannot start the thread {name}"))
    }

    fn finish<A: App>(self, mut app: A) -> anyhow::Result<(A, Counters)> {
        let counters = self.run(&mut app)?;
        Ok((app, counters))
    }
}

/// A thread that runs a role, and returns it with the endpoint's counters.
pub(crate) type LoopThread<A> = JoinHandle<anyhow::Result<(A, Counters)>>;

/// Returns a loop for each of `sockets`, which share an address. `endpoint` returns the configuration of a loop's endpoint, by
/// its number; all endpoints have the same seed.
pub(crate) fn sharing_an_address(
    sockets: Vec<UdpSocket>,
    stop: &Stop,
    mut endpoint: impl FnMut(usize) -> anyhow::Result<EndpointConfig>,
) -> anyhow::Result<Vec<EventLoop>> {
    let threads = u16::try_from(sockets.len()).context("too many threads")?;
    let channels = thread_channels(threads, CHANNEL_ITEMS_MAX)
        .context("cannot make channels between threads")?;
    let seed = seed()?;
    let handshake_counts = OriginCounts::default();
    let parts = sockets.into_iter().zip(channels).zip(0..);
    let event_loop = |((socket, channels), number): ((UdpSocket, _), u16)| {
        let config = EndpointConfig {
            seed,
            segmentation_offload: socket.has_segmentation(),
            handshake_counts: handshake_counts.clone(),
            ..endpoint(number.into())?
        };
        let shard = Shard::new(number, threads).context("too many threads")?;
        let endpoint = Endpoint::with_shard(config, shard);
        let endpoint = endpoint.context("the QUIC endpoint cannot be made")?;
        // A single thread needs no channels.
        let channels = (threads > 1).then_some(channels);
        Ok(EventLoop::of(
            vec![socket],
            endpoint,
            channels,
            stop.clone(),
        ))
    };
    parts.map(event_loop).collect()
}

/// Runs several loops, each with its role, the first on the calling thread. Returns all roles with their endpoints' counters.
/// The end of one loop, by success or failure, stops the others.
pub(crate) fn serve<A: App + Send>(
    name: &str,
    members: Vec<(EventLoop, A)>,
    stop: &Stop,
) -> anyhow::Result<Vec<(A, Counters)>> {
    let run = |(event_loop, app): (EventLoop, A)| {
        let _leave = StopOnLeave(stop);
        event_loop.finish(app)
    };
    let mut members = members.into_iter();
    let first = members.next().context("a server has a thread")?;
    thread::scope(|scope| {
        let start = |(member, number)| {
            let name = format!("{name}-{number}");
            let thread = thread::Builder::new().name(name.clone());
            let thread = thread.spawn_scoped(scope, move || run(member));
            thread.with_context(|| format!("cannot start the thread {name}"))
        };
        let others: anyhow::Result<Vec<_>> = members.zip(1..).map(start).collect();
        let others = others.inspect_err(|_| stop.request())?;
        let first = run(first);
        let others = others.into_iter().map(|thread| {
            let panicked = |_| anyhow!("a thread of the {name} panicked");
            thread.join().map_err(panicked)?
        });
        let all: Vec<_> = iter::once(first).chain(others).collect();
        all.into_iter().collect()
    })
}

/// Requests the stop of all loops on drop.
struct StopOnLeave<'a>(&'a Stop);

impl Drop for StopOnLeave<'_> {
    fn drop(&mut self) {
        self.0.request();
    }
}

/// Returns the configuration of an endpoint for clients, with a random seed.
pub(crate) fn endpoint(limits: Limits) -> anyhow::Result<EndpointConfig> {
    Ok(EndpointConfig {
        limits,
        server: None,
        seed: seed()?,
        time_source: Arc::new(SystemClock),
        qlog: None,
        packets: Packets::default(),
        segmentation_offload: false,
        handshake_counts: OriginCounts::default(),
    })
}

/// Returns a seed from the operating system's generator.
pub(crate) fn seed<const BYTES: usize>() -> anyhow::Result<[u8; BYTES]> {
    let mut seed = [0; BYTES];
    aws_lc_rs::rand::fill(&mut seed).map_err(|_| anyhow!("the system returns no random bytes"))?;
    Ok(seed)
}

/// Binds a socket to `address`.
pub(crate) fn bind(address: SocketAddr, config: SocketConfig) -> anyhow::Result<UdpSocket> {
    UdpSocket::bind(address, config).with_context(|| format!("cannot bind to {address}"))
}

/// Binds a socket for each of `threads` threads to the same `address`.
pub(crate) fn bind_group(
    address: SocketAddr,
    config: SocketConfig,
    threads: u16,
) -> anyhow::Result<Vec<UdpSocket>> {
    if threads == 1 {
        return Ok(vec![bind(address, config)?]);
    }
    let group = UdpSocket::bind_group(address, config, threads)
        .with_context(|| format!("cannot bind to {address}"))?;
    if let Err(error) = group.steering {
        tracing::warn!(%error, "the kernel cannot choose the thread of a packet (BPF): threads forward packets, which costs CPU time");
    }
    Ok(group.sockets)
}

/// Returns a local address that can reach `remote`, with port 0 (a free port).
pub(crate) fn local_address(remote: SocketAddr) -> SocketAddr {
    match remote {
        SocketAddr::V4(_) if remote.ip().is_loopback() => (Ipv4Addr::LOCALHOST, 0).into(),
        SocketAddr::V6(_) if remote.ip().is_loopback() => (Ipv6Addr::LOCALHOST, 0).into(),
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        time::Instant,
    };

    use weir_quic::Event;

    use super::*;

    /// A role that panics as soon as it runs, or runs until it is stopped.
    struct Fragile {
        panics: bool,
        /// When it runs.
        at: Option<Instant>,
        is_stopped: bool,
    }

    impl Fragile {
        fn new(panics: bool) -> Self {
            Self {
                panics,
                at: panics.then(weir_net::clock::now),
                is_stopped: false,
            }
        }
    }

    impl App for Fragile {
        fn handle_event(&mut self, _: Instant, _: &mut Endpoint, _: Event) {}

        fn poll_timeout(&self) -> Option<Instant> {
            self.at
        }

        fn handle_timeout(&mut self, _: Instant, _: &mut Endpoint) {
            assert!(!self.panics, "a test of panics");
        }

        fn handle_shutdown(&mut self, _: Instant, _: &mut Endpoint) {
            self.is_stopped = true;
        }

        fn is_finished(&self) -> bool {
            self.is_stopped
        }
    }

    /// Serves with two threads, of which one panics. Returns what came of it.
    fn serve_with_panic_in(number: usize) -> String {
        let stop = Stop::new().unwrap();
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let sockets = bind_group(address, SocketConfig::default(), 2).unwrap();
        let loops = sharing_an_address(sockets, &stop, |_| endpoint(Limits::default())).unwrap();
        let members = loops.into_iter().zip(0..);
        let members = members.map(|(it, place)| (it, Fragile::new(place == number)));
        let members = members.collect();
        match catch_unwind(AssertUnwindSafe(|| serve("relay", members, &stop))) {
            Ok(Ok(_)) => "success".to_owned(),
            Ok(Err(error)) => format!("error: {error}"),
            Err(panic) => format!("panic: {}", panic.downcast_ref().unwrap_or(&"")),
        }
    }

    #[test]
    fn a_panic_of_a_further_thread_stops_the_others_and_is_an_error() {
        let error = "error: a thread of the relay panicked";
        assert_eq!(serve_with_panic_in(1), error);
    }

    #[test]
    fn a_panic_of_the_first_thread_stops_the_others_and_goes_on() {
        assert_eq!(serve_with_panic_in(0), "panic: a test of panics");
    }
}
