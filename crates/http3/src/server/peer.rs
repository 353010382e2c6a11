//! One client's connection.

use rustc_hash::FxHashMap;
use weir_h3::{Code, Violation, peer_streams::Side};
use weir_transport::{Direction, Read, StreamId, Transport};

use super::{
    Service,
    exchange::{Exchange, Next, Request, Written},
};
use crate::{limits::READ_BYTES_AT_ONCE, session::Session};

/// A client: its session, and its unfinished requests and responses. After an error, the connection must be closed with
/// the error's code, and the state must not be used.
#[derive(Debug)]
pub struct Peer {
    session: Session,
    has_started: bool,
    exchanges: FxHashMap<StreamId, Exchange>,
    /// Bytes of incomplete field sections, over all requests.
    kept_bytes: usize,
    /// The next request stream that the client will open.
    next: u64,
    /// The stream from which on requests are rejected.
    goaway: Option<u64>,
    /// Responses that were written and not completely acknowledged.
    unacknowledged: usize,
    /// STREAM frames that were sent at the last search for stalled responses.
    frames_sent: u64,
}

impl Peer {
    /// Returns the state of a new client.
    pub fn new(service: &Service) -> Self {
        Self {
            session: Session::new(Side::Server, service.limits),
            has_started: false,
            exchanges: FxHashMap::default(),
            kept_bytes: 0,
            next: 0,
            goaway: None,
            unacknowledged: 0,
            frames_sent: 0,
        }
    }

    /// Opens streams. Called when the connection allows it, and when the client allows more.
    pub fn start(&mut self, transport: &mut dyn Transport) {
        self.has_started = true;
        self.session.start(transport);
    }

    /// Handles a stream that the client opened.
    pub fn handle_opened(
        &mut self,
        transport: &mut dyn Transport,
        service: &mut Service,
        stream: StreamId,
        direction: Direction,
    ) -> Result<(), Violation> {
        if !self.has_started {
            // The first request may arrive before the handshake is complete.
            self.start(transport);
        }
        self.session.handle_opened(stream, direction)?;
        match direction {
            Direction::Uni => Ok(()),
            Direction::Bi => self.on_request(transport, service, stream),
        }
    }

    /// Handles a stream that may be readable.
    pub fn handle_readable(
        &mut self,
        transport: &mut dyn Transport,
        service: &mut Service,
        stream: StreamId,
    ) -> Result<(), Violation> {
        if self.session.handle_readable(transport, stream)? {
            return Ok(());
        }
        match self.take(stream) {
            Some(exchange) => self.read(transport, service, stream, exchange),
            None => Ok(()),
        }
    }

    /// Handles a stream that is writable again.
    pub fn handle_writable(
        &mut self,
        transport: &mut dyn Transport,
        service: &mut Service,
        stream: StreamId,
    ) {
        if self.session.handle_writable(transport, stream) {
            return;
        }
        if let Some(exchange) = self.take(stream) {
            self.write(transport, service, stream, exchange);
        }
    }

    /// Handles the client's `STOP_SENDING` for a response.
    pub fn handle_stopped(
        &mut self,
        transport: &mut dyn Transport,
        service: &mut Service,
        stream: StreamId,
    ) -> Result<(), Violation> {
        if self.session.handle_stopped(stream)? {
            return Ok(());
        }
        service.counters.answers_stopped += 1;
        transport.reset(stream, Code::REQUEST_CANCELLED.0);
        match self.take(stream) {
            // The response was completely written before.
            None => self.unacknowledged = self.unacknowledged.saturating_sub(1),
            Some(exchange) => {
                if exchange.request.is_some() {
                    transport.stop(stream, Code::REQUEST_CANCELLED.0);
                }
            }
        }
        Ok(())
    }

    /// Handles the acknowledgement of a whole response.
    pub fn handle_finished(&mut self) {
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
    }

    /// Sends GOAWAY: requests that have not begun are rejected.
    pub fn go_away(&mut self, transport: &mut dyn Transport) {
        self.goaway = Some(self.next);
        self.session.go_away(transport, self.next);
    }

    /// Returns how many requests and responses are stored.
    pub fn exchanges(&self) -> usize {
        self.exchanges.len()
    }

    /// Gives up the responses that were there at the last call already, if no STREAM frame left the connection since then,
    /// of which `frames_sent` left so far. On a slow link, one of many responses may wait for long.
    pub fn give_up_stalled(
        &mut self,
        transport: &mut dyn Transport,
        service: &mut Service,
        frames_sent: u64,
    ) {
        let has_progress = std::mem::replace(&mut self.frames_sent, frames_sent) < frames_sent;
        #[expect(clippy::disallowed_methods, reason = "the keys are sorted")]
        let mut streams: Vec<StreamId> = self.exchanges.keys().copied().collect();
        streams.sort_unstable();
        for stream in streams {
            let Some(exchange) = self.exchanges.get_mut(&stream) else {
                continue;
            };
            let is_waiting = exchange.answer.is_some();
            let is_old = std::mem::replace(&mut exchange.is_old, is_waiting);
            if has_progress || !(is_waiting && is_old) {
                continue;
            }
            service.counters.answers_stalled += 1;
            transport.reset(stream, Code::REQUEST_CANCELLED.0);
            if exchange.request.is_some() {
                transport.stop(stream, Code::REQUEST_CANCELLED.0);
            }
            self.take(stream);
        }
    }

