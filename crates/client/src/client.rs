//! One client: its connection from the first packet to the end of its session, and reconnection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_moqt::draft::Draft;
use weir_moqt::error::SessionError;
use weir_moqt::message::{GoAway, RequestError, RequestOk};
use weir_moqt::session::{Event as SessionEvent, RequestId, Session, Side};
use weir_moqt::token::Token;
use weir_quic::{Connection, Event, Handle};
use weir_transport::Transport as _;

use crate::peer::{DataEvent, Peer};
use crate::roaming::{OPTIONS, Roaming};
use crate::target::Target;
use crate::turn::Turn;

/// A client of one server, with at most one connection at a time.
///
/// The role passes events of the connection to the client, and takes events of the session, including GOAWAY. Pings
/// that keep the connection alive are a limit of the endpoint, [`weir_quic::Limits::keep_alive`].
///
/// If the target has alternatives, the client connects to the next one when it cannot connect, or has lost its connection.
/// [`take_move`](Self::take_move) tells the role, which begins again with the next `Ready`.
#[derive(Debug)]
pub struct Client {
    target: Arc<Target>,
    /// Its number among the clients of the target.
    number: usize,
    socket: u32,
    state: State,
    /// Where it is among several relays; `None` if there is one.
    roaming: Option<Box<Roaming>>,
    /// Why the client failed. The first reason is kept.
    failure: Option<String>,
    handshake_time: Option<Duration>,
    setup_time: Option<Duration>,
}

/// The state of a client.
#[derive(Debug)]
enum State {
    /// The client has not been asked to connect.
    Idle,
    /// The QUIC handshake, and that of WebTransport if used, is in progress.
    Connecting { handle: Handle, since: Instant },
    /// SETUP was sent. The session is established when the server's SETUP arrives.
    Connected { peer: Peer, since: Instant },
    /// The next relay is connected to at this time.
    Moving { at: Instant },
    /// The client has left or failed. Events of its session can still be taken.
    Closed(Option<Peer>),
}

/// How far a client is on the way to its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The client has not begun to connect to its relay, or pauses before the next one.
    Waiting,
    /// The QUIC handshake, and that of WebTransport if used, is in progress.
    Connecting,
    /// The connection is established. The server's SETUP has not arrived.
    AwaitsSetup,
    /// The session is established.
    Ready,
    /// The client has left or failed.
    Closed,
}

impl Client {
    /// Returns a client that waits to [`connect`](Self::connect).
    pub fn new(target: Arc<Target>) -> Self {
        Self::numbered(target, 0)
    }

    /// Returns a client with this number among the clients of the target.
    pub fn numbered(target: Arc<Target>, number: usize) -> Self {
        Self {
            roaming: Roaming::of(&target, number),
            target,
            number,
            socket: 0,
            state: State::Idle,
            failure: None,
            handshake_time: None,
            setup_time: None,
        }
    }

    /// Starts to connect from the host's socket of this number. A client that has left or failed starts over.
    pub fn connect(&mut self, turn: &mut Turn<'_>, socket: u32) {
        let roaming = self.roaming.take();
        *self = Self {
            socket,
            roaming,
            ..Self::numbered(Arc::clone(&self.target), self.number)
        };
        self.begin(turn);
    }

    /// Starts to connect to the present relay.
    fn begin(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let relay = self.relay();
        let (client, remote, name) = (&relay.client, relay.remote, &relay.server_name);
        let options = Some(OPTIONS).filter(|_| !self.target.alternatives.is_empty());
        let attempt = turn
            .endpoint
            .connect_with(now, client, remote, name, self.socket, options);
        match attempt {
            Ok(handle) => self.state = State::Connecting { handle, since: now },
            Err(error) => self.lose(now, error.to_string()),
        }
    }

    /// Returns the present relay.
    fn relay(&self) -> Arc<Target> {
        let roaming = self.roaming.as_ref();
        let other = roaming.and_then(|roaming| roaming.relay(&self.target));
        other.unwrap_or_else(|| Arc::clone(&self.target))
    }

    /// Notes that the connection has failed or was lost: the client moves on to the next relay, or fails.
    fn lose(&mut self, now: Instant, reason: String) {
        let mut lasted = None;
        if let State::Connected { since, .. } = &self.state {
            let ready_at = self.setup_time.map(|setup| *since + setup);
            lasted = ready_at.map(|at| now.saturating_duration_since(at));
        }
        let target = Arc::clone(&self.target);
        let roaming = self.roaming.as_mut();
        let next = roaming.and_then(|roaming| roaming.next(now, &target, lasted, &reason));
        match next {
            Some(at) => self.move_on(at),
            None if target.alternatives.is_empty() => self.note_failure(reason),
            None => {
                let relays = 1 + target.alternatives.len();
                self.note_failure(format!("none of {relays} relays serves: {reason}"));
            }
        }
    }

