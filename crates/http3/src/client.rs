//! The load client: many connections to one server, each with requests for one resource or several in turns, for
//! a given time.
//!
//! In a closed loop, each response is followed by the next request. In an open loop, requests are due at a fixed rate
//! whatever becomes of earlier ones, and latency counts from the planned time. A success has status 200 and the exact
//! length; everything else is counted by its kind. Content is counted and dropped.
//!
//! It is *not* a browser: it requests the same resources repeatedly and stores nothing. No event costs work that grows with
//! the number of connections. The main types are [`Client`], [`Load`] and [`Figures`].

mod connection;
mod connections;
mod ending;
mod figures;
pub mod limits;
mod load;
mod response;

use std::{collections::VecDeque, time::Instant};

use bytes::Bytes;
use weir_h3::Code;
use weir_quic::{App, ClientConfig, Endpoint, Event, Handle};
use weir_transport::{Direction, StreamId, Transport as _, WriteError};

use self::{
    connection::{Connection, Outcome, Stage},
    connections::Connections,
    load::Plan,
};
pub use self::{
    figures::{Failure, Figures, Refusal, Second},
    load::{Greeting, Load, LoadError, Target, transport_limits},
};
use crate::Limits;

/// The role of a load client.
pub struct Client {
    load: Load,
    config: ClientConfig,
    limits: Limits,
    /// The encoded requests, one for each path.
    requests: Vec<Bytes>,
    /// The place of the next request in `requests`.
    next_path: usize,
    /// When the first connections begin.
    begin: Instant,
    state: State,
    connections: Connections,
    /// Handshakes by their deadline. Entries of established connections are removed when they reach the front.
    handshakes: VecDeque<(Instant, Handle)>,
    /// When to retry failed connections.
    retries: VecDeque<Instant>,
    /// Finished connections with early data, which wait for the tickets of the next ones.
    lingering: VecDeque<(Instant, Handle)>,
    /// For an open loop: when requests are due.
    plan: Option<Plan>,
    /// For an open loop: connections that can take a request, each at most once, and outdated entries.
    ready: VecDeque<Handle>,
    /// Requests that may still be sent; `None` means no limit.
    requests_left: Option<u64>,
    in_flight: u64,
    next_socket: u32,
    /// A buffer for data that was read and not counted.
    pieces: Vec<Bytes>,
    figures: Figures,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Over,
}

/// A run's progress at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Successful requests.
    pub successes: u64,
    /// Requests and connections that failed.
    pub failed: u64,
    /// Bytes of content.
    pub content_bytes: u64,
    /// Connections, in handshake or established.
    pub connections: u64,
    /// Requests without a complete response.
    pub in_flight: u64,
}

impl Client {
    /// Returns a client that begins at `begin`.
    ///
    /// # Errors
    /// The load is contradictory or exceeds a limit.
    pub fn new(
        load: Load,
        config: ClientConfig,
        limits: Limits,
        begin: Instant,
    ) -> Result<Self, LoadError> {
        load.check()?;
        Ok(Self {
            requests: load.requests(),
            next_path: 0,
            begin,
            state: State::Waiting,
            connections: Connections::default(),
            handshakes: VecDeque::new(),
            retries: VecDeque::new(),
            lingering: VecDeque::new(),
            plan: None,
            ready: VecDeque::new(),
            requests_left: load.requests_max,
            in_flight: 0,
            next_socket: 0,
            pieces: Vec::new(),
            figures: Figures::new(load.duration, load.target.paths.len()),
            load,
            config,
            limits,
        })
    }

    /// Returns the figures so far.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Returns the current progress.
    pub fn progress(&self) -> Progress {
        Progress {
            successes: self.figures.successes,
            failed: self.figures.failed() + self.figures.refused(),
            content_bytes: self.figures.content_bytes,
            connections: self.connections.open() as u64,
            in_flight: self.in_flight,
        }
    }

    fn end(&self) -> Instant {
        self.begin + self.load.duration
    }

    /// Whether there is time for further requests.
    fn is_on(&self, now: Instant) -> bool {
        self.state == State::Running && now < self.end()
    }

