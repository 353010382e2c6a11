//! What a datagram costs at the very least on this machine: one `sendmmsg` per 64 packets and one
//! AES-128-GCM seal per packet, nothing else. The relay's cost per delivered datagram is judged by
//! its multiple of this.
//!
//! ```text
//! cargo bench -p weir-net --bench floor -- [--bytes N] [--destinations N] [--seconds S]
//!     [--rounds N] [--core N] [--json]
//! ```
//!
//! All cases run once per round, so that a noisy minute spoils a round and not a case. The figures
//! are CPU time of the one sending thread, which on the loopback interface includes the kernel's
//! receive path. There are two kinds of receivers: *unread*, as many sockets as destinations, whose
//! queues are full, so that the kernel drops each packet at the last moment (the cheapest way a
//! packet can end); and *drained*, one socket that a thread on another core empties, as the load
//! generator does, before the next batch comes. The floor is sealing and sending to unread sockets.

#![expect(unsafe_code, reason = "the raw system calls are what is measured here")]
#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a program that prints figures"
)]

use std::{
    error::Error,
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::{AsRawFd as _, RawFd},
    ptr,
    str::FromStr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use weir_net::{clock, pin_to_core, raise_open_files_limit};

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::from_arguments(std::env::args().skip(1))?;
    raise_open_files_limit()?;
    let reader = bind()?;
    reader.set_read_timeout(Some(READ_TIMEOUT))?;
    let reader_core = (options.core + 1) % thread::available_parallelism()?.get();
    let is_done = AtomicBool::new(false);
    let received = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            // A machine that refuses still gives figures, only noisier ones.
            pin_to_core(reader_core).ok();
            drain(&reader, &is_done, &received);
        });
        let result = pin_to_core(options.core)
            .map_err(Into::into)
            .and_then(|()| measure_all(&options, &reader, &received));
        is_done.store(true, Ordering::Relaxed);
        let cases = result?;
        if options.json {
            print_json(&options, &cases);
        } else {
            print_table(&options, &cases);
        }
        Ok(())
    })
}

fn measure_all(
    options: &Options,
    reader: &UdpSocket,
    received: &AtomicU64,
) -> Result<Vec<Figures>, Box<dyn Error>> {
    let unread = (0..options.destinations)
        .map(|_| bind())
        .collect::<io::Result<Vec<_>>>()?;
    for socket in &unread {
        shrink_receive_buffer(socket)?;
    }
    let mut sender = Sender::new(options, &unread, reader, received)?;
    let mut cases: Vec<Figures> = Case::ALL.map(Figures::new).into();
    for figures in &cases {
        sender.run(figures.case, options.seconds.min(WARM_UP))?;
    }
    for _ in 0..options.rounds {
        for figures in &mut cases {
            let run = sender.run(figures.case, options.seconds)?;
            figures.nanoseconds.push(run.nanoseconds_per_packet());
            figures.core_share.push(run.core_share());
            figures.packets += run.packets;
            figures.unread += run.unread;
        }
    }
    for figures in &mut cases {
        figures.nanoseconds.sort_by(f64::total_cmp);
        figures.core_share.sort_by(f64::total_cmp);
    }
    Ok(cases)
}

/// What is done with each packet.
#[derive(Clone, Copy, PartialEq)]
struct Case {
    /// As it stands in the output.
    name: &'static str,
    seal: bool,
    send: Option<Receivers>,
}

#[derive(Clone, Copy, PartialEq)]
enum Receivers {
    /// Many, whose queues are full.
    Unread,
    /// One, emptied by another thread.
    Drained,
}

impl Case {
    const ALL: [Self; 5] = [
        Self::new("sendmmsg, unread", false, Some(Receivers::Unread)),
        Self::new("sendmmsg, drained", false, Some(Receivers::Drained)),
        Self::new("seal", true, None),
        Self::FLOOR,
        Self::new("seal + sendmmsg, drained", true, Some(Receivers::Drained)),
    ];

    /// The case that others are divided by.
    const FLOOR: Self = Self::new("seal + sendmmsg, unread", true, Some(Receivers::Unread));

    const fn new(name: &'static str, seal: bool, send: Option<Receivers>) -> Self {
        Self { name, seal, send }
    }
}

/// The figures of one case, one entry per round, in ascending order at the end.
struct Figures {
    case: Case,
    nanoseconds: Vec<f64>,
    core_share: Vec<f64>,
    packets: u64,
    /// Packets that the draining thread should have taken and has not.
    unread: u64,
}

impl Figures {
    fn new(case: Case) -> Self {
        Self {
            case,
            nanoseconds: Vec::new(),
            core_share: Vec::new(),
            packets: 0,
            unread: 0,
        }
    }

    fn lowest(&self) -> f64 {
        self.nanoseconds[0]
    }

