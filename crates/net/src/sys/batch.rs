//! Sends and receives batches of packets in one call, with GSO and GRO.

use std::{
    io,
    marker::PhantomData,
    mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::RawFd,
    ptr,
};

use bytes::BytesMut;
use libc::{c_int, c_void};

use super::address::{read_address, size_of_socklen, write_address};

/// Messages in one call.
pub(crate) const BATCH: usize = 64;
/// The largest UDP payload, and so the largest GRO train.
const DATAGRAM_BYTES_MAX: usize = 65_535;
/// Slightly more than a power of two, so that the buffers do not share cache sets.
const RECEIVE_STRIDE: usize = DATAGRAM_BYTES_MAX + 1 + 192;
/// Room for the control messages of one packet: segment size, TOS, source address, each padded.
const CONTROL_BYTES: usize = 128;

/// A buffer for control messages, with the alignment of their headers.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// The system's description of each message of a batch: where its bytes, its address and its control messages are.
struct Messages {
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
}

impl Messages {
    fn new() -> Self {
        // SAFETY: all-zero is a valid value of these plain C structures.
        let (header, vector, name) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        Self {
            headers: vec![header; BATCH],
            vectors: vec![vector; BATCH],
            names: vec![name; BATCH],
            controls: vec![Control([0; CONTROL_BYTES]); BATCH],
        }
    }

    /// Points the header of message `index` to its address of `name_len` bytes and to its data, without control
    /// messages.
    fn point(&mut self, index: usize, name_len: libc::socklen_t, data: *mut c_void, len: usize) {
        self.vectors[index] = libc::iovec {
            iov_base: data,
            iov_len: len,
        };
        let header = &mut self.headers[index].msg_hdr;
        header.msg_name = ptr::from_mut(&mut self.names[index]).cast();
        header.msg_namelen = name_len;
        header.msg_iov = ptr::from_mut(&mut self.vectors[index]);
        header.msg_iovlen = 1;
        header.msg_control = ptr::null_mut();
        header.msg_controllen = 0;
    }

    /// Points the header of message `index` to `len` bytes of its control messages.
    fn point_control(&mut self, index: usize, len: usize) {
        let header = &mut self.headers[index].msg_hdr;
        header.msg_control = self.controls[index].0.as_mut_ptr().cast();
        header.msg_controllen = len;
    }
}

/// Reusable memory for sending batches.
pub(crate) struct SendMemory {
    messages: Messages,
}

/// A batch of packets to send. It points to their data, which therefore outlives it.
pub(crate) struct SendBatch<'a> {
    messages: &'a mut Messages,
    data: PhantomData<&'a [u8]>,
    len: usize,
    /// One bit per packet, set if it is a train (GSO).
    trains: u64,
}

/// One packet to send.
pub(crate) struct Outgoing<'a> {
    pub(crate) destination: SocketAddr,
    pub(crate) source: Option<IpAddr>,
    /// The TOS byte, if it differs from the socket's own.
    pub(crate) tos: Option<u8>,
    pub(crate) segment_size: Option<u16>,
    pub(crate) data: &'a [u8],
}

impl SendMemory {
    pub(crate) fn new() -> Self {
        Self {
            messages: Messages::new(),
        }
    }

    /// Begins an empty batch.
    pub(crate) fn batch(&mut self) -> SendBatch<'_> {
        SendBatch {
            messages: &mut self.messages,
            data: PhantomData,
            len: 0,
            trains: 0,
        }
    }
}

impl<'a> SendBatch<'a> {
    pub(crate) fn is_full(&self) -> bool {
        self.len == BATCH
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.trains = 0;
    }

    /// Whether packet `index` is a train (GSO).
    pub(crate) fn is_train(&self, index: usize) -> bool {
        self.trains >> index & 1 == 1
    }

