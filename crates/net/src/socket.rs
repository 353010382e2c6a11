//! A UDP socket set up for large numbers of small packets.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd as _, RawFd},
};

use crate::sys;

/// A bound socket that does not block.
#[derive(Debug)]
pub struct UdpSocket {
    inner: std::net::UdpSocket,
    /// Can send several packets to one peer at once.
    segmentation: bool,
}

/// Sockets on one address.
#[derive(Debug)]
pub struct SocketGroup {
    /// In the order in which they were bound.
    pub sockets: Vec<UdpSocket>,
    /// Whether the kernel gives each packet to the socket whose endpoint's number its connection ID carries, or
    /// why not. Then it spreads packets by their addresses, and endpoints have to pass most of them on.
    pub steering: io::Result<()>,
}

/// How a socket is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// Bytes of kernel memory for packets not yet read and not yet sent, each; the system may grant less.
    pub buffer_bytes: usize,
    /// Use GSO and GRO where the kernel has them.
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
    /// Binds to `address`; port 0 lets the system choose.
    pub fn bind(address: SocketAddr, config: SocketConfig) -> io::Result<Self> {
        Self::set_up(std::net::UdpSocket::bind(address)?, address, config)
    }

    /// Binds `count` sockets to one address, for as many threads; port 0 lets the system choose.
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
            // Beyond the system's limit only with privileges; else as much as it grants.
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
            // For IPv4 peers, if the system lets the socket have some.
            for (name, value) in [
                (libc::IP_TOS, ect0),
                (libc::IP_RECVTOS, 1),
                (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            ] {
                let _none = sys::set_option(fd, libc::IPPROTO_IP, name, value);
            }
        }
        if address.ip().is_unspecified() {
            // Replies have to leave from the address that the packet came to.
            if address.is_ipv4() {
                sys::set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
            } else {
                sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
            }
        }
        let segmentation =
            config.offload && sys::set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        if config.offload {
            // Missing in kernels before 5.0: packets then come one by one.
            let _plain = sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        Ok(Self {
            inner,
            segmentation,
        })
    }

    /// The address that it is bound to.
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

/// ECN codepoint ECT(0), which every packet carries unless said otherwise (RFC 9000 §13.4).
pub(crate) const TOS_ECT0: u8 = 0b10;
