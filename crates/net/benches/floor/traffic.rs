//! The work that is measured: sealing packets and sending them in batches. Also the receivers.

#![expect(unsafe_code, reason = "the raw system calls are what is measured here")]

use std::{
    error::Error,
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::{AsRawFd as _, RawFd},
    ptr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use weir_net::clock;

use crate::options::Options;

/// The work on each packet.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Case {
    /// The name in the output.
    pub(crate) name: &'static str,
    pub(crate) seal: bool,
    pub(crate) send: Option<Receivers>,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Receivers {
    /// Many sockets, whose queues are full.
    Unread,
    /// One socket, emptied by another thread.
    Drained,
}

impl Case {
    pub(crate) const ALL: [Self; 5] = [
        Self::new("sendmmsg, unread", false, Some(Receivers::Unread)),
        Self::new("sendmmsg, drained", false, Some(Receivers::Drained)),
        Self::new("seal", true, None),
        Self::FLOOR,
        Self::new("seal + sendmmsg, drained", true, Some(Receivers::Drained)),
    ];

    /// The reference case.
    pub(crate) const FLOOR: Self =
        Self::new("seal + sendmmsg, unread", true, Some(Receivers::Unread));

    const fn new(name: &'static str, seal: bool, send: Option<Receivers>) -> Self {
        Self { name, seal, send }
    }
}

/// One measurement.
pub(crate) struct Run {
    pub(crate) packets: u64,
    /// Packets that the draining thread did not receive in time.
    pub(crate) unread: u64,
    /// CPU time spent on the packets.
    work: Duration,
    /// CPU time of the thread, including the wait for the draining thread.
    cpu: Duration,
    wall: Duration,
}

impl Run {
    pub(crate) fn nanoseconds_per_packet(&self) -> f64 {
        self.work.as_secs_f64() * 1e9 / self.packets as f64
    }

    /// Returns the share of the time in which this thread alone had the core.
    pub(crate) fn core_share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64()
    }
}

/// Seals and sends batches to all destinations in turn.
pub(crate) struct Sender<'a> {
    socket: UdpSocket,
    unread: Vec<libc::sockaddr_in>,
    drained: libc::sockaddr_in,
    /// Packets that the draining thread has received.
    received: &'a AtomicU64,
    keys: Vec<LessSafeKey>,
    packets: Vec<Vec<u8>>,
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    /// The number of the next packet. Its remainder by the number of destinations is the destination.
    next: u64,
}

impl<'a> Sender<'a> {
    pub(crate) fn new(
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
    pub(crate) fn run(&mut self, case: Case, limit: Duration) -> Result<Run, Box<dyn Error>> {
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

    /// Waits until the draining thread has received `target` packets in all. Returns how many are missing after a
    /// generous time.
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

    /// Sends one batch. Returns how many packets the system accepted.
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

/// Receives and counts packets on a socket, until stopped.
pub(crate) fn drain(socket: &UdpSocket, is_done: &AtomicBool, received: &AtomicU64) {
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

/// Waits for packets until the socket's timeout. Returns how many arrived.
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

pub(crate) fn bind() -> io::Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
}

/// Returns the socket's own address.
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

/// Reduces a socket's receive buffer to a few packets, so that it is full at once.
pub(crate) fn shrink_receive_buffer(socket: &UdpSocket) -> io::Result<()> {
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

/// Packets in one system call, as the host sends them.
const BATCH: usize = 64;
/// Batches between two reads of the clock, which is a system call.
const BATCHES_PER_LOOK: usize = 16;
/// A QUIC short header: flags, a connection ID of 8 bytes, a packet number of 2.
const HEADER_BYTES: usize = 11;
/// The authentication tag of AES-128-GCM.
const TAG_BYTES: usize = 16;
/// A header, one byte, and a tag.
pub(crate) const PACKET_BYTES_MIN: usize = HEADER_BYTES + TAG_BYTES + 1;
/// The largest UDP payload of an Ethernet frame.
pub(crate) const PACKET_BYTES_MAX: usize = 1472;
/// How long the draining thread waits between checks of its stop flag, and how long the sender waits for it.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_millis(50);
