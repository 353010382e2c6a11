//! Links between the threads of one process: MOQT sessions over in-memory connections.

use weir_moqt::{
    draft::Draft,
    message::Setup,
    session::{self, Session, Side},
};
use weir_quic::Handle;

use super::link_limits;
use crate::{
    sessions::peer::{Peer, PeerKind},
    turn::Turn,
};

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
            limits: link_limits(self.config),
            setup: Setup {
                implementation: self.config.implementation.clone(),
                ..Setup::default()
            },
        });
        session.start(self.now, &mut connection);
        self.sessions
            .insert(Peer::link(handle, PeerKind::Sibling, session));
    }

    /// Returns whether the process has other relay threads.
    pub(crate) fn has_peer_threads(&self) -> bool {
        self.endpoint.shard().count() > 1
    }
}
