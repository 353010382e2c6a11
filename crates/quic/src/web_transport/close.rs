//! How sessions end, and why some are not established.

use weir_transport::{StreamId, Transport};

use super::{
    Event, SETUP_TIME_MAX, Side, State, WebTransport, capsule::Close, codes, own_streams::Own,
};
use crate::{Lost, event::printable};
use weir_h3::{Code, Violation};

impl WebTransport {
    /// Closes the connection, and reports the reason to the role if the role did not close it.
    pub(super) fn end(
        &mut self,
        transport: &mut dyn Transport,
        code: Code,
        reason: &str,
        lost: Option<Lost>,
    ) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.deadline = None;
        self.own.clear();
        self.unsent.clear();
        self.unread.clear();
        self.left.clear();
        self.early_streams.clear();
        self.early_datagrams.clear();
        transport.close(code.0, reason.as_bytes());
        self.events.extend(lost.map(Event::Lost));
    }

    /// Handles a violation of HTTP/3 by the peer.
    pub(super) fn on_violation(&mut self, transport: &mut dyn Transport, violation: Violation) {
        if self.state == State::Closed {
            return;
        }
        self.counters.violations += 1;
        let lost = match self.state {
            State::Closing => None,
            State::New | State::Opening | State::Established | State::Closed => Some(
                Lost::WebTransport(format!("this side reports: {violation}")),
            ),
        };
        self.end(transport, violation.code, violation.reason, lost);
    }

    /// Handles a regular close of the session by the peer.
    pub(super) fn on_closed(&mut self, transport: &mut dyn Transport, close: &Close) {
        let lost = Lost::Application {
            code: u64::from(close.code),
            reason: printable(&close.reason),
        };
        let lost = (self.state == State::Established).then_some(lost);
        self.end(transport, Code::NO_ERROR, "", lost);
    }

    /// Handles a request stream that failed: the session is lost, or will not be established.
    pub(super) fn on_failed(&mut self, transport: &mut dyn Transport, reason: String) {
        let lost = (self.state != State::Closing).then_some(Lost::WebTransport(reason));
        self.end(transport, Code::NO_ERROR, "", lost);
    }

    pub(super) fn on_deadline(&mut self, transport: &mut dyn Transport) {
        match self.state {
            State::Opening => {
                self.counters.overdue += 1;
                let guilty = match &self.side {
                    Side::Client => "the server granted no session",
                    Side::Server(_) => "the client opened no session",
                };
                let reason = format!("{guilty} within {} s", SETUP_TIME_MAX.as_secs());
                let lost = Lost::WebTransport(reason.clone());
                self.end(transport, Code::REQUEST_CANCELLED, &reason, Some(lost));
            }
            State::Closing => self.end(transport, Code::NO_ERROR, "", None),
            State::New | State::Established | State::Closed => self.deadline = None,
        }
    }

    /// Handles `STOP_SENDING` for a stream that the role does not know.
    pub(super) fn on_own_stopped(&mut self, transport: &mut dyn Transport, stream: StreamId) {
        if self.control == Some(stream) {
            let reason = "the control stream was stopped";
            self.on_violation(
                transport,
                Violation::new(Code::CLOSED_CRITICAL_STREAM, reason),
            );
        } else if self.session == Some(stream) && self.state != State::Opening {
            self.on_failed(transport, "the peer stopped the session".to_owned());
        } else if matches!(self.own.get(&stream), Some(Own::Answered)) {
            transport.reset(stream, Code::REQUEST_CANCELLED.0);
            self.own.remove(&stream);
        }
    }
}

/// Returns what an HTTP/3 error code of the peer means for the role.
pub(crate) fn lost(code: u64, reason: &[u8]) -> Lost {
    let reason = printable(reason);
    let code = Code(code);
    match codes::from_http(code.0) {
        Some(code) => Lost::Application { code, reason },
        None if code == Code::NO_ERROR => Lost::Application { code: 0, reason },
        None => Lost::WebTransport(format!("the peer closed the connection: {code} {reason:?}")),
    }
}