    fn median(&self) -> f64 {
        self.nanoseconds[self.nanoseconds.len() / 2]
    }

    fn highest(&self) -> f64 {
        self.nanoseconds[self.nanoseconds.len() - 1]
    }

    /// The lowest share of the core in any round.
    fn core_share(&self) -> f64 {
        self.core_share[0]
    }
}

/// One measurement.
struct Run {
    packets: u64,
    /// Packets that the draining thread did not take within its time.
    unread: u64,
    /// CPU time spent on the packets.
    work: Duration,
    /// CPU time of the thread, waiting for the draining thread included.
    cpu: Duration,
    wall: Duration,
}

impl Run {
    fn nanoseconds_per_packet(&self) -> f64 {
        self.work.as_secs_f64() * 1e9 / self.packets as f64
    }

    /// The share of the time in which this thread, and nobody else, had the core.
    fn core_share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64()
    }
}

/// Seals and sends batches, round and round over the destinations.
struct Sender<'a> {
    socket: UdpSocket,
    unread: Vec<libc::sockaddr_in>,
    drained: libc::sockaddr_in,
    /// Packets that the draining thread has taken.
    received: &'a AtomicU64,
    keys: Vec<LessSafeKey>,
    packets: Vec<Vec<u8>>,
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    /// Number of the next packet; its remainder by the number of destinations is the destination.
    next: u64,
}

impl<'a> Sender<'a> {
    fn new(
        options: &Options,
        unread: &[UdpSocket],
        reader: &UdpSocket,
        received: &'a AtomicU64,
    ) -> Result<Self, Box<dyn Error>> {
        let unread = unread.iter().map(name).collect::<io::Result<Vec<_>>>()?;
        let keys = (0..options.destinations)
            .map(|index| {
                let mut key = [0x5a; 16];
                key[..8].copy_from_slice(&index.to_be_bytes());
                UnboundKey::new(&AES_128_GCM, &key).map(LessSafeKey::new)
            })
            .collect::<Result<_, _>>()?;
        let header = libc::mmsghdr {
            msg_hdr: libc::msghdr {
                msg_name: ptr::null_mut(),
                msg_namelen: u32::try_from(size_of::<libc::sockaddr_in>())?,
                msg_iov: ptr::null_mut(),
                msg_iovlen: 1,
                msg_control: ptr::null_mut(),
                msg_controllen: 0,
                msg_flags: 0,
            },
            msg_len: 0,
        };
        let vector = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        Ok(Self {
            socket: bind()?,
            unread,
            drained: name(reader)?,
            received,
            keys,
            packets: vec![vec![0; options.bytes]; BATCH],
            headers: vec![header; BATCH],
            vectors: vec![vector; BATCH],
            next: 0,
        })
    }

    /// Repeats one case until it has used `limit` of CPU time.
    fn run(&mut self, case: Case, limit: Duration) -> Result<Run, Box<dyn Error>> {
        let is_drained = case.send == Some(Receivers::Drained);
        let batches = if is_drained { 1 } else { BATCHES_PER_LOOK };
        let wall_start = clock::now();
        let cpu_start = clock::thread_cpu();
        let mut run = Run {
            packets: 0,
            unread: 0,
            work: Duration::ZERO,
            cpu: Duration::ZERO,
            wall: Duration::ZERO,
        };
        while run.work < limit {
            let received = self.received.load(Ordering::Relaxed);
            let work_start = clock::thread_cpu();
            let mut packets = 0;
            for _ in 0..batches {
                packets += self.batch(case)?;
            }
            run.work += clock::thread_cpu().saturating_sub(work_start);
            run.packets += packets;
            if is_drained {
                run.unread += self.wait_for_reader(received + packets);
            }
        }
        run.cpu = clock::thread_cpu().saturating_sub(cpu_start);
        run.wall = clock::now().duration_since(wall_start);
        Ok(run)
    }

    /// Waits until the draining thread has taken `target` packets in all; returns how many it has not
    /// taken after a generous time.
    fn wait_for_reader(&self, target: u64) -> u64 {
        let deadline = clock::now() + READ_TIMEOUT;
        loop {
            let missing = target.saturating_sub(self.received.load(Ordering::Relaxed));
            if missing == 0 || clock::now() > deadline {
                return missing;
            }
            thread::yield_now();
        }
    }

    fn batch(&mut self, case: Case) -> Result<u64, Box<dyn Error>> {
        if case.seal {
            self.seal()?;
        }
        let count = match case.send {
            Some(receivers) => self.send(receivers)?,
            None => BATCH,
        };
        let count = u64::try_from(count)?;
        self.next += count;
        Ok(count)
    }

