//! System calls. The only file with `unsafe`, kept to what safe crates do not offer: whole batches of
//! packets in one call, with GSO and GRO.

#![expect(
    unsafe_code,
    reason = "system calls that no safe wrapper offers in batches"
)]

use std::{
    io, mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
    ptr,
    time::Duration,
};

use libc::{c_int, c_void, socklen_t};

/// Messages in one call.
pub(crate) const BATCH: usize = 64;
/// Largest UDP payload, and so the largest GRO train.
const DATAGRAM_BYTES_MAX: usize = 65_535;
/// A little more than a power of two apart, so that the buffers do not all fall on the same cache sets.
const RECEIVE_STRIDE: usize = DATAGRAM_BYTES_MAX + 1 + 192;
/// Room for the control messages of one packet: segment size, TOS, source address, each padded.
const CONTROL_BYTES: usize = 128;

/// Control-message buffer with the alignment of its headers.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// Memory for sending one batch, used again and again.
pub(crate) struct SendBatch {
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    len: usize,
    /// One bit for each packet that is several in truth (GSO).
    trains: u64,
}

/// One packet to send.
pub(crate) struct Outgoing<'a> {
    pub(crate) destination: SocketAddr,
    pub(crate) source: Option<IpAddr>,
    /// TOS byte, if it differs from the socket's own.
    pub(crate) tos: Option<u8>,
    pub(crate) segment_size: Option<u16>,
    pub(crate) data: &'a [u8],
}

