//! Admission of new connections, and how many of them.

use std::net::{IpAddr, Ipv6Addr};

use weir_moqt::{
    draft::Draft,
    error::SessionError,
    message::Setup,
    session::{self, Session, Side},
};
use weir_quic::{Connection, Handle};
use weir_transport::Transport as _;

use crate::{sessions::peer::Peer, turn::Turn};

/// The address that sessions are counted by: an IPv4 address, or the 64-bit prefix that one IPv6 subscriber has to
/// itself.
pub(crate) type Origin = IpAddr;

impl Turn<'_> {
    /// Handles a new connection of a client: creates a session if there is room for one.
    pub(crate) fn on_connected(&mut self, handle: Handle) {
        let now = self.now;
        let Some(connection) = self.endpoint.connection(now, handle) else {
            return;
        };
        let origin = origin(connection.remote_address().ip());
        let admitted = self.check_admission(origin);
        if let Err((code, reason)) = admitted {
            self.log_refused_session(handle, code, reason);
        }
        let Some(mut connection) = self.endpoint.connection(now, handle) else {
            return;
        };
        if let Err((code, reason)) = admitted {
            return connection.close(code.0, reason.as_bytes());
        }
        let Some(draft) = draft(&connection) else {
            let code = SessionError::VERSION_NEGOTIATION_FAILED;
            return connection.close(code.0, b"no draft of MOQT was negotiated");
        };
        let mut session = Session::new(session::Config {
            draft,
            side: Side::Server,
            limits: self.config.session_limits.clone(),
            setup: Setup {
                implementation: self.config.implementation.clone(),
                max_auth_token_cache_size: Some(self.config.limits.token_cache_bytes_max),
                ..Setup::default()
            },
        });
        session.start(now, &mut connection);
        self.sessions.insert(Peer::client(handle, session, origin));
    }

    /// Checks whether there is room for one more session. The draft has no error code for a lack of room: it is the
    /// relay's own limit.
    fn check_admission(
        &mut self,
        origin: Option<Origin>,
    ) -> Result<(), (SessionError, &'static str)> {
        let limits = &self.config.limits;
        if self.sessions.is_draining() {
            return Err((SessionError::NO_ERROR, "the relay is shutting down"));
        }
        if self.sessions.shedder.is_shedding() {
            self.counters.sessions_refused_load += 1;
            return Err((SessionError::INTERNAL_ERROR, "the relay is overloaded"));
        }
        if self.sessions.len() >= limits.sessions_max {
            self.counters.sessions_refused_total += 1;
            return Err((
                SessionError::INTERNAL_ERROR,
                "the relay has too many sessions",
            ));
        }
        let from_there = origin.map_or(0, |origin| self.sessions.from(origin));
        if from_there >= limits.sessions_per_address_max {
            self.counters.sessions_refused_address += 1;
            return Err((
                SessionError::INTERNAL_ERROR,
                "too many sessions from this address",
            ));
        }
        Ok(())
    }
}

fn draft(connection: &Connection<'_>) -> Option<Draft> {
    let protocol = connection.protocol()?;
    Draft::from_alpn(protocol.as_bytes())
}

/// Returns the origin of an address; `None` for the machine's own addresses, which are trusted and not counted.
fn origin(address: IpAddr) -> Option<Origin> {
    let address = address.to_canonical();
    let counted = match address {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        IpAddr::V4(_) => address,
    };
    (!address.is_loopback()).then_some(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_counted_as_those_who_have_them() {
        let from = |text: &str| origin(text.parse().unwrap());
        assert_eq!(from("127.0.0.1"), None);
        assert_eq!(from("::1"), None);
        assert_eq!(from("192.0.2.1"), from("::ffff:192.0.2.1"));
        assert_ne!(from("192.0.2.1"), from("192.0.2.2"));
        assert_eq!(from("2001:db8:0:1::1"), from("2001:db8:0:1:ffff::2"));
        assert_ne!(from("2001:db8:0:1::1"), from("2001:db8:0:2::1"));
    }
}