    /// Seals one packet for each of the next destinations, each with its own key.
    fn seal(&mut self) -> Result<(), Box<dyn Error>> {
        for (number, packet) in (self.next..).zip(&mut self.packets) {
            let key = &self.keys[usize::try_from(number)? % self.keys.len()];
            let mut nonce = [0; 12];
            nonce[4..].copy_from_slice(&number.to_be_bytes());
            let (header, rest) = packet.split_at_mut(HEADER_BYTES);
            let (payload, tag) = rest.split_at_mut(rest.len() - TAG_BYTES);
            let sealed = key.seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(&*header),
                payload,
            )?;
            tag.copy_from_slice(sealed.as_ref());
        }
        Ok(())
    }

    /// Sends one batch; returns how many packets the system took.
    fn send(&mut self, receivers: Receivers) -> Result<usize, Box<dyn Error>> {
        for index in 0..BATCH {
            let name = match receivers {
                Receivers::Unread => {
                    let number = usize::try_from(self.next)? + index;
                    let count = self.unread.len();
                    &mut self.unread[number % count]
                }
                Receivers::Drained => &mut self.drained,
            };
            let packet = &mut self.packets[index];
            self.vectors[index] = libc::iovec {
                iov_base: packet.as_mut_ptr().cast(),
                iov_len: packet.len(),
            };
            let header = &mut self.headers[index].msg_hdr;
            header.msg_name = ptr::from_mut(name).cast();
            header.msg_iov = ptr::from_mut(&mut self.vectors[index]);
        }
        // SAFETY: BATCH headers, each with one vector, its data and a name, all of them in `self`.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                u32::try_from(BATCH)?,
                0,
            )
        };
        Ok(usize::try_from(sent).map_err(|_| io::Error::last_os_error())?)
    }
}

/// Takes packets off a socket and counts them, until told to stop.
fn drain(socket: &UdpSocket, is_done: &AtomicBool, received: &AtomicU64) {
    let mut buffers = vec![[0_u8; PACKET_BYTES_MAX]; BATCH];
    let mut vectors: Vec<libc::iovec> = buffers
        .iter_mut()
        .map(|buffer| libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        })
        .collect();
    let mut headers: Vec<libc::mmsghdr> = vectors
        .iter_mut()
        .map(|vector| libc::mmsghdr {
            msg_hdr: libc::msghdr {
                msg_name: ptr::null_mut(),
                msg_namelen: 0,
                msg_iov: ptr::from_mut(vector),
                msg_iovlen: 1,
                msg_control: ptr::null_mut(),
                msg_controllen: 0,
                msg_flags: 0,
            },
            msg_len: 0,
        })
        .collect();
    while !is_done.load(Ordering::Relaxed) {
        let count = receive(socket.as_raw_fd(), &mut headers);
        received.fetch_add(count, Ordering::Relaxed);
    }
}

/// Waits for packets until the socket's time-out; returns how many came.
fn receive(socket: RawFd, headers: &mut [libc::mmsghdr]) -> u64 {
    let count = u32::try_from(headers.len()).unwrap_or(0);
    // SAFETY: `count` headers, each with one vector over a buffer that lives in the caller, `drain`.
    let received = unsafe {
        libc::recvmmsg(
            socket,
            headers.as_mut_ptr(),
            count,
            libc::MSG_WAITFORONE,
            ptr::null_mut(),
        )
    };
    u64::try_from(received).unwrap_or(0)
}

fn bind() -> io::Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
}

/// The socket's own address, as others name it.
fn name(socket: &UdpSocket) -> io::Result<libc::sockaddr_in> {
    let SocketAddr::V4(address) = socket.local_addr()? else {
        return Err(io::Error::other("a socket bound to 127.0.0.1 is IPv4"));
    };
    Ok(libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).map_err(io::Error::other)?,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.ip().octets()),
        },
        sin_zero: [0; 8],
    })
}

