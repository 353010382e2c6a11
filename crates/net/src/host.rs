//! The event loop: sockets, one endpoint, one role, one thread.

use std::{
    io,
    os::fd::RawFd,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use weir_quic::{App, EcnCodepoint, Endpoint, ThreadMessage};

use crate::{
    ReceivePause, Stop, Telemetry, ThreadChannels, UdpSocket, Waker, clock,
    receive_arena::ReceiveArena,
    send_delay::{Hold, SendDelays},
    sending::{push, send_batch},
    sys::{self, BATCH, Poller, ReceiveBatch, SendMemory},
};

/// The configuration of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// The pause after a turn that received something. Packets that arrive in a pause are handled together: a burst, or
    /// the acknowledgements of one, then costs one or two wake-ups instead of one for every few packets. On a single
    /// machine the sender pays for waking the receiver. A packet that arrives after a pause is handled at once, so the
    /// first packet of a burst never waits. The others wait at most for this long. Zero: no pause.
    pub receive_pause: Duration,
    /// Whether long trains of packets are passed on in their receive buffers instead of being copied. For roles that
    /// drop what they read: keeping any part of such a train keeps 64 KiB.
    pub lends_buffers: bool,
    /// How long a role may take to close its sessions after a request to stop. Then the host returns in any case.
    pub shutdown_limit: Duration,
}

/// Messages of the last read that are not handed on yet.
#[derive(Clone, Copy, Debug)]
struct Unread {
    socket: u32,
    /// Number of the first one.
    next: usize,
    /// Number of all messages that were read.
    count: usize,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            receive_pause: Duration::ZERO,
            lends_buffers: false,
            shutdown_limit: Duration::from_secs(5),
        }
    }
}

/// Sockets and an endpoint, ready to run a role on the calling thread.
pub struct Host {
    config: HostConfig,
    sockets: Vec<UdpSocket>,
    /// Finds readable sockets, if there are several.
    poller: Option<Poller>,
    endpoint: Endpoint,
    receive: ReceiveBatch,
    /// What the last read returned and was not handed on, since the turn's time to read was over.
    unread: Option<Unread>,
    send: SendMemory,
    /// Packets that leave later.
    send_delays: Option<SendDelays>,
    /// The memory that received packets are copied to.
    arena: ReceiveArena,
    ready: Vec<u32>,
    telemetry: Arc<Telemetry>,
    stop: Stop,
    /// Lets another thread wake the host for its role.
    waker: Option<Waker>,
    /// Replaces the configured pause.
    receive_pause: Option<ReceivePause>,
    reported: Instant,
    /// The number of packets read in this turn, and when the first was read.
    arrived: (u64, Option<Instant>),
    /// Channels to and from the threads that share the address.
    peer_threads: Option<ThreadChannels<ThreadMessage>>,
    /// Whether a channel was too full for all messages of the last turn.
    has_backlog: bool,
}

impl Host {
    /// Returns a host for `endpoint` on `sockets`, of which there is at least one. A socket's number is its index.
    pub fn new(
        config: HostConfig,
        sockets: Vec<UdpSocket>,
        endpoint: Endpoint,
        telemetry: Arc<Telemetry>,
        stop: Stop,
    ) -> io::Result<Self> {
        assert!(!sockets.is_empty(), "a host needs a socket");
        let poller = if sockets.len() > 1 {
            let poller = Poller::new()?;
            for (key, socket) in (0_u32..).zip(&sockets) {
                poller.add(socket.descriptor(), key)?;
            }
            Some(poller)
        } else {
            None
        };
        Ok(Self {
            config,
            sockets,
            poller,
            endpoint,
            receive: ReceiveBatch::new(),
            unread: None,
            send: SendMemory::new(),
            send_delays: None,
            arena: ReceiveArena::default(),
            ready: Vec::new(),
            telemetry,
            stop,
            waker: None,
            receive_pause: None,
            reported: clock::now(),
            arrived: (0, None),
            peer_threads: None,
            has_backlog: false,
        })
    }

    /// Connects the endpoint to its peer threads. Channels have the numbers of the endpoints.
    #[must_use]
    pub fn with_thread_channels(mut self, channels: ThreadChannels<ThreadMessage>) -> Self {
        self.peer_threads = Some(channels);
        self
    }

    /// Lets `waker` wake the host.
    #[must_use]
    pub fn with_waker(mut self, waker: Waker) -> Self {
        self.waker = Some(waker);
        self
    }

    /// Takes the length of each pause from `pause` instead of the configuration.
    #[must_use]
    pub fn with_receive_pause(mut self, pause: ReceivePause) -> Self {
        self.receive_pause = Some(pause);
        self
    }

