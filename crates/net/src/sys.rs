//! System calls that no safe crate offers. This file and those below it are the only ones with `unsafe`.

#![expect(unsafe_code, reason = "system calls that no safe wrapper offers")]

mod address;
mod batch;
mod child;
mod heap;
mod shared;

use std::{
    io, mem,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
    ptr,
    time::Duration,
};

use libc::{c_int, socklen_t};

use self::address::size_of_socklen;
pub(crate) use self::{
    batch::{BATCH, Outgoing, ReceiveBatch, SendBatch, SendMemory},
    shared::{bind_shared, steer},
};
pub use self::{
    child::end_with_parent,
    heap::{CountingAllocator, heap_bytes},
};

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

/// Returns how many packets the kernel has dropped because this socket's receive buffer was full.
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

/// Waits until one of `descriptors`, at most four, is readable, or `limit` has passed (`None`: no limit). Returns
/// whether the last one is readable.
pub(crate) fn wait_readable(descriptors: &[RawFd], limit: Option<Duration>) -> bool {
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
    let polls = &mut polls[..descriptors.len().min(4)];
    wait(polls, limit);
    polls
        .last()
        .is_some_and(|poll| poll.revents & libc::POLLIN != 0)
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

/// A set of sockets to wait for together.
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

    /// Adds the keys of the readable sockets to `keys`.
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

/// Returns a descriptor that becomes readable when it is signalled.
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

/// Clears an eventfd, so that it is not readable.
pub(crate) fn clear_eventfd(descriptor: &OwnedFd) {
    let mut count = [0_u8; 8];
    // SAFETY: eight live bytes. Fails only if it was not readable.
    unsafe {
        libc::read(
            descriptor.as_raw_fd(),
            count.as_mut_ptr().cast(),
            count.len(),
        )
    };
}

/// Returns the CPU time of the calling thread.
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

/// Restricts the calling thread to one core.
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

/// Sends SIGTERM to a process, or with a negative number to its process group. Does nothing if it does not exist.
pub fn terminate(pid: i32) {
    // 0 means this process's group, and -1 every process.
    if !(-1..=0).contains(&pid) {
        // SAFETY: no pointers; the number names one process or one group.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

/// Sends SIGKILL to a process, or with a negative number to its process group. Does nothing if it does not exist.
pub fn kill(pid: i32) {
    // 0 means this process's group, and -1 every process.
    if !(-1..=0).contains(&pid) {
        // SAFETY: no pointers; the number names one process or one group.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

/// Raises this process's limit of open files as far as allowed. Returns the limit.
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

/// `SO_MEMINFO` of `linux/socket.h`, which `libc` lacks on some targets.
const SO_MEMINFO: c_int = 55;
/// The number of fields that `SO_MEMINFO` returns (`linux/sock_diag.h`).
const MEMINFO_FIELDS: usize = 9;
/// `SK_MEMINFO_DROPS`.
const MEMINFO_DROPS: usize = 8;
