//! What endpoints of one process send each other.

use std::net::{IpAddr, SocketAddr};

use bytes::{Bytes, BytesMut};
use quinn_proto::EcnCodepoint;

/// A message from one endpoint to another. The host has to deliver all messages, in their order.
#[derive(Debug)]
pub struct ThreadMessage(pub(crate) Content);

/// What a message says.
#[derive(Debug)]
pub(crate) enum Content {
    /// The next bytes of a stream.
    Data { stream: u64, data: Bytes },
    /// The end of a stream.
    Fin { stream: u64 },
    /// The end of a stream at once.
    Reset { stream: u64, code: u64 },
    /// A stream is no longer wanted.
    Stop { stream: u64, code: u64 },
    /// What was taken of a stream since the last such message, and whether its end was.
    Taken {
        stream: u64,
        charge: usize,
        is_done: bool,
    },
    /// A datagram.
    Datagram(Bytes),
    /// What was taken of datagrams since the last such message.
    DatagramsTaken { charge: usize },
    /// The connection is over.
    Close { code: u64, reason: Bytes },
    /// A packet from the network that is the peer thread's.
    Packet(Box<Packet>),
}

/// The payload of a UDP packet, and where it came from.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: Option<EcnCodepoint>,
    pub(crate) data: BytesMut,
}