    /// Lets the packets of each socket leave after a delay of its own, as if its path to the peers were longer. At most
    /// 65,536 packets wait at once; others are dropped and count as send errors. All leave when the host ends.
    #[must_use]
    pub fn with_send_delays(mut self, by_socket: Vec<Duration>) -> Self {
        self.send_delays = Some(SendDelays::new(by_socket));
        self
    }

    /// Runs `app` until it is finished, or until [`HostConfig::shutdown_limit`] has passed after a request to stop.
    ///
    /// # Errors
    /// A socket failed permanently.
    pub fn run(&mut self, app: &mut dyn App) -> io::Result<()> {
        let mut leave_by = None;
        loop {
            let now = clock::now();
            if leave_by.is_none() && self.stop.is_requested() {
                leave_by = Some(now + self.config.shutdown_limit);
                app.handle_shutdown(now, &mut self.endpoint);
            }
            let received = self.turn(now, app)?;
            if app.is_finished() || leave_by.is_some_and(|limit| now >= limit) {
                self.send_delayed(None)?;
                self.report(clock::now(), true);
                return Ok(());
            }
            if received < BATCH {
                self.wait(app, received, leave_by);
            }
        }
    }

    /// Returns the endpoint, for a role that starts connections before the loop runs.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Handles what is due. Returns how many messages the last read of the sockets returned; [`BATCH`] if there may be more, or if
    /// events are left.
    fn turn(&mut self, start: Instant, app: &mut dyn App) -> io::Result<usize> {
        let mut received = self.receive(start + READING_MAX, app)?;
        let now = clock::now();
        if self.receive_messages(now) {
            received = received.max(1);
        }
        self.endpoint.handle_timeout(now);
        self.tell(now, now + TELLING_MAX, app);
        if app.poll_timeout().is_some_and(|deadline| deadline <= now) {
            app.handle_timeout(now, &mut self.endpoint);
        }
        let mut has_sent = false;
        self.send_messages();
        loop {
            let more = self.endpoint.fill(now);
            has_sent |= self.flush(now)?;
            if !more {
                break;
            }
        }
        self.send_delayed(Some(now))?;
        let end = clock::now();
        self.telemetry.record_lag(end - start);
        if let (packets, Some(first)) = std::mem::take(&mut self.arrived)
            && has_sent
        {
            self.telemetry.record_forwarding(end - first, packets);
        }
        Telemetry::add(&self.telemetry.turns, 1);
        let nanos = u64::try_from((end - start).as_nanos()).unwrap_or(u64::MAX);
        Telemetry::add(&self.telemetry.turn_nanos, nanos);
        self.report(end, false);
        Ok(if self.endpoint.has_events() {
            BATCH
        } else {
            received
        })
    }

    /// Passes the endpoint's events to the role, a few at least, until `until`. The endpoint keeps the others.
    fn tell(&mut self, now: Instant, until: Instant, app: &mut dyn App) {
        while self.endpoint.pass_events(now, app) && clock::now() < until {}
    }

    /// Reads the sockets until `until`, so that outgoing packets and other peers do not wait for what one peer's packets
    /// cost, such as many handshakes at once. What is left comes first in the next turn.
    fn receive(&mut self, until: Instant, app: &mut dyn App) -> io::Result<usize> {
        if let Some(rest) = self.unread.take() {
            self.hand_on_all(rest, until, app);
            if self.unread.is_some() {
                return Ok(BATCH);
            }
        }
        let Some(poller) = &self.poller else {
            return self.receive_from(0, until, app);
        };
        let mut ready = std::mem::take(&mut self.ready);
        poller.ready(&mut ready);
        let mut most = 0;
        for key in ready.drain(..) {
            most = most.max(self.receive_from(key, until, app)?);
            if self.unread.is_some() || clock::now() >= until {
                // The other sockets stay readable.
                most = BATCH;
                break;
            }
        }
        self.ready = ready;
        Ok(most)
    }

    /// Reads one socket until `until`.
    fn receive_from(
        &mut self,
        socket: u32,
        until: Instant,
        app: &mut dyn App,
    ) -> io::Result<usize> {
        let fd = self.sockets[socket as usize].descriptor();
        loop {
            let count = self.receive.receive(fd)?;
            Telemetry::add(&self.telemetry.receive_calls, 1);
            if count > 0 {
                let read = Unread {
                    socket,
                    next: 0,
                    count,
                };
                self.hand_on_all(read, until, app);
            }
            if self.unread.is_some() {
                return Ok(BATCH);
            }
            if count < BATCH || clock::now() >= until {
                return Ok(count);
            }
        }
    }

