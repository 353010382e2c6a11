//! A server, and how clients connect to it.

use std::net::SocketAddr;
use std::sync::Arc;

use weir_moqt::limits::Limits;
use weir_moqt::message::Setup;
use weir_quic::ClientConfig;

use crate::roaming::Resolver;
use crate::tokens::Tokens;

/// A server, and how clients connect to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The server's address.
    pub remote: SocketAddr,
    /// The name that the server's certificate must be valid for.
    pub server_name: String,
    /// TLS trust and protocols. The protocols decide which drafts are offered.
    pub client: ClientConfig,
    /// The parameters and options of every client's SETUP, tokens included.
    pub setup: Setup,
    /// Tokens that clients show in addition, each its own, in SETUP and in requests ([`Client::tokens`]).
    ///
    /// [`Client::tokens`]: crate::client::Client::tokens
    pub tokens: Tokens,
    /// Limits of the sessions.
    pub limits: Limits,
    /// How many of the host's sockets the clients use in turn. Zero counts as one.
    pub sockets: u32,
    /// Relays that a client uses when it has lost this one, in order. Of these, only address, name, `client`, and path and
    /// authority of SETUP count.
    pub alternatives: Vec<Arc<Self>>,
    /// Finds the relay that a GOAWAY names; `None`: clients do not follow it.
    pub resolver: Option<Resolver>,
    /// Seed of the pauses before a client connects to another relay.
    pub seed: u64,
}

impl Target {
    /// Returns a server for clients with one socket, an empty SETUP and the default limits.
    pub fn new(remote: SocketAddr, server_name: &str, client: ClientConfig) -> Self {
        Self {
            remote,
            server_name: server_name.to_owned(),
            client,
            setup: Setup::default(),
            tokens: Tokens::default(),
            limits: Limits::default(),
            sockets: 1,
            alternatives: Vec::new(),
            resolver: None,
            seed: 0,
        }
    }
}
