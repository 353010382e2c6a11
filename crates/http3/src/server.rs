//! The role of a file server.
//!
//! A request is answered when it is complete. Responses are encoded when files are loaded and passed to QUIC by
//! reference, so a request costs little more than its packets.

mod exchange;
mod peer;
mod plan;
mod site;
mod target;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use weir_h3::{Code, Violation};
use weir_quic::{App, Connection, Counted, Endpoint, Event, Handle, Origin, OriginCounts};
use weir_transport::{Direction, Transport as _};

pub use self::{
    peer::Peer,
    site::{Site, SiteError, SiteLimits},
};
use self::{
    plan::{Plan, Plans},
    site::Answer,
};
use crate::Limits;

/// The configuration of a server, beside its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// See [`Limits`].
    pub limits: Limits,
    /// Connections from one IPv4 address or one IPv6 /64, over all servers that share
    /// [`with_connection_counts`](Server::with_connection_counts). Loopback addresses are not counted. Further ones are
    /// closed (`H3_EXCESSIVE_LOAD`).
    pub connections_per_address_max: usize,
    /// After GOAWAY, how long clients without a request have to close the connection themselves.
    pub leave_grace: Duration,
    /// After GOAWAY, how long requests and responses under way may take.
    pub drain_max: Duration,
    /// How long a client may accept no byte of its responses. Then those are reset (`H3_REQUEST_CANCELLED`), at the latest
    /// after twice this time.
    pub stall_max: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            connections_per_address_max: usize::MAX,
            leave_grace: Duration::from_millis(200),
            drain_max: Duration::from_secs(4),
            stall_max: Duration::from_secs(30),
        }
    }
}

/// The counters of a server, which only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were usable.
    pub connections: u64,
    /// Connections closed since there were too many from one address.
    pub connections_refused: u64,
    /// Connections closed because the peer violated HTTP/3.
    pub violations: u64,
    /// Requests whose heads were read.
    pub requests: u64,
    /// Responses with status 200.
    pub answers_ok: u64,
    /// Responses with another status.
    pub answers_refused: u64,
    /// Responses that the client stopped before their end.
    pub answers_stopped: u64,
    /// Responses that were reset since the client accepted nothing.
    pub answers_stalled: u64,
    /// Requests that violate HTTP, or ended before their head was complete.
    pub requests_malformed: u64,
    /// Requests that the client reset.
    pub requests_reset: u64,
    /// Requests that arrived after GOAWAY.
    pub requests_rejected: u64,
    /// Requests that were cut off because incomplete heads exceeded the limit.
    pub requests_excessive: u64,
}

impl Counters {
    /// Returns all counters by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("connections", self.connections),
            ("connections_refused", self.connections_refused),
            ("violations", self.violations),
            ("requests", self.requests),
            ("answers_ok", self.answers_ok),
            ("answers_refused", self.answers_refused),
            ("answers_stopped", self.answers_stopped),
            ("answers_stalled", self.answers_stalled),
            ("requests_malformed", self.requests_malformed),
            ("requests_reset", self.requests_reset),
            ("requests_rejected", self.requests_rejected),
            ("requests_excessive", self.requests_excessive),
        ]
        .into_iter()
    }

    /// Returns the sums of two servers' counters.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            connections_refused: self.connections_refused + other.connections_refused,
            violations: self.violations + other.violations,
            requests: self.requests + other.requests,
            answers_ok: self.answers_ok + other.answers_ok,
            answers_refused: self.answers_refused + other.answers_refused,
            answers_stopped: self.answers_stopped + other.answers_stopped,
            answers_stalled: self.answers_stalled + other.answers_stalled,
            requests_malformed: self.requests_malformed + other.requests_malformed,
            requests_reset: self.requests_reset + other.requests_reset,
            requests_rejected: self.requests_rejected + other.requests_rejected,
            requests_excessive: self.requests_excessive + other.requests_excessive,
        }
    }

    fn count(&mut self, answer: &Answer) {
        if answer.status == 200 {
            self.answers_ok += 1;
        } else {
            self.answers_refused += 1;
        }
    }
}

/// A server of the files of a [`Site`], for all connections of one endpoint.
pub struct Server {
    service: Service,
    config: Config,
    /// Clients by the index of the connection's handle.
    clients: Vec<Option<Box<Client>>>,
    open: usize,
    connection_counts: OriginCounts,
    leaving: Option<Leaving>,
    /// When stalled responses are searched for; `None` without clients.
    search: Option<Instant>,
    /// The client that the search goes on with.
    searched: usize,
}

