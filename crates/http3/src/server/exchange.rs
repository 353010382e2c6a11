//! One request and its response.

use bytes::Bytes;
use weir_h3::{
    Code, Violation,
    message::{MessageReader, Piece},
    qpack,
};
use weir_transport::{StreamId, Transport, WriteError};

use super::{Service, plan::Plan, site::Answer};

/// An incomplete request, or a response that is not completely sent. A request that is answered at once is never
/// stored.
#[derive(Debug)]
pub(super) struct Exchange {
    /// The request; `None` once it is complete or not wanted.
    pub(super) request: Option<Request>,
    /// The part of the response that the stream has not accepted.
    pub(super) answer: Option<Answer>,
    /// Whether the response was there in the last search for stalled ones.
    pub(super) is_old: bool,
}

impl Exchange {
    /// Returns the bytes stored of an incomplete head or trailers.
    pub(super) fn kept_bytes(&self) -> usize {
        self.request.as_ref().map_or(0, Request::kept_bytes)
    }
}

/// A request being received.
#[derive(Debug)]
pub(super) struct Request {
    reader: MessageReader,
    plan: Option<Plan>,
    content_bytes: u64,
    /// Whether it was answered before its end. The rest is read and dropped.
    is_answered: bool,
}

/// The next step after reading a part of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Read on.
    Read,
    /// Send this response, and read on.
    Answer(Answer),
    /// Ask the client to stop sending, since the request was answered.
    Stop,
    /// Reset the stream with this error.
    Fail(Code),
}

/// The result of writing a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The stream accepted everything and is finished.
    All,
    /// The stream is blocked.
    Blocked,
    /// The client does not want the response.
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

    /// Handles the end of the stream.
    pub(super) fn end(self) -> Result<Next, Violation> {
        self.reader.check_end()?;
        if self.is_answered {
            return Ok(Next::Read);
        }
        Ok(match self.plan {
            None => Next::Fail(Code::REQUEST_INCOMPLETE),
            // The length must match the content (RFC 9114 §4.1.2).
            Some(Plan::Answer {
                content_length: Some(length),
                ..
            }) if length != self.content_bytes => Next::Fail(Code::MESSAGE_ERROR),
            Some(Plan::Answer { answer, .. }) => Next::Answer(answer),
            Some(Plan::TooLarge | Plan::Malformed) => Next::Fail(Code::MESSAGE_ERROR),
        })
    }

    /// Returns the bytes stored of an incomplete head or trailers.
    pub(super) fn kept_bytes(&self) -> usize {
        self.reader.kept_bytes()
    }

    /// Whether the response was sent before the end of the request.
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

    /// Responds before the end of the request. The rest of it is read up to a limit, since some clients drop a response
    /// if they are asked to stop first.
    fn answer_early(&mut self, status: u16) -> Next {
        self.is_answered = true;
        Next::Answer(Answer::refusal(status))
    }
}

impl Answer {
    /// Writes what the stream accepts, and keeps the rest.
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

/// Checks that trailers are valid (RFC 9114 §4.3), and ignores them.
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