    /// Adds a packet.
    pub(crate) fn push(&mut self, packet: &Outgoing<'a>) {
        let index = self.len;
        self.len += 1;
        let name_len = write_address(&mut self.messages.names[index], packet.destination);
        let data = packet.data.as_ptr().cast::<c_void>().cast_mut();
        self.messages
            .point(index, name_len, data, packet.data.len());
        if packet.segment_size.is_none() && packet.tos.is_none() && packet.source.is_none() {
            return;
        }
        let mut control = ControlWriter {
            buffer: &mut self.messages.controls[index].0,
            len: 0,
        };
        if let Some(size) = packet.segment_size {
            self.trains |= 1 << index;
            // First of all, so that `send_first_of_train` can leave it out.
            control.write(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
        }
        let v4 = packet.destination.is_ipv4();
        if let Some(tos) = packet.tos {
            // An IPv4 peer of an IPv6 socket needs the IPv4 TOS.
            let is_mapped = |ip| matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
            let (level, kind) = if v4 || is_mapped(packet.destination.ip()) {
                (libc::IPPROTO_IP, libc::IP_TOS)
            } else {
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
            };
            control.write(level, kind, &c_int::from(tos).to_ne_bytes());
        }
        match packet.source {
            Some(IpAddr::V4(address)) if v4 => {
                // struct in_pktinfo: interface index, source address, destination address.
                let mut info = [0_u8; 12];
                info[4..8].copy_from_slice(&address.octets());
                control.write(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            Some(IpAddr::V6(address)) if !v4 => {
                // struct in6_pktinfo: source address, interface index.
                let mut info = [0_u8; 20];
                info[..16].copy_from_slice(&address.octets());
                control.write(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
            Some(IpAddr::V4(_) | IpAddr::V6(_)) | None => {}
        }
        let control_len = control.len;
        self.messages.point_control(index, control_len);
    }

    /// Sends packets from number `from` on. Returns how many the system accepted.
    pub(crate) fn send(&mut self, socket: RawFd, from: usize) -> io::Result<usize> {
        let headers = &mut self.messages.headers[from..self.len];
        let count = u32::try_from(headers.len()).unwrap_or(0);
        // SAFETY: `headers` has `count` entries; each points to a name, a vector and a control buffer in the borrowed
        // memory, and to data that outlives this batch.
        let sent = unsafe { libc::sendmmsg(socket, headers.as_mut_ptr(), count, 0) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Sends only the first packet of train `index`, as a packet of its own. Shows whether the system refuses trains, or
    /// whatever goes to this address.
    pub(crate) fn send_first_of_train(&mut self, socket: RawFd, index: usize) -> io::Result<()> {
        assert!(self.is_train(index), "packet {index} is a train");
        let mut header = self.messages.headers[index].msg_hdr;
        let control = &self.messages.controls[index].0;
        let size = [
            control[CONTROL_HEADER_BYTES],
            control[CONTROL_HEADER_BYTES + 1],
        ];
        let mut vector = self.messages.vectors[index];
        vector.iov_len = vector.iov_len.min(usize::from(u16::from_ne_bytes(size)));
        header.msg_iov = ptr::from_mut(&mut vector);
        let skipped = CONTROL_HEADER_BYTES + align(size_of::<u16>());
        header.msg_control = self.messages.controls[index].0[skipped..]
            .as_mut_ptr()
            .cast();
        header.msg_controllen -= skipped;
        // SAFETY: the header points to a live vector on the stack, whose data outlives this batch, and to a name and the
        // rest of a control buffer in the borrowed memory.
        let sent = unsafe { libc::sendmsg(socket, ptr::from_ref(&header), 0) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Appends control messages to a buffer.
struct ControlWriter<'a> {
    buffer: &'a mut [u8; CONTROL_BYTES],
    len: usize,
}

impl ControlWriter<'_> {
    fn write(&mut self, level: c_int, kind: c_int, value: &[u8]) {
        let used = CONTROL_HEADER_BYTES + value.len();
        let space = CONTROL_HEADER_BYTES + align(value.len());
        assert!(
            self.len + space <= CONTROL_BYTES,
            "three small control messages fit"
        );
        let header = libc::cmsghdr {
            cmsg_len: used,
            cmsg_level: level,
            cmsg_type: kind,
        };
        let target = &mut self.buffer[self.len..self.len + space];
        target.fill(0);
        // SAFETY: `target` is at least as large as the header, and a write of any alignment is asked for.
        unsafe { ptr::write_unaligned(target.as_mut_ptr().cast(), header) };
        target[CONTROL_HEADER_BYTES..used].copy_from_slice(value);
        self.len += space;
    }
}

/// Reusable memory for receiving batches.
pub(crate) struct ReceiveBatch {
    messages: Messages,
    /// The buffer of each message.
    buffers: Vec<BytesMut>,
    len: usize,
    /// The number of headers that the kernel has written to.
    stale: usize,
}

/// One received message: a packet, or several of equal size from one peer.
pub(crate) struct Incoming<'a> {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) tos: u8,
    /// The size of each packet except the last.
    pub(crate) segment_size: usize,
    pub(crate) data: &'a [u8],
}

impl ReceiveBatch {
    pub(crate) fn new() -> Self {
        let mut all = BytesMut::with_capacity(BATCH * RECEIVE_STRIDE);
        let buffers = (0..BATCH).map(|_| {
            let rest = all.split_off(RECEIVE_STRIDE);
            mem::replace(&mut all, rest)
        });
        let buffers = buffers.collect();
        Self {
            messages: Messages::new(),
            buffers,
            len: 0,
            stale: BATCH,
        }
    }

    /// Receives what is available, without waiting. Returns the number of messages.
    pub(crate) fn receive(&mut self, socket: RawFd) -> io::Result<usize> {
        // Resets only what the last call changed.
        for index in 0..self.stale {
            let buffer = &mut self.buffers[index];
            buffer.clear();
            // After a buffer was lent, its memory is reused if nobody holds a part of it. Otherwise new memory is
            // allocated.
            if buffer.capacity() < DATAGRAM_BYTES_MAX && !buffer.try_reclaim(DATAGRAM_BYTES_MAX) {
                *buffer = BytesMut::with_capacity(RECEIVE_STRIDE);
            }
            let data = buffer.spare_capacity_mut().as_mut_ptr().cast();
            let name_len = size_of_socklen::<libc::sockaddr_storage>();
            self.messages
                .point(index, name_len, data, DATAGRAM_BYTES_MAX);
            self.messages.point_control(index, CONTROL_BYTES);
            self.messages.headers[index].msg_hdr.msg_flags = 0;
        }
        // SAFETY: BATCH headers, each with name, vector, data and control buffer in `self`, borrowed.
        let received = unsafe {
            libc::recvmmsg(
                socket,
                self.messages.headers.as_mut_ptr(),
                u32::try_from(BATCH).unwrap_or(0),
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(received) else {
            self.len = 0;
            self.stale = 1;
            let error = io::Error::last_os_error();
            // Other errors are temporary: nothing to read, an ICMP error of an earlier packet, an interface that is
            // down, too little memory.
            let is_broken = matches!(
                error.raw_os_error(),
                Some(libc::EBADF | libc::ENOTSOCK | libc::EINVAL | libc::EFAULT)
            );
            return if is_broken { Err(error) } else { Ok(0) };
        };
        self.len = count;
        self.stale = count;
        for (header, buffer) in self.messages.headers[..count].iter().zip(&mut self.buffers) {
            let size = (header.msg_len as usize).min(DATAGRAM_BYTES_MAX);
            // SAFETY: the kernel wrote so many bytes to the start of the buffer, which has room for
            // DATAGRAM_BYTES_MAX.
            unsafe { buffer.set_len(size) };
        }
        Ok(count)
    }

    /// Returns the messages of the last call.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Incoming<'_>> {
        (0..self.len).filter_map(|index| self.message(index))
    }

    /// Returns message `index` of the last call; `None` if its address is of an unknown family.
    pub(crate) fn message(&self, index: usize) -> Option<Incoming<'_>> {
        let header = &self.messages.headers[index];
        let data = &self.buffers[index][..];
        let remote = read_address(&self.messages.names[index])?;
        let mut incoming = Incoming {
            remote,
            local: None,
            tos: 0,
            segment_size: data.len().max(1),
            data,
        };
        let used = header.msg_hdr.msg_controllen.min(CONTROL_BYTES);
        read_control(&self.messages.controls[index].0[..used], &mut incoming);
        Some(incoming)
    }

    /// Gives away the buffer of message `index`. Keeping any part of it keeps 64 KiB.
    pub(crate) fn lend(&mut self, index: usize) -> BytesMut {
        self.buffers[index].split()
    }
}

fn read_control(mut buffer: &[u8], incoming: &mut Incoming<'_>) {
    while buffer.len() >= CONTROL_HEADER_BYTES {
        // SAFETY: the buffer holds at least a header, and a read of any alignment is asked for.
        let header: libc::cmsghdr = unsafe { ptr::read_unaligned(buffer.as_ptr().cast()) };
        let Some(value) = buffer.get(CONTROL_HEADER_BYTES..header.cmsg_len) else {
            return;
        };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                if let Some(size) = value.first_chunk::<4>() {
                    let size = usize::try_from(c_int::from_ne_bytes(*size)).unwrap_or(0);
                    incoming.segment_size = size.max(1);
                }
            }
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                incoming.tos = value.first().copied().unwrap_or(0);
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                if let Some(octets) = value.get(4..8).and_then(<[u8]>::first_chunk::<4>) {
                    incoming.local = Some(Ipv4Addr::from(*octets).into());
                }
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                if let Some(octets) = value.first_chunk::<16>() {
                    incoming.local = Some(Ipv6Addr::from(*octets).into());
                }
            }
            _ => {}
        }
        let step = align(header.cmsg_len);
        if step > buffer.len() {
            return;
        }
        buffer = &buffer[step..];
    }
}

/// Bytes of a control message before its value.
const CONTROL_HEADER_BYTES: usize = align(size_of::<libc::cmsghdr>());

const fn align(size: usize) -> usize {
    size.next_multiple_of(size_of::<usize>())
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, os::fd::AsRawFd as _};

    use super::*;

    #[test]
    fn what_is_lent_stays_as_it_is_and_memory_comes_back_when_it_is_dropped() {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut batch = ReceiveBatch::new();
        let mut next = |byte: u8| {
            let sent = from.send_to(&[byte; 9_000], to.local_addr().unwrap());
            assert_eq!(sent.unwrap(), 9_000);
            // The loopback interface delivers at once.
            assert_eq!(batch.receive(to.as_raw_fd()).unwrap(), 1);
            assert_eq!(batch.iter().next().unwrap().data, [byte; 9_000]);
            let lent = batch.lend(0);
            assert_eq!(lent, [byte; 9_000][..]);
            lent
        };
        let first = next(1);
        let second = next(2);
        assert_ne!(first.as_ptr(), second.as_ptr(), "the first is still kept");
        assert_eq!(first, [1; 9_000][..]);
        let before = second.as_ptr();
        drop(second);
        let third = next(3);
        assert_eq!(third.as_ptr(), before, "nobody kept the second");
        assert_eq!(first, [1; 9_000][..]);
    }
}