    /// Whether no request or response is under way.
    pub fn is_idle(&self) -> bool {
        self.exchanges.is_empty() && self.unacknowledged == 0
    }

    /// Whether no request or response is stored.
    #[cfg(test)]
    pub(super) fn keeps_nothing(&self) -> bool {
        self.exchanges.is_empty() && self.kept_bytes == 0
    }

    fn take(&mut self, stream: StreamId) -> Option<Exchange> {
        let exchange = self.exchanges.remove(&stream)?;
        self.kept_bytes -= exchange.kept_bytes();
        Some(exchange)
    }

    fn on_request(
        &mut self,
        transport: &mut dyn Transport,
        service: &mut Service,
        stream: StreamId,
    ) -> Result<(), Violation> {
        self.next = self.next.max(stream.0 + 4);
        if self.goaway.is_some_and(|goaway| stream.0 >= goaway) {
            service.counters.requests_rejected += 1;
            transport.reset(stream, Code::REQUEST_REJECTED.0);
            transport.stop(stream, Code::REQUEST_REJECTED.0);
            return Ok(());
        }
        service.counters.requests += 1;
        let request = Request::new(service.limits.field_section_bytes_max);
        let exchange = Exchange {
            request: Some(request),
            answer: None,
            is_old: false,
        };
        self.read(transport, service, stream, exchange)
    }

    /// Reads the available part of a request, and answers a complete request. What comes after some thousand bytes is left
    /// for later: they may be as many frames that mean nothing.
    fn read(
        &mut self,
        transport: &mut dyn Transport,
        service: &mut Service,
        stream: StreamId,
        mut exchange: Exchange,
    ) -> Result<(), Violation> {
        let mut bytes = 0;
        while let Some(request) = &mut exchange.request {
            if bytes >= READ_BYTES_AT_ONCE {
                transport.read_later(stream);
                break;
            }
            let next = match transport.read(stream) {
                Read::Blocked => break,
                Read::Data(data) => {
                    bytes += data.len();
                    let next = request.push(data, service)?;
                    let kept_bytes = self.kept_bytes + request.kept_bytes();
                    if kept_bytes > service.limits.unfinished_sections_bytes_max {
                        service.counters.requests_excessive += 1;
                        transport.reset(stream, Code::EXCESSIVE_LOAD.0);
                        transport.stop(stream, Code::EXCESSIVE_LOAD.0);
                        return Ok(());
                    }
                    next
                }
                Read::Fin => match exchange.request.take() {
                    Some(request) => request.end()?,
                    None => Next::Read,
                },
                Read::Reset(_) => {
                    service.counters.requests_reset += 1;
                    let is_answered = request.is_answered();
                    exchange.request = None;
                    if is_answered {
                        Next::Read
                    } else {
                        transport.reset(stream, Code::REQUEST_CANCELLED.0);
                        return Ok(());
                    }
                }
            };
            match next {
                Next::Read => {}
                Next::Answer(answer) => {
                    service.counters.count(&answer);
                    exchange.answer = Some(answer);
                }
                Next::Stop => {
                    transport.stop(stream, Code::NO_ERROR.0);
                    exchange.request = None;
                }
                Next::Fail(code) => {
                    service.counters.requests_malformed += 1;
                    transport.reset(stream, code.0);
                    transport.stop(stream, code.0);
                    return Ok(());
                }
            }
        }
        self.write(transport, service, stream, exchange);
        Ok(())
    }

    /// Writes a response, and stores the rest of the exchange.
    fn write(
        &mut self,
        transport: &mut dyn Transport,
        service: &mut Service,
        stream: StreamId,
        mut exchange: Exchange,
    ) {
        if let Some(answer) = &mut exchange.answer {
            match answer.write(transport, stream) {
                Written::Blocked => {}
                Written::All => {
                    self.unacknowledged += 1;
                    exchange.answer = None;
                }
                Written::Gone => {
                    service.counters.answers_stopped += 1;
                    transport.reset(stream, Code::REQUEST_CANCELLED.0);
                    exchange.answer = None;
                }
            }
        }
        if exchange.request.is_some() || exchange.answer.is_some() {
            self.kept_bytes += exchange.kept_bytes();
            self.exchanges.insert(stream, exchange);
        }
    }
}
