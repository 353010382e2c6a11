//! The relay's other threads, each of which is a relay of its own.
//!
//! To a thread of the relay another one is a peer with a session of MOQT, whose connection leads through memory.

use weir_moqt::{
    draft::Draft,
    message::{MESSAGE_BYTES_MAX, Setup},
    session::{self, Session, Side},
};
use weir_quic::Handle;

use super::Links;
use crate::{
    Config, Grant,
    sessions::peer::{Peer, PeerKind},
    turn::Turn,
};

impl Links {
    /// Begins a session with another thread of the relay.
    pub(crate) fn on_connected(turn: &mut Turn<'_>, handle: Handle, thread: u16) {
        let side = if turn.endpoint.shard().index() < thread {
            Side::Client
        } else {
            Side::Server
        };
        let Some(mut connection) = turn.endpoint.connection(turn.now, handle) else {
            return;
        };
        let mut session = Session::new(session::Config {
            draft: Draft::KEPT,
            side,
            limits: link_limits(turn.config),
            setup: Setup {
                implementation: turn.config.implementation.clone(),
                ..Setup::default()
            },
        });
        session.start(turn.now, &mut connection);
        let mut peer = Peer::new(handle, session, None);
        peer.kind = PeerKind::Link;
        // Whatever a link asks for, its own clients were permitted.
        peer.grants = Ok(vec![Grant::everything()]);
        turn.sessions.insert(peer);
    }
}

/// What all sessions of a thread ask for may come through one session, and what they may send fits it: on its way from thread
/// to thread it is longer by what the relay says of it.
fn link_limits(config: &Config) -> weir_moqt::limits::Limits {
    let limits = &config.session_limits;
    let requests = config.limits.tracks_max.saturating_mul(2);
    weir_moqt::limits::Limits {
        requests_max: limits.requests_max.max(requests),
        requests_local_max: limits.requests_local_max.max(requests),
        streams_max: limits.streams_max.max(requests),
        outgoing_bytes_max: limits.outgoing_bytes_max.max(OUTGOING_BYTES_MAX),
        message_bytes_max: MESSAGE_BYTES_MAX,
        object_header_bytes_max: limits
            .object_header_bytes_max
            .saturating_add(HEADER_GROWTH_BYTES_MAX),
        ..limits.clone()
    }
}

/// What the fields before an object's payload may be longer by than those that a publisher sent: numbers that were left out or
/// were differences there stand whole.
const HEADER_GROWTH_BYTES_MAX: usize = 64;
/// Control messages on their way to a link on one stream.
const OUTGOING_BYTES_MAX: usize = 8 << 20;