    fn start(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.state = State::Running;
        self.begin = now;
        self.figures.begin(now);
        if let Some(rate) = self.load.rate_per_second {
            self.plan = Some(Plan::new(now, rate));
            if self.load.is_short() {
                return self.serve_plan(now, endpoint);
            }
        }
        for _ in 0..self.load.connections {
            self.connect(now, endpoint, now);
        }
    }

    /// Ends the run. A request without a complete response is neither a success nor a failure.
    fn finish(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if self.state != State::Running {
            self.state = State::Over;
            return;
        }
        self.state = State::Over;
        self.figures.end(now);
        self.figures.unfinished += self.in_flight;
        self.figures.handshakes_unfinished += self.connections.unfinished();
        self.count_unusable(now);
        if let Some(plan) = &self.plan {
            self.figures.unsent = plan.overdue(now.min(self.end()));
        }
        endpoint.close_all(now, Code::NO_ERROR.0, b"");
        self.connections.clear();
    }

    /// Whether a further request may begin.
    fn has_quota(&self) -> bool {
        self.requests_left != Some(0)
    }

    fn take_quota(&mut self) {
        if let Some(left) = &mut self.requests_left {
            *left = left.saturating_sub(1);
        }
    }

    /// Ends the run early if all requests of the load are complete.
    fn look_for_end(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let is_idle =
            self.in_flight == 0 && (!self.load.is_short() || self.connections.open() == 0);
        if self.requests_left == Some(0) && is_idle && self.state == State::Running {
            self.finish(now, endpoint);
        }
    }

    /// Begins a connection. A short connection is for a request that is due since `planned`.
    fn connect(&mut self, now: Instant, endpoint: &mut Endpoint, planned: Instant) {
        let is_short = self.load.is_short();
        if !self.is_on(now) || !self.has_quota() {
            return;
        }
        if is_short {
            self.take_quota();
        }
        let socket = self.next_socket;
        self.next_socket = (socket + 1) % self.load.sockets;
        self.figures.connections_begun += 1;
        let target = &self.load.target;
        let begun = endpoint.connect(
            now,
            &self.config,
            target.address,
            &target.server_name,
            socket,
        );
        let handle = match begun {
            Ok(handle) => handle,
            Err(error) => {
                self.figures
                    .refusal(now, Refusal::Local, &error.to_string());
                return self.on_no_connection(now, is_short);
            }
        };
        self.connections
            .insert(Connection::new(handle, now, planned, self.limits));
        let deadline = now + self.load.handshake_timeout;
        self.handshakes.push_back((deadline, handle));
        if self.load.greeting == Greeting::Early
            && let Some(mut connection) = endpoint.connection(now, handle)
            && connection.has_early_data()
            && let Some(entry) = self.connections.find(handle)
        {
            entry.stage = Stage::Early;
            entry.session.start(&mut connection);
            self.figures.early_used += 1;
            self.pump(now, endpoint, handle);
        }
    }

    /// Sends as many requests on a connection as are allowed.
    fn pump(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle) {
        while self.is_on(now) && self.send(now, endpoint, handle) {}
        if self.plan.is_some()
            && let Some(entry) = self.connections.find(handle)
            && entry.has_room(&self.load)
            && !std::mem::replace(&mut entry.is_listed, true)
        {
            self.ready.push_back(handle);
        }
    }

