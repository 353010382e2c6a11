//! A UDP socket for large numbers of small packets.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd as _, RawFd},
};

use crate::sys;

/// A bound, non-blocking socket.
#[derive(Debug)]
pub struct UdpSocket {
    inner: std::net::UdpSocket,
    /// Whether one call can send several packets to one peer (GSO).
    segmentation: bool,
}

/// Sockets on one address.
#[derive(Debug)]
pub struct SocketGroup {
    /// The sockets, in the order in which they were bound.
    pub sockets: Vec<UdpSocket>,
    /// Whether the kernel gives each packet to the socket that the packet's connection ID names, or why not. Without
    /// steering, the kernel distributes packets by address, and endpoints must forward most of them.
    pub steering: io::Result<()>,
}

/// The configuration of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// Bytes of kernel buffer, for receiving and for sending each. The system may grant less.
    pub buffer_bytes: usize,
    /// Whether to use GSO and GRO if the kernel has them.
    pub offload: bool,
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self {
            buffer_bytes: 8 << 20,
            offload: true,
        }
    }
}

impl UdpSocket {
    /// Binds to `address`. With port 0 the system chooses a port.
    pub fn bind(address: SocketAddr, config: SocketConfig) -> io::Result<Self> {
        Self::set_up(std::net::UdpSocket::bind(address)?, address, config)
    }

    /// Binds `count` sockets to one address, for as many threads. With port 0 the system chooses a port.
    pub fn bind_group(
        address: SocketAddr,
        config: SocketConfig,
        count: u16,
    ) -> io::Result<SocketGroup> {
        let first = sys::bind_shared(address)?;
        let address = first.local_addr()?;
        let mut sockets = vec![Self::set_up(first, address, config)?];
        for _ in 1..count {
            sockets.push(Self::set_up(sys::bind_shared(address)?, address, config)?);
        }
        let steering = sys::steer(sockets[0].descriptor(), count);
        Ok(SocketGroup { sockets, steering })
    }

    fn set_up(
        inner: std::net::UdpSocket,
        address: SocketAddr,
        config: SocketConfig,
    ) -> io::Result<Self> {
        inner.set_nonblocking(true)?;
        let fd = inner.as_raw_fd();
        let bytes = libc::c_int::try_from(config.buffer_bytes).unwrap_or(libc::c_int::MAX);
        for (forced, plain) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        ] {
            // Exceeding the system's limit needs privileges; without them the system grants what it can.
            if sys::set_option(fd, libc::SOL_SOCKET, forced, bytes).is_err() {
                sys::set_option(fd, libc::SOL_SOCKET, plain, bytes)?;
            }
        }
        let ect0 = libc::c_int::from(TOS_ECT0);
        if address.is_ipv4() {
            sys::set_option(fd, libc::IPPROTO_IP, libc::IP_TOS, ect0)?;
            sys::set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
            sys::set_option(
                fd,
                libc::IPPROTO_IP,
                libc::IP_MTU_DISCOVER,
                libc::IP_PMTUDISC_PROBE,
            )?;
        } else {
            sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, ect0)?;
            sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            sys::set_option(
                fd,
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_PROBE,
            )?;
            // For IPv4 peers, if the system allows them on this socket.
            for (name, value) in [
                (libc::IP_TOS, ect0),
                (libc::IP_RECVTOS, 1),
                (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            ] {
                let _none = sys::set_option(fd, libc::IPPROTO_IP, name, value);
            }
        }
        if address.ip().is_unspecified() {
            // Replies must leave from the address that the packet was sent to.
            if address.is_ipv4() {
                sys::set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
            } else {
                sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
            }
        }
        let segmentation =
            config.offload && sys::set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        if config.offload {
            // Kernels before 5.0 lack GRO, and deliver packets one by one.
            let _plain = sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        Ok(Self {
            inner,
            segmentation,
        })
    }

    /// Returns the bound address.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// Whether GSO can be used.
    pub fn has_segmentation(&self) -> bool {
        self.segmentation
    }

    pub(crate) fn disable_segmentation(&mut self) {
        self.segmentation = false;
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

/// The ECN codepoint ECT(0), the default of every packet (RFC 9000 §13.4).
pub(crate) const TOS_ECT0: u8 = 0b10;
