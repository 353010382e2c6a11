//! Configuration of an endpoint: limits, keys, protocol parameters.

use std::{
    fmt,
    io::Write,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use quinn_proto::{
    AckFrequencyConfig, IdleTimeout, QlogConfig, QlogStream, TransportConfig, VarInt,
};

use crate::{
    Congestion, OriginCounts,
    tls::{ClientTls, ServerTls},
    web_transport::Request,
};

/// Limits of one endpoint and of each of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections in total, open, in handshake or draining. Incoming connections beyond it are refused.
    pub connections_max: usize,
    /// Handshakes in flight, and those that failed, until the engine has forgotten them. Incoming connections beyond it
    /// are refused.
    pub handshakes_max: usize,
    /// Handshakes in flight above which an incoming connection has to validate its address with a Retry
    /// (RFC 9000 §8.1.2).
    pub handshakes_before_retry_max: usize,
    /// Handshakes in flight from one IPv4 address or one IPv6 /64, over all endpoints that share
    /// [`EndpointConfig::handshake_counts`]. From half of it on, the address has to be validated with a Retry, so that
    /// nobody can use up the share of somebody else. Loopback addresses are not counted.
    pub handshakes_per_address_max: usize,
    /// Time that the handshake of an incoming connection may take. Then it is closed.
    pub handshake_timeout: Duration,
    /// Unidirectional streams that the peer may have open at the same time.
    pub uni_streams_max: u32,
    /// Bidirectional streams that the peer may have open at the same time.
    pub bidi_streams_max: u32,
    /// Flow control window of one stream, in bytes received.
    pub stream_receive_bytes_max: u32,
    /// Flow control window of all streams of a connection, in bytes received.
    pub receive_bytes_max: u32,
    /// Bytes written to streams of a connection and not acknowledged.
    pub send_bytes_max: u64,
    /// Bytes of received datagrams that wait to be read, with the engine's overhead; beyond it the oldest are dropped.
    /// 0 disables datagrams on this endpoint's connections; otherwise at least 2048.
    pub datagram_receive_bytes_max: usize,
    /// Bytes of datagrams that wait to be sent; beyond it the oldest are dropped. The engine holds up to 16 KiB more,
    /// which neither expire nor are dropped.
    pub datagram_send_bytes_max: usize,
    /// Idle timeout: a connection on which nothing was received for this long is lost. At least one millisecond.
    pub idle_timeout: Duration,
    /// Interval of pings that keep a connection without traffic open; `None` for servers. Less than `idle_timeout`.
    pub keep_alive: Option<Duration>,
    /// The congestion controller.
    pub congestion: Congestion,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 20_000,
            handshakes_max: 4_096,
            handshakes_before_retry_max: 1_024,
            handshakes_per_address_max: 1_024,
            handshake_timeout: Duration::from_secs(10),
            uni_streams_max: 256,
            bidi_streams_max: 128,
            stream_receive_bytes_max: 1 << 20,
            receive_bytes_max: 4 << 20,
            send_bytes_max: 4 << 20,
            datagram_receive_bytes_max: 256 << 10,
            datagram_send_bytes_max: 256 << 10,
            idle_timeout: Duration::from_secs(30),
            keep_alive: None,
            congestion: Congestion::default(),
        }
    }
}

/// The source of wall-clock time for address-validation tokens.
pub trait TimeSource: Send + Sync {
    /// Returns the time of day.
    fn now(&self) -> SystemTime;
}

/// Configuration of logs in the qlog format (draft-ietf-quic-qlog-main-schema), one for each connection.
#[derive(Clone)]
pub struct Qlog {
    /// Called with the number of the connection, counted from 0; `None` for no log.
    pub open: Arc<OpenLog>,
    /// The origin of times in the log.
    pub start: Instant,
}

/// Returns the writer for the log of the n-th connection.
pub type OpenLog = dyn Fn(u64) -> Option<Box<dyn Write + Send + Sync>> + Send + Sync;

impl fmt::Debug for Qlog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Qlog").finish_non_exhaustive()
    }
}

