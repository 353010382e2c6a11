//! The role that asks a relay which edition it prefers.

use std::time::Instant;

use weir_client::target::Target;
use weir_quic::{App, Endpoint, Event, Handle};
use weir_transport::Transport as _;

use crate::edition::Edition;

/// A role that connects once, to learn which of the protocols of its target a relay chooses.
pub struct Scout {
    target: Target,
    handle: Option<Handle>,
    wakes_at: Option<Instant>,
    /// When the role gives up.
    ends_at: Instant,
    found: Option<Result<Edition, String>>,
}

impl Scout {
    /// Returns a scout that connects at `begin`, and gives up at `ends_at`. The protocols of `target` are those of the
    /// editions, the preferred one first.
    pub fn new(target: Target, begin: Instant, ends_at: Instant) -> Self {
        Self {
            target,
            handle: None,
            wakes_at: Some(begin),
            ends_at,
            found: None,
        }
    }

    /// Returns the edition that the relay chose, or why there is none; `None` before that is known.
    pub fn found(&self) -> Option<&Result<Edition, String>> {
        self.found.as_ref()
    }

    fn connect(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let Target {
            remote,
            server_name,
            client,
            ..
        } = &self.target;
        match endpoint.connect(now, client, *remote, server_name, 0) {
            Ok(handle) => self.handle = Some(handle),
            Err(error) => self.found = Some(Err(error.to_string())),
        }
    }

    /// Notes the protocol, and closes the connection.
    fn on_connected(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle) {
        let Some(mut connection) = endpoint.connection(now, handle) else {
            return;
        };
        let protocol = connection.protocol().unwrap_or_default();
        let chosen = Edition::from_alpn(&protocol);
        let unknown = || format!("the relay chose the protocol {protocol:?}, which has no cases");
        self.found = Some(chosen.ok_or_else(unknown));
        connection.close(0, b"");
    }
}

impl App for Scout {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if self.found.is_some() || Some(event.handle()) != self.handle {
            return;
        }
        match event {
            Event::Connected { handle } => self.on_connected(now, endpoint, handle),
            Event::Lost { reason, .. } => self.found = Some(Err(reason.to_string())),
            Event::Opened { .. }
            | Event::Readable { .. }
            | Event::Writable { .. }
            | Event::Stopped { .. }
            | Event::StreamsAvailable { .. }
            | Event::Datagram { .. }
            | Event::Finished { .. } => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wakes_at.filter(|_| self.found.is_none())
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return;
        }
        if self.handle.is_some() {
            self.found = Some(Err("no answer within the patience of a case".to_owned()));
            return;
        }
        self.wakes_at = Some(self.ends_at);
        self.connect(now, endpoint);
    }

    fn handle_shutdown(&mut self, _: Instant, _: &mut Endpoint) {
        self.found
            .get_or_insert_with(|| Err("stopped by a signal".to_owned()));
    }

    fn is_finished(&self) -> bool {
        self.found.is_some()
    }
}
