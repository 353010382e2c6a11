//! Messages between endpoints of one process.

use std::net::{IpAddr, SocketAddr};

use bytes::{Bytes, BytesMut};
use quinn_proto::EcnCodepoint;

/// A message from one endpoint to another. The host has to deliver all messages in order.
#[derive(Debug)]
pub struct ThreadMessage(pub(crate) Content);

/// The content of a message.
#[derive(Debug)]
pub(crate) enum Content {
    /// The next bytes of a stream.
    Data { stream: u64, data: Bytes },
    /// The FIN of a stream.
    Fin { stream: u64 },
    /// The reset of a stream.
    Reset { stream: u64, code: u64 },
    /// The receiver of a stream discards its data.
    Stop { stream: u64, code: u64 },
    /// Bytes read of a stream since the last such message, and whether the end was read.
    Taken {
        stream: u64,
        charge: usize,
        is_done: bool,
    },
    /// A datagram.
    Datagram(Bytes),
    /// Bytes read of datagrams since the last such message.
    DatagramsTaken { charge: usize },
    /// The connection is closed.
    Close { code: u64, reason: Bytes },
    /// A packet from the network that belongs to the receiving thread.
    Packet(Box<Packet>),
}

/// The payload of a UDP packet, with its addresses.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) ecn: Option<EcnCodepoint>,
    pub(crate) data: BytesMut,
}
