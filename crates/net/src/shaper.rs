//! A slow link between real sockets: a UDP proxy that passes packets through a link emulator (`weir-link`) in real
//! time.
//!
//! Each client gets a socket of its own towards the target, so that the target can tell clients apart. All clients
//! share the two directions of one link. A shaper needs no privileges.

use std::{
    fmt, io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use weir_link::{Config, Link, Random, Rate, Stats};

use crate::{
    SocketConfig, Stop, Telemetry, UdpSocket, clock,
    sending::send_batch,
    sys::{self, BATCH, Outgoing, Poller, ReceiveBatch, SendMemory},
};

/// The configuration of a shaper.
#[derive(Clone, Debug)]
pub struct ShaperConfig {
    /// The address that clients send to. With port 0 the system chooses a port.
    pub listen: SocketAddr,
    /// The destination of clients' packets.
    pub target: SocketAddr,
    /// The link from clients to the target.
    pub up: Config,
    /// The link from the target to clients.
    pub down: Config,
    /// Changes of the rate of `down`, with their times since the start, in order.
    pub steps: Vec<(Duration, Rate)>,
    /// When the changes begin; `None` for the arrival of the first packet.
    pub start: Option<Instant>,
    /// The random seed.
    pub seed: u64,
    /// The most clients at one time. For a further client, the one that has been silent the longest is removed if it
    /// was silent for a minute. Otherwise the packets of the new client are dropped.
    pub clients_max: usize,
}

/// The report of a shaper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShaperReport {
    /// Counters of the link from clients to the target.
    pub up: Stats,
    /// Counters of the link from the target to clients.
    pub down: Stats,
    /// The number of clients.
    pub clients: u64,
    /// Packets of clients for which there was no room.
    pub packets_refused: u64,
    /// Packets for clients that had been removed.
    pub packets_orphaned: u64,
}

/// A shaper, ready to run on the calling thread.
pub struct Shaper {
    config: ShaperConfig,
    front: UdpSocket,
    clients: Vec<Client>,
    poller: Poller,
    up: Link<Parcel>,
    down: Link<Parcel>,
    /// The index of the next change of the rate.
    next_step: usize,
    telemetry: Telemetry,
    report: ShaperReport,
}

struct Client {
    /// The client's number, counted over all clients of the run.
    number: u64,
    address: SocketAddr,
    socket: UdpSocket,
    heard_at: Instant,
}

/// A packet on the link.
#[derive(Clone, Debug)]
struct Parcel {
    slot: usize,
    /// The number of its client.
    number: u64,
    tos: u8,
    data: Bytes,
}

impl fmt::Debug for Shaper {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Shaper")
            .field("config", &self.config)
            .field("clients", &self.clients.len())
            .finish_non_exhaustive()
    }
}

impl Shaper {
    /// Binds the address for clients.
    pub fn bind(config: ShaperConfig) -> io::Result<Self> {
        let front = UdpSocket::bind(config.listen, SOCKET)?;
        let poller = Poller::new()?;
        poller.add(front.descriptor(), FRONT)?;
        let now = clock::now();
        let mut random = Random::new(config.seed);
        let (up, down) = (random.next_u64(), random.next_u64());
        Ok(Self {
            front,
            clients: Vec::new(),
            poller,
            up: Link::new(now, config.up.clone(), up),
            down: Link::new(now, config.down.clone(), down),
            next_step: 0,
            telemetry: Telemetry::default(),
            report: ShaperReport::default(),
            config,
        })
    }