    /// Sends one request, if the connection allows one and one is due.
    fn send(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle) -> bool {
        let has_quota = self.has_quota();
        let is_short = self.load.is_short();
        let Some(entry) = self.connections.find(handle) else {
            return false;
        };
        if !entry.has_room(&self.load) {
            return false;
        }
        let again = entry.again.last().copied();
        let planned = match (again, &self.plan) {
            (Some(planned), _) => planned,
            (None, _) if is_short => entry.planned,
            (None, _) if !has_quota => return false,
            (None, None) => now,
            (None, Some(plan)) if plan.next() <= now => plan.next(),
            (None, Some(_)) => return false,
        };
        let Some(mut connection) = endpoint.connection(now, handle) else {
            return false;
        };
        let Some(stream) = connection.open(Direction::Bi) else {
            entry.is_blocked = true;
            return false;
        };
        let path = self.next_path;
        self.next_path = (path + 1) % self.requests.len();
        let mut head = self.requests[path].clone();
        let unsent = match connection.write(stream, &mut head) {
            Ok(()) => {
                connection.finish(stream);
                None
            }
            Err(WriteError::Blocked) => Some(head),
            // The end of the stream is handled when it is read.
            Err(WriteError::Stopped(_) | WriteError::Closed) => None,
        };
        entry.begin(stream, path, planned, unsent);
        if again.is_some() {
            entry.again.pop();
        } else {
            self.figures.requests_sent += 1;
            if !is_short {
                self.take_quota();
                if let Some(plan) = &mut self.plan {
                    plan.take();
                }
            }
        }
        self.in_flight += 1;
        true
    }

    /// Sends what is due in an open loop, as far as connections allow it.
    fn serve_plan(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let is_short = self.load.is_short();
        while self.is_on(now)
            && self.has_quota()
            && let Some(plan) = &mut self.plan
            && plan.next() <= now
        {
            if is_short {
                if self.connections.open() >= self.load.connections {
                    return;
                }
                let planned = plan.next();
                plan.take();
                self.connect(now, endpoint, planned);
                continue;
            }
            let Some(handle) = self.ready.pop_front() else {
                return;
            };
            if let Some(entry) = self.connections.find(handle) {
                entry.is_listed = false;
                // One request per connection, in turn.
                self.send(now, endpoint, handle);
                if let Some(entry) = self.connections.find(handle)
                    && entry.has_room(&self.load)
                {
                    entry.is_listed = true;
                    self.ready.push_back(handle);
                }
            }
        }
    }

    fn on_connected(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle) {
        let Some(entry) = self.connections.find(handle) else {
            return;
        };
        let Some(mut connection) = endpoint.connection(now, handle) else {
            return;
        };
        self.figures.handshakes += 1;
        let took = now.saturating_duration_since(entry.begun);
        self.figures.handshake_time.record(took);
        let was_early = entry.stage == Stage::Early;
        entry.stage = Stage::Open;
        if was_early && !connection.is_early_data_accepted() {
            // The server rejected the early data (RFC 9001 §4.6.2), so all of it is sent again.
            self.figures.early_rejected += 1;
            self.in_flight -= entry.begin_again(self.limits);
        }
        entry.session.start(&mut connection);
        while let Some((_, handle)) = self.handshakes.front()
            && self
                .connections
                .find(*handle)
                .is_none_or(|it| it.stage == Stage::Open)
        {
            self.handshakes.pop_front();
        }
        self.pump(now, endpoint, handle);
    }

    fn on_readable(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        handle: Handle,
        stream: StreamId,
    ) {
        let Some(entry) = self.connections.find(handle) else {
            return;
        };
        let Some(mut connection) = endpoint.connection(now, handle) else {
            return;
        };
        match entry.session.handle_readable(&mut connection, stream) {
            Ok(false) => {}
            Ok(true) => return self.look_for_goaway(now, endpoint, handle),
            Err(violation) => return self.on_violation(now, endpoint, handle, violation),
        }
        let expected_bytes = self.load.expected_bytes;
        match entry.read(&mut connection, stream, expected_bytes, &mut self.pieces) {
            Outcome::Going => {}
            Outcome::Success {
                path,
                planned,
                bytes,
            } => {
                self.figures.success(now, path, planned, bytes);
                entry.successes += 1;
                self.on_answered(now, endpoint, handle);
            }
            Outcome::Failed {
                kind,
                bytes,
                code,
                status,
            } => {
                let words = match (code, status) {
                    (Some(code), _) => code.to_string(),
                    (None, Some(status)) => format!("status {status}"),
                    (None, None) => String::new(),
                };
                self.figures.failure(now, kind, bytes, &words);
                self.on_answered(now, endpoint, handle);
            }
            Outcome::Violation(violation) => self.on_violation(now, endpoint, handle, violation),
        }
    }