    fn move_on(&mut self, at: Instant) {
        self.state = State::Moving { at };
        (self.handshake_time, self.setup_time) = (None, None);
    }

    /// Whether a GOAWAY can be followed: there is another relay, or the message names one.
    pub fn may_follow(&self, goaway: &GoAway) -> bool {
        let names_one = !goaway.new_session_uri.is_empty() && self.target.resolver.is_some();
        names_one || !self.target.alternatives.is_empty()
    }

    /// Follows a GOAWAY: closes the session, and connects to the relay that the message names, or else to the next one.
    /// Returns false if there is none; the session then stays open.
    pub fn follow(&mut self, turn: &mut Turn<'_>, goaway: &GoAway) -> bool {
        let target = Arc::clone(&self.target);
        let roaming = self.roaming.as_mut();
        if !roaming.is_some_and(|roaming| roaming.follow(&target, &goaway.new_session_uri)) {
            return false;
        }
        if let State::Connected { peer, .. } = &mut self.state {
            peer.close(turn, SessionError::NO_ERROR, "the relay is going away");
        }
        self.move_on(turn.now);
        true
    }

    /// Returns why the client has left its relay for the next one, once after each move. Its requests have ended with the
    /// session.
    pub fn take_move(&mut self) -> Option<String> {
        self.roaming.as_mut()?.take_move()
    }

    /// Passes an event of this client's connection to its session. Returns the part that concerns the role.
    ///
    /// Call [`poll_event`](Self::poll_event) until it returns `None` afterwards, unless a datagram was returned.
    #[inline]
    pub fn handle_event(&mut self, turn: &mut Turn<'_>, event: Event) -> Option<DataEvent> {
        if self.roaming.is_some() && self.handle() != Some(event.handle()) {
            // Of a relay that the client has left.
            return None;
        }
        if let Event::Lost { reason, .. } = &event {
            if self.is_closed() {
                self.note_failure(reason.to_string());
            } else {
                self.lose(turn.now, reason.to_string());
            }
            return None;
        }
        if let Event::Connected { .. } = event {
            self.on_connected(turn);
            return None;
        }
        let left = self.peer_mut()?.handle_event(turn, event);
        if self.setup_time.is_none() {
            self.note_setup(turn.now);
        }
        left
    }

    /// Returns the tokens of this client alone, which its requests have to show too.
    pub fn tokens(&self) -> Vec<Token> {
        self.target.tokens.of(self.number)
    }