impl SendBatch {
    pub(crate) fn new() -> Self {
        // SAFETY: all-zero is a valid value of these plain C structures.
        let (header, name) = unsafe { (mem::zeroed(), mem::zeroed()) };
        Self {
            headers: vec![header; BATCH],
            vectors: vec![
                libc::iovec {
                    iov_base: ptr::null_mut(),
                    iov_len: 0
                };
                BATCH
            ],
            names: vec![name; BATCH],
            controls: vec![Control([0; CONTROL_BYTES]); BATCH],
            len: 0,
            trains: 0,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == BATCH
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.trains = 0;
    }

    /// Whether packet number `index` is several in truth (GSO).
    pub(crate) fn is_train(&self, index: usize) -> bool {
        self.trains >> index & 1 == 1
    }

    /// Adds a packet. Its data has to stay where it is until [`send`](Self::send) returns.
    pub(crate) fn push(&mut self, packet: &Outgoing<'_>) {
        let index = self.len;
        self.len += 1;
        let name_len = write_address(&mut self.names[index], packet.destination);
        self.vectors[index] = libc::iovec {
            iov_base: packet.data.as_ptr().cast::<c_void>().cast_mut(),
            iov_len: packet.data.len(),
        };
        let header = &mut self.headers[index].msg_hdr;
        header.msg_name = ptr::from_mut(&mut self.names[index]).cast();
        header.msg_namelen = name_len;
        header.msg_iov = ptr::from_mut(&mut self.vectors[index]);
        header.msg_iovlen = 1;
        header.msg_control = ptr::null_mut();
        header.msg_controllen = 0;
        if packet.segment_size.is_none() && packet.tos.is_none() && packet.source.is_none() {
            return;
        }
        let mut control = ControlWriter {
            buffer: &mut self.controls[index].0,
            len: 0,
        };
        if let Some(size) = packet.segment_size {
            self.trains |= 1 << index;
            control.write(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
        }
        let v4 = packet.destination.is_ipv4();
        if let Some(tos) = packet.tos {
            // An IPv4 peer of an IPv6 socket takes the mark of IPv4.
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
        header.msg_controllen = control.len;
        header.msg_control = self.controls[index].0.as_mut_ptr().cast();
    }

    /// Sends packets from number `from` on; returns how many the system took.
    pub(crate) fn send(&mut self, socket: RawFd, from: usize) -> io::Result<usize> {
        let headers = &mut self.headers[from..self.len];
        let count = u32::try_from(headers.len()).unwrap_or(0);
        // SAFETY: `headers` has `count` entries; each points to a name, a vector and a control buffer in
        // `self`, which is borrowed, and to data that the caller of `push` keeps alive.
        let sent = unsafe { libc::sendmmsg(socket, headers.as_mut_ptr(), count, 0) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
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
        let header_bytes = align(size_of::<libc::cmsghdr>());
        let used = header_bytes + value.len();
        let space = header_bytes + align(value.len());
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
        target[header_bytes..used].copy_from_slice(value);
        self.len += space;
    }
}

/// Memory for receiving one batch, used again and again.
pub(crate) struct ReceiveBatch {
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    data: Vec<u8>,
    len: usize,
    /// Headers that the kernel has written to.
    stale: usize,
}

/// One message received: a packet, or several of equal size from one peer.
pub(crate) struct Incoming<'a> {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) tos: u8,
    /// Size of each packet but the last.
    pub(crate) segment_size: usize,
    pub(crate) data: &'a [u8],
}

impl ReceiveBatch {
    pub(crate) fn new() -> Self {
        // SAFETY: all-zero is a valid value of these plain C structures.
        let (header, name) = unsafe { (mem::zeroed(), mem::zeroed()) };
        Self {
            headers: vec![header; BATCH],
            vectors: vec![
                libc::iovec {
                    iov_base: ptr::null_mut(),
                    iov_len: 0
                };
                BATCH
            ],
            names: vec![name; BATCH],
            controls: vec![Control([0; CONTROL_BYTES]); BATCH],
            data: vec![0; BATCH * RECEIVE_STRIDE],
            len: 0,
            stale: BATCH,
        }
    }

    /// Receives what is there, without waiting; returns the number of messages.
    pub(crate) fn receive(&mut self, socket: RawFd) -> io::Result<usize> {
        // Only what the last call changed has to be made new.
        for index in 0..self.stale {
            self.vectors[index] = libc::iovec {
                iov_base: self.data[index * RECEIVE_STRIDE..].as_mut_ptr().cast(),
                iov_len: DATAGRAM_BYTES_MAX,
            };
            let header = &mut self.headers[index].msg_hdr;
            header.msg_name = ptr::from_mut(&mut self.names[index]).cast();
            header.msg_namelen = size_of_socklen::<libc::sockaddr_storage>();
            header.msg_iov = ptr::from_mut(&mut self.vectors[index]);
            header.msg_iovlen = 1;
            header.msg_control = self.controls[index].0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES;
            header.msg_flags = 0;
        }
        // SAFETY: BATCH headers, each with name, vector, data and control buffer in `self`, borrowed.
        let received = unsafe {
            libc::recvmmsg(
                socket,
                self.headers.as_mut_ptr(),
                u32::try_from(BATCH).unwrap_or(0),
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(received) else {
            self.len = 0;
            self.stale = 1;
            let error = io::Error::last_os_error();
            // The others pass: nothing there, an ICMP error of some earlier packet, an interface that went
            // down, memory that ran out.
            let is_broken = matches!(
                error.raw_os_error(),
                Some(libc::EBADF | libc::ENOTSOCK | libc::EINVAL | libc::EFAULT)
            );
            return if is_broken { Err(error) } else { Ok(0) };
        };
        self.len = count;
        self.stale = count;
        Ok(count)
    }

    /// The messages of the last call.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Incoming<'_>> {
        (0..self.len).filter_map(|index| {
            let header = &self.headers[index];
            let size = header.msg_len as usize;
            let start = index * RECEIVE_STRIDE;
            let remote = read_address(&self.names[index])?;
            let mut incoming = Incoming {
                remote,
                local: None,
                tos: 0,
                segment_size: size.max(1),
                data: &self.data[start..start + size],
            };
            let used = header.msg_hdr.msg_controllen.min(CONTROL_BYTES);
            read_control(&self.controls[index].0[..used], &mut incoming);
            Some(incoming)
        })
    }
}

fn read_control(mut buffer: &[u8], incoming: &mut Incoming<'_>) {
    let header_bytes = align(size_of::<libc::cmsghdr>());
    while buffer.len() >= header_bytes {
        // SAFETY: the buffer holds at least a header, and a read of any alignment is asked for.
        let header: libc::cmsghdr = unsafe { ptr::read_unaligned(buffer.as_ptr().cast()) };
        let Some(value) = buffer.get(header_bytes..header.cmsg_len) else {
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

fn write_address(name: &mut libc::sockaddr_storage, address: SocketAddr) -> socklen_t {
    match address {
        SocketAddr::V4(address) => {
            let raw = libc::sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(address.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage has room and alignment for every socket address.
            unsafe { ptr::write(ptr::from_mut(name).cast(), raw) };
            size_of_socklen::<libc::sockaddr_in>()
        }
        SocketAddr::V6(address) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: as above.
            unsafe { ptr::write(ptr::from_mut(name).cast(), raw) };
            size_of_socklen::<libc::sockaddr_in6>()
        }
    }
}

fn read_address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the kernel wrote an address of this family; the storage is large and aligned enough.
            let raw: libc::sockaddr_in = unsafe { ptr::read(ptr::from_ref(name).cast()) };
            let address = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(address, u16::from_be(raw.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let raw: libc::sockaddr_in6 = unsafe { ptr::read(ptr::from_ref(name).cast()) };
            let address = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            let port = u16::from_be(raw.sin6_port);
            Some(SocketAddrV6::new(address, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Sets an integer socket option.
pub(crate) fn set_option(socket: RawFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: passes a pointer to a live integer and its size.
    let result = unsafe {
        libc::setsockopt(
            socket,
            level,
            name,
            ptr::from_ref(&value).cast(),
            size_of_socklen::<c_int>(),
        )
    };
    check(result).map(drop)
}

/// Packets that the kernel dropped because this socket's receive buffer was full, since it was opened.
pub(crate) fn receive_drops(socket: RawFd) -> u64 {
    let mut info = [0_u32; MEMINFO_FIELDS];
    let mut size = socklen_t::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: passes a live array and its size in bytes; the kernel writes no more than that.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            SO_MEMINFO,
            info.as_mut_ptr().cast(),
            ptr::from_mut(&mut size),
        )
    };
    if result == 0 {
        u64::from(info[MEMINFO_DROPS])
    } else {
        0
    }
}

/// Waits until one of `descriptors` is readable or `limit` has passed (`None`: no limit).
pub(crate) fn wait_readable(descriptors: &[RawFd], limit: Option<Duration>) {
    let mut polls = [libc::pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    }; 4];
    for (poll, &fd) in polls.iter_mut().zip(descriptors) {
        *poll = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
    }
    wait(&mut polls[..descriptors.len().min(4)], limit);
}

/// Waits until `socket` is writable or `limit` has passed.
pub(crate) fn wait_writable(socket: RawFd, limit: Duration) {
    let mut poll = libc::pollfd {
        fd: socket,
        events: libc::POLLOUT,
        revents: 0,
    };
    wait(std::slice::from_mut(&mut poll), Some(limit));
}

fn wait(polls: &mut [libc::pollfd], limit: Option<Duration>) {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = libc::nfds_t::try_from(polls.len()).unwrap_or(0);
    // SAFETY: a live array of `count` entries, a live or null time limit, no signal mask. A failure
    // (an interruption) is like a wake-up without cause.
    unsafe { libc::ppoll(polls.as_mut_ptr(), count, limit, ptr::null()) };
}

/// A set of sockets that can be waited for together.
#[derive(Debug)]
pub(crate) struct Poller {
    descriptor: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked and owned.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: a fresh descriptor that nobody else owns.
        let descriptor = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { descriptor })
    }

    pub(crate) fn add(&self, socket: RawFd, key: u32) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN.cast_unsigned(),
            u64: u64::from(key),
        };
        // SAFETY: a live event structure.
        let result = unsafe {
            libc::epoll_ctl(
                self.descriptor.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                socket,
                ptr::from_mut(&mut event),
            )
        };
        check(result).map(drop)
    }

    /// The keys of the sockets that are readable now.
    pub(crate) fn ready(&self, keys: &mut Vec<u32>) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 256];
        // SAFETY: a live array and its length; does not wait.
        let count =
            unsafe { libc::epoll_wait(self.descriptor.as_raw_fd(), events.as_mut_ptr(), 256, 0) };
        for event in &events[..usize::try_from(count).unwrap_or(0)] {
            keys.push(u32::try_from(event.u64).unwrap_or(u32::MAX));
        }
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// A descriptor that becomes readable when it is signalled.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked and owned.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes an eventfd readable.
pub(crate) fn signal_eventfd(descriptor: &OwnedFd) {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: eight live bytes. Fails only if the counter is full, and then it is readable already.
    unsafe { libc::write(descriptor.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a live structure.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, ptr::from_mut(&mut time)) };
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

/// Lets the calling thread run on one core only.
pub fn pin_to_core(core: usize) -> io::Result<()> {
    // SAFETY: all-zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    if core >= usize::try_from(libc::CPU_SETSIZE).unwrap_or(0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such core"));
    }
    // SAFETY: `core` is within the set; the set is live and its size is given.
    let result = unsafe {
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), ptr::from_ref(&set))
    };
    check(result).map(drop)
}

/// Asks a process to end, by SIGTERM. Does nothing if it is gone.
pub fn terminate(pid: i32) {
    if pid > 0 {
        // SAFETY: no pointers; a positive number names one process only.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

/// Raises this process's limit of open files as far as allowed; returns the limit.
pub fn raise_open_files_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a live structure.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, ptr::from_mut(&mut limit)) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: a live structure.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, ptr::from_ref(&limit)) })?;
    Ok(limit.rlim_cur)
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn align(size: usize) -> usize {
    size.next_multiple_of(size_of::<usize>())
}

fn family(value: c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(value).unwrap_or(0)
}

fn size_of_socklen<T>() -> socklen_t {
    socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

/// `SO_MEMINFO` of `linux/socket.h`, which `libc` does not have for every target.
const SO_MEMINFO: c_int = 55;
/// Fields that `SO_MEMINFO` returns (`linux/sock_diag.h`).
const MEMINFO_FIELDS: usize = 9;
/// `SK_MEMINFO_DROPS`.
const MEMINFO_DROPS: usize = 8;