/// Lets a socket hold a few packets only, so that its queue is full at once.
fn shrink_receive_buffer(socket: &UdpSocket) -> io::Result<()> {
    let size: libc::c_int = 1;
    let size_bytes = libc::socklen_t::try_from(size_of_val(&size)).map_err(io::Error::other)?;
    // SAFETY: passes a pointer to a live integer and its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            ptr::from_ref(&size).cast(),
            size_bytes,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn print_table(options: &Options, cases: &[Figures]) {
    let Options {
        bytes,
        destinations,
        rounds,
        core,
        ..
    } = options;
    println!(
        "{bytes} bytes of UDP payload, {destinations} destinations and keys, {rounds} rounds of \
         {:.1} s per case, on core {core}",
        options.seconds.as_secs_f64(),
    );
    println!("CPU time of the sending thread, ns per packet:\n");
    println!("  {:<26}  median  lowest  highest", "");
    for figures in cases {
        println!(
            "  {:<26}  {:>6.0}  {:>6.0}  {:>7.0}",
            figures.case.name,
            figures.median(),
            figures.lowest(),
            figures.highest(),
        );
        if figures.unread > 0 {
            println!("    {} of these packets were dropped", figures.unread);
        }
    }
    println!("\nfloor: {:.0} ns per datagram", floor(cases));
    let core_share = core_share(cases);
    println!(
        "the core was this program's for at least {:.0} % of each measurement{}",
        core_share * 100.0,
        if core_share < QUIET_CORE_SHARE {
            ": the machine was not quiet"
        } else {
            ""
        }
    );
}

fn print_json(options: &Options, cases: &[Figures]) {
    let cases_json: Vec<String> = cases
        .iter()
        .map(|figures| {
            format!(
                r#"{{"case":"{}","median_ns":{:.1},"lowest_ns":{:.1},"highest_ns":{:.1},"packets":{},"dropped":{}}}"#,
                figures.case.name,
                figures.median(),
                figures.lowest(),
                figures.highest(),
                figures.packets,
                figures.unread,
            )
        })
        .collect();
    println!(
        r#"{{"floor_ns":{:.1},"bytes":{},"destinations":{},"rounds":{},"seconds":{},"core":{},"core_share":{:.3},"cases":[{}]}}"#,
        floor(cases),
        options.bytes,
        options.destinations,
        options.rounds,
        options.seconds.as_secs_f64(),
        options.core,
        core_share(cases),
        cases_json.join(","),
    );
}

/// The median of the case that others are divided by, in ns.
fn floor(cases: &[Figures]) -> f64 {
    let floor = cases.iter().find(|figures| figures.case == Case::FLOOR);
    floor.expect("the floor is one of the cases").median()
}

/// The lowest share of the core in any measurement.
fn core_share(cases: &[Figures]) -> f64 {
    cases
        .iter()
        .map(Figures::core_share)
        .fold(1.0, |lowest, share| share.min(lowest))
}

struct Options {
    /// UDP payload of a packet: header, sealed payload and tag.
    bytes: usize,
    destinations: usize,
    /// CPU time of one measurement.
    seconds: Duration,
    rounds: usize,
    core: usize,
    json: bool,
}

impl Options {
    fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            bytes: 160,
            destinations: 1000,
            seconds: Duration::from_millis(400),
            rounds: 9,
            core: 0,
            json: false,
        };
        while let Some(name) = arguments.next() {
            let value = &mut arguments;
            match name.as_str() {
                "--bytes" => options.bytes = number(&name, value)?,
                "--destinations" => options.destinations = number(&name, value)?,
                "--rounds" => options.rounds = number(&name, value)?,
                "--core" => options.core = number(&name, value)?,
                "--seconds" => {
                    options.seconds = Duration::try_from_secs_f64(number(&name, value)?)
                        .map_err(|error| format!("--seconds: {error}"))?;
                }
                "--json" => options.json = true,
                // Cargo passes this to every benchmark.
                "--bench" => {}
                _ => return Err(format!("unknown argument: {name}")),
            }
        }
        options.check()
    }

    fn check(self) -> Result<Self, String> {
        if !(PACKET_BYTES_MIN..=PACKET_BYTES_MAX).contains(&self.bytes) {
            return Err(format!(
                "--bytes: expected {PACKET_BYTES_MIN} to {PACKET_BYTES_MAX}"
            ));
        }
        if self.destinations == 0 || self.rounds == 0 || self.seconds.is_zero() {
            return Err("--destinations, --rounds and --seconds: expected more than zero".into());
        }
        Ok(self)
    }
}

fn number<T: FromStr>(
    name: &str,
    arguments: &mut impl Iterator<Item = String>,
) -> Result<T, String> {
    let value = arguments.next().and_then(|value| value.parse().ok());
    value.ok_or_else(|| format!("{name}: expected a number"))
}

/// Packets in one system call, as the host sends them.
const BATCH: usize = 64;
/// Batches between two looks at the clock, which is itself a system call.
const BATCHES_PER_LOOK: usize = 16;
/// A QUIC short header: flags, a connection ID of 8 bytes, a packet number of 2.
const HEADER_BYTES: usize = 11;
/// The authentication tag of AES-128-GCM.
const TAG_BYTES: usize = 16;
const PACKET_BYTES_MIN: usize = HEADER_BYTES + TAG_BYTES + 1;
const PACKET_BYTES_MAX: usize = 1472;
/// CPU time of each case before the first round: fills the queues and the caches.
const WARM_UP: Duration = Duration::from_millis(100);
/// How long the draining thread goes without a look at its stop flag, and how long it is waited for.
const READ_TIMEOUT: Duration = Duration::from_millis(50);
/// Below this share of the core, someone else was running on it.
const QUIET_CORE_SHARE: f64 = 0.97;
