//! Links between the threads of one process: MOQT sessions over in-memory connections.

use weir_moqt::{
    draft::Draft,
    limits::Limits,
    message::{MESSAGE_BYTES_MAX, Setup},
    session::{self, Session, Side},
};
use weir_quic::Handle;

use crate::{Config, sessions::peer::Peer, turn::Turn};

impl Turn<'_> {
    /// Begins the session with a peer thread. The thread with the lower index is the client.
    pub(crate) fn on_peer_thread_connected(&mut self, handle: Handle, thread: u16) {
        let side = if self.endpoint.shard().index() < thread {
            Side::Client
        } else {
            Side::Server
        };
        let Some(mut connection) = self.endpoint.connection(self.now, handle) else {
            return;
        };
        let mut session = Session::new(session::Config {
            draft: Draft::KEPT,
            side,
            limits: peer_thread_limits(self.config),
            setup: Setup {
                implementation: self.config.implementation.clone(),
                ..Setup::default()
            },
        });
        session.start(self.now, &mut connection);
        self.sessions.insert(Peer::link(handle, session));
    }

    /// Returns whether the process has other relay threads.
    pub(crate) fn has_peer_threads(&self) -> bool {
        self.endpoint.shard().count() > 1
    }
}

/// Returns the limits of a session with a peer thread. It carries the requests of all clients of that thread, and has
/// to fit whatever the thread accepted.
fn peer_thread_limits(config: &Config) -> Limits {
    let limits = &config.session_limits;
    let tracks = config.limits.tracks_max.saturating_mul(2);
    let requests = tracks.saturating_add(config.limits.namespaces_max);
    Limits {
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

/// How much longer the fields before an object's payload may be than those that the publisher sent. The relay writes in
/// full the fields that the publisher left out or encoded as differences.
const HEADER_GROWTH_BYTES_MAX: usize = 64;
/// Bytes of control messages that may be queued on one stream to a peer thread.
const OUTGOING_BYTES_MAX: usize = 8 << 20;