/// A connection and its state.
struct Client {
    handle: Handle,
    peer: Peer,
    _counted: Counted,
}

/// The state that all connections share.
#[derive(Debug)]
pub struct Service {
    site: Arc<Site>,
    limits: Limits,
    plans: Plans,
    counters: Counters,
}

/// The state of a server after GOAWAY.
#[derive(Clone, Copy)]
struct Leaving {
    /// Until when clients may close their connections themselves; `None` afterwards.
    grace: Option<Instant>,
    /// When the remaining connections are closed.
    until: Instant,
}

impl Service {
    /// Returns the shared state of a server of `site`.
    pub fn new(limits: Limits, site: Arc<Site>) -> Self {
        Self {
            site,
            limits,
            plans: Plans::default(),
            counters: Counters::default(),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn decide(&mut self, section: &Bytes) -> Result<Plan, Violation> {
        let bytes_max = self.limits.field_section_bytes_max;
        self.plans.decide(section, &self.site, bytes_max)
    }
}

impl Server {
    /// Returns a server of `site`.
    pub fn new(config: Config, site: Arc<Site>) -> Self {
        Self {
            service: Service::new(config.limits, site),
            config,
            clients: Vec::new(),
            open: 0,
            connection_counts: OriginCounts::default(),
            leaving: None,
            search: None,
            searched: 0,
        }
    }

    /// Counts connections by address together with other servers that use `counts`.
    #[must_use]
    pub fn with_connection_counts(mut self, counts: OriginCounts) -> Self {
        self.connection_counts = counts;
        self
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.service.counters
    }

    /// Returns the client of a connection, which may be new; `None` if there are too many from its address.
    #[inline]
    fn peer(
        &mut self,
        now: Instant,
        handle: Handle,
        connection: &Connection<'_>,
    ) -> Option<(&mut Peer, &mut Service)> {
        let index = handle.index();
        if self.clients.len() <= index {
            self.clients.resize_with(index + 1, || None);
        }
        let Self {
            service,
            clients,
            open,
            connection_counts,
            search,
            config,
            ..
        } = self;
        let place = &mut clients[index];
        let is_new = place.as_ref().is_none_or(|client| client.handle != handle);
        if is_new {
            let origin = Origin::of(connection.remote_address().ip());
            let Some(counted) = connection_counts.enter(origin, config.connections_per_address_max)
            else {
                service.counters.connections_refused += 1;
                return None;
            };
            *open += usize::from(place.is_none());
            search.get_or_insert(now + config.stall_max);
            service.counters.connections += 1;
            let client = Client {
                handle,
                peer: Peer::new(service),
                _counted: counted,
            };
            *place = Some(Box::new(client));
        }
        place
            .as_mut()
            .map(|client| (&mut client.peer, &mut *service))
    }

    fn forget(&mut self, handle: Handle) {
        if let Some(place) = self.clients.get_mut(handle.index())
            && place.as_ref().is_some_and(|client| client.handle == handle)
        {
            *place = None;
            self.open -= 1;
        }
    }

    /// Calls a function with a client's state and its connection. Closes the connection after a violation, or if it is
    /// idle after GOAWAY.
    #[inline]
    fn with_peer(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        act: impl FnOnce(&mut Peer, &mut Service, &mut Connection<'_>) -> Result<(), Violation>,
    ) {
        let Some(mut connection) = endpoint.connection(now, handle) else {
            return;
        };
        if connection.peer_thread().is_some() {
            // Connections of peer threads have no HTTP/3.
            return;
        }
        let is_over = self.leaving.is_some_and(|leaving| leaving.grace.is_none());
        let Some((peer, service)) = self.peer(now, handle, &connection) else {
            let reason = b"too many connections from this address";
            connection.close(Code::EXCESSIVE_LOAD.0, reason);
            return;
        };
        let end = match act(peer, service, &mut connection) {
            Ok(()) if is_over && peer.is_idle() => Some((Code::NO_ERROR, "")),
            Ok(()) => None,
            Err(violation) => {
                service.counters.violations += 1;
                Some((violation.code, violation.reason))
            }
        };
        if let Some((code, reason)) = end {
            connection.close(code.0, reason.as_bytes());
            self.forget(handle);
        }
    }

    /// Gives up stalled responses of some clients, so that one call does not take long.
    fn search_stalled(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let mut left = STALLED_AT_ONCE;
        for client in &mut self.clients[self.searched..] {
            if left == 0 {
                break;
            }
            self.searched += 1;
            let exchanges = client.as_ref().map_or(0, |client| client.peer.exchanges());
            left = left.saturating_sub(1 + exchanges);
            if exchanges > 0
                && let Some(client) = client
                && let Some(mut connection) = endpoint.connection(now, client.handle)
            {
                let service = &mut self.service;
                let frames_sent = connection.stats().stream_frames_sent;
                client
                    .peer
                    .give_up_stalled(&mut connection, service, frames_sent);
            }
        }
        if self.searched < self.clients.len() {
            self.search = Some(now + SEARCH_PAUSE);
        } else {
            self.searched = 0;
            self.search = (self.open > 0).then(|| now + self.config.stall_max);
        }
    }

    /// Closes the connections of all clients, or only the idle ones.
    fn close(&mut self, now: Instant, endpoint: &mut Endpoint, only_idle: bool) {
        let clients = self.clients.iter().flatten();
        let handles: Vec<Handle> = clients
            .filter(|client| !only_idle || client.peer.is_idle())
            .map(|client| client.handle)
            .collect();
        for handle in handles {
            if let Some(mut connection) = endpoint.connection(now, handle) {
                connection.close(Code::NO_ERROR.0, b"");
            }
            self.forget(handle);
        }
    }
}

impl App for Server {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        match event {
            Event::Connected { handle }
            | Event::StreamsAvailable {
                handle,
                direction: Direction::Uni,
            } => self.with_peer(now, endpoint, handle, |peer, _, connection| {
                peer.start(connection);
                Ok(())
            }),
            Event::Opened {
                handle,
                stream,
                direction,
            } => self.with_peer(now, endpoint, handle, |peer, service, connection| {
                peer.handle_opened(connection, service, stream, direction)
            }),
            Event::Readable { handle, stream } => {
                self.with_peer(now, endpoint, handle, |peer, service, connection| {
                    peer.handle_readable(connection, service, stream)
                });
            }
            Event::Writable { handle, stream } => {
                self.with_peer(now, endpoint, handle, |peer, service, connection| {
                    peer.handle_writable(connection, service, stream);
                    Ok(())
                });
            }
            Event::Stopped { handle, stream, .. } => {
                self.with_peer(now, endpoint, handle, |peer, service, connection| {
                    peer.handle_stopped(connection, service, stream)
                });
            }
            Event::Finished { handle, .. } => {
                self.with_peer(now, endpoint, handle, |peer, _, _| {
                    peer.handle_finished();
                    Ok(())
                });
            }
            Event::Lost { handle, .. } => self.forget(handle),
            Event::StreamsAvailable {
                direction: Direction::Bi,
                ..
            }
            | Event::Datagram { .. } => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let leaving = self.leaving.filter(|_| self.open > 0);
        let leaving = leaving.map(|leaving| {
            leaving
                .grace
                .map_or(leaving.until, |grace| grace.min(leaving.until))
        });
        [leaving, self.search].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.search.is_some_and(|search| search <= now) {
            self.search_stalled(now, endpoint);
        }
        let Some(mut leaving) = self.leaving else {
            return;
        };
        if leaving.until <= now {
            self.close(now, endpoint, false);
        } else if leaving.grace.is_some_and(|grace| grace <= now) {
            leaving.grace = None;
            self.leaving = Some(leaving);
            self.close(now, endpoint, true);
        }
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.leaving.is_some() {
            return;
        }
        endpoint.refuse_incoming(true);
        self.leaving = Some(Leaving {
            grace: Some(now + self.config.leave_grace),
            until: now + self.config.drain_max,
        });
        for client in self.clients.iter_mut().flatten() {
            if let Some(mut connection) = endpoint.connection(now, client.handle) {
                client.peer.go_away(&mut connection);
            }
        }
    }

    fn is_finished(&self) -> bool {
        self.leaving.is_some() && self.open == 0
    }
}

/// Clients and responses that are looked at together, and the pause before the next ones.
const STALLED_AT_ONCE: usize = 1024;
const SEARCH_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