    /// Passes messages to the endpoint, and its events to the role, with the time at which they were read or, for what an
    /// earlier turn left, are continued: no latency counts from before the arrival. Keeps those that are left at `until`.
    fn hand_on_all(&mut self, read: Unread, until: Instant, app: &mut dyn App) {
        let Unread {
            socket,
            mut next,
            count,
        } = read;
        let now = clock::now();
        let (mut packets, mut bytes) = (0, 0);
        while next < count {
            let end = count.min(next + MESSAGES_BETWEEN_LOOKS);
            for index in next..end {
                let (more_packets, more_bytes) = self.hand_on(now, socket, index);
                packets += more_packets;
                bytes += more_bytes;
            }
            next = end;
            if next < count && clock::now() >= until {
                self.unread = Some(Unread {
                    socket,
                    next,
                    count,
                });
                break;
            }
        }
        Telemetry::add(&self.telemetry.packets_received, packets);
        Telemetry::add(&self.telemetry.bytes_received, bytes);
        self.arrived.0 += packets;
        self.arrived.1.get_or_insert(now);
        self.tell(now, until, app);
    }

    /// Passes one message to the endpoint. Returns its packets and bytes.
    #[inline]
    fn hand_on(&mut self, now: Instant, socket: u32, index: usize) -> (u64, u64) {
        let Some(message) = self.receive.message(index) else {
            return (0, 0);
        };
        let (remote, local, segment_size) = (message.remote, message.local, message.segment_size);
        let ecn = EcnCodepoint::from_bits(message.tos & 0b11);
        let bytes = message.data.len();
        if self.config.lends_buffers && bytes >= LENT_BYTES_MIN {
            let mut train = self.receive.lend(index);
            while !train.is_empty() {
                let data = train.split_to(segment_size.min(train.len()));
                self.endpoint
                    .handle_packet(now, socket, remote, local, ecn, data);
            }
        } else {
            for segment in message.data.chunks(segment_size) {
                let data = self.arena.copy(segment);
                self.endpoint
                    .handle_packet(now, socket, remote, local, ecn, data);
            }
        }
        (bytes.div_ceil(segment_size) as u64, bytes as u64)
    }

    /// Receives messages from peer threads. Returns whether there were any.
    fn receive_messages(&mut self, now: Instant) -> bool {
        let Self {
            peer_threads,
            endpoint,
            ..
        } = self;
        let Some(channels) = peer_threads else {
            return false;
        };
        let mut count = 0;
        channels.collect(|peer, messages| {
            count += messages.len() as u64;
            endpoint.handle_messages(now, peer, messages);
        });
        Telemetry::add(&self.telemetry.messages_received, count);
        count > 0
    }

    /// Sends the endpoint's messages to peer threads.
    fn send_messages(&mut self) {
        let Self {
            peer_threads,
            endpoint,
            telemetry,
            has_backlog,
            ..
        } = self;
        let Some(channels) = peer_threads else {
            return;
        };
        *has_backlog = false;
        for peer in channels.others() {
            let messages = endpoint.messages_to(peer);
            if messages.is_empty() {
                continue;
            }
            let before = messages.len();
            if channels.send(peer, messages) {
                Telemetry::add(&telemetry.threads_woken, 1);
            }
            Telemetry::add(&telemetry.messages_sent, (before - messages.len()) as u64);
            if !messages.is_empty() {
                Telemetry::add(&telemetry.channels_full, 1);
                *has_backlog = true;
            }
        }
    }

    /// Sends the outbox. Returns whether it contained anything.
    fn flush(&mut self, now: Instant) -> io::Result<bool> {
        let Self {
            endpoint,
            send,
            send_delays,
            sockets,
            telemetry,
            ..
        } = self;
        let outbox = endpoint.outbox();
        if outbox.is_empty() {
            return Ok(false);
        }
        // One socket after the other, since each change costs a system call.
        if sockets.len() > 1 {
            outbox.group_by_socket();
        }
        let (mut packets, mut bytes) = (0, 0);
        let mut current = 0;
        let mut batch = send.batch();
        for packet in outbox.iter() {
            let delays = send_delays.as_mut();
            match delays.map_or(Hold::No, |delays| delays.hold(now, &packet)) {
                Hold::No => {}
                Hold::Waits => continue,
                Hold::Dropped => {
                    Telemetry::add(&telemetry.send_errors, 1);
                    continue;
                }
            }
            if packet.socket != current {
                send_batch(&mut sockets[current as usize], &mut batch, telemetry)?;
                current = packet.socket;
            }
            packets += push(
                &mut sockets[current as usize],
                &mut batch,
                telemetry,
                &packet,
            )?;
            bytes += packet.data.len() as u64;
        }
        send_batch(&mut sockets[current as usize], &mut batch, telemetry)?;
        outbox.clear();
        Telemetry::add(&telemetry.packets_sent, packets);
        Telemetry::add(&telemetry.bytes_sent, bytes);
        Ok(true)
    }

