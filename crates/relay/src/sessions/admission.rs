//! Admission of new connections, and how many of them.

use weir_moqt::{
    draft::Draft,
    error::SessionError,
    message::Setup,
    session::{self, Session, Side},
};
use weir_quic::{Connection, Counted, Handle, Origin};
use weir_transport::Transport as _;

use crate::{sessions::peer::Peer, turn::Turn};

impl Turn<'_> {
    /// Handles a new connection of a client: creates a session if there is room for one.
    pub(crate) fn on_connected(&mut self, handle: Handle) {
        let now = self.now;
        let Some(connection) = self.endpoint.connection(now, handle) else {
            return;
        };
        let origin = Origin::of(connection.remote_address().ip());
        let admitted = self.check_admission(origin);
        if let Err((code, reason)) = &admitted {
            self.log_refused_session(handle, *code, reason);
        }
        let Some(mut connection) = self.endpoint.connection(now, handle) else {
            return;
        };
        let counted = match admitted {
            Ok(counted) => counted,
            Err((code, reason)) => return connection.close(code.0, reason.as_bytes()),
        };
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
        self.sessions.insert(Peer::client(handle, session, counted));
    }

    /// Counts one more session, if there is room. The draft has no error code for a lack of room: it is the
    /// relay's own limit.
    fn check_admission(
        &mut self,
        origin: Option<Origin>,
    ) -> Result<Counted, (SessionError, &'static str)> {
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
        let max = limits.sessions_per_address_max;
        self.sessions.origins.enter(origin, max).ok_or_else(|| {
            self.counters.sessions_refused_address += 1;
            let reason = "too many sessions from this address";
            (SessionError::INTERNAL_ERROR, reason)
        })
    }
}

fn draft(connection: &Connection<'_>) -> Option<Draft> {
    let protocol = connection.protocol()?;
    Draft::from_alpn(protocol.as_bytes())
}