    /// Returns the address that clients send to.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.front.local_address()
    }

    /// Forwards packets until the request to stop.
    ///
    /// # Errors
    /// A socket failed permanently.
    pub fn run(&mut self, stop: &Stop) -> io::Result<ShaperReport> {
        let (mut receive, mut send) = (ReceiveBatch::new(), SendMemory::new());
        let mut ready = Vec::new();
        while !stop.is_requested() {
            self.poller.ready(&mut ready);
            for key in ready.drain(..) {
                self.read(key, &mut receive)?;
            }
            let now = clock::now();
            self.step(now);
            self.deliver(now, &mut send)?;
            let timeouts = [
                self.up.poll_timeout(),
                self.down.poll_timeout(),
                self.next_step_at(),
            ];
            let wait = timeouts.into_iter().flatten().min();
            let wait = wait.map(|at| at.saturating_duration_since(clock::now()));
            if wait != Some(Duration::ZERO) {
                sys::wait_readable(&[self.poller.descriptor(), stop.descriptor()], wait);
            }
        }
        self.report.up = self.up.stats();
        self.report.down = self.down.stats();
        Ok(self.report)
    }

    /// Returns when the rate changes next.
    fn next_step_at(&self) -> Option<Instant> {
        let (after, _) = self.config.steps.get(self.next_step)?;
        Some(self.config.start? + *after)
    }

    /// Applies the due changes of the rate, each at its own time.
    fn step(&mut self, now: Instant) {
        while let Some(at) = self.next_step_at().filter(|at| *at <= now) {
            let (_, rate) = self.config.steps[self.next_step].clone();
            self.down.set_rate(at, rate);
            self.next_step += 1;
        }
    }

    /// Reads the packets that arrived at a socket.
    fn read(&mut self, key: u32, receive: &mut ReceiveBatch) -> io::Result<()> {
        let slot = (key as usize).checked_sub(1);
        let socket = match slot {
            None => &self.front,
            Some(slot) => &self.clients[slot].socket,
        };
        let fd = socket.descriptor();
        let result = receive.receive(fd);
        let now = clock::now();
        for message in receive.iter() {
            let found = match slot {
                None => self.client(now, message.remote),
                // Only packets from the target are accepted.
                Some(slot) => (message.remote == self.config.target).then_some(slot),
            };
            let Some(found) = found else {
                self.report.packets_refused += 1;
                continue;
            };
            let parcel = Parcel {
                slot: found,
                number: self.clients[found].number,
                tos: message.tos,
                data: Bytes::copy_from_slice(message.data),
            };
            let bytes = message.data.len() + header_bytes(message.remote);
            if slot.is_none() {
                self.clients[found].heard_at = now;
                self.config.start.get_or_insert(now);
                self.up.handle_packet(now, parcel, bytes);
            } else {
                self.step(now);
                self.down.handle_packet(now, parcel, bytes);
            }
        }
        match result {
            Ok(_) => Ok(()),
            // An earlier packet found the target's port closed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the slot of a client, which may be new; `None` if there is no room.
    fn client(&mut self, now: Instant, address: SocketAddr) -> Option<usize> {
        let known = self.clients.iter();
        if let Some(slot) = known.clone().position(|client| client.address == address) {
            return Some(slot);
        }
        let mut local = self.config.target;
        local.set_port(0);
        local.set_ip(match (local.is_ipv4(), local.ip().is_loopback()) {
            (true, true) => std::net::Ipv4Addr::LOCALHOST.into(),
            (true, false) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            (false, true) => std::net::Ipv6Addr::LOCALHOST.into(),
            (false, false) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        });
        let is_full = self.clients.len() >= self.config.clients_max;
        let silent = known.enumerate().filter(|(_, client)| {
            is_full && now.saturating_duration_since(client.heard_at) >= FORGET_AFTER
        });
        let oldest = silent.min_by_key(|(_, client)| client.heard_at);
        let slot = match oldest {
            Some((slot, _)) => slot,
            None if is_full => return None,
            None => self.clients.len(),
        };
        let client = Client {
            number: self.report.clients,
            address,
            socket: UdpSocket::bind(local, SOCKET).ok()?,
            heard_at: now,
        };
        let key = u32::try_from(slot + 1).ok()?;
        self.poller.add(client.socket.descriptor(), key).ok()?;
        self.report.clients += 1;
        if slot < self.clients.len() {
            self.clients[slot] = client;
        } else {
            self.clients.push(client);
        }
        Some(slot)
    }

    /// Sends the packets that have passed the link.
    fn deliver(&mut self, now: Instant, send: &mut SendMemory) -> io::Result<()> {
        let Self {
            up,
            down,
            clients,
            front,
            telemetry,
            config,
            report,
            ..
        } = self;
        while let Some(parcel) = up.poll_packet(now) {
            let client = clients.get_mut(parcel.slot);
            match client.filter(|client| client.number == parcel.number) {
                Some(client) => {
                    let mut batch = send.batch();
                    batch.push(&outgoing(config.target, &parcel));
                    send_batch(&mut client.socket, &mut batch, telemetry)?;
                }
                None => report.packets_orphaned += 1,
            }
        }
        let mut parcels = Vec::new();
        loop {
            parcels.extend(std::iter::from_fn(|| down.poll_packet(now)).take(BATCH));
            if parcels.is_empty() {
                return Ok(());
            }
            let mut batch = send.batch();
            for parcel in &parcels {
                let client = clients.get(parcel.slot);
                match client.filter(|client| client.number == parcel.number) {
                    Some(client) => batch.push(&outgoing(client.address, parcel)),
                    None => report.packets_orphaned += 1,
                }
            }
            send_batch(front, &mut batch, telemetry)?;
            parcels.clear();
        }
    }
}

fn outgoing(destination: SocketAddr, parcel: &Parcel) -> Outgoing<'_> {
    Outgoing {
        destination,
        source: None,
        tos: Some(parcel.tos),
        segment_size: None,
        data: &parcel.data,
    }
}

/// Returns the bytes that IP and UDP add to a packet.
fn header_bytes(address: SocketAddr) -> usize {
    if address.is_ipv4() { 20 + 8 } else { 40 + 8 }
}

/// Packets one by one, as links expect them.
const SOCKET: SocketConfig = SocketConfig {
    buffer_bytes: 4 << 20,
    offload: false,
};
const FRONT: u32 = 0;
/// How long a client must be silent before another may replace it.
const FORGET_AFTER: Duration = Duration::from_mins(1);
