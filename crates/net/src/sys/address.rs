//! Socket addresses in the system's form.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    ptr,
};

use libc::{c_int, socklen_t};

pub(super) fn write_address(name: &mut libc::sockaddr_storage, address: SocketAddr) -> socklen_t {
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

pub(super) fn read_address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
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

fn family(value: c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(value).unwrap_or(0)
}

pub(super) fn size_of_socklen<T>() -> socklen_t {
    socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}