    /// Sends the packets whose delay is over at `now`; all of them with `None`.
    fn send_delayed(&mut self, now: Option<Instant>) -> io::Result<()> {
        let Self {
            send,
            send_delays,
            sockets,
            telemetry,
            ..
        } = self;
        let Some(delays) = send_delays else {
            return Ok(());
        };
        while let Some(waiting) = delays.take_due(now) {
            let (packet, socket) = (waiting.packet(), &mut sockets[waiting.socket as usize]);
            let mut batch = send.batch();
            let packets = push(socket, &mut batch, telemetry, &packet)?;
            send_batch(socket, &mut batch, telemetry)?;
            Telemetry::add(&telemetry.packets_sent, packets);
            Telemetry::add(&telemetry.bytes_sent, packet.data.len() as u64);
        }
        Ok(())
    }

    /// Sleeps until something arrives, a timer is due, or the host must stop. After a turn that received something,
    /// only pauses.
    fn wait(&mut self, app: &dyn App, received: usize, leave_by: Option<Instant>) {
        let backlog = self.has_backlog.then(|| clock::now() + BACKLOG_PAUSE);
        let deadlines = [
            self.endpoint.poll_timeout(),
            app.poll_timeout(),
            leave_by,
            backlog,
            self.send_delays.as_ref().and_then(SendDelays::poll_timeout),
        ];
        let deadline = deadlines.into_iter().flatten().min();
        let now = clock::now();
        let limit = deadline.map(|deadline| deadline.saturating_duration_since(now));
        if limit == Some(Duration::ZERO) {
            return;
        }
        let stop = self.stop.descriptor();
        let pause = self.receive_pause.as_ref();
        let pause = pause.map_or(self.config.receive_pause, ReceivePause::duration);
        if received > 0 && !pause.is_zero() && leave_by.is_none() {
            let pause = pause.min(limit.unwrap_or(pause));
            sys::wait_readable(&[stop], Some(pause));
            return;
        }
        let poller = self.poller.as_ref();
        let socket = poller.map_or_else(|| self.sockets[0].descriptor(), Poller::descriptor);
        // Once signalled, the stop descriptor stays readable.
        let stop = if leave_by.is_some() { NONE } else { stop };
        let waker = self.waker.as_ref().map_or(NONE, Waker::descriptor);
        match &self.peer_threads {
            None => {
                sys::wait_readable(&[socket, stop, waker], limit);
            }
            Some(channels) => channels
                .sleep(|messages| sys::wait_readable(&[socket, stop, waker, messages], limit)),
        }
        if let Some(waker) = &self.waker {
            waker.clear();
        }
        let woken = clock::now();
        let late = deadline.map(|deadline| woken.saturating_duration_since(deadline));
        if let Some(late) = late.filter(|late| !late.is_zero()) {
            self.telemetry.record_lag(late);
        }
    }

    /// Publishes the numbers that cost a system call, at intervals.
    fn report(&mut self, now: Instant, last: bool) {
        if !last && now.saturating_duration_since(self.reported) < REPORT_INTERVAL {
            return;
        }
        self.reported = now;
        let cpu = u64::try_from(clock::thread_cpu().as_nanos()).unwrap_or(u64::MAX);
        self.telemetry.cpu_nanos.store(cpu, Ordering::Relaxed);
        let drops = self
            .sockets
            .iter()
            .map(|socket| sys::receive_drops(socket.descriptor()))
            .sum();
        self.telemetry
            .receive_dropped
            .store(drops, Ordering::Relaxed);
    }
}

/// How long a turn reads before it sends. A batch of cheap packets takes less; a few handshakes, or responses of HTTP/3, more.
const READING_MAX: Duration = Duration::from_micros(500);
/// Messages that are handed on between two looks at the clock. As many handshakes take some milliseconds.
const MESSAGES_BETWEEN_LOOKS: usize = 8;
/// How long a turn passes events to the role, after it has read, before it sends and reads again. A fan-out of one object to a
/// thousand subscribers may take as long.
const TELLING_MAX: Duration = Duration::from_micros(500);
/// How long to wait before using a full channel again.
const BACKLOG_PAUSE: Duration = Duration::from_micros(500);
/// A placeholder for a descriptor that is not waited for.
const NONE: RawFd = -1;
/// Shorter messages are copied even if buffers are lent: copying them costs little, and lending could keep much.
const LENT_BYTES_MIN: usize = 8 << 10;
/// How often the numbers that cost a system call are published.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