/// Sizes and batches of an endpoint's packets, and how often its peers acknowledge them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    /// UDP payload of each full packet in bytes, at least 1200, on a path that is known to carry it. A smaller limit of
    /// the peer applies all the same. `None`: begin with 1200 and discover the path MTU.
    pub send_bytes_fixed: Option<u16>,
    /// Largest UDP payload that a peer may send in a packet, from 1200 to 65527 bytes (RFC 9000 §18.2).
    pub receive_bytes_max: u16,
    /// Largest number of packets to one peer in one batch (GSO).
    pub joined_max: usize,
    /// Packets that a peer may leave unacknowledged, if it supports draft-ietf-quic-ack-frequency. `None`: the peer's
    /// own choice, usually one.
    pub unacknowledged_max: Option<u32>,
}

impl Default for Packets {
    fn default() -> Self {
        Self {
            send_bytes_fixed: None,
            receive_bytes_max: 1472,
            joined_max: JOINED_MAX,
            unacknowledged_max: None,
        }
    }
}

/// Packets that a peer may leave unacknowledged without holding up a new connection: half of the first congestion window, which
/// is ten packets (RFC 9002 §7.2), is acknowledged at once. If the window were full before an acknowledgement is due, the sender
/// would wait for the peer's `max_ack_delay`, usually 25 ms.
pub const UNACKNOWLEDGED_UNNOTICED: u32 = 4;

/// Configuration of an endpoint.
#[derive(Clone)]
pub struct EndpointConfig {
    /// See [`Limits`].
    pub limits: Limits,
    /// See [`Packets`].
    pub packets: Packets,
    /// Certificate and protocols, for an endpoint that accepts connections.
    pub server: Option<ServerTls>,
    /// Seed of all random numbers in QUIC (not in TLS): from the system's generator in production, fixed in a
    /// simulation.
    pub seed: [u8; 32],
    /// Wall-clock time for address-validation tokens.
    pub time_source: Arc<dyn TimeSource>,
    /// Logs of connections, if wanted.
    pub qlog: Option<Qlog>,
    /// Whether the host can send several packets to one peer in one system call (GSO).
    pub segmentation_offload: bool,
    /// Handshakes in flight by address. Endpoints on several threads share it.
    pub handshake_counts: OriginCounts,
}

impl fmt::Debug for EndpointConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EndpointConfig")
            .field("limits", &self.limits)
            .field("packets", &self.packets)
            .field("server", &self.server.is_some())
            .finish_non_exhaustive()
    }
}

/// Configuration of outgoing connections.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Trusted certificates and protocols.
    pub tls: ClientTls,
    /// The WebTransport session to request if the server chooses HTTP/3 ([`h3`](weir_h3::ALPN)). The connection is then
    /// `Connected` once that session is established.
    pub web_transport: Option<Request>,
}

/// How a connection to another relay differs from that of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// See [`Limits::idle_timeout`].
    pub idle_timeout: Duration,
    /// See [`Limits::keep_alive`].
    pub keep_alive: Duration,
    /// Whether the connection goes to the first of the endpoints that share the server's address
    /// ([`Shard`](crate::Shard)), instead of one that chance selects.
    pub to_first_shard: bool,
}

/// Packets of a connection that are lost on purpose, as on a broken path: for tests of what its peer does then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Whether everything that this side sends is lost.
    pub sent: bool,
    /// UDP payloads received that have more bytes than this are lost; `None`: nothing is lost.
    pub received_above: Option<u16>,
}

impl Loss {
    /// Nothing is lost.
    pub const NONE: Self = Self {
        sent: false,
        received_above: None,
    };

    /// Returns whether a received UDP payload of this size is lost.
    #[inline]
    pub(crate) fn hits_received(self, payload_bytes: usize) -> bool {
        self.received_above
            .is_some_and(|most| payload_bytes > most.into())
    }
}

