//! One client's connection.

use rustc_hash::FxHashMap;
use weir_h3::{Code, Violation, peer_streams::Side};
use weir_transport::{Direction, Read, StreamId, Transport};

use super::{
    Service,
    exchange::{Exchange, Next, Request, Written},
    site::Answer,
};
use crate::session::Session;

/// A client: its session, and what is not done with at once. If a method returns an error, the connection is to be closed
/// with its code, and this is of no more use.
#[derive(Debug)]
pub struct Peer {
    session: Session,
    has_started: bool,
    exchanges: FxHashMap<StreamId, Exchange>,
    /// Bytes that these keep of field sections that have come in part.
    kept_bytes: usize,
    /// The first stream of a request that was not opened yet.
    next: u64,
    /// Requests from this stream on are rejected.
    goaway: Option<u64>,
    /// Answers that were written whole and not acknowledged whole.
    unacknowledged: usize,
}

impl Peer {
    /// A client of whom nothing was heard.
    pub fn new(service: &Service) -> Self {
        Self {
            session: Session::new(Side::Server, service.limits),
            has_started: false,
            exchanges: FxHashMap::default(),
            kept_bytes: 0,
            next: 0,
            goaway: None,
            unacknowledged: 0,
        }
    }

    /// Streams may be used; or the client lets us open more.
    pub fn start(&mut self, transport: &mut dyn Transport) {
        self.has_started = true;
        self.session.start(transport);
    }

    /// The client opened a stream.
    pub fn handle_opened(
        &mut self,
        transport: &mut dyn Transport,
        service: &mut Service,
        stream: StreamId,
        direction: Direction,
    ) -> Result<(), Violation> {
        if !self.has_started {
            // The first request may come before the handshake ends.
            self.start(transport);
        }
        self.session.handle_opened(stream, direction)?;
        match direction {
            Direction::Uni => Ok(()),
            Direction::Bi => self.on_request(transport, service, stream),
        }
    }

    /// There may be something to read.
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

    /// A stream takes more.
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

    /// The client wants no more of an answer.
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
            // It was written whole before.
            None => self.unacknowledged = self.unacknowledged.saturating_sub(1),
            Some(exchange) => {
                if exchange.request.is_some() {
                    transport.stop(stream, Code::REQUEST_CANCELLED.0);
                }
            }
        }
        Ok(())
    }

    /// All of an answer was acknowledged.
    pub fn handle_finished(&mut self) {
        self.unacknowledged = self.unacknowledged.saturating_sub(1);
    }

    /// Takes no more requests than those that have begun.
    pub fn go_away(&mut self, transport: &mut dyn Transport) {
        self.goaway = Some(self.next);
        self.session.go_away(transport, self.next);
    }

    /// Whether nothing is on its way any more.
    pub fn is_idle(&self) -> bool {
        self.exchanges.is_empty() && self.unacknowledged == 0
    }

    /// Whether no request or answer is kept.
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
        };
        self.read(transport, service, stream, exchange)
    }

    /// Reads what there is of a request, and answers if that was all.
    fn read(
        &mut self,
        transport: &mut dyn Transport,
        service: &mut Service,
        stream: StreamId,
        mut exchange: Exchange,
    ) -> Result<(), Violation> {
        while let Some(request) = &mut exchange.request {
            let next = match transport.read(stream) {
                Read::Blocked => break,
                Read::Data(data) => {
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

    /// Writes what there is of an answer, and keeps what is not done with.
    fn write(
        &mut self,
        transport: &mut dyn Transport,
        service: &mut Service,
        stream: StreamId,
        mut exchange: Exchange,
    ) {
        let written = exchange
            .answer
            .as_mut()
            .map(|answer| Answer::write(answer, transport, stream));
        match written {
            None | Some(Written::Blocked) => {}
            Some(Written::All) => {
                self.unacknowledged += 1;
                exchange.answer = None;
            }
            Some(Written::Gone) => {
                service.counters.answers_stopped += 1;
                transport.reset(stream, Code::REQUEST_CANCELLED.0);
                exchange.answer = None;
            }
        }
        if exchange.request.is_some() || exchange.answer.is_some() {
            self.kept_bytes += exchange.kept_bytes();
            self.exchanges.insert(stream, exchange);
        }
    }
}
