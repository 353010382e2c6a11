//! The relay that is measured, and how its connections are made.

use std::net::SocketAddr;
use std::time::Instant;

use weir_moqt::draft::Draft;
use weir_moqt::limits::Limits;
use weir_moqt::message::Setup;
use weir_moqt::session::{Config, Session, Side};
use weir_quic::{ClientConfig, ConnectError, Endpoint, Handle};

/// Where the relay is, and what its clients say first.
#[derive(Clone, Debug)]
pub struct Target {
    /// The relay's address.
    pub remote: SocketAddr,
    /// The name that its certificate has to be for.
    pub server_name: String,
    /// Trust and protocols; these decide which drafts are offered.
    pub client: ClientConfig,
    /// What every client says in SETUP.
    pub setup: Setup,
    /// How many of the host's sockets are used in turn; at least one is.
    pub sockets: u32,
}

impl Target {
    /// Starts the connection of client number `client`.
    ///
    /// # Errors
    /// Those of [`Endpoint::connect`].
    pub fn connect(
        &self,
        now: Instant,
        endpoint: &mut Endpoint,
        client: usize,
    ) -> Result<Handle, ConnectError> {
        let sockets = self.sockets.max(1) as usize;
        let socket = u32::try_from(client % sockets).unwrap_or(0);
        endpoint.connect(now, &self.client, self.remote, &self.server_name, socket)
    }

    /// The session for a connection on which the relay chose `protocol`.
    pub fn session(&self, protocol: &str, limits: &Limits) -> Option<Session> {
        let draft = Draft::from_alpn(protocol.as_bytes())?;
        Some(Session::new(Config {
            draft,
            side: Side::Client,
            limits: limits.clone(),
            setup: self.setup.clone(),
        }))
    }
}
