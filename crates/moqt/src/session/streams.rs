//! Reading of all streams: hands the data of each to the control stream, a request or a data stream.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use weir_transport::{Direction, Read, StreamId, Transport};

use super::stream_state::{FetchStream, Owner, Stream, SubgroupStream};
use super::{CloseReason, RequestId, Session, StreamEnd};
use crate::data::StreamKind;
use crate::error::{DecodeError, ResetCode, SessionError, Violation};
use crate::reader::{FetchReader, SubgroupReader};

impl Session {
    pub(super) fn is_control(&self, stream: StreamId) -> bool {
        matches!(self.streams.get(&stream), Some(Stream::Control))
    }

    /// Reads the data of a stream, as long as the stream is to be read. What has many events or messages is left for later.
    pub(super) fn read(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) -> Result<(), DecodeError> {
        let mut message_bytes = 0;
        loop {
            if self.events.len() >= EVENTS_AT_ONCE || message_bytes >= MESSAGE_BYTES_AT_ONCE {
                transport.read_later(stream);
                return Ok(());
            }
            let is_ready = self.state.is_ready();
            let known = match self.streams.get(&stream) {
                Some(known) if known.is_readable(is_ready) => known,
                Some(_) | None => return Ok(()),
            };
            if known.has_unhandled() {
                self.handle_rest(now, transport, stream)?;
                self.note_held(now, transport, stream)?;
                continue;
            }
            let carries_messages = known.carries_messages();
            match transport.read(stream) {
                Read::Data(data) => {
                    message_bytes += if carries_messages { data.len() } else { 0 };
                    self.on_data(now, transport, stream, data)?;
                    self.note_held(now, transport, stream)?;
                }
                Read::Fin => return self.on_stream_end(now, transport, stream, StreamEnd::Fin),
                Read::Reset(code) => {
                    let end = StreamEnd::Reset(ResetCode(code));
                    return self.on_stream_end(now, transport, stream, end);
                }
                Read::Blocked => return Ok(()),
            }
        }
    }

    /// Handles bytes of a stream that were read before.
    fn handle_rest(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) -> Result<(), DecodeError> {
        match self.streams.get(&stream) {
            Some(Stream::Typeless(_)) => self.recognise(now, transport, stream),
            Some(Stream::Subgroup(_)) => self.poll_subgroup(now, transport, stream),
            Some(Stream::Fetch(_)) => self.poll_fetch(transport, stream),
            Some(Stream::Control | Stream::Opening(_) | Stream::Request(_) | Stream::Padding)
            | None => Ok(()),
        }
    }

    fn on_data(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        stream: StreamId,
        data: Bytes,
    ) -> Result<(), DecodeError> {
        match self.streams.get_mut(&stream) {
            Some(Stream::Subgroup(subgroup)) => {
                subgroup.reader.push(data);
                self.poll_subgroup(now, transport, stream)
            }
            Some(Stream::Fetch(fetch)) => {
                fetch.reader.push(data);
                self.poll_fetch(transport, stream)
            }
            Some(Stream::Padding) => {
                self.counters.padding_bytes += data.len() as u64;
                Ok(())
            }
            Some(Stream::Typeless(start)) => {
                *start = join(start, data);
                self.recognise(now, transport, stream)
            }
            Some(Stream::Control) => self.on_control_data(transport, data),
            Some(Stream::Opening(reader)) => {
                reader.push(data);
                self.poll_opening(now, transport, stream)
            }
            Some(&mut Stream::Request(id)) => self.on_request_data(now, transport, id, data),
            None => Ok(()),
        }
    }

    /// Handles the end of the peer's direction of a stream.
    fn on_stream_end(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        stream: StreamId,
        end: StreamEnd,
    ) -> Result<(), DecodeError> {
        let is_fin = end == StreamEnd::Fin;
        match self.streams.get(&stream) {
            Some(Stream::Control) => self.on_control_closed(now, CONTROL_ENDED),
            Some(&Stream::Request(id)) => self.on_request_stream_end(now, transport, id, end)?,
            Some(Stream::Opening(reader)) => {
                if is_fin {
                    reader.fin()?;
                }
                self.counters.streams_reset_early += u64::from(!is_fin);
                transport.reset(stream, ResetCode::CANCELLED.0);
                self.forget_stream(stream);
            }
            Some(Stream::Typeless(start)) if is_fin && !start.is_empty() => {
                return Err(DecodeError::Short);
            }
            Some(Stream::Typeless(_) | Stream::Padding) => {
                self.counters.streams_reset_early += u64::from(!is_fin);
                self.forget_stream(stream);
            }
            Some(Stream::Subgroup(_) | Stream::Fetch(_)) => {
                self.on_data_end(transport, stream, end)?;
            }
            None => {}
        }
        Ok(())
    }