    /// Returns the session and its connection; `None` unless the client is connected.
    #[inline]
    pub fn open<'a>(
        &'a mut self,
        turn: &'a mut Turn<'_>,
    ) -> Option<(&'a mut Session, Connection<'a>)> {
        self.peer_mut()?.open(turn)
    }

    /// Accepts an update of a request.
    pub fn accept_update(&mut self, turn: &mut Turn<'_>, id: RequestId) {
        if let Some((session, mut connection)) = self.open(turn) {
            session.update_ok(&mut connection, id, RequestOk::default());
        }
    }

    /// Refuses a request.
    pub fn refuse(&mut self, turn: &mut Turn<'_>, id: RequestId, error: RequestError) {
        if let Some((session, mut connection)) = self.open(turn) {
            session.request_error(&mut connection, id, error);
        }
    }

    /// Returns the next event of the session.
    #[inline]
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.peer_mut()?.poll_event()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if let State::Moving { at } = self.state {
            return Some(at);
        }
        self.peer()?.session().poll_timeout()
    }

    /// Handles the session's timeouts, and connects to the next relay if that is due.
    pub fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        if let State::Moving { at } = self.state {
            if at <= now {
                self.begin(turn);
            }
            return;
        }
        if self.poll_timeout().is_some_and(|timeout| timeout <= now)
            && let Some((session, mut connection)) = self.open(turn)
        {
            session.handle_timeout(now, &mut connection);
        }
    }

    /// Closes the session and its connection without an error. Does nothing if the client has left or failed.
    pub fn close(&mut self, turn: &mut Turn<'_>, reason: &str) {
        self.close_with(turn, SessionError::NO_ERROR, reason);
    }

    /// Fails the client for a reason, which [`failure`](Self::failure) returns, and closes its session and connection
    /// with `code`. The first reason is kept. The server learns the code only: a reason may contain local names.
    pub fn fail(&mut self, turn: &mut Turn<'_>, code: SessionError, reason: String) {
        self.close_with(turn, code, "the client failed");
        self.note_failure(reason);
    }

    fn close_with(&mut self, turn: &mut Turn<'_>, code: SessionError, reason: &str) {
        match &mut self.state {
            State::Closed(_) => return,
            State::Idle | State::Moving { .. } => {}
            State::Connecting { handle, .. } => {
                if let Some(mut connection) = turn.connection(*handle) {
                    connection.close(code.0, reason.as_bytes());
                }
            }
            State::Connected { peer, .. } => peer.close(turn, code, reason),
        }
        self.end();
    }

    /// Ends the client, whose connection has already ended, for a reason. The first reason is kept.
    fn note_failure(&mut self, reason: String) {
        self.failure.get_or_insert(reason);
        self.end();
    }

    /// Returns why the client failed, if it did.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Whether the client was asked to connect or to leave, or was failed.
    pub fn has_started(&self) -> bool {
        !matches!(self.state, State::Idle)
    }

    /// Whether the session is established: both sides have sent SETUP.
    pub fn is_ready(&self) -> bool {
        self.setup_time.is_some() && !self.is_closed()
    }

    /// Returns how far the client is on the way to its session.
    pub fn stage(&self) -> Stage {
        match &self.state {
            State::Idle | State::Moving { .. } => Stage::Waiting,
            State::Connecting { .. } => Stage::Connecting,
            State::Connected { .. } if self.setup_time.is_none() => Stage::AwaitsSetup,
            State::Connected { .. } => Stage::Ready,
            State::Closed(_) => Stage::Closed,
        }
    }

    /// Returns the address of the present relay.
    pub fn remote(&self) -> SocketAddr {
        self.relay().remote
    }

    /// Whether the client has left or failed.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed(_))
    }

    /// Returns the endpoint's handle of the connection, while there is one.
    pub fn handle(&self) -> Option<Handle> {
        match &self.state {
            State::Connecting { handle, .. } => Some(*handle),
            State::Connected { peer, .. } | State::Closed(Some(peer)) => Some(peer.handle()),
            State::Idle | State::Moving { .. } | State::Closed(None) => None,
        }
    }

    /// Returns the time from the first packet to the end of the handshake, once it is complete.
    pub fn handshake_time(&self) -> Option<Duration> {
        self.handshake_time
    }

    /// Returns the time from the end of the handshake to the server's SETUP, once it has arrived.
    pub fn setup_time(&self) -> Option<Duration> {
        self.setup_time
    }

    /// Returns the draft that both sides agreed on.
    pub fn draft(&self) -> Option<Draft> {
        Some(self.peer()?.session().draft())
    }

    /// Returns the server's name of its implementation, from its SETUP.
    pub fn implementation(&self) -> Option<&str> {
        let setup = self.peer()?.session().peer_setup()?;
        setup.implementation.as_deref()
    }

    #[inline]
    fn peer(&self) -> Option<&Peer> {
        match &self.state {
            State::Connected { peer, .. } | State::Closed(Some(peer)) => Some(peer),
            State::Idle | State::Connecting { .. } | State::Moving { .. } | State::Closed(None) => {
                None
            }
        }
    }

    #[inline]
    fn peer_mut(&mut self) -> Option<&mut Peer> {
        match &mut self.state {
            State::Connected { peer, .. } | State::Closed(Some(peer)) => Some(peer),
            State::Idle | State::Connecting { .. } | State::Moving { .. } | State::Closed(None) => {
                None
            }
        }
    }

    fn on_connected(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let State::Connecting { handle, since } = self.state else {
            return;
        };
        let Some(mut connection) = turn.connection(handle) else {
            return;
        };
        self.handshake_time = Some(now.saturating_duration_since(since));
        let (mut setup, limits) = (self.target.setup.clone(), self.target.limits.clone());
        let relay = self.relay();
        setup.path.clone_from(&relay.setup.path);
        setup.authority.clone_from(&relay.setup.authority);
        setup.authorization_tokens.extend(self.tokens());
        let protocol = connection.protocol().unwrap_or_default();
        match Peer::start(now, &mut connection, Side::Client, setup, limits) {
            Some(peer) => self.state = State::Connected { peer, since: now },
            None => self.lose(
                now,
                format!("the relay chose the unknown protocol {protocol:?}"),
            ),
        }
    }

    /// Records the time that SETUP took, if the server's has arrived.
    fn note_setup(&mut self, now: Instant) {
        if let State::Connected { peer, since } = &self.state
            && peer.session().is_ready()
        {
            self.setup_time = Some(now.saturating_duration_since(*since));
        }
    }

    fn end(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Connected { peer, .. } | State::Closed(Some(peer)) => State::Closed(Some(peer)),
            State::Idle | State::Connecting { .. } | State::Moving { .. } | State::Closed(None) => {
                State::Closed(None)
            }
        };
    }
}