    /// Handles the end of a request: sends the next one, or begins the next connection.
    fn on_answered(&mut self, now: Instant, endpoint: &mut Endpoint, handle: Handle) {
        self.in_flight -= 1;
        let Some(entry) = self.connections.find(handle) else {
            return;
        };
        if entry.is_done(&self.load) {
            self.leave(now, endpoint, handle);
            self.replace(now, endpoint);
        } else {
            self.pump(now, endpoint, handle);
        }
        if self.plan.is_some() {
            self.serve_plan(now, endpoint);
        }
        self.look_for_end(now, endpoint);
    }

    /// Returns when an open loop's next request is due; `None` while no connection could send it.
    fn next_due(&self) -> Option<Instant> {
        let plan = self.plan.as_ref().filter(|_| self.has_quota())?;
        let can_send = if self.load.is_short() {
            self.connections.open() < self.load.connections
        } else {
            !self.ready.is_empty()
        };
        can_send.then(|| plan.next())
    }
}

impl App for Client {
    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: Event) {
        if self.state != State::Running {
            return;
        }
        match event {
            Event::Readable { handle, stream } => self.on_readable(now, endpoint, handle, stream),
            Event::Connected { handle } => self.on_connected(now, endpoint, handle),
            Event::Lost { handle, reason } => self.on_lost(now, endpoint, handle, &reason),
            Event::StreamsAvailable { handle, direction } => {
                if let Some(entry) = self.connections.find(handle)
                    && let Some(mut connection) = endpoint.connection(now, handle)
                {
                    match direction {
                        Direction::Uni => entry.session.start(&mut connection),
                        Direction::Bi => {
                            entry.is_blocked = false;
                            self.pump(now, endpoint, handle);
                        }
                    }
                }
            }
            Event::Opened {
                handle,
                stream,
                direction,
            } => {
                if let Some(entry) = self.connections.find(handle)
                    && let Err(violation) = entry.session.handle_opened(stream, direction)
                {
                    self.on_violation(now, endpoint, handle, violation);
                }
            }
            Event::Writable { handle, stream } => {
                if let Some(entry) = self.connections.find(handle)
                    && let Some(mut connection) = endpoint.connection(now, handle)
                    && !entry.session.handle_writable(&mut connection, stream)
                {
                    entry.write(&mut connection, stream);
                }
            }
            Event::Stopped { handle, stream, .. } => {
                if let Some(entry) = self.connections.find(handle)
                    && let Err(violation) = entry.session.handle_stopped(stream)
                {
                    self.on_violation(now, endpoint, handle, violation);
                }
            }
            Event::Finished { .. } | Event::Datagram { .. } => {}
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Waiting => Some(self.begin),
            State::Over => None,
            State::Running => [
                Some(self.end()),
                self.handshakes.front().map(|(deadline, _)| *deadline),
                self.retries.front().copied(),
                self.lingering.front().map(|(until, _)| *until),
                self.next_due(),
            ]
            .into_iter()
            .flatten()
            .min(),
        }
    }

    fn handle_timeout(&mut self, now: Instant, endpoint: &mut Endpoint) {
        match self.state {
            State::Waiting if self.begin <= now => self.start(now, endpoint),
            State::Waiting | State::Over => return,
            State::Running => {}
        }
        if self.end() <= now {
            return self.finish(now, endpoint);
        }
        self.expire_handshakes(now, endpoint);
        self.end_lingering(now, endpoint);
        while self.retries.front().is_some_and(|due| *due <= now) {
            self.retries.pop_front();
            self.connect(now, endpoint, now);
        }
        if self.plan.is_some() {
            self.serve_plan(now, endpoint);
        }
        self.look_for_end(now, endpoint);
    }

    fn handle_shutdown(&mut self, now: Instant, endpoint: &mut Endpoint) {
        self.finish(now, endpoint);
    }

    fn is_finished(&self) -> bool {
        self.state == State::Over
    }
}
