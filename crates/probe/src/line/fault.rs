//! Clients that lose or withhold packets.

use std::time::Instant;

use bytes::Bytes;
use weir_quic::{Connection, Endpoint, Loss};
use weir_transport::Transport as _;

use super::{Action, Line, State};
use crate::seen::Slot;

/// What a client does with its packets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Loses some of them from now on.
    Lose(Loss),
    /// Sends a PING, during the handshake in an Initial packet.
    Ping,
    /// Writes two bytes to a stream, each in a packet. The first packet is lost, and so are all others that the connection
    /// sends or gets from now on: the byte is never sent again.
    Gap(Slot),
    /// Ends the connection without telling the relay.
    Abandon,
}

impl Line {
    /// Does something with the packets of the connection, during the handshake also. Does nothing if there is none.
    pub(crate) fn do_fault(&mut self, now: Instant, endpoint: &mut Endpoint, fault: Fault) {
        match fault {
            Fault::Lose(loss) => self.with_any(now, endpoint, |it| it.lose(loss)),
            Fault::Ping => self.with_any(now, endpoint, |it| {
                it.probe();
            }),
            Fault::Gap(slot) => {
                self.write_alone(now, endpoint, slot, LOST);
                self.write_alone(now, endpoint, slot, SENT_ONLY);
                self.with_any(now, endpoint, |it| it.lose(LOST));
            }
            Fault::Abandon => {
                self.flush_packets(now, endpoint);
                self.with_any(now, endpoint, |it| {
                    it.lose(LOST);
                    it.close(0, b"");
                });
                self.state = State::Over;
            }
        }
    }

    /// Writes a byte to a stream, and sends the packet at once.
    fn write_alone(&mut self, now: Instant, endpoint: &mut Endpoint, slot: Slot, loss: Loss) {
        self.with_any(now, endpoint, |it| it.lose(loss));
        self.act(now, endpoint, slot, Action::Write(Bytes::from_static(b"x")));
        self.flush_packets(now, endpoint);
    }

    fn flush_packets(&self, now: Instant, endpoint: &mut Endpoint) {
        if let Some(handle) = self.handle() {
            endpoint.fill_from(now, handle);
        }
    }

    fn with_any(
        &self,
        now: Instant,
        endpoint: &mut Endpoint,
        change: impl FnOnce(&mut Connection<'_>),
    ) {
        let handle = self.handle();
        if let Some(mut connection) = handle.and_then(|it| endpoint.connection(now, it)) {
            change(&mut connection);
        }
    }
}

/// All packets are lost.
const LOST: Loss = Loss {
    sent: true,
    received_above: Some(0),
};
/// All packets that come are lost.
const SENT_ONLY: Loss = Loss {
    sent: false,
    ..LOST
};