/// A limit that QUIC cannot express.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limit {0} is out of range")]
pub struct ConfigError(pub &'static str);

impl Limits {
    /// Returns these limits with the timeouts of a link.
    pub(crate) fn with_link(&self, link: LinkOptions) -> Self {
        Self {
            idle_timeout: link.idle_timeout,
            keep_alive: Some(link.keep_alive),
            ..self.clone()
        }
    }

    /// Returns the engine's form of these limits.
    pub(crate) fn transport(
        &self,
        packets: &Packets,
        segmentation_offload: bool,
        qlog: Option<QlogStream>,
    ) -> Result<TransportConfig, ConfigError> {
        self.check()?;
        let idle =
            IdleTimeout::try_from(self.idle_timeout).map_err(|_| ConfigError("idle_timeout"))?;
        let datagrams = self.datagram_receive_bytes_max;
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_uni_streams(VarInt::from_u32(self.uni_streams_max))
            .max_concurrent_bidi_streams(VarInt::from_u32(self.bidi_streams_max))
            .stream_receive_window(VarInt::from_u32(self.stream_receive_bytes_max))
            .receive_window(VarInt::from_u32(self.receive_bytes_max))
            .send_window(self.send_bytes_max)
            // Streams of equal priority are sent in order of arrival: one group is finished before the next of the same
            // rank begins, so no viewer waits for two half groups.
            .send_fairness(false)
            .datagram_receive_buffer_size((datagrams > 0).then_some(datagrams))
            .datagram_send_buffer_size(ENGINE_DATAGRAM_BYTES)
            .max_idle_timeout(Some(idle))
            .keep_alive_interval(self.keep_alive)
            .enable_segmentation_offload(segmentation_offload)
            .congestion_controller_factory(self.congestion.factory())
            .qlog_stream(qlog);
        packets.apply(&mut transport)?;
        Ok(transport)
    }

    /// Refuses values that the engine would treat as "no limit", or could not work with.
    fn check(&self) -> Result<(), ConfigError> {
        let is_wrong = [
            (
                "connections_max",
                u32::try_from(self.connections_max).is_err(),
            ),
            (
                "stream_receive_bytes_max",
                self.stream_receive_bytes_max == 0,
            ),
            ("receive_bytes_max", self.receive_bytes_max == 0),
            ("send_bytes_max", self.send_bytes_max == 0),
            (
                "datagram_receive_bytes_max",
                (1..PACKET_BYTES_MAX).contains(&self.datagram_receive_bytes_max),
            ),
            ("idle_timeout", self.idle_timeout < Duration::from_millis(1)),
            (
                "keep_alive",
                self.keep_alive
                    .is_some_and(|every| every.is_zero() || every >= self.idle_timeout),
            ),
        ];
        match is_wrong.iter().find(|(_, is_wrong)| *is_wrong) {
            Some((name, _)) => Err(ConfigError(name)),
            None => Ok(()),
        }
    }
}

impl Packets {
    fn apply(&self, transport: &mut TransportConfig) -> Result<(), ConfigError> {
        if let Some(bytes) = self.send_bytes_fixed {
            if bytes < UDP_PAYLOAD_BYTES_MIN {
                return Err(ConfigError("send_bytes_fixed"));
            }
            transport.initial_mtu(bytes).mtu_discovery_config(None);
        }
        if self.joined_max == 0 {
            return Err(ConfigError("joined_max"));
        }
        if let Some(count) = self.unacknowledged_max {
            let mut frequency = AckFrequencyConfig::default();
            frequency.ack_eliciting_threshold(VarInt::from_u32(count));
            transport.ack_frequency_config(Some(frequency));
        }
        Ok(())
    }
}

impl Qlog {
    /// Opens the log of connection `number`.
    pub(crate) fn stream(&self, number: u64) -> Option<QlogStream> {
        let mut config = QlogConfig::default();
        config
            .writer((self.open)(number)?)
            .title(Some("weir".to_owned()))
            .start_time(self.start);
        config.into_stream()
    }
}

/// Datagrams handed to the engine cannot expire, so this is only a dozen full-sized ones. Further datagrams wait in
/// this crate's own queue, with their deadlines.
pub(crate) const ENGINE_DATAGRAM_BYTES: usize = 16 << 10;
/// Default limit of packets in one GSO batch: a keyframe of 20 kB in one system call.
const JOINED_MAX: usize = 16;
/// The UDP payload that every path of QUIC carries (RFC 9000 §14).
const UDP_PAYLOAD_BYTES_MIN: u16 = 1200;
/// The largest packet accepted, with the engine's overhead for its contents.
pub(crate) const PACKET_BYTES_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(packets: Packets) -> Result<(), ConfigError> {
        let limits = Limits::default();
        limits.transport(&packets, true, None).map(|_| ())
    }

    #[test]
    fn packets_at_the_limits_and_one_past_them() {
        let sized = |bytes| Packets {
            send_bytes_fixed: Some(bytes),
            ..Packets::default()
        };
        assert_eq!(check(sized(1200)), Ok(()));
        assert_eq!(check(sized(1199)), Err(ConfigError("send_bytes_fixed")));
        let joined = |joined_max| Packets {
            joined_max,
            ..Packets::default()
        };
        assert_eq!(check(joined(1)), Ok(()));
        assert_eq!(check(joined(0)), Err(ConfigError("joined_max")));
    }
}