    fn on_request_stream_end(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        id: RequestId,
        end: StreamEnd,
    ) -> Result<(), DecodeError> {
        let reason = match end {
            StreamEnd::Fin => {
                if let Some(request) = self.requests.get(id)
                    && let Some(reader) = &request.reader
                {
                    reader.fin()?;
                }
                CloseReason::Fin
            }
            StreamEnd::Reset(code) => CloseReason::Reset(code),
        };
        self.on_request_end(now, transport, id, reason);
        Ok(())
    }

    pub(super) fn forget_stream(&mut self, stream: StreamId) -> Option<Stream> {
        let known = self.streams.remove(&stream)?;
        self.incomplete.hold(stream, 0);
        if let Some(request) = known.data_of() {
            self.data_streams.remove(&(request, stream));
        }
        let opened_here = match known {
            Stream::Request(id) => self.ids.is_assigned(id),
            Stream::Typeless(_)
            | Stream::Control
            | Stream::Opening(_)
            | Stream::Subgroup(_)
            | Stream::Fetch(_)
            | Stream::Padding => false,
        };
        if !opened_here {
            self.streams_from_peer -= 1;
        }
        Some(known)
    }

    /// Recognises what a unidirectional stream carries once its type is complete, and reads the bytes
    /// that came with the type.
    fn recognise(
        &mut self,
        now: Instant,
        transport: &mut dyn Transport,
        stream: StreamId,
    ) -> Result<(), DecodeError> {
        let Some(Stream::Typeless(start)) = self.streams.get(&stream) else {
            return Ok(());
        };
        if start.is_empty() {
            return Ok(());
        }
        let kind = match StreamKind::recognise(self.draft, start) {
            Ok(kind) => kind,
            Err(DecodeError::Short) => return Ok(()),
            Err(error @ DecodeError::Invalid { .. }) => return Err(error),
        };
        if kind != StreamKind::Control && !self.state.is_ready() {
            // The packets that these bytes came in are not held.
            let start = Bytes::copy_from_slice(start);
            self.streams.insert(stream, Stream::Typeless(start));
            return Ok(());
        }
        let start = start.clone();
        let known = self.stream_of_kind(kind)?;
        self.streams.insert(stream, known);
        self.on_data(now, transport, stream, start)
    }

    fn stream_of_kind(&mut self, kind: StreamKind) -> Result<Stream, Violation> {
        let (draft, bytes_max) = (self.draft, self.limits.object_header_bytes_max);
        Ok(match kind {
            StreamKind::Control => {
                self.on_control_opened()?;
                Stream::Control
            }
            StreamKind::Subgroup => Stream::Subgroup(Box::new(SubgroupStream {
                reader: SubgroupReader::new(draft, bytes_max),
                owner: Owner::Headless,
            })),
            StreamKind::Fetch => Stream::Fetch(Box::new(FetchStream {
                is_paused: false,
                reader: FetchReader::new(draft, bytes_max),
                request: None,
            })),
            StreamKind::Padding => Stream::Padding,
        })
    }
}

/// Events that wait for the role, from which on no stream is read further. A packet can complete a megabyte of objects of
/// three bytes.
pub(super) const EVENTS_AT_ONCE: usize = 256;
/// Bytes of messages that are read of a stream at once. Those after the end of a request cause no events, but are decoded.
const MESSAGE_BYTES_AT_ONCE: usize = 4 << 10;
const CONTROL_ENDED: Violation =
    SessionError::PROTOCOL_VIOLATION.violation("the control stream was closed");

/// Refuses a stream that the session keeps no state for.
pub(super) fn refuse(
    transport: &mut dyn Transport,
    stream: StreamId,
    direction: Direction,
    code: ResetCode,
) {
    transport.stop(stream, code.0);
    if direction == Direction::Bi {
        transport.reset(stream, code.0);
    }
}

/// Returns `start` followed by `data`, without a copy if `start` is empty.
fn join(start: &Bytes, data: Bytes) -> Bytes {
    if start.is_empty() {
        return data;
    }
    let mut joined = BytesMut::with_capacity(start.len() + data.len());
    joined.extend_from_slice(start);
    joined.extend_from_slice(&data);
    joined.freeze()
}
