//! When a client acknowledges packets.
//!
//! The engine acknowledges as RFC 9000 §13.2 advises, and has no setting for anything else: only the peer can ask, with
//! `IMMEDIATE_ACK` or `ACK_FREQUENCY` (draft-ietf-quic-ack-frequency). So for [`Acknowledgements::Immediate`], the keys that
//! open 1-RTT packets insert an `IMMEDIATE_ACK` before each packet's frames, as if the peer had sent it.

use std::{any::Any, sync::Arc};

use bytes::{BufMut as _, BytesMut};
use quinn_proto::{
    ConnectError, ConnectionId, Side, TransportError,
    crypto::{self, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey},
    transport_parameters::TransportParameters,
};

/// When a client acknowledges the packets that it receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledgements {
    /// Every second packet at once, and a single one after at most 25 ms (RFC 9000 §13.2.1, §13.2.2). The server can ask
    /// for other numbers with `ACK_FREQUENCY` (draft-ietf-quic-ack-frequency §4).
    #[default]
    Delayed,
    /// Every packet at once, whatever the server asks for. Packets of a connection that the host reads together share an
    /// acknowledgement.
    Immediate,
}

/// The parameters of a client that acknowledges every packet at once.
pub(super) struct ImmediateAcks(pub(super) Arc<dyn crypto::ClientConfig>);

impl crypto::ClientConfig for ImmediateAcks {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, ConnectError> {
        let inner = Arc::clone(&self.0).start_session(version, server_name, params)?;
        Ok(Box::new(Session {
            inner,
            has_handshake_keys: false,
        }))
    }
}

/// A TLS session whose 1-RTT keys ask for acknowledgements.
struct Session {
    inner: Box<dyn crypto::Session>,
    /// Whether the keys of the handshake were made; the next ones are those of 1-RTT packets.
    has_handshake_keys: bool,
}

impl crypto::Session for Session {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.inner.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.inner.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.inner.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.inner.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.inner.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.inner.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.inner.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let mut keys = self.inner.write_handshake(buf)?;
        // IMMEDIATE_ACK is an error in packets of the handshake (draft-ietf-quic-ack-frequency §5).
        if std::mem::replace(&mut self.has_handshake_keys, true) {
            keys.packet.remote = Box::new(AskingKey(keys.packet.remote));
        }
        Some(keys)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let KeyPair { local, remote } = self.inner.next_1rtt_keys()?;
        Some(KeyPair {
            local,
            remote: Box::new(AskingKey(remote)),
        })
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.inner.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.inner.export_keying_material(output, label, context)
    }
}

/// A key that puts `IMMEDIATE_ACK` in front of the frames of each packet that it opens.
struct AskingKey(Box<dyn PacketKey>);

impl PacketKey for AskingKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.0.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.0.decrypt(packet, header, payload)?;
        if asks(payload) {
            // In front: the last frame may reach to the end of the packet without a length of its own.
            let mut asking = BytesMut::with_capacity(payload.len() + 1);
            asking.put_u8(IMMEDIATE_ACK);
            asking.extend_from_slice(payload);
            *payload = asking;
        }
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.0.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

/// Whether a packet with these frames is acknowledged at once. Packets of PADDING, ACK or `CONNECTION_CLOSE` alone are never
/// acknowledged (RFC 9000 §13.2.1), but with an added frame the engine would acknowledge them. Servers put an ACK before other
/// frames, so ACKs are skipped.
fn asks(mut frames: &[u8]) -> bool {
    while let Some((kind, rest)) = frames.split_first() {
        frames = match kind {
            0x00 => rest,
            0x02 | 0x03 => match after_ack(*kind == 0x03, rest) {
                Some(rest) => rest,
                None => return false,
            },
            0x1c | 0x1d => return false,
            _ => return true,
        };
    }
    false
}

/// Returns what follows the fields of an ACK frame (RFC 9000 §19.3): largest, delay, number of ranges, first range, gap and
/// length of each range, and three counts with ECN. `None` if the frame is cut off.
fn after_ack(has_ecn: bool, fields: &[u8]) -> Option<&[u8]> {
    let (_, rest) = varint(fields)?;
    let (_, rest) = varint(rest)?;
    let (ranges, rest) = varint(rest)?;
    let (_, mut rest) = varint(rest)?;
    let more = ranges.saturating_mul(2) + if has_ecn { 3 } else { 0 };
    for _ in 0..more {
        (_, rest) = varint(rest)?;
    }
    Some(rest)
}

/// Returns a variable-length integer (RFC 9000 §16), and what follows it.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, _) = bytes.split_first()?;
    let (number, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    let value = number
        .iter()
        .skip(1)
        .fold(u64::from(first & 0x3f), |value, byte| {
            value << 8 | u64::from(*byte)
        });
    Some((value, rest))
}

/// The frame type `IMMEDIATE_ACK` (draft-ietf-quic-ack-frequency §5), which has no fields.
const IMMEDIATE_ACK: u8 = 0x1f;

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that leaves packets as they are, or refuses them.
    struct Open(bool);

    impl PacketKey for Open {
        fn encrypt(&self, _: u64, _: &mut [u8], _: usize) {}

        fn decrypt(&self, _: u64, _: &[u8], _: &mut BytesMut) -> Result<(), CryptoError> {
            if self.0 { Ok(()) } else { Err(CryptoError) }
        }

        fn tag_len(&self) -> usize {
            16
        }

        fn confidentiality_limit(&self) -> u64 {
            17
        }

        fn integrity_limit(&self) -> u64 {
            18
        }
    }

    fn opened(is_valid: bool, frames: &[u8]) -> Option<Vec<u8>> {
        let key = AskingKey(Box::new(Open(is_valid)));
        let mut payload = BytesMut::from(frames);
        let opened = key.decrypt(1, &[], &mut payload);
        opened.ok().map(|()| payload.to_vec())
    }

    #[test]
    fn packets_with_data_ask_for_an_acknowledgement_and_others_do_not() {
        // A DATAGRAM without a length, PING, and a STREAM; a DATAGRAM behind PADDING and ACK, without ranges and with two of
        // them and ECN counts.
        for frames in [
            &[0x30, 7, 7][..],
            &[0x01],
            &[0x08, 0, 1],
            &[0x00, 0x02, 0x40, 9, 1, 0, 0, 0x30, 7],
            &[0x03, 9, 1, 2, 0, 1, 1, 1, 1, 5, 0x80, 0, 0, 6, 0, 0x30],
        ] {
            let asking = [&[IMMEDIATE_ACK][..], frames].concat();
            assert_eq!(opened(true, frames), Some(asking));
        }
        // PADDING, ACK with and without ECN counts, cut off or not, CONNECTION_CLOSE of both kinds, and nothing.
        for frames in [
            &[0, 0][..],
            &[2, 0, 0, 0, 0],
            &[2, 0, 0, 1, 0, 0],
            &[3, 1],
            &[0x1c],
            &[0x1d],
            &[],
        ] {
            assert_eq!(opened(true, frames), Some(frames.to_vec()));
        }
        assert_eq!(opened(false, &[0x30]), None);
    }

    #[test]
    fn the_limits_of_the_key_are_kept() {
        let key = AskingKey(Box::new(Open(true)));
        let limits = (key.confidentiality_limit(), key.integrity_limit());
        assert_eq!((key.tag_len(), limits), (16, (17, 18)));
    }
}
