//! One request and its answer.

use bytes::Bytes;
use weir_h3::{
    Code, Violation,
    message::{MessageReader, Piece},
    qpack,
};
use weir_transport::{StreamId, Transport, WriteError};

use super::{Service, plan::Plan, site::Answer};

/// A request that has not come to its end, or an answer that has not left. What is done with at once is never kept.
#[derive(Debug)]
pub(super) struct Exchange {
    /// `None` when the request was read to its end, or is no longer wanted.
    pub(super) request: Option<Request>,
    /// What the stream has not taken of the answer.
    pub(super) answer: Option<Answer>,
}

impl Exchange {
    /// Bytes that are kept of a head, or of trailers, of which more is to come.
    pub(super) fn kept_bytes(&self) -> usize {
        self.request.as_ref().map_or(0, Request::kept_bytes)
    }
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Request {
    reader: MessageReader,
    plan: Option<Plan>,
    content_bytes: u64,
    /// It was answered before its end; the rest is read and dropped.
    is_answered: bool,
}

/// What is to be done after more of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing; more of it is to come.
    Read,
    /// Give this answer, and go on reading.
    Answer(Answer),
    /// Ask the client not to send more of it; it was answered.
    Stop,
    /// End the stream with this error.
    Fail(Code),
}

/// How far an answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// All was taken, and the stream finished.
    All,
    /// The stream takes more later.
    Blocked,
    /// Nobody wants it any more.
    Gone,
}

impl Request {
    pub(super) fn new(section_bytes_max: usize) -> Self {
        Self {
            reader: MessageReader::new(section_bytes_max),
            plan: None,
            content_bytes: 0,
            is_answered: false,
        }
    }

    /// Takes the next bytes of the stream.
    pub(super) fn push(&mut self, data: Bytes, service: &mut Service) -> Result<Next, Violation> {
        self.reader.push(data);
        let mut next = Next::Read;
        while let Some(piece) = self.reader.poll()? {
            let then = match piece {
                Piece::Head(section) => self.on_head(&section, service)?,
                Piece::HeadTooLarge => self.answer_early(431),
                Piece::Content(data) => self.on_content(data.len() as u64, service),
                Piece::Trailers(section) => check_trailers(section, service)?,
            };
            match then {
                Next::Read => {}
                Next::Answer(_) => next = then,
                Next::Stop | Next::Fail(_) => return Ok(then),
            }
        }
        Ok(next)
    }

    /// The stream has come to its end.
    pub(super) fn end(self) -> Result<Next, Violation> {
        self.reader.check_end()?;
        if self.is_answered {
            return Ok(Next::Read);
        }
        Ok(match self.plan {
            None => Next::Fail(Code::REQUEST_INCOMPLETE),
            // RFC 9114 §4.1.2.
            Some(Plan::Answer {
                content_length: Some(length),
                ..
            }) if length != self.content_bytes => Next::Fail(Code::MESSAGE_ERROR),
            Some(Plan::Answer { answer, .. }) => Next::Answer(answer),
            Some(Plan::TooLarge | Plan::Malformed) => Next::Fail(Code::MESSAGE_ERROR),
        })
    }

    /// Bytes that are kept of a head, or of trailers, of which more is to come.
    pub(super) fn kept_bytes(&self) -> usize {
        self.reader.kept_bytes()
    }

    /// Whether the answer was given before the end.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered
    }

    fn on_head(&mut self, section: &Bytes, service: &mut Service) -> Result<Next, Violation> {
        let plan = service.decide(section)?;
        Ok(match plan {
            Plan::TooLarge => self.answer_early(431),
            Plan::Malformed => Next::Fail(Code::MESSAGE_ERROR),
            Plan::Answer {
                content_length: Some(length),
                ..
            } if length > service.limits.request_content_bytes_max => self.answer_early(413),
            Plan::Answer { .. } => {
                self.plan = Some(plan);
                Next::Read
            }
        })
    }

    fn on_content(&mut self, length: u64, service: &Service) -> Next {
        self.content_bytes += length;
        let content_bytes_max = service.limits.request_content_bytes_max;
        if self.content_bytes <= content_bytes_max {
            Next::Read
        } else if !self.is_answered {
            self.answer_early(413)
        } else if self.content_bytes > content_bytes_max.saturating_mul(2) {
            Next::Stop
        } else {
            Next::Read
        }
    }

    /// Some clients drop an answer if they are asked to stop before it came, so the rest is read, within bounds.
    fn answer_early(&mut self, status: u16) -> Next {
        self.is_answered = true;
        Next::Answer(Answer::refusal(status))
    }
}

impl Answer {
    /// Writes what the stream takes; what it does not stays.
    pub(super) fn write(&mut self, transport: &mut dyn Transport, stream: StreamId) -> Written {
        for piece in [&mut self.first, &mut self.rest] {
            if piece.is_empty() {
                continue;
            }
            match transport.write(stream, piece) {
                Ok(()) => {}
                Err(WriteError::Blocked) => return Written::Blocked,
                Err(WriteError::Stopped(_) | WriteError::Closed) => return Written::Gone,
            }
        }
        transport.finish(stream);
        Written::All
    }
}

/// Trailers are not looked at, but have to be such (RFC 9114 §4.3).
fn check_trailers(section: Bytes, service: &Service) -> Result<Next, Violation> {
    for field in qpack::Fields::new(section, service.limits.field_section_bytes_max) {
        match field {
            Ok(field) if field.name.starts_with(b":") => {
                return Ok(Next::Fail(Code::MESSAGE_ERROR));
            }
            Ok(_) => {}
            Err(qpack::SectionError::Broken(violation)) => return Err(violation),
            Err(qpack::SectionError::TooLarge) => return Ok(Next::Read),
        }
    }
    Ok(Next::Read)
}
