//! Several sockets on one address, and which of them receives a packet.

use std::{
    io, mem,
    net::SocketAddr,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
    ptr,
};

use weir_quic::{LONG_HEADER, LONG_HEADER_ID_OFFSET, SHORT_HEADER_ID_OFFSET};

use super::{
    address::{size_of_socklen, write_address},
    check, set_option,
};

/// Binds a UDP socket to `address`, which other sockets of this process may share.
pub(crate) fn bind_shared(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: no pointers; the result is checked and owned.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: a fresh descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let name_len = write_address(&mut name, address);
    // SAFETY: a live address of `name_len` bytes.
    check(unsafe { libc::bind(socket.as_raw_fd(), ptr::from_ref(&name).cast(), name_len) })?;
    Ok(socket.into())
}

/// Makes the kernel give each packet to the one of `count` sockets on one address that its connection ID names. Sockets
/// are numbered in the order in which they were bound. The rule applies to all of them, and needs no privileges.
pub(crate) fn steer(socket: RawFd, count: u16) -> io::Result<()> {
    let program = program(count);
    let attached = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or(0),
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: passes a live structure and its size; the program that it points to is live, and is only read.
    let result = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            ptr::from_ref(&attached).cast(),
            size_of_socklen::<libc::sock_fprog>(),
        )
    };
    check(result).map(drop)
}

/// Returns a BPF program for the rule of `weir_quic::Shard::owner`, over the UDP payload.
fn program(count: u16) -> [libc::sock_filter; 7] {
    let step = |code: u32, jt: u8, jf: u8, k: usize| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt,
        jf,
        k: u32::try_from(k).unwrap_or(0),
    };
    let load = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    [
        step(load, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K,
            0,
            2,
            usize::from(LONG_HEADER),
        ),
        step(load, 0, 0, LONG_HEADER_ID_OFFSET),
        step(libc::BPF_JMP | libc::BPF_JA, 0, 0, 1),
        step(load, 0, 0, SHORT_HEADER_ID_OFFSET),
        step(
            libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K,
            0,
            0,
            usize::from(count),
        ),
        step(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
    ]
}
