//! Sends packets through sockets, in batches, and gets over what the system refuses.

use std::{io, time::Duration};

use weir_quic::Packet;

use crate::{
    Telemetry, UdpSocket,
    socket::TOS_ECT0,
    sys::{self, Outgoing, SendBatch},
};

/// Adds a packet, or the packets of a train, to the batch of its socket, which is sent when it is full. Returns the number of
/// packets.
#[inline]
pub(crate) fn push<'a>(
    socket: &mut UdpSocket,
    batch: &mut SendBatch<'a>,
    telemetry: &Telemetry,
    packet: &Packet<'a>,
) -> io::Result<u64> {
    let segment = packet.segment_size.filter(|&size| size < packet.data.len());
    match segment {
        Some(size) if !socket.has_segmentation() => {
            for data in packet.data.chunks(size) {
                if batch.is_full() {
                    send_batch(socket, batch, telemetry)?;
                }
                batch.push(&outgoing(&Packet { data, ..*packet }, None));
            }
        }
        segment => {
            if batch.is_full() {
                send_batch(socket, batch, telemetry)?;
            }
            batch.push(&outgoing(packet, segment));
        }
    }
    Ok(segment.map_or(1, |size| packet.data.len().div_ceil(size)) as u64)
}

fn outgoing<'a>(packet: &Packet<'a>, segment: Option<usize>) -> Outgoing<'a> {
    let tos = packet.ecn.map_or(0, |ecn| ecn as u8);
    Outgoing {
        destination: packet.destination,
        source: packet.source,
        tos: (tos != TOS_ECT0).then_some(tos),
        segment_size: segment.and_then(|size| u16::try_from(size).ok()),
        data: packet.data,
    }
}

/// Sends all of a batch. Waits briefly if the socket is full.
pub(crate) fn send_batch(
    socket: &mut UdpSocket,
    batch: &mut SendBatch<'_>,
    telemetry: &Telemetry,
) -> io::Result<()> {
    let mut from = 0;
    let mut waits = 0;
    while from < batch.len() {
        Telemetry::add(&telemetry.send_calls, 1);
        let Err(error) = batch
            .send(socket.descriptor(), from)
            .map(|sent| from += sent.max(1))
        else {
            continue;
        };
        match error.raw_os_error() {
            Some(libc::EAGAIN) if waits < SEND_WAITS_MAX => {
                waits += 1;
                sys::wait_writable(socket.descriptor(), SEND_WAIT);
            }
            Some(libc::EAGAIN) => {
                // The device is blocked. Others must not wait for it; loss recovery repairs this.
                Telemetry::add(&telemetry.send_errors, (batch.len() - from) as u64);
                break;
            }
            Some(libc::EINTR) => {}
            Some(libc::EBADF | libc::ENOTSOCK) => return Err(error),
            // A probe of the path's MTU may be too large for the device, which answers the probe.
            Some(libc::EMSGSIZE) if !batch.is_train(from) => from += 1,
            Some(libc::EIO | libc::EINVAL) if batch.is_train(from) => {
                // If a single packet leaves, the device does not support segmentation after all, and later packets are
                // sent one by one. Otherwise the address is at fault, which a peer chose. Loss recovery repairs this
                // batch's trains.
                if batch.send_first_of_train(socket.descriptor(), from).is_ok() {
                    socket.disable_segmentation();
                }
                Telemetry::add(&telemetry.send_errors, 1);
                from += 1;
            }
            // A full queue, no route, a firewall: only this packet is lost.
            _ => {
                Telemetry::add(&telemetry.send_errors, 1);
                from += 1;
            }
        }
    }
    batch.clear();
    Ok(())
}

/// How long to wait for room in a full send buffer.
const SEND_WAIT: Duration = Duration::from_millis(10);
/// How often to wait in one batch.
const SEND_WAITS_MAX: u32 = 10;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use weir_quic::EcnCodepoint;

    use super::*;
    use crate::{
        SocketConfig,
        sys::{ReceiveBatch, SendMemory},
    };

    #[test]
    fn a_probe_that_is_too_large_is_no_error_and_stops_nobody() {
        let bind = || UdpSocket::bind("127.0.0.1:0".parse().unwrap(), SocketConfig::default());
        let (mut from, to) = (bind().unwrap(), bind().unwrap());
        let (telemetry, mut memory) = (Telemetry::default(), SendMemory::new());
        let mut batch = memory.batch();
        // The first packet is too large for any network.
        let probe = vec![0; 65_520];
        for data in [&probe[..], b"next"] {
            batch.push(&Outgoing {
                destination: to.local_address().unwrap(),
                source: None,
                tos: None,
                segment_size: None,
                data,
            });
        }
        send_batch(&mut from, &mut batch, &telemetry).unwrap();
        assert_eq!(telemetry.snapshot().send_errors, 0);
        assert!(from.has_segmentation());
        let mut received = ReceiveBatch::new();
        sys::wait_readable(&[to.descriptor()], Some(Duration::from_secs(5)));
        assert_eq!(received.receive(to.descriptor()).unwrap(), 1);
        assert_eq!(received.iter().next().unwrap().data, b"next");
    }

    #[test]
    fn a_train_that_the_device_refuses_is_the_last() {
        let bind = |address: &str| {
            UdpSocket::bind(address.parse().unwrap(), SocketConfig::default()).unwrap()
        };
        let (mut from, to) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let (telemetry, mut memory) = (Telemetry::default(), SendMemory::new());
        let mut batch = memory.batch();
        let data = vec![0; 2000];
        // A train of more packets than any kernel accepts, refused as by a device.
        batch.push(&Outgoing {
            destination: to.local_address().unwrap(),
            source: None,
            tos: None,
            segment_size: Some(1),
            data: &data,
        });
        batch.push(&outgoing(
            &Packet {
                destination: to.local_address().unwrap(),
                socket: 0,
                source: None,
                ecn: Some(EcnCodepoint::Ce),
                segment_size: None,
                data: b"next",
            },
            None,
        ));
        send_batch(&mut from, &mut batch, &telemetry).unwrap();
        assert_eq!(telemetry.snapshot().send_errors, 1);
        assert!(!from.has_segmentation());
        let mut received = ReceiveBatch::new();
        let mut messages = Vec::new();
        while messages.len() < 2 {
            sys::wait_readable(&[to.descriptor()], Some(Duration::from_secs(5)));
            assert!(received.receive(to.descriptor()).unwrap() > 0);
            let parts = received
                .iter()
                .map(|message| (message.data.to_vec(), message.tos & 0b11));
            messages.extend(parts);
        }
        // The first packet of the train shows that others can leave.
        assert_eq!(messages, [(vec![0], 0b10), (b"next".to_vec(), 0b11)]);
    }

    #[test]
    fn an_address_that_nothing_can_be_sent_to_is_not_a_fault_of_the_device() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let socket = UdpSocket::bind(local.parse().unwrap(), SocketConfig::default());
            let mut socket = socket.unwrap();
            let nowhere = SocketAddr::new(socket.local_address().unwrap().ip(), 0);
            let (telemetry, mut memory) = (Telemetry::default(), SendMemory::new());
            let mut batch = memory.batch();
            batch.push(&Outgoing {
                destination: nowhere,
                source: Some(nowhere.ip()),
                tos: Some(0b11),
                segment_size: Some(1200),
                data: &[0; 2400],
            });
            send_batch(&mut socket, &mut batch, &telemetry).unwrap();
            assert_eq!(telemetry.snapshot().send_errors, 1, "{local}");
            assert!(socket.has_segmentation(), "{local}");
        }
    }
}
